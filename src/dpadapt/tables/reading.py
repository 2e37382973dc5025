"""`read_table`, `as_table`, `read_header`: files and data frames as a `Table`; errors about private rows show no value.

Text files may be separated by commas, semicolons, tabs or bars, be encoded as UTF-8, Latin-1 or UTF-16, and be
compressed by gzip. Separator, line end and encoding are taken from the header. A byte that is not UTF-8 is read as
Latin-1 by itself: if one such byte changed how the whole file is read, one row would change the encoding of the others.

Data frames of pandas are taken as they are. Frames of polars, Arrow tables and whatever else hands out its columns
through Arrow's C interface go through pyarrow, which is needed for Parquet anyway; so none of them is a dependency.
"""

import codecs
import csv
import gzip
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from dpadapt.data import Public
from dpadapt.inputs.sources import PARQUET_IN_PIECES
from dpadapt.tables.cells import cell_objects

if TYPE_CHECKING:
    import pandas as pd

_Read = TypeVar("_Read")

# What may separate the cells of a text file. Of those that the first line holds equally often, the first is taken.
_SEPARATORS = (",", ";", "\t", "|")
_TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt")
_PARQUET_ENDINGS = (".parquet", ".pq")
_EXPECTED_FILE = "expected a file ending in .csv (or .tsv, .txt, also with .gz) or .parquet."
# How files begin that are no tables in text: zip and Excel, PDF, Parquet, SQLite, HTML and XML, JSON.
_OTHER_FILES = ("PK\x03\x04", "%PDF", "PAR1", "SQLite format 3", "<", "{", "[")
_NOT_A_TABLE = "this is not a table in text. Save it as CSV, or give a Parquet file with that ending."
_NO_PLAIN_CELLS = "the columns can't be read as a table of plain cells."
_NOT_PARQUET = "can't be read as Parquet. Check that it is a Parquet file."
# Encodings in which what a byte means depends on no earlier row, by Python's names. Not so in those with shifts between
# alphabets (hz, iso2022, utf-7), and escapes such as \n make a line end of a cell without one.
_STATELESS_ENCODINGS = re.compile(
    r"ascii|utf-(8|8-sig|(16|32)(-[bl]e)?)|(iso8859|cp|koi8-|mac-|gb|big5|shift_jis|euc_)[-\w]*|tis-620"
)
# The name under which the handler of bytes that are not UTF-8 is known to Python's decoders.
_ERRORS_AS_LATIN_1 = "dpadapt-latin-1"


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
        """Return the name of the table, without its values."""
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
    import pandas as pd

    if isinstance(data, Public):
        data = data.X
    if isinstance(data, Table):
        return replace(data, private=data.private or private)
    if isinstance(data, str | Path):
        return read_table(data, origin=f"{origin} {data}", private=private, empty=empty, encoding=encoding)
    if isinstance(data, pd.DataFrame):
        frame = without_values(lambda: _without_arrow(data), origin, _NO_PLAIN_CELLS)
    elif hasattr(data, "__arrow_c_stream__"):
        frame = without_values(lambda: from_arrow(data), origin, _NO_PLAIN_CELLS)
    else:
        raise TypeError(
            f"{origin} must be a data frame (pandas, polars, pyarrow) or the path of a CSV or Parquet file, got "
            f"{type(data).__name__}. An array has no names of columns: make a data frame of it."
        )
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    return checked_table(frame.reset_index(drop=True), origin, private=private, empty=empty, folder=Path())


def from_arrow(data: Any) -> "pd.DataFrame":
    """Return what hands out its columns through Arrow's C interface as a frame of pandas, its names stripped.

    A cell that there is no object for, such as a date after 9999, is missing, and changes no other cell.
    """
    import pandas as pd
    import pyarrow

    table = _without_notes(pyarrow.table(data))
    by_cell = dict[int, list[Any]]()
    for place, column in enumerate(table.schema):
        cells, kind = table.column(place), column.type
        if pyarrow.types.is_dictionary(kind) and not _is_text(kind.value_type):
            # All rows share the dictionary, and pandas would choose one type for its values.
            cells, kind = cells.cast(kind.value_type), kind.value_type
            table = table.set_column(place, column.with_type(kind), cells)
        if pyarrow.types.is_nested(kind):
            # Claim: what a list becomes depends on that cell alone. Otherwise the lists of all rows would be parts of
            # one array, whose type a gap in one of them changes.
            by_cell[place] = [_plain(cell) for cell in cells]
        elif not _is_utf_8(cells):
            by_cell[place] = _decoded(cells)
    places = [place for place in range(table.num_columns) if place not in by_cell]
    frame = _converted(table.select(places))
    if frame is None:
        _to_pandas(table.select(places).schema.empty_table())  # raises if a type is the reason, and no cell
        # The other columns as ever: converted by cell, a time after 9999 in one of them would be missing.
        wrong = [place for place in places if _converted(table.select([place])) is None]
        by_cell.update({place: [_plain(cell) for cell in table.column(place)] for place in wrong})
        places = [place for place in places if place not in by_cell]
        frame = _to_pandas(table.select(places))
    if by_cell:
        frame.columns = pd.Index(places, dtype="int64")
        columns = [pd.Series(cells, dtype=object, name=place) for place, cells in by_cell.items()]
        frame = pd.concat([frame, *columns], axis=1)[list(range(table.num_columns))]
    frame.columns = pd.Index([str(name).strip() for name in table.column_names])
    return frame


def _to_pandas(table: Any) -> "pd.DataFrame":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Whole numbers beside missing ones stay exact: as floats, large ones would change by a gap in another row.
        frame: pd.DataFrame = table.to_pandas(integer_object_nulls=True)
    return frame.reset_index(drop=True)


def _converted(table: Any) -> "pd.DataFrame | None":
    """Return a table of Arrow as a frame of pandas; None if there is no object for a cell."""
    try:
        return _to_pandas(table)
    except Exception:
        return None


def _without_notes(table: Any) -> Any:
    """Return a table of Arrow without the index of a frame, and without the types of pandas that it is to become."""
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    names = [name for name in index if isinstance(name, str) and table.schema.get_field_index(name) >= 0]
    return table.drop_columns(names).replace_schema_metadata()


def _without_arrow(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame of pandas whose columns of Arrow are those of `from_arrow`."""
    import pandas as pd

    frame = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        texts = isinstance(kind, pd.StringDtype) and kind.storage.startswith("pyarrow")
        if texts or isinstance(kind, pd.ArrowDtype):
            import pyarrow

            column = pyarrow.table({"cells": frame.iloc[:, place].array.__arrow_array__()})
            if not texts or not _is_utf_8(column["cells"]):
                frame.isetitem(place, from_arrow(column)["cells"].array)
    return frame


def _plain(cell: Any) -> Any:
    """Return a cell of Arrow as an object of Python; None if there is none, as for a list with a date after 9999."""
    try:
        return cell.as_py()
    except Exception:
        return None


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_utf_8(cells: Any) -> bool:
    """Return False for texts of Arrow with bytes that are not UTF-8: pandas could read none of them."""
    import pyarrow

    shared = pyarrow.types.is_dictionary(cells.type)
    if not _is_text(cells.type.value_type if shared else cells.type):
        return True
    try:
        for chunk in cells.chunks:
            (chunk.dictionary if shared else chunk).validate(full=True)
    except pyarrow.ArrowInvalid:
        return False
    return True


def _decoded(cells: Any) -> list[str | None]:
    """Return texts of Arrow, each by itself, with bytes that are not UTF-8 read as those of a text file are."""
    import pyarrow

    if pyarrow.types.is_dictionary(cells.type):
        parts = [(_decoded(chunk.dictionary), chunk.indices.to_pylist()) for chunk in cells.chunks]
        return [None if place is None else words[place] for words, places in parts for place in places]
    codecs.register_error(_ERRORS_AS_LATIN_1, _as_latin_1)
    codes = cells.cast(pyarrow.large_binary()).to_pylist()
    return [None if code is None else code.decode("utf-8", _ERRORS_AS_LATIN_1) for code in codes]


def read_table(
    path: str | Path,
    *,
    origin: str | None = None,
    private: bool,
    empty: bool = False,
    encoding: str | None = None,
) -> Table:
    """Read a CSV or Parquet file, according to the ending of its name, or all files of a folder.

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
    path = Path(path)
    named = origin or path.name
    if path != Path() and path.is_dir():
        from dpadapt.tables.chunks import table_chunks

        chunks = table_chunks(path, origin=named, private=private, empty=empty, encoding=encoding)
        return checked_table(
            _joined([chunk.frame for chunk in chunks]), named, private=private, empty=empty, folder=path
        )
    if file_kind(path, named) == "parquet":
        frames = parquet_frames(path, named)
    else:
        frames = text_frames(path, named, known_encoding(encoding, named))
    return checked_table(next(frames), named, private=private, empty=empty, folder=path.parent)


def _joined(frames: "list[pd.DataFrame]") -> "pd.DataFrame":
    """Return the rows of all frames. Columns of different types become objects, so that each cell stays as it is."""
    import pandas as pd

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
    path = Path(path)
    named = origin or path.name
    if path != Path() and path.is_dir():
        from dpadapt.tables.chunks import table_chunks

        return list(table_chunks(path, origin=named, private=True, encoding=encoding).header.frame.columns)
    kind = file_kind(path, named)

    def names() -> list[str]:
        if kind == "parquet":
            import pyarrow.parquet

            return [str(name) for name in pyarrow.parquet.read_schema(path).names]
        with _open_text(path, encoding) as file:
            return [name.strip() for name in _header(file).names]

    encoding = known_encoding(encoding, named)
    return without_values(names, named, "can't be read as a table. Check that it is a CSV or Parquet file.")


def is_table(path: Path) -> bool:
    """Return whether a file has the name of a table that can be read.

    Examples
    --------
    >>> is_table(Path("a.CSV.gz")), is_table(Path("a.toml"))
    (True, False)
    """
    name = path.name.lower()
    return name.removesuffix(".gz").endswith(_TEXT_ENDINGS) or name.endswith(_PARQUET_ENDINGS)


def file_ending(path: Path) -> str:
    """Return "text" or "parquet", by the name of a file that `is_table`."""
    return "parquet" if path.name.lower().endswith(_PARQUET_ENDINGS) else "text"


def file_kind(path: Path, named: str) -> str:
    """Return "text" or "parquet", or refuse what is no such file."""
    if not is_table(path):
        raise ValueError(f"{named}: {_EXPECTED_FILE}")
    try:
        exists, is_file = path.exists(), path.is_file()
    except OSError as error:
        refusal = f"can't be read ({error.strerror})."
    else:
        if not exists:
            raise ValueError(f"{named}: there is no such file. Check the path.")
        if not is_file:  # a pipe or a device may never end
            raise ValueError(f"{named}: this is a folder or a device. Give a CSV or Parquet file.")
        return file_ending(path)
    raise ValueError(f"{named}: {refusal}")


def checked_table(frame: "pd.DataFrame", named: str, *, private: bool, empty: bool, folder: Path) -> Table:
    """Return the table, or refuse one without rows or with two columns of one name."""
    if frame.columns.has_duplicates:
        # If a private file has no header, its column names are the values of a private row.
        shown = "" if private else f", {frame.columns[frame.columns.duplicated()][0]!r}"
        raise ValueError(
            f"{named}: two columns have the same name{shown}. Give every column a name of its own in the first line."
        )
    if not len(frame) and not (empty and frame.shape[1]):
        raise ValueError(f"{named}: the table has no rows. Give one with a header and at least one row.")
    return Table(frame, named, private, folder)


def known_encoding(encoding: str | None, named: str) -> str | None:
    """Return the encoding that was asked for, or refuse one that Python does not know or that has a state.

    With a state, bytes in a cell of one row would change how all later rows are read.
    """
    if encoding is None:
        return None
    try:
        known = _STATELESS_ENCODINGS.fullmatch(codecs.lookup(encoding).name) is not None
    except (LookupError, ValueError, TypeError):
        known = False
    if not known:
        raise ValueError(
            f"{named}: the encoding {str(encoding)[:40]!r} is not known, or one row would change in it how others are "
            f"read. Use utf-8, latin-1, cp1252 or utf-16, or leave it out: it is found out."
        )
    return encoding


def _compressed(path: Path) -> bool:
    """Return whether a file is compressed by gzip, whatever its name is."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if _compressed(path) else path.open("rb")


def _open_text(path: Path, encoding: str | None) -> IO[str]:
    chosen, errors = _decoding(path, encoding)
    return io.TextIOWrapper(_open_bytes(path), encoding=chosen, errors=errors, newline="")


def _decoding(path: Path, encoding: str | None) -> tuple[str, str]:
    """Return the encoding and how bytes outside it are read; found out from the first bytes, which are the header's."""
    codecs.register_error(_ERRORS_AS_LATIN_1, _as_latin_1)
    if encoding is not None:
        return encoding, "replace"
    with _open_bytes(path) as file:
        start = file.read(4)
    if start.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "utf-32", "replace"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "replace"
    if len(start) == 4 and start[1] == start[3] == 0 and start[0] and start[2]:
        return "utf-16-le", "replace"
    if len(start) == 4 and start[0] == start[2] == 0 and start[1] and start[3]:
        return "utf-16-be", "replace"
    return "utf-8-sig", _ERRORS_AS_LATIN_1


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    """Read bytes that are not UTF-8 as Windows' Latin-1, each by itself."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    try:
        return wrong.decode("cp1252"), error.end
    except UnicodeDecodeError:  # five bytes that cp1252 leaves out
        return wrong.decode("latin-1"), error.end


def _separator(header: str) -> str:
    """Return what separates the cells of a header line: what it holds most often outside quotes."""
    unquoted = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=unquoted.count)


@dataclass(frozen=True)
class _Header:
    """The header of a text file, which alone says how its rows are read.

    Parameters
    ----------
    text : str
        Its line, or lines if a name in quotes has a line end.
    names : list of str
    separator : str
    line_end : str
        "\\n", "\\r\\n", or "\\r" if no "\\n" follows it. Then the other character is part of its cell, also outside
        quotes, where writers leave it.
    following : str
        What was read after it; no header.
    """

    text: str
    names: list[str]
    separator: str
    line_end: str
    following: str


def _header(file: IO[str]) -> _Header:
    """Read the header of a text file; empty lines before it are left out."""
    lines = iter(file.readline, "")
    first = next((line for line in lines if line.strip()), "").removeprefix("\ufeff")
    text = [first]

    def header_lines() -> Iterator[str]:
        yield first
        for line in lines:
            text.append(line)
            yield line

    separator = _separator(first)
    names = next(csv.reader(header_lines(), delimiter=separator, skipinitialspace=True), [])
    following = ""
    line_end = next((end for end in ("\r\n", "\r") if text[-1].endswith(end)), "\n")
    if line_end == "\r" and len(names) > 1:
        # On Windows, a program that writes "\r\n" to a file of text writes "\r\r\n". No row of two cells is empty.
        following = next(lines, "")
        line_end = "\r\n" if following == "\r\n" else "\r"
    return _Header("".join(text), names, separator, line_end, following)


class _Rows(io.TextIOBase):
    """The text of a file from its header on, without the empty lines at its end.

    In between, an empty line is a row with missing cells. With a single column it is so at the end, too: some writers
    write a missing cell like this, and the number of rows must depend on no cell.
    """

    def __init__(self, file: IO[str], header: _Header) -> None:
        self._file, self._held = file, header.text + header.following
        self._empty = " \r\n" if len(header.names) > 1 else ""

    def read(self, size: int | None = -1) -> str:
        """Return what follows; as many characters as `size` and those that were held back."""
        while True:
            more = self._file.read(-1 if size is None else size)
            text = self._held + more
            rows = text.rstrip(self._empty)
            self._held = text[len(rows) :] if more else ""
            if rows or not more:
                return rows


def without_values(read: Callable[[], _Read], named: str, refusal: str) -> _Read:
    """Return what `read` returns. Its errors are replaced by `refusal`, or by what is known to be wrong.

    The messages of parsers quote cells, bytes and line numbers. The new error is raised outside the handlers, where the
    original would stay attached to it.
    """
    import pandas as pd

    try:
        return read()
    except pd.errors.EmptyDataError:
        refusal = "the file is empty. Give a file with a header and at least one row."
    except pd.errors.ParserError:
        refusal = (
            "not a valid CSV file: a row has more cells than the header, or a quote is not closed. Separate cells by "
            "commas, semicolons, tabs or bars, and put text that contains the separator in quotes."
        )
    except gzip.BadGzipFile:
        refusal = "the compressed file is damaged. Make it again."
    except EOFError:
        refusal = "the compressed file is cut off. Make it again."
    except OSError as error:
        # Of the system's errors only: other texts may say what stands in the file.
        why = os.strerror(error.errno) if error.errno else "unreadable or not such a file"
        refusal = f"can't be read ({why})."
    except Exception:  # the errors of pyarrow about malformed files have no common base class
        pass
    raise ValueError(f"{named}: {refusal}")


def text_frames(
    path: Path, named: str, encoding: str | None = None, rows: int | None = None
) -> "Iterator[pd.DataFrame]":
    """Yield the rows of a text file in frames of text, `rows` in each (None: all in one); if it has no rows, one frame.

    Parameters
    ----------
    path : Path
    named : str
        Name of the file in errors.
    encoding : str, optional
        As `known_encoding` returns it.
    rows : int, optional
        With 0, nothing after the header is looked at.
    """
    import pandas as pd

    damaged = "can't be read as CSV. Check that it is a CSV file."
    with without_values(lambda: _open_text(path, encoding), named, damaged) as file:
        head = without_values(lambda: _header(file), named, damaged)
        if "\0" in head.text or head.text.startswith(_OTHER_FILES):
            raise ValueError(f"{named}: {_NOT_A_TABLE}")
        reader = without_values(lambda: _text_reader(file, head), named, damaged)
        start = without_values(lambda: reader.get_chunk(1), named, damaged)
        header = pd.Index([str(name).strip() for name in start.iloc[0]])

        def read() -> "pd.DataFrame | None":
            try:
                return cast("pd.DataFrame", reader.read(rows))
            except StopIteration:
                return None

        frame = without_values(read, named, damaged) if rows != 0 else None
        if frame is None:
            frame = start.iloc[:0]
        while frame is not None:
            if head.line_end == "\r\n":
                frame = _without_returns(frame)
            frame.columns = header
            # A column without a name, such as row numbers written by pandas, can't be in a schema.
            yield (frame.loc[:, header != ""] if "" in header else frame).reset_index(drop=True)
            frame = without_values(read, named, damaged) if rows else None


def _text_reader(file: IO[str], header: _Header) -> Any:
    """Return what reads the rows of a text file piece by piece, its header as the first row.

    With a header that is shorter than the rows, pandas would use the first column as an index.
    """
    import pandas as pd

    return pd.read_csv(
        _Rows(file, header),
        sep=header.separator,
        lineterminator="\r" if header.line_end == "\r" else "\n",
        header=None,
        dtype=str,
        keep_default_na=False,
        skipinitialspace=True,
        skip_blank_lines=False,
        iterator=True,
    )


def _without_returns(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return rows whose lines end in "\\r\\n" without the "\\r", which is at the end of a line's last cell."""
    last = frame.columns[-1]
    short = (frame[last] == "").to_numpy(dtype=bool)
    frame = frame.copy(deep=False)
    frame[last] = frame[last].str.rstrip("\r")
    if short.any():
        frame.loc[short] = frame.loc[short].map(lambda cell: cell.rstrip("\r"))
    return frame


def parquet_file(path: Path, named: str, **reading: Any) -> Any:
    """Return an open Parquet file."""
    import pyarrow.parquet

    def opened() -> Any:
        file = pyarrow.parquet.ParquetFile(path, **reading)
        shared = [column.name for column in file.schema_arrow if pyarrow.types.is_dictionary(column.type)]
        if not shared:
            return file
        file.close()
        # Otherwise pyarrow makes the dictionaries anew, and one text that is not UTF-8 makes the file unreadable.
        return pyarrow.parquet.ParquetFile(path, read_dictionary=shared, **reading)

    return without_values(opened, named, _NOT_PARQUET)


def parquet_frames(path: Path, named: str, rows: int | None = None) -> "Iterator[pd.DataFrame]":
    """Yield the rows of a Parquet file, `rows` in each frame (None: all in one); if it has no rows, one frame."""
    if rows is None:
        with parquet_file(path, named) as file:
            yield without_values(lambda: from_arrow(file.read()), named, _NOT_PARQUET)
        return
    with parquet_file(path, named, **PARQUET_IN_PIECES) as file:
        yield from arrow_frames(file.iter_batches(rows), file.schema_arrow, named, _NOT_PARQUET)


def arrow_frames(batches: Any, schema: Any, named: str, refusal: str) -> "Iterator[pd.DataFrame]":
    """Yield Arrow's record batches as frames of pandas, at least one."""
    import pyarrow

    def read() -> "pd.DataFrame | None":
        batch = next(batches, None)
        return None if batch is None else from_arrow(pyarrow.Table.from_batches([batch]))

    frame = without_values(read, named, refusal)
    if frame is None:
        frame = without_values(lambda: from_arrow(schema.empty_table()), named, refusal)
    while frame is not None:
        yield frame
        frame = without_values(read, named, refusal)
