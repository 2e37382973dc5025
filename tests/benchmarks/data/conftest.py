import os
from pathlib import Path

import pytest

from benchmarks.data import sources
from benchmarks.data.loading import available
from dpadapt.datasets.domains import Dataset


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """Unset DPADAPT_DATA, use an empty cache, and return the cache folder."""
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpadapt"


@pytest.fixture
def fake_load(monkeypatch):
    """Return a function that replaces `load` of a module by one that returns the given data."""

    def install(module, name, data, part=None):
        source = sources.find(name, part)
        dataset = Dataset(data, source, source.status, source.note)
        monkeypatch.setattr(module, "load", lambda *_args, **_options: dataset)
        return dataset

    return install


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
