"""What commands answer: no error, or one line that names the argument and shows no private value."""

import os

import pandas as pd

SECRET_TEXT = "ZEBRA7731"
SECRET_NUMBER = "98765.4321"


def accepted(outcome):
    """Return the outcome of a command that ended well."""
    assert outcome.code == 0, outcome.err
    return outcome


def refused(outcome, *named: str) -> None:
    assert outcome.code == 2, outcome.out
    assert outcome.err.startswith("dpadapt: error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""
    for name in named:
        assert name in outcome.err
    for secret in (SECRET_TEXT, SECRET_NUMBER, "Traceback"):
        assert secret not in outcome.err


def snapshot(folder):
    """Return every path below a folder with what it holds or leads to."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def edit_private(site, change) -> None:
    frame = pd.read_csv(site.private, dtype=str)
    # Every private table holds the sentinels somewhere, whatever else is wrong with it.
    frame.loc[1, "id"], frame.loc[2, "bmi"] = SECRET_TEXT, SECRET_NUMBER
    change(frame).to_csv(site.private, index=False)
