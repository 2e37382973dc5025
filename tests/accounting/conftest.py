"""Ledgers in a file and on a server, for tests that are about both; lets the tests import the helpers beside them."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ledger_files import FilePlace, ServerPlace
from postgres_server import PASSWORD, Server, why_not

_numbers = itertools.count()


@pytest.fixture(scope="session")
def running_server():
    if why_not():
        pytest.skip(why_not())
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running_server, monkeypatch):
    """Return a PostgreSQL server that runs, whose password is in the environment."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return running_server


@pytest.fixture(params=["file", "server"])
def place(request, tmp_path):
    """Return where ledgers are: in a folder, or on a server."""
    if request.param == "file":
        return FilePlace(tmp_path)
    return ServerPlace(request.getfixturevalue("server"), f"data {next(_numbers)} ")
