"""`Schema`: what is known about a table without opening the private one, kept as TOML. `inference.py` proposes one."""

import datetime
import json
import math
import reprlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from dpadapt.tables.cells import ISO

Values = tuple[str, ...] | tuple[int, ...]
Moment = datetime.date | datetime.datetime

# Above this, different whole numbers can be the same float64.
LARGEST_WHOLE = 2**53
# The parts of a date that can be columns of their own, and the values of each.
DATE_PARTS = {"month": range(1, 13), "weekday": range(1, 8)}
# The keys of each type of column in a schema file. A column may hold keys of another type: its type may have been
# changed by hand, and nothing is lost if the others stay.
_COLUMN_KEYS = {
    "number": {"type", "low", "high", "values", "fill", "missing", "decimal"},
    "category": {"type", "values", "other", "missing"},
    "date": {"type", "low", "high", "parts", "fill", "missing", "format"},
    "encoded": {"type", "encoder"},
    "ignore": {"type"},
}
_ALL_COLUMN_KEYS = frozenset[str]().union(*_COLUMN_KEYS.values())


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
    fill : float, optional
        What stands for a missing cell: the median of public rows. Default: the middle of the range.
    missing : bool, default=False
        Whether a further feature says that the cell is missing.
    decimal : {".", ","}, default="."
        The decimal mark of numbers that are texts.
    note : str
        A comment for people.

    Examples
    --------
    >>> Number("age", low=18, high=99).high
    99
    """

    name: str
    low: float
    high: float
    values: Values = ()
    fill: float | None = None
    missing: bool = False
    decimal: str = "."
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Parameters
    ----------
    name : str
        The column's header.
    values : tuple of str, or tuple of int
        The values that have a feature of their own.
    other : bool, default=False
        Whether values that are not listed have a feature in common. If not, all features of such a cell are 0.
    missing : bool, default=False
        Whether missing cells have a feature of their own. If not, they count as values that are not listed.
    note : str
        A comment for people.

    Examples
    --------
    >>> Category("plan", ("free", "paid"), other=True).values
    ('free', 'paid')
    """

    name: str
    values: Values
    other: bool = False
    missing: bool = False
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Date:
    """A column of dates, with or without a time.

    Parameters
    ----------
    name : str
        The column's header.
    low, high : date or datetime
        Its range. Dates outside are moved to the nearer end, without a message.
    parts : tuple of {"month", "weekday"}, default=()
        What has features of its own besides the date as a number.
    fill : date or datetime, optional
        What stands for a missing cell. Default: the middle of the range.
    missing : bool, default=False
        Whether a further feature says that the cell is missing.
    format : str, default="ISO8601"
        How texts are written, as for `datetime.strptime`.
    note : str
        A comment for people.

    Examples
    --------
    >>> Date("visit", datetime.date(2020, 1, 1), datetime.date(2023, 12, 31), parts=("month",)).parts
    ('month',)
    """

    name: str
    low: Moment
    high: Moment
    parts: tuple[str, ...] = ()
    fill: Moment | None = None
    missing: bool = False
    format: str = ISO
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Ignored:
    """A column that tables may contain and that is never used, such as an identifier.

    Examples
    --------
    >>> Ignored("patient_id").name
    'patient_id'
    """

    name: str
    note: str = field(default="", compare=False, repr=False)


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
    note : str
        A comment for people.

    Examples
    --------
    >>> Encoded("review", "wordllama").encoder
    'wordllama'
    """

    name: str
    encoder: str
    note: str = field(default="", compare=False, repr=False)


Column = Number | Category | Date | Encoded | Ignored
Feature = Number | Category | Date | Encoded


@dataclass(frozen=True)
class Schema:
    """The columns of a table and the name of the private data set they describe.

    A schema holds public facts alone: what anybody may know about the private table before it is opened. Rows are
    encoded by their schema and by nothing else, so that no range, category or fill value is taken from private rows.

    Parameters
    ----------
    dataset : str
        Name of the private data set, if its rows come in files of several names: they then share one ledger. Empty:
        the data set is the private file.
    columns : tuple of Number, Category, Date, Encoded or Ignored
        In the order in which features are encoded.

    Examples
    --------
    >>> import pandas as pd
    >>> public = pd.DataFrame({"age": [31, None, 54], "plan": ["free", "paid", "free"], "cost": [120, 310.5, 99]})
    >>> schema = Schema.infer(public, dataset="patients")
    >>> schema.column("plan")
    Category(name='plan', values=('free', 'paid'), other=True, missing=False)
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    dataset: str
    columns: tuple[Column, ...]

    @classmethod
    def infer(
        cls,
        public: Any,
        *,
        dataset: str = "",
        categories: tuple[str, ...] = (),
        encoders: Mapping[str, str] | None = None,
    ) -> "Schema":
        """Return a first schema, for a person to edit, from a public table.

        Parameters
        ----------
        public : Public, DataFrame of pandas or polars, pyarrow Table, or path of a file
            Never the private rows: its ranges and values are written into the schema.
        dataset : str
            Name of the private data set, as in `Schema`. Default: none is stated.
        categories : tuple of str
            Columns of whole numbers that are codes rather than amounts.
        encoders : mapping of str to str, optional
            Columns of texts or image files, and the encoder of each.
        """
        from dpadapt.tables.inference import infer
        from dpadapt.tables.reading import as_table

        table = as_table(public, origin="public", private=False)
        return infer(table, dataset=dataset, categories=tuple(categories), encoders=encoders)

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Read a schema that `write` or ``dpadapt schema`` has written."""
        return read_schema(path)

    def write(self, path: str | Path) -> None:
        """Write the schema as commented TOML, for a person to edit."""
        Path(path).write_text(to_toml(self, origin="public rows"), encoding="utf-8")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about single columns."""
        return tuple(f"{column.name}: {column.note}" for column in self.columns if column.note)

    def column(self, name: str) -> Column:
        """Return the column called `name`."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(repr(column.name) for column in self.columns[:20]) + (", ..." * (len(self.columns) > 20))
        raise ValueError(f"the label (--label): there is no column {name!r} in the schema. Its columns are {known}.")

    def ignoring(self, name: str) -> "Schema":
        """Return the schema with the column `name`, if it has one, ignored: it is then no feature.

        Examples
        --------
        >>> Schema("d", (Number("age", 0, 99), Number("weight", 0, 9))).ignoring("weight").columns[1]
        Ignored(name='weight')
        """
        return replace(self, columns=tuple(Ignored(c.name) if c.name == name else c for c in self.columns))

    def features(self, label: str | None) -> tuple[Feature, ...]:
        """Return the columns that a model may use: all except the label and ignored columns."""
        return tuple(c for c in self.columns if not isinstance(c, Ignored) and c.name != label)

    def bounds(self, label: str) -> tuple[float, float]:
        """Return the range of the label of a regression."""
        column = self.column(label)
        if not isinstance(column, Number):
            raise ValueError(
                f"regression (--task regression): the type of the label {label!r} in the schema is not number. Use "
                f'classification, or give the column type = "number" with low and high in the schema.'
            )
        return column.low, column.high

    def classes(self, label: str) -> Values:
        """Return the classes of the label of a classification."""
        column = self.column(label)
        if not isinstance(column, Number | Category) or not column.values:
            raise ValueError(
                f"classification (--task classification): the schema lists no values for the label {label!r}. Use "
                f"regression, or list every class in the schema, e.g. values = [0, 1]."
            )
        if len(column.values) < 2:
            raise ValueError(
                f"classification (--task classification): the schema lists one value for the label {label!r}. List "
                f"every class there."
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
        dataset = fields.get("dataset", "")
        if not isinstance(dataset, str):
            _refuse(origin, 'dataset must name the private data set, such as dataset = "patients". Or leave it out.')
        columns = fields.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            _refuse(origin, "there are no columns. Make a schema with dpadapt schema public.csv -o schema.toml.")
        return cls(dataset.strip(), tuple(_parse(str(name), column, origin) for name, column in columns.items()))


def mixed_classes(values: Sequence[Any]) -> str:
    """Return what is wrong with classes of which some are numbers and some words; empty if they are alike."""
    numbers = [value for value in values if isinstance(value, str) and _is_number(value)]
    words = [value for value in values if isinstance(value, str) and not any(sign.isdigit() for sign in value)]
    if not numbers or not words:
        return ""
    return (
        f"has classes of mixed types in the schema: {numbers[0][:30]!r} and {words[0][:30]!r}. Write all of them as "
        f"numbers or all as words, in both tables, and leave the cell empty where the class is not known; then make "
        f"the schema again."
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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


_HEAD = """\
# A schema for dpadapt, made from {origin}.
#
# It states what is known about the private table before it is opened. Everything here counts as public, so write
# only what anybody may know: edit it by what you know about the subject, never by looking at the private rows.
# It can be used as it is.
#
#   type = "number"     low and high are the range. Values outside it are moved to the nearer end, without a message: it
#                       would reveal something about private rows. The ranges below are those of the public rows and a
#                       margin: widen them where private values may lie outside, narrow them where only a few extreme
#                       values would. A missing cell counts as fill; missing = true adds a feature that says so.
#   type = "category"   values have a feature each. other = true: values that are not listed have one in common.
#                       missing = true: missing cells have one.
#   type = "date"       a number of days in the range low to high, and the parts: "month", "weekday".
#   type = "encoded"    texts, or names of image files, that the frozen public encoder named below turns into features.
#   type = "ignore"     a file may contain the column; it is never used.
#
# values of a number are its classes if it is the label of a classification; otherwise they are not used.

# The name of the private data set. What is spent on a private file is kept beside it, under its name. If the same data
# set comes in files of several names, such as one a month, name it here: they then share one ledger.
{dataset}
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
    named = f"dataset = {_text(schema.dataset)}" if schema.dataset else '# dataset = "patients"'
    parts = [_HEAD.format(origin=_comment(origin), dataset=named)]
    for column in schema.columns:
        note = f"# {_comment(column.note)}\n" if column.note else ""
        parts.append(f"\n{note}[columns.{_text(column.name)}]\n{_body(column)}")
    return "".join(parts)


def _comment(text: str) -> str:
    """Return a text for a comment, which must not hold control characters; a file name may."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _body(column: Column) -> str:
    """Return the lines of a column. TOML has numbers, dates, texts and lists of its own."""
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in _fields(column).items())


def toml_value(value: Any) -> str:
    """Return a text, number, date, flag or list as TOML has it; a text in this form is also a valid key."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime.date():
            return value.isoformat()
    return f"[{', '.join(toml_value(item) for item in value)}]"


def _text(value: str) -> str:
    """Return a TOML basic string. JSON's escapes are valid there; DEL must be escaped in addition."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _fields(column: Column) -> dict[str, Any]:
    """Return the keys of a column, without those that have their default."""
    match column:
        case Number():
            fields: dict[str, Any] = {"type": "number", "low": column.low, "high": column.high}
            optional: dict[str, Any] = {
                "values": column.values,
                "decimal": column.decimal if column.decimal != "." else "",
            }
        case Category():
            fields = {"type": "category", "values": column.values}
            optional = {"other": column.other}
        case Date():
            fields = {"type": "date", "low": column.low, "high": column.high}
            optional = {"parts": column.parts, "format": column.format if column.format != ISO else ""}
        case Encoded():
            return {"type": "encoded", "encoder": column.encoder}
        case Ignored():
            return {"type": "ignore"}
    fields |= {key: value for key, value in optional.items() if value}
    if isinstance(column, Number | Date) and column.fill is not None:
        fields["fill"] = column.fill
    return {**fields, "missing": True} if column.missing else fields


def _describe(column: Column) -> dict[str, Any]:
    """Return the keys of a column as JSON has them."""
    return {
        key: list(value) if isinstance(value, tuple) else value.isoformat() if isinstance(value, Moment) else value
        for key, value in _fields(column).items()
    }


def _parse(name: str, fields: Any, origin: str) -> Column:
    where = f"{origin}, column {name!r}"
    if not isinstance(fields, Mapping):
        _refuse(where, f'expected a table. Write [columns.{name}] and below it type = "number" or "category".')
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _COLUMN_KEYS:
        kinds = '"number", "category", "date", "encoded" or "ignore"'
        _refuse(where, f"type must be {kinds}, got {reprlib.repr(kind)}.")
    unknown = sorted(set(fields) - _ALL_COLUMN_KEYS)
    if unknown:
        known = ", ".join(sorted(_COLUMN_KEYS[kind]))
        _refuse(where, f"unknown key {unknown[0]!r} for type = {kind!r}. Its keys are {known}.")
    match kind:
        case "ignore":
            return Ignored(name)
        case "encoded":
            encoder = fields.get("encoder")
            if not isinstance(encoder, str):
                _refuse(
                    where,
                    f'encoder must be the name of an encoder, e.g. encoder = "wordllama", got {reprlib.repr(encoder)}.',
                )
            return Encoded(name, encoder)
        case "category":
            values = _parse_values(fields.get("values"), where)
            other, missing = (_parse_flag(fields, key, where) for key in ("other", "missing"))
            return Category(name, values, other, missing)
        case "date":
            return _parse_date(name, fields, where)
    return _parse_number(name, fields, where)


def _parse_number(name: str, fields: Mapping[str, Any], where: str) -> Number:
    low, high = (_parse_end(fields.get(end), end, where) for end in ("low", "high"))
    if not low < high:
        _refuse(where, f"low must be below high, got low = {low:g}, high = {high:g}.")
    values: Values = ()
    if "values" in fields:
        values = _parse_values(fields["values"], where)
        if isinstance(values[0], str):
            _refuse(where, 'values of a number must be whole numbers. For text, use type = "category".')
    fill = _parse_end(fields["fill"], "fill", where) if "fill" in fields else None
    mark = fields.get("decimal", ".")
    if mark not in (".", ","):
        _refuse(where, f'decimal must be "." or ",", got {reprlib.repr(mark)}.')
    return Number(name, low, high, values, fill, _parse_flag(fields, "missing", where), mark)


def _parse_date(name: str, fields: Mapping[str, Any], where: str) -> Date:
    low, high = (_parse_moment(fields.get(end), end, where) for end in ("low", "high"))
    if not days_of(low) < days_of(high):
        _refuse(where, f"low must be before high, got low = {low.isoformat()}, high = {high.isoformat()}.")
    fill = _parse_moment(fields["fill"], "fill", where) if "fill" in fields else None
    parts = fields.get("parts", [])
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part in DATE_PARTS for part in parts):
        _refuse(where, f'parts must list some of "month" and "weekday", got {reprlib.repr(parts)}.')
    form = fields.get("format", ISO)
    if not isinstance(form, str) or (form != ISO and "%" not in form):
        _refuse(where, f'format must be such as "%d.%m.%Y", got {reprlib.repr(form)}.')
    return Date(name, low, high, tuple(dict.fromkeys(parts)), fill, _parse_flag(fields, "missing", where), form)


def _parse_moment(value: Any, key: str, where: str) -> Moment:
    if isinstance(value, str):  # as JSON has it
        try:
            value = datetime.date.fromisoformat(value) if len(value) == 10 else datetime.datetime.fromisoformat(value)
        except ValueError:
            value = repr(value)
    if not isinstance(value, Moment):
        _refuse(where, f"{key} must be a date such as 2024-05-31, without quotes, got {reprlib.repr(value)}.")
    return value


def days_of(moment: Moment) -> float:
    """Return a date or a time as days since 1970-01-01."""
    if not isinstance(moment, datetime.datetime):
        return float(moment.toordinal() - datetime.date(1970, 1, 1).toordinal())
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)


def _parse_flag(fields: Mapping[str, Any], key: str, where: str) -> bool:
    value = fields.get(key, False)
    if not isinstance(value, bool):
        _refuse(where, f"{key} must be true or false, got {reprlib.repr(value)}.")
    return value


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
    if any(isinstance(value, int) and abs(value) > LARGEST_WHOLE for value in parsed):
        _refuse(where, "whole numbers in values must not be beyond 2^53. Write such codes as text, in quotes.")
    if len(set(parsed)) < len(parsed):
        _refuse(where, "values lists a value twice. Remove the second one.")
    return parsed


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where}: {what}")
