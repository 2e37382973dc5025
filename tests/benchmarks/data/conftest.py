import os
from pathlib import Path

import pytest

from benchmarks.data.loading import available


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """No DPADAPT_DATA, and a cache folder of our own. Returns the cache folder."""
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpadapt"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail any test that would open a connection."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def pytest_collection_modifyitems(items):
    folder = os.environ.get("DPADAPT_DATA", "")
    missing = [s.file for s in available() if s.file and not (Path(folder) / s.name / s.file).is_file()]
    if folder and not missing:
        return
    reason = f"DPADAPT_DATA lacks {missing[0]}" if folder else "DPADAPT_DATA is not set"
    for item in items:
        if "realdata" in item.keywords and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))
