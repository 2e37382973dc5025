"""`Bounded` statistics of losses: gradients and discrepancies of the squared loss, and losses clipped to a range.

If rows, targets and coefficients are bounded, so is the gradient of the squared loss: no gradient needs to be clipped
row by row. `limited_rows` enforces the bounds on rows and targets. `LimitedRows.moments` then computes the sums of
products once, and from these each step computes its sum of gradients in d² operations.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.rows import norm_bounds

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Private sums over rows of c x x', c x y and c y², with |x| <= `max_norm`, |y| <= `max_target` and 0 <= c <= 1.

    Made only by `LimitedRows.moments`. The sums are private: they are not a release.
    """

    gram: Array = field(repr=False)
    cross: Array = field(repr=False)
    square: float = field(repr=False)
    max_norm: float
    max_target: float

    def divided(self, number: float) -> "Moments":
        """Return the sums divided by a public number, e.g. the means over public rows."""
        if not number >= 1:
            raise ValueError(f"number must be at least 1, got {number!r}.")
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            return replace(self, gram=self.gram / number, cross=self.cross / number, square=self.square / number)

    def plus(self, gram: Array, cross: Array) -> "Moments":
        """Return the sums plus public sums. Both neighbours get the same addition, so no bound changes."""
        return replace(self, gram=self.gram + gram, cross=self.cross + cross)


@dataclass(frozen=True, eq=False)
class LimitedRows:
    """Private rows with |x| <= `max_norm` and targets with |y| <= `max_target`. Made only by `limited_rows`."""

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    max_norm: float
    max_target: float

    def moments(self, factors: ArrayLike | None = None) -> Moments:
        """Return the sums, each row multiplied by its factor in [0, 1] (default: 1). Factors must be public."""
        return self._whole_moments if factors is None else self._moments(factors)

    @cached_property
    def _whole_moments(self) -> Moments:
        """The sums with factors of 1, computed once for all releases that need them."""
        return self._moments(None)

    def _moments(self, factors: ArrayLike | None) -> Moments:
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            scaled, square = self.X, self.y**2
            if factors is not None:
                clipped = np.clip(factors, 0.0, 1.0)
                scaled, square = self.X * clipped[:, None], square * clipped
            gram, cross = scaled.T @ self.X, scaled.T @ self.y
        return Moments(gram, cross, float(square.sum()), self.max_norm, self.max_target)


def limited_rows(X: ArrayLike, y: ArrayLike, *, max_norm: float, max_target: float) -> LimitedRows:
    """Clip rows to length `max_norm` and targets to +-`max_target`; a row that is not finite becomes null."""
    max_norm, max_target = checks.positive(max_norm, "max_norm"), checks.positive(max_target, "max_target")
    X, y = np.array(X, dtype=np.float64, ndmin=2), np.array(y, dtype=np.float64).reshape(-1)
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    # Claim: |x| <= max_norm and |y| <= max_target for every row returned, and each depends on its own row alone.
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", X, X)
        finite = np.isfinite(squares) & np.isfinite(y)
        X[~finite], y[~finite], squares[~finite] = 0.0, 0.0, 0.0
        # A few rounding errors below max_norm, so that no clipped row exceeds max_norm through rounding.
        limit = max_norm * (1 - 16 * np.finfo(np.float64).eps)
        X *= np.minimum(1.0, limit / norm_bounds(squares, X.shape[1]))[:, None]
    np.clip(y, -max_target, max_target, out=y)
    return LimitedRows(X, y, max_norm, max_target)


def squared_loss_gradient(moments: Moments, coef: Array, radius: float) -> Bounded:
    """Sum the gradients of (w'x - y)² over rows, at w = `coef`, which is first clipped to length `radius`."""
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        # `dot` has less overhead than `@`, which matters in thousands of small steps.
        value = moments.gram.dot(shorten(np.array(coef), radius))
        value -= moments.cross
        value += value
    # Claim: |sum - sum'|_2 <= 2 r (R r + Y), with r = max_norm, Y = max_target, R = radius; replaced: see
    # `gradient_bounds`. |w| <= radius holds now, |x| <= max_norm and |y| <= max_target by `limited_rows`, and factors
    # are at most 1. Zeroing one record moves the sum by its gradient alone.
    zeroed, replaced = gradient_bounds(moments.max_norm, moments.max_target, radius)
    return Bounded(value, l2=zeroed, replaced={"l2": replaced})


class SquaredLossGradients:
    """The statistics `squared_loss_gradient` of the same sums at many points, in less time for each.

    To be used in a `with` block: floating-point errors are silenced once, for all points. An error would reveal an
    extreme row, whatever the caller's settings are.
    """

    def __init__(self, moments: Moments, radius: float) -> None:
        self._bounded = squared_loss_gradient(moments, np.zeros(len(moments.cross)), radius)
        with np.errstate(all="ignore"):
            self._twice_gram, self._twice_cross = moments.gram + moments.gram, moments.cross + moments.cross
        self._radius, self._limit = radius, radius * radius
        self._quiet: np.errstate | None = None

    def __enter__(self) -> "SquaredLossGradients":
        """Silence floating-point errors until the end of the block."""
        quiet = np.errstate(all="ignore")
        quiet.__enter__()
        self._quiet = quiet
        return self

    def __exit__(self, *raised: object) -> None:
        """Report floating-point errors as before."""
        quiet, self._quiet = self._quiet, None
        if quiet is not None:
            quiet.__exit__(None, None, None)

    def __call__(self, coef: Array) -> Bounded:
        """Return the sum of gradients at `coef`, which is first shortened to the radius, in place."""
        if self._quiet is None:
            raise PrivacyError("gradients at many points are computed in a block `with SquaredLossGradients(...)`.")
        if not coef.dot(coef) <= self._limit:
            shorten(coef, self._radius)
        value = self._twice_gram.dot(coef)
        value -= self._twice_cross
        # Claim: |sum - sum'|_2 <= that of `squared_loss_gradient`. |w| <= radius holds now, and the sums are the same.
        return self._bounded.with_value(value)


def shorten(coef: Array, radius: float) -> Array:
    """Scale coefficients that are longer than `radius` to it, in place; those that are not finite become 0."""
    with np.errstate(all="ignore"):
        square = coef.dot(coef)
        if not square <= radius * radius:
            if math.isfinite(square):
                coef *= radius / math.sqrt(square)
            else:
                coef[...] = 0.0
    return coef


@lru_cache(maxsize=64)
def gradient_bounds(max_norm: float, max_target: float, radius: float) -> tuple[float, float]:
    """Return upper bounds on |g| and on |g - g'| for g = 2 x (w'x - y).

    Claim: |g| <= 2 r (R r + Y) and |g - g'| <= 4 r max over t of (R r cos t + Y) sin t. The docstring proves it, with
    r = max_norm, Y = max_target, R = radius; |x| <= r, |y| <= Y, |w| <= R.

    Zeroing or adding a row: null rows have g = 0, so the bound is |g| <= 2 r (R r + Y).

    Replacing a row: |g - g'| = max over unit e of h(e) + h(-e), where h(e) = max e'g. Write f for the angle of e and w
    and let x have length r at angle a from e in their plane (given e'x, a longer part across e only helps):
    h(e) = 2 r max over a of cos a (R r cos(a - f) + Y) = r [R r cos f + K(f)],
    K(f) = max over a in [0, f / 2] of R r cos(2 a - f) + 2 Y cos a, as both terms are smaller outside that interval.
    In h(-e) f becomes pi - f, so cos f cancels in the sum and K(f) + K(pi - f) is left. Put a = (c + f) / 2, c in
    [-f, 0], and b = (c' + pi - f) / 2: the sum of cosines cos A + cos B = 2 cos((A + B) / 2) cos((A - B) / 2) is at
    most 2 cos((A + B) / 2), both for A, B = c, c' (whose mean lies in [-pi / 2, 0]) and for A, B = a, b. So with the
    mean of c and c' for both, K(f) + K(pi - f) <= 2 K(pi / 2): the pair that is its own mirror image about w is the
    worst, and |g - g'| <= 4 r max over t of (R r cos t + Y) sin t.
    """
    if not radius <= 1e100:
        raise ValueError(f"radius must be at most 1e100, got {radius!r}: its square is part of the bounds.")
    reach = radius * max_norm
    # (reach cos t + Y) sin t is stationary where 2 reach c² + Y c - reach = 0, c = cos t.
    c = 2 * reach / (max_target + math.hypot(max_target, math.sqrt(8) * reach))
    replaced = 4 * max_norm * (reach * c + max_target) * math.sqrt(1 - c * c)
    # The last factor covers the rounding of the lines above.
    return 2 * max_norm * (reach + max_target), replaced * (1 + 1e-14)


def loss_bound(max_norm: float, max_target: float, radius: float) -> float:
    """Return an upper bound on (w'x - y)² for |x| <= max_norm, |y| <= max_target, |w| <= radius."""
    return (radius * max_norm + max_target) ** 2


def squared_loss_discrepancy(moments: Moments, public: Moments, radius: float, n_rows: float) -> Bounded:
    """Return n_rows times the discrepancy of private and public rows.

    The discrepancy is the largest difference of the mean squared losses on private and on public rows, over all
    coefficients of length at most `radius`. `public` holds the means over public rows; `n_rows` is a public number.
    """
    A, b = moments.gram - n_rows * public.gram, moments.cross - n_rows * public.cross
    c = moments.square - n_rows * public.square
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        lowest, highest = extremes_in_ball(A, b, radius)
    value = np.array(max(abs(lowest + c), abs(highest + c)))
    # Claim: |D - D'| <= (R r + Y)², zeroed or replaced. Zeroing or adding a record moves the sum of losses at every w
    # by that record's loss, replacing it by the difference of two losses. Losses lie in [0, bound], a null record's is
    # 0, so the sum moves by at most bound at every w. Then its largest distance from the public sum moves by at most
    # bound too.
    # Not proved: that the eigenvalue solver of `extremes_in_ball` is exact; it is off by rounding.
    bound = loss_bound(moments.max_norm, moments.max_target, radius)
    return Bounded(value, l1=bound, replaced={"l1": bound, "l2": bound, "linf": bound})


def listed_discrepancy(losses: ArrayLike, public_means: ArrayLike, limit: float, n_rows: float) -> Bounded:
    """Return n_rows times the largest difference of private and public mean losses over a public list of predictors.

    `losses` has one row per record and one column per predictor of the list; each is clipped to [0, limit].
    """
    limit = checks.positive(limit, "limit")
    table = np.array(losses, dtype=np.float64, ndmin=2)
    table[~np.isfinite(table).all(axis=1)] = 0.0
    np.clip(table, 0.0, limit, out=table)
    value = np.array(np.abs(table.sum(axis=0) - n_rows * np.asarray(public_means)).max(initial=0.0))
    # Claim: |D - D'| <= limit, zeroed or replaced. Losses lie in [0, limit] and the list of predictors is public. So
    # zeroing, adding or replacing a record moves every predictor's sum, hence also the largest distance, by at most
    # limit.
    return Bounded(value, l1=limit, replaced={"l1": limit, "l2": limit, "linf": limit})


def own_losses(losses: ArrayLike, limit: float, factors: ArrayLike | None = None) -> Bounded:
    """Return one loss per record, clipped to [0, limit] and multiplied by the record's public factor in [0, 1].

    The value has one entry per record, so the number of rows must be public.
    """
    limit = checks.positive(limit, "limit")
    value: NDArray[Any] = np.array(losses, dtype=np.float64)
    if value.ndim != 1:
        raise ValueError(f"losses must have one entry per record, got {value.ndim} axes.")
    value[~np.isfinite(value)] = 0.0
    np.clip(value, 0.0, limit, out=value)
    if factors is not None:
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            value *= np.clip(factors, 0.0, 1.0)
    # Claim: |v - v'|_1 <= limit, zeroed or replaced. One record determines one entry, which lies in [0, limit] for
    # every record and is 0 for a null record.
    return Bounded(value, l1=limit, replaced={"l1": limit, "l2": limit, "linf": limit}, fixed_rows=True, per_row=True)


# The trust-region problem: least and greatest value of a quadratic in a ball, by eigenvalues and a scalar root.


def extremes_in_ball(matrix: Array, vector: Array, radius: float) -> tuple[float, float]:
    """Return the minimum and the maximum of w'Aw - 2b'w over |w| <= radius; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    rotated = vectors.T @ vector
    lowest = _value(values, rotated, _solve(values, rotated, radius))
    # The maximum is minus the minimum of the negated quadratic, which has the same eigenvectors in reverse order.
    negated = -values[::-1], -rotated[::-1]
    return lowest, -_value(*negated, _solve(*negated, radius))


def minimise_in_ball(matrix: Array, vector: Array, radius: float) -> Array:
    """Return the w with |w| <= radius that minimises w'Aw - 2b'w; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ _solve(values, vectors.T @ vector, radius))


def _value(values: Array, rotated: Array, at: Array) -> float:
    return float(values @ at**2 - 2 * rotated @ at)


def _solve(values: Array, rotated: Array, radius: float) -> Array:
    """Return the minimiser in the coordinates of the eigenvectors; eigenvalues `values` ascend, `rotated` is b there.

    At the minimum (A + nu I) w = b for some nu >= max(0, -least eigenvalue), with |w| = radius unless nu = 0. With
    gaps = values - least eigenvalue and s = nu + least eigenvalue, w = b / (gaps + s), and nothing cancels where the
    matrix is nearly singular.
    """
    if not len(values):
        return rotated.copy()
    size = float(np.abs(values).max())
    least = float(values[0])
    if abs(least) <= 1e-15 * size:
        least = 0.0
    gaps = values - values[0]
    # nu >= 0 means s >= least eigenvalue, nu >= -least eigenvalue means s >= 0.
    floor = max(least, 0.0)
    at = _point(gaps, rotated, floor)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(at))
    if length <= radius:
        if least >= 0:
            return at
        # Hard case: no nu gives length `radius`. Moving along an eigenvector of the least eigenvalue does.
        at[0] += math.copysign(math.sqrt((radius - length) * (radius + length)), at[0] if at[0] else 1.0)
        return at
    at = _point(gaps, rotated, _root(gaps, rotated, radius, floor))
    return at * (radius / max(float(np.linalg.norm(at)), 1e-300))


def _point(gaps: Array, rotated: Array, shift: float) -> Array:
    """Return rotated / (gaps + shift), where 0 / 0, up to rounding errors, counts as 0."""
    divisor = gaps + shift
    rounding = 1e-15 * float(np.abs(rotated).max())
    with np.errstate(divide="ignore", over="ignore"):
        quotient = rotated / np.where(divisor > 0, divisor, 1e-300)
        return np.where((divisor > 0) | (np.abs(rotated) > rounding), quotient, 0.0)


def _root(gaps: Array, rotated: Array, radius: float, floor: float) -> float:
    """Return the shift s > floor with |rotated / (gaps + s)| = radius, by Newton's method inside a bracket."""
    low = max(floor, abs(float(rotated[0])) / radius)
    high = max(low, float(np.linalg.norm(rotated)) / radius)
    at = low if low > 0 else high * 1e-8
    for _ in range(100):
        divisor = gaps + at
        part = rotated / divisor
        length = math.sqrt(float(part @ part))
        if length > radius:
            low = at
        else:
            high = at
        if not length or abs(length - radius) <= 1e-15 * radius:
            break
        # 1 / |w(s)| is nearly linear in s, so Newton's method on 1 / radius - 1 / |w(s)| takes few steps.
        slope = float(part @ (part / divisor)) / length**3
        following = at + (1 / radius - 1 / length) / slope
        if not low < following < high:
            following = math.sqrt(low * high) if low > 0 else (low + high) / 2
        if following == at:
            break
        at = following
    return at
