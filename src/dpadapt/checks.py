"""Checks of arguments: each returns the value, or raises an error that names the argument and what is allowed."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from dpadapt.data import Public


def positive(value: Any, name: str, *, infinite: bool = False) -> float:
    """Return `value` as a float if it is a positive number (finite unless `infinite`)."""
    if not _number(value) or not value > 0 or (math.isinf(value) and not infinite):
        raise ValueError(f"{name} must be a positive number, got {value!r}.")
    return float(value)


def unit(value: Any, name: str) -> float:
    """Return `value` as a float if it lies in (0, 1]."""
    if not _number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value!r}.")
    return float(value)


def delta(value: Any, name: str = "delta") -> float:
    """Return `value` as a float if it lies in [0, 1)."""
    if not _number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}. A common choice is 1e-6, well below 1/n.")
    return float(value)


def share(value: Any, name: str) -> float:
    """Return `value` as a float if it lies in [0, 1)."""
    if not _number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")
    return float(value)


def bounds(value: Any, name: str) -> tuple[float, float]:
    """Return `value` as a pair of floats if it is (low, high) with low < high; (-1, 1) if it is None."""
    if value is None:
        return -1.0, 1.0
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{name} must be a pair (low, high) of finite numbers with low < high, got {value!r}.")
    return low, high


def count(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def one_of(value: Any, choices: Collection[str], name: str) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return str(value)


def declared_public(value: Any) -> Public:
    """Return `value` if it is a `Public`; anything else, such as an array, is refused."""
    if not isinstance(value, Public):
        raise TypeError(f"public must be wrapped: public=Public(X_public, y_public), got {type(value).__name__}.")
    return value


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
