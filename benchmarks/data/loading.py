"""`load` a data set by name; `available` lists them."""

import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd

from benchmarks.data import sources
from dpadapt.datasets.domains import Data, Dataset, OpenML, Remote, SklearnCalifornia, Source, Status, UciArchive
from dpadapt.errors import DataUnavailable

# Fetch a set from its original source, with a progress bar on standard error.


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


# Read and write the four file formats, from bytes to bytes, so that what was hashed is what is parsed.


def parse(content: bytes, file: str) -> Data:
    """Turn the content of a parquet, csv, npz or gzipped text file into data."""
    if file.endswith(".parquet"):
        return pd.read_parquet(io.BytesIO(content))
    if file.endswith(".csv"):
        return pd.read_csv(io.BytesIO(content))
    if file.endswith(".npz"):
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    if file.endswith(".txt.gz"):
        return gzip.decompress(content).decode("utf-8")
    raise ValueError(f"file must end in .parquet, .csv, .npz or .txt.gz, got {file!r}.")


def serialise(data: Data) -> tuple[bytes, str]:
    """Turn data into the content of a file, and say with which ending."""
    buffer = io.BytesIO()
    if isinstance(data, pd.DataFrame):
        data.to_parquet(buffer, compression="zstd", index=False)
        return buffer.getvalue(), ".parquet"
    if isinstance(data, str):
        return gzip.compress(data.encode("utf-8"), mtime=0), ".txt.gz"
    np.savez_compressed(buffer, allow_pickle=False, **data)
    return buffer.getvalue(), ".npz"


# Find a file on disk, or fetch it into the cache; either way its checksum is verified before it is parsed.
#
# Looked up in this order: `$DPADAPT_DATA/<set>/<file>`; `<cache>/<set>/<file>`; an earlier download in the cache; the
# original source. Compact files must have the checksum of the table. The checksums of the original sources are not
# known to this library, so a download is *trusted on first use*: `<cache>/<set>/<part>.json` records what came first,
# and every later load, and every later download, must agree with it. This catches damage and change, not a source
# that was already wrong the first time.


VARIABLE = "DPADAPT_DATA"
Fetcher: TypeAlias = Callable[[Remote], Fetched]


def cache_folder() -> Path:
    """Return the user's cache folder for this library, as the platform has it. It may not exist yet."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "dpadapt"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dpadapt" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpadapt"
    return Path.home() / ".cache" / "dpadapt"


def obtain(source: Source, *, download: bool = True, fetcher: Fetcher = fetch) -> Dataset:
    """Return the data of one row of the table, from disk or from the original source."""
    for folder in _folders():
        path = folder / source.name / source.file
        if source.file and path.is_file():
            content = _verified(path, source.sha256, _compact_remedy(source))
            return Dataset(parse(content, source.file), source, source.status, source.note, path)
    record = _read_record(source)
    if record is not None and record.path.is_file():
        content = _verified(record.path, record.sha256, f"Delete it and {record.path.parent.name!r} loads anew.")
        return Dataset(parse(content, record.path.name), source, record.status, record.note, record.path)
    return _download(source, record, download=download, fetcher=fetcher)


def _folders() -> list[Path]:
    """List the folders that may hold compact files."""
    given = os.environ.get(VARIABLE)
    if not given:
        return [cache_folder()]
    if not Path(given).is_dir():
        raise DataUnavailable(f"{VARIABLE} is set to {given!r}, which is not a folder. Correct or unset it.")
    return [Path(given), cache_folder()]


def _verified(path: Path, sha256: str, remedy: str) -> bytes:
    """Read a file and check its checksum."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataUnavailable(f"{path} has sha256 {found}, expected {sha256}: it is damaged or another file. {remedy}")
    return content


def _compact_remedy(source: Source) -> str:
    """Say what to do about a compact file with a wrong checksum."""
    return f"Replace it by a sound copy of {source.name}/{source.file}, or move it away to use another source."


@dataclass(frozen=True)
class _Record:
    """What is known of an earlier download."""

    path: Path
    sha256: str
    origin: str
    origin_checksum: str
    status: Status
    note: str


def _record_path(source: Source) -> Path:
    """Return the record of a download, beside the downloaded file."""
    return cache_folder() / source.name / f"{source.part}.json"


def _read_record(source: Source) -> _Record | None:
    """Read the record of an earlier download, if there is one."""
    path = _record_path(source)
    if not path.is_file():
        return None
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return _Record(
            path.parent / Path(fields["file"]).name,
            fields["sha256"],
            fields["origin"],
            fields["origin_checksum"],
            fields["status"],
            fields["note"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataUnavailable(
            f"{path} can't be read ({error!r}). Delete it to download {source.name!r} anew."
        ) from error


def _download(source: Source, record: _Record | None, *, download: bool, fetcher: Fetcher) -> Dataset:
    """Try the original sources in turn, convert, store."""
    tried = []
    for remote in source.remotes if download else ():
        try:
            fetched = fetcher(remote)
        except (OSError, ValueError, HTTPException) as error:
            tried.append(f"{remote} ({_reason(error)})")
            continue
        _check_unchanged(source, record, remote, fetched)
        try:
            data = _convert(remote, fetched.raw)
        except (ValueError, KeyError, TypeError) as error:
            tried.append(f"{remote} (not in the expected format: {error})")
            continue
        return _store(source, remote, fetched, data)
    raise DataUnavailable(_nowhere(source, tried, download=download))


def _convert(remote: Remote, raw: bytes | pd.DataFrame) -> Data:
    """Turn what was fetched into our columns."""
    if isinstance(remote, UciArchive):
        return remote.convert(cast(bytes, raw))
    return remote.convert(cast(pd.DataFrame, raw))


def _reason(error: Exception) -> str:
    """Say in a few words why a download failed."""
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def _check_unchanged(source: Source, record: _Record | None, remote: Remote, fetched: Fetched) -> None:
    """Refuse a download that differs from the first one of the same origin."""
    if record is None or record.origin != str(remote) or not record.origin_checksum:
        return
    if fetched.checksum != record.origin_checksum:
        raise DataUnavailable(
            f"{remote} now has checksum {fetched.checksum}, but {record.origin_checksum} when {source.name!r} was "
            f"first downloaded. If the change is legitimate, delete {_record_path(source)} and load again."
        )


def _store(source: Source, remote: Remote, fetched: Fetched, data: Data) -> Dataset:
    """Write a converted download and its record, each at once or not at all."""
    content, ending = serialise(data)
    sha256 = hashlib.sha256(content).hexdigest()
    # The checksum is part of the name, so two processes that download at once can't mix file and record.
    path = _record_path(source).with_name(f"{source.part}-{sha256[:12]}{ending}")
    note = " ".join(filter(None, (_download_note(source), remote.note, f"Downloaded from {remote}.")))
    fields = {
        "file": path.name,
        "sha256": sha256,
        "origin": str(remote),
        "origin_checksum": fetched.checksum,
        "status": remote.status,
        "note": note,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)
        _write(_record_path(source), json.dumps(fields, indent=1).encode("utf-8"))
    except OSError as error:
        raise DataUnavailable(
            f"{source.name!r} was downloaded but can't be written to {path.parent} ({_reason(error)}). "
            "Make room there, or set XDG_CACHE_HOME to a writable folder."
        ) from error
    return Dataset(parse(content, path.name), source, remote.status, note, path)


def _write(path: Path, content: bytes) -> None:
    """Write a file at once or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _download_note(source: Source) -> str:
    """Return the note of a download: that of the table where it speaks of the download itself."""
    return source.note if not source.file else "The full set."


def _nowhere(source: Source, tried: list[str], *, download: bool) -> str:
    """Build the one message for a set that can't be had: what was tried, and what to do."""
    given = os.environ.get(VARIABLE)
    looked = [f"{VARIABLE}={given}" if given else f"{VARIABLE} (not set)", f"the cache {cache_folder()}"]
    if not source.remotes:
        looked.append("no original source is known that can be downloaded")
    elif not download:
        looked.append("downloading was switched off (download=False)")
    by_hand = f"put the file at <folder>/{source.name}/{source.file} and set {VARIABLE} to <folder>"
    online = "try again online" if source.remotes else ""
    remedies = [by_hand if source.file else "", online]
    return (
        f"Data set {source.name!r} (part {source.part!r}) is not available. Tried: {'; '.join(looked + tried)}. "
        f"To get it, {', or '.join(filter(None, remedies))}."
    )


def available() -> tuple[Source, ...]:
    """List every file that `load` knows, with its origin, licence, and whether it is complete.

    Returns
    -------
    sources : tuple of Source
        One per file. Sets with several files have several entries, told apart by `part`.

    See Also
    --------
    dpadapt.datasets.bundled : Real sets that need no download.

    Examples
    --------
    >>> for source in available()[:3]:
    ...     print(source.name, source.part, source.status)
    wind speeds complete
    wind stations complete
    gas batches partial
    """
    return sources.SOURCES


def load(name: str, part: str | None = None, *, download: bool = True) -> Dataset:
    """Load a data set, with its provenance.

    Looks for `$DPADAPT_DATA/<set>/<file>`, then in the user's cache, then downloads from the original source into the
    cache. Files are verified by checksum on every load; a download is trusted on first use (see `docs/datasets.md`).

    Parameters
    ----------
    name : str
        A set of `available()`; "airline" is short for "airline_nyc13".
    part : str, optional
        Which file of the set; the first one if left out.
    download : bool, default=True
        Whether to go to the original source if the set is not on disk.

    Returns
    -------
    dataset : Dataset
        The table (`.frame`), arrays (`.arrays`) or text (`.text`), with `status`, `note` and `provenance`.

    Raises
    ------
    DataUnavailable
        If the set is nowhere to be had, or a file has the wrong checksum. The message says what to do.
    ValueError
        If there is no such set or part.

    Examples
    --------
    >>> load("german", part="south").frame.shape  # doctest: +SKIP
    (1000, 21)
    >>> load("german", part="north")
    Traceback (most recent call last):
        ...
    ValueError: part of 'german' must be one of 'south', 'statlog', got 'north'.
    """
    return obtain(sources.find(name, part), download=download)
