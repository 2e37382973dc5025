"""`to_toml`: a schema as text that a person can read and edit."""

import json

from dpadapt.tables.schema import Category, Column, Encoded, Ignored, Number, Schema

_HEAD = """\
# A schema for dpadapt, made from {origin}.
#
# It states what is known about the private table before it is opened. Everything here counts as public, so write
# only what you would tell anybody: edit it by what you know about the subject, never by looking at the private rows.
#
#   type = "number"     low and high are the range. Values outside it are moved to the nearer end, silently (a message
#                       would tell about private rows). The ranges below are those of the public rows: widen them where
#                       the private rows may go further, narrow them where only a few extreme values lie outside.
#   type = "category"   values lists every value the column can have; any other value is refused.
#   type = "encoded"    texts, or names of image files, that the frozen public encoder named below turns into features.
#   type = "ignore"     the column may stand in a file and is never used.
#
# values beside a number are its classes if it is the label of a classification; otherwise they are not used.

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
    parts = [_HEAD.format(origin=" ".join(origin.split()), dataset=_text(schema.dataset))]
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
    """Return a TOML basic string: JSON's escapes are among TOML's, save for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
