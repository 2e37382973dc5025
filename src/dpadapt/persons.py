"""`Shares`: how much each private row counts where a person may have several rows, and whose protection follows.

If the unit of privacy is the person, a row counts 1 / (number of rows of its person). Every bounded statistic
multiplies a row's term by that share after clipping it. With terms c_i of length at most C and shares s_i that add up
to at most 1 over a person's rows, the person's part Σ s_i c_i has length at most C: a sum then moves by no more for a
whole person than it did for one row. A share depends on the rows of its own person alone, so no other term moves.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Unit = Literal["row", "person"]
UNITS: tuple[Unit, ...] = ("row", "person")

# A whole number, as text with a decimal point: "17.0" is the same id as "17".
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
# Shares of a person are rounded and then added up: this margin keeps their sum at most 1.
_MARGIN = 1.0 - 16.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Shares:
    """How much each private row counts. Made only by `person_shares` and `row_shares`.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Between 0 and 1. The shares of one unit's rows add up to at most 1. They are private.
    unit : {"row", "person"}
        What is protected.
    n_units : int
        Number of rows, or of persons with an id. Public unless the adjacency is add-remove.
    codes : ndarray of shape (n_rows,)
        The number of the unit that each row belongs to, from 0 on; -1 for a row without an id. They are private.
    """

    values: NDArray[np.float64] = field(repr=False)
    unit: Unit
    n_units: int
    codes: NDArray[np.int64] = field(repr=False)

    def take(self, index: Any) -> "Shares":
        """Return the shares of the rows at `index`: those of a part of the rows add up to no more than those of all."""
        return Shares(self.values[index], self.unit, self.n_units, self.codes[index])

    def by_unit(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return for each unit the sum over its rows of row times share: the unit's part of a sum. It is private."""
        order = np.argsort(self.codes, kind="stable")
        order = order[np.searchsorted(self.codes[order], 0) :]  # without the rows that have no id
        codes = self.codes[order]
        first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[: len(codes)]
        return np.add.reduceat(rows[order] * self.values[order, None], first, axis=0) if len(codes) else rows[:0]

    def of_units(self) -> "Shares":
        """Return the shares of a table that has one row for each unit, such as `by_unit` returns."""
        return Shares(np.full(self.n_units, _MARGIN), self.unit, self.n_units, np.arange(self.n_units))


def person_shares(ids: Any, n_rows: int) -> Shares:
    """Return the shares of rows, given the id of the person that each belongs to.

    A row without an id (None, NaN or an empty text) counts nothing. 17, 17.0, "17" and " 17.0" are one id.

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
    # Of m rows each has the share (1 - 16 eps) / m, rounded: m of them add up to less than 1.
    values = np.where(known, _MARGIN / np.maximum(counts[codes], 1), 0.0)
    return Shares(values, "person", int(np.count_nonzero(counts)), codes)


def row_shares(present: NDArray[np.bool_]) -> Shares:
    """Return shares of 1 for rows that are `present` and 0 for the others, which then count as null rows.

    Examples
    --------
    >>> row_shares(np.array([True, False])).values
    array([1., 0.])
    """
    return Shares(np.asarray(present, dtype=np.float64), "row", len(present), np.arange(len(present)))


def _codes(ids: Any, n_rows: int) -> NDArray[np.int64]:
    """Return a number for each person; -1 for a row without an id."""
    if isinstance(ids, str | bytes):
        raise TypeError("persons must hold the id of each private row's person, one per row. Give the column itself.")
    try:
        array = np.asarray(ids if hasattr(ids, "__array__") else list(ids), dtype=None if _plain(ids) else object)
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    # The number of rows may be private: the message must not show it.
    if array.shape != (n_rows,):
        raise ValueError("persons must hold the id of each private row's person: one column with one id per row.")
    if array.dtype.kind in "iub":
        return np.asarray(np.unique(array, return_inverse=True)[1], dtype=np.int64)
    if array.dtype.kind == "f":
        known = ~np.isnan(array)
        codes = np.full(n_rows, -1, dtype=np.int64)
        codes[known] = np.unique(array[known], return_inverse=True)[1]
        return codes
    texts = _texts(array.astype(object))
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) if text else -1 for text in texts], dtype=np.int64)


def _plain(ids: Any) -> bool:
    """Return whether the ids are an array of numbers, in which equal ids are equal numbers."""
    return isinstance(getattr(ids, "dtype", None), np.dtype) and ids.dtype.kind in "iufb"


def _texts(values: NDArray[Any]) -> Sequence[str]:
    """Return the ids as texts of one form; a missing id is empty."""
    import pandas as pd

    missing = np.asarray(pd.isna(values), dtype=bool)
    return ["" if gone else _text(value) for value, gone in zip(values, missing, strict=True)]


def _text(value: Any) -> str:
    text = str(value).strip()
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text
