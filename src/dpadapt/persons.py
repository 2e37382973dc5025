"""`Shares`: how much each private row counts where a person may have several rows, and whose protection follows.

If the unit of privacy is the person, a row counts 1 / (number of rows of its person). Every bounded statistic
multiplies a row's term by that share after clipping it. With terms c_i of length at most C and shares s_i >= 0 that
add up to at most 1 over a person's rows, the person's part Σ s_i c_i has length at most C: a sum then moves by no more
for a whole person than it did for one row. A share depends on the rows of its own person alone, so no other term moves.
Sample weights (`dpadapt.weights`) only make shares smaller, so that the same holds.
"""

import numbers
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Unit = Literal["row", "person"]
UNITS: tuple[Unit, ...] = ("row", "person")

# A whole number, as text: "+17.0" is the same id as 17. Leading zeros stay: "017" may be another id than "17".
_WHOLE = re.compile(r"([+-]?)(\d+)(\.0*)?")
# Texts that stand for a missing id.
_MISSING = frozenset({"", "nan", "none", "null", "nat", "<na>"})
# The exact sum of a person's shares stays at most 1, though each share is rounded. (A sum that is computed in float64
# can be larger by its own rounding, 1e-12 for a million rows, which is nothing beside the noise.)
_MARGIN = 1.0 - 16.0 * float(np.finfo(np.float64).eps)
# For receipts.
IDS_ASSUMPTION = "that every id is a whole number or a text, or a decimal number that is exact"


def ids_assumption(column: str) -> str:
    """Return for a receipt which column of a table holds the ids."""
    return f"the ids of persons: the column {column!r}"


@dataclass(frozen=True, eq=False)
class Shares:
    """How much each private row counts. Made only by `person_shares` and `row_shares`, and made less by `weighted`.

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
    counted : float, optional
        With sample weights: their mean over `max_weight` as it is assumed, a public number. None without weights.
    """

    values: NDArray[np.float64] = field(repr=False)
    unit: Unit
    n_units: int
    codes: NDArray[np.int64] = field(repr=False)
    counted: float | None = None

    def take(self, index: Any) -> "Shares":
        """Return the shares of the rows at `index`: those of a part of the rows add up to no more than those of all."""
        return replace(self, values=self.values[index], codes=self.codes[index])

    def where(self, present: NDArray[np.bool_]) -> "Shares":
        """Return the same with 0 for the rows that are not `present`. The number of units stays, whoever is left."""
        return replace(self, values=np.where(present, self.values, 0.0))

    def by_unit(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return for each unit the sum over its rows of row times share: the unit's part of a sum. It is private."""
        order = np.argsort(self.codes, kind="stable")
        order = order[np.searchsorted(self.codes[order], 0) :]  # without the rows that have no id
        codes = self.codes[order]
        first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[: len(codes)]
        return np.add.reduceat(rows[order] * self.values[order, None], first, axis=0) if len(codes) else rows[:0]

    def of_units(self) -> "Shares":
        """Return the shares of a table that has one row for each unit, such as `by_unit` returns."""
        return replace(self, values=np.full(self.n_units, _MARGIN), codes=np.arange(self.n_units))


def person_shares(ids: Any, n_rows: int) -> Shares:
    """Return the shares of rows, given the id of the person that each belongs to.

    A row without an id (None, NaN, an empty text or one such as "NaN") counts nothing, and nor does one whose id can't
    be read or is a decimal number too large to be exact. 17, 17.0, "17" and " 17.0" are one id.

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


def joined_shares(parts: Sequence[Shares]) -> Shares:
    """Return the shares of all rows, given those of consecutive parts of one table."""
    values, codes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "codes"))
    return replace(parts[0], values=values, codes=codes)


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
    largest = 2.0**53
    dtype = getattr(ids, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        largest = min(largest, 2.0 ** (np.finfo(dtype).nmant + 1))
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
        if not abs(number) < largest:
            return ""  # two persons may have become one
        return str(int(number)) if number.is_integer() else str(number)
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    # One form for letters that look the same, and no invisible characters.
    text = "".join(c for c in unicodedata.normalize("NFKC", str(value)) if unicodedata.category(c) != "Cf").strip()
    if text.casefold() in _MISSING:
        return ""
    whole = _WHOLE.fullmatch(text)
    if not whole:
        return text
    sign, digits, _ = whole.groups()
    return digits if sign != "-" or not digits.strip("0") else f"-{digits}"
