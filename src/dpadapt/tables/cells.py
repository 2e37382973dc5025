"""Cells as numbers, dates and texts. What a cell becomes depends on that cell alone, whatever the others are.

So one private row can change the encoding of no other row. Nothing here raises or warns because of a cell: what can't
be read is missing.
"""

import datetime
import decimal
import math
import numbers
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.checks import is_missing_text

if TYPE_CHECKING:
    import pandas as pd

# Different words that may stand for missing cells in a column of many different numbers. Chosen by hand.
MOST_WORDS_FOR_MISSING = 3
# What may surround the digits of an amount: "$12", "3 %", "1'000".
_AROUND_AMOUNTS = re.compile(r"[\s\u00a0\u202f$€£¥%']")
_GROUPED_BY_COMMAS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_WITH_DECIMAL_COMMA = re.compile(r"[-+]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?")
# A text that says on which side of a number a value lies, "<5" or ">= 1,000". There is no number for it: what stands on
# the other side is not known, and 5 or 2.5 would be a guess. It is missing, in public, private and new rows alike.
_LIMIT = re.compile(r"[<>≤≥]=?\s*[-+]?\d[\d.,]*\s*%?")
# Digits that begin with 0, such as a postal code. A number would lose the zeros.
_CODE_OF_DIGITS = re.compile(r"0\d+")
_NOT_PLAIN = re.compile(r"[^-+.\deE\n]|^0\d", re.MULTILINE)
# Digits up to which a decimal number is written out.
_MOST_DIGITS = 300
# A date, or a date and a time, that Python reads by itself, and a hundred times as fast as pandas does.
_PLAIN_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d:?\d\d(:\d\d(\.\d+)?)?)?)?", re.ASCII
)
# How every text begins that pandas reads as ISO 8601, and the signs that a text must have as often as its format.
_ISO_BEGIN, _DATE_SIGNS = re.compile(r"\d{4}|[-./]", re.ASCII), "./:-,"
_EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)
_DAY_MICROSECONDS = 86_400_000_000
# The first second of the year 1 and of the year 10,000, in UTC, from 1970 on: the calendar of Python.
_CALENDAR_SECONDS = -62_135_596_800, 253_402_300_800
# The format of a date column that is not written down: 2024-05-31, with or without a time.
ISO = "ISO8601"


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings and floating-point errors: one that only some cells cause would reveal such a cell."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def is_limit(text: str) -> bool:
    """Return whether a text says on which side of a number a value lies.

    Examples
    --------
    >>> is_limit("<5"), is_limit(">= 1,000"), is_limit("<none>")
    (True, True, False)
    """
    return _LIMIT.fullmatch(text.strip()) is not None


def may_be_unusual(series: "pd.Series[Any]") -> bool:
    """Return False if all cells are numbers, or texts of plain numbers without leading zeros. Quick.

    Examples
    --------
    >>> import pandas as pd
    >>> may_be_unusual(pd.Series(["1", "2.5", ""])), may_be_unusual(pd.Series(["1", "12%"]))
    (False, True)
    """
    if str(series.dtype) not in ("str", "object", "string", "category"):
        return False
    try:
        return _NOT_PLAIN.search("\n".join(series.tolist())) is not None
    except TypeError:  # cells that are no texts
        return True


def has_leading_zeros(series: "pd.Series[Any]") -> bool:
    """Return whether the cells are texts of digits, missing ones aside, of which some begin with 0 as codes do.

    Examples
    --------
    >>> import pandas as pd
    >>> has_leading_zeros(pd.Series(["02134", "90210", ""])), has_leading_zeros(pd.Series(["0", "10", "0.5"]))
    (True, False)
    """
    if not may_be_unusual(series):
        return False
    texts = [text for text in distinct_texts(series)[1] if not is_missing_text(text)]
    return all(text.isdigit() for text in texts) and any(_CODE_OF_DIGITS.fullmatch(text) for text in texts)


def parse_numbers(series: "pd.Series[Any]", decimal_mark: str = ".") -> NDArray[np.float64]:
    """Return the cells as floats; a cell that is missing, infinite or no number becomes NaN.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_numbers(pd.Series(["12", "1,250.5", "?", "3 %", "many"])).tolist()
    [12.0, 1250.5, nan, 3.0, nan]
    """
    import pandas as pd

    kind = series.dtype
    with _quiet():
        if pd.api.types.is_datetime64_any_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
            return np.full(len(series), np.nan)
        if isinstance(kind, np.dtype) and kind.kind in "biuf":
            values = series.to_numpy(dtype=np.float64, copy=True)
        else:
            # Each cell by itself. `pandas.to_numeric` reads a text as a whole number or as a decimal one, which can
            # differ in the last digit, according to the other cells.
            values = np.array([_number(cell, decimal_mark) for cell in cell_objects(series)], dtype=np.float64)
        values[~np.isfinite(values)] = np.nan
    return values


def read_number(text: str, decimal_mark: str = ".") -> float:
    """Return the number that one text is read as, or NaN."""
    import pandas as pd

    return float(parse_numbers(pd.Series([text], dtype=object), decimal_mark)[0])


def _number(cell: Any, decimal_mark: str) -> float:
    if isinstance(cell, str):
        text = cell if decimal_mark == "." else _with_point(cell)
        try:
            # Python also reads 1_000 and digits of other scripts, which may be codes.
            return float(text) if text.isascii() and "_" not in text else _amount(text)
        except ValueError:
            return _amount(text)
    cell = _uniform(cell)
    try:
        return float(cell) if isinstance(cell, numbers.Real | np.bool_ | decimal.Decimal) else math.nan
    except Exception:  # also what a class of the user's raises
        return math.nan


def cell_objects(series: "pd.Series[Any]") -> NDArray[np.object_]:
    """Return the cells as objects. One that there is no object for, such as a date after 9999, is missing."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        # Before the gaps get their place, which would make floats of whole numbers.
        series = series.astype(object)
    # The lists of Arrow would be parts of one array, whose type a gap in one of them changes.
    if not isinstance(series.dtype, pd.ArrowDtype):
        with suppress(Exception):  # of one cell, which would make all unreadable
            return series.to_numpy(dtype=object)
    cells = np.full(len(series), None, dtype=object)
    for row in range(len(series)):
        with suppress(Exception):
            cells[row] = series.iloc[row]
    return cells


def _uniform(cell: Any) -> Any:
    """Return a cell in the form that it has in every column.

    Other cells decide on the type of a column, and that on the type of its cells: 3 beside 1j is complex, and a date of
    NumPy is one of pandas where all cells are dates.
    """
    if isinstance(cell, str | float | int) and not isinstance(cell, np.timedelta64):
        return cell
    import pandas as pd

    try:
        if isinstance(cell, complex | np.complexfloating):
            # 0j or nan: the imaginary part of a real number, and of a missing one.
            return cell if cell.imag and cell == cell else cell.real
        if isinstance(cell, np.datetime64):
            return pd.Timestamp(cell)
        if isinstance(cell, np.timedelta64 | datetime.timedelta):
            return pd.Timedelta(cell)
        return cell
    except Exception:  # a date or a span that pandas can't hold
        return None


def _with_point(cell: str) -> str:
    """Return an amount that has a decimal comma, 1.250,5 or 12,5 €, with a decimal point."""
    digits = _AROUND_AMOUNTS.sub("", cell)
    return digits.replace(".", "").replace(",", ".") if _WITH_DECIMAL_COMMA.fullmatch(digits) else cell


def _amount(cell: str) -> float:
    """Return the number in a text such as 1,250 or $12, or NaN."""
    digits = _AROUND_AMOUNTS.sub("", cell)
    if _GROUPED_BY_COMMAS.fullmatch(digits):
        digits = digits.replace(",", "")
    if digits == cell or digits.strip("+-.0123456789eE") != "":
        return math.nan
    try:
        return float(digits)
    except ValueError:
        return math.nan


def parse_text(series: "pd.Series[Any]") -> list[str]:
    """Return the cells as text: whole numbers without a decimal point, missing cells as empty text.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_text(pd.Series([3.0, 2.5, None, " a "], dtype=object))
    ['3', '2.5', '', 'a']
    """
    codes, texts = distinct_texts(series)
    return [texts[code] for code in codes.tolist()]


def distinct_texts(series: "pd.Series[Any]") -> tuple[NDArray[np.int64], list[str]]:
    """Return texts, and for each cell the position of its text among them; a text may occur there more than once."""
    import pandas as pd

    kind = series.dtype
    with _quiet():
        if isinstance(kind, pd.CategoricalDtype):
            codes, cells = np.array(series.cat.codes, dtype=np.int64), kind.categories.to_numpy(dtype=object)
        elif kind == "str" or (isinstance(kind, np.dtype) and kind.kind in "biufM"):
            codes, found = pd.factorize(series)
            codes, cells = codes.astype(np.int64), cell_objects(pd.Series(found))
        else:
            # As text first: among objects, 1 and True count as equal, and the first of them would stand for both.
            written = [_text(cell) for cell in cell_objects(series)]
            codes, cells = pd.factorize(np.array(written, dtype=object))
            codes = codes.astype(np.int64)
        texts = [_text(cell) for cell in cells]
        if (codes < 0).any():
            codes[codes < 0] = len(texts)
            texts.append("")
    return codes, texts


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.strip()
    import pandas as pd

    try:
        cell = _uniform(cell)
        if cell is None or (pd.api.types.is_scalar(cell) and pd.isna(cell)):
            return ""
        if isinstance(cell, decimal.Decimal) and abs(cell.adjusted()) < _MOST_DIGITS:
            # A column of a Parquet file has as many decimals as its longest cell.
            cell = int(cell) if cell == cell.to_integral_value() else format(cell.normalize(), "f")
        if isinstance(cell, float | np.floating) and float(cell).is_integer():
            return str(int(cell))
        if isinstance(cell, datetime.datetime | datetime.date):
            return cell.isoformat()
        return str(cell).strip()
    except Exception:  # an object that can't be shown
        return ""


def parse_days(series: "pd.Series[Any]", form: str = ISO) -> NDArray[np.float64]:
    """Return dates and times as days since 1970-01-01 (UTC); a cell that is no date becomes NaN.

    Parameters
    ----------
    series : Series
        Dates, times or texts.
    form : str
        How texts are written, as for `datetime.strptime`, or "ISO8601". Texts in ISO 8601 are always read.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_days(pd.Series(["02.01.1970", "1970-01-03", "soon"]), "%d.%m.%Y").tolist()
    [1.0, 2.0, nan]
    """
    import pandas as pd

    with _quiet():
        # Not those of Arrow: one that is outside the calendar would make all unreadable.
        if pd.api.types.is_datetime64_any_dtype(series.dtype) and not isinstance(series.dtype, pd.ArrowDtype):
            return _days_of_column(pd.DatetimeIndex(series))
        # Also of numbers: a column of whole numbers becomes one of objects or floats by a gap in another row.
        codes, texts = distinct_texts(series)
        # Each text by itself. pandas chooses one resolution for all that it reads at once: one cell with nanoseconds
        # would make a missing cell of every date outside 1677 to 2262.
        days = np.array([_day(text, form) for text in texts], dtype=np.float64)
    return np.asarray(days[codes], dtype=np.float64)


def _day(text: str, form: str) -> float:
    import pandas as pd

    # Words such as "today" would be read by the clock.
    if not any(sign.isdigit() for sign in text):
        return math.nan
    for attempt in dict.fromkeys((form, ISO)):
        if not _may_be_written_as(text, attempt):
            continue
        try:
            if attempt == ISO and _PLAIN_MOMENT.fullmatch(text):
                moment = datetime.datetime.fromisoformat(text)
            else:
                read = pd.to_datetime(text, format=attempt, errors="coerce", utc=True)
                if pd.isna(read):
                    continue
                moment = read.to_pydatetime(warn=False)
            offset = moment.utcoffset() or datetime.timedelta()
            microseconds = (moment.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND
        except Exception:  # no such day, or a year that the calendar does not have
            continue
        low, high = (second * 1_000_000 for second in _CALENDAR_SECONDS)
        return microseconds / _DAY_MICROSECONDS if low <= microseconds < high else math.nan
    return math.nan


def _may_be_written_as(text: str, form: str) -> bool:
    """Return False for most texts that are no date in this format: pandas takes 200 times as long to refuse them."""
    if form == ISO:
        return _ISO_BEGIN.match(text) is not None
    signs = re.sub("%.", "", form)
    return all(text.count(sign) >= signs.count(sign) for sign in _DATE_SIGNS)


def _days_of_column(moments: "pd.DatetimeIndex") -> NDArray[np.float64]:
    """Return the days of dates that have a type of their own, as `_day` returns those of their texts."""
    naive = moments.tz_convert("UTC").tz_localize(None) if moments.tz is not None else moments
    moment = naive.to_numpy()
    # Seconds first: microseconds of a distant year overflow.
    seconds = moment.astype("datetime64[s]").astype(np.int64)
    low, high = _CALENDAR_SECONDS
    readable = ~np.isnat(moment) & (seconds >= low) & (seconds < high)
    microseconds = moment.astype("datetime64[us]").astype(np.int64)
    return np.where(readable, microseconds / _DAY_MICROSECONDS, np.nan)
