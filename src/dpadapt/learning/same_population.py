"""Private correction of a public model by Kalman steps, when the public rows are a sample of the same population."""

import math

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.transfer_geometry import TransferGeometry
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Repeated
from dpadapt.rows import Block, Rows

# Each release is planned from what the ones before must have taught; more than four gain nothing measurable.
_RELEASES = 4
# Clip in residual deviations. Signal over noise is best for small clips, bias by skewed residuals for large ones.
_CLIP = 0.5

Vector = NDArray[np.float64]


def same_population_change(
    ledger: Ledger, geometry: TransferGeometry, rows: NDArray[np.float64], residuals: Vector, budget: Budget
) -> Vector:
    """Return the change of the public solution that is most likely given noisy private gradients.

    In the eigenbasis of the public second moment the error of the public model has a known covariance (a sampling
    error), and a private gradient measures it through the population's second moment with known noise: a Kalman
    filter, coordinate by coordinate. The coordinates are weighted by water-filling, so the noise goes where the public
    sample knows least. No gate: if the populations differ, this can be worse than the public model.
    """
    multiplier = math.sqrt(_RELEASES) / budget.mu
    run = ledger.start(Repeated(Gaussian(multiplier), _RELEASES), label="gradient")
    n_public = len(geometry.residuals)
    moment, noise_variance = geometry.spectrum, geometry.noise_variance
    # Ridge: variance of the sampling error, plus a bias taken to be of the size that leave-one-out found best.
    prior = noise_variance / (n_public * (geometry.values + geometry.ridge)) * np.ones_like(moment)
    change = np.zeros_like(prior)
    shape = np.sort(np.abs(geometry.residuals)) / math.sqrt(geometry.variance)
    for _ in range(_RELEASES):
        variance = noise_variance + float(moment @ prior)
        clip = _CLIP * math.sqrt(variance)
        # Shares of residuals inside the clip, and their mean square beyond and inside it, from public residuals.
        inside = max(float(np.mean(shape < _CLIP)), 0.05)
        square = float(np.mean(np.minimum(shape, _CLIP) ** 2)) * variance
        noise = (budget.factor * clip * multiplier / budget.n_rows) ** 2
        weights = _water_filled(moment, prior, noise / inside**2)
        map_ = geometry.vectors * np.sqrt(weights)
        with np.errstate(over="ignore", invalid="ignore"):
            private = Rows(rows @ map_, residuals - rows @ (geometry.vectors @ change))
        # Weighted rows have mean square length 1; the clip is on the gradient, so on length times residual.
        gradient = run.release(clipped_outer_sum(private, _targets, clip)) / budget.n_rows
        signal = np.sqrt(weights) * inside * moment
        gain = prior * signal / (signal**2 * prior + noise + weights * moment * square / budget.n_rows)
        change = change + gain * gradient
        prior = prior * (1.0 - gain * signal)
    return np.asarray(geometry.vectors @ change)


def _targets(block: Block) -> Vector:
    return np.array(block.y, dtype=np.float64)


def _water_filled(moment: Vector, prior: Vector, noise: float) -> Vector:
    """Return weights b with Σ moment b = 1 that most reduce Σ moment * posterior variance.

    The reduction along one coordinate is moment² prior² · moment b / (moment² prior b + noise); setting its derivative
    to a common level gives b = (moment prior · level - root) / …, found by bisection on the level.
    """
    strength = moment * prior
    low, high = 0.0, 1.0

    def filled(level: float) -> Vector:
        # d/db [strength * (m strength b) / (m strength b + noise)] = m strength² noise / (…)² = m / level².
        return np.asarray(
            np.maximum(0.0, strength * math.sqrt(noise) * level - noise) / np.maximum(moment * strength, 1e-300)
        )

    while float(moment @ filled(high)) < 1.0 and high < 1e300:
        high *= 4.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(moment @ filled(middle)) < 1.0 else (low, middle)
    return filled(high)
