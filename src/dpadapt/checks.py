"""Checks of arguments: each returns the value, or raises an error that names the argument and what is allowed."""

import math
import re
import sys
from collections.abc import Callable, Collection
from fractions import Fraction
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar, get_args

import numpy as np

# Largest and smallest size of a number that a model is computed from. Fourth powers of such numbers, and sums of them,
# are finite. Real data and sensible settings are far inside.
LARGEST, SMALLEST = 1e60, 1e-60
# Largest count: whole numbers up to this are exact in float64.
_MOST = 2**53
# Texts that stand for a missing cell: those that pandas reads as missing, so that a frame and its file are encoded
# alike, and marks that statistical packages write. Among texts, "none" and "-" may be categories and are not listed.
_MISSING_TEXTS = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"
    "|NAN|NaT|Null|na|?|.|Inf|-Inf|inf|-inf".split("|")
)
# Errors that spreadsheets write into cells, also in other languages: #REF!, #DIV/0!, #NAME?, #SPILL!, #GETTING_DATA,
# #WERT!, #¡VALOR!, #NV, Err:502.
_SPREADSHEET_ERROR = re.compile(r"#[¡¿]?[A-ZÀ-Þ][A-ZÀ-Þ0-9/_]*[!?]|#(GETTING_DATA|NV|N/D|N/V|N/B)|Err:\d{3}")


Choice = TypeVar("Choice", bound=str)
# Takes a value and its name; returns the value, or raises an error. Estimators declare one for each parameter.
Check = Callable[[Any, str], Any]


def declared_by(annotation: Any) -> tuple[Any, Check | None]:
    """Return the plain type of an annotation such as `Count` or `Count | None`, and the check that it declares.

    Examples
    --------
    >>> plain, check = declared_by(Count | None)
    >>> plain, check(None, "n_steps"), check(3, "n_steps")
    (int | None, None, 3)
    """
    for part in (annotation, *get_args(annotation)):
        if hasattr(part, "__metadata__"):
            kind, check = part.__origin__, part.__metadata__[0]
            return (kind, check) if part is annotation else (kind | None, optional(check))
    return annotation, None


def is_missing_text(text: str) -> bool:
    """Return whether a text stands for a missing cell, or is an error of a spreadsheet.

    Examples
    --------
    >>> is_missing_text("NaN"), is_missing_text("#REF!"), is_missing_text("none")
    (True, True, False)
    """
    return text in _MISSING_TEXTS or _SPREADSHEET_ERROR.fullmatch(text) is not None


def optional(check: Check) -> Check:
    """Return a check that takes None, and what `check` takes."""
    return lambda value, name: None if value is None else check(value, name)


def choice(*choices: str) -> Check:
    """Return the check of a text that must be one of `choices`."""
    return lambda value, name: one_of(value, choices, name)


def function(value: Any, name: str) -> Any:
    """Return `value` if it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function or None, got {type(value).__name__}.")
    return value


def positive(value: Any, name: str, *, infinite: bool = False) -> float:
    """Return `value` as a float if it is a positive number (finite unless `infinite`)."""
    number = _number(value)
    # A subnormal number has lost its digits, and one over it is infinite.
    if not number >= sys.float_info.min or (math.isinf(number) and not (infinite and value == math.inf)):
        raise ValueError(f"{name} must be a positive number, got {_shown(value)}.")
    return number


def or_infinite(value: Any, name: str) -> float:
    """Return `value` as a float if it is a positive number, or infinity."""
    return positive(value, name, infinite=True)


def scale(value: Any, name: str) -> float:
    """Return `value` as a float if it is a positive number of usual size: a length, a rate, a strength."""
    number = positive(value, name)
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{name} must be a positive number from {SMALLEST:g} to {LARGEST:g}, got {_shown(value)}.")
    return number


def penalty(value: Any, name: str) -> float:
    """Return `value` as a float if it is a number of at least 0 and of usual size."""
    number = _number(value)
    if number != 0 and not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{name} must be a number of at least 0, up to {LARGEST:g}, got {_shown(value)}.")
    return number


def unit(value: Any, name: str) -> float:
    """Return `value` as a float if it lies in (0, 1]."""
    number = _number(value)
    if not SMALLEST <= number <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {_shown(value)}.")
    return number


def delta(value: Any, name: str = "delta") -> float:
    """Return `value` as a float if it lies in [0, 1)."""
    number = _number(value)
    if number != 0 and not sys.float_info.min <= number < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {_shown(value)}. A common choice is 1e-6, well below 1/n.")
    return number


def share(value: Any, name: str) -> float:
    """Return `value` as a float if it lies in [0, 1)."""
    number = _number(value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {_shown(value)}.")
    return number


def inside_unit(value: Any, name: str) -> float:
    """Return `value` as a float if it lies in (0, 1)."""
    number = _number(value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie between 0 and 1, such as 0.9, got {_shown(value)}.")
    return number


def bounds(value: Any, name: str) -> tuple[float, float]:
    """Return `value` as a pair of floats if it is (low, high) with low < high; (-1, 1) if it is None."""
    if value is None:
        return -1.0, 1.0
    try:
        low, high = (_number(bound) for bound in value)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -LARGEST <= low < high <= LARGEST:
        raise ValueError(
            f"{name} must be a pair (low, high) of finite numbers with low < high, up to {LARGEST:g} in size, got "
            f"{_shown(value)}."
        )
    return low, high


def count(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int if it is a whole number of at least `least`."""
    whole = least - 1 if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if not least <= whole <= _MOST:
        most = f" and at most {_MOST}" if whole > _MOST else ""
        raise ValueError(f"{name} must be a whole number of at least {least}{most}, got {_shown(value)}.")
    return whole


def flag(value: Any, name: str) -> bool:
    """Return `value` as a bool if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {_shown(value)}.")
    return bool(value)


def one_of(value: Any, choices: Collection[Choice], name: str) -> Choice:
    """Return the one of `choices` that equals `value`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {_shown(value)}.")
    return next(choice for choice in choices if choice == value)


def cells(values: Any) -> Any:
    """Return private values as they are if they have a type; a list becomes an array of objects.

    NumPy would infer one type for the whole list. Then one value changes how the others are read: 1 beside "a" becomes
    "1".

    Examples
    --------
    >>> cells([1, "a"]).tolist()
    [1, 'a']
    """
    return values if hasattr(values, "dtype") or hasattr(values, "dtypes") else np.asarray(values, dtype=object)


def _number(value: Any) -> float:
    """Return `value` as a float: NaN if it is no number, infinity if it is too large for a float."""
    if type(value) is float:  # the usual case, without the slow question whether other types are numbers
        return value
    if not isinstance(value, Real) or isinstance(value, bool | Fraction):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number
        return math.inf if isinstance(value, int) and value > 0 else -math.inf


def _shown(value: Any) -> str:
    """Return the value as a short text on one line; a whole number with thousands of digits has none in Python."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


# Annotations of an estimator's parameters, which `fit` checks before it reads anything; others are written
# Annotated[str, choice(...)].
Positive = Annotated[float, positive]
Scale = Annotated[float, scale]
Penalty = Annotated[float, penalty]
Proportion = Annotated[float, unit]
Share = Annotated[float, share]
Count = Annotated[int, count]
Flag = Annotated[bool, flag]
