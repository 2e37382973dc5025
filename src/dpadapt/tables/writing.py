"""`to_csv`, `write_csv`, `write_parquet`: tables as files, of which no spreadsheet runs a cell as a formula."""

from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# A spreadsheet may take a cell that begins with one of these for a formula, which can read other cells and files and
# send them away. Sources: CWE-1236; OWASP ASVS 5.0, 1.2.10. Line ends and the wide forms are a precaution.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\0", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def to_csv(frame: "pd.DataFrame") -> bytes:
    """Return `frame` as CSV in UTF-8, without its index.

    Text that a spreadsheet would run as a formula gets an apostrophe before it, which is how spreadsheets themselves
    mark text: class names, cells and column names that begin with one of ``= + - @``, a tab or a line end. Numbers,
    text that reads as a number (``-1``) and a sign alone (``+``) stay as they are, so that ordinary names and every
    number are read back unchanged. Such names are not refused, because they may be the ones that the private file
    holds. Parquet files need no such mark.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"prediction": ["-", "-1", "yes", "=1+1"], "@cost": [-1.5, 2.0, 3.0, 4.0]})
    >>> print(to_csv(frame).decode(), end="")
    prediction,'@cost
    -,-1.5
    -1,2.0
    yes,3.0
    '=1+1,4.0
    """
    content = _csv(frame)
    line_end = safe_line_end(content)
    return (content if line_end == "\n" else _csv(frame, line_end=line_end)).encode()


def safe_line_end(text: str) -> str:
    """Return a line end with which no cell of this text ends a row.

    A cell is put in quotes if it contains a character of the line end; without quotes a carriage return would end the
    row, and what follows would begin a cell.
    """
    return "\r\n" if "\r" in text else "\n"


def write_csv(file: IO[bytes], frames: "Iterable[pd.DataFrame]", *, line_end: str = "\n") -> None:
    """Write frames with the same columns to one file, as `to_csv` writes one; `line_end` must be safe for all cells."""
    for position, frame in enumerate(frames):
        file.write(_csv(frame, header=position == 0, line_end=line_end).encode())


def write_parquet(file: IO[bytes], frames: "Iterator[pd.DataFrame]") -> None:
    """Write frames with the columns and types of the first one to one Parquet file; there must be one."""
    import pyarrow.parquet

    first = pyarrow.Table.from_pandas(next(frames), preserve_index=False)
    with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for frame in frames:
            writer.write_table(pyarrow.Table.from_pandas(frame, schema=first.schema, preserve_index=False))


def _csv(frame: "pd.DataFrame", *, header: bool = True, line_end: str = "\n") -> str:
    import pandas as pd

    safe = {}
    for position, kind in enumerate(frame.dtypes):
        column = frame.iloc[:, position]
        if isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_object_dtype(kind) or kind == "str":
            column = column.astype(object).map(_marked)
        safe[position] = column
    names = [_marked(str(name)) for name in frame.columns]
    marked = pd.DataFrame(safe, index=frame.index)
    return str(marked.to_csv(index=False, header=names if header else False, lineterminator=line_end))


def _marked(cell: Any) -> Any:
    """Return a cell with an apostrophe before it if it would be run as a formula."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA_STARTS) or len(cell) == 1:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
