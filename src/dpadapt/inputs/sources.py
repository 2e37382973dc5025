"""`Source`: private rows that are read in chunks, so that they need not fit into memory."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.inputs.spill import DEFAULT_MEMORY, Spill
from dpadapt.rows import BLOCK_ROWS, Blocks, Part, Shares, row_shares

# Rows that are decoded from a file at once: four times as many take as long, and eighty megabytes more with 22 columns.
_DECODED_ROWS = BLOCK_ROWS
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Bytes. Less would not hold the blocks of one stage that are at work.
_LEAST_MEMORY = 64 * 2**20
# Bytes that stay free while rows are read: decoding takes about 90 MB with 22 columns, which would come on top.
_READING_BYTES = 96 * 2**20


# How pyarrow reads a Parquet file in pieces: a column from so many bytes at a time. Else it would hold whole columns of
# a row group, which may be as long as the file. Chosen by hand.
PARQUET_IN_PIECES = {"pre_buffer": False, "buffer_size": 1 << 20}
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
        """Return the rows of a Parquet or CSV file, of a folder of them, or of a `pyarrow.dataset.Dataset`.

        All columns must hold numbers, and have the same names and types in all files. Only labels may be texts; in a
        CSV file, a label that is written as a number is one. `TableModel` reads tables as they come, with missing
        cells, dates and categories.

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

    def _spill(self) -> Spill:
        return Spill(self._limit, self.folder)


def _shares(present: list[Any], n_rows: int, *, first: bool, others: bool) -> Shares | None:
    """Return the shares of a chunk, or refuse one that says otherwise than the `others` which rows are present."""
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
    import pyarrow.dataset

    problem: str | None = None
    try:
        table = _dataset(data, label)
        names = table.schema.names
        if label not in names:
            raise ValueError(f"label must name a column of the files, got {label!r}.")
        features = [name for name in names if name != label]
        numeric = pyarrow.types
        kinds = [table.schema.field(name).type for name in features]
        if not all(numeric.is_integer(k) or numeric.is_floating(k) or numeric.is_boolean(k) for k in kinds):
            # Their names are not shown: in a file without a header, they are the cells of a private row.
            raise ValueError(
                "some columns of the files hold no numbers. Leave them out, or use TableModel, which encodes tables as "
                "they come."
            )
        for batch in table.to_batches(
            batch_size=_DECODED_ROWS,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
            fragment_scan_options=in_pieces(table),
        ):
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in features]
            X = np.column_stack(columns) if columns else np.zeros((batch.num_rows, 0))
            X = X.astype(np.float64, copy=False)
            yield pd.DataFrame(X, columns=features), _labels(batch.column(label), text=_is_csv(table))
    except (pyarrow.ArrowException, OSError) as error:
        # Its words may quote a cell.
        problem = type(error).__name__
    finally:
        # Arrow keeps the memory that it has used for decoding, some hundred megabytes, unless it is told.
        pyarrow.default_memory_pool().release_unused()
    if problem is not None:
        raise OSError(
            f"the private files can't be read ({problem}): one is missing, damaged or of another kind than the first, "
            f"or a column holds no numbers. All must be Parquet or all CSV, with the same columns, and only the labels "
            f"may be texts; TableModel encodes tables as they come"
        )


def in_pieces(table: Any) -> Any:
    """Return the scan options that read a dataset of Parquet files in pieces; None for other files."""
    from pyarrow import dataset

    if not isinstance(getattr(table, "format", None), dataset.ParquetFileFormat):
        return None
    return dataset.ParquetFragmentScanOptions(use_buffered_stream=True, **PARQUET_IN_PIECES)


def _dataset(data: Any, label: str) -> Any:
    """Return a dataset of files of one kind, or refuse files whose columns differ."""
    import pyarrow.dataset

    if isinstance(data, pyarrow.dataset.Dataset):
        return data
    path = Path(data)
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in inside if not file.name.startswith((".", "_")) and file.suffix != ".ledger"]
    for file in files:
        if file.is_dir():
            # It may hold the same rows again.
            raise ValueError(
                f"{path}: this folder holds the folder {file.name!r}. Give a folder of files alone, or a "
                f"pyarrow.dataset.Dataset."
            )
    endings = {file.suffix.lower() for file in files}
    if not files or not path.exists():
        raise ValueError(f"{path}: there is no such file, or the folder holds none.")
    kind = "csv" if endings <= {".csv"} else "parquet" if endings <= {".parquet", ".pq"} else None
    if kind is None:
        raise ValueError(f"{path}: all files must end in .parquet, or all in .csv.")
    formats = [_text_format(file, label) if kind == "csv" else kind for file in files]
    schemas = [
        pyarrow.dataset.dataset(str(file), format=form).schema for file, form in zip(files, formats, strict=True)
    ]
    for file, schema in zip(files, schemas, strict=True):
        if not schema.equals(schemas[0]):
            raise ValueError(f"{file.name}: its columns differ from those of {files[0].name}, in name, order or type.")
    return pyarrow.dataset.dataset([str(file) for file in files], schema=schemas[0], format=formats[0])


def _text_format(file: Path, label: str) -> Any:
    """Return how a text file is read: features as float64, labels as text.

    Claim: what a cell becomes depends on that cell alone. Every column has a type that is fixed before a row is read.
    Arrow would infer one from the cells of the first megabyte: a private "a" among labels would make texts of the
    others.
    """
    import pyarrow.csv
    import pyarrow.dataset

    # Claim: a line break inside quotes is part of its cell, wherever it stands. Otherwise a file would be refused if a
    # block of Arrow ended there.
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    # Its types are not used.
    form = pyarrow.dataset.CsvFileFormat(parse_options=parse)
    names = pyarrow.dataset.dataset(str(file), format=form).schema.names
    types = {name: pyarrow.string() if name == label else pyarrow.float64() for name in names}
    convert = pyarrow.csv.ConvertOptions(column_types=types)
    return pyarrow.dataset.CsvFileFormat(parse_options=parse, convert_options=convert)


def _is_csv(table: Any) -> bool:
    from pyarrow import dataset

    return isinstance(getattr(table, "format", None), dataset.CsvFileFormat)


def _labels(column: Any, *, text: bool) -> NDArray[Any]:
    """Return labels, each as it is by itself: those of text files are numbers where they are written as such."""
    if text:
        return np.array([_label(cell) for cell in column.to_pylist()], dtype=object)
    # Beside a missing label Arrow would make a float of a whole number, which may not be exact.
    return np.array(column.to_pylist(), dtype=object) if column.null_count else column.to_numpy(zero_copy_only=False)


def _label(cell: Any) -> Any:
    """Return the label that a text file holds in one cell: a finite number, or the text."""
    try:
        # Python also reads 1_000 and digits of other scripts, which may be codes.
        number = float(cell) if isinstance(cell, str) and cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return cell
    return number if math.isfinite(number) else cell
