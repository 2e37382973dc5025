"""Ledgers in a file and on a server, for tests that are about both; lets the tests import the helpers beside them."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integrations"))

from ledger_files import FilePlace, ServerPlace
from postgres_server import running_server, server  # noqa: F401

_numbers = itertools.count()


@pytest.fixture(params=["file", "server"])
def place(request, tmp_path):
    """Return where ledgers are: in a folder, or on a server."""
    if request.param == "file":
        return FilePlace(tmp_path)
    return ServerPlace(request.getfixturevalue("server"), f"data {next(_numbers)} ")
