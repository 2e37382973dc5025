"""One stage of private correction: clipped full-batch steps in a few publicly chosen coordinates, and their noise."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.descent import constant, gradient_weights, tail_noise
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.bounded import clipped_outer_sum, votes
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.rows import Rows

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stage:
    """How a stage runs; everything from public data, earlier releases, the number of rows and the budget.

    Parameters
    ----------
    map : ndarray of shape (n_columns, k)
        From standardised rows to the coordinates of this stage.
    weights : ndarray of shape (k,)
        Squared scale of each coordinate relative to a whitened one (water-filled; 1 where all count alike).
    max_norm : float
        Longer rows weigh (max_norm / length)².
    clip_norm : float
        Most that one row's gradient may be.
    noise : float
        Standard deviation, per coordinate of the mean gradient, of one release.
    n_steps : int
    step : float
    unclipped : float
        Share of public rows that are not clipped.
    bias : ndarray of shape (k,)
        What clipping adds to the mean gradient on public rows, where nothing is to be found.
    row_weight : float
        Mean of the squared factors by which public rows are scaled down: shortening times `max_norm`.
    """

    map: Vector
    weights: Vector
    max_norm: float
    clip_norm: float
    noise: float
    n_steps: int
    step: float
    unclipped: float
    bias: Vector
    row_weight: float

    def noise_of_average(self, curvature: Vector) -> Vector:
        """Return the variance of the averaged iterate from the noise of the releases, for each curvature."""
        return self.noise**2 * tail_noise(self.n_steps, constant(self.step), curvature)

    def response(self, curvature: Vector) -> Vector:
        """Return how far the averaged iterate follows a constant gradient, per unit of it, for each curvature."""
        c = np.maximum(curvature, 1e-9)
        # Σ_{t=first+1..T} (1 - (1 - step c)^t) / c over the tail. Curvatures past 1 / step only flip a tiny remainder.
        q = np.abs(1.0 - self.step * c)
        first = self.n_steps // 2
        left = (q ** (first + 1) - q ** (self.n_steps + 1)) / np.maximum(1.0 - q, 1e-12) / (self.n_steps - first)
        return np.asarray((1.0 - np.minimum(left, 1.0)) / c)


def run_stage(run: Run, stage: Stage, rows: Rows, n_rows: float, *, centred: bool) -> Vector:
    """Return the averaged iterate of the stage's descent; `centred` subtracts the public bias of clipping."""
    # Rows' weights are those of `rows.leverage`; the maker clips each row's gradient, whatever it is, to clip_norm.
    current, average = np.zeros(len(stage.weights)), np.zeros(len(stage.weights))
    first = stage.n_steps // 2
    offset = stage.bias if centred else 0.0
    for t in range(stage.n_steps):
        weights = gradient_weights(SquaredLoss(), current)
        gradient = run.release(clipped_outer_sum(rows, weights, stage.clip_norm)) / n_rows
        current = current - stage.step * (gradient + offset)
        if t >= first:
            average += current
    return average / (stage.n_steps - first)


def residual_facts(rows: Rows, stage: Stage, change: Vector, row_weights: Vector, unit: float) -> NDArray[np.float64]:
    """Return, for each row, three numbers of [0, 1] that tell how its residual after `change` compares with the clip.

    `row_weights` if not clipped, else 0; squared gradient over squared clip; size of the residual in `unit`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = np.abs(rows.y - rows.X @ change)
        gradients = leverages(rows) * np.minimum(rows.norms, 1e300) * residuals / stage.clip_norm
        facts = np.column_stack([(gradients < 1.0) * row_weights, np.minimum(gradients, 1.0) ** 2, residuals / unit])
    # A null row says nothing.
    known = np.isfinite(rows.norms) & np.isfinite(facts).all(axis=1)
    return np.where(known[:, None], np.clip(facts, 0.0, 1.0), 0.0)


def leverages(rows: Rows) -> NDArray[np.float64]:
    """Return the weight of each row in a descent."""
    return np.ones(rows.n_rows) if rows.leverage is None else rows.leverage


def release_facts(run: Run, facts: NDArray[np.float64], n_rows: float) -> tuple[Vector, float]:
    """Return the means of a few numbers of [0, 1] per row, averaged over all releases of `run`, and their noise."""
    if not isinstance(run.plan.mechanism, Gaussian):
        raise TypeError("the noise of this release must be Gaussian.")
    steps = run.plan.steps
    total = np.zeros(facts.shape[1])
    for _ in range(steps):
        total += run.release(votes(facts))
    # One row moves the sum of k such numbers by at most sqrt(k) in l2, see `votes`.
    noise = run.plan.mechanism.noise_multiplier * math.sqrt(facts.shape[1] / steps) / n_rows
    # They are means of numbers of [0, 1]; what noise put beyond that must not count as evidence.
    return np.clip(total / (steps * n_rows), 0.0, 1.0), noise
