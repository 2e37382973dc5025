"""`Bounded`: a statistic together with the most that one record can move it, and the functions that enforce it.

Only the functions of this file and of the `bounded_*.py` beside it make a `Bounded`. Each states its inequality above
the line that returns. The bound is that of one record becoming null (ZERO_OUT) or appearing or vanishing (ADD_REMOVE);
REPLACE_ONE is at most twice that, or the tighter figure that the maker proves. Rows that are not finite count as null
rows everywhere.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import Block, Rows, norm_bounds

Norm = Literal["l1", "l2", "linf"]
# Spelt out once: in an inner function the annotation would be evaluated at every step of a descent.
Array = NDArray[Any]

_SINGLE = np.dtype(np.float32)
_SINGLE_TINY = float(np.finfo(np.float32).tiny)
# A term that would have to be scaled down further than this counts as null.
_LEAST_FACTOR = 2.0**-80


@dataclass(frozen=True, eq=False)
class Bounded:
    """A private value and the most one record can move it.

    Parameters
    ----------
    value : ndarray
        Computed from private rows; it leaves only through `Ledger.release`.
    l1, l2, linf : float, optional
        The most that zeroing one record moves `value`, in that norm. A missing one follows from those given.
    replaced : mapping, optional
        Bounds under REPLACE_ONE that are tighter than twice the above.
    monotone : bool
        Whether a further record moves every coordinate up or not at all.
    n_categories : int, optional
        For one categorical answer per record (`responses`): how many answers there are.
    fixed_rows : bool
        Whether the bounds hold only between data sets with equally many rows: there is an entry per record, or a sum
        is rounded to single precision, where taking a row out rounds all that follow anew.
    """

    value: NDArray[Any] = field(repr=False)
    l1: float | None = None
    l2: float | None = None
    linf: float | None = None
    replaced: Mapping[Norm, float] = field(default_factory=dict)
    monotone: bool = False
    n_categories: int | None = None
    fixed_rows: bool = False

    def sensitivity(self, norm: Norm, adjacency: Adjacency, *, doubled: bool = False) -> float:
        """Return the most that one record can move the value, in `norm`, under `adjacency`.

        Under REPLACE_ONE, `doubled` asks for twice the zero-out bound even where a tighter one is proved: the analysis
        of Poisson sampling needs both neighbours' terms bounded one by one.
        """
        # |v|_inf <= |v|_2 <= |v|_1: a bound in a later norm of the chain bounds the earlier ones.
        bound = math.inf if self.l1 is None else self.l1
        if norm != "l1" and self.l2 is not None and self.l2 < bound:
            bound = self.l2
        if norm == "linf" and self.linf is not None and self.linf < bound:
            bound = self.linf
        if not bound < math.inf:
            raise PrivacyError(f"this statistic has no {norm} bound; use a mechanism for the norm it is bounded in.")
        if adjacency is not Adjacency.REPLACE_ONE:
            if self.fixed_rows and adjacency is Adjacency.ADD_REMOVE:
                raise PrivacyError(
                    "this statistic is bounded only while the number of rows is public: it has an entry per row, or "
                    "was summed in float32. Use zero-out or replace-one adjacency, or float64 rows."
                )
            return bound
        # Replacing a record is zeroing it and then un-zeroing the other: at most twice as far.
        return 2 * bound if doubled else min(2 * bound, self.replaced.get(norm, math.inf))


def clipped_sum(rows: ArrayLike, clip_norm: float) -> Bounded:
    """Sum rows, each first scaled down to l2 length `clip_norm` at most.

    Examples
    --------
    >>> clipped_sum([[3.0, 4.0], [0.3, 0.4]], 1.0).value.round(3)
    array([0.9, 1.2])
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")
    array = _finite_rows(rows)
    # Not -1: an empty batch has a shape too.
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    lengths = norm_bounds(np.einsum("ij,ij->i", flat, flat), flat.shape[1])
    total = flat.T @ _shrink(lengths, clip_norm)
    # Every scaled row has length <= clip_norm, and zeroing one record moves the sum by its row alone.
    return Bounded(total.reshape(array.shape[1:]), l2=clip_norm)


def clipped_outer_sum(rows: Rows, weights: Callable[[Block], NDArray[Any]], clip_norm: float) -> Bounded:
    """Sum row times weight over `rows`, each such outer product first scaled down to length `clip_norm` at most.

    This is the sum of per-example gradients of any generalised linear model, without ever storing one of them.
    `weights` may change the array it returns only: it is scaled in place.
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")

    def clipped(block: Block) -> Array:
        weight = weights(block)
        # |x r'|_F = |x| |r|, so scaling r down to clip_norm / |x| bounds the term by clip_norm.
        limit = _margin(clip_norm, weight.dtype) * block.inverse_norms
        if weight.ndim == 1:
            # Two ufuncs cost a third of np.clip.
            np.minimum(weight, limit, out=weight)
            np.maximum(weight, np.negative(limit, out=limit), out=weight)
            # Limits are finite, so only what is not a number can be left, and it would show in every entry of the sum.
            total = block.outer(weight)
            if total.size and math.isnan(total[0]):
                weight[np.isnan(weight)] = 0
                total = block.outer(weight)
            return total
        squares = np.einsum("ij,ij->i", weight, weight)
        finite = np.isfinite(squares)
        if not finite.all():
            weight[~finite] = 0
            squares[~finite] = 0
        # An overflow here is a factor above 1.
        factor = np.minimum(limit / norm_bounds(squares, weight.shape[1]), 1.0)
        # A factor too small to be a normal number may have been rounded up by any amount.
        factor[factor < np.finfo(factor.dtype).tiny] = 0
        weight *= factor[:, None]
        return block.outer(weight)

    # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        total = rows.map_sum(clipped)
    # Zeroing one record moves the sum by its term alone.
    return Bounded(total, l2=clip_norm, fixed_rows=rows.X.dtype == np.float32)


def clipped_term_sum(
    parts: Iterable[tuple[Array, Callable[[Array], Array]]], n_numbers: int, clip_norm: float
) -> Bounded:
    """Sum vectors of `n_numbers` numbers, one per record, each first scaled down to length `clip_norm` at most.

    For terms that are never stored, such as the gradients of a network. Each of `parts` stands for some records: upper
    bounds on the lengths of their terms, and a function that takes a factor per record and returns the sum of factor
    times term. A record whose factor is 0 must add nothing, whatever its term is.
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")
    total: Array = np.zeros(checks.count(n_numbers, "n_numbers"))
    # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        for lengths, combine in parts:
            # Terms are summed in float32, so factors leave its rounding a margin.
            factors = np.minimum(_margin(clip_norm, _SINGLE) / np.maximum(lengths, _SINGLE_TINY), 1.0)
            # Null: lengths that are not finite, and factors that would be rounded up by any amount in float32.
            factors[~(np.isfinite(lengths) & (factors >= _LEAST_FACTOR))] = 0
            total += combine(factors)
    # factor * term <= clip_norm / length * length, so every term adds at most clip_norm, and zeroing one record moves
    # the sum by its term alone. This needs lengths that bound the terms: tests/networks measures that they do.
    return Bounded(total, l2=clip_norm)


def clipped_gram(rows: Rows | ArrayLike, clip_norm: float) -> Bounded:
    """Sum the outer product of each row with itself, rows first scaled down to length `clip_norm` at most.

    The release may be made symmetric afterwards (`(G + G.T) / 2`); that also halves the variance off the diagonal.
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")
    if not isinstance(rows, Rows):
        array = _finite_rows(rows)
        rows = Rows(array, np.zeros(len(array)))

    def scaled(block: Block) -> Array:
        X = block.X if not block.intercept else np.column_stack([block.X, np.ones(len(block.X), block.X.dtype)])
        X = X * _shrink(block.norms, clip_norm)[:, None]
        return np.asarray(X.T @ X)

    # |xx'|_F = |x|² <= clip_norm². Replacing x by z: |xx' - zz'|² = |x|⁴ + |z|⁴ - 2 (x'z)² <= 2 clip_norm⁴.
    square = clip_norm**2
    single = rows.X.dtype == np.float32
    return Bounded(rows.map_sum(scaled), l2=square, replaced={"l2": math.sqrt(2) * square}, fixed_rows=single)


def histogram(codes: ArrayLike, n_bins: int) -> Bounded:
    """Count how many records have each code in range(n_bins). Any other code counts nowhere.

    Examples
    --------
    >>> histogram([0, 2, 2, 7], 3).value
    array([1, 0, 2])
    """
    n_bins = checks.count(n_bins, "n_bins")
    array = _one_code_each(codes)
    known = (array >= 0) & (array < n_bins) & (array == np.floor(array))
    counts = np.bincount(array[known].astype(np.int64), minlength=n_bins)
    # One record is one unit in one bin. Replacing it moves that unit: two bins change by one each.
    return Bounded(
        counts.astype(np.int64),
        l1=1.0,
        l2=1.0,
        linf=1.0,
        replaced={"l1": 2.0, "l2": math.sqrt(2), "linf": 1.0},
        monotone=True,
    )


def votes(ballots: ArrayLike) -> Bounded:
    """Add up ballots: each record gives every one of k candidates between 0 and 1. Integers stay integers.

    Examples
    --------
    >>> votes([[1, 0], [1, 1], [5, 0]]).value
    array([3, 1])
    """
    array = np.asarray(ballots)
    if array.ndim != 2:
        raise ValueError(f"ballots must have one row per record and one column per candidate, got {array.ndim} axes.")
    whole = array.dtype.kind in "bui"
    array = np.clip(array.astype(np.int64) if whole else _finite_rows(array), 0, 1)
    k = float(array.shape[1])
    # Every entry lies in [0, 1], so zeroing or replacing one record moves each candidate by at most 1.
    bounds: dict[Norm, float] = {"l1": k, "l2": math.sqrt(k), "linf": 1.0}
    return Bounded(array.sum(axis=0), l1=k, l2=math.sqrt(k), linf=1.0, replaced=bounds, monotone=True)


def responses(codes: ArrayLike, n_categories: int) -> Bounded:
    """Hold one answer in range(n_categories) per record, for `RandomizedResponse`. Any other code becomes 0."""
    n_categories = checks.count(n_categories, "n_categories", least=2)
    array = _one_code_each(codes)
    known = (array >= 0) & (array < n_categories) & (array == np.floor(array))
    # One record owns one entry of the vector.
    return Bounded(np.where(known, array, 0).astype(np.int64), n_categories=n_categories)


def _one_code_each(codes: ArrayLike) -> NDArray[Any]:
    array = np.asarray(codes)
    if array.ndim != 1:
        raise ValueError(f"codes must have one entry per record, got {array.ndim} axes. A record can't count twice.")
    return array


def _finite_rows(rows: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim < 2:
        raise ValueError(f"rows must have one row per record, got {array.ndim} axes. Reshape scalars to (n, 1).")
    finite = np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if finite.all():
        return array
    return np.where(finite.reshape(-1, *[1] * (array.ndim - 1)), array, 0.0)


def _shrink(lengths: NDArray[Any], clip_norm: float) -> NDArray[Any]:
    """Return the factors that bring `lengths` down to `clip_norm`; a length of inf gives 0."""
    safe = np.maximum(lengths, np.finfo(lengths.dtype).tiny)
    return np.asarray(np.minimum(_margin(clip_norm, lengths.dtype) / safe, 1.0), dtype=lengths.dtype)


def _margin(clip_norm: float, dtype: np.dtype[Any]) -> Any:
    """Return `clip_norm` less a few rounding errors, so that no rounding carries a term over the bound."""
    info = np.finfo(dtype)
    # Lengths go up to sqrt(max) < 2 / sqrt(tiny); below this, clip_norm over a length may not be a normal number.
    if clip_norm < 2 * math.sqrt(float(info.tiny)):
        return dtype.type(0)
    return dtype.type(clip_norm * (1 - 16 * float(info.eps)))


# `Bounded` scores of candidates: how much weight records give to each, without a table of records by candidates.


FloatArray = NDArray[np.float64]


def weighted_votes(ballots: Iterable[NDArray[Any]], weights: ArrayLike) -> Bounded:
    """Add up, for each candidate, the weights of the records that vote for it; weights are held to [0, 1].

    Parameters
    ----------
    ballots : iterable of bool arrays
        One per candidate, with an entry per record.
    weights : array of shape (n_records,)
        What is not finite counts as 0.

    Examples
    --------
    >>> weighted_votes([np.array([True, True]), np.array([False, True])], [1.0, 0.25]).value
    array([1.25, 0.25])
    """
    held = held_weights(weights)
    # A vote is a yes or a no: anything else would be another weight.
    scores = np.array([float(held[np.asarray(ballot, dtype=bool)].sum()) for ballot in ballots], dtype=np.float64)
    return _scores(scores)


def threshold_votes(ranks: ArrayLike, inside: ArrayLike, weights: ArrayLike, n_thresholds: int) -> Bounded:
    """Add up the weights of the records that each of several rules with each of several thresholds gets right.

    Parameters
    ----------
    ranks : int array of shape (n_records, n_rules)
        The first threshold that has the record inside, from 0; `n_thresholds` if none has.
    inside : bool array of shape (n_records,)
        Whether the record belongs inside.
    weights : array of shape (n_records,)
        Held to [0, 1]; what is not finite counts as 0.
    n_thresholds : int

    Returns
    -------
    Bounded
        Of shape (n_rules, n_thresholds).

    Examples
    --------
    >>> threshold_votes([[0], [1], [2]], [True, True, False], [1.0, 1.0, 0.5], 3).value
    array([[1.5, 2.5, 2. ]])
    """
    n_thresholds = checks.count(n_thresholds, "n_thresholds")
    table = np.clip(np.asarray(ranks, dtype=np.int64), 0, n_thresholds)
    if table.ndim != 2:
        raise ValueError(f"ranks must have one row per record and one column per rule, got {table.ndim} axes.")
    belongs, held = np.asarray(inside, dtype=bool), held_weights(weights)
    scores = np.empty((table.shape[1], n_thresholds))
    for rule in range(table.shape[1]):
        ins = np.bincount(table[belongs, rule], held[belongs], minlength=n_thresholds + 1)[:n_thresholds]
        outs = np.bincount(table[~belongs, rule], held[~belongs], minlength=n_thresholds + 1)[::-1]
        # Inside records are right from their rank on, outside ones before it.
        scores[rule] = np.cumsum(ins) + np.cumsum(outs)[::-1][1:]
    return _scores(scores)


def held_weights(weights: ArrayLike) -> FloatArray:
    """Return weights held to [0, 1]; what is not finite becomes 0."""
    held = np.array(weights, dtype=np.float64)
    held[~np.isfinite(held)] = 0.0
    return np.clip(held, 0.0, 1.0, out=held)


def _scores(scores: FloatArray) -> Bounded:
    # A record adds between 0 and 1 to each candidate: zeroing, adding or replacing it moves each by at most 1, and a
    # further record lowers none.
    n = float(scores.size)
    return Bounded(scores, l1=n, linf=1.0, replaced={"l1": n, "linf": 1.0}, monotone=True)
