"""`infer`: a first schema from public rows, for a person to edit or to use as it is.

Every column gets a type, whatever it holds: nothing is refused. What a person should know about a column is its note.
"""

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.checks import is_missing_text
from dpadapt.tables.cells import (
    ISO,
    MOST_WORDS_FOR_MISSING,
    distinct_texts,
    has_leading_zeros,
    is_limit,
    may_be_unusual,
    parse_days,
    parse_numbers,
    read_number,
)
from dpadapt.tables.encoding import date_part
from dpadapt.tables.reading import Table
from dpadapt.tables.schema import (
    DATE_PARTS,
    LARGEST_WHOLE,
    Category,
    Column,
    Date,
    Encoded,
    Ignored,
    Moment,
    Number,
    Schema,
)

if TYPE_CHECKING:
    import pandas as pd

# Most values of a category that are listed, each a feature; the others have one feature in common. More features cost
# budget, and rare values teach little. Chosen by hand.
_MOST_INFERRED_CATEGORIES = 50
# Values up to which all of a category's values are listed, however rare. Of more values, those are listed that this
# many public rows have, or this share of the public rows: rarer ones are noise to a model. On hotel bookings, with 83
# to 147 values in three columns, 30 rows lower the error by 1% (within the spread of three fits); 10 and 20 do not.
_FEW_CATEGORIES = 20
_LEAST_ROWS_OF_A_VALUE, _LEAST_SHARE_OF_A_VALUE = 30, 0.01
# Fewest rows per different text of a category with more values; with fewer, the column tells persons or things apart.
# Chosen by hand.
_LEAST_ROWS_PER_CATEGORY = 5.0
# Least share of the rows that the listed values of a category with more values must cover; below, the column is
# probably a name or free text, and is ignored. Chosen by hand.
_LEAST_LISTED_SHARE = 0.5
# Number of different whole numbers in a column up to which they are listed, in case the column is the label of a
# classification. Chosen by hand.
_MOST_INFERRED_CLASSES = 20
# Least share of the cells of a column, without missing ones, that must be numbers (dates) for its type to be number
# (date); the others then count as missing. Chosen by hand.
_LEAST_TYPED_SHARE = 0.95
# Rows below which distinct cells say nothing about identifiers. Chosen by hand.
_LEAST_ROWS_OF_IDENTIFIERS = 20
# Added to the range of a number on both sides, as a share of its width: private values may lie outside the public
# range, and clipping loses them. Measured on the three tables of `python -m benchmarks tables`: 0.25 instead of 0
# lowers the error by up to 0.5%, 0.5 and 1 no further; a wide range costs methods without public rows accuracy.
_RANGE_MARGIN = 0.25
# Least share of the months (weekdays) that must occur in public rows for the part to have features. On hotel bookings,
# of which public rows show 10 months, months lower the error by 3%. Chosen by hand.
_LEAST_SHARE_OF_DATE_PART = 0.5
# How texts with dates are written, tried in this order after ISO 8601; the first that reads most cells is taken.
_DATE_FORMATS = tuple(
    day + time
    for day in (
        "%d.%m.%Y|%m/%d/%Y|%d/%m/%Y|%Y/%m/%d|%d-%m-%Y|%m-%d-%Y|%d %b %Y|%d-%b-%Y|%b %d, %Y|%d %B %Y|%B %d, %Y|"
        "%d.%m.%y|%m/%d/%y"
    ).split("|")
    for time in ("", " %H:%M", " %H:%M:%S")
)
# Cells that are tried to find the format of dates; all cells are read with the format that was found.
_CELLS_TO_TRY = 200
# Names of identifiers and of codes, as whole words of a name such as patient_id or occCode.
_IDENTIFIER_WORDS = frozenset({"id", "ids", "idcode", "uid", "uuid", "guid", "key", "ssn", "pid", "rowid", "index"})
_CODE_WORDS = frozenset({"code", "codes", "cd", "type", "category", "kind", "class"})
_TIME_WORDS = frozenset({"year", "yr", "month", "week", "day", "date", "time", "age", "quarter", "period"})

# Signs in numbers that are not plain, and what to do if one is read wrongly.
_FORMS = {",": ': if it is a decimal comma, write decimal = ","', "%": "", "€": "", "$": "", "£": "", "¥": "", "'": ""}

_PERSON_NOTE = "looks like an identifier; could be the person column"


def infer(
    table: Table,
    *,
    dataset: str = "",
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
        Name of the private data set, as in `Schema`.
    categories : tuple of str
        Columns of whole numbers that are codes rather than amounts.
    encoders : mapping of str to str, optional
        Columns of texts or image files, and the encoder of each.
    done : callable, optional
        Called after each column.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": ["31", "?", "54.5"], "plan": ["free", "paid", "free"]})
    >>> for column in infer(Table(frame, "public.csv", private=False), dataset="patients").columns:
    ...     print(column)
    Number(name='age', low=31.0, high=54.5, values=(), fill=42.75, missing=True, decimal='.')
    Category(name='plan', values=('free', 'paid'), other=True, missing=False)
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
            columns.append(infer_column(str(name), series, category=str(name) in categories))
        if done is not None:
            done()
    if not columns:
        raise ValueError(f"{table.origin}: there is no column with a name. Give every column a name in the first line.")
    return Schema(dataset, tuple(columns))


def infer_column(name: str, series: "pd.Series[Any]", *, category: bool = False) -> Column:
    """Return a column of a schema for a public column; with `category`, numbers are taken for codes."""
    import pandas as pd

    # True and False are categories, not amounts.
    amounts = pd.api.types.infer_dtype(series) != "boolean"
    numbers, mark = _best_numbers(series)
    n_numbers = int(np.isfinite(numbers).sum())
    whole = n_numbers > 0 and bool((numbers[np.isfinite(numbers)] % 1 == 0).all())
    if whole and amounts and has_leading_zeros(series):
        return _infer_codes(name, _counted_texts(series), len(series), category=category)
    if n_numbers == len(numbers) > 0 and amounts and not category:
        return _infer_number(name, numbers, mark, {}, category=False, note=_forms(series, mark))
    seen = _counted_texts(series)
    n_filled = sum(seen.values())
    any_missing = n_filled < len(series)
    if n_filled == 0:
        return Ignored(name, "no public row has a value")
    texts = list(seen)
    n_words = int(np.isnan(parse_numbers(pd.Series(texts, dtype=object), mark)).sum())
    numeric = amounts and n_numbers > 0
    if numeric and n_numbers < n_filled:
        # A few texts, or always the same, among many amounts stand for missing cells; among few codes they are codes.
        limits = [text for text in texts if is_limit(text)]
        n_read = n_numbers + sum(seen[text] for text in limits)
        few = n_read >= _LEAST_TYPED_SHARE * n_filled or n_words - len(limits) <= MOST_WORDS_FOR_MISSING
        numeric = few and len(np.unique(numbers[np.isfinite(numbers)])) > _MOST_INFERRED_CLASSES
    if numeric:
        return _infer_number(name, numbers, mark, seen, category=category, note=_forms(series, mark))
    days, form = _best_days(series, n_filled)
    if days is not None and not category:
        return _infer_date(name, days, form)
    return _infer_category(name, seen, any_missing=any_missing, category=category)


def _counted_texts(series: "pd.Series[Any]") -> dict[str, int]:
    """Return how often each text occurs, without those that stand for missing cells."""
    codes, texts = distinct_texts(series)
    seen: dict[str, int] = {}
    for text, count in zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True):
        if not is_missing_text(text):
            seen[text] = seen.get(text, 0) + count
    return seen


def _best_numbers(series: "pd.Series[Any]") -> tuple[NDArray[np.float64], str]:
    """Return the cells as numbers, with the decimal mark that makes numbers of more of them."""
    numbers = parse_numbers(series)
    if np.isfinite(numbers).all() or str(series.dtype) not in ("str", "object"):
        return numbers, "."
    with_commas = parse_numbers(series, ",")
    # A comma that separates thousands is no decimal mark.
    return (with_commas, ",") if np.isfinite(with_commas).sum() > np.isfinite(numbers).sum() else (numbers, ".")


def _forms(series: "pd.Series[Any]", mark: str) -> str:
    """Return how cells of a public column of numbers are read that are not plain numbers; empty if all are plain."""
    return forms_in_words(list(_counted_texts(series)), mark) if may_be_unusual(series) else ""


def forms_in_words(texts: Sequence[str], mark: str = ".") -> str:
    """Return how public texts in a column of numbers are read that are not plain numbers; empty if all are plain."""
    plain = "+-.0123456789eE" if mark == "." else "+-.,0123456789eE"
    odd = [text for text in texts if text.strip(plain)]
    said = []
    limit = next((text for text in odd if is_limit(text)), None)
    if limit is not None:
        said.append(
            f"{limit[:30]!r} is read as missing, because its number is not known: write a number in its place to use "
            f"one"
        )
    for sign, fix in _FORMS.items():
        shown = next((text for text in texts if sign in text and sign not in plain and not is_limit(text)), None)
        number = math.nan if shown is None else read_number(shown, mark)
        if shown is not None and math.isfinite(number):
            said.append(f"{shown[:30]!r} is read as {number:.12g}{fix}")
    words = [text for text in odd if not is_limit(text) and math.isnan(read_number(text, mark))]
    if words:
        said.append(f"{words[0][:30]!r} is no number and is read as missing")
    return "; ".join(said)


def _infer_codes(name: str, seen: Mapping[str, int], n_rows: int, *, category: bool) -> Column:
    """Return a column of digits with leading zeros: categories, or ignored if nearly every row has its own."""
    column = _infer_category(name, seen, any_missing=sum(seen.values()) < n_rows, category=category)
    return replace(column, note="; ".join(filter(None, ("leading zeros: codes, not numbers", column.note))))


def _infer_number(
    name: str, numbers: NDArray[np.float64], mark: str, seen: Mapping[str, int], *, category: bool, note: str = ""
) -> Column:
    finite = numbers[np.isfinite(numbers)]
    amounts = np.unique(finite)
    whole = bool((amounts == np.round(amounts)).all() and np.abs(amounts).max() <= LARGEST_WHOLE)
    missing, n_rows = len(finite) < len(numbers), len(numbers)
    words = _words(name)
    coded = whole and bool(words & _CODE_WORDS) and 2 < len(amounts) <= _MOST_INFERRED_CATEGORIES
    if category or coded:
        why = "" if category else "whole numbers taken for codes, by the column's name"
        values = tuple(int(v) for v in amounts) if whole else tuple(sorted(seen))
        if len(values) <= 2 * _MOST_INFERRED_CATEGORIES:
            return Category(name, values, other=True, missing=missing, note=why)
        return _infer_category(name, seen, any_missing=missing, category=True)
    if whole and n_rows >= _LEAST_ROWS_OF_IDENTIFIERS and not words & _TIME_WORDS:
        # Numbered one by one, or called an identifier; amounts are seldom either.
        unique = len(amounts) == n_rows
        numbered = unique and amounts[-1] - amounts[0] < 3 * n_rows
        called = bool(words & _IDENTIFIER_WORDS) and len(amounts) > _MOST_INFERRED_CATEGORIES
        if numbered or called:
            return Ignored(name, _PERSON_NOTE)
    low, high = float(amounts[0]), float(amounts[-1])
    if low == high:
        # A constant column has no range. Any width will do until a person writes the true range.
        constant = "the same number in all public rows: write the true range"
        high, note = low + 1.0, "; ".join(filter(None, (constant, note)))
    elif len(amounts) > 2:  # two values are a yes and a no
        low, high = _with_margin(low, high)
    possible_label = whole and 2 <= len(amounts) <= _MOST_INFERRED_CLASSES
    values_listed = tuple(int(v) for v in amounts) if possible_label else ()
    return Number(name, low, high, values_listed, float(np.median(finite)), missing, mark, note)


def _with_margin(low: float, high: float) -> tuple[float, float]:
    """Return a range with its margin, in round numbers; what is never negative in public rows stays so."""
    width = high - low
    step = 10.0 ** math.floor(math.log10(width)) / 10 if 1e-300 < width < 1e300 else 0.0
    if not 0 < step < math.inf or max(abs(low), abs(high)) > 1e12 * step:
        return low, high
    wider_low = math.floor((low - _RANGE_MARGIN * width) / step) * step
    wider_high = math.ceil((high + _RANGE_MARGIN * width) / step) * step
    # Multiples of a power of ten, without the error of their binary form.
    wider_low, wider_high = (round(end, max(0, 2 - math.floor(math.log10(width)))) for end in (wider_low, wider_high))
    return max(0.0, wider_low) if low >= 0 else wider_low, min(0.0, wider_high) if high <= 0 else wider_high


def _words(name: str) -> set[str]:
    """Return the words of a column's name in lower case: of patient_id, patientId and "Patient ID" alike."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return set(re.split(r"[^a-z]+", spaced.lower()))


def _best_days(series: "pd.Series[Any]", n_filled: int) -> tuple[NDArray[np.float64] | None, str]:
    """Return the cells as days and how they are written; None if too few of them are dates."""
    few = series[~series.isna()].iloc[:: max(1, len(series) // _CELLS_TO_TRY)] if len(series) else series
    best, most = ISO, int(np.isfinite(parse_days(few)).sum())
    if most < _LEAST_TYPED_SHARE * len(few) and str(series.dtype) in ("str", "object", "category"):
        for form in _DATE_FORMATS:
            n_read = int(np.isfinite(parse_days(few, form)).sum())
            if n_read > most:
                best, most = form, n_read
    if most == 0:
        return None, ISO
    days = parse_days(series, best)
    return (days, best) if np.isfinite(days).sum() >= _LEAST_TYPED_SHARE * n_filled else (None, ISO)


def _infer_date(name: str, days: NDArray[np.float64], form: str) -> Date:
    finite = days[np.isfinite(days)]
    timed = bool((finite != np.floor(finite)).any())
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        high = low + 1.0
    parts = tuple(
        part
        for part, values in DATE_PARTS.items()
        if len(np.unique(date_part(finite, part))) >= _LEAST_SHARE_OF_DATE_PART * len(values)
    )
    return Date(
        name,
        _moment(low, timed),
        _moment(high, timed),
        parts,
        _moment(float(np.median(finite)), timed),
        len(finite) < len(days),
        form,
    )


def _moment(days: float, timed: bool) -> Moment:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
    return moment.replace(microsecond=0) if timed else moment.date()


def _infer_category(name: str, seen: Mapping[str, int], *, any_missing: bool, category: bool) -> Column:
    n_rows = sum(seen.values())
    if len(seen) == n_rows >= _LEAST_ROWS_OF_IDENTIFIERS and not category:
        return Ignored(name, f"a different text in every row: {_PERSON_NOTE}")
    if len(seen) <= _FEW_CATEGORIES:
        return Category(name, tuple(sorted(seen)), other=True, missing=any_missing)
    if n_rows < _LEAST_ROWS_PER_CATEGORY * len(seen) and not category:
        return Ignored(name, f"{n_rows / len(seen):.1f} rows per text: {_PERSON_NOTE}")
    least = max(2.0, min(_LEAST_ROWS_OF_A_VALUE, _LEAST_SHARE_OF_A_VALUE * n_rows))
    by_count = sorted(seen, key=lambda text: (-seen[text], text))
    frequent = [text for text in by_count if seen[text] >= least or category][:_MOST_INFERRED_CATEGORIES]
    share = sum(seen[text] for text in frequent) / n_rows
    if share < _LEAST_LISTED_SHARE and not category:
        return Ignored(name, "too many different texts")
    if len(frequent) == len(seen):
        return Category(name, tuple(sorted(seen)), other=True, missing=any_missing)
    note = f"{len(seen)} different texts: the {len(frequent)} most frequent are listed"
    return Category(name, tuple(sorted(frequent)), other=True, missing=any_missing, note=note)
