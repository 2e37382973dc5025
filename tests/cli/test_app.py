"""The command itself: help, version, errors, exit codes, streams that can't be written, and a quick start."""

import io
import os
import subprocess
import sys
import warnings
from contextlib import ExitStack

import pytest
from outcomes import accepted, refused

from dpadapt import __version__
from dpadapt.cli import main
from dpadapt.methods import METHODS
from dpadapt.persist import MODEL_FILE
from tests.failures import failing

COMMANDS = ["schema", "forecast", "rehearse", "fit", "predict", "evaluate", "cost", "calibrate", "ledger", "demo"]


def test_version(run):
    assert run("--version").out == f"dpadapt {__version__}\n"


def test_without_arguments_it_shows_the_help(run):
    outcome = accepted(run())
    assert all(command in outcome.out for command in COMMANDS)


@pytest.mark.parametrize("command", [*([c] for c in COMMANDS), ["ledger", "show"], ["ledger", "history"]], ids=" ".join)
def test_every_command_has_a_purpose_and_an_example(run, command):
    outcome = accepted(run(*command, "--help"))
    assert "Example" in outcome.out
    assert f"dpadapt {' '.join(command)}" in outcome.out


def test_the_help_of_fit_has_two_screens_and_the_products_and_method_help_lists_all(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    help_text = run("fit", "--help").out
    assert len(help_text.splitlines()) <= 80
    for method in METHODS:
        assert (method.name in help_text) is not method.published
    for command in ("fit", "request"):
        outcome = accepted(run(command, "--method", "help"))
        assert all(f"{method.name} ({method.task}): {method.summary}" in outcome.out for method in METHODS)


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["fit"], ["fit", "--nonsense"], ["cost", "--delta", "much"], ["ledger", "show"], ["predict"]],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, arguments):
    refused(run(*arguments))


def test_the_command_line_starts_without_heavy_imports():
    heavy = ["numpy", "pandas", "scipy", "sklearn", "jinja2", "dp_accounting", "pyarrow"]
    code = f"import sys, dpadapt.cli; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


COST = ["cost", "--gaussian", "1", "--delta", "1e-6"]


@pytest.fixture
def printing_fails(monkeypatch, tmp_path):
    """Return what puts a standard output in place that can't be written, by the name of the reason."""
    with ExitStack() as opened:

        def put(kind):
            if kind == "pipe":
                reading, target = os.pipe()
                os.close(reading)
            else:
                target = os.open("/dev/full", os.O_WRONLY) if kind == "full" else os.open(os.devnull, os.O_RDONLY)
            monkeypatch.setattr(sys, "stdout", opened.enter_context(open(target, "w")))

        yield put


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        *(("full", command) for command in ("cost", "schema", "predict", "ledger", "help", "version", "fit")),
        *((kind, command) for kind in ("pipe", "closed") for command in ("help", "ledger", "fit")),
    ],
)
def test_output_that_cannot_be_printed_is_an_error_whose_code_tells_whether_anything_was_spent(
    site, run, capsys, printing_fails, kind, command
):
    said = {"full": "No space left", "pipe": "Broken pipe", "closed": "Bad file"}[kind]
    arguments = {
        "cost": COST,
        "schema": ["schema", site.folder / "public.csv", "-o", site.folder / "another.toml"],
        "predict": ["predict", site.out, site.folder / "new.csv", "-o", site.folder / "p.csv"],
        "ledger": ["ledger", "show", site.ledger],
        "help": ["--help"],
        "version": ["--version"],
        "fit": site.fit(),
    }[command]
    if command == "predict":
        assert run(*site.fit()).code == 0
    printing_fails(kind)
    code = main([str(argument) for argument in arguments])
    assert code == (1 if command == "fit" else 2)
    err = capsys.readouterr().err
    assert err.startswith("dpadapt: error: ")
    assert err.count("\n") == 1
    assert said in err
    if command == "fit":
        assert "model.dpadapt, receipt.json, report.html" in err
        assert "The budget is spent" in err
        assert str(site.out) in err
    # What is left in the stream goes nowhere, and does not fail again when Python ends.
    sys.stdout.flush()


def test_a_terminal_without_greek_letters_and_boxes_gets_words_and_plain_lines(site, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main([str(argument) for argument in site.fit()]) == 0
    said = screen.buffer.getvalue().decode("ascii")
    assert "epsilon = 1 was spent" in said
    assert "+----" in said
    assert screen.errors == "strict"


def test_a_name_that_is_no_text_in_the_terminals_encoding_is_printed_somehow(site, run, monkeypatch):
    name = os.fsdecode(b"model-\xff-") + "\u96ea"
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main([str(argument) for argument in site.fit(out=site.folder / name, ledger=None)]) == 0
    assert b"model-" in screen.buffer.getvalue()
    assert (site.folder / name / MODEL_FILE).exists()


SCRIPT = "import sys; from dpadapt.cli import main; sys.exit(main())"


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">&-", 2, "Bad file descriptor"),
        ("2>&-", 0, ""),
        ("<&- >&- 2>&-", 2, ""),
        ("> /dev/full", 2, "No space left"),
    ],
)
def test_a_process_with_closed_streams_tells_by_its_exit_code(streams, code, said):
    command = f'"{sys.executable}" -c "{SCRIPT}" {" ".join(COST)} {streams}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == (1 if said else 0)


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_no_file_is_opened_under_the_number_of_a_closed_stream(tmp_path):
    # What a library prints would end up in the ledger or the model.
    script = "import os; from dpadapt.cli.app import _open_closed_streams as f; f(); print(os.open('/dev/null', 0) > 2)"
    command = f'"{sys.executable}" -c "{script}" <&- 2>&-'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ZeroDivisionError("SECRET"), 2, "unexpected ZeroDivisionError"),
        (ValueError("SECRET"), 2, "unexpected ValueError"),
        (KeyError("SECRET"), 2, "unexpected KeyError"),
        (RecursionError("SECRET"), 2, "nested too deeply"),
        (MemoryError("SECRET"), 2, "memory ran out"),
        (OSError(5, "Input/output error", "SECRET"), 2, "Input/output error"),
        (UnicodeDecodeError("utf-8", b"SECRET", 0, 1, "SECRET"), 2, "unexpected UnicodeDecodeError"),
        (KeyboardInterrupt("SECRET"), 130, "Nothing was spent"),
        (SystemExit("SECRET"), 2, "standard output"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_that_is_not_ours_shows_its_kind_and_not_its_text(run, monkeypatch, error, code, said):
    monkeypatch.setattr("dpadapt.accounting.cost.epsilon", failing(error))
    monkeypatch.setattr("dpadapt.cli.cost._computing", lambda: warnings.catch_warnings())
    outcome = run(*COST)
    assert outcome.code == code
    assert said in outcome.err
    assert "SECRET" not in outcome.err + outcome.out
    assert outcome.err.count("\n") == 1


def test_an_argument_with_a_nul_character_is_refused(run, tmp_path):
    refused(run("ledger", "show", f"{tmp_path}/a\0b"), "NUL")


def test_warnings_and_log_lines_of_libraries_are_not_shown(run, monkeypatch, recwarn):
    import logging

    def loud(*_args, **_options):
        warnings.warn("SECRET in a row", RuntimeWarning, stacklevel=1)
        logging.getLogger("absl").warning("SECRET in a log")
        return 1.0

    monkeypatch.setattr("dpadapt.accounting.cost.epsilon", loud)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcome = run(*COST)
    assert outcome.code == 0
    assert outcome.err == ""
    assert not recwarn.list
