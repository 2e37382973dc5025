"""What the curator releases: second moments of the rows, and models fitted by noisy descent, weighted or not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.run import Run
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.vector_question import probability
from dpadapt.mechanisms.bounded import Array as Anything
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.rows import Block, Rows

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
