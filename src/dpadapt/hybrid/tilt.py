"""Tilting: weights that make the curator's rows look like the people, by exponential tilting with a box (lasso).

Each row's weight is a function of that row and of released numbers alone, at most 1. So a weighted sum is bounded as an
unweighted one is.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.run import Run
from dpadapt.hybrid.curator import Moments
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.mechanisms.bounded import clipped_outer_sum, votes
from dpadapt.rows import Block, Rows

Array = NDArray[np.float64]

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
