"""How much each private row counts (`Shares`): where a person may have several rows, and where rows have weights.

If the unit of privacy is the person, a row counts 1 / (number of rows of its person). Every bounded statistic
multiplies a row's term by that share after clipping it. With terms c_i of length at most C and shares s_i >= 0 that
add up to at most 1 over a person's rows, the person's part Σ s_i c_i has length at most C: a sum then moves by no more
for a whole person than it did for one row. A share depends on the rows of its own person alone, so no other term moves.

*Sample weights.* A weight w becomes the factor min(w, max_weight) / max_weight. It lies in [0, 1] and depends on the
row's own weight and on a public maximum alone. The row's share is multiplied by it, after clipping. So the shares of a
unit's rows are still at least 0 and still add up to at most 1, which is all that the makers in `mechanisms/bounded.py`
ask of them: every bound holds as it is, for rows and for persons, and noise and cost do not change.

What changes is how much the rows amount to. The factors f of n rows add up to n times their mean, which is the number
that a sum must be divided by, and the number of rows that a plan has to reckon with: the noise of a weighted mean is
that of a mean over Σ f rows, and its sampling error is at most that, because the effective sample size (Kish)
(Σ f)² / Σ f² is at least Σ f where no f exceeds 1. The exact Σ f is private. The public n * mean_weight / max_weight
takes its place; without `mean_weight`, n does, which is never too small: steps that are too short leave more of the
public model, steps that are too long could diverge.
"""

import math
import numbers
import re
import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.rows import SHARE_MARGIN, Shares

# A whole number, as text: "+17.0" is the same id as 17. Leading zeros stay: "017" may be another id than "17".
_WHOLE = re.compile(r"([+-]?)(\d+)(\.0*)?")
# For receipts.
IDS_ASSUMPTION = "that every id is a whole number or a text, or a decimal number that is exact"


def ids_assumption(column: str) -> str:
    """Return for a receipt which column of a table holds the ids."""
    return f"the ids of persons: the column {column!r}"


def person_shares(ids: Any, n_rows: int) -> Shares:
    """Return the shares of rows, given the id of the person that each belongs to.

    A row without an id (None, NaN, an empty text or one such as "NaN" or "#REF!") counts nothing, and nor does one
    whose id can't be read or is a decimal number too large to be exact. 17, 17.0, "17" and " 17.0" are one id.

    Parameters
    ----------
    ids : array-like of shape (n_rows,)
        Private. No message shows one.
    n_rows : int
        Number of private rows.

    Examples
    --------
    >>> shares = person_shares(["ann", "bob", "ann", None], 4)
    >>> shares.values.round(3), shares.n_units
    (array([0.5, 1. , 0.5, 0. ]), 2)
    """
    codes = _codes(ids, n_rows)
    known = codes >= 0
    counts = np.bincount(codes[known], minlength=1)
    # Claim: Σ shares of a person <= 1, so |Σ s_i c_i| <= C for terms |c_i| <= C. Of m rows each has the share (1 - 16
    # eps) / m, rounded: m of them add up to less than 1. A share depends on its own person's rows alone.
    # Not proved: that a person has one id, and that a row is about one person.
    values = np.where(known, SHARE_MARGIN / np.maximum(counts[codes], 1), 0.0)
    return Shares(values, "person", int(np.count_nonzero(counts)), codes)


_NO_IDS = "persons must hold the id of each private row's person: one column with one id per row."


def _codes(ids: Any, n_rows: int) -> NDArray[np.int64]:
    """Return a number for each person; -1 for a row without an id."""
    try:
        texts = _texts(ids)
        problem = "" if len(texts) == n_rows else _NO_IDS
    except Exception:
        problem = _NO_IDS
    if problem:
        # Outside the handler, and in words of our own: the original error may quote an id. The number of rows may be
        # private, so it is not shown.
        raise ValueError(problem)
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) if text else -1 for text in texts], dtype=np.int64)


def _texts(ids: Any) -> list[str]:
    """Return the ids as texts of one form; a missing id is empty."""
    if isinstance(ids, str | bytes | set | frozenset | dict | np.ma.MaskedArray):
        raise TypeError
    if getattr(ids, "ndim", 1) == 2:  # a table of one column
        ids = ids.iloc[:, 0] if hasattr(ids, "iloc") and ids.shape[1] == 1 else np.asarray(ids).reshape(len(ids))
    dtype = getattr(ids, "dtype", getattr(ids, "type", ""))  # of NumPy, pandas, polars or pyarrow
    kind = str(getattr(getattr(dtype, "categories", dtype), "dtype", dtype)).lower()
    largest = 10.0**15  # a float has 15 digits
    if "float" in kind and "64" not in kind:
        largest = 2.0**11 if "float16" in kind or "half" in kind else 2.0**24
    # Not through an array: one missing id would turn all whole numbers into decimal ones.
    values = ids
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(ids, name):
            try:
                values = getattr(ids, name)()
            except Exception:  # one of the ids can't be read: they are read one by one
                values = ids
            break
    return [_readable_text(value, largest) for value in values]


def _readable_text(value: Any, largest: float) -> str:
    """Return an id as a text; it is empty if the id is missing or can't be read."""
    # Claim: no id refuses the rows or moves another person. Each is read by itself, and a row whose id can't be read
    # counts nothing.
    try:
        return _text(value.as_py() if hasattr(value, "as_py") else value, largest)
    except Exception:
        return ""


def _text(value: Any, largest: float) -> str:
    if value is None or (isinstance(value, numbers.Number) and value != value):
        return ""
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        largest = min(largest, 2.0 ** (np.finfo(value).nmant + 1)) if isinstance(value, np.floating) else largest
        if not abs(number) < largest:
            return ""  # two persons may have become one
        return str(int(number)) if number.is_integer() else str(number)
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    # One form for letters that look the same, and no invisible characters.
    text = "".join(c for c in unicodedata.normalize("NFKC", str(value)) if unicodedata.category(c) != "Cf").strip()
    # An error of a spreadsheet in many rows would be one person of them all.
    if any(checks.is_missing_text(form) for form in (text, text.lower(), text.upper(), text.capitalize())):
        return ""
    whole = _WHOLE.fullmatch(text)
    if not whole:
        return text
    sign, digits, _ = whole.groups()
    return digits if sign != "-" or not digits.strip("0") else f"-{digits}"


_NO_WEIGHTS = "sample_weight must hold one number for each private row."
_NO_MAXIMUM = (
    "max_weight must be given with sample_weight: the largest weight, known without looking at the private weights. "
    "Larger weights count as this one."
)


def weighted(shares: Shares, weights: Any, *, max_weight: Any, mean_weight: Any = None) -> Shares:
    """Return the shares, each times the factor of its row's weight.

    A weight that is negative or no finite number counts as 0, without a message: it would tell something about a row.

    Parameters
    ----------
    shares : Shares
    weights : array-like of shape (n_rows,)
        Private. No message shows one.
    max_weight : float
        Public. Larger weights count as this one.
    mean_weight : float, optional
        Public; see `mean_factor`.

    Examples
    --------
    >>> from dpadapt.rows import row_shares
    >>> shares = weighted(row_shares(np.ones(4)), [1.0, 8.0, -1.0, np.nan], max_weight=4.0, mean_weight=2.0)
    >>> shares.values, shares.counted
    (array([0.25, 1.  , 0.  , 0.  ]), 0.5)
    """
    counted = mean_factor(max_weight, mean_weight)
    own = _numbers(weights, len(shares.values))
    with np.errstate(all="ignore"):
        # Claim: 0 <= factor <= 1, so that no share grows. w <= M gives w / M <= 1 also when rounded.
        # Not proved: that max_weight is public.
        factors = np.clip(np.where(np.isfinite(own), own, 0.0), 0.0, max_weight) / max_weight
        return replace(shares, values=shares.values * factors, counted=counted)


def mean_factor(max_weight: Any, mean_weight: Any = None) -> float:
    """Return what the mean factor of the rows is assumed to be, or refuse bounds of weights; all are public.

    Examples
    --------
    >>> mean_factor(10.0, 2.0), mean_factor(10.0)
    (0.2, 1.0)
    """
    if max_weight is None:
        raise ValueError(_NO_MAXIMUM)
    most = checks.scale(max_weight, "max_weight")
    if mean_weight is None:
        return 1.0
    mean = checks.scale(mean_weight, "mean_weight")
    if mean > most:
        raise ValueError(f"mean_weight must be at most max_weight, {most:g}, got {mean:g}.")
    return mean / most


def weights_assumption(max_weight: float, mean_weight: float | None) -> str:
    """Return what weights assume to be public, for receipts."""
    mean = "" if mean_weight is None else f", and their mean, {mean_weight:g}"
    return f"the largest sample weight, {max_weight:g}{mean}; larger weights count as the largest"


def _numbers(weights: Any, n_rows: int) -> NDArray[np.float64]:
    """Return the weights in float64, or refuse them without showing one."""
    numbers: NDArray[np.float64] | None = None
    try:
        array = np.ma.filled(weights.astype(np.float64), np.nan) if isinstance(weights, np.ma.MaskedArray) else weights
        array = np.asarray(checks.cells(array))
        if array.shape == (n_rows,) and array.dtype.kind == "O":
            numbers = np.array([_number_of(weight) for weight in array], dtype=np.float64)
        elif array.shape == (n_rows,) and array.dtype.kind in "biuf":
            numbers = array.astype(np.float64)
    except Exception:
        numbers = None
    if numbers is None:
        # Outside the handler, and in words of our own: the original error may quote a weight. The number of rows may be
        # private, so it is not shown.
        raise ValueError(_NO_WEIGHTS)
    return numbers


def _number_of(weight: Any) -> float:
    """Return one weight; NaN if it is missing or larger than any float, an error if it is no number."""
    if weight is None:
        return math.nan
    if isinstance(weight, complex | np.complexfloating | np.datetime64 | np.timedelta64):
        raise TypeError
    try:
        return float(weight)
    except OverflowError:
        return math.nan
