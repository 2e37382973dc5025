"""Private correction of a public model by Kalman steps, when the public rows are a sample of the same population."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.clip_bias import ClipBias
from dpadapt.learning.transfer_geometry import TransferGeometry
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Repeated
from dpadapt.rows import Block, Rows

# Each release is planned from what the ones before must have taught; more than four gain nothing measurable.
_RELEASES = 4
# Clips tried, in residual deviations. Signal over noise is best for small ones, bias for large ones.
_CLIPS = 2.0 ** np.arange(-1.5, 3.5, 0.5)

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Step:
    """One release: weights of eigencoordinates, length of clipped gradients, where to take them, and what they move."""

    weights: Vector
    clip_norm: float
    shift: Vector
    gain: Vector


@dataclass(frozen=True, eq=False)
class KalmanPlan:
    """All releases at one clip, made from public data alone.

    Parameters
    ----------
    steps : list of Step
    kept : ndarray
        How much of what the releases found is an error of the public solution; the rest is doubt about clipping.
    error : float
        Expected loss above that of the best solution.
    """

    steps: list[Step]
    kept: Vector
    error: float


def same_population_change(
    ledger: Ledger, geometry: TransferGeometry, rows: NDArray[np.float64], residuals: Vector, budget: Budget
) -> Vector:
    """Return the change of the public solution that is most likely given noisy private gradients.

    In the eigenbasis of the public second moment the error of the public model has a known covariance (a sampling
    error), and a private gradient measures it through the population's second moment with known noise: a Kalman
    filter, coordinate by coordinate. The coordinates are weighted by water-filling, so the noise goes where the public
    sample knows least. The clip is the one of least expected error, noise and bias together. No gate: if the
    populations differ, this can be worse than the public model.
    """
    multiplier = math.sqrt(_RELEASES) / budget.mu
    run = ledger.start(Repeated(Gaussian(multiplier), _RELEASES), label="gradient")
    plan = kalman_plan(geometry, budget.factor * multiplier / budget.n_rows, budget.n_rows)
    # Single precision is far finer than the noise, but its sums are bounded only while the number of rows is fixed.
    kind = np.float64 if ledger.adjacency is Adjacency.ADD_REMOVE else np.float32
    # Turned once: the releases only weight the coordinates.
    with np.errstate(over="ignore", invalid="ignore"):
        turned = rows.astype(kind) @ geometry.vectors.astype(kind)
    change = np.zeros(len(geometry.values))
    for step in plan.steps:
        with np.errstate(over="ignore", invalid="ignore"):
            left = residuals - turned @ (change + step.shift).astype(kind)
            private = Rows(turned * np.sqrt(step.weights).astype(kind), left)
        # Weighted rows have mean square length 1; the clip is on the gradient, so on length times residual.
        gradient = run.release(clipped_outer_sum(private, _targets, step.clip_norm)) / budget.n_rows
        change = change + step.gain * gradient
    return np.asarray(geometry.vectors @ (plan.kept * change))


def kalman_plan(geometry: TransferGeometry, noise_per_clip: float, n_rows: float) -> KalmanPlan:
    """Return the plan whose clip has the least expected error.

    Parameters
    ----------
    geometry : TransferGeometry
    noise_per_clip : float
        Standard deviation of the noise in one mean gradient, per unit of its clip.
    n_rows : float
        Number of private rows.
    """
    bias = ClipBias(geometry)
    plans = [_plan(geometry, bias, float(clip), noise_per_clip, n_rows) for clip in _CLIPS]
    return min(plans, key=lambda plan: plan.error)


def _plan(geometry: TransferGeometry, bias: ClipBias, clip: float, noise_per_clip: float, n_rows: float) -> KalmanPlan:
    """Return the releases at one clip.

    Private gradients vanish at the public solution's error plus the bias of clipping, never at the one alone. So the
    filter follows their sum, and the error's share of it is kept at the end.
    """
    moment, noise_variance = geometry.spectrum, geometry.noise_variance
    # Ridge: variance of the sampling error, plus a bias taken to be of the size that leave-one-out found best.
    prior = noise_variance / (len(geometry.residuals) * (geometry.values + geometry.ridge))
    variance = noise_variance + float(moment @ prior)
    even = np.full(len(moment), 1.0 / max(float(moment.sum()), 1e-300))
    first = bias.measure(even, clip, variance)
    kept = prior / np.maximum(prior + first.doubt, 1e-300)
    slope, both = first.slope, prior + first.doubt
    steps = []
    for _ in range(_RELEASES):
        clip_norm = clip * math.sqrt(variance)
        noise = (noise_per_clip * clip_norm) ** 2
        weights = _water_filled(moment, both, kept, noise / slope**2)
        clipped = bias.measure(weights, clip, variance)
        slope = clipped.slope
        signal = np.sqrt(weights) * slope * moment
        gain = both * signal / (signal**2 * both + noise + weights * moment * clipped.square / n_rows)
        steps.append(Step(weights, clip_norm, clipped.shift, gain))
        both = both * (1.0 - gain * signal)
        variance = noise_variance + float(moment @ (prior * (1.0 - kept) + kept**2 * both))
    return KalmanPlan(steps, kept, variance - noise_variance)


def _targets(block: Block) -> NDArray[Any]:
    return np.array(block.y, dtype=block.X.dtype)


def _water_filled(moment: Vector, prior: Vector, kept: Vector, noise: float) -> Vector:
    """Return weights b with Σ moment b = 1 that most reduce Σ moment * kept² * posterior variance.

    The reduction along one coordinate is kept² moment² prior² · moment b / (moment² prior b + noise); setting its
    derivative to a common level gives b = (moment prior · kept level - root) / …, found by bisection on the level.
    """
    strength = moment * prior
    low, high = 0.0, 1.0

    def filled(level: float) -> Vector:
        # d/db [kept² strength * (m strength b) / (m strength b + noise)] = m (kept strength)² noise / (…)² = m / level²
        return np.asarray(
            np.maximum(0.0, kept * strength * math.sqrt(noise) * level - noise) / np.maximum(moment * strength, 1e-300)
        )

    while float(moment @ filled(high)) < 1.0 and high < 1e300:
        high *= 4.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(moment @ filled(middle)) < 1.0 else (low, middle)
    return filled(high)
