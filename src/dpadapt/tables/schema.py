"""`Schema`: what is known about a table without opening the private file; inferred from public rows, kept as TOML."""

import json
import reprlib
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpadapt.tables.reading import Table

if TYPE_CHECKING:
    import pandas as pd

Values = tuple[str, ...] | tuple[int, ...]

# Above this, different whole numbers can be the same float64.
_LARGEST_WHOLE = 2**53
# Number of different texts in a column above which `infer` ignores it: it is probably a name or an identifier, which a
# linear model can't use. Chosen by hand.
_MOST_INFERRED_CATEGORIES = 50
# Number of different whole numbers in a column up to which `infer` lists them, in case the column is the label of a
# classification. Chosen by hand.
_MOST_INFERRED_CLASSES = 20
# Cells that stand for a missing number.
_MISSING_NUMBERS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
# The keys of each type of column in a schema file.
_COLUMN_KEYS = {
    "number": {"type", "low", "high", "values"},
    "category": {"type", "values"},
    "encoded": {"type", "encoder"},
    "ignore": {"type"},
}


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Parameters
    ----------
    name : str
        The column's header.
    low, high : float
        Its range. Values outside are clipped, without a message: a message would reveal something about private rows.
    values : tuple of int, default=()
        The whole numbers that occur; needed only if the column is the label of a classification.

    Examples
    --------
    >>> Number("age", low=18, high=99).high
    99
    """

    name: str
    low: float
    high: float
    values: Values = ()


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Parameters
    ----------
    name : str
        The column's header.
    values : tuple of str, or tuple of int
        All values that can occur. Any other value in a file is refused.

    Examples
    --------
    >>> Category("plan", ("free", "paid")).values
    ('free', 'paid')
    """

    name: str
    values: Values


@dataclass(frozen=True)
class Ignored:
    """A column that files may contain and that is never used, such as an identifier.

    Examples
    --------
    >>> Ignored("patient_id").name
    'patient_id'
    """

    name: str


@dataclass(frozen=True)
class Encoded:
    """A column of texts, or of names of image files, that a public encoder turns into features.

    Parameters
    ----------
    name : str
        The column's header.
    encoder : str
        Name in `dpadapt.representation.encoders`: "minilm" or "wordllama" for texts, "efficientnet-lite0" for image
        files, whose names are relative to the table's folder.

    Examples
    --------
    >>> Encoded("review", "wordllama").encoder
    'wordllama'
    """

    name: str
    encoder: str


Column = Number | Category | Encoded | Ignored


@dataclass(frozen=True)
class Schema:
    """The columns of a table and the name of the private data set they describe.

    Parameters
    ----------
    dataset : str
        Name of the private data set. A ledger belongs to one data set.
    columns : tuple of Number, Category, Encoded or Ignored
        In the order in which features are encoded.

    Examples
    --------
    >>> schema = Schema("patients", (Number("age", 18, 99), Category("plan", ("free", "paid")), Number("cost", 0, 500)))
    >>> schema.bounds("cost")
    (0, 500)
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    dataset: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """Return the column called `name`."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(repr(column.name) for column in self.columns)
        raise ValueError(f"--label: there is no column {name!r} in the schema. Its columns are {known}.")

    def features(self, label: str | None) -> tuple[Number | Category | Encoded, ...]:
        """Return the columns that a model may use: all except the label and ignored columns."""
        return tuple(c for c in self.columns if not isinstance(c, Ignored) and c.name != label)

    def bounds(self, label: str) -> tuple[float, float]:
        """Return the range of the label of a regression."""
        column = self.column(label)
        if not isinstance(column, Number):
            raise ValueError(
                f"--task regression: the type of the label {label!r} in the schema is not number. Use "
                f'--task classification, or give the column type = "number" with low and high in the schema.'
            )
        return column.low, column.high

    def classes(self, label: str) -> Values:
        """Return the classes of the label of a classification."""
        column = self.column(label)
        if isinstance(column, Ignored | Encoded) or not column.values:
            raise ValueError(
                f"--task classification: the schema lists no values for the label {label!r}. Use --task regression, "
                f"or list every class in the schema, e.g. values = [0, 1]."
            )
        if len(column.values) < 2:
            raise ValueError(
                f"--task classification: the schema lists one value for the label {label!r}. List every class there."
            )
        return column.values

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; `from_dict` reads it back."""
        return {"dataset": self.dataset, "columns": {column.name: _describe(column) for column in self.columns}}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, origin: str = "the schema") -> "Schema":
        """Return the schema that `fields` describe; errors begin with `origin`."""
        if not isinstance(fields, Mapping):
            _refuse(origin, "expected a name and columns. Make a schema with dpadapt schema public.csv.")
        unknown = sorted(set(fields) - {"dataset", "columns"})
        if unknown:
            _refuse(origin, f'unknown key {unknown[0]!r}. Use dataset = "name" and one [columns.NAME] per column.')
        dataset = fields.get("dataset")
        if not isinstance(dataset, str) or not dataset.strip():
            _refuse(origin, 'dataset must name the private data set. Add a line such as dataset = "patients".')
        columns = fields.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            _refuse(origin, "there are no columns. Make a schema with dpadapt schema public.csv -o schema.toml.")
        return cls(dataset.strip(), tuple(_parse(str(name), column, origin) for name, column in columns.items()))


def read_schema(path: str | Path, *, origin: str | None = None) -> Schema:
    """Read a schema from a TOML file.

    Parameters
    ----------
    path : str or Path
    origin : str, optional
        Name of the file in errors. Default: the file name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "schema.toml")
    ...     _ = path.write_text('dataset = "patients"\\n[columns.age]\\ntype = "number"\\nlow = 18\\nhigh = 99\\n')
    ...     read_schema(path).dataset
    'patients'
    """
    path = Path(path)
    named = origin or path.name
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise ValueError(f"{named}: this is a folder or a device. Give the schema made by dpadapt schema.")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"{named}: there is no such file. Make it with dpadapt schema public.csv -o schema.toml."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{named}: not a UTF-8 text file. Give the schema made by dpadapt schema.") from None
    except OSError as error:
        raise ValueError(f"{named}: can't be read ({error.strerror}).") from None
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{named}: not valid TOML: {error}. Correct that place, or make a new schema.") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets in thousands of brackets
        raise ValueError(f"{named}: not valid TOML: too long or nested too deeply. Make a new schema.") from None
    return Schema.from_dict(fields, origin=named)


def infer(
    table: Table,
    *,
    dataset: str,
    categories: tuple[str, ...] = (),
    encoders: Mapping[str, str] | None = None,
    done: Callable[[], None] | None = None,
) -> Schema:
    """Return a first schema, for a person to edit, with the types, ranges and categories of a public table.

    Parameters
    ----------
    table : Table
        Public: its values are written into the schema. A private table is refused.
    dataset : str
        Name of the private data set that the schema will describe.
    categories : tuple of str
        Columns of whole numbers that are codes rather than amounts.
    encoders : mapping of str to str, optional
        Columns of texts or image files, and the encoder of each.
    done : callable, optional
        Called after each column.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"age": ["31", "54.5"], "plan": ["free", "paid"]}), "public.csv", private=False)
    >>> infer(table, dataset="patients").columns
    (Number(name='age', low=31.0, high=54.5, values=()), Category(name='plan', values=('free', 'paid')))
    """
    if table.private:
        raise ValueError(
            f"{table.origin}: a schema is made from public data only; one made from private rows would leak them."
        )
    encoders = {} if encoders is None else encoders
    for option, named in (("--category", categories), ("--encode", encoders)):
        unknown = [name for name in named if name not in table.frame.columns]
        if unknown:
            raise ValueError(f"{option}: there is no column {unknown[0]!r} in {table.origin}.")
    columns: list[Column] = []
    for name, series in table.frame.items():
        if str(name) in encoders:
            columns.append(Encoded(str(name), encoders[str(name)]))
        else:
            columns.append(_infer_column(str(name), series, table.origin, str(name) in categories))
        if done is not None:
            done()
    return Schema(dataset, tuple(columns))


def _infer_column(name: str, series: "pd.Series[Any]", origin: str, category: bool) -> Column:
    text, numbers = parse_text(series), parse_numbers(series)
    gaps = np.asarray([cell.lower() in _MISSING_NUMBERS for cell in text])
    numeric = not np.isnan(numbers[~gaps]).any() and not gaps.all() and series.dtype != np.bool_
    # Among numbers "NA" and the like are missing values. Among texts only an empty cell is: "NA" may be a category.
    missing = ~np.isfinite(numbers) if numeric else np.asarray([cell == "" for cell in text])
    if missing.any():
        raise ValueError(
            f"{origin}: column {name!r} has no finite value in row {int(np.argmax(missing)) + 1}. Fill or remove such "
            f"rows, or remove the column."
        )
    if not numeric:
        distinct = sorted(set(text))
        few = category or len(distinct) <= _MOST_INFERRED_CATEGORIES
        return Category(name, tuple(distinct)) if few else Ignored(name)
    amounts = np.unique(numbers)
    whole = bool((amounts == np.round(amounts)).all() and np.abs(amounts).max() <= _LARGEST_WHOLE)
    if category:
        return Category(name, tuple(int(v) for v in amounts) if whole else tuple(sorted(set(text))))
    low, high = float(amounts[0]), float(amounts[-1])
    # A constant column has no range. Any width will do until a person writes the true range.
    high = high if low < high else low + 1.0
    possible_label = whole and 2 <= len(amounts) <= _MOST_INFERRED_CLASSES
    return Number(name, low, high, tuple(int(v) for v in amounts) if possible_label else ())


_HEAD = """\
# A schema for dpadapt, made from {origin}.
#
# It states what is known about the private table before it is opened. Everything here counts as public, so write
# only what anybody may know: edit it by what you know about the subject, never by looking at the private rows.
#
#   type = "number"     low and high are the range. Values outside it are moved to the nearer end, without a message: it
#                       would reveal something about private rows. The ranges below are those of the public rows: widen
#                       them where private values may lie outside, narrow them where only a few extreme values would.
#   type = "category"   values lists every value the column can have; any other value is refused.
#   type = "encoded"    texts, or names of image files, that the frozen public encoder named below turns into features.
#   type = "ignore"     a file may contain the column; it is never used.
#
# values of a number are its classes if it is the label of a classification; otherwise they are not used.

# The private data set that this schema describes. A ledger belongs to one data set: choose a name of its own.
dataset = {dataset}
"""


def to_toml(schema: Schema, *, origin: str) -> str:
    """Return `schema` as commented TOML; `read_schema` reads it back.

    Parameters
    ----------
    schema : Schema
    origin : str
        Where it came from, for the first line.

    Examples
    --------
    >>> print(to_toml(Schema("patients", (Number("age", 18, 99),)), origin="public.csv")[-51:])
    [columns."age"]
    type = "number"
    low = 18
    high = 99
    <BLANKLINE>
    """
    # A comment must not hold control characters, and a file name may.
    named = "".join(c if c.isprintable() else " " for c in origin)
    parts = [_HEAD.format(origin=" ".join(named.split()), dataset=_text(schema.dataset))]
    parts.extend(f"\n[columns.{_text(column.name)}]\n{_body(column)}" for column in schema.columns)
    return "".join(parts)


def _body(column: Column) -> str:
    match column:
        case Number(low=low, high=high, values=values):
            classes = f"values = [{', '.join(map(str, values))}]\n" if values else ""
            return f'type = "number"\nlow = {_number(low)}\nhigh = {_number(high)}\n{classes}'
        case Category(values=values):
            listed = ", ".join(_text(value) if isinstance(value, str) else str(value) for value in values)
            return f'type = "category"\nvalues = [{listed}]\n'
        case Encoded(encoder=encoder):
            return f'type = "encoded"\nencoder = {_text(encoder)}\n'
        case Ignored():
            return 'type = "ignore"\n'


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _text(value: str) -> str:
    """Return a TOML basic string. JSON's escapes are valid there; DEL must be escaped in addition."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _describe(column: Column) -> dict[str, Any]:
    match column:
        case Number(low=low, high=high, values=values):
            return {"type": "number", "low": low, "high": high, **({"values": list(values)} if values else {})}
        case Category(values=values):
            return {"type": "category", "values": list(values)}
        case Encoded(encoder=encoder):
            return {"type": "encoded", "encoder": encoder}
        case Ignored():
            return {"type": "ignore"}


def _parse(name: str, fields: Any, origin: str) -> Column:
    where = f"{origin}, column {name!r}"
    if not isinstance(fields, Mapping):
        _refuse(where, f'expected a table. Write [columns.{name}] and below it type = "number" or "category".')
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _COLUMN_KEYS:
        _refuse(where, f'type must be "number", "category", "encoded" or "ignore", got {reprlib.repr(kind)}.')
    unknown = sorted(set(fields) - _COLUMN_KEYS[kind])
    if unknown:
        known = ", ".join(sorted(_COLUMN_KEYS[kind]))
        _refuse(where, f"unknown key {unknown[0]!r} for type = {kind!r}. Its keys are {known}.")
    if kind == "ignore":
        return Ignored(name)
    if kind == "encoded":
        encoder = fields.get("encoder")
        if not isinstance(encoder, str):
            _refuse(
                where,
                f'encoder must be the name of an encoder, e.g. encoder = "wordllama", got {reprlib.repr(encoder)}.',
            )
        return Encoded(name, encoder)
    if kind == "category":
        return Category(name, _parse_values(fields.get("values"), where))
    low, high = (_parse_end(fields.get(end), end, where) for end in ("low", "high"))
    if not low < high:
        _refuse(where, f"low must be below high, got low = {low:g}, high = {high:g}.")
    if "values" not in fields:
        return Number(name, low, high)
    values = _parse_values(fields["values"], where)
    if isinstance(values[0], str):
        _refuse(where, 'values of a number must be whole numbers. For text, use type = "category".')
    return Number(name, low, high, values)


def _parse_end(value: Any, end: str, where: str) -> float:
    # Compared, not converted: a whole number in TOML may be too long for a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        _refuse(
            where,
            f"{end} must be a finite number, got {reprlib.repr(value)}. Choose it from what you know, not from the "
            f"data.",
        )
    return float(value)


def _parse_values(values: Any, where: str) -> Values:
    if not isinstance(values, list | tuple) or not values:
        _refuse(where, 'values must list every value the column can have, e.g. values = ["no", "yes"].')
    if all(isinstance(value, str) and value.strip() for value in values):
        parsed: Values = tuple(value.strip() for value in values)
    elif all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        parsed = tuple(values)
    else:
        _refuse(where, "values must be all text or all whole numbers, none of them empty.")
    if any(isinstance(value, int) and abs(value) > _LARGEST_WHOLE for value in parsed):
        _refuse(where, "whole numbers in values must not be beyond 2^53. Write such codes as text, in quotes.")
    if len(set(parsed)) < len(parsed):
        _refuse(where, "values lists a value twice. Remove the second one.")
    return parsed


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where}: {what}")


def parse_numbers(series: "pd.Series[Any]") -> NDArray[np.float64]:
    """Return the cells as floats; a cell that is not a number becomes NaN."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series.dtype) or pd.api.types.is_timedelta64_dtype(series.dtype):
        return np.full(len(series), np.nan)
    if series.dtype == "str":
        # As an array, which is quicker than as a series: that counts for tables of many columns.
        return np.asarray(pd.to_numeric(series.to_numpy(dtype=object), errors="coerce"), dtype=np.float64)
    plain = series.astype(object) if isinstance(series.dtype, pd.CategoricalDtype) else series
    return np.asarray(pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def parse_text(series: "pd.Series[Any]") -> list[str]:
    """Return the cells as text: whole numbers without a decimal point, missing cells as empty text."""
    import pandas as pd

    cells = series.to_numpy(dtype=object)
    return [
        "" if missing else str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()
        for cell, missing in zip(cells, pd.isna(cells), strict=True)
    ]
