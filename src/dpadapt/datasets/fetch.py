"""Fetch a set from its original source, with a progress bar on standard error."""

import hashlib
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpadapt.datasets.provenance import OpenML, Remote, SklearnCalifornia, UciArchive

UCI_ADDRESS = "https://archive.ics.uci.edu/"
TIMEOUT_SECONDS = 30
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, eq=False)
class Fetched:
    """What came from the original source, unconverted, and its checksum (`algorithm:hex`, empty if unknown)."""

    raw: bytes | pd.DataFrame
    checksum: str


def fetch(remote: Remote) -> Fetched:
    """Fetch from the original source. Network errors come out as `OSError` or `ValueError`."""
    match remote:
        case UciArchive(path=path):
            return _fetch_uci(path)
        case OpenML(data_id=data_id):
            return _fetch_openml(data_id)
        case SklearnCalifornia():
            return _fetch_california()


def _fetch_uci(path: str) -> Fetched:
    """Read a zip of the UCI archive in blocks."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    blocks = []
    with (
        urllib.request.urlopen(UCI_ADDRESS + path, timeout=TIMEOUT_SECONDS) as response,
        Progress(*columns, console=_console()) as progress,
    ):
        size = response.headers.get("Content-Length")
        task = progress.add_task(path.rsplit("/", 1)[-1], total=int(size) if size else None)
        while block := response.read(_BLOCK_BYTES):
            blocks.append(block)
            progress.advance(task, len(block))
    raw = b"".join(blocks)
    if size and len(raw) != int(size):
        raise OSError(f"the connection closed after {len(raw)} of {size} bytes")
    return Fetched(raw, "sha256:" + hashlib.sha256(raw).hexdigest())


def _fetch_openml(data_id: int) -> Fetched:
    """Let scikit-learn read OpenML; it checks OpenML's own md5, which is kept as the checksum."""
    from sklearn.datasets import fetch_openml

    with _console().status(f"OpenML data set {data_id}"), _quietly():
        bunch = fetch_openml(data_id=data_id, as_frame=True, cache=False, parser="auto", n_retries=1)
    md5 = (bunch.details or {}).get("md5_checksum", "")
    return Fetched(bunch.frame, f"md5:{md5}" if md5 else "")


def _fetch_california() -> Fetched:
    """Let scikit-learn fetch California housing; it checks its own sha256 of the archive."""
    from sklearn.datasets import fetch_california_housing

    with _console().status("California housing"), _quietly(), tempfile.TemporaryDirectory() as folder:
        return Fetched(fetch_california_housing(data_home=folder, as_frame=True, n_retries=1).frame, "")


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence scikit-learn's warnings about retries: a failure is reported once, by the error at the end."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"sklearn\.datasets")
        yield


def _console() -> Any:
    """Return a terminal on standard error, so that standard output stays clean."""
    from rich.console import Console

    return Console(stderr=True)
