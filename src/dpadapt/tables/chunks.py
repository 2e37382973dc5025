"""`table_chunks`: the rows of a file, a folder of files or an Arrow dataset in chunks, for tables larger than memory.

A chunk is a `Table`, and its cells are those that `read_table` gives: a cell depends on no other row, so that encoding
chunk by chunk and encoding the whole table are the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.inputs.sources import in_pieces
from dpadapt.tables.encoding import named_columns
from dpadapt.tables.reading import (
    Table,
    arrow_frames,
    checked_table,
    file_ending,
    file_kind,
    from_arrow,
    is_table,
    known_encoding,
    parquet_file,
    parquet_frames,
    text_frames,
    without_values,
)

if TYPE_CHECKING:
    import pandas as pd

# Rows of a chunk, and cells of one that has many columns: more take more memory, fewer take more time. Chosen by hand.
_CHUNK_ROWS = 1 << 14
_CHUNK_CELLS = 1 << 20
# Public rows that are used of a larger table: boosting and cross-validation work in memory, and more rows hardly change
# a public model. Chosen by hand; `python -m benchmarks scale` compares.
MOST_PUBLIC_ROWS = 200_000
# How the names of files begin that writers of folders put beside the rows, such as _SUCCESS and .part-0.crc; how those
# of ledgers end.
_NO_ROWS, _LEDGER_BESIDE = (".", "_"), ".ledger"


@dataclass(frozen=True, repr=False)
class _Part:
    """One file of a table, or a dataset.

    Parameters
    ----------
    named : str
        Its name in errors.
    header : DataFrame
        Its columns, without rows.
    types : dict
        The kinds of its columns, where the file states them.
    n_rows : int or None
    frames : function
        Reads it anew, in frames of so many rows; yields at least one.
    """

    named: str
    header: "pd.DataFrame"
    types: dict[str, str]
    n_rows: int | None
    frames: "Callable[[int], Iterator[pd.DataFrame]]"


@dataclass(frozen=True, eq=False, repr=False)
class TableChunks:
    """The rows of a table, a chunk at a time. Every iteration reads the files anew, and yields the same chunks.

    No chunk is empty, unless the whole table is. If a file was changed since `table_chunks` looked at it, the iteration
    fails.

    Parameters
    ----------
    header : Table
        The columns, without rows: what `check_columns` needs before a row is read.
    n_rows : int or None
        Number of rows, if the files state it (Parquet). Of private rows it is no release.
    rows : int
        Most rows of a chunk.
    """

    header: Table
    n_rows: int | None
    rows: int
    _parts: tuple[_Part, ...]
    _empty: bool

    def __repr__(self) -> str:
        """Return the name of the table, without its values."""
        return f"TableChunks({self.header.origin})"

    def __iter__(self) -> Iterator[Table]:
        """Yield the rows, in the order of the files' names."""
        header = self.header
        columns, some = list(header.frame.columns), False
        for part in self._parts:
            for frame in part.frames(self.rows):
                if len(frame):
                    some = True
                    ordered = frame if list(frame.columns) == columns else frame[columns]
                    yield Table(ordered, part.named, header.private, header.folder)
        if not some:
            yield checked_table(
                header.frame, header.origin, private=header.private, empty=self._empty, folder=header.folder
            )


def table_chunks(
    data: Any,
    *,
    origin: str | None = None,
    private: bool,
    empty: bool = False,
    encoding: str | None = None,
    rows: int | None = None,
) -> TableChunks:
    """Return the rows of a file, a folder or an Arrow dataset in chunks of bounded memory.

    Only the names and types of the columns are read here. The files of a folder must agree in them.

    Parameters
    ----------
    data : str, Path or pyarrow.dataset.Dataset
        A CSV or Parquet file, or a folder of such files, which are read in the order of their names. Ledgers are left
        out, and so are files whose names begin with a dot or an underscore. A folder of partitions can be given as a
        dataset, which needs memory for one row group of its Parquet files.
    origin : str, optional
        Name of the table in errors. Default: the name of the file or folder.
    private : bool
        If True, errors show no values.
    empty : bool, default=False
        Whether a table without rows is accepted, as for `read_table`.
    encoding : str, optional
        Of text files. Default: found out for each file.
    rows : int, optional
        Most rows of a chunk. Default: 16,384, and fewer if there are more than 64 columns.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("age,plan\\n31,free\\n40,paid\\n18,free\\n")
    ...     _ = Path(folder, "b.csv").write_text("age,plan\\n25,paid\\n")
    ...     chunks = table_chunks(folder, private=False, rows=2)
    ...     [chunk.frame["age"].tolist() for chunk in chunks]
    [['31', '40'], ['18'], ['25']]
    """
    if rows is not None:
        checks.count(rows, "rows")
    folder, named = Path(), origin or "data"
    if isinstance(data, str | Path):
        path = Path(data)
        named = origin or path.name or str(path)
        known = known_encoding(encoding, named)
        files = _files(path, named)
        folder = path if files is not None else path.parent
        if files is None:
            parts = [_file_part(path, named, known)]
        else:
            parts = [_file_part(file, f"{named}/{file.name}", known) for file in files]
            _check_same_columns(parts, private=private)
    elif _is_dataset(data):
        parts = [_dataset_part(data, named)]
    else:
        raise TypeError(
            f"{named} must be the path of a CSV or Parquet file, of a folder of such files, or a pyarrow dataset, got "
            f"{type(data).__name__}."
        )
    for part in parts:
        checked_table(part.header, part.named, private=private, empty=True, folder=folder)
    header = Table(parts[0].header, named, private, folder)
    counts = [part.n_rows for part in parts]
    total = None if None in counts else sum(count or 0 for count in counts)
    most = rows or max(1, min(_CHUNK_ROWS, _CHUNK_CELLS // max(1, header.frame.shape[1])))
    return TableChunks(header, total, most, tuple(parts), empty)


def sampled_table(chunks: TableChunks, most: int = MOST_PUBLIC_ROWS) -> tuple[Table, int]:
    """Return a public table, or a random sample of `most` of its rows if it has more, and the number of all rows.

    The sample is uniform and keeps the order of the rows. It is seeded: forecasts and fits must prepare the same rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("age\\n" + "31\\n" * 1000)
    ...     table, n_rows = sampled_table(table_chunks(folder, private=False), most=100)
    ...     len(table.frame), n_rows
    (100, 1000)
    """
    import pandas as pd

    if chunks.header.private:
        raise PrivacyError(f"{chunks.header.origin}: these rows are private, and a sample of them is no release.")
    random = np.random.default_rng(0)
    frames, keys, n_rows = list[pd.DataFrame](), np.zeros(0), 0
    for chunk in chunks:
        # The rows with the smallest of independent uniform keys are a uniform sample.
        frames.append(chunk.frame)
        keys = np.concatenate([keys, random.random(len(chunk.frame))])
        n_rows += len(chunk.frame)
        if len(keys) > 2 * most:
            frames, keys = _with_smallest(frames, keys, most)
    frames, _ = _with_smallest(frames, keys, most)
    return replace(chunks.header, frame=frames[0]), n_rows


def _with_smallest(
    frames: "list[pd.DataFrame]", keys: NDArray[np.float64], most: int
) -> "tuple[list[pd.DataFrame], NDArray[np.float64]]":
    """Return the rows with the `most` smallest keys, in their order, as one frame."""
    import pandas as pd

    whole = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0].reset_index(drop=True)
    if len(keys) <= most:
        return [whole], keys
    kept = np.sort(np.argpartition(keys, most)[:most])
    return [whole.iloc[kept].reset_index(drop=True)], keys[kept]


def _files(path: Path, named: str) -> list[Path] | None:
    """Return the files of a folder in the order of their names; None for what is no folder."""
    unreadable = "can't be read. Check the path."
    if path == Path():  # also what an empty text becomes
        raise ValueError(f"{named}: give the name of a file or folder, not the current folder.")
    if not without_values(path.is_dir, named, unreadable):
        return None
    inside = without_values(lambda: sorted(path.iterdir(), key=lambda file: file.name), named, unreadable)
    files = [file for file in inside if not file.name.startswith(_NO_ROWS) and file.suffix != _LEDGER_BESIDE]
    if not files:
        raise ValueError(f"{named}: this folder holds no CSV or Parquet files. Check the path.")
    for file in files:
        if without_values(file.is_dir, named, unreadable):
            raise ValueError(
                f"{named}: this folder holds the folder {file.name!r}. Give a folder of files alone; in Python, "
                f"pyarrow.dataset.dataset reads a folder of partitions."
            )
        if not is_table(file):
            raise ValueError(
                f"{named}: this folder holds {file.name!r}, which does not end in .csv (or .tsv, .txt, also with .gz) "
                f"or .parquet. Move it elsewhere."
            )
    if len({file_ending(file) for file in files}) > 1:
        raise ValueError(f"{named}: this folder holds CSV and Parquet files. Give a folder of one kind.")
    return files


def _file_part(path: Path, named: str, encoding: str | None) -> _Part:
    kind, stamp = file_kind(path, named), _stamp(path, named)
    if kind == "parquet":
        with parquet_file(path, named) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        return _Part(
            named,
            *_columns(schema, named),
            n_rows,
            lambda rows: _while_unchanged(path, named, stamp, parquet_frames(path, named, rows)),
        )
    # pandas, not `read_header`, so that names in quotes are what they are in the chunks.
    header = next(text_frames(path, named, encoding, 0))
    return _Part(
        named,
        header,
        {},
        None,
        lambda rows: _while_unchanged(path, named, stamp, text_frames(path, named, encoding, rows)),
    )


def _columns(schema: Any, named: str) -> "tuple[pd.DataFrame, dict[str, str]]":
    """Return the columns of an Arrow schema as a frame without rows, and their types; not the index of a frame."""
    import pyarrow

    def read() -> "tuple[pd.DataFrame, dict[str, str]]":
        frame = from_arrow(schema.empty_table())
        types = {}
        for column in schema:
            kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
            # Texts are the same however they are stored. A column of no type has missing cells alone.
            texts = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
            if not pyarrow.types.is_null(kind):
                types[str(column.name).strip()] = "string" if texts else str(kind)
        return frame, {name: types[name] for name in frame.columns if name in types}

    return without_values(read, named, "the columns can't be read as a table of plain cells.")


def _check_same_columns(parts: list[_Part], *, private: bool) -> None:
    """Refuse a file whose columns are not those of the first file, or have another type than in the files before it."""
    first, types = parts[0], dict(parts[0].types)
    columns = set(first.header.columns)
    for part in parts[1:]:
        different = columns.symmetric_difference(part.header.columns)
        if different:
            # If private files have no header, their column names are the values of private rows.
            shown = "" if private else f" ({named_columns(sorted(different))})"
            raise ValueError(
                f"{part.named}: its columns are not those of {first.named}{shown}. All files of a folder need the same "
                f"names of columns."
            )
        # These names are in every file so far, so they are no values of a row.
        changed = [name for name, kind in part.types.items() if types.setdefault(name, kind) != kind]
        if changed:
            raise ValueError(
                f"{part.named}: {named_columns(changed)} {'has' if len(changed) == 1 else 'have'} another type than in "
                f"the files before. Write all files of a folder with the same types."
            )


def _stamp(path: Path, named: str) -> tuple[int, int, int]:
    """Return what changes when a file is written to or replaced."""
    state = without_values(path.stat, named, "can't be read. Check the path.")
    return state.st_ino, state.st_size, state.st_mtime_ns


def _while_unchanged(
    path: Path, named: str, stamp: tuple[int, int, int], frames: "Iterator[pd.DataFrame]"
) -> "Iterator[pd.DataFrame]":
    """Yield the frames of a file, and refuse one that is no longer what it was: a text file that was cut has an end."""
    error = None
    try:
        yield from frames
    except ValueError as refusal:
        error = refusal
    try:
        changed = _stamp(path, named) != stamp
    except ValueError:
        changed = True
    if changed:
        raise ValueError(
            f"{named}: the file was changed or removed while it was read. Begin again with the whole file."
        )
    if error is not None:
        raise error


def is_chunked(data: Any) -> bool:
    """Return whether `table_chunks` takes the data: a path or an Arrow dataset."""
    return isinstance(data, str | Path) or _is_dataset(data)


def _is_dataset(data: Any) -> bool:
    import sys

    # Whoever has a dataset has imported the module.
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


def _dataset_part(dataset: Any, named: str) -> _Part:
    damaged = "the dataset can't be read. Check that its files are there, and that all have the types of its schema."
    scan: dict[str, Any] = {
        "batch_readahead": 1,
        "fragment_readahead": 1,
        "fragment_scan_options": in_pieces(dataset),
    }

    def frames(rows: int) -> "Iterator[pd.DataFrame]":
        batches = without_values(
            lambda: dataset.to_batches(batch_size=rows, **scan),
            named,
            damaged,
        )
        yield from arrow_frames(batches, dataset.schema, named, damaged)

    return _Part(named, *_columns(dataset.schema, named), None, frames)
