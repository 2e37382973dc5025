"""`Rows`: private rows, summed over in blocks of bounded memory. `Shares`: how much each of them counts.

A fit reads its private rows once, maps them from stage to stage (`Blocks.map`), and sums over each stage many times
(`Blocks.results`). The blocks of a stage are in memory, in a file, or on the workers of a cluster. Block k holds the
rows from k `BLOCK_ROWS` on, wherever the rows came from. So every product and every sum has the same operands in the
same order, and one noise seed gives the same model wherever the rows are.

`Rows` and `Blocks` hold private data and release nothing. Their sums are plain arrays; they become a release only after
a function of `mechanisms/bounded.py` has enforced a bound and the ledger has added noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Unit = Literal["row", "person"]
UNITS: tuple[Unit, ...] = ("row", "person")

# The exact sum of a person's shares stays at most 1, though each share is rounded. (A sum that is computed in float64
# can be larger by its own rounding, 1e-12 for a million rows, which is nothing beside the noise.)
SHARE_MARGIN = 1.0 - 16.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Shares:
    """How much each private row counts. Made only by `row_shares` and by `person_shares` (`dpadapt.inputs.persons`).

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
        return replace(self, values=np.full(self.n_units, SHARE_MARGIN), codes=np.arange(self.n_units))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Part:
    """Some consecutive private rows: features, targets or class codes, and how much each row counts (None: 1)."""

    X: NDArray[Any]
    y: NDArray[Any]
    shares: Shares | None = None

    def take(self, index: slice) -> "Part":
        """Return some of the rows; nothing is copied."""
        return Part(self.X[index], self.y[index], None if self.shares is None else self.shares.take(index))


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


# Bytes of a block of numbers that should stay in the cache of a core. Smaller blocks mean more passes of a Python loop.
# Chosen by hand.
CACHE_BYTES = 2**20
# Bytes of features in one block. A step reads a block twice, the second time from the core's own cache if the block
# fits: with 8 MiB, a transfer classifier of 10,000 rows and 134 columns takes 1.5 times as long as with 2, with 1 MiB
# as long.
_ROW_BLOCK_BYTES = 2 * 2**20
# Rows in one block, at least and at most: fewer blocks have less overhead, smaller ones need less memory. Chosen by
# hand.
_ROW_BLOCK_SIZES = (1024, 16384)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block:
    """Some consecutive rows: features, targets, lengths (with the constant 1, if any), their inverses and weights.

    `leverage` is the weight of a row in a descent. `shares` is how much the row counts after clipping; None for 1.
    `fixed_rows`, `splits`: see `Rows`. `start` is the number of rows before this block.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    norms: NDArray[Any]
    inverse_norms: NDArray[Any]
    leverage: NDArray[Any] | None
    intercept: bool
    shares: NDArray[np.float64] | None = None
    fixed_rows: bool = True
    start: int = 0
    splits: NDArray[np.int64] | None = None

    def product(self, coef: NDArray[Any]) -> NDArray[Any]:
        """Return each row times `coef`; if there is a constant 1, the last row of `coef` belongs to it."""
        out = row_products(self.X, coef[:-1] if self.intercept else coef, fixed_rows=self.fixed_rows)
        if self.intercept:
            out += coef[-1]
        return out

    def outer(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over rows of row times weight: shape (features, ...)."""
        total = _products(self.X, weights, self.splits)
        if not self.intercept:
            return total
        return np.concatenate([total, weights.sum(axis=0, dtype=np.float64)[None]])


# Claim: |computed sum - computed sum'| <= C (1 + FLOAT32_EXCESS) for terms of length C in float32. A row that is zeroed
# changes how the sums of all later rows are rounded, which can add up to half of the bound over thousands of rows. So
# products are added up in groups of `_FLOAT32_GROUP` rows, the sums of the groups in pairs, pairs of pairs and so on,
# `_FLOAT32_LEVELS` times, and what is left in float64. A row then changes its own group and one sum on each level. With
# terms of length at most C and u = 2^-24, the sum of a group of G terms is off by at most (G + 1) u G C, and a sum of
# two parts, which holds at most 2^level G terms, by at most u 2^level G C more. Both of two neighbours can be off by
# that much: `FLOAT32_EXCESS` is the most, over C, that rounding adds to their distance. Larger groups take less time
# and round more. Gradients of 1,024 rows, 512 columns and 45 classes take 1.1 times the time of one product in float32,
# with groups of 64 rows 1.2 times; terms are clipped 0.24% shorter, 0.1% with groups of 64.
_FLOAT32_GROUP, _FLOAT32_LEVELS = 128, 4
FLOAT32_EXCESS = 2.0 * _FLOAT32_GROUP * (_FLOAT32_GROUP + 1 + 2 ** (_FLOAT32_LEVELS + 1) - 2) * 2.0**-24


# Rows that are drawn from one range of row numbers, on average (`Rows.take`): few enough that a range seldom has more
# than a group, whose sum would be taken in float64, which is slower.
_DRAWN_ROWS = 96


def _products(X: NDArray[Any], weights: NDArray[Any], splits: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Return X' weights; products in float32 are added up in groups and pairs, and then in float64.

    With `splits`, group k holds the rows from splits[k] to splits[k + 1].
    """
    # (weights' X)' instead of X' weights: with several columns of weights it takes a tenth to two fifths less time.
    if X.dtype != np.float32:
        return np.asarray((weights.T @ X).T)
    columns = weights if weights.ndim == 2 else weights[:, None]
    n, size, long = len(X), _FLOAT32_GROUP, None
    if splits is None:
        groups = n // size
        whole = groups * size
        parts = np.empty((max(1, -(-n // size)), columns.shape[1], X.shape[1]), np.float32)
        grouped = columns[:whole].reshape(groups, size, columns.shape[1]).transpose(0, 2, 1)
        np.matmul(grouped, X[:whole].reshape(groups, size, X.shape[1]), out=parts[:groups])
        if groups < len(parts):
            np.matmul(columns[whole:].T, X[whole:], out=parts[groups])
    else:
        parts = np.empty((len(splits) - 1, columns.shape[1], X.shape[1]), np.float32)
        for part, (first, last) in zip(parts, pairwise(splits.tolist()), strict=True):
            if last - first <= size:
                np.matmul(columns[first:last].T, X[first:last], out=part)
            else:
                # The row that makes a range longer than a group changes its sum from float32 to float64, which is off
                # by less: two neighbours are then no further apart than two sums of groups.
                exact = columns[first:last].T.astype(np.float64) @ X[first:last].astype(np.float64)
                long = exact if long is None else long + exact
                part.fill(0.0)
    for _ in range(_FLOAT32_LEVELS):
        # Of an odd number of parts, one stays as it is.
        kept = (len(parts) + 1) // 2
        parts[: len(parts) - kept] += parts[kept:]
        parts = parts[:kept]
    total = parts.sum(axis=0, dtype=np.float64)
    if long is not None:
        total += long
    return np.asarray(total.T if weights.ndim == 2 else total[0])


def products_by_row(X: NDArray[Any], coef: NDArray[Any]) -> NDArray[Any]:
    """Return X @ coef, with each row computed by itself, bit for bit.

    A matrix product rounds a row by its place: one row more or less changes the last digit of a few others. A sum of
    clipped terms hardly notices while rows are of moderate length. But where results are compared with edges (bins of
    residuals, the most probable class), rows other than the one that was added would change their bins, and no bound
    would hold.

    Examples
    --------
    >>> products_by_row(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    # Of one type, in the order of rows: otherwise einsum works in buffers, whose ends fall anywhere in a row.
    # Claim: the product of a row = its product alone, bit for bit, whatever rows stand beside it. Each row is a call,
    # or has a place in a part of fixed size.
    # Not proved: that a row has the same product in every place of a part; it is tried for each size with made-up rows.
    rows, coef = (np.ascontiguousarray(part, dtype=np.result_type(X, coef)) for part in (X, coef))
    if coef.ndim == 1:
        return np.asarray(np.einsum("ij,j->i", rows, coef))
    if not _same_in_every_place(*coef.shape, coef.dtype):
        return np.stack([products_by_row(rows, column) for column in coef.T], axis=1)
    n, size = len(rows), _PART_ROWS
    whole = n // size * size
    products = np.empty((n, coef.shape[1]), coef.dtype)
    products[:whole] = _part_products(rows[:whole], coef)
    if whole < n:
        rest = np.zeros((size, rows.shape[1]), rows.dtype)
        rest[: n - whole] = rows[whole:]
        products[whole:] = _part_products(rest, coef)[: n - whole]
    return products


# Rows of a part whose product with several columns is one call. All parts have this number, so that they are computed
# alike. With 64 rows, 1,024 rows of 512 columns times 45 take 1.4 times as long.
_PART_ROWS = 32


def _part_products(rows: NDArray[Any], coef: NDArray[Any]) -> NDArray[Any]:
    """Return rows @ coef, part by part."""
    return np.asarray(rows.reshape(-1, _PART_ROWS, rows.shape[1]) @ coef).reshape(len(rows), coef.shape[1])


@cache
def _same_in_every_place(n_features: int, n_scores: int, dtype: np.dtype[Any]) -> bool:
    """Return whether the product of a row has the same bits in every place of a part, found out with made-up rows.

    It depends on the linear algebra library, which may treat the last rows of a part in another way.
    """
    random = np.random.default_rng(0)
    shapes = (_PART_ROWS, n_features), (n_features, n_scores)
    rows, coef = (random.standard_normal(shape).astype(dtype) for shape in shapes)
    expected = _part_products(rows, coef)
    return all(
        np.array_equal(_part_products(np.roll(rows, shift, axis=0), coef), np.roll(expected, shift, axis=0))
        for shift in range(1, _PART_ROWS)
    )


def row_products(X: NDArray[Any], coef: NDArray[Any], *, fixed_rows: bool) -> NDArray[Any]:
    """Return X @ coef, row by row unless neighbours have equally many rows.

    Where a row may be missing, all rows after it change their places, and a matrix product rounds them differently. Of
    a row of length 1e9 whose product almost cancels, this rounding can be all that a clipped gradient shows; so a sum
    could move by several clipping norms. Equally many rows keep their places.
    """
    return np.asarray(X @ coef) if fixed_rows else products_by_row(X, coef)


class Rows:
    """Private rows in the memory of this process.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features, float32 or float64; copied only if a row is not finite. Such a row counts as a null row.
    y : ndarray of shape (n_rows,)
        Targets or class codes.
    intercept : bool
        Whether every row has a further feature, the constant 1, which is not stored.
    max_norm : float
        A longer row has weight (max_norm / length)² in a descent, so that no row dominates the curvature.
    shares : Shares, optional
        How much each row counts after clipping. Default: 1.
    fixed_rows : bool
        Whether neighbours have equally many rows; if not, products are computed row by row. A caller whose rows are no
        longer than public ones need not say so: what rounding adds is then negligible.
    """

    def __init__(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        *,
        intercept: bool = False,
        max_norm: float = math.inf,
        shares: Shares | None = None,
        fixed_rows: bool = True,
    ) -> None:
        self.fixed_rows = fixed_rows
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        if shares is not None and len(shares.values) != len(X):
            raise ValueError("shares must have one entry per row.")
        self.shares = shares
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        # In one order of memory, whether a row is null or not: products of rows depend on it.
        X = np.ascontiguousarray(X)
        # Where groups of rows that are added up in float32 end, for a random sample (`take`).
        self.splits: NDArray[np.int64] | None = None
        with np.errstate(all="ignore"):
            # The squared length is infinite or NaN exactly if the row can't be used, so one pass is enough.
            squares = np.einsum("ij,ij->i", X, X)
            finite = np.isfinite(squares)
            if y.dtype.kind == "f":
                finite &= np.isfinite(y)
            if not finite.all():
                X, y = np.where(finite[:, None], X, 0), np.where(finite, y, 0)
                squares = np.where(finite, squares, 0)
            self.X = X
            self.y = y
            self.intercept = intercept
            self.norms = norm_bounds(squares + X.dtype.type(intercept), X.shape[1] + 1)
            # Claim: the term of a row that is not finite = 0. An infinite length gives weight 0, also to its constant.
            self.norms[~finite] = np.inf
            self.inverse_norms = 1 / self.norms
            self.leverage = np.minimum(max_norm / self.norms, 1.0) ** 2 if math.isfinite(max_norm) else None

    @property
    def unit(self) -> Unit:
        """What a bound on the terms of these rows protects."""
        return "row" if self.shares is None else self.shares.unit

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of features of a row, with the constant."""
        return int(self.X.shape[1]) + self.intercept

    def take(self, index: NDArray[np.int64] | slice, rate: float | None = None) -> "Rows":
        """Return the rows at `index`, a random sample; a slice stands for all rows.

        Whether a row is drawn changes the places of all later rows. So the product of each row is computed by itself,
        and sums in float32 are taken over groups that belong to fixed ranges of row numbers: a row then changes the sum
        of its own range alone, as in `FLOAT32_EXCESS`. The ranges follow from `rate`, the rate of the sample. Without
        it, the rows are returned in float64, where rounding does not matter.
        """
        if isinstance(index, slice):
            return self
        taken = object.__new__(Rows)
        taken.X, taken.y, taken.norms = self.X.take(index, axis=0), self.y[index], self.norms[index]
        taken.inverse_norms, taken.splits = self.inverse_norms[index], None
        taken.leverage = None if self.leverage is None else self.leverage[index]
        taken.shares = None if self.shares is None else self.shares.take(index)
        taken.intercept, taken.fixed_rows = self.intercept, False
        if taken.X.dtype == np.float32 and rate is None:
            taken.X = taken.X.astype(np.float64)
            # Upper bounds stay so after their inverse is rounded.
            taken.norms = taken.norms.astype(np.float64)
            taken.inverse_norms = 1 / taken.norms
        elif taken.X.dtype == np.float32 and rate is not None:
            # Claim: the row that is drawn or not changes 1 group of float32 sums. Groups are ranges of row numbers.
            width = math.ceil(_DRAWN_ROWS / rate)
            taken.splits = np.searchsorted(index, np.arange(0, self.n_rows + width, width))
        return taken

    def map_sum(self, statistic: Callable[[Block], NDArray[Any]]) -> NDArray[np.float64]:
        """Return the sum of `statistic` over blocks, in float64."""
        least, most = _ROW_BLOCK_SIZES
        size = min(max(_ROW_BLOCK_BYTES // max(1, self.X.shape[1] * self.X.itemsize), least), most)
        # Of a sample, a block has a number of ranges, not of rows: then no row changes which block another one is in.
        length, size = (self.n_rows, size) if self.splits is None else (len(self.splits) - 1, size // _DRAWN_ROWS)
        # A batch of little more than a block is one block: a second one of a few rows is mostly overhead.
        if length <= size + size // 4:
            return statistic(self._block(0, length)).astype(np.float64, copy=False)
        total = statistic(self._block(0, size)).astype(np.float64)
        for start in range(size, length, size):
            total += statistic(self._block(start, start + size))
        return total

    def _block(self, start: int, stop: int) -> Block:
        """Return the rows, or of a sample the ranges, from `start` to `stop`."""
        splits = None
        if self.splits is not None:
            splits = self.splits[start : stop + 1]
            start, stop = int(splits[0]), int(splits[-1])
            splits = splits - start
        leverage = None if self.leverage is None else self.leverage[start:stop]
        lengths = self.norms[start:stop], self.inverse_norms[start:stop]
        shares = None if self.shares is None else self.shares.values[start:stop]
        rows = self.X[start:stop], self.y[start:stop]
        return Block(*rows, *lengths, leverage, self.intercept, shares, self.fixed_rows, start, splits)


def norm_bounds(squares: NDArray[Any], n_terms: int) -> NDArray[Any]:
    """Return upper bounds, never 0, on lengths whose squares were computed as sums of `n_terms` squares."""
    info = np.finfo(squares.dtype)
    # Claim: |row| <= the bound returned, which is above 0. A computed sum is too small by at most n_terms rounding
    # errors, plus `tiny` for each square that underflows. Without the latter a row of 1e-25 in float32 would have
    # length 0, and its product with a weight would have no bound.
    floor, margin = n_terms * float(info.tiny), 1 + n_terms * float(info.eps)
    return np.asarray(np.sqrt(squares + squares.dtype.type(floor)) * squares.dtype.type(margin))


# Rows in blocks

P = TypeVar("P")
Q = TypeVar("Q")

# Rows of a block: few enough for some blocks to fit beside each other in little memory, and so many that the overhead
# of a block is small beside its sums. Another number changes how sums are rounded.
BLOCK_ROWS = 16_384


class Blocks(ABC, Generic[P]):
    """Private rows in blocks, each of which is an object that holds arrays.

    Functions that are given to `map` and `results` may be sent to another machine: they must be picklable (closures
    are) and must hold neither a ledger nor a run.
    """

    n_rows: int

    @abstractmethod
    def map(self, function: Callable[[P], Q]) -> "Blocks[Q]":
        """Return what `function` makes of each block, computed once and kept where these blocks are."""

    @abstractmethod
    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block, in the order of the blocks. Private.

        With `own`, the function gets the entry of its block as a second argument.
        """


class InMemory(Blocks[P]):
    """Blocks in the memory of this process.

    Examples
    --------
    >>> blocks = InMemory([[1, 2], [3]], 3)
    >>> list(blocks.map(sum).results(lambda total: 10 * total))
    [30, 30]
    """

    def __init__(self, parts: Iterable[P], n_rows: int) -> None:
        self._parts = list(parts)
        self.n_rows = n_rows

    def map(self, function: Callable[[P], Q]) -> "InMemory[Q]":
        """Return what `function` makes of each block."""
        return InMemory(map(function, self._parts), self.n_rows)

    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block."""
        return map(function, self._parts) if own is None else map(function, self._parts, own)


def rows_by_block(index: NDArray[np.int64], n_rows: int) -> list[NDArray[np.int64]]:
    """Return the rows at `index`, which is sorted, by their places in each block.

    Examples
    --------
    >>> rows_by_block(np.array([3, BLOCK_ROWS, BLOCK_ROWS + 5]), BLOCK_ROWS + 6)
    [array([3]), array([0, 5])]
    """
    starts = np.array([one.start for one in block_slices(n_rows)])
    parts = np.split(index, np.searchsorted(index, starts[1:]))
    return [part - start for part, start in zip(parts, starts, strict=True)]


def block_slices(n_rows: int) -> list[slice]:
    """Return where each block of a table begins and ends; a table without rows has one empty block."""
    return [slice(start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, max(n_rows, 1), BLOCK_ROWS)]
