"""Private descent towards a task that public tasks foretell: water-filled coordinates, averaged steps, shrinkage."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.losses import SquaredLoss
from dpadapt.learning.waterfill import water_fill
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Repeated
from dpadapt.representation.task_prior import TaskPrior
from dpadapt.rows import Rows

Vector = NDArray[np.float64]

# Clipping norms tried, in root mean squares of a public gradient.
_CLIPS = np.array([0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
_STEPS = 60
# Of a Newton step. Curvature may be this many times higher on private rows before steps diverge: 2 / 0.25 = 8.
_STEP = 0.25
# The least residual to expect, as a part of the variance that tasks explain.
_LEAST = 0.05
# The first fifth of the steps brings gradients from where most are clipped to where few are.
_SKIPPED = _STEPS // 5
# A sum of squares is believed beyond this many standard deviations of its noise.
_DOUBT = 2.0


@dataclass(frozen=True, eq=False)
class Plan:
    """How the descent runs; everything from public data, the number of rows and the budget.

    Parameters
    ----------
    used : ndarray of int
        Which coordinates of the prior take part; the others stay at their mean.
    weights : ndarray of shape (n_used,)
        Squared scale of each, adding up to 1.
    clip_norm, max_norm : float
        Most that one row's gradient may be; longer rows count less.
    unclipped : float
        How fast the clipped gradient follows the solution, 1 without clipping.
    variance : ndarray of shape (n_used,)
        Expected squared error of each coordinate after the descent: noise and sampling.
    predicted : float
        Expected squared error of all coordinates after shrinkage.
    """

    used: NDArray[np.int64]
    weights: Vector
    clip_norm: float
    max_norm: float
    unclipped: float
    variance: Vector
    predicted: float


def plan_descent(prior: TaskPrior, budget: Budget) -> Plan:
    """Return the plan of least predicted error; no private row is read."""
    rows = prior.public_rows()
    plans = [_planned(prior.variance, rows, prior.model.residuals, budget, clip) for clip in _CLIPS]
    return min(plans, key=lambda plan: plan.predicted)


def _planned(prior: Vector, rows: Vector, residuals: Vector, budget: Budget, clip: float) -> Plan:
    """Return the plan with one clipping norm."""
    sizes = np.maximum(np.mean(rows**2, axis=0), 1e-12)
    square, least = float(np.mean(residuals**2)), _LEAST * float(prior @ sizes)
    if square < least:
        # Public tasks without noise must not clip the way to the private one away.
        square, residuals = least, np.full(len(residuals), math.sqrt(least))
    # Steps skipped are lost to the average.
    waste = _STEPS / (_STEPS - _SKIPPED)
    # Weights add up to 1, so rows have mean square length 1 and gradients that of residuals.
    per_weight = waste * budget.noise(clip * math.sqrt(square)) ** 2
    # What the private sample itself could tell of a coordinate bounds what a release can.
    useful = prior * sizes / (1 + square / (budget.n_rows * sizes * prior))
    shares = water_fill(useful, per_weight)
    used = np.flatnonzero(shares > 1e-3 * shares.max())
    shares = shares[used] / shares[used].sum()
    weights = shares / sizes[used]
    lengths = np.sqrt(rows[:, used] ** 2 @ weights)
    max_norm = max(float(np.quantile(lengths, 0.99)), 1e-12)
    lengths = lengths * np.minimum(1.0, max_norm / np.maximum(lengths, 1e-300))
    clip_norm = max(clip * math.sqrt(square), 1e-150)
    gradients = lengths * np.abs(residuals)
    total = max(float(np.mean(lengths**2)), 1e-300)
    unclipped = max(float(np.mean(lengths**2 * (gradients < clip_norm))) / total, 0.02)
    clipped = float(np.mean(np.minimum(gradients, clip_norm) ** 2)) / total
    noise = waste * budget.noise(clip_norm) ** 2
    variance = (noise / (shares * sizes[used]) + clipped / (budget.n_rows * sizes[used])) / unclipped**2
    left = prior * sizes
    mine = left[used]
    predicted = float(left.sum() - np.sum(mine**2 / (mine + variance * sizes[used])))
    return Plan(used, weights, clip_norm, max_norm, unclipped, variance, predicted)


def descend(ledger: Ledger, prior: TaskPrior, plan: Plan, X: NDArray[Any], y: NDArray[Any], budget: Budget) -> Vector:
    """Return the private task's coefficients in the prior's coordinates."""
    run = ledger.start(Repeated(Gaussian(math.sqrt(_STEPS) / budget.mu), _STEPS), label="gradient")
    scale = np.sqrt(plan.weights)
    rows = prior.rows(X)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.asarray(y - rows @ prior.mean, dtype=np.float64)
        private = Rows(rows[:, plan.used] * scale, errors, max_norm=plan.max_norm)
    # Curvature along a coordinate is its weight times the share that is not clipped.
    newton = 1.0 / (plan.weights * plan.unclipped)
    # Iterates are shrunk as the solution will be. Otherwise, along coordinates with more noise than signal, they would
    # wander to where all gradients are clipped and no longer tell the way back.
    shrinkage = prior.variance[plan.used] / (prior.variance[plan.used] + plan.variance)
    current, total = np.zeros(len(scale)), np.zeros(len(scale))
    for t in range(_STEPS):
        weights = gradient_weights(SquaredLoss(), current)
        gradient = run.release(clipped_outer_sum(private, weights, plan.clip_norm)) / budget.n_rows
        # Where a whole Newton step from here leads. On average over steps it has no memory of where they began.
        ahead = current - newton * gradient
        if t >= _SKIPPED:
            total += ahead
        current = (1 - _STEP) * current + _STEP * shrinkage * ahead
    found = scale * total / (_STEPS - _SKIPPED)
    solution = prior.mean.copy()
    solution[plan.used] += found * _shrinkage(prior, plan, found)
    return solution


def _shrinkage(prior: TaskPrior, plan: Plan, found: Vector) -> Vector:
    """Return the factors of least expected squared error, prior variance over itself plus that of the error."""
    variance = prior.variance[plan.used]
    grown = variance.copy()
    for block in prior.blocks:
        mine = (plan.used >= block.start) & (plan.used < block.stop)
        if mine.any():
            # A private task that lies further out than public ones do says so in its release.
            noise = plan.variance[mine]
            signal = float(np.sum(found[mine] ** 2 - noise)) - _DOUBT * math.sqrt(2 * float(np.sum(noise**2)))
            grown[mine] *= max(1.0, signal / float(variance[mine].sum()))
    return np.asarray(grown / (grown + plan.variance))
