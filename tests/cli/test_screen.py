"""Printing; what is said about errors; files of results; limits of time."""

import signal
import time

import numpy as np
import pytest
from rich.table import Table

from dpadapt import checks
from dpadapt.cli.screen import (
    check_parent,
    console,
    printable,
    progress_bar,
    reason,
    say,
    time_limit,
    working,
    write_file,
)
from dpadapt.errors import made_here

STEERING = ["\x1b[2J", "\x07", "\r", "\b", "\x7f", "\x9b31m", "\u202e", "\u2028", "\ud800", "\x00", "\t"]


@pytest.mark.parametrize("steering", STEERING, ids=ascii)
def test_no_character_that_steers_a_terminal_is_printed(capsys, steering):
    name = f"a{steering}b"
    say(name)
    console().print(name, markup=False)
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    console().print(table)
    shown = capsys.readouterr().out
    assert steering not in shown
    assert shown.count("a\\") == 5
    assert printable(name).isprintable()


@pytest.mark.parametrize("name", ["age", "größe [cm]", "年齢", "ε = 1", "a\u00a0b", "x\ny", ":smile:", "[bold]x[/]"])
def test_ordinary_names_are_printed_as_they_are(capsys, name):
    assert printable(name) == name
    say(name)
    console().print(name, markup=False)
    assert capsys.readouterr().out == f"{name}\n" * 2


def error_of(function):
    with pytest.raises(Exception) as caught:
        function()
    return caught.value


def test_the_text_of_an_error_is_shown_only_if_a_raise_of_ours_made_it():
    ours = error_of(lambda: checks.positive(-1, "epsilon"))
    assert made_here(ours)
    assert reason(ours) == str(ours)
    # Python itself also raises in the middle of our functions.
    theirs = error_of(lambda: printable(3))
    assert theirs.__traceback__.tb_next.tb_next.tb_frame.f_globals["__name__"] == "dpadapt.cli.screen"
    assert not made_here(theirs)
    for function in (lambda: float("SECRET"), lambda: np.asarray(["SECRET"], dtype=float), lambda: {}["SECRET"]):
        assert "SECRET" not in reason(error_of(function))


def test_what_takes_too_long_is_ended_by_a_refusal():
    with pytest.raises(ValueError, match="too long"), time_limit(1, "too long"):
        time.sleep(30)
    with time_limit(1, "too long"):
        pass
    # No alarm is left.
    assert signal.alarm(0) == 0


def test_progress_is_shown_on_terminals_only(capsys, monkeypatch):
    def work():
        with working("reading"), progress_bar("rows", 4) as done:
            done("row \x1b[2J")
            done("row", 3)

    work()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    work()
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert "\x1b[2J" not in err


def test_a_file_that_cannot_be_written_is_named_with_its_option(tmp_path):
    with pytest.raises(ValueError, match=r"--out .*can't be written \(No such file"):
        write_file(tmp_path / "no" / "a.csv", "--out", b"x")
    with pytest.raises(ValueError, match=r"--out .*can't be written \(File name too long"):
        check_parent(tmp_path / ("a" * 5000), "--out")
