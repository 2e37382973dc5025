"""`Source`: private rows that are read in chunks, so that they need not fit into memory."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.persons import Shares, row_shares
from dpadapt.streaming.blocks import BLOCK_ROWS, Blocks
from dpadapt.streaming.spill import DEFAULT_MEMORY, Spill

# Rows that are decoded from a file at once.
_DECODED_ROWS = 4 * BLOCK_ROWS
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Bytes. Less would not hold the blocks of one stage that are at work.
_LEAST_MEMORY = 64 * 2**20


# Turns some rows and their labels, as they were read, into arrays, or refuses them without showing a value.
Checked = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Some consecutive private rows: features, targets or class codes, and how much each row counts (None: 1)."""

    X: NDArray[Any]
    y: NDArray[Any]
    shares: Shares | None = None


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
        What the kept rows may take in memory, in bytes or as in "2GB". A fit needs a few hundred megabytes beside it.
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
        """Return the rows of a Parquet or CSV file, of a folder of them, or of a `pyarrow.dataset.Dataset`.

        All columns must hold numbers, and have the same names and types in all files. `TableModel` reads tables as they
        come, with missing cells, dates and categories.

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
        n_rows = 0

        def chunks() -> Iterator[Part]:
            nonlocal n_rows
            for X, y, *present in self.chunks():
                if len(X):
                    rows, labels = checked(X, y)
                    n_rows += len(rows)
                    yield Part(rows, labels, row_shares(np.asarray(present[0], dtype=bool)) if present else None)

        kept = self._spill().kept(_in_blocks(chunks()))
        kept.n_rows = n_rows
        return kept

    def _spill(self) -> Spill:
        return Spill(self._limit, self.folder)


def _as_arrays(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.asarray(X), np.asarray(y)


def in_chunks(X: Any) -> bool:
    """Return whether private rows come in chunks: from a `Source`, or from a cluster."""
    return isinstance(X, Source) or is_dask(X)


def source_of(X: Any, y: Any) -> Any:
    """Return where private rows come from, given the arguments of `fit`."""
    if is_dask(X):
        from dpadapt.streaming.workers import OnCluster

        return OnCluster(X, y)
    if y is not None:
        raise ValueError("y must be left out: a Source holds the labels too.")
    return X


def is_dask(X: Any) -> bool:
    """Return whether `X` is a collection of Dask; nothing is imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


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
            waiting.append(rows_of(chunk, slice(start, end)))
            n_waiting, start = n_waiting + end - start, end
            if n_waiting == BLOCK_ROWS:
                yield _joined(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def rows_of(part: Part, index: slice) -> Part:
    """Return some rows of a part; nothing is copied."""
    return Part(part.X[index], part.y[index], None if part.shares is None else part.shares.take(index))


def _joined(parts: list[Part]) -> Part:
    """Return one part with all rows; the arrays are new ones."""
    X, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y"))
    if all(part.shares is None for part in parts):
        return Part(X, y)
    present = [np.ones(len(part.X)) if part.shares is None else part.shares.values for part in parts]
    return Part(X, y, row_shares(np.concatenate(present) > 0))


def _file_chunks(data: Any, label: str) -> Iterator[tuple[Any, Any]]:
    """Return features and labels of files, chunk by chunk; what goes wrong is said without a value."""
    import pyarrow
    import pyarrow.dataset

    problem: str | None = None
    try:
        table = _dataset(data)
        names = table.schema.names
        if label not in names:
            raise ValueError(f"label must name a column of the files, got {label!r}.")
        features = [name for name in names if name != label]
        numeric = pyarrow.types
        odd = [
            name
            for name in features
            if not (
                numeric.is_integer(kind := table.schema.field(name).type)
                or numeric.is_floating(kind)
                or numeric.is_boolean(kind)
            )
        ]
        if odd:
            raise ValueError(
                f"the columns {', '.join(odd[:5])} hold no numbers. Leave them out, or use TableModel, which encodes "
                f"tables as they come."
            )
        for batch in table.to_batches(
            batch_size=_DECODED_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        ):
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in features]
            X = np.column_stack(columns) if columns else np.zeros((batch.num_rows, 0))
            yield X.astype(np.float64, copy=False), batch.column(label).to_numpy(zero_copy_only=False)
    except (pyarrow.ArrowException, OSError) as error:
        # Its words may quote a cell.
        problem = type(error).__name__
    if problem is not None:
        raise OSError(
            f"the private files can't be read ({problem}): one is missing, damaged or of another kind than the first. "
            f"All must be Parquet or all CSV, with the same columns"
        )


def _dataset(data: Any) -> Any:
    """Return a dataset of files of one kind, or refuse files whose columns differ."""
    import pyarrow.dataset

    if isinstance(data, pyarrow.dataset.Dataset):
        return data
    path = Path(data)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".ledger")
    files = [file for file in files if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)]
    endings = {file.suffix.lower() for file in files}
    if not files or not path.exists():
        raise ValueError(f"{path}: there is no such file, or the folder holds none.")
    kind = "csv" if endings <= {".csv"} else "parquet" if endings <= {".parquet", ".pq"} else None
    if kind is None:
        raise ValueError(f"{path}: all files must end in .parquet, or all in .csv.")
    parts = [pyarrow.dataset.dataset(str(file), format=kind) for file in files]
    for file, part in zip(files, parts, strict=True):
        if not part.schema.equals(parts[0].schema):
            raise ValueError(f"{file.name}: its columns differ from those of {files[0].name}, in name, order or type.")
    return pyarrow.dataset.dataset(parts)
