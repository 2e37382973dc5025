"""`Bounded` statistics of the squared loss of linear predictions, from rows whose length and target are enforced.

The gradient of a squared loss in a ball of coefficients is bounded once rows and targets are, without clipping it row
by row. So a sum of gradients can be had from sums of products made once (`limited_rows`), at d² operations a step.
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.trust_region import extremes_in_ball
from dpadapt.rows import norm_bounds

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows of c x x', c x y and c y², every row no longer than `max_norm`, every |y| <= `max_target`, c <= 1.

    Made by `LimitedRows.moments` alone; it holds private sums and is no release.
    """

    gram: Array = field(repr=False)
    cross: Array = field(repr=False)
    square: float = field(repr=False)
    max_norm: float
    max_target: float

    def divided(self, number: float) -> "Moments":
        """Return the sums over a public number, e.g. the means over public rows."""
        if not number >= 1:
            raise ValueError(f"number must be at least 1, got {number!r}.")
        return replace(self, gram=self.gram / number, cross=self.cross / number, square=self.square / number)

    def plus(self, gram: Array, cross: Array) -> "Moments":
        """Return the sums with public ones added: both neighbours get the same, so no bound changes."""
        return replace(self, gram=self.gram + gram, cross=self.cross + cross)


@dataclass(frozen=True, eq=False)
class LimitedRows:
    """Private rows no longer than `max_norm` with targets of at most `max_target`. Made by `limited_rows` alone."""

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    max_norm: float
    max_target: float

    def moments(self, factors: ArrayLike | None = None) -> Moments:
        """Return the sums, each row counted with its factor in [0, 1] (default: 1). Factors must be public."""
        # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            scaled, square = self.X, self.y**2
            if factors is not None:
                kept = np.clip(np.asarray(factors, dtype=np.float64), 0.0, 1.0)
                scaled, square = self.X * kept[:, None], square * kept
            gram, cross = scaled.T @ self.X, scaled.T @ self.y
        return Moments(gram, cross, float(square.sum()), self.max_norm, self.max_target)


def limited_rows(X: ArrayLike, y: ArrayLike, *, max_norm: float, max_target: float) -> LimitedRows:
    """Scale rows down to length `max_norm`, hold targets to +-`max_target`; a row that is not finite becomes null."""
    max_norm, max_target = checks.positive(max_norm, "max_norm"), checks.positive(max_target, "max_target")
    X, y = np.array(X, dtype=np.float64, ndmin=2), np.array(y, dtype=np.float64).reshape(-1)
    # A numerical warning would tell of an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", X, X)
        finite = np.isfinite(squares) & np.isfinite(y)
        X[~finite], y[~finite], squares[~finite] = 0.0, 0.0, 0.0
        # A few rounding errors below the bound, so that none carries a row over it.
        edge = max_norm * (1 - 16 * np.finfo(np.float64).eps)
        X *= np.minimum(1.0, edge / norm_bounds(squares, X.shape[1]))[:, None]
    np.clip(y, -max_target, max_target, out=y)
    return LimitedRows(X, y, max_norm, max_target)


def squared_loss_gradient(moments: Moments, coef: Array, radius: float) -> Bounded:
    """Sum the gradients of (w'x - y)² over rows, at w = `coef`, which is first scaled down to length `radius`."""
    # `dot` has less overhead than `@`, which shows in thousands of small steps.
    square = coef.dot(coef)
    if not square <= radius * radius:
        length = math.sqrt(square)
        coef = coef * (radius / length) if math.isfinite(length) else np.zeros_like(coef)
    value = moments.gram.dot(coef)
    value -= moments.cross
    value += value
    single, replaced = gradient_bounds(moments.max_norm, moments.max_target, radius)
    return Bounded(value, l2=single, replaced={"l2": replaced})


@lru_cache(maxsize=64)
def gradient_bounds(max_norm: float, max_target: float, radius: float) -> tuple[float, float]:
    """Return the most that |g| and |g - g'| can be, g = 2 x (w'x - y), for |x| <= max_norm, |y| <= max_target.

    Null rows have g = 0, so the first is the bound for zeroing or adding a row: 2 r (R r + Y), with r = max_norm,
    Y = max_target, R = radius.

    Replacing a row: |g - g'| = max over unit e of h(e) + h(-e), where h(e) = max e'g. Write f for the angle of e and w
    and let x have length r at angle a from e in their plane (given e'x, a longer part across e only helps):
    h(e) = 2 r max over a of cos a (R r cos(a - f) + Y) = r [R r cos f + K(f)],
    K(f) = max over a in [0, f / 2] of R r cos(2 a - f) + 2 Y cos a, as both terms fall outside that interval. In h(-e)
    f becomes pi - f, so cos f drops out of the sum and K(f) + K(pi - f) is left. Put a = (c + f) / 2, c in [-f, 0], and
    b = (c' + pi - f) / 2: the sum of cosines cos A + cos B = 2 cos((A + B) / 2) cos((A - B) / 2) is at most
    2 cos((A + B) / 2), both for A, B = c, c' (whose mean lies in [-pi / 2, 0]) and for A, B = a, b. So with the mean
    of c and c' for both, K(f) + K(pi - f) <= 2 K(pi / 2): the pair that mirrors itself about w is the worst, and
    |g - g'| <= 4 r max over t of (R r cos t + Y) sin t.
    """
    if not radius <= 1e100:
        raise ValueError(f"radius must be at most 1e100, got {radius!r}: its square is part of the bounds.")
    reach = radius * max_norm
    # (reach cos t + Y) sin t is stationary where 2 reach c² + Y c - reach = 0, c = cos t.
    c = 2 * reach / (max_target + math.hypot(max_target, math.sqrt(8) * reach))
    replaced = 4 * max_norm * (reach * c + max_target) * math.sqrt(1 - c * c)
    return 2 * max_norm * (reach + max_target), replaced * (1 + 1e-14)


def loss_bound(max_norm: float, max_target: float, radius: float) -> float:
    """Return the most that (w'x - y)² can be in these bounds."""
    return (radius * max_norm + max_target) ** 2


def squared_loss_discrepancy(moments: Moments, public: Moments, radius: float, n_rows: float) -> Bounded:
    """Return n_rows times the discrepancy: the most that mean losses on rows and on public rows differ in the ball.

    `public` holds the means over public rows; `n_rows` is a public number.
    """
    A, b = moments.gram - n_rows * public.gram, moments.cross - n_rows * public.cross
    c = moments.square - n_rows * public.square
    lowest, highest = extremes_in_ball(A, b, radius)
    value = np.array(max(abs(lowest + c), abs(highest + c)))
    # One record moves the sum of losses at every w, so also its largest distance from the public one, by at most its
    # loss, or by the difference of two losses: both lie in [0, bound]. A null record has loss 0.
    bound = loss_bound(moments.max_norm, moments.max_target, radius)
    return Bounded(value, l1=bound, replaced={"l1": bound, "l2": bound, "linf": bound})


def listed_discrepancy(losses: ArrayLike, public_means: ArrayLike, limit: float, n_rows: float) -> Bounded:
    """Return n_rows times the most that mean losses differ over a public list of predictors, for any loss.

    `losses` has one row per record and one column per predictor of the list; each is held to [0, limit].
    """
    limit = checks.positive(limit, "limit")
    table = np.array(losses, dtype=np.float64, ndmin=2)
    table[~np.isfinite(table).all(axis=1)] = 0.0
    np.clip(table, 0.0, limit, out=table)
    value = np.array(np.abs(table.sum(axis=0) - n_rows * np.asarray(public_means)).max(initial=0.0))
    # One record moves every predictor's sum by at most `limit`, hence the largest distance too: the list is fixed.
    return Bounded(value, l1=limit, replaced={"l1": limit, "l2": limit, "linf": limit})


def own_losses(losses: ArrayLike, limit: float, factors: ArrayLike | None = None) -> Bounded:
    """Hold one loss per record, each held to [0, limit] and multiplied by its public factor in [0, 1].

    There is one entry per record, so the number of rows must be public.
    """
    limit = checks.positive(limit, "limit")
    value: NDArray[Any] = np.array(losses, dtype=np.float64)
    if value.ndim != 1:
        raise ValueError(f"losses must have one entry per record, got {value.ndim} axes.")
    value[~np.isfinite(value)] = 0.0
    np.clip(value, 0.0, limit, out=value)
    if factors is not None:
        value *= np.clip(np.asarray(factors, dtype=np.float64), 0.0, 1.0)
    # One record owns one entry, which lies in [0, limit] whatever the record is; a null record has loss 0.
    return Bounded(value, l1=limit, replaced={"l1": limit, "l2": limit, "linf": limit}, fixed_rows=True)
