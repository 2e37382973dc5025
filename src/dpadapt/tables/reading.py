"""`Table`, and how data frames and files become one; `table_chunks` reads tables larger than memory in chunks.

A cell depends on no other row, so that encoding chunk by chunk and encoding the whole table are the same. Data frames
of pandas are taken as they are. Frames of polars, Arrow tables and whatever else hands out its columns through Arrow's
C interface go through pyarrow, which is needed for Parquet anyway; so none of them is a dependency.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.inputs.files import File, files_of, frame_of
from dpadapt.tables.cells import cell_objects

if TYPE_CHECKING:
    import pandas as pd

# Rows of a chunk; one of more than 64 columns has fewer. More take more memory, fewer take more time. Chosen by hand.
_CHUNK_ROWS = 1 << 14
# Public rows that are used of a larger table: boosting and cross-validation work in memory, and more rows hardly change
# a public model. `python -m benchmarks scale` compares.
MOST_PUBLIC_ROWS = 200_000
_EMPTY_TABLE = "the table has no rows. Give one with a header and at least one row."


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The rows of a table, its name in errors, and whether errors may show its values.

    Parameters
    ----------
    frame : DataFrame
        Columns of text if it was read from a text file.
    origin : str
        Name of the table in errors, e.g. ``--private a.csv``.
    private : bool
        If True, no message about this table may contain a value, a count or a position.
    folder : Path
        Folder of the files that cells name.

    Examples
    --------
    >>> import pandas as pd
    >>> Table(pd.DataFrame({"age": ["31"]}), "--private a.csv", private=True)
    Table(--private a.csv)
    """

    frame: "pd.DataFrame"
    origin: str
    private: bool
    folder: Path = Path()

    def __repr__(self) -> str:
        return f"Table({self.origin})"


def as_table(data: Any, *, origin: str, private: bool, empty: bool = False, encoding: str | None = None) -> Table:
    """Return a data frame, a file or a `Table` as a `Table`.

    Parameters
    ----------
    data : DataFrame of pandas or polars, pyarrow Table, str, Path, Table or Public
    origin : str
        Name in errors, such as "X".
    private : bool
        If True, errors show no values.
    empty : bool, default=False
        Whether a table without rows is accepted.
    encoding : str, optional
        Of a text file. Default: found out.

    Examples
    --------
    >>> import pyarrow
    >>> as_table(pyarrow.table({"age": [31, 54]}), origin="X", private=True).frame["age"].tolist()
    [31, 54]
    """

    if isinstance(data, Public):
        data = data.X
    if isinstance(data, Table):
        return replace(data, private=data.private or private)
    if isinstance(data, str | Path):
        return read_table(data, origin=f"{origin} {data}", private=private, empty=empty, encoding=encoding)
    frame = frame_of(data, origin, private=private)
    if not len(frame) and not (empty and frame.shape[1]):
        raise ValueError(f"{origin}: {_EMPTY_TABLE}")
    return Table(frame, origin, private)


def read_table(
    path: str | Path, *, origin: str | None = None, private: bool, empty: bool = False, encoding: str | None = None
) -> Table:
    """Read a CSV, Parquet or Excel file, according to the ending of its name, or all files of a folder.

    Text files have a header line. Their cells stay text; `encoding.py` converts them by the schema.

    Parameters
    ----------
    path : str or Path
    origin : str, optional
        Name of the file in errors. Default: the file name.
    private : bool
        If True, errors show no values of the file.
    empty : bool, default=False
        Whether a file with a header alone is accepted: where the number of rows is private, to refuse it would reveal
        that number.
    encoding : str, optional
        Of a text file, such as "latin-1". Default: UTF-8 or UTF-16, found out from the first bytes; what is not UTF-8
        is read as Latin-1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("age;plan\\n31;free\\n")
    ...     read_table(path, private=True).frame.columns.tolist()
    ['age', 'plan']
    """
    chunks = table_chunks(path, origin=origin, private=private, empty=empty, encoding=encoding)
    return replace(chunks.header, frame=_joined([chunk.frame for chunk in replace(chunks, rows=None)]))


def _joined(frames: "list[pd.DataFrame]") -> "pd.DataFrame":
    """Return the rows of all frames. Columns of different types become objects, so that each cell stays as it is."""
    import pandas as pd

    if len(frames) == 1:
        return frames[0]
    mixed = {name for name in frames[0].columns if len({frame[name].dtype for frame in frames}) > 1}
    for name in mixed:
        frames = [
            frame.assign(**{name: pd.Series(cell_objects(frame[name]), index=frame.index, dtype=object)})
            for frame in frames
        ]
    return pd.concat(frames, ignore_index=True)


def read_header(path: str | Path, *, origin: str | None = None, encoding: str | None = None) -> list[str]:
    """Return the names of a file's columns, or those of a folder; nothing after the first line is looked at.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("age|plan\\n31|free\\n")
    ...     read_header(path)
    ['age', 'plan']
    """
    return list(table_chunks(path, origin=origin, private=True, encoding=encoding).header.frame.columns)


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
    rows : int or None
        Most rows of a chunk. None: each file is one.
    """

    header: Table
    n_rows: int | None
    rows: int | None
    _files: tuple[File, ...]
    _empty: bool

    def __repr__(self) -> str:
        return f"TableChunks({self.header.origin})"

    def __iter__(self) -> Iterator[Table]:
        """Yield the rows, in the order of the files' names."""
        header = self.header
        columns, some = list(header.frame.columns), False
        for file in self._files:
            for frame in file.frames(self.rows):
                if len(frame):
                    some = True
                    ordered = frame if list(frame.columns) == columns else frame[columns]
                    yield Table(ordered, file.named, header.private, header.folder)
        if not some:
            if not (self._empty and columns):
                raise ValueError(f"{header.origin}: {_EMPTY_TABLE}")
            yield header


def in_files(data: Any) -> bool:
    """Return whether rows are given as files: by a path, or as a dataset of pyarrow."""
    return isinstance(data, str | Path) or hasattr(type(data), "get_fragments")


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
        A CSV, Parquet or Excel file, or a folder of such files, which are read in the order of their names. Ledgers are
        left out, and so are files whose names begin with a dot or an underscore. A folder of partitions can be given as
        a dataset, which needs memory for one row group of its Parquet files.
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
    named = origin or ((Path(data).name or str(data)) if isinstance(data, str | Path) else "data")
    files, folder = files_of(data, named, private=private, encoding=encoding)
    header, counts = Table(files[0].header, named, private, folder), [file.n_rows for file in files]
    total = None if None in counts else sum(count or 0 for count in counts)
    most = rows or max(1, min(_CHUNK_ROWS, 64 * _CHUNK_ROWS // max(1, header.frame.shape[1])))
    return TableChunks(header, total, most, tuple(files), empty)


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
