"""`to_csv`: write a table so that no spreadsheet runs a cell of it as a formula."""

from typing import TYPE_CHECKING, Any

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
    import pandas as pd

    safe = {}
    for position, kind in enumerate(frame.dtypes):
        column = frame.iloc[:, position]
        if isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_object_dtype(kind) or kind == "str":
            column = column.astype(object).map(_marked)
        safe[position] = column
    names = [_marked(str(name)) for name in frame.columns]
    marked = pd.DataFrame(safe, index=frame.index)
    content = marked.to_csv(index=False, header=names, lineterminator="\n")
    if "\r" in content:
        # A cell is put in quotes if it contains a character of the line end; without quotes a carriage return would end
        # the row, and what follows would begin a cell.
        content = marked.to_csv(index=False, header=names, lineterminator="\r\n")
    return str(content).encode()


def _marked(cell: Any) -> Any:
    """Return a cell with an apostrophe before it if it would be run as a formula."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA_STARTS) or len(cell) == 1:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
