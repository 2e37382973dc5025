"""What the curator releases: second moments of its rows, models by noisy gradient descent, and weights of rows.

The weights give the curator's rows the people's means, by exponential tilting with a bound on each weight and a lasso
penalty. Each row's weight is a function of that row and of released numbers alone, and at most 1, so that a weighted
sum has the same bound as an unweighted one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.mapped_questions import PublicMap, probability
from dpadapt.mechanisms.bounded import Array as AnyArray
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum, votes
from dpadapt.rows import Block, Rows

Array = NDArray[np.float64]
Weights = Callable[[Block], Array]

# These constants were set on the populations of docs/benchmarks/hybrid.md, with other seeds; neighbouring
# values were not compared.
#
# Gradient steps of one model, each of them a release. More steps come closer to the optimum, with more noise in each.
DESCENT_STEPS = 20
# Ridge penalty of every model, per row. A larger one is steadier and more biased towards 0.
_DESCENT_RIDGE = 1e-3
# The curvature p (1 - p) that a step of descent assumes, at most 1/4, and what is added to it in every direction. A
# smaller curvature makes longer steps; the addition keeps steps short where rows hardly vary.
_STEP_CURVATURE, _STEP_RIDGE = 0.2, 0.01
# The least variance of a feature, and of any direction, that released moments are allowed: noise can make it negative.
_LEAST_VARIANCE = 1e-3
# Releases of weighted means in the search for weights. More of them come closer to the people's means, with more noise
# in each.
TILT_RELEASES = 4
# A step of the search is at least and at most this many times as long as the covariance says: a ratio of noisy numbers
# must not stop the search or throw it off.
_STEP_STRETCHES = 0.5, 4.0
# theta' covariance theta is at most this many times the logarithm of the largest weight. Larger tilts would cut off the
# weights of many rows.
_LARGEST_TILT = 1.5
# A released sum of weights corrects the offset by at most this, in logarithms.
_OFFSET_STEP = 1.0
# The released sum of weights counts as at least this share of what it should be, n_rows / bound: noise could make it
# absurdly small, and it is divided by.
_LEAST_WEIGHT_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Moments:
    """Released first and second moments of the curator's rows, denoised as far as public facts allow.

    Parameters
    ----------
    n_rows : float
        The number of rows: released, or public.
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
        """About how far noise can still move an eigenvalue of the second moments."""
        return 0.5 * self.noise * math.sqrt(len(self.mean) + 1) / self.n_rows


def release_moments(run: Run, rows: Rows, where: PublicMap, *, n_rows: float, public: bool, noise: float) -> Moments:
    """Release the second moments. If `n_rows` is not exact and public, it is replaced by their corner, the row count.

    `noise` is the standard deviation of an entry.
    """
    # Mapped rows are no longer than max_norm, their constant included; `clipped_gram` enforces it.
    total = run.release(clipped_gram(rows, where.max_norm))
    total = (total + total.T) / 2
    # The corner is the sum of the constants, 1 per row. Noise must not make it absurdly small.
    n = n_rows if public else max(float(total[-1, -1]), 0.1 * n_rows)
    mean = total[:-1, -1] / n
    covariance = total[:-1, :-1] / n - np.outer(mean, mean)
    variances = np.diag(covariance).copy()
    # Averaging with the transpose has halved the variance off the diagonal. There, entries are shrunk towards 0 by two
    # standard deviations of their noise.
    limit = 2.0 * noise / math.sqrt(2) / n
    covariance = np.sign(covariance) * np.maximum(np.abs(covariance) - limit, 0.0)
    for group in map(list, where.groups):
        # At most one indicator of a category is 1, and each is its own square: means determine these covariances.
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
    """Return a logistic model by noisy descent, preconditioned by second moments: the mean of the last half of steps.

    Parameters
    ----------
    run : Run
        Charged for `DESCENT_STEPS` releases.
    rows : Rows
        With their constant.
    second : ndarray
        Second moments of the weighted rows, constant last; released or public.
    total : float
        The sum of the weights; released or public.
    clip_norm : float
        The clipping norm of a row's gradient, before it is weighted.
    blur : float
        `Moments.blur` of the second moments.
    weights : callable, optional
        Each row's weight in [0, 1], from this row and released numbers alone. Default: 1.
    """
    ridge = _STEP_RIDGE + _STEP_CURVATURE * blur
    inverse = np.linalg.inv(_STEP_CURVATURE * second + ridge * np.eye(len(second)))
    coef = np.zeros(len(second))
    average = np.zeros_like(coef)
    for step in range(DESCENT_STEPS):

        def residuals(block: Block, coef: Array = coef) -> AnyArray:
            values = probability(block.product(coef)) - block.y
            if weights is not None:
                # Clipped first, then weighted: otherwise clipping would hit rows of full weight most.
                limit = clip_norm * block.inverse_norms
                values = np.clip(values, -limit, limit) * weights(block)
            return np.asarray(values)

        # Claim: |sum - sum'|_2 <= clip_norm, by `clipped_outer_sum`. A row's term is its gradient times a weight <= 1.
        gradient = run.release(clipped_outer_sum(rows, residuals, clip_norm)) / total
        coef = coef - inverse @ (gradient + _DESCENT_RIDGE * coef)
        if step >= DESCENT_STEPS // 2:
            average += coef
    return average / (DESCENT_STEPS - DESCENT_STEPS // 2)


@dataclass(frozen=True, eq=False)
class Tilt:
    """Weights min(1, exp(theta'row - offset) / bound).

    Parameters
    ----------
    theta : ndarray of shape (n_columns,)
    offset : float
        Makes the mean of exp(theta'row - offset) about 1.
    bound : float
        The largest weight, relative to the mean weight.
    size : float
        theta' covariance theta: the size of the shift.
    """

    theta: Array = field(repr=False)
    offset: float
    bound: float
    size: float = 0.0

    def weights(self, block: Block) -> Array:
        """Return the weight of each row of a block, in [0, 1]."""
        return self.of(block.X)

    def of(self, X: Array) -> Array:
        """Return the weight of each row of features, in [0, 1]."""
        return np.exp(np.minimum(X @ self.theta - (self.offset + math.log(self.bound)), 0.0))


def release_total(run: Run, rows: Rows, tilt: Tilt, n_rows: float) -> float:
    """Release the sum of the weights; return at least 0.3 of what it should be."""
    # One row's weight lies in [0, 1], and is a function of that row and of released numbers alone; 0 for a null row.
    weights = np.where(np.isfinite(rows.norms), tilt.of(rows.X), 0.0)
    total = run.release(votes(weights[:, None]))
    return max(float(total[0]), _LEAST_WEIGHT_SHARE * n_rows / tilt.bound)


def find_tilt(
    run: Run, rows: Rows, where: PublicMap, moments: Moments, wanted: Array, *, bound: float, noise: float, scale: float
) -> Tilt:
    """Return weights under which the curator's means are the `wanted` ones, except for differences within noise.

    Parameters
    ----------
    run : Run
        Charged for `TILT_RELEASES` releases.
    wanted : ndarray of shape (n_columns,)
        The people's means, each with standard deviation `noise`.
    bound : float
        The largest weight allowed, relative to the mean weight.
    scale : float
        Standard deviation of an entry of a released sum.
    """
    covariance, n = moments.covariance, moments.n_rows
    size = len(wanted)
    base = covariance + (_STEP_RIDGE + moments.blur) * np.eye(size)
    theta, offset, stretch = np.zeros(size), 0.0, 1.0
    mean, total = moments.mean, n
    # The means come from a column of the second moments. Averaging with the transpose divided its noise by sqrt 2.
    sum_noise = moments.noise / math.sqrt(2)
    iterates: list[tuple[Array, float]] = []
    step = np.zeros(size)
    for turn in range(TILT_RELEASES + 1):
        if turn > 0:
            tilt = _tilt(where, theta, offset, bound)
            # Claim: |Σ weight * row - that of a neighbour|_2 <= max_norm, by `clipped_outer_sum`.
            sums = run.release(clipped_outer_sum(rows, tilt.weights, where.max_norm))
            total = max(float(sums[-1]), _LEAST_WEIGHT_SHARE * n / tilt.bound)
            before, mean, sum_noise = mean, sums[:-1] / total, scale
            offset += float(np.clip(math.log(total * tilt.bound / n), -_OFFSET_STEP, _OFFSET_STEP))
            moved = float(step @ (mean - before))
            expected = float(step @ covariance @ step)
            # Barzilai and Borwein's ratio: the change of the means that the covariance predicts, over the actual one.
            if expected > 0:
                stretch = float(np.clip(expected / moved, *_STEP_STRETCHES)) if moved > 0 else _STEP_STRETCHES[1]
        penalty = math.hypot(noise, sum_noise / total)
        metric = base / stretch
        step = _lasso(metric, wanted - mean, theta, penalty)
        new = theta + step
        length = float(new @ covariance @ new)
        # Tilting a Gaussian divides the effective number of rows by exp(length).
        longest = _LARGEST_TILT * math.log(bound)
        if length > longest:
            new *= math.sqrt(longest / length)
        step = new - theta
        offset += float(step @ mean + 0.5 * step @ metric @ step)
        theta = new
        iterates.append((theta, offset))
    theta = (iterates[-1][0] + iterates[-2][0]) / 2
    offset = (iterates[-1][1] + iterates[-2][1]) / 2
    return _tilt(where, theta, offset, bound, float(theta @ covariance @ theta))


def _tilt(where: PublicMap, theta: Array, offset: float, bound: float, size: float = 0.0) -> Tilt:
    """Return the tilt, its bound lowered to what the declared ranges can reach: small shifts then add little noise."""
    highest = where.highest(theta) - offset
    return Tilt(theta, offset, min(bound, math.exp(min(max(highest, 0.0), 50.0))), size)


def _lasso(metric: Array, gap: Array, theta: Array, penalty: float, sweeps: int = 100) -> Array:
    """Return the step d that minimises d'metric d / 2 - d'gap + penalty |theta + d|_1, by coordinate descent."""
    solution = theta.copy()
    slope = gap.copy()
    for _ in range(sweeps):
        largest = 0.0
        for k in range(len(solution)):
            curvature = metric[k, k]
            unpenalised = solution[k] * curvature + slope[k]
            new = math.copysign(max(abs(unpenalised) - penalty, 0.0), unpenalised) / curvature
            change = new - solution[k]
            if change != 0.0:
                slope -= metric[k] * change
                solution[k] = new
                largest = max(largest, abs(change))
        if largest < 1e-6:
            break
    return solution - theta
