"""`Bounded`: a statistic with its sensitivity, and the functions that make one: clipped sums, histograms, votes.

Only this file, `bounded_neighbours.py`, `papers/adaptation/bounded_losses.py` and `papers/reweigh/parity.py` make a
`Bounded`. Each maker enforces its bound and states the inequality above the line that returns. The bound holds when one
record becomes null (ZERO_OUT) or is added or removed (ADD_REMOVE). Under REPLACE_ONE it is twice that, or the tighter
bound that the maker proves. Rows that are not finite count as null rows.

Makers that take `shares` multiply the term of a row by its share, after clipping. The shares of one person's rows add
up to at most 1 (`dpadapt.rows.Shares`), so the person's part is at most as long as one clipped term, and every bound
holds for a whole person. Each maker proves what it needs beyond that.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.prefix_sums import furthest_columns, root_length, times_root
from dpadapt.rows import FLOAT32_EXCESS, Block, Blocks, Rows, Shares, Unit, norm_bounds

Norm = Literal["l1", "l2", "linf"]
# A name for the type: inside an inner function the annotation would be evaluated at every step of a descent.
Array = NDArray[Any]

_FLOAT32 = np.dtype(np.float32)
# Largest clipping norm of float64 and of float32 rows: the limits of the weights of a row of length above `tiny`, and
# the sum of all rows, stay finite.
_MOST_CLIP_NORM = (2.0**500, 2.0**60)
# Factor, no unit. `clipped_term_sum` drops a term that it would have to scale down further than this. It lies far above
# the least normal float32 (2^-126), so that no factor is rounded up. Chosen by hand.
_LEAST_TERM_FACTOR = 2.0**-80


@dataclass(frozen=True, eq=False)
class Bounded:
    """A private statistic and its sensitivity: the most that one record can move it.

    Parameters
    ----------
    value : ndarray
        Computed from private rows; it leaves only through the ledger.
    l1, l2, linf : float, optional
        The most that zeroing one record moves `value`, in that norm. A missing bound follows from those given.
    replaced : mapping, optional
        Bounds under REPLACE_ONE that are tighter than twice the above.
    monotone : bool
        Whether a further record lowers no coordinate.
    n_categories : int, optional
        Number of possible answers, where the value holds one categorical answer per record (`responses`).
    fixed_rows : bool
        Whether the bounds hold only between data sets with equally many rows. This is so if the value has an entry per
        record, or if it is a sum in float32: there, leaving a row out changes how all following sums are rounded.
    per_row : bool
        Whether the value has an entry per record. On a random sample its length would show who was drawn.
    unit : {"row", "person"}
        What a record is: one row, or all rows of one person.
    batch : object, optional
        The batch whose rows the value was computed from; set by `Batch.of` and checked by `Run.release`.
    """

    value: NDArray[Any] = field(repr=False)
    l1: float | None = None
    l2: float | None = None
    linf: float | None = None
    replaced: Mapping[Norm, float] = field(default_factory=dict)
    monotone: bool = False
    n_categories: int | None = None
    fixed_rows: bool = False
    per_row: bool = False
    unit: Unit = "row"
    batch: object = field(default=None, repr=False)
    _like: ClassVar["Bounded | None"] = None

    def of_batch(self, batch: object) -> "Bounded":
        """Return this statistic with `batch` as the batch that it was computed from."""
        # As `replace`, at a fifth of its time: a descent does this at every step.
        # Claim: value and bounds stay = those of this statistic. The batch alone is set, and `Run.release` checks it.
        marked = object.__new__(Bounded)
        marked.__dict__.update(self.__dict__, batch=batch)
        return marked

    def with_value(self, value: NDArray[Any]) -> "Bounded":
        """Return another value with these bounds. Only a function that enforces them for this value may call it."""
        # Claim: the bounds stay = those of this statistic. That they hold for `value` is what each caller claims.
        other = object.__new__(Bounded)
        other.__dict__.update(self.__dict__, value=value, _like=self)
        return other

    def bounded_as(self, other: "Bounded") -> bool:
        """Return whether noise that suits `other` suits this statistic: the bounds, the unit and the shape agree."""
        if self._like is not None and self._like is other._like:
            # The usual case in a descent: both have the bounds of one statistic, by `with_value`.
            return bool(self.value.shape == other.value.shape)
        return (
            self.l2 == other.l2
            and self.l1 == other.l1
            and self.linf == other.linf
            and self.replaced == other.replaced
            and self.monotone == other.monotone
            and self.n_categories == other.n_categories
            and self.fixed_rows == other.fixed_rows
            and self.per_row == other.per_row
            and self.unit == other.unit
            and self.value.shape == other.value.shape
            and self.value.dtype == other.value.dtype
        )

    def sensitivity(self, norm: Norm, adjacency: Adjacency, *, doubled: bool = False) -> float:
        """Return the most that one record can move the value, in `norm`, under `adjacency`.

        With `doubled`, which is for releases on Poisson samples, the answer under REPLACE_ONE is twice the zero-out
        bound even where a tighter one is proved: the analysis of Poisson sampling needs a bound on the term of each
        neighbour by itself.
        """
        if doubled and self.per_row:
            raise PrivacyError(
                "this statistic has an entry per row, so on a random sample it would show which rows were drawn. "
                "Release it on all rows."
            )
        # Claim: |v|_inf <= |v|_2 <= |v|_1, and replacing a record moves a value at most twice as far. So a bound in a
        # later norm of this chain also bounds the earlier norms.
        bound = math.inf if self.l1 is None else self.l1
        if norm != "l1" and self.l2 is not None and self.l2 < bound:
            bound = self.l2
        if norm == "linf" and self.linf is not None and self.linf < bound:
            bound = self.linf
        if not bound < math.inf:
            raise PrivacyError(f"this statistic has no {norm} bound. Use a mechanism for a norm in which it has one.")
        # How many rows a person has is private, so neighbours may have different numbers of rows.
        if self.fixed_rows and (adjacency is Adjacency.ADD_REMOVE or self.unit == "person"):
            raise PrivacyError(
                "this statistic is bounded only if the number of rows is public: it has an entry per row, or was "
                "summed in float32. Use zero-out or replace-one adjacency without persons, or float64 rows."
            )
        if adjacency is not Adjacency.REPLACE_ONE:
            return bound
        # Replacing a record is zeroing it and then putting the other in its place.
        return 2 * bound if doubled else min(2 * bound, self.replaced.get(norm, math.inf))


def clipped_sum(rows: ArrayLike, clip_norm: float, shares: Shares | None = None) -> Bounded:
    """Sum rows, each first clipped to l2 length `clip_norm`, and then multiplied by its share.

    Examples
    --------
    >>> clipped_sum([[3.0, 4.0], [0.3, 0.4]], 1.0).value.round(3)
    array([0.9, 1.2])
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")
    array = _finite_rows(rows)
    # Not -1, which NumPy can't work out for an empty batch.
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        lengths = norm_bounds(np.einsum("ij,ij->i", flat, flat), flat.shape[1])
        total = flat.T @ _shared(_clip_factors(lengths, clip_norm), shares)
    # Claim: |sum - sum'|_2 <= clip_norm. |clipped row| <= clip_norm, and zeroing one record moves the sum by its
    # clipped row alone.
    # Not proved: that rounding of the sum adds little. Of n rows it is at most 2 n² 2⁻⁵³ clip_norm, and noise does not
    # account for it.
    return Bounded(total.reshape(array.shape[1:]), l2=clip_norm, unit=_unit(shares))


def added(parts: Iterable[Bounded]) -> Bounded:
    """Add up one statistic over blocks of rows. It must be a sum over rows, and every row must be in one block.

    Examples
    --------
    >>> added(clipped_sum(block, 1.0) for block in ([[3.0, 4.0]], [[0.3, 0.4]])).value.round(3)
    array([0.9, 1.2])
    """
    whole: Bounded | None = None
    for part in parts:
        if part.per_row or part.n_categories is not None or part.batch is not None:
            raise PrivacyError("only a sum over rows can be added up over blocks.")
        if whole is None:
            # A new array: what a part holds may belong to whoever computed it.
            whole = replace(part, value=np.array(part.value))
            continue
        if _bounds_of(part) != _bounds_of(whole) or part.unit != whole.unit:
            raise PrivacyError("statistics with different bounds can't be added up.")
        # Claim: |sum of parts - that of a neighbour| <= bound of one part. A record is a row of one block, so it moves
        # the part of that block alone, by at most the part's bound; so does another row in its place. The rows of a
        # person may be in several blocks: their shares add up to at most 1 over all of them, which bounds the person's
        # part of the sum as in the maker of the parts.
        whole.value[...] += part.value
    if whole is None:
        raise ValueError("there must be at least one block.")
    return whole


def _bounds_of(part: Bounded) -> tuple[Any, ...]:
    numbers = part.l1, part.l2, part.linf, dict(part.replaced)
    return (*numbers, part.monotone, part.fixed_rows, part.value.shape, part.value.dtype)


def clipped_outer_sum(rows: Rows | Blocks[Rows], weights: Callable[[Block], NDArray[Any]], clip_norm: float) -> Bounded:
    """Sum the outer products row times weight over `rows`, each first clipped to length `clip_norm`.

    This is the sum of per-example gradients of any generalised linear model; no single gradient is stored. The array
    that `weights` returns is changed in place, so it must be a new one.
    """
    return clipped_outer_sums(rows, clip_norm)(weights)


def clipped_outer_sums(
    rows: Rows | Blocks[Rows], clip_norm: float
) -> Callable[[Callable[[Block], NDArray[Any]]], Bounded]:
    """Return `clipped_outer_sum` of these rows as a function of the weights, for the many steps of a descent.

    What does not depend on the weights is computed in the first step and held for all others: two numbers per row, if
    the rows are in the memory of this process.
    """
    if isinstance(rows, Blocks):
        return lambda weights: added(rows.results(partial(clipped_outer_sum, weights=weights, clip_norm=clip_norm)))
    clip_norm = checks.positive(clip_norm, "clip_norm")
    in_float32 = rows.X.dtype == _FLOAT32
    if clip_norm > _MOST_CLIP_NORM[in_float32]:
        raise ValueError("clip_norm is too large for numbers of this type. Use a smaller one, or float64 rows.")
    # Room for what rounding adds to the distance of two neighbours: (1 - e)(1 + e) < 1.
    spared = 1.0 - FLOAT32_EXCESS if in_float32 else 1.0
    # By the place of a block and the type of its weights: the largest and the smallest weight of each row.
    held: dict[tuple[int, int, np.dtype[Any]], tuple[Array, Array]] = {}
    # A null result with the bounds of every sum.
    # Claim: |sum - sum'|_2 <= clip_norm. |x r'|_F = |x| |r| <= clip_norm after clipping, and zeroing one record moves
    # the sum by its clipped term alone. In float32 terms are shorter by what `FLOAT32_EXCESS` allows for rounding.
    # Not proved: that weights of a row depend on that row alone (their makers claim it), and that float64 rounding is
    # negligible: of n rows it adds at most 2 n² 2⁻⁵³ clip_norm.
    bounds = Bounded(np.zeros(0), l2=clip_norm, fixed_rows=in_float32, unit=rows.unit)

    def clipped(weights: Callable[[Block], NDArray[Any]], block: Block) -> Array:
        weight = weights(block)
        if weight.dtype != block.X.dtype:
            # A limit that is rounded to fewer digits might be rounded up.
            weight = weight.astype(np.result_type(weight, block.X), copy=False)
        key = block.start, len(weight), weight.dtype
        limits = held.get(key)
        if limits is None:
            # |x r'|_F = |x| |r|, so scaling r down to clip_norm / |x| bounds the term by clip_norm.
            limit = _with_margin(clip_norm * spared, weight.dtype) * block.inverse_norms
            limits = held[key] = limit, -limit
        if weight.ndim == 1:
            # Two ufuncs take a third of the time of np.clip.
            np.minimum(weight, limits[0], out=weight)
            np.maximum(weight, limits[1], out=weight)
            if block.shares is not None:
                weight *= block.shares
            # The limits are finite, so only NaN weights are left to remove. One NaN makes every entry of the sum NaN.
            total = block.outer(weight)
            if total.size and math.isnan(total[0]):
                weight[np.isnan(weight)] = 0
                total = block.outer(weight)
            return total
        squares = np.einsum("ij,ij->i", weight, weight)
        # The sum is finite only if every square is, for none is negative.
        if not math.isfinite(squares.sum()):
            finite = np.isfinite(squares)
            weight[~finite] = 0
            squares[~finite] = 0
        # If the division overflows, the factor is 1.
        factor = np.minimum(limits[0] / norm_bounds(squares, weight.shape[1]), 1.0)
        # A subnormal factor may have been rounded up by any relative amount, so it becomes 0.
        factor *= factor >= np.finfo(factor.dtype).tiny
        if block.shares is not None:
            factor *= block.shares
        weight *= factor[:, None]
        return block.outer(weight)

    def summed(weights: Callable[[Block], NDArray[Any]]) -> Bounded:
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            return bounds.with_value(rows.map_sum(partial(clipped, weights)))

    return summed


def clipped_term_sum(
    parts: Iterable[tuple[Array, Callable[[Array], Array]]],
    n_numbers: int,
    clip_norm: float,
    *,
    dtype: Any = np.float32,
    shares: Shares | None = None,
) -> Bounded:
    """Sum vectors of `n_numbers` numbers, one per row, each first clipped to length `clip_norm`, then times its share.

    For terms that are never stored, such as the gradients of a network. Each of `parts` stands for some rows. It
    holds upper bounds on the lengths of their terms, and a function that takes one factor per row and returns the sum
    of factor times term. A row whose factor is 0 must add nothing, whatever its term is. Terms and their sums are
    computed in `dtype`. `shares` has the rows in the order of the parts.
    """
    clip_norm = checks.positive(clip_norm, "clip_norm")
    total: Array = np.zeros(checks.count(n_numbers, "n_numbers"))
    n_rows = 0
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        for lengths, combine in parts:
            # Terms are summed in `dtype`, so the factors leave a margin for its rounding.
            factors = np.minimum(_with_margin(clip_norm, np.dtype(dtype)) / lengths, 1.0)
            # Rows with a length that is not finite, or with a factor that float32 might round up, count as null.
            factors[~(np.isfinite(lengths) & (factors >= _LEAST_TERM_FACTOR))] = 0
            end = n_rows + len(factors)
            total += combine(factors if shares is None else _shared(factors, shares.take(slice(n_rows, end))))
            n_rows = end
    if shares is not None and n_rows != len(shares.values):
        raise ValueError("shares must have one entry per row.")
    # Claim: |sum - sum'|_2 <= clip_norm. |factor * term| <= clip_norm / length * length = clip_norm. Zeroing one row
    # moves the sum by its clipped term alone; a person's part is Σ share * factor * term, of length at most Σ share *
    # clip_norm <= clip_norm. A further row changes how the sum of the terms is rounded. Over m rows of p persons the
    # exact lengths add up to at most p clip_norm, so that a sum is off by at most (m + 1) u p clip_norm, with u the
    # unit of rounding. In float32 (u = 2^-24) a few thousand rows can bring that beyond the margin: hence `fixed_rows`,
    # which refuses such sums under add-remove and for persons. In float64 (u = 2^-53) it is 1e-10 clip_norm for a
    # thousand rows of as many persons.
    # Not proved: that the lengths bound the terms (tests/networks measures it), and that no term depends on the other
    # rows (`row_gradients._full_parts` computes parts of one shape). In float32 rounding of m rows adds up to 2 m (m +
    # 1) 2⁻²⁴ clip_norm.
    return Bounded(total, l2=clip_norm, fixed_rows=np.dtype(dtype) == np.float32, unit=_unit(shares))


def clipped_gram(
    rows: Rows | Blocks[Rows] | ArrayLike, clip_norm: float, mapped: Callable[[Array], Array] | None = None
) -> Bounded:
    """Sum the outer product of each row with itself, after clipping the rows to length `clip_norm`, times its share.

    If `mapped` is given, it first maps the rows of a block, each by itself; a null row stays null. The release may be
    made symmetric afterwards (`(G + G.T) / 2`), which also halves the variance off the diagonal.
    """
    if isinstance(rows, Blocks):
        return added(rows.results(partial(clipped_gram, clip_norm=clip_norm, mapped=mapped)))
    clip_norm = checks.positive(clip_norm, "clip_norm")
    if not isinstance(rows, Rows):
        array = _finite_rows(rows)
        rows = Rows(array, np.zeros(len(array)))

    def gram(block: Block) -> Array:
        X = block.X if not block.intercept else np.column_stack([block.X, np.ones(len(block.X), block.X.dtype)])
        norms = block.norms
        if mapped is not None:
            X = mapped(X)
            squares = np.einsum("ij,ij->i", X, X)
            usable = np.isfinite(squares) & np.isfinite(norms)
            if not usable.all():
                X, squares = np.where(usable[:, None], X, 0), np.where(usable, squares, 0)
            norms = norm_bounds(squares, X.shape[1])
        # In float64: in float32, sums of thousands of rows round by more than one row's part.
        X = (X * _clip_factors(norms, clip_norm)[:, None]).astype(np.float64, copy=False)
        return np.asarray(X.T @ (X if block.shares is None else X * block.shares[:, None]))

    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        total = rows.map_sum(gram)
    # Claim: |sum - sum'|_F <= clip_norm²; replaced: sqrt(2) clip_norm². |xx'|_F = |x|² <= clip_norm². Replacing x by z:
    # |xx' - zz'|² = |x|⁴ + |z|⁴ - 2 (x'z)² <= 2 clip_norm⁴. A person's part A = Σ s xx' is positive semidefinite with
    # |A| <= clip_norm²: |A - B|² = |A|² + |B|² - 2 <A, B>, <A, B> >= 0.
    # Not proved: that `mapped` maps each row by itself; `require_row_by_row` tries it.
    square = clip_norm**2
    in_float32 = rows.X.dtype == np.float32
    return Bounded(total, l2=square, replaced={"l2": math.sqrt(2) * square}, fixed_rows=in_float32, unit=rows.unit)


def histogram(codes: ArrayLike, n_bins: int, shares: Shares | None = None) -> Bounded:
    """Count how many records have each code in range(n_bins). A record with any other code is not counted.

    With `shares` the counts are sums of shares, which are no whole numbers: they need continuous noise.

    Examples
    --------
    >>> histogram([0, 2, 2, 7], 3).value
    array([1, 0, 2])
    """
    n_bins = checks.count(n_bins, "n_bins")
    array, known = _known_codes(codes, n_bins)
    weights = None if shares is None else _shared(np.ones(len(array)), shares)[known]
    counts = np.bincount(array[known].astype(np.int64), weights, minlength=n_bins)
    # Claim: |h - h'|_1 <= 1; replaced: 2 in l1, sqrt(2) in l2, 1 in linf. One record adds 1 to one bin. Replacing it
    # changes two bins by 1 each. A person's part t has entries in [0, 1] that add up to at most 1, so |t|_1 <= 1, and
    # |t - u|² = |t|² + |u|² - 2 t'u <= 2 for another person's part u.
    return Bounded(
        counts.astype(np.int64) if shares is None else counts,
        l1=1.0,
        l2=1.0,
        linf=1.0,
        replaced={"l1": 2.0, "l2": math.sqrt(2), "linf": 1.0},
        monotone=True,
        unit=_unit(shares),
    )


def soft_histogram(rows: ArrayLike, shares: Shares | None = None) -> Bounded:
    """Add up how much each record belongs to each bin: parts of at least 0 that add up to at most 1.

    Negative parts become 0, and the parts of a record that add up to more than 1 are scaled down. Sums of parts are no
    whole numbers: they need continuous noise.

    Examples
    --------
    >>> soft_histogram([[0.25, 0.75], [0.0, 1.0], [2.0, -1.0]]).value.round(3)
    array([1.25, 1.75])
    """
    parts = np.maximum(_finite_rows(rows), 0.0)
    if parts.ndim != 2:
        raise ValueError(f"rows must have one row per record and one column per bin, got {parts.ndim} axes.")
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        # Parts whose sum overflows are all scaled to 0.
        factors = _clip_factors(parts.sum(axis=1), 1.0)
        total = parts.T @ _shared(factors, shares)
    # Claim: |h - h'|_1 <= 1; replaced: 2 in l1, sqrt(2) in l2, 1 in linf. A record's part t has entries of at least 0
    # that add up to at most 1. So has a person's, a sum of shares of such parts. Hence |t|_inf <= |t|_2 <= |t|_1 <= 1.
    # For another record's part u, |t - u|_1 <= 2, |t - u|_inf <= 1, and |t - u|² = |t|² + |u|² - 2 t'u <= 2, because
    # t'u >= 0.
    return replace(histogram([], parts.shape[1]), value=total, unit=_unit(shares), monotone=False)


def histogram_of_blocks(codes: Iterable[ArrayLike], n_bins: int, shares: Shares | None = None) -> Bounded:
    """Count rows as `histogram`, with their codes in blocks that are read once. Every row must be in one block.

    `shares` has an entry for each row of all blocks, in their order.

    Examples
    --------
    >>> histogram_of_blocks([[0, 2], [2, 7]], 3).value
    array([1, 0, 2])
    """
    start = 0
    total = histogram([], n_bins, None if shares is None else shares.take(slice(0)))
    for block in codes:
        end = start + len(np.asarray(block))
        part = histogram(block, n_bins, None if shares is None else shares.take(slice(start, end)))
        # Claim: |h - h'|_1 <= 1, as in `histogram`. A row is in one block, so it adds 1, or its share, to one bin of
        # the total or to none. The rows of a person may be in several blocks: their shares add up to at most 1 over
        # all.
        total, start = replace(total, value=total.value + part.value), end
    if shares is not None and start != len(shares.values):
        raise ValueError("shares must have one entry per row.")
    return total


def coarser_histogram(counts: Bounded, group: ArrayLike, n_groups: int) -> Bounded:
    """Return the histogram in which every bin of `counts` is part of the bin that `group` names, or of none if -1.

    `group` must be public or released.

    Examples
    --------
    >>> coarser_histogram(histogram([0, 2, 2, 3], 4), [0, 0, 1, -1], 2).value
    array([1, 2])
    """
    if not (counts.linf == counts.l1 == 1.0 and counts.monotone) or np.shape(group) != counts.value.shape:
        raise ValueError("counts must be a histogram, and group must name a bin for each of its bins.")
    array, known = _known_codes(group, n_groups)
    total = np.bincount(array[known], weights=counts.value[known], minlength=n_groups)
    # Claim: |h - h'|_1 <= 1, as in `histogram`. A record is in one bin of `counts`, so it is in one group or in none. A
    # person's part t has entries of at least 0 that add up to at most 1, and so has the part of the groups: it adds up
    # disjoint entries of t, or leaves some out. Sums of whole numbers are exact, being below 2^53.
    return replace(histogram([], n_groups), value=total.astype(counts.value.dtype), unit=counts.unit)


def votes(ballots: ArrayLike, shares: Shares | None = None) -> Bounded:
    """Add up ballots, where each record gives every candidate between 0 and 1. Sums of integers are integers.

    With `shares`, the ballot of a row is multiplied by its share.

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
    total = array.sum(axis=0) if shares is None else array.T @ _shared(np.ones(len(array)), shares)
    k = float(array.shape[1])
    # Claim: |v - v'|_inf <= 1, |v - v'|_2 <= sqrt(k) and |v - v'|_1 <= k, zeroed or replaced. Every entry lies in [0,
    # 1], so zeroing or replacing one record moves each of the k sums by at most 1; so do a person's entries, which are
    # sums of shares of entries.
    bounds: dict[Norm, float] = {"l1": k, "l2": math.sqrt(k), "linf": 1.0}
    return Bounded(total, l1=k, l2=math.sqrt(k), linf=1.0, replaced=bounds, monotone=True, unit=_unit(shares))


def square_root_histogram(places: ArrayLike, n_bins: int, shares: Shares | None = None) -> Bounded:
    """Count records in bins such that one release gives all cumulative counts at little noise; see `prefix_sums`.

    The value is S h / |S|, where h is the histogram, S S is the matrix of prefix sums and |S| the length of the longest
    column of S. A release of it with noise of standard deviation s gives every cumulative count with standard
    deviation at most s |S|², about s (1 + log(n_bins) / pi). Summing up a noisy histogram gives up to s sqrt(n_bins).

    Parameters
    ----------
    places : array-like of shape (n_records,)
        Numbers in [0, n_bins - 1]. One between two bins counts in both, in proportion to how near they are. A record
        with any other number, such as NaN, is not counted.
    n_bins : int
    shares : Shares, optional

    Examples
    --------
    >>> from dpadapt.mechanisms.prefix_sums import cumulative
    >>> cumulative(square_root_histogram([0.0, 2.0, 2.5, 7.0], 4).value)[0].round(6)
    array([1. , 1. , 2.5, 3. ])
    """
    n_bins = checks.count(n_bins, "n_bins")
    array = np.asarray(places, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"places must have one entry per record, got {array.ndim} axes. A record can't count twice.")
    known = (array >= 0) & (array <= n_bins - 1)
    weights = _shared(np.ones(len(array)), shares)[known]
    low = np.floor(array[known])
    upper = weights * (array[known] - low)
    below = low.astype(np.int64)
    counts = np.bincount(below, weights - upper, minlength=n_bins).astype(np.float64)
    counts += np.bincount(np.minimum(below + 1, n_bins - 1), upper, minlength=n_bins)
    # The margin is for the rounding of the products.
    value = times_root(counts) * ((1.0 - 16 * float(np.finfo(np.float64).eps)) / root_length(n_bins))
    # Claim: |v - v'|_2 <= 1; replaced: the largest distance of two columns of S / |S|. A record adds a mean of two
    # columns of S / |S|, each no longer than 1; a person a mean of such terms, or less of it. So both lie in the convex
    # hull of the columns and of 0, where two points are at most as far apart as two of these corners.
    return Bounded(value, l2=1.0, replaced={"l2": furthest_columns(n_bins)}, unit=_unit(shares))


def responses(codes: ArrayLike, n_categories: int) -> Bounded:
    """Return one answer in range(n_categories) per record, for `RandomizedResponse`. Any other code becomes 0."""
    n_categories = checks.count(n_categories, "n_categories", least=2)
    array, known = _known_codes(codes, n_categories)
    # Claim: the number of entries that one record determines <= 1. The value has no norm bound: only
    # `RandomizedResponse` accepts it.
    return Bounded(np.where(known, array, 0).astype(np.int64), n_categories=n_categories)


def weighted_votes(ballots: Iterable[NDArray[Any]], weights: ArrayLike) -> Bounded:
    """Add up, for each candidate, the weights of the records that vote for it.

    Parameters
    ----------
    ballots : iterable of bool arrays
        One per candidate, with an entry per record.
    weights : array of shape (n_records,)
        Clipped to [0, 1]. A weight that is not finite counts as 0.

    Examples
    --------
    >>> weighted_votes([np.array([True, True]), np.array([False, True])], [1.0, 0.25]).value
    array([1.25, 0.25])
    """
    clipped = _unit_weights(weights)
    # A vote is yes or no: anything else would be a second weight.
    scores = np.array([float(clipped[np.asarray(ballot, dtype=bool)].sum()) for ballot in ballots])
    return _unit_scores(scores)


def threshold_votes(ranks: ArrayLike, inside: ArrayLike, weights: ArrayLike, n_thresholds: int) -> Bounded:
    """Add up, for each rule and threshold, the weights of the records that this rule classifies correctly.

    Parameters
    ----------
    ranks : int array of shape (n_records, n_rules)
        For each rule, the first threshold, counted from 0, at which the record is classified as inside;
        `n_thresholds` if there is none.
    inside : bool array of shape (n_records,)
        Whether the record belongs inside.
    weights : array of shape (n_records,)
        Clipped to [0, 1]. A weight that is not finite counts as 0.
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
    belongs, clipped = np.asarray(inside, dtype=bool), _unit_weights(weights)
    scores = np.empty((table.shape[1], n_thresholds))
    for rule in range(table.shape[1]):
        ins = np.bincount(table[belongs, rule], clipped[belongs], minlength=n_thresholds + 1)[:n_thresholds]
        outs = np.bincount(table[~belongs, rule], clipped[~belongs], minlength=n_thresholds + 1)[::-1]
        # Records inside are classified correctly from their rank on, records outside before their rank.
        scores[rule] = np.cumsum(ins) + np.cumsum(outs)[::-1][1:]
    return _unit_scores(scores)


def kept_entries(statistic: Bounded, kept: ArrayLike) -> Bounded:
    """Return the entries of `statistic` at which `kept`, an array of bool, is true, to be released without the others.

    `kept` must be public or released.

    Examples
    --------
    >>> kept_entries(votes([[1, 0, 1], [1, 1, 0]]), [True, False, True]).value
    array([2, 1])
    """
    mask = np.asarray(kept)
    # An index could name an entry twice, and then a record would move it twice.
    if mask.dtype != np.bool_ or mask.shape != statistic.value.shape:
        raise ValueError("kept must say True or False for each entry of the statistic.")
    # Claim: |part of v| <= |v| in every norm. Both neighbours lose the same entries of their difference v.
    # Not proved: that `kept` is public or released.
    return replace(statistic, value=statistic.value[mask])


def _unit_weights(weights: ArrayLike) -> NDArray[np.float64]:
    clipped = np.array(weights, dtype=np.float64)
    clipped[~np.isfinite(clipped)] = 0.0
    return np.clip(clipped, 0.0, 1.0, out=clipped)


def _unit_scores(scores: NDArray[np.float64]) -> Bounded:
    # Claim: |v - v'|_inf <= 1 and |v - v'|_1 <= n, zeroed or replaced; a further record lowers no score. A record adds
    # between 0 and 1 to each of the n scores.
    n = float(scores.size)
    return Bounded(scores, l1=n, linf=1.0, replaced={"l1": n, "linf": 1.0}, monotone=True)


def _known_codes(codes: ArrayLike, n_codes: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the codes, one per record, and which of them are whole numbers in range(n_codes)."""
    array = np.asarray(codes)
    if array.ndim != 1:
        raise ValueError(f"codes must have one entry per record, got {array.ndim} axes. A record can't count twice.")
    return array, (array >= 0) & (array < n_codes) & (array == np.floor(array))


def _finite_rows(rows: ArrayLike) -> NDArray[np.float64]:
    """Return the rows in float64; a row that is not finite becomes 0."""
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim < 2:
        raise ValueError(f"rows must have one row per record, got {array.ndim} axes. Reshape scalars to (n, 1).")
    finite = np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if finite.all():
        return array
    return np.where(finite.reshape(-1, *[1] * (array.ndim - 1)), array, 0.0)


def _unit(shares: Shares | None) -> Unit:
    return "row" if shares is None else shares.unit


def _shared(factors: NDArray[Any], shares: Shares | None) -> NDArray[Any]:
    """Return one factor per row, times the share of the row."""
    if shares is None:
        return factors
    if len(shares.values) != len(factors):
        raise ValueError("shares must have one entry per row.")
    return factors * shares.values


def _clip_factors(lengths: NDArray[Any], clip_norm: float) -> NDArray[Any]:
    """Return the factors that clip rows of these lengths to `clip_norm`; an infinite length gives 0."""
    # A length of 0 gives an infinite quotient, so the factor 1.
    return np.asarray(np.minimum(_with_margin(clip_norm, lengths.dtype) / lengths, 1.0))


def _with_margin(clip_norm: float, dtype: np.dtype[Any]) -> Any:
    """Return `clip_norm` less a few rounding errors, so that no clipped term exceeds the bound through rounding."""
    info = np.finfo(dtype)
    # Claim: |row| fl(limit / length) <= clip_norm for the limit returned. Length, quotient and product are each off by
    # a few eps, less than 16 in all. This fails where the quotient is subnormal: lengths are at most sqrt(max) < 2 /
    # sqrt(tiny), so that a smaller clip_norm becomes 0.
    if clip_norm < 2 * math.sqrt(float(info.tiny)):
        return dtype.type(0)
    return dtype.type(clip_norm * (1 - 16 * float(info.eps)))
