"""`Source`: private rows that are read in chunks and kept in a `Spill`, so that they need not fit into memory.

A spill file is readable by its owner alone and has no name: the system removes it when the process ends, however it
ends. It holds private rows in plain bytes, so it must lie on a disk of this machine; encrypt that disk if it could be
stolen.
"""

import errno
import io
import math
import mmap
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.disk import network_file_system
from dpadapt.inputs.files import files_of
from dpadapt.rows import BLOCK_ROWS, Blocks, P, Part, Shares, row_shares

Q = TypeVar("Q")

# Bytes. Blocks begin at whole pages, so that the pages of one can be given back without touching the next.
_MEMORY_PAGE = mmap.ALLOCATIONGRANULARITY
# Bytes that blocks in memory take unless the user says otherwise.
DEFAULT_MEMORY = 512 * 2**20
# Rows that are decoded from a file at once: four times as many take as long, and eighty megabytes more with 22 columns.
_DECODED_ROWS = BLOCK_ROWS
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Bytes. Less would not hold the blocks of one stage that are at work.
_LEAST_MEMORY = 64 * 2**20
# Bytes that stay free while rows are read: decoding takes about 90 MB with 22 columns, which would come on top.
_READING_BYTES = 96 * 2**20
# Names of columns are not shown: in a file without a header, they are the cells of a private row.
_NO_NUMBERS = "some columns hold no numbers. Leave them out, or use TableModel, which encodes tables as they come."
# Turns some rows and their labels, as they were read, into arrays, or refuses them without showing a value.
Checked = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Private rows that are read in chunks; give it to `fit` in place of `X`, without `y`.

    The rows are read once. What a fit needs again is kept in memory up to a limit, and beyond it in a file without a
    name, which only its owner can read and which is gone when the process ends. The model is the same as for the same
    rows in memory.

    Parameters
    ----------
    chunks : callable
        Returns an iterator of pairs (X, y), each with some rows: arrays or data frames of numbers, and their labels. A
        third member may say which rows are present; the others count nothing.
    memory : int or str, default="512MB"
        What the kept rows may take in memory, in bytes or as in "2GB". A quarter of it, at most 96 MB, stays free while
        the rows are read. A fit needs a few hundred megabytes beside it.
    folder : str or Path, optional
        Where the rest is kept: on a disk of this machine. Default: the system's folder for temporary files (TMPDIR).

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateLinearRegression, Source
    >>> def chunks():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(10):
    ...         X = rng.uniform(-1, 1, (1000, 2))
    ...         yield X, X @ [0.5, -0.5]
    >>> model = PrivateLinearRegression(random_state=0).fit(Source(chunks))
    >>> bool(abs(model.coef_[0] - 0.5) < 0.1)
    True
    """

    chunks: Callable[[], Iterable[tuple[Any, ...]]]
    memory: int | str = DEFAULT_MEMORY
    folder: str | Path | None = None
    _limit: int = field(init=False, default=0)
    _read: "Blocks[Part] | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Check the limit, and the folder."""
        if not callable(self.chunks):
            raise TypeError(f"chunks must be a function that returns an iterator, got {type(self.chunks).__name__}.")
        object.__setattr__(self, "_limit", memory_in_bytes(self.memory, "memory"))
        self._spill()

    def __repr__(self) -> str:
        """Return a text that shows no row."""
        return "Source(private rows)"

    @classmethod
    def from_files(
        cls, data: Any, *, label: str, memory: int | str = DEFAULT_MEMORY, folder: str | Path | None = None
    ) -> "Source":
        """Return the rows of a Parquet, CSV or Excel file, of a folder of them, or of a `pyarrow.dataset.Dataset`.

        All columns must hold numbers, and have the same names and types in all files. Only labels may be texts; a text
        that is written as a number is one. `TableModel` reads tables as they come, with missing cells, dates and
        categories.

        Parameters
        ----------
        data : str, Path or Dataset
        label : str
            The column that holds the labels.
        memory, folder : as above
        """
        return cls(lambda: _file_chunks(data, label), memory, folder)

    def read(self) -> int:
        """Read all rows now, and keep them; return their number. A fit does so itself, before it spends anything."""
        if self._read is None:
            object.__setattr__(self, "_read", self._blocks(_as_arrays))
        assert self._read is not None
        return self._read.n_rows

    def blocks(self, checked: Checked) -> Blocks[Part]:
        """Read all rows; return them in blocks, after `checked` has converted each chunk or refused it."""
        if self._read is None:
            return self._blocks(checked)
        return self._read.map(lambda part: Part(*checked(part.X, part.y), part.shares))

    def _blocks(self, checked: Checked) -> Blocks[Part]:
        n_rows, partly = 0, False

        def chunks() -> Iterator[Part]:
            nonlocal n_rows, partly
            for X, y, *present in self.chunks():
                if len(X):
                    rows, labels = checked(X, y)
                    yield Part(rows, labels, _shares(present, len(rows), first=not n_rows, others=partly))
                    n_rows, partly = n_rows + len(rows), bool(present)

        kept = self._spill().kept(_in_blocks(chunks()), spare=min(_READING_BYTES, self._limit // 4))
        kept.n_rows = n_rows
        return kept

    def _spill(self) -> "Spill":
        return Spill(self._limit, self.folder)


def _shares(present: list[Any], n_rows: int, *, first: bool, others: bool) -> Shares | None:
    """Return the shares of a chunk. All chunks mark which rows are present, or none does; `others` says which."""
    marked = np.asarray(present[0], dtype=bool) if present else np.ones(n_rows, dtype=bool)
    if marked.shape != (n_rows,) or not (first or bool(present) == others):
        raise ValueError("chunks must say which rows are present in all chunks, with one entry per row, or in none.")
    return row_shares(marked) if present else None


def _as_arrays(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.asarray(checks.cells(X)), np.asarray(checks.cells(y))


def memory_in_bytes(memory: Any, name: str) -> int:
    """Return an amount of memory, such as "2GB", in bytes.

    Examples
    --------
    >>> memory_in_bytes("1.5 GB", "memory")
    1610612736
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?\s*", str(memory), re.IGNORECASE)
    if match is None or isinstance(memory, bool):
        raise ValueError(f"{name} must be a number of bytes, or a text such as '2GB'.")
    number = int(float(match[1]) * _UNITS[match[2].upper()])
    if number < _LEAST_MEMORY:
        raise ValueError(f"{name} must be at least {_LEAST_MEMORY // 2**20} MB.")
    return number


def _in_blocks(chunks: Iterable[Part]) -> Iterator[Part]:
    """Return the same rows in parts of `BLOCK_ROWS`, the last of which may have fewer."""
    waiting: list[Part] = []
    n_waiting = 0
    for chunk in chunks:
        start = 0
        while start < len(chunk.X):
            end = min(start + BLOCK_ROWS - n_waiting, len(chunk.X))
            waiting.append(chunk.take(slice(start, end)))
            n_waiting, start = n_waiting + end - start, end
            if n_waiting == BLOCK_ROWS:
                yield _joined(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def joined_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return consecutive parts of one array; those of different types as objects, so that each value stays as it is."""
    kinds, types = {array.dtype.kind for array in arrays}, {array.dtype for array in arrays}
    # Dates and times of different resolutions have no common one that holds them all.
    alike = len(types) == 1 or (len(kinds) == 1 and not kinds & {"m", "M"})
    return np.concatenate(arrays if alike else [array.astype(object) for array in arrays])


def _joined(parts: list[Part]) -> Part:
    """Return one part with all rows; the arrays are new ones."""
    X, y = (joined_arrays([getattr(part, name) for part in parts]) for name in ("X", "y"))
    if all(part.shares is None for part in parts):
        return Part(X, y)
    present = [np.ones(len(part.X)) if part.shares is None else part.shares.values for part in parts]
    return Part(X, y, row_shares(np.concatenate(present) > 0))


def _file_chunks(data: Any, label: str) -> Iterator[tuple[Any, Any]]:
    """Return features, by name, and labels of files, chunk by chunk; what goes wrong is said without a value."""
    import pandas as pd
    import pyarrow

    files, _ = files_of(data, str(data) if isinstance(data, str | Path) else "data", private=True)
    columns = files[0].header.columns
    if label not in columns:
        raise ValueError(f"label must name a column of the files, got {label!r}.")
    features = [name for name in columns if name != label]
    try:
        for file in files:
            if file.types is not None and any(kind.kind not in "biuf" for kind in file.header[features].dtypes):
                raise ValueError(f"{file.named}: {_NO_NUMBERS}")
            for frame in file.frames(_DECODED_ROWS):
                # Claim: what a cell becomes depends on that cell alone. A column has the type that its Parquet or
                # Arrow file states, or else each cell is read by itself.
                if file.types is not None:
                    X, y = frame[features].to_numpy(dtype=np.float64, na_value=np.nan), frame[label]
                else:
                    X = np.zeros((len(frame), len(features)))
                    for place, name in enumerate(features):
                        X[:, place] = _numbers(frame[name].tolist(), file.named)
                    y = pd.Series([_as_written(cell) for cell in frame[label]], dtype=object)
                yield pd.DataFrame(X, columns=features), y
    finally:
        # Arrow keeps the memory that it has used for decoding, some hundred megabytes, unless it is told.
        pyarrow.default_memory_pool().release_unused()


def _numbers(cells: list[Any], named: str) -> Any:
    """Return the numbers in cells, each read by itself."""
    try:
        text = "\n".join(cells)
        if text.isascii() and "_" not in text:
            numbers = np.array(cells, dtype=object).astype(np.float64)  # as `float` reads each
            if np.isfinite(numbers).all():
                return numbers
    except (TypeError, ValueError):  # some cell is no number, or no text
        pass
    return [_number(cell, named) for cell in cells]


def _number(cell: Any, named: str) -> float:
    """Return the number in a cell, NaN if it is missing; refuse another text."""
    value = math.nan if cell is None or cell == "" else _as_written(cell)
    if not isinstance(value, int | float):
        raise ValueError(f"{named}: {_NO_NUMBERS}")
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _as_written(cell: Any) -> Any:
    """Return the finite number that a text is written as, or else the cell."""
    try:
        # Python also reads 1_000 and digits of other scripts, which may be codes.
        number = float(cell) if isinstance(cell, str) and cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return cell
    return number if math.isfinite(number) else cell


# Where rows are kept


class Spill:
    """A place for blocks, shared by all stages of one fit.

    Parameters
    ----------
    memory : int
        Bytes that blocks may take in memory, all stages together.
    folder : str or Path, optional
        Where spill files lie. Default: the system's folder for temporary files (TMPDIR).
    """

    def __init__(self, memory: int = DEFAULT_MEMORY, folder: str | Path | None = None) -> None:
        self._free = memory
        self._folder = Path(tempfile.gettempdir() if folder is None else folder).resolve()
        kind = network_file_system(self._folder)
        if kind:
            raise ValueError(
                f"the folder for private rows that don't fit into memory, {self._folder}, lies on a network file "
                f"system ({kind}). Name a folder on a disk of this machine by TMPDIR."
            )

    def kept(self, parts: Iterable[P], spare: int = 0) -> "Spilled[P]":
        """Keep blocks: each in memory if there is room and `spare` bytes are left, else in the file of this stage."""
        kept: Spilled[P] = Spilled(self, spare)
        try:
            for part in parts:
                kept.add(part)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
        else:
            return kept
        # Outside the handler: nothing of the original error stays attached.
        raise OSError(
            errno.ENOSPC,
            f"{self._folder} has no room for the private rows that don't fit into memory. Free some space, name "
            f"another folder by TMPDIR, or allow more memory. What was charged before counts as spent",
        )

    def _taken(self, size: int, spare: int) -> bool:
        if size > self._free - spare:
            return False
        self._free -= size
        return True

    def _given_back(self, sizes: list[int]) -> None:
        self._free += sum(sizes)

    def _open(self) -> Any:
        # No name, and for its owner alone.
        return tempfile.TemporaryFile(buffering=0, dir=self._folder)


@dataclass(frozen=True, eq=False)
class _InFile:
    """A block in the file: its pickle without its arrays, and where each of these lies."""

    head: bytes
    start: int
    sizes: list[int]


class Spilled(Blocks[P]):
    """Blocks of one stage, some in memory and the others in one file. Arrays that come from the file are read-only."""

    def __init__(self, spill: Spill, spare: int = 0) -> None:
        self._spill = spill
        self._spare = spare
        self._parts: list[tuple[bool, Any]] = []
        self._file: Any = None
        self._end = 0
        self._view: mmap.mmap | None = None
        self.n_rows = 0
        # Room in memory is given back with the stage; a file goes when it is closed.
        self._sizes: list[int] = []
        finalize(self, spill._given_back, self._sizes)

    def add(self, part: P) -> None:
        """Keep a further block."""
        head, arrays = _pickled(part)
        size = len(head) + sum(array.nbytes for array in arrays)
        if self._file is None and self._spill._taken(size, self._spare):
            self._sizes.append(size)
            # A copy: the arrays of `part` may be views of a file that will be closed.
            self._parts.append((True, _loaded(head, arrays)))
            return
        if self._file is None:
            self._file = self._spill._open()
            finalize(self, self._file.close)
        self._parts.append((False, _InFile(head, self._end, [array.nbytes for array in arrays])))
        written = sum(_written(self._file, array) for array in arrays)
        padding = -written % _MEMORY_PAGE
        _written(self._file, memoryview(bytes(padding)))
        self._end += written + padding

    def map(self, function: Callable[[P], Q]) -> "Spilled[Q]":
        """Return what `function` makes of each block, kept in the same place."""
        mapped = self._spill.kept(self.results(function))
        mapped.n_rows = self.n_rows
        return mapped

    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block."""
        for k, (in_memory, part) in enumerate(self._parts):
            further = () if own is None else (own[k],)
            if in_memory:
                yield function(part, *further)
                continue
            view = self._mapped()
            start, arrays = part.start, []
            for size in part.sizes:
                arrays.append(memoryview(view)[start : start + size])
                start += size
            loaded: P = pickle.loads(part.head, buffers=arrays)
            result = function(loaded, *further)
            del loaded, arrays
            yield result
            # The pages leave this process, and stay in the system's cache as long as there is room. Arrays that still
            # show them remain valid.
            if start > part.start and hasattr(view, "madvise"):
                view.madvise(mmap.MADV_DONTNEED, part.start, start - part.start)

    def _mapped(self) -> mmap.mmap:
        if self._view is None:
            self._view = mmap.mmap(self._file.fileno(), self._end, access=mmap.ACCESS_READ)
        return self._view


class _Pickler(pickle.Pickler):
    """Leaves all arrays out of the pickle, also those that are a part of a larger one."""

    def reducer_override(self, value: Any) -> Any:
        """Copy an array that does not lie in one piece: it would become part of the pickle."""
        if type(value) is np.ndarray and not value.flags.forc:
            return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


def _pickled(part: Any) -> tuple[bytes, list[memoryview]]:
    """Return a pickle without its arrays, and the bytes of each of these."""
    head, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(head, protocol=5, buffer_callback=buffers.append).dump(part)
    return head.getvalue(), [buffer.raw() for buffer in buffers]


def in_own_pages(part: P) -> P:
    """Return a copy of a block whose arrays go back to the system as soon as nothing refers to them."""
    copied: P = _loaded(*_pickled(part))
    return copied


def _loaded(head: bytes, arrays: list[memoryview]) -> Any:
    return pickle.loads(head, buffers=[_own_pages(array) for array in arrays])


def _own_pages(content: memoryview) -> Any:
    """Return a copy in memory that goes back to the system as soon as nothing refers to it.

    Memory of the usual kind stays with the process where something else lies behind it: over the stages of a fit that
    was a third more than the limit.
    """
    if content.nbytes < _MEMORY_PAGE:
        return bytearray(content)
    # Private: a process that is forked from this one must not write to the same pages.
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    room = mmap.mmap(-1, content.nbytes, **flags)
    room[:] = content
    return room


def _written(file: Any, content: memoryview) -> int:
    """Write all of `content`; return its size."""
    size = done = content.nbytes
    while done:
        done -= os.write(file.fileno(), content[size - done :])
    return size
