"""Cells as numbers, dates and texts. What a cell becomes depends on that cell alone, whatever the others are.

So one private row can change the encoding of no other row. Nothing here raises or warns because of a cell: what can't
be read is missing.
"""

import datetime
import decimal
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# Texts that stand for a missing cell: those that pandas reads as missing, so that a frame and its file are encoded
# alike, and marks that statistical packages write. Among texts, "none" and "-" may be categories and are not listed.
MISSING_TEXTS = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"
    "|NAN|NaT|Null|na|?|.|Inf|-Inf|inf|-inf".split("|")
)
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
# The format of a date column that is not written down: 2024-05-31, with or without a time.
ISO = "ISO8601"


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings and floating-point errors: one that only some cells cause would reveal such a cell."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def is_missing_text(text: str) -> bool:
    """Return whether a text stands for a missing cell."""
    return text in MISSING_TEXTS


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
            found = series.to_numpy(dtype=np.float64, copy=True)
        else:
            cells = series.to_numpy(dtype=object)
            if kind != "str":
                cells = np.array([_plain(cell) for cell in cells], dtype=object)
            if decimal_mark != ".":
                cells = np.array([_with_point(cell) for cell in cells], dtype=object)
            # As an array, which is quicker than as a series: that counts for tables of many columns.
            found = np.array(pd.to_numeric(cells, errors="coerce"), dtype=np.float64)
            for row in np.flatnonzero(np.isnan(found)):
                if isinstance(cells[row], str) and cells[row]:
                    found[row] = _amount(cells[row])
        found[~np.isfinite(found)] = np.nan
    return found


def read_number(text: str, decimal_mark: str = ".") -> float:
    """Return the number that one text is read as, or NaN."""
    import pandas as pd

    return float(parse_numbers(pd.Series([text], dtype=object), decimal_mark)[0])


def _plain(cell: Any) -> str | float | None:
    """Return a cell as text or float, in which form no other cell can change how it is read."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool | int | float | np.number | np.bool_ | decimal.Decimal):
        try:
            return float(cell)
        except (OverflowError, ValueError, TypeError):
            return None
    return None


def _with_point(cell: Any) -> Any:
    """Return an amount that has a decimal comma, 1.250,5 or 12,5 €, with a decimal point."""
    if not isinstance(cell, str):
        return cell
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
    """Return texts, and for each cell the position of its text among them; a text may occur there more than once.

    Examples
    --------
    >>> import pandas as pd
    >>> codes, texts = distinct_texts(pd.Series(["b", "a", None, "b"]))
    >>> codes.tolist(), texts
    ([0, 1, 2, 0], ['b', 'a', ''])
    """
    import pandas as pd

    kind = series.dtype
    with _quiet():
        if isinstance(kind, pd.CategoricalDtype):
            codes, cells = np.array(series.cat.codes, dtype=np.int64), kind.categories.to_numpy(dtype=object)
        elif kind == "str" or (isinstance(kind, np.dtype) and kind.kind in "biufM"):
            codes, found = pd.factorize(series)
            codes, cells = codes.astype(np.int64), np.asarray(found, dtype=object)
        else:
            # As text first: among objects, 1 and True count as equal, and the first of them would stand for both.
            written = [_text(cell) for cell in series.to_numpy(dtype=object)]
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
        if cell is None or (pd.api.types.is_scalar(cell) and pd.isna(cell)):
            return ""
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
        if pd.api.types.is_datetime64_any_dtype(series.dtype):
            return _days(pd.DatetimeIndex(series))
        # Also of numbers: a column of whole numbers becomes one of objects or floats by a gap in another row.
        codes, texts = distinct_texts(series)
        # Words such as "today" would be read by the clock.
        dated = [text if any(sign.isdigit() for sign in text) else "" for text in texts]
        days = np.full(len(texts), np.nan)
        for attempt in dict.fromkeys((form, ISO)):
            left = np.flatnonzero(np.isnan(days))
            wanted = np.array([dated[row] for row in left], dtype=object)
            if len(wanted):
                days[left] = _days(pd.DatetimeIndex(pd.to_datetime(wanted, format=attempt, errors="coerce", utc=True)))
    return np.asarray(days[codes], dtype=np.float64)


def _days(moments: "pd.DatetimeIndex") -> NDArray[np.float64]:
    naive = moments.tz_convert("UTC").tz_localize(None) if moments.tz is not None else moments
    microseconds = naive.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64)
    return np.where(naive.isna(), np.nan, microseconds / 86_400e6)
