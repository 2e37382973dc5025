import hashlib
import io
import socket
from types import SimpleNamespace

import pandas as pd
import pytest

from benchmarks.data import loading
from dpadapt.datasets.domains import OpenML, SklearnCalifornia, UciArchive

FRAME = pd.DataFrame({"x": [1.0]})


class Response(io.BytesIO):
    def __init__(self, content, headers):
        super().__init__(content)
        self.headers = headers


def serve(monkeypatch, content, headers):
    asked = []

    def urlopen(address, timeout):
        asked.append((address, timeout))
        return Response(content, headers)

    monkeypatch.setattr(loading.urllib.request, "urlopen", urlopen)
    return asked


@pytest.mark.parametrize("headers", [{"Content-Length": "600000"}, {}])
def test_uci_archive_is_read_whole_with_its_checksum(monkeypatch, capsys, headers):
    content = b"z" * 600_000
    asked = serve(monkeypatch, content, headers)
    fetched = loading.fetch(UciArchive("static/public/2/adult.zip", lambda raw: FRAME))
    assert asked == [("https://archive.ics.uci.edu/static/public/2/adult.zip", 30)]
    assert fetched.raw == content
    assert fetched.checksum == "sha256:" + hashlib.sha256(content).hexdigest()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "adult.zip" in captured.err


def test_cut_connection_is_an_error(monkeypatch):
    serve(monkeypatch, b"half", {"Content-Length": "8"})
    with pytest.raises(OSError, match="closed after 4 of 8 bytes"):
        loading.fetch(UciArchive("static/public/2/adult.zip", lambda raw: FRAME))


@pytest.mark.parametrize(("details", "checksum"), [({"md5_checksum": "abc"}, "md5:abc"), (None, "")])
def test_openml_is_asked_by_number_and_its_md5_kept(monkeypatch, details, checksum):
    asked = []

    def fetch_openml(**options):
        asked.append(options["data_id"])
        return SimpleNamespace(frame=FRAME, details=details)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    fetched = loading.fetch(OpenML(503, lambda frame: frame))
    assert asked == [503]
    assert fetched.raw is FRAME
    assert fetched.checksum == checksum


@pytest.mark.parametrize("remote", [OpenML(503, lambda frame: frame), SklearnCalifornia(lambda frame: frame)])
def test_retries_of_scikit_learn_end_in_one_error_without_warnings(monkeypatch, remote):
    def unreachable(*_args, **_options):
        raise socket.gaierror("name not known")

    monkeypatch.setattr("socket.getaddrinfo", unreachable)
    with pytest.raises(OSError, match="name not known"):
        loading.fetch(remote)


def test_california_comes_from_scikit_learn(monkeypatch):
    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", lambda **_options: SimpleNamespace(frame=FRAME))
    assert loading.fetch(SklearnCalifornia(lambda frame: frame)).raw is FRAME
