"""Rows in files: the one reader of tables, folders and data sets, which a `Source` and a `TableModel` use.

A format is one entry of `FORMATS`: a function that returns a `File`. Cells are raw, each as its file has it by itself:
texts of CSV, objects of Excel, the types of Parquet. No error shows a value.

Text files may be separated by commas, semicolons, tabs or bars, be encoded as UTF-8, Latin-1 or UTF-16, and be
compressed by gzip. Separator, line end and encoding are taken from the header. A byte that is not UTF-8 is read as
Latin-1 by itself: if one such byte changed how the whole file is read, one row would change the encoding of the others.
"""

import codecs
import contextlib
import csv
import gzip
import io
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from dpadapt.rows import CACHE_BYTES

if TYPE_CHECKING:
    import pandas as pd

_Read = TypeVar("_Read")

_DAMAGED = "can't be read as {}. Check that it is a file of this format."
_NO_PATH = "can't be read. Check the path."
_NO_PLAIN_CELLS = "the columns can't be read as a table of plain cells."
# How the names of files begin that writers of folders put beside the rows, such as _SUCCESS and .part-0.crc; how those
# of ledgers end.
_NO_ROWS, _LEDGER_BESIDE = (".", "_"), ".ledger"
# How pyarrow reads a Parquet file in pieces: a column from so many bytes at a time. Else it would hold whole columns of
# a row group, which may be as long as the file.
_PARQUET_IN_PIECES = {"pre_buffer": False, "buffer_size": CACHE_BYTES}
# Formats of pyarrow's datasets, by the endings that it gives their files: those that state the types of their columns.
# Not ORC, which pyarrow reads in nanoseconds: one date after 2262 makes a file unreadable.
_TYPED = ("parquet", "arrow", "feather")
# What may separate the cells of a text file. Of those that the first line holds equally often, the first is taken.
_SEPARATORS = (",", ";", "\t", "|")
# How files begin that are no tables in text: zip and Excel, PDF, Parquet, SQLite, HTML and XML, JSON.
_OTHER_FILES = ("PK\x03\x04", "%PDF", "PAR1", "SQLite format 3", "<", "{", "[")
_NOT_A_TABLE = "this is not a table in text. Save it as CSV, or give a Parquet file with that ending."
# Encodings in which what a byte means depends on no earlier row, by Python's names. Not so in those with shifts between
# alphabets (hz, iso2022, utf-7), and escapes such as \n make a line end of a cell without one.
_STATELESS_ENCODINGS = re.compile(
    r"ascii|utf-(8|8-sig|(16|32)(-[bl]e)?)|(iso8859|cp|koi8-|mac-|gb|big5|shift_jis|euc_)[-\w]*|tis-620"
)
# The name under which the handler of bytes that are not UTF-8 is known to Python's decoders.
_ERRORS_AS_LATIN_1 = "dpadapt-latin-1"


@dataclass(frozen=True, repr=False)
class File:
    """One file of a table, or a data set of Arrow.

    Parameters
    ----------
    named : str
        Its name in errors.
    header : DataFrame
        Its columns, without rows.
    types : dict or None
        The types of its columns, but of those without values. None: each cell has a type of its own, or is a text.
    n_rows : int or None
        Number of rows, if the file states it.
    frames : function
        Reads it anew, in frames of so many rows (None: all in one); yields at least one, which may have no rows.
    """

    named: str
    header: "pd.DataFrame"
    types: dict[str, str] | None
    n_rows: int | None
    frames: "Callable[[int | None], Iterator[pd.DataFrame]]"


@dataclass(frozen=True)
class Format:
    """A format of files.

    Parameters
    ----------
    name : str
    endings : tuple of str
        How the names of its files end, in lower case.
    shown : str
        These endings, in errors.
    open : function
        Returns a `File`, given its path, its name in errors and the encoding that was asked for, if any.
    """

    name: str
    endings: tuple[str, ...]
    shown: str
    open: Callable[[Path, str, str | None], File]


def files_of(data: Any, named: str, *, private: bool, encoding: str | None = None) -> tuple[list[File], Path]:
    """Return the file at a path, the files of a folder in the order of their names, or a data set; and the folder.

    Only the names and types of columns are read here. The files of a folder must agree in them.
    """
    if hasattr(type(data), "get_fragments"):
        files, folder = [_dataset_file(data, named)], Path()
    elif isinstance(data, str | Path):
        path, encoding = Path(data), known_encoding(encoding, named)
        if path == Path():  # also what an empty text becomes
            raise ValueError(f"{named}: give the name of a file or folder, not the current folder.")
        if without_values(path.is_dir, named, _NO_PATH):
            folder = path
            files = [_file(file, f"{named}/{file.name}", encoding) for file in _inside(path, named)]
        else:
            files, folder = [_file(path, named, encoding)], path.parent
    else:
        raise TypeError(
            f"{named} must be the path of a {FORMAT_NAMES} file, of a folder of such files, or a pyarrow dataset, got "
            f"{type(data).__name__}."
        )
    for file in files:
        _require_names(file.header, file.named, private=private)
    _check_same_columns(files, private=private)
    return files, folder


def _require_names(frame: "pd.DataFrame", named: str, *, private: bool) -> None:
    """Refuse a table in which two columns have one name."""
    if frame.columns.has_duplicates:
        # If a private file has no header, its column names are the values of a private row.
        shown = "" if private else f", {frame.columns[frame.columns.duplicated()][0]!r}"
        raise ValueError(
            f"{named}: two columns have the same name{shown}. Give every column a name of its own in the first line."
        )


def _format(path: Path) -> Format | None:
    """Return the format of a file, by its name."""
    return next((form for form in FORMATS if path.name.lower().endswith(form.endings)), None)


def _inside(folder: Path, named: str) -> list[Path]:
    """Return the files of a folder in the order of their names, or refuse other things in it."""
    inside = without_values(lambda: sorted(folder.iterdir(), key=lambda file: file.name), named, _NO_PATH)
    files = [file for file in inside if not file.name.startswith(_NO_ROWS) and file.suffix != _LEDGER_BESIDE]
    if not files:
        raise ValueError(f"{named}: this folder holds no {FORMAT_NAMES} files. Check the path.")
    for file in files:
        if without_values(file.is_dir, named, _NO_PATH):
            # It may hold the same rows again.
            raise ValueError(
                f"{named}: this folder holds the folder {file.name!r}. Give a folder of files alone; in Python, "
                f"pyarrow.dataset.dataset reads a folder of partitions."
            )
        if _format(file) is None:
            raise ValueError(
                f"{named}: this folder holds {file.name!r}, which does not end in {_ENDINGS}. Move it elsewhere."
            )
    names = sorted({form.name for file in files if (form := _format(file)) is not None})
    if len(names) > 1:
        raise ValueError(f"{named}: this folder holds {' and '.join(names)} files. Give a folder of one kind.")
    return files


def _file(path: Path, named: str, encoding: str | None) -> File:
    """Return the file at a path, which is then refused if it was changed, or what is no such file."""
    form = _format(path)
    if form is None:
        raise ValueError(f"{named}: expected a file ending in {_ENDINGS}.")
    if not without_values(path.exists, named, _NO_PATH):
        raise ValueError(f"{named}: there is no such file. Check the path.")
    if not without_values(path.is_file, named, _NO_PATH):  # a pipe or a device may never end
        raise ValueError(f"{named}: this is a folder or a device. Give a {FORMAT_NAMES} file.")
    stamp = _stamp(path, named)
    file = form.open(path, named, encoding)
    return File(named, file.header, file.types, file.n_rows, lambda rows: _unchanged(path, stamp, file, rows))


def _stamp(path: Path, named: str) -> tuple[int, int, int]:
    """Return the file's number, size and time of change: one of them differs once it is written to or replaced."""
    state = without_values(path.stat, named, _NO_PATH)
    return state.st_ino, state.st_size, state.st_mtime_ns


def _unchanged(path: Path, stamp: tuple[int, int, int], file: File, rows: int | None) -> "Iterator[pd.DataFrame]":
    """Yield the frames of a file, and refuse one that is no longer what it was: a text file that was cut has an end."""
    error = None
    try:
        yield from file.frames(rows)
    except ValueError as refusal:
        error = refusal
    try:
        changed = _stamp(path, file.named) != stamp
    except ValueError:
        changed = True
    if changed:
        raise ValueError(
            f"{file.named}: the file was changed or removed while it was read. Begin again with the whole file."
        )
    if error is not None:
        raise error


def _check_same_columns(files: list[File], *, private: bool) -> None:
    """Refuse a file whose columns are not those of the first file, or have another type than in the files before it."""
    first, types = files[0], dict(files[0].types or {})
    columns = set(first.header.columns)
    for file in files[1:]:
        different = columns.symmetric_difference(file.header.columns)
        if different:
            # If private files have no header, their column names are the values of private rows.
            shown = "" if private else f" ({named_columns(sorted(different))})"
            raise ValueError(
                f"{file.named}: its columns are not those of {first.named}{shown}. All files of a folder need the same "
                f"names of columns."
            )
        # These names are in every file so far, so they are no values of a row.
        changed = [name for name, kind in (file.types or {}).items() if types.setdefault(name, kind) != kind]
        if changed:
            raise ValueError(
                f"{file.named}: {named_columns(changed)} {'has' if len(changed) == 1 else 'have'} another type than in "
                f"the files before. Write all files of a folder with the same types."
            )


def named_columns(names: Sequence[str]) -> str:
    """Return e.g. "columns 'age', 'bmi'"; of more than five names, the first five."""
    shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"


def without_values(read: Callable[[], _Read], named: str, refusal: str) -> _Read:
    """Return what `read` returns. Its errors are replaced by `refusal`, or by what is known to be wrong.

    The messages of parsers quote cells, bytes and line numbers. The new error is raised outside the handlers, where the
    original would stay attached to it. Warnings are not shown: they may quote a cell, too.
    """
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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


# Text


def known_encoding(encoding: str | None, named: str) -> str | None:
    """Return the encoding that was asked for, or refuse one that Python does not know or that has a state.

    With a state, bytes in a cell of one row would change how all later rows are read.
    """
    if encoding is None:
        return None
    try:
        stateless = _STATELESS_ENCODINGS.fullmatch(codecs.lookup(encoding).name) is not None
    except (LookupError, ValueError, TypeError):
        stateless = False
    if not stateless:
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


def _text_file(path: Path, named: str, encoding: str | None) -> File:
    header = next(_text_frames(path, named, encoding, 0))
    return File(named, header, None, None, lambda rows: _text_frames(path, named, encoding, rows))


def _text_frames(path: Path, named: str, encoding: str | None, rows: int | None) -> "Iterator[pd.DataFrame]":
    """Yield the rows of a text file in frames of text; with 0 rows, nothing after the header is looked at."""
    import pandas as pd

    damaged = _DAMAGED.format("CSV")
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


# Parquet and Arrow


def _parquet(path: Path, named: str, **reading: Any) -> Any:
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

    return without_values(opened, named, _DAMAGED.format("Parquet"))


def _parquet_file(path: Path, named: str, _encoding: str | None) -> File:
    with _parquet(path, named) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    return File(named, *_columns(schema, named), n_rows, lambda rows: _parquet_frames(path, named, rows))


def _dataset_file(dataset: Any, named: str) -> File:
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    _require_stated_types(dataset, named)
    damaged = "the dataset can't be read. Check that its files are there, and that all have the types of its schema."
    scan: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(dataset, "format", None), ParquetFileFormat):
        scan["fragment_scan_options"] = ParquetFragmentScanOptions(use_buffered_stream=True, **_PARQUET_IN_PIECES)

    def frames(rows: int | None) -> "Iterator[pd.DataFrame]":
        size = {} if rows is None else {"batch_size": rows}
        batches = without_values(lambda: dataset.to_batches(**size, **scan), named, damaged)
        yield from _arrow_frames(batches, dataset.schema, named, damaged)

    return File(named, *_columns(dataset.schema, named), None, frames)


def _require_stated_types(dataset: Any, named: str) -> None:
    """Refuse a dataset whose columns have types that pyarrow chose from its rows, or from the names of folders."""
    # Claim: what a cell becomes depends on that cell alone. pyarrow gives a column of CSV or JSON the type that all its
    # first rows have, and that of partitions the type of all their names: "01" is 1 unless one row there is "x".
    # Not proved: that tables in memory had their types before their rows, and files theirs before they were written.
    for child in getattr(dataset, "children", [dataset]):
        if child is not dataset:
            _require_stated_types(child, named)
        elif type(dataset).__name__ != "InMemoryDataset":
            if getattr(getattr(dataset, "format", None), "default_extname", None) not in _TYPED:
                raise ValueError(
                    f"{named}: only datasets in memory and of Parquet or Arrow (Feather) files state the types of "
                    f"their columns. Give the path, which is read cell by cell."
                )
            if any(values is not None for values in getattr(dataset.partitioning, "dictionaries", ())):
                raise ValueError(
                    f"{named}: the names of the dataset's folders chose the types of its partitions. State them: "
                    f"partitioning=pyarrow.dataset.partitioning(schema, flavor='hive')."
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

    return without_values(read, named, _NO_PLAIN_CELLS)


def _parquet_frames(path: Path, named: str, rows: int | None) -> "Iterator[pd.DataFrame]":
    """Yield the rows of a Parquet file, `rows` in each frame (None: all in one); if it has no rows, one frame."""
    if rows is None:
        with _parquet(path, named) as file:
            yield without_values(lambda: from_arrow(file.read()), named, _DAMAGED.format("Parquet"))
        return
    with _parquet(path, named, **_PARQUET_IN_PIECES) as file:
        yield from _arrow_frames(file.iter_batches(rows), file.schema_arrow, named, _DAMAGED.format("Parquet"))


def _arrow_frames(batches: Any, schema: Any, named: str, refusal: str) -> "Iterator[pd.DataFrame]":
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


def frame_of(data: Any, named: str, *, private: bool) -> "pd.DataFrame":
    """Return a frame of pandas, or what hands out its columns through Arrow, as a frame of plain cells."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        frame = without_values(lambda: _without_arrow(data), named, _NO_PLAIN_CELLS)
    elif hasattr(data, "__arrow_c_stream__"):
        frame = without_values(lambda: from_arrow(data), named, _NO_PLAIN_CELLS)
    else:
        raise TypeError(
            f"{named} must be a data frame (pandas, polars, pyarrow) or the path of a {FORMAT_NAMES} file, got "
            f"{type(data).__name__}. An array has no names of columns: make a data frame of it."
        )
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    _require_names(frame, named, private=private)
    return frame.reset_index(drop=True)


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


# Excel


def _excel_file(path: Path, named: str, _encoding: str | None) -> File:
    """Return the first sheet of a workbook. Formulas are the values that Excel has stored for them."""
    import pandas as pd

    damaged = _DAMAGED.format("Excel")
    try:
        import openpyxl
    except ImportError:
        openpyxl = None
    if openpyxl is None:
        raise ValueError(f"{named}: Excel files need the package openpyxl: pip install 'dpadapt[excel]'.")

    def cells() -> Generator[tuple[Any, ...]]:
        with (
            path.open("rb") as file,
            contextlib.closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book,
        ):
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # what a file says about its size may be wrong
            yield from sheet.iter_rows(values_only=True)

    def frames(rows: int | None) -> "Iterator[pd.DataFrame]":
        with contextlib.closing(cells()) as lines:
            first = without_values(
                lambda: next((line for line in lines if any(cell is not None for cell in line)), ()), named, damaged
            )
            names = ["" if cell is None else str(cell).strip() for cell in first]
            if not names:
                raise ValueError(f"{named}: the first sheet is empty. Give one with a header and at least one row.")
            some = False
            while True:
                # Claim: what a cell becomes depends on that cell alone: columns hold objects. A row is one that the
                # sheet has, also if its cells are missing.
                # Not proved: that the number of rows depends on no cell. It is that of the last row stored, and Excel
                # stores no row without content or format at the end of a sheet.
                batch = without_values(lambda: list(islice(lines, rows)), named, damaged)
                if some and not batch:
                    return
                some = True
                columns = {
                    place: pd.Series([_stored(line, place) for line in batch], dtype=object)
                    for place, name in enumerate(names)
                    if name
                }
                frame = pd.DataFrame(columns)
                frame.columns = pd.Index([name for name in names if name], dtype=object)
                yield frame
                if not rows:
                    return

    return File(named, next(frames(0)), None, None, frames)


def _stored(line: tuple[Any, ...], place: int) -> Any:
    """Return a cell of a sheet. Excel keeps 15 digits: a longer whole number is no exact one, but a float."""
    cell = line[place] if place < len(line) else None
    if not isinstance(cell, int) or abs(cell) < 10**15:
        return cell
    return float(cell) if abs(cell) < 10**308 else None


FORMATS = (
    Format(
        "CSV",
        tuple(f"{ending}{packed}" for ending in (".csv", ".tsv", ".tab", ".txt") for packed in ("", ".gz")),
        ".csv (or .tsv, .txt, also with .gz)",
        _text_file,
    ),
    Format("Parquet", (".parquet", ".pq"), ".parquet", _parquet_file),
    Format("Excel", (".xlsx", ".xlsm"), ".xlsx", _excel_file),
)
FORMAT_NAMES, _ENDINGS = (
    f"{', '.join(words[:-1])} or {words[-1]}"
    for words in ([form.name for form in FORMATS], [form.shown for form in FORMATS])
)
