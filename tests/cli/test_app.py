"""The command itself: help, version, errors, and a quick start."""

import subprocess
import sys

import pytest

from dpadapt import __version__
from dpadapt.methods import METHODS

COMMANDS = ["schema", "forecast", "rehearse", "fit", "predict", "cost", "calibrate", "ledger", "demo"]


def test_version(run):
    assert run("--version").out == f"dpadapt {__version__}\n"


def test_without_arguments_it_shows_the_help(run):
    outcome = run()
    assert outcome.code == 0
    assert all(command in outcome.out for command in COMMANDS)


@pytest.mark.parametrize("command", [*([c] for c in COMMANDS), ["ledger", "show"], ["ledger", "history"]], ids=" ".join)
def test_every_command_has_a_purpose_and_an_example(run, command):
    outcome = run(*command, "--help")
    assert outcome.code == 0
    assert "Example" in outcome.out
    assert f"dpadapt {' '.join(command)}" in outcome.out


def test_every_method_of_the_table_is_in_the_help_of_fit(run):
    help_text = " ".join(run("fit", "--help").out.split())
    assert all(method.name in help_text for method in METHODS)


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["fit"], ["fit", "--nonsense"], ["cost", "--delta", "much"], ["ledger", "show"], ["predict"]],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, arguments):
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("dpadapt: error: ")
    assert outcome.err.count("\n") == 1


def test_the_command_line_starts_without_heavy_imports():
    heavy = ["numpy", "pandas", "scipy", "sklearn", "jinja2", "dp_accounting", "pyarrow"]
    code = f"import sys, dpadapt.cli; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_missing_command_leaves_no_traceback_in_a_process():
    result = subprocess.run(
        [sys.executable, "-c", "import sys; from dpadapt.cli import main; sys.exit(main())", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
