"""`python -m benchmarks`: every benchmark of the table explains itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMANDS = [path for path in FOLDER.rglob("*.py") if "__name__ ==" in path.read_text(encoding="utf-8")]


def test_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["magic"])
    printed = capsys.readouterr().err
    assert all(name in printed for name in BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_explains_itself(name):
    done = subprocess.run([sys.executable, "-m", "benchmarks", name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--quick" in done.stdout


def test_help_lists_every_benchmark(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in BENCHMARKS)
    # Without a name, the same.
    assert main([]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_command_starts_at_the_end_of_its_file(path):
    # Anywhere else, it would run before the names below it are defined.
    blocks = ast.parse(path.read_text(encoding="utf-8")).body
    starts = [place for place, block in enumerate(blocks) if "__name__ ==" in ast.unparse(block).splitlines()[0]]
    assert starts == [len(blocks) - 1]
