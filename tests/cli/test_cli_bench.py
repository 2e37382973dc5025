import pytest

from dpadapt.benchmarks import BENCHMARKS
from dpadapt.cli import main


def test_unknown_benchmark_is_named(capsys):
    assert main(["bench", "magic"]) == 2
    said = capsys.readouterr().err
    assert "name must be one of" in said
    assert all(f"'{name}'" in said for name in BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_explains_itself(name, capfd):
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", BENCHMARKS[name][0], "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--quick" in done.stdout
    assert main(["bench", "--help"]) == 0
    assert name in capfd.readouterr().out


def test_audit_runs_from_the_command_line(capsys, monkeypatch):
    import dpadapt.audit.__main__ as command

    asked = []
    monkeypatch.setattr(command, "main", lambda arguments: asked.append(arguments) or 1)
    assert main(["audit", "--runs", "7"]) == 1
    assert asked[0][:2] == ["--runs", "7"]
