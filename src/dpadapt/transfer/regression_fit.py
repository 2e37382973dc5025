"""The private part of the transfer regressor: what it releases, and what it keeps of it.

`shifted_change` calibrates and corrects a public model whose population may have shifted, and passes each change
through the gate. `same_population_change` filters private gradients where the populations are the same.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.descent import SquaredLoss, released_gradient
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum, votes
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.rows import Block, Rows
from dpadapt.transfer.gate import Kept, keep
from dpadapt.transfer.regression_plan import (
    CORRECTION_CURVATURE,
    RELEASES,
    SamePopulationPlan,
    ShiftedPlan,
    Stage,
    TransferGeometry,
    dyadic_blocks,
)

Vector = NDArray[np.float64]

# A coordinate of the released row mean below this many standard deviations of its noise is set to 0. Chosen by hand.
_MEAN_THRESHOLD = 4.0
# Share of the measured curvature that the noise of the calibration is computed with: a little low, so that the noise is
# overstated rather than understated. Chosen by hand.
_CALIBRATION_CURVATURE = 0.8
# Released shares are moved this many standard deviations of their noise to the safe side. More would overstate the
# noise and open the gate less often. Chosen by hand.
_SAFE_DEVIATIONS = 2.0

# Limits that keep a noisy release from being taken for an extreme fact. All were chosen by hand.
#
# Least row mean that counts, in public standard deviations; least mean of the constant, which is 1 in every row.
_LEAST_ROW_MEAN, _LEAST_CONSTANT = 0.1, 0.3
# Least released share of rows or of squared gradients.
_LEAST_RELEASED_SHARE = 0.02
# Ratios of private to public residuals that are compared with the release, and the least that is believed.
_SIZE_RATIOS, _LEAST_SIZE_RATIO = np.geomspace(0.05, 20.0, 60), 0.1
# Least curvature of the calibration, where the public one is 1. If the noise of its release is above the second number,
# the third is assumed.
_LEAST_CURVATURE, _MOST_CURVATURE_NOISE, _ASSUMED_CURVATURE = 0.05, 0.5, 0.2
# Least share of unclipped public rows that the bias of clipping is divided by, and the standard deviation of that bias
# on private rows about the public one, relative to it.
_LEAST_UNCLIPPED_SHARE, _BIAS_DEVIATION = 0.3, 0.5


def same_population_change(
    plan: SamePopulationPlan,
    run: Run,
    geometry: TransferGeometry,
    rows: NDArray[np.float64],
    residuals: Vector,
    n_rows: float,
    *,
    precision: type[np.floating[Any]],
) -> Vector:
    """Return the change of the public solution that is most likely given noisy private gradients.

    In the eigenbasis of the public second moment the error of the public model has a known covariance (a sampling
    error), and a private gradient measures it through the population's second moment with known noise: a Kalman
    filter, coordinate by coordinate. The coordinates are weighted by water-filling, so that the noise is least where
    the public sample is least informative. The clipping norm is the one of least expected error, noise and bias
    together. There is no gate: if the populations differ, this can be worse than the public model.

    Single `precision` is far finer than the noise, but its sums are bounded only while the number of rows is fixed.
    """
    # Rotated once: the releases only weight the coordinates.
    with np.errstate(all="ignore"):
        turned = rows.astype(precision) @ geometry.vectors.astype(precision)
    change = np.zeros(len(geometry.values))
    for step in plan.steps:
        with np.errstate(all="ignore"):
            left = residuals - turned @ (change + step.shift).astype(precision)
            private = Rows(turned * np.sqrt(step.weights).astype(precision), left)
        # Weighted rows have mean square length 1; the clip is on the gradient, so on length times residual.
        gradient = run.release(clipped_outer_sum(private, _targets, step.clip_norm)) / n_rows
        change = change + step.gain * gradient
    return np.asarray(geometry.vectors @ (plan.kept * change))


def _targets(block: Block) -> NDArray[Any]:
    return np.array(block.y, dtype=block.X.dtype)


def shifted_change(
    plan: ShiftedPlan, runs: Sequence[Run], rows: NDArray[Any], residuals: Vector
) -> tuple[Vector, float]:
    """Return the change of the public solution, calibration and correction, each gated, and how much was adopted.

    What was adopted is the share of the energy of the released corrections that the gate let through, 0 to 1.
    """
    run = dict(zip(RELEASES, runs, strict=True))
    geometry, n_rows = plan.geometry, plan.budget.n_rows
    unit = 2.0 * math.sqrt(geometry.variance)

    # 1. Where the private rows lie.
    mean = _row_mean(run["row mean"], plan, rows)
    # 2. Calibration: level and slope of the public model.
    stage = plan.calibration(mean)
    private = _stage_rows(rows, residuals, stage)
    calibrated = _descend(run["calibration"], stage, private, n_rows, centred=True)
    # 3. Sizes: how large private residuals are, relative to public ones.
    facts = _residual_facts(private, stage, calibrated, np.ones(len(rows)), unit)
    (unclipped, square, seen), noise = _release_facts(run["sizes"], facts, n_rows)
    low, size = _relative_size(geometry.residuals, unit, seen, noise)
    # 4. Plane: the private second moment of level and slope, and the gate of the calibration.
    moved, kept = _gate_calibration(run["plane"], plan, stage, private, calibrated, (unclipped, square, noise), low)
    change = stage.map @ moved
    with np.errstate(all="ignore"):
        residuals = residuals - rows @ change

    # 5. Correction of the directions that the budget can pay for.
    chosen, stage = plan.correction(mean, size)
    private = _stage_rows(rows, residuals, stage)
    corrected = _descend(run["correction"], stage, private, n_rows, centred=False)
    # 6. Check: how many gradients were clipped, and the gate of the correction.
    facts = _residual_facts(private, stage, corrected, _leverages(private) * rows[:, -1] ** 2, unit)
    (unclipped, square, _), noise = _release_facts(run["check"], facts, n_rows)
    curvature = CORRECTION_CURVATURE * stage.weights * _safely_low(unclipped / stage.row_weight, noise)
    variance = stage.weights * _variance(stage, curvature, _safely_high(square, noise), n_rows)
    judged = keep(
        np.sqrt(stage.weights) * corrected,
        variance,
        dyadic_blocks(chosen),
        error=geometry.variance * low**2,
        established=kept.established,
    )
    adopted = (kept.adopted + judged.adopted) / max(kept.seen + judged.seen, 1e-300)
    return np.asarray(change + stage.map @ (judged.factors * corrected)), min(adopted, 1.0)


def _row_mean(run: Run, plan: ShiftedPlan, rows: NDArray[Any]) -> Vector:
    """Return the mean of the private rows in whitened coordinates, where it exceeds its noise."""
    whitened = plan.geometry.whitened
    longest = max(float(np.quantile(np.linalg.norm(whitened, axis=1), 0.95)), 1e-12)
    with np.errstate(all="ignore"):
        private = Rows(rows @ plan.geometry.whitening, np.zeros(len(rows)))
    total = np.zeros(private.n_columns)
    for _ in range(run.plan.steps):
        total += run.release(clipped_outer_sum(private, _ones, longest))
    mean = total / (run.plan.steps * plan.budget.n_rows)
    noise = plan.noise_per_clip * longest / math.sqrt(run.plan.steps)
    mean = np.where(np.abs(mean) > max(_MEAN_THRESHOLD * noise, _LEAST_ROW_MEAN), mean, 0.0)
    # The constant is 1 in every row, so its mean is known even if noise hides it or shortening halves it.
    constant = float(np.sign(np.mean(whitened[:, 0])))
    if mean[0] * constant < _LEAST_CONSTANT:
        mean[0] = constant
    return mean


def _ones(block: Block) -> Vector:
    return np.ones(len(block.y))


def _stage_rows(rows: NDArray[Any], residuals: Vector, stage: Stage) -> Rows:
    with np.errstate(all="ignore"):
        return Rows(rows @ stage.map, residuals, max_norm=stage.max_norm)


def _descend(run: Run, stage: Stage, rows: Rows, n_rows: float, *, centred: bool) -> Vector:
    """Return the averaged iterate of the stage's steps; `centred` subtracts the bias of clipping on public rows."""
    current, average = np.zeros(len(stage.weights)), np.zeros(len(stage.weights))
    first = stage.n_steps // 2
    offset = stage.bias if centred else 0.0
    for t in range(stage.n_steps):
        gradient = released_gradient(run, rows, SquaredLoss(), current, stage.clip_norm, n_rows)
        current = current - stage.step * (gradient + offset)
        if t >= first:
            average += current
    return average / (stage.n_steps - first)


def _residual_facts(rows: Rows, stage: Stage, change: Vector, row_weights: Vector, unit: float) -> Vector:
    """Return three numbers in [0, 1] for each row that compare its residual after `change` with the clipping norm.

    They are `row_weights` if the row is not clipped, else 0; the squared gradient over the squared clipping norm; and
    the size of the residual in `unit`.
    """
    with np.errstate(all="ignore"):
        residuals = np.abs(rows.y - rows.X @ change)
        gradients = _leverages(rows) * np.minimum(rows.norms, 1e300) * residuals / stage.clip_norm
        facts = np.column_stack([(gradients < 1.0) * row_weights, np.minimum(gradients, 1.0) ** 2, residuals / unit])
    # A null row contributes nothing.
    known = np.isfinite(rows.norms) & np.isfinite(facts).all(axis=1)
    return np.where(known[:, None], np.clip(facts, 0.0, 1.0), 0.0)


def _leverages(rows: Rows) -> Vector:
    """Return the weight of each row in a descent."""
    return np.ones(rows.n_rows) if rows.leverage is None else rows.leverage


def _release_facts(run: Run, facts: Vector, n_rows: float) -> tuple[Vector, float]:
    """Return the means of a few numbers in [0, 1] per row, averaged over all releases of `run`, and their noise."""
    if not isinstance(run.plan.mechanism, Gaussian):
        raise TypeError("the noise of this release must be Gaussian.")
    steps = run.plan.steps
    total = np.zeros(facts.shape[1])
    for _ in range(steps):
        total += run.release(votes(facts))
    # One row moves the sum of k such numbers by at most sqrt(k) in l2, see `votes`.
    noise = run.plan.mechanism.noise_multiplier * math.sqrt(facts.shape[1] / steps) / n_rows
    # They are means of numbers in [0, 1]; noise beyond that range must not count as evidence.
    return np.clip(total / (steps * n_rows), 0.0, 1.0), noise


def _safely_low(share: float, noise: float) -> float:
    """Return a released share, moved down by its noise."""
    return float(np.clip(share - _SAFE_DEVIATIONS * noise, _LEAST_RELEASED_SHARE, 1.0))


def _safely_high(share: float, noise: float) -> float:
    """Return a released share, moved up by its noise."""
    return float(np.clip(share + _SAFE_DEVIATIONS * noise, _LEAST_RELEASED_SHARE, 1.0))


def _relative_size(values: Vector, unit: float, seen: float, noise: float) -> tuple[float, float]:
    """Return how much larger private residuals are than public ones: a safe lower and a central estimate.

    `seen` is the released mean of min(|residual| / unit, 1) over private rows. The same mean over public residuals
    times a ratio is a known increasing function of the ratio. The central estimate is the ratio nearest to 1 within
    two standard deviations of the noise.
    """
    sizes = np.abs(values) / unit
    curve = np.array([np.mean(np.minimum(ratio * sizes, 1.0)) for ratio in _SIZE_RATIOS])
    low, high = (float(np.interp(seen + side * _SAFE_DEVIATIONS * noise, curve, _SIZE_RATIOS)) for side in (-1, 1))
    return max(low, _LEAST_SIZE_RATIO), min(max(1.0, low), high)


def _variance(stage: Stage, curvature: Vector, square: float, n_rows: float) -> Vector:
    """Return the noise of each averaged coordinate: that of the releases and that of the private sample.

    `square` is the mean squared gradient over the squared clipping norm, so a coordinate of the sample's mean gradient
    has variance square * clip² / (k n); the iterate follows it as far as `response` says.
    """
    sample = square * stage.clip_norm**2 / (len(stage.weights) * n_rows)
    return stage.noise_of_average(curvature) + sample * stage.response(curvature) ** 2


def _gate_calibration(
    run: Run,
    plan: ShiftedPlan,
    stage: Stage,
    private: Rows,
    calibrated: Vector,
    facts: tuple[float, float, float],
    low: float,
) -> tuple[Vector, Kept]:
    """Return what is kept of the calibration, judged along the axes of the private second moment.

    `facts` are the released share of unclipped rows, the mean squared gradient, and the noise of both.
    """
    k, n_rows = len(calibrated), plan.budget.n_rows
    weighted = private.X * np.sqrt(_leverages(private))[:, None]
    total = np.zeros((k, k))
    for _ in range(run.plan.steps):
        # Weighted rows are at most max_norm long, so this clips only null rows.
        total += run.release(clipped_gram(weighted, stage.max_norm))
    moment = (total + total.T) / (2 * run.plan.steps * n_rows)
    # One row moves a second moment by max_norm² (zero-out), by sqrt 2 of that if it is replaced.
    noise = math.sqrt(plan.budget.factor) * stage.max_norm**2 * plan.multiplier / (math.sqrt(run.plan.steps) * n_rows)
    values, vectors = np.linalg.eigh(moment)
    least, most = (np.maximum(values + side * noise, _LEAST_CURVATURE) for side in (-1, 1))
    if noise > _MOST_CURVATURE_NOISE:
        # The release is all noise: assume little curvature for the noise, and the public curvature for the effect.
        vectors, least, most = np.eye(k), np.full(k, _ASSUMED_CURVATURE), np.ones(k)
    unclipped, square, facts_noise = facts
    curvature = _CALIBRATION_CURVATURE * _safely_low(unclipped, facts_noise) * least
    variance = _variance(stage, curvature, _safely_high(square, facts_noise), n_rows)
    # The bias of clipping was subtracted as it is on public rows; on private rows it may differ.
    bias = vectors.T @ stage.bias / np.maximum(least * max(stage.unclipped, _LEAST_UNCLIPPED_SHARE), _LEAST_CURVATURE)
    turned = vectors.T @ calibrated
    kept = keep(
        np.sqrt(most) * turned,
        most * (variance + (_BIAS_DEVIATION * bias) ** 2),
        [np.array([i]) for i in range(k)],
        error=plan.geometry.variance * low**2,
    )
    return np.asarray(vectors @ (kept.factors * turned)), kept
