"""`infer`: a first schema from a public table, for a person to edit."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpadapt.tables.encoding import parse_numbers, parse_text
from dpadapt.tables.reading import Table
from dpadapt.tables.schema import MOST_WHOLE, Category, Column, Encoded, Ignored, Number, Schema

if TYPE_CHECKING:
    import pandas as pd

# More different texts than this look like names or identifiers, which a linear model can't use.
_MOST_CATEGORIES = 50
# A number with at most so many different whole values may be the label of a classification.
_MOST_CLASSES = 20
_GAPS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


def infer(
    table: Table, *, dataset: str, categories: tuple[str, ...] = (), encoders: Mapping[str, str] | None = None
) -> Schema:
    """Return a schema with the types, ranges and categories of a public table.

    Parameters
    ----------
    table : Table
        Public: its values go into the schema. A private table is refused.
    dataset : str
        Name of the private data set that the schema will describe.
    categories : tuple of str
        Columns of whole numbers that are codes rather than amounts.
    encoders : mapping of str to str, optional
        Columns of texts or image files, and the encoder of each.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"age": ["31", "54.5"], "plan": ["free", "paid"]}), "public.csv", private=False)
    >>> infer(table, dataset="patients").columns
    (Number(name='age', low=31.0, high=54.5, values=()), Category(name='plan', values=('free', 'paid')))
    """
    if table.private:
        raise ValueError(
            f"{table.origin}: a schema is made from public data only; one of private rows would leak them."
        )
    encoders = {} if encoders is None else encoders
    for option, named in (("--category", categories), ("--encode", encoders)):
        unknown = [name for name in named if name not in table.frame.columns]
        if unknown:
            raise ValueError(f"{option}: there is no column {unknown[0]!r} in {table.origin}.")
    columns = tuple(
        Encoded(str(name), encoders[str(name)])
        if str(name) in encoders
        else _infer_column(str(name), table.frame[name], table.origin, str(name) in categories)
        for name in table.frame
    )
    return Schema(dataset, columns)


def _infer_column(name: str, series: "pd.Series[Any]", origin: str, category: bool) -> Column:
    text, numbers = parse_text(series), parse_numbers(series)
    gaps = np.asarray([cell.lower() in _GAPS for cell in text])
    numeric = not np.isnan(numbers[~gaps]).any() and not gaps.all() and series.dtype != np.bool_
    # "NA" and the like are gaps among numbers; among texts only an empty cell is one, for they may be categories.
    missing = ~np.isfinite(numbers) if numeric else np.asarray([cell == "" for cell in text])
    if missing.any():
        raise ValueError(
            f"{origin}: column {name!r} has no finite value in row {int(np.argmax(missing)) + 1}. Fill or remove such "
            f"rows, or remove the column."
        )
    if not numeric:
        distinct = sorted(set(text))
        return Category(name, tuple(distinct)) if category or len(distinct) <= _MOST_CATEGORIES else Ignored(name)
    amounts = np.unique(numbers)
    whole = bool((amounts == np.round(amounts)).all() and np.abs(amounts).max() <= MOST_WHOLE)
    if category:
        return Category(name, tuple(int(v) for v in amounts) if whole else tuple(sorted(set(text))))
    low, high = float(amounts[0]), float(amounts[-1])
    # A constant column shows no range; any width will do until a person writes the true one.
    high = high if low < high else low + 1.0
    return Number(
        name, low, high, tuple(int(v) for v in amounts) if whole and 2 <= len(amounts) <= _MOST_CLASSES else ()
    )
