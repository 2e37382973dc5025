"""`python -m benchmarks`: every benchmark of the table explains itself."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import BENCHMARKS, main


def test_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["magic"])
    said = capsys.readouterr().err
    assert all(name in said for name in BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_explains_itself(name):
    done = subprocess.run([sys.executable, "-m", "benchmarks", name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--quick" in done.stdout


def test_help_lists_every_benchmark(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in BENCHMARKS)
