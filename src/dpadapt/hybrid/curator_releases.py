"""Tilting: weights that make the curator's rows look like the people, by exponential tilting with a box (lasso).

Each row's weight is a function of that row and of released numbers alone, at most 1. So a weighted sum is bounded as an
unweighted one is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.mapped_questions import PublicMap, probability
from dpadapt.mechanisms.bounded import Array as Anything
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum, votes
from dpadapt.rows import Block, Rows

# What the curator releases: second moments of the rows, and models fitted by noisy descent, weighted or not.


Array = NDArray[np.float64]
Weights = Callable[[Block], Array]

STEPS = 20
RIDGE = 1e-3
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Moments:
    """Released first and second moments of the curator's rows, cleaned of noise as far as public facts allow.

    Parameters
    ----------
    n_rows : float
        How many rows there are, by the release or because it is public.
    mean : ndarray of shape (n_columns,)
    covariance : ndarray of shape (n_columns, n_columns)
    noise : float
        Standard deviation of an entry of the released sums.
    """

    n_rows: float
    mean: Array = field(repr=False)
    covariance: Array = field(repr=False)
    noise: float

    @property
    def second(self) -> Array:
        """The mean of row times row, constant last."""
        return around(self.covariance, self.mean)

    @property
    def blur(self) -> float:
        """How far noise can still move an eigenvalue, about."""
        return 0.5 * self.noise * math.sqrt(len(self.mean) + 1) / self.n_rows


def release_moments(run: Run, rows: Rows, where: PublicMap, *, n_rows: float, public: bool, noise: float) -> Moments:
    """Release the second moments. Unless `n_rows` is exact and public, their corner says how many rows there are."""
    total = run.release(clipped_gram(rows, where.max_norm))
    total = (total + total.T) / 2
    # The corner is the sum of the constants, 1 a row. Noise must not make it absurd.
    n = n_rows if public else max(float(total[-1, -1]), 0.1 * n_rows)
    mean = total[:-1, -1] / n
    covariance = total[:-1, :-1] / n - np.outer(mean, mean)
    variances = np.diag(covariance).copy()
    # Off the diagonal symmetry has halved the variance; what remains within two deviations of 0 is taken to be noise.
    limit = 2.0 * noise / math.sqrt(2) / n
    covariance = np.sign(covariance) * np.maximum(np.abs(covariance) - limit, 0.0)
    for group in map(list, where.groups):
        # Indicators of one category exclude each other, and each is its own square.
        shares = np.clip(mean[group], 0.0, 1.0)
        covariance[np.ix_(group, group)] = -np.outer(shares, shares)
        variances[group] = shares * (1 - shares)
    np.fill_diagonal(covariance, np.maximum(variances, _LEAST_VARIANCE))
    values, vectors = np.linalg.eigh(covariance)
    return Moments(n, mean, (vectors * np.maximum(values, _LEAST_VARIANCE)) @ vectors.T, noise)


def around(covariance: Array, mean: Array) -> Array:
    """Return the mean of row times row, constant last, of rows with that covariance and mean."""
    extended = np.append(mean, 1.0)
    second = np.outer(extended, extended)
    second[:-1, :-1] += covariance
    return second


def descend(
    run: Run, rows: Rows, second: Array, total: float, *, clip_norm: float, blur: float, weights: Weights | None = None
) -> Array:
    """Return a logistic model by noisy descent, preconditioned by second moments: the mean of its last iterates.

    Parameters
    ----------
    run : Run
        Charged for `STEPS` releases.
    rows : Rows
        With their constant.
    second : ndarray
        Second moments of the rows as they are weighted, constant last; released or public.
    total : float
        What the weights add up to; released or public.
    clip_norm : float
        Gradients are scaled down to this length, before they are weighted.
    blur : float
        How noisy the second moments are.
    weights : callable, optional
        Each row's weight in [0, 1], from this row and released numbers alone. Default: 1.
    """
    inverse = np.linalg.inv(0.2 * second + (0.01 + 0.2 * blur) * np.eye(len(second)))
    coef = np.zeros(len(second))
    average = np.zeros_like(coef)
    for step in range(STEPS):

        def residuals(block: Block, coef: Array = coef) -> Anything:
            found = probability(block.product(coef)) - block.y
            if weights is not None:
                # Clipped first, then weighted: else rows of full weight would be clipped most.
                limit = clip_norm * block.inverse_norms
                found = np.clip(found, -limit, limit) * weights(block)
            return np.asarray(found)

        gradient = run.release(clipped_outer_sum(rows, residuals, clip_norm)) / total
        coef = coef - inverse @ (gradient + RIDGE * coef)
        if step >= STEPS // 2:
            average += coef
    return average / (STEPS - STEPS // 2)


RELEASES = 4
_LEAST_TOTAL = 0.3


@dataclass(frozen=True, eq=False)
class Tilt:
    """Weights min(1, exp(theta'row - offset) / bound).

    Parameters
    ----------
    theta : ndarray of shape (n_columns,)
    offset : float
        Makes the mean of the untruncated exponentials about 1.
    bound : float
        The largest weight, relative to the mean.
    size : float
        theta' covariance theta: the size of the shift.
    """

    theta: Array = field(repr=False)
    offset: float
    bound: float
    size: float = 0.0

    def weights(self, block: Block) -> Array:
        """Return each row's weight, in [0, 1]."""
        return self.of(block.X)

    def of(self, X: Array) -> Array:
        """Return the weight of each row of features, in [0, 1]."""
        return np.exp(np.minimum(X @ self.theta - (self.offset + math.log(self.bound)), 0.0))


def release_total(run: Run, rows: Rows, tilt: Tilt, n_rows: float) -> float:
    """Release what the weights add up to; at least a third of what it should be."""
    # One row's weight lies in [0, 1], and is a function of that row and of released numbers alone. A null row has none.
    weights = np.where(np.isfinite(rows.norms), tilt.of(rows.X), 0.0)
    total = run.release(votes(weights[:, None]))
    return max(float(total[0]), _LEAST_TOTAL * n_rows / tilt.bound)


def find_tilt(
    run: Run, rows: Rows, where: PublicMap, moments: Moments, wanted: Array, *, bound: float, noise: float, scale: float
) -> Tilt:
    """Return weights under which the curator's means are the `wanted` ones, as far as noise can tell them apart.

    Parameters
    ----------
    run : Run
        Charged for `RELEASES` releases.
    wanted : ndarray of shape (n_columns,)
        The people's means, each with standard deviation `noise`.
    bound : float
        The most a weight may be, relative to the mean.
    scale : float
        Standard deviation of an entry of a released sum.
    """
    covariance, n = moments.covariance, moments.n_rows
    size = len(wanted)
    base = covariance + (0.01 + moments.blur) * np.eye(size)
    theta, offset, stretch = np.zeros(size), 0.0, 1.0
    mean, total = moments.mean, n
    # Of the second moments' noise, the column of sums has sqrt 1/2 by symmetry.
    own = moments.noise / math.sqrt(2)
    ends: list[tuple[Array, float]] = []
    step = np.zeros(size)
    for turn in range(RELEASES + 1):
        if turn > 0:
            tilt = _tilt(where, theta, offset, bound)
            # weight * row is no longer than the row, whose length is max_norm at most with its constant.
            sums = run.release(clipped_outer_sum(rows, tilt.weights, where.max_norm))
            total = max(float(sums[-1]), _LEAST_TOTAL * n / tilt.bound)
            before, mean, own = mean, sums[:-1] / total, scale
            offset += float(np.clip(math.log(total * tilt.bound / n), -1.0, 1.0))
            moved = float(step @ (mean - before))
            expected = float(step @ covariance @ step)
            # Barzilai and Borwein: how much further the means must be pushed than the covariance says.
            if expected > 0:
                stretch = float(np.clip(expected / moved, 0.5, 4.0)) if moved > 0 else 4.0
        blur = math.hypot(noise, own / total)
        metric = base / stretch
        step = _lasso(metric, wanted - mean, theta, blur)
        new = theta + step
        length = float(new @ covariance @ new)
        # A Gaussian tilt costs a factor exp(length) of effective rows.
        if length > 1.5 * math.log(bound):
            new *= math.sqrt(1.5 * math.log(bound) / length)
        step = new - theta
        offset += float(step @ mean + 0.5 * step @ metric @ step)
        theta = new
        ends.append((theta, offset))
    theta = (ends[-1][0] + ends[-2][0]) / 2
    offset = (ends[-1][1] + ends[-2][1]) / 2
    return _tilt(where, theta, offset, bound, float(theta @ covariance @ theta))


def _tilt(where: PublicMap, theta: Array, offset: float, bound: float, size: float = 0.0) -> Tilt:
    """Return the tilt with no larger a bound than the declared ranges can reach: small shifts cost little noise."""
    most = where.highest(theta) - offset
    return Tilt(theta, offset, min(bound, math.exp(min(max(most, 0.0), 50.0))), size)


def _lasso(metric: Array, gap: Array, theta: Array, penalty: float, sweeps: int = 100) -> Array:
    """Return the step d of least d'metric d / 2 - d'gap + penalty |theta + d|_1, by coordinate descent."""
    goal = theta.copy()
    slope = gap.copy()
    for _ in range(sweeps):
        largest = 0.0
        for k in range(len(goal)):
            curved = metric[k, k]
            pull = goal[k] * curved + slope[k]
            new = math.copysign(max(abs(pull) - penalty, 0.0), pull) / curved
            change = new - goal[k]
            if change != 0.0:
                slope -= metric[k] * change
                goal[k] = new
                largest = max(largest, abs(change))
        if largest < 1e-6:
            break
    return goal - theta
