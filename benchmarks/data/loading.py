"""Find data sets on disk or download them: `load` returns a set by name, `available` lists all sets."""

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
from benchmarks.data.sources import OpenML, Remote, SklearnCalifornia, SourceFile, UciArchive
from dpadapt.datasets.domains import Data, Dataset, Domain, Domains, Status
from dpadapt.errors import DataUnavailable

UCI_ADDRESS = "https://archive.ics.uci.edu/"
TIMEOUT_SECONDS = 30
_BLOCK_BYTES = 1 << 18
VARIABLE = "DPADAPT_DATA"


# Downloads from the original sources, with a progress bar on standard error.


@dataclass(frozen=True, eq=False)
class Fetched:
    """A download, unconverted, with its checksum (`algorithm:hex`, empty if unknown)."""

    raw: bytes | pd.DataFrame
    checksum: str


def fetch(remote: Remote) -> Fetched:
    """Return the download of an original source. Network errors are raised as `OSError` or `ValueError`."""
    match remote:
        case UciArchive(path=path):
            return _fetch_uci(path)
        case OpenML(data_id=data_id):
            return _fetch_openml(data_id)
        case SklearnCalifornia():
            return _fetch_california()


def _fetch_uci(path: str) -> Fetched:
    """Download a zip file of the UCI archive in blocks."""
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
    """Download from OpenML by scikit-learn, which checks OpenML's own md5; that is kept as the checksum."""
    from sklearn.datasets import fetch_openml

    with _console().status(f"OpenML data set {data_id}"), _quietly():
        bunch = fetch_openml(data_id=data_id, as_frame=True, cache=False, parser="auto", n_retries=1)
    md5 = (bunch.details or {}).get("md5_checksum", "")
    return Fetched(bunch.frame, f"md5:{md5}" if md5 else "")


def _fetch_california() -> Fetched:
    """Download California housing by scikit-learn, which checks its own sha256 of the archive."""
    from sklearn.datasets import fetch_california_housing

    with _console().status("California housing"), _quietly(), tempfile.TemporaryDirectory() as folder:
        return Fetched(fetch_california_housing(data_home=folder, as_frame=True, n_retries=1).frame, "")


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence scikit-learn's warnings about retries; the final error reports the failure once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"sklearn\.datasets")
        yield


def _console() -> Any:
    """Return a terminal on standard error, so that standard output stays clean."""
    from rich.console import Console

    return Console(stderr=True)


# The four file formats. Both functions work on bytes, so that the bytes that were hashed are the bytes that are parsed.


def parse(content: bytes, file: str) -> Data:
    """Return the data in the content of a parquet, csv, npz or gzipped text file."""
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
    """Return the content of a file that holds the data, and the ending of its name."""
    buffer = io.BytesIO()
    if isinstance(data, pd.DataFrame):
        data.to_parquet(buffer, compression="zstd", index=False)
        return buffer.getvalue(), ".parquet"
    if isinstance(data, str):
        return gzip.compress(data.encode("utf-8"), mtime=0), ".txt.gz"
    np.savez_compressed(buffer, allow_pickle=False, **data)
    return buffer.getvalue(), ".npz"


# Finding a file on disk, or downloading it into the cache. Its checksum is verified before it is parsed.
#
# Places are searched in this order: `$DPADAPT_DATA/<set>/<file>`; `<cache>/<set>/<file>`; an earlier download in the
# cache; the original source. Compact files must have the checksum of the table. The checksums of the original sources
# are not known to this library, so a download is *trusted on first use*: `<cache>/<set>/<part>.json` records the first
# one, and every later load, and every later download, must agree with it. This detects damage and change, but not a
# source that was already wrong the first time.


Fetcher: TypeAlias = Callable[[Remote], Fetched]


def cache_folder() -> Path:
    """Return this library's cache folder on the user's platform. It may not exist yet."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "dpadapt"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dpadapt" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpadapt"
    return Path.home() / ".cache" / "dpadapt"


def obtain(source: SourceFile, *, download: bool = True, fetcher: Fetcher = fetch) -> Dataset:
    """Return the data of a source, from disk or by download."""
    for folder in _folders():
        path = folder / source.name / source.file
        if source.file and path.is_file():
            content = _verified(path, source.sha256, _compact_remedy(source))
            return Dataset(parse(content, source.file), source, source.status, source.note, path)
    record = _read_record(source)
    if record is not None and record.path.is_file():
        content = _verified(record.path, record.sha256, f"Delete it to download {record.path.parent.name!r} again.")
        return Dataset(parse(content, record.path.name), source, record.status, record.note, record.path)
    return _download(source, record, download=download, fetcher=fetcher)


def _folders() -> list[Path]:
    """Return the folders that may hold compact files."""
    given = os.environ.get(VARIABLE)
    if not given:
        return [cache_folder()]
    if not Path(given).is_dir():
        raise DataUnavailable(f"{VARIABLE} is set to {given!r}, which is not a folder. Correct or unset it.")
    return [Path(given), cache_folder()]


def _verified(path: Path, sha256: str, remedy: str) -> bytes:
    """Return the content of a file whose checksum is correct."""
    content = path.read_bytes()
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise DataUnavailable(f"{path} has sha256 {actual}, expected {sha256}: it is damaged or another file. {remedy}")
    return content


def _compact_remedy(source: SourceFile) -> str:
    """Return advice for a compact file with a wrong checksum."""
    return f"Replace it by an undamaged copy of {source.name}/{source.file}, or move it away to use another source."


@dataclass(frozen=True)
class _Record:
    """The record of an earlier download."""

    path: Path
    sha256: str
    origin: str
    origin_checksum: str
    status: Status
    note: str


def _record_path(source: SourceFile) -> Path:
    """Return the path of a download's record, which stands beside the downloaded file."""
    return cache_folder() / source.name / f"{source.part}.json"


def _read_record(source: SourceFile) -> _Record | None:
    """Return the record of an earlier download, if there is one."""
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
            f"{path} can't be read ({error!r}). Delete it to download {source.name!r} again."
        ) from error


def _download(source: SourceFile, record: _Record | None, *, download: bool, fetcher: Fetcher) -> Dataset:
    """Try the original sources in turn; convert and store the first that works."""
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
    """Convert a download to our columns."""
    if isinstance(remote, UciArchive):
        return remote.convert(cast(bytes, raw))
    return remote.convert(cast(pd.DataFrame, raw))


def _reason(error: Exception) -> str:
    """Return in a few words why a download failed."""
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def _check_unchanged(source: SourceFile, record: _Record | None, remote: Remote, fetched: Fetched) -> None:
    """Raise an error if a download differs from the first one of the same origin."""
    if record is None or record.origin != str(remote) or not record.origin_checksum:
        return
    if fetched.checksum != record.origin_checksum:
        raise DataUnavailable(
            f"{remote} now has checksum {fetched.checksum}, but {record.origin_checksum} when {source.name!r} was "
            f"first downloaded. If the change is legitimate, delete {_record_path(source)} and load again."
        )


def _store(source: SourceFile, remote: Remote, fetched: Fetched, data: Data) -> Dataset:
    """Write a converted download and its record, each completely or not at all."""
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
    """Write a file completely or not at all."""
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


def _download_note(source: SourceFile) -> str:
    """Return the note of a download; a source without a compact file has one in the table."""
    return source.note if not source.file else "The full set."


def _nowhere(source: SourceFile, tried: list[str], *, download: bool) -> str:
    """Return the message for a set that is not available: what was tried, and what to do."""
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


def available() -> tuple[SourceFile, ...]:
    """Return every file that `load` knows, with its origin, licence, and whether it is complete.

    Returns
    -------
    sources : tuple of SourceFile
        One per file. Sets with several files have several entries, which differ in `part`.

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
    cache. Files are verified by checksum on every load; a download is trusted on first use (`docs/papers/data.md`).

    Parameters
    ----------
    name : str
        A set of `available()`; "airline" is short for "airline_nyc13".
    part : str, optional
        Which file of the set; the first one if left out.
    download : bool, default=True
        Whether to download from the original source if the set is not on disk.

    Returns
    -------
    dataset : Dataset
        The table (`.frame`), arrays (`.arrays`) or text (`.text`), with `status`, `note` and `provenance`.

    Raises
    ------
    DataUnavailable
        If the set is not available, or a file has the wrong checksum. The message says what to do.
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


def pair(dataset: Dataset, *, source: Domain, target: Domain, description: str) -> Domains:
    """Return `Domains` of two domains that are arrays; the columns get the names x0, x1, ..."""
    return Domains(
        source=source,
        target=target,
        feature_names=tuple(f"x{column}" for column in range(source.X.shape[1])),
        description=f"{dataset.name}: {description}",
        provenance=dataset.provenance,
    )


def differ(source: Any, target: Any) -> None:
    """Raise `ValueError` if source and target are the same."""
    if source == target:
        raise ValueError(f"target must differ from source, got {source!r} for both.")
