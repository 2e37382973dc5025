"""The public map: raw columns as bounded numbers, the same on the curator's side and on every person's device.

If one side clipped and the other did not, the clipping would look like a shift between the two populations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# A column in its declared range becomes a number up to this: about two standard deviations, if the range is such.
LIMIT = 2.0
# Rows longer than this many typical lengths are scaled down.
_LONGEST = 1.2


@dataclass(frozen=True, eq=False)
class PublicMap:
    """Columns as features: numbers are brought to [-2, 2] by their declared range, categories are groups of 0s and 1s.

    Parameters
    ----------
    low, high : ndarray of shape (n_columns,)
        The declared range of each column; not used for columns of a group.
    groups : tuple of tuple of int
        Columns that belong together as the indicators of one category.
    """

    low: Array
    high: Array
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def n_columns(self) -> int:
        """How many features a row has, the constant 1 at its end not counted."""
        return len(self.low)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The columns that stand alone."""
        grouped = {column for group in self.groups for column in group}
        return tuple(column for column in range(self.n_columns) if column not in grouped)

    @property
    def n_features(self) -> int:
        """How many variables there are; a category counts once, however many columns it has."""
        return len(self.numbers) + len(self.groups)

    @property
    def max_norm(self) -> float:
        """The most a row can be long, its constant 1 included."""
        return _LONGEST * math.sqrt(self.n_features + 1)

    @property
    def reach(self) -> float:
        """The sum of the squared limits of all variables and the constant: what a vector question has to divide."""
        return LIMIT**2 * len(self.numbers) + len(self.groups) + 1

    def transform(self, X: ArrayLike) -> Array:
        """Return the features of each row, without the constant; a row that is not finite becomes nan."""
        X = np.asarray(X, dtype=np.float64)
        with np.errstate(all="ignore"):
            finite = np.isfinite(np.einsum("ij,ij->i", X, X))
            numbers = list(self.numbers)
            half = (self.high[numbers] - self.low[numbers]) / 2
            found = np.zeros_like(X)
            found[:, numbers] = np.clip((X[:, numbers] - self.low[numbers] - half) * (LIMIT / half), -LIMIT, LIMIT)
            for group in self.groups:
                part = X[:, group]
                level = np.argmax(part, axis=1)
                found[np.arange(len(X)), np.asarray(group)[level]] = part[np.arange(len(X)), level] > 0.5
            # |row|² + 1 <= max_norm²: the constant is not scaled, so that sums of rows have means.
            longest = math.sqrt(self.max_norm**2 - 1)
            lengths = np.sqrt(np.einsum("ij,ij->i", found, found))
            found *= np.minimum(1.0, longest / np.maximum(lengths, 1e-300))[:, None]
        found[~finite] = np.nan
        return found

    def highest(self, coef: Array) -> float:
        """Return the most that coef'row can be over all rows there can be (a bound), constant not included."""
        total = LIMIT * float(np.abs(coef[list(self.numbers)]).sum())
        return total + sum(max(0.0, float(coef[list(group)].max())) for group in self.groups)

    def message(self) -> dict[str, Any]:
        """Return what a device needs to apply the map."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "groups": [list(group) for group in self.groups]}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "PublicMap":
        """Return the map that `message` describes."""
        groups = tuple(tuple(int(column) for column in group) for group in message["groups"])
        return cls(np.asarray(message["low"]), np.asarray(message["high"]), groups)


def public_map(n_columns: int, bounds: Any, groups: Sequence[Sequence[int]] | None) -> PublicMap:
    """Return the map that `bounds` and `groups` declare, or refuse them.

    Examples
    --------
    >>> where = public_map(3, (0, 10), [[1, 2]])
    >>> where.transform([[5.0, 0.0, 1.0], [6.0, 1.0, 0.0]])
    array([[0. , 0. , 1. ],
           [0.4, 1. , 0. ]])
    """
    try:
        ranges = np.asarray((-1.0, 1.0) if bounds is None else bounds, dtype=np.float64)
        ranges = np.broadcast_to(ranges, (n_columns, 2))
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be a pair (low, high), or one pair for each of {n_columns} columns.") from None
    low, high = ranges[:, 0].copy(), ranges[:, 1].copy()
    if not (np.isfinite(high - low) & (high > low)).all():
        raise ValueError("bounds must be finite, low below high. Declare the range that most rows lie in.")
    kept = []
    seen: set[int] = set()
    for group in groups or ():
        columns = tuple(int(column) for column in group)
        if len(columns) < 2 or len(set(columns)) < len(columns) or not all(0 <= c < n_columns for c in columns):
            raise ValueError(f"groups must hold lists of two or more of the columns 0 to {n_columns - 1}.")
        if seen & set(columns):
            raise ValueError("groups must not overlap: a column belongs to one category.")
        seen |= set(columns)
        kept.append(columns)
    return PublicMap(low, high, tuple(kept))
