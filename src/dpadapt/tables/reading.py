"""`read_table`: read a CSV or Parquet file; errors about a private file show none of its values."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The rows of a file, its name in errors, and whether errors may show its values.

    Parameters
    ----------
    frame : DataFrame
        Columns of text if the file was CSV.
    origin : str
        Name of the file in errors, e.g. ``--private a.csv``.
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


def read_table(path: str | Path, *, origin: str | None = None, private: bool, empty: bool = False) -> Table:
    """Read a CSV or Parquet file, according to the ending of its name.

    CSV files are UTF-8 with a header line. Their cells stay text; `encoding` converts them by the schema.

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

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("age,plan\\n31,free\\n")
    ...     read_table(path, private=True).frame.columns.tolist()
    ['age', 'plan']
    """
    path = Path(path)
    named = origin or path.name
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{named}: expected a file ending in .csv or .parquet.")
    try:
        if not path.exists():
            raise ValueError(f"{named}: there is no such file. Check the path.")
        if not path.is_file():  # a pipe or a device may never end
            raise ValueError(f"{named}: this is a folder or a device. Give a CSV or Parquet file.")
        frame = reader(path, named)
    except OSError as error:
        raise ValueError(f"{named}: can't be read ({error.strerror or 'unreadable or not such a file'}).") from None
    if frame.columns.has_duplicates:
        # If a private file has no header, its column names are the values of a private row.
        shown = "" if private else f", {frame.columns[frame.columns.duplicated()][0]!r}"
        raise ValueError(
            f"{named}: two columns have the same name{shown}. Give every column a name of its own in the first line."
        )
    if frame.empty and not (empty and frame.shape[1]):
        raise ValueError(f"{named}: the file has no rows. Give a file with a header and at least one row.")
    return Table(frame, named, private, path.parent)


def _read_csv(path: Path, named: str) -> "pd.DataFrame":
    import pandas as pd

    # The messages of the parsers quote cells, bytes and line numbers, so they are replaced.
    try:
        # Read without a header: with one that is shorter than the rows, pandas would use the first column as an index.
        frame = pd.read_csv(
            path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
        )
    except pd.errors.EmptyDataError:
        raise ValueError(f"{named}: the file is empty. Give a file with a header and at least one row.") from None
    except pd.errors.ParserError:
        raise ValueError(
            f"{named}: not a valid CSV file: a row has more cells than the header, or a quote is not closed. "
            f"Separate cells by commas, and put text that contains a comma in quotes."
        ) from None
    except UnicodeError:
        raise ValueError(f"{named}: not UTF-8 text. Save the file as UTF-8.") from None
    except (ValueError, MemoryError):
        raise ValueError(f"{named}: can't be read as CSV. Check that it is a CSV file.") from None
    header = [str(name).strip() for name in frame.iloc[0]]
    if "" in header:
        raise ValueError(f"{named}: a column has no name. Give every column a name in the first line.")
    frame = frame.iloc[1:].reset_index(drop=True)
    frame.columns = pd.Index(header)
    return frame


def _read_parquet(path: Path, named: str) -> "pd.DataFrame":
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except OSError:
        raise
    except Exception:
        # The errors of pyarrow about malformed files have no common base class.
        raise ValueError(f"{named}: can't be read as Parquet. Check that it is a Parquet file.") from None
    frame.columns = pd.Index([str(name) for name in frame.columns])
    return frame.reset_index(drop=True)
