"""Private correction of a public model whose population may have shifted: calibrate, correct, gate each."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.learning.descent import SquaredLoss, gradient_weights
from dpadapt.learning.estimator import Budget
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum, votes
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.rows import Block, Rows
from dpadapt.transfer.gate import Kept, keep, relative_size
from dpadapt.transfer.regression_plan import (
    _RELEASES,
    CALIBRATION,
    CORRECTION,
    Stage,
    TransferGeometry,
    choose_directions,
    correction_steps,
    dyadic_blocks,
    kalman_plan,
    plan_stage,
)

# Private correction of a public model by Kalman steps, when the public rows are a sample of the same population.


Vector = NDArray[np.float64]


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


def _targets(block: Block) -> NDArray[Any]:
    return np.array(block.y, dtype=block.X.dtype)


# One stage of private correction: clipped full-batch steps in a few publicly chosen coordinates, and their noise.


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


# How many releases of one noise multiplier each part is worth: the shares of the budget. 2% where the rows are, 9%
# calibration, 1.5% each sizes, curvature of the plane and the last check, 84.5% correction. All but the correction make
# so many.
RELEASES = {"row mean": 4, "calibration": 18, "sizes": 3, "plane": 3, "correction": 169, "check": 3}
# A coordinate of the row mean is believed from this many noise deviations on.
_MEAN_DOUBT = 4.0
# The private curvature is taken a little low, so that noise is rather over- than understated.
_CALIBRATION_CURVATURE, _CORRECTION_CURVATURE = 0.8, 0.7
# Released shares are taken this many noise deviations to the safe side.
_FACTS_DOUBT = 2.0


def shifted_change(
    ledger: Ledger, geometry: TransferGeometry, rows: NDArray[Any], residuals: NDArray[np.float64], budget: Budget
) -> tuple[NDArray[np.float64], float]:
    """Return the change of the public solution, calibration and correction, each gated, and how much was adopted.

    What was adopted is the share of the energy of the released corrections that the gates left, 0 to 1.
    """
    # N releases of Gaussian noise with multiplier sqrt(N) / mu are together exactly mu-Gaussian-DP, and so are fewer or
    # more of them for a part, if its multiplier changes as the root of their number.
    multiplier = math.sqrt(sum(RELEASES.values())) / budget.mu
    # Noise of one release of a mean of clipped terms, per unit of clip.
    per_clip = budget.factor * multiplier / budget.n_rows
    steps, per_step = planned_steps(geometry, budget.n_rows, per_clip)
    parts = {label: Repeated(Gaussian(multiplier), times) for label, times in RELEASES.items()}
    parts["correction"] = Repeated(Gaussian(multiplier * per_step / per_clip), steps)
    runs = dict(zip(RELEASES, ledger.start_all([(plan, label) for label, plan in parts.items()]), strict=True))
    unit = 2.0 * math.sqrt(geometry.variance)

    mean = _row_mean(runs["row mean"], geometry, rows, budget.n_rows, per_clip)
    plane = _calibration_plane(mean)
    stage = plan_stage(
        geometry,
        plane,
        np.ones(plane.shape[1]),
        noise_per_clip=per_clip,
        n_steps=RELEASES["calibration"],
        size=1.0,
        kind=CALIBRATION,
    )
    private = _stage_rows(rows, residuals, stage)
    found = run_stage(runs["calibration"], stage, private, budget.n_rows, centred=True)
    facts = residual_facts(private, stage, found, np.ones(len(rows)), unit)
    (unclipped, square, seen), noise = release_facts(runs["sizes"], facts, budget.n_rows)
    low, size = relative_size(geometry.residuals, unit, seen, noise)
    moved, level = _gate_plane(runs["plane"], stage, private, found, (unclipped, square, noise), budget, low, geometry)
    change = stage.map @ moved
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = residuals - rows @ change

    chosen, weights = choose_directions(
        geometry, n_rows=budget.n_rows, noise_per_clip=per_step, n_steps=steps, size=size
    )
    stage = plan_stage(
        geometry,
        _contraction(mean)[:, chosen],
        weights,
        noise_per_clip=per_step,
        n_steps=steps,
        size=size,
        kind=CORRECTION,
    )
    private = _stage_rows(rows, residuals, stage)
    found = run_stage(runs["correction"], stage, private, budget.n_rows, centred=False)
    facts = residual_facts(private, stage, found, leverages(private) * rows[:, -1] ** 2, unit)
    (unclipped, square, _), noise = release_facts(runs["check"], facts, budget.n_rows)
    curvature = (
        _CORRECTION_CURVATURE * weights * float(np.clip(unclipped / stage.row_weight - _FACTS_DOUBT * noise, 0.02, 1.0))
    )
    variance = weights * _variance(
        stage, curvature, float(np.clip(square + _FACTS_DOUBT * noise, 0.02, 1.0)), budget.n_rows
    )
    error = geometry.variance * low**2
    judged = keep(np.sqrt(weights) * found, variance, dyadic_blocks(chosen), error=error, established=level.established)
    adopted = (level.adopted + judged.adopted) / max(level.seen + judged.seen, 1e-300)
    return np.asarray(change + stage.map @ (judged.factors * found)), min(adopted, 1.0)


def planned_steps(geometry: TransferGeometry, n_rows: float, per_clip: float) -> tuple[int, float]:
    """Return the number of steps of the correction, and the noise of one per unit of clip, without a private row."""
    share = RELEASES["correction"]
    chosen, weights = choose_directions(geometry, n_rows=n_rows, noise_per_clip=per_clip, n_steps=share, size=1.0)
    steps = correction_steps(geometry, chosen, weights)
    return steps, per_clip * math.sqrt(steps / share)


def _contraction(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a contraction along the private rows' mean, where their second moment is 1 + |mean|².

    Otherwise steps that suit public rows would be too long there.
    """
    away = np.concatenate([[0.0], mean[1:]])
    square = float(away @ away)
    along = (1.0 / math.sqrt(1.0 + square) - 1.0) / square if square > 0 else 0.0
    return np.asarray(np.eye(len(mean)) + along * np.outer(away, away))


def _stage_rows(rows: NDArray[Any], residuals: NDArray[np.float64], stage: Stage) -> Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        return Rows(rows @ stage.map, residuals, max_norm=stage.max_norm)


def _variance(stage: Stage, curvature: NDArray[np.float64], square: float, n_rows: float) -> NDArray[np.float64]:
    """Return the noise of each averaged coordinate: that of the releases and that of the private sample.

    `square` is the mean squared gradient over the squared clip, so a coordinate of the sample's mean gradient has
    variance square * clip² / (k n); the iterate follows it as far as `response` says.
    """
    sample = square * stage.clip_norm**2 / (len(stage.weights) * n_rows)
    return stage.noise_of_average(curvature) + sample * stage.response(curvature) ** 2


def _row_mean(
    run: Run, geometry: TransferGeometry, rows: NDArray[Any], n_rows: float, per_clip: float
) -> NDArray[np.float64]:
    """Return the mean of the private rows in whitened coordinates, as far as it is told from noise."""
    whitened = geometry.whitened
    longest = max(float(np.quantile(np.linalg.norm(whitened, axis=1), 0.95)), 1e-12)
    with np.errstate(over="ignore", invalid="ignore"):
        private = Rows(rows @ geometry.whitening, np.zeros(len(rows)))
    total = np.zeros(private.n_columns)
    for _ in range(run.plan.steps):
        total += run.release(clipped_outer_sum(private, _ones, longest))
    mean = total / (run.plan.steps * n_rows)
    noise = per_clip * longest / math.sqrt(run.plan.steps)
    mean = np.where(np.abs(mean) > max(_MEAN_DOUBT * noise, 0.1), mean, 0.0)
    # The constant is 1 in every row: if noise hides it, or shortening halves it, it is still there.
    constant = float(np.sign(np.mean(whitened[:, 0])))
    if mean[0] * constant < 0.3:
        mean[0] = constant
    return mean


def _ones(block: Block) -> NDArray[np.float64]:
    return np.ones(len(block.y))


def _calibration_plane(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return two directions: the one that lifts predictions by the least change of coefficients, and the slope's.

    Where the private rows lie elsewhere, their mean residual is explained by moving along their mean, not by the
    constant alone. The first is scaled so that the private rows' coordinate is about 1.
    """
    lift = mean / float(mean @ mean)
    if len(mean) < 2:
        return np.asarray(lift[:, None])
    slope = np.eye(len(mean))[1] - mean * (mean[1] / float(mean @ mean))
    length = float(np.linalg.norm(slope))
    slope = slope / length if length > 0.3 else np.eye(len(mean))[1]
    return np.column_stack([lift, slope])


def _gate_plane(
    run: Run,
    stage: Stage,
    private: Rows,
    found: NDArray[np.float64],
    facts: tuple[float, float, float],
    budget: Budget,
    low: float,
    geometry: TransferGeometry,
) -> tuple[NDArray[np.float64], Kept]:
    """Return what is kept of the calibration, judged along the axes of the private second moment."""
    k = len(found)
    weighted = private.X * np.sqrt(leverages(private))[:, None]
    total = np.zeros((k, k))
    for _ in range(run.plan.steps):
        # Weighted rows are at most max_norm long, so this clips none but the null rows.
        total += run.release(clipped_gram(weighted, stage.max_norm))
    moment = (total + total.T) / (2 * run.plan.steps * budget.n_rows)
    # One row moves a second moment by max_norm² (zero-out), by sqrt 2 of that if it is replaced.
    noise = (
        math.sqrt(budget.factor) * stage.max_norm**2 * _multiplier(run) / (math.sqrt(run.plan.steps) * budget.n_rows)
    )
    values, vectors = np.linalg.eigh(moment)
    least, most = np.maximum(values - noise, 0.05), np.maximum(values + noise, 0.05)
    if noise > 0.5:
        # The release tells nothing: assume little curvature for the noise, and the public one for the effect.
        vectors, least, most = np.eye(k), np.full(k, 0.2), np.ones(k)
    unclipped, square, fuzz = facts
    curvature = _CALIBRATION_CURVATURE * float(np.clip(unclipped - _FACTS_DOUBT * fuzz, 0.02, 1.0)) * least
    variance = _variance(stage, curvature, float(np.clip(square + _FACTS_DOUBT * fuzz, 0.02, 1.0)), budget.n_rows)
    # The bias of clipping was subtracted as it is on public rows; on private ones it may be half as large or as small
    # again.
    bias = vectors.T @ stage.bias / np.maximum(least * max(stage.unclipped, 0.3), 0.05)
    turned = vectors.T @ found
    kept = keep(
        np.sqrt(most) * turned,
        most * (variance + 0.25 * bias**2),
        [np.array([i]) for i in range(k)],
        error=geometry.variance * low**2,
    )
    return np.asarray(vectors @ (kept.factors * turned)), kept


def _multiplier(run: Run) -> float:
    mechanism = run.plan.mechanism
    if not isinstance(mechanism, Gaussian):
        raise TypeError("the noise of this release must be Gaussian.")
    return mechanism.noise_multiplier
