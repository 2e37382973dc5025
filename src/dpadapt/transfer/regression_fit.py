"""The private part of the transfer regressor: what it releases, and what it keeps of it.

`shifted_change` corrects a blend of public models whose population may have shifted, in three stages: a scout, the
plane (level, slope and mix), and many directions. Each change passes through a gate, and at the end private rows say
what all of it gains. `same_population_change` filters private gradients where the populations are the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.bounded import Bounded, added, clipped_outer_sum, clipped_sum, votes
from dpadapt.mechanisms.mechanism import Gaussian
from dpadapt.rows import Block, Blocks, Part, Rows, Shares, joined_shares
from dpadapt.transfer.base import Base, combined
from dpadapt.transfer.gate import Gain, Kept, keep, keep_few, unseen_factors
from dpadapt.transfer.regression_plan import (
    CHANGE_PARTS,
    CORRECTION_CURVATURE,
    GAIN_LIMIT,
    GAIN_NORM,
    PLANE_FIRST,
    PLANE_MAX_NORM,
    PLANE_STEPS,
    SCOUT_NORM,
    PlaneFeatures,
    PlaneStage,
    SamePopulationPlan,
    ShiftedPlan,
    Stage,
    TransferGeometry,
    dyadic_blocks,
    score_columns,
)

Vector = NDArray[np.float64]

# A coordinate of the released row mean below this many standard deviations of its noise is set to 0. Chosen by hand.
_MEAN_THRESHOLD = 4.0
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

# Slope and mix are clipped at this many public standard deviations for their centre in the scout; the variance of a
# clipped one that is assumed, in squares of this range; the least mean size on public rows that a private one is
# compared with. Chosen by hand.
_SCOUT_RANGE, _PLACE_VARIANCE, _LEAST_USUAL_SIZE = 5.0, 0.1, 0.05
# A released centre of slope or mix counts in so far as it exceeds this many standard deviations of its noise; limits of
# a released scale, relative to the public one, and the logarithm of the largest. Linear models that extrapolate may be
# a hundred times further apart on private rows than on public ones (400 Fourier features of randhie), and a scale that
# is far too small makes steps diverge. Chosen by hand.
_CENTRE_DEVIATIONS, _SCALE_LIMITS, _LOG_LARGEST_PLACE = 3.0, (0.2, 100.0), math.log1p(100.0)
# A change counts as harmful if its gain is negative by this many standard deviations of the noise. Chosen by hand.
_HARM_DEVIATIONS = 2.5
# Relative error of a measured gain beside noise and sampling: numbers are clipped, and the rows are those of the fit.
# Chosen so that the 90% interval covers about 90% of the gains on test rows of the development regressions: `python -m
# benchmarks.transfer.forecasts` prints the coverage.
_GAIN_MISFIT = 0.3
# Largest residual, in public standard deviations, whose size the scout tells from larger ones; limits of the released
# ratio of sizes. Chosen by hand.
_LARGEST_SIZE, _SIZE_LIMITS = 50.0, (0.3, 5.0)


def same_population_change(
    plan: SamePopulationPlan,
    run: Run,
    geometry: TransferGeometry,
    private: Blocks[Part],
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
    turned = private.map(partial(_turned, geometry=geometry, precision=precision))
    change = np.zeros(len(geometry.values))
    for step in plan.steps:
        # Weighted rows have mean square length 1; the clip is on the gradient, so on length times residual.
        sums = partial(_turned_gradients, solution=change + step.shift, weights=step.weights, clip_norm=step.clip_norm)
        gradient = run.release(added(turned.results(sums))) / n_rows
        change = change + step.gain * gradient
    return np.asarray(geometry.vectors @ (plan.kept * change))


def _turned(part: Part, *, geometry: TransferGeometry, precision: type[np.floating[Any]]) -> Part:
    """Return rows in the eigenbasis of the public second moment, with the residuals of the public model."""
    rows = geometry.standardise(part.X)
    with np.errstate(all="ignore"):
        residuals = np.asarray(part.y - geometry.target_center - rows @ geometry.solution, dtype=np.float64)
        return Part(rows.astype(precision) @ geometry.vectors.astype(precision), residuals, part.shares)


def _turned_gradients(part: Part, *, solution: Vector, weights: Vector, clip_norm: float) -> Bounded:
    with np.errstate(all="ignore"):
        left = part.y - part.X @ solution.astype(part.X.dtype)
        rows = Rows(part.X * np.sqrt(weights).astype(part.X.dtype), left, shares=part.shares)
    return clipped_outer_sum(rows, _targets, clip_norm)


def _targets(block: Block) -> NDArray[Any]:
    return np.array(block.y, dtype=block.X.dtype)


# Parts of a change: the plane's level, its slope and mix, and the directions.
CHANGED_PARTS = ("level", "slope and mix", "directions")


@dataclass(frozen=True, eq=False)
class Change:
    """What a fit changes of the base; computed from releases and public data alone.

    Parameters
    ----------
    score_coef : ndarray of shape (n_models,)
        Coefficients of the public models' predictions; the weights of the base if nothing is changed.
    level : float
        Added to all predictions.
    solution : ndarray or None
        Correction of the directions in the geometry of the base; None if the budget did not pay for them.
    stages : dict
        How much was adopted of each of `CHANGED_PARTS`, from 0 to 1.
    adopted : float
        Share of the energy of the whole that was adopted: 0 if and only if the base is unchanged.
    gain : tuple of float
        Estimate, and ends of a 90% interval, of how much less the squared error on the private population is than that
        of the base, as a share of the latter. None if the budget did not pay for it.
    own_effect : ndarray
        For each column that is constant in public rows: how much of its own effect was kept.
    score_noise, solution_noise : ndarray
        What the noise of the releases does to `score_coef` and `solution`: these times independent normal numbers, one
        per column.
    """

    score_coef: Vector
    level: float
    solution: Vector | None
    stages: dict[str, float]
    adopted: float
    gain: tuple[float, float, float] | None
    own_effect: Vector
    score_noise: Vector
    solution_noise: Vector | None


@dataclass(frozen=True, eq=False, slots=True)
class ScoredRows:
    """Some private rows, as the public models see them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Standardised; one with NaN is a null row.
    scores : ndarray of shape (n_models, n_rows)
        What the public models predict for them.
    targets : ndarray
        NaN for null rows.
    shares : Shares or None
        How much each row counts, if persons are protected.
    """

    rows: NDArray[np.float64]
    scores: NDArray[np.float64]
    targets: Vector
    shares: Shares | None


def scored_rows(part: Part, base: Base, *, fixed_rows: bool) -> ScoredRows:
    """Return private rows with their scores; a model that the user gave may fail."""
    rows = base.private_rows(part.X)
    # A null row contributes to no release.
    targets = np.where(np.isfinite(rows).all(axis=1), part.y, np.nan).astype(np.float64)
    return ScoredRows(rows, base.private_scores(part.X, fixed_rows=fixed_rows), targets, part.shares)


@dataclass(frozen=True, eq=False, slots=True)
class _PlaneRows:
    """Some private rows in the coordinates of the stages.

    `columns` are those of the plane: what a change of the level does, slope and mix. `wide` holds the coordinates of
    the directions; it has none if these are not corrected. `residuals` are those of the base.
    """

    columns: NDArray[np.float64]
    wide: NDArray[np.float64]
    residuals: Vector
    shares: Shares | None

    def left(self, moved: Vector) -> Vector:
        """Return the residuals after a change of the plane."""
        with np.errstate(all="ignore"):
            return np.asarray(self.residuals - self.columns[:, 0] * moved[0] - self.columns[:, 1:] @ moved[1:])


def shifted_change(plan: ShiftedPlan, runs: Sequence[Run], private: Blocks[ScoredRows]) -> Change:
    """Return the change of the base.

    Parameters
    ----------
    plan : ShiftedPlan
    runs : sequence of Run
        One for each part of the plan.
    private : Blocks of ScoredRows
    """
    run = dict(zip(plan.shares, runs, strict=True))
    geometry, weights = plan.geometry, plan.public.base.weights
    # 1. Scout: where the scores of private rows lie, and how large their residuals are.
    seen = _Scouted(plan.features, 1.0, 1.0)
    if "scout" in run:
        seen = _scout(run["scout"], plan, private)
    # 2. Row mean, where directions will be corrected. The level then changes along it: if private rows lie elsewhere
    # than public ones, their mean residual is explained by a change along their mean, not by the constant alone.
    lift = None
    if "row mean" in run:
        mean, varying = _row_mean(run["row mean"], plan, private)
        lift = geometry.whitening @ (mean / float(mean @ mean))
    # 3. Plane: level, slope and mix of the public models.
    stage = plan.plane(seen.size)
    k = len(stage.weights)
    rows = private.map(partial(_plane_rows, geometry=geometry, weights=weights, features=seen.features, lift=lift, k=k))
    estimate = _plane_estimate(run["plane"], stage, rows.map(partial(_weighted, stage=stage)), plan.budget.n_rows)
    kept = keep_few(estimate, stage.variance, error=(plan.deviation * min(seen.low, 1.0)) ** 2)
    moved = kept.factors * estimate
    noise = kept.factors * np.sqrt(stage.noise_variance)
    score_noise = np.column_stack([np.zeros(len(weights)), seen.features.map[:, : k - 1] * noise[1:]])
    stages = {
        "level": float(kept.factors[0]),
        "slope and mix": float(np.mean(kept.factors[1:])) if k > 1 else 0.0,
        "directions": 0.0,
    }
    adopted, solution, solution_noise = kept.adopted / max(kept.seen, 1e-300), None, None
    own_effect = np.zeros(int(plan.public.base.columns.constant.sum()))
    if lift is not None:
        # 4. Directions, beginning where the plane ended.
        found = _directions(run, plan, rows, mean, varying, moved, kept.established)
        judged, own_effect = found.judged, found.own_effect
        stages["directions"] = judged.adopted / max(judged.seen, 1e-300)
        adopted = min((kept.adopted + judged.adopted) / max(kept.seen + judged.seen, 1e-300), 1.0)
        solution = found.solution + moved[0] * lift
        # The directions begin with the constant and the slopes, so they undo a part of the plane's noise.
        undone = 1.0 - found.undone[:k]
        solution_noise = np.column_stack([noise[0] * undone[0] * lift, np.zeros((len(lift), k - 1)), found.noise])
        score_noise = np.column_stack([score_noise * undone, np.zeros((len(weights), found.noise.shape[1]))])
    # 5. Gain: what all of this is worth on private rows.
    used = _Measured(1.0, 1.0, None)
    if "gain" in run:
        used = _measured(run["gain"], plan, seen.size, rows, moved, solution)
    whole = used.first if lift is None else used.rest
    moved = moved * np.append(whole, np.full(k - 1, used.rest))
    return Change(
        score_coef=weights + seen.features.map[:, : k - 1] @ moved[1:],
        level=float(seen.features.shift[: k - 1] @ moved[1:]) + (float(moved[0]) if lift is None else 0.0),
        solution=None if solution is None else used.rest * solution,
        stages={part: value * (whole if part == "level" else used.rest) for part, value in stages.items()},
        adopted=adopted * max(whole, used.rest),
        gain=used.gain if adopted > 0.0 else (0.0, 0.0, 0.0),
        own_effect=used.rest * own_effect,
        score_noise=used.rest * score_noise,
        solution_noise=None if solution_noise is None else used.rest * solution_noise,
    )


def _wide(part: ScoredRows, geometry: TransferGeometry, weights: Vector) -> NDArray[np.float64]:
    """Return rows in the coordinates of the directions: cells, mix and blend, each standardised, and 1."""
    return geometry.standardise(np.column_stack([part.rows, score_columns(part.scores, weights)]))


def _plane_rows(
    part: ScoredRows,
    *,
    geometry: TransferGeometry,
    weights: Vector,
    features: PlaneFeatures,
    lift: Vector | None,
    k: int,
) -> _PlaneRows:
    wide = np.zeros((len(part.targets), 0)) if lift is None else _wide(part, geometry, weights)
    with np.errstate(all="ignore"):
        constant = np.ones(len(part.targets)) if lift is None else wide @ lift
        columns = np.column_stack([constant, features.of(part.scores)])[:, :k]
        return _PlaneRows(columns, wide, part.targets - combined(part.scores, weights), part.shares)


def _weighted(part: _PlaneRows, *, stage: PlaneStage) -> Rows:
    with np.errstate(all="ignore"):
        return Rows(part.columns * stage.weights, part.residuals, max_norm=PLANE_MAX_NORM, shares=part.shares)


@dataclass(frozen=True, eq=False)
class _Scouted:
    """What the scout found.

    `features` are slope and mix about the private centre, in private scales. `size` is how much larger private
    residuals are than public ones, at least 1; `low` is the same on the low side.
    """

    features: PlaneFeatures
    size: float
    low: float


def _scout(run: Run, plan: ShiftedPlan, private: Blocks[ScoredRows]) -> _Scouted:
    """Release the sum of a few bounded numbers per row, and compare it with the same mean over public rows."""
    # Claim: |sum - sum'|_2 <= SCOUT_NORM, by `clipped_sum`. The numbers of a row depend on that row alone.
    seen = run.release(added(private.results(partial(_scout_sum, plan=plan)))) / plan.budget.n_rows
    noise = plan.noise("scout") * SCOUT_NORM
    public = plan.public
    known = clipped_sum(_scout_facts(plan, public.scores, public.labels), SCOUT_NORM).value / len(public.labels)
    k = plan.features.map.shape[1]
    spread = _SCOUT_RANGE * math.sqrt(noise**2 + _PLACE_VARIANCE / plan.budget.n_rows)
    centers = _SCOUT_RANGE * seen[:k]
    centers = centers * np.maximum(0.0, 1.0 - (_CENTRE_DEVIATIONS * spread / np.maximum(np.abs(centers), 1e-300)) ** 2)
    # A larger scale is the safe side: it assumes more curvature, so that steps are shorter. So a size may be as much as
    # one standard deviation of its noise above what was released, if that brings it nearer to the public one.
    sizes = np.clip(known[k : 2 * k], seen[k : 2 * k], seen[k : 2 * k] + noise)
    sizes, usual = (np.expm1(_LOG_LARGEST_PLACE * np.clip(size, 0.0, 1.0)) for size in (sizes, known[k : 2 * k]))
    usual = np.maximum(usual, _LEAST_USUAL_SIZE)
    scales = np.sqrt(np.maximum(sizes**2 - centers**2, 0.0)) / usual
    unknown = min(1.0, (2.0 * spread) ** 2)
    scales = np.clip((1.0 - unknown) * scales + unknown, *_SCALE_LIMITS)
    ratio = ((1.0 + _LARGEST_SIZE) ** (seen[-1] - _SAFE_DEVIATIONS * noise) - 1.0) / (
        (1.0 + _LARGEST_SIZE) ** known[-1] - 1.0
    )
    low = float(np.clip(ratio, *_SIZE_LIMITS))
    return _Scouted(plan.features.recentred(centers, scales), max(low, 1.0), low)


def _scout_sum(part: ScoredRows, *, plan: ShiftedPlan) -> Bounded:
    return clipped_sum(_scout_facts(plan, part.scores, part.targets), SCOUT_NORM, part.shares)


def _scout_facts(plan: ShiftedPlan, scores: NDArray[np.float64], targets: Vector) -> NDArray[np.float64]:
    """Return the numbers of each row: slope and mix, logarithms of their sizes, and of the residual's size."""
    with np.errstate(all="ignore"):
        features = plan.features.of(scores)
        places = np.clip(features / _SCOUT_RANGE, -1.0, 1.0)
        distances = np.clip(np.log1p(np.abs(features)) / _LOG_LARGEST_PLACE, 0.0, 1.0)
        residuals = np.abs(targets - combined(scores, plan.public.base.weights)) / plan.deviation
        sizes = np.clip(np.log1p(residuals) / math.log1p(_LARGEST_SIZE), 0.0, 1.0)
        return np.column_stack([places, distances, sizes])


def _plane_estimate(run: Run, stage: PlaneStage, rows: Blocks[Rows], n_rows: float) -> Vector:
    """Return the average of the points where whole Newton steps from the last iterates end.

    In a quadratic loss with the assumed curvature that is the minimum plus the step's own noise, wherever the step
    begins. The iterates themselves move in small steps.
    """
    current, average = np.zeros(len(stage.weights)), np.zeros(len(stage.weights))
    for t in range(PLANE_STEPS):
        gradient = released_gradient(run, rows, SquaredLoss(), current / stage.weights, stage.clip_norm, n_rows)
        newton = (gradient + stage.bias) / (stage.weights * stage.curvature)
        if t >= PLANE_FIRST:
            average += current - newton
        current = current - stage.step * newton
    return average / (PLANE_STEPS - PLANE_FIRST)


@dataclass(frozen=True)
class _Measured:
    """What the release of the gain says: the parts of the change to use, and the gain with its interval."""

    first: float
    rest: float
    gain: tuple[float, float, float] | None


def _measured(
    run: Run, plan: ShiftedPlan, size: float, private: Blocks[_PlaneRows], moved: Vector, solution: Vector | None
) -> _Measured:
    """Return which part of a change private rows support, and what it gains.

    Without a `solution` for directions, the level is used whole or not at all, and a part of the rest of the plane;
    with one, a part of everything. Released are the mean squared error of the base and the means of what each part
    gains, each row's numbers clipped. The whole change is used unless it is harmful; then the part that gains most, or
    nothing.
    """
    variance, n_rows = (plan.deviation * size) ** 2, plan.budget.n_rows
    limit, norm = GAIN_LIMIT * variance, GAIN_NORM * variance
    # Claim: |sum - sum'|_2 <= norm, by `clipped_sum`. What follows is post-processing of this release.
    sums = partial(_gain_sum, moved=moved, solution=solution, limit=limit, norm=norm)
    error, *gains = run.release(added(private.results(sums))) / n_rows
    noise = plan.noise("gain") * norm
    # Clipping makes large gains equal, so the largest is not simply taken.
    best = 0 if gains[0] >= -_HARM_DEVIATIONS * noise else int(np.argmax(gains))
    if gains[best] < -_HARM_DEVIATIONS * noise:
        return _Measured(0.0, 0.0, (0.0, 0.0, 0.0))
    error = max(float(error), noise, _LEAST_RELEASED_SHARE * limit)
    share = float(np.clip(gains[best] / error, -1.0, 1.0))
    # The gain of a row varies by 2 sqrt(error * squared change), and the squared change is about the gain.
    variance = (noise / error) ** 2 * (1.0 + share**2) + 4.0 * abs(share) / n_rows + (_GAIN_MISFIT * share) ** 2
    gain = Gain(share, variance)
    return _Measured(1.0, float(CHANGE_PARTS[best]), gain.interval())


def _gain_sum(part: _PlaneRows, *, moved: Vector, solution: Vector | None, limit: float, norm: float) -> Bounded:
    residuals = part.residuals
    with np.errstate(all="ignore"):
        first, rest = part.columns[:, 0] * moved[0], part.columns[:, 1:] @ moved[1:]
        if solution is not None:
            first, rest = np.zeros_like(first), rest + part.wide @ solution
        after = (residuals - first)[:, None] - np.outer(rest, CHANGE_PARTS)
        numbers = np.column_stack([residuals**2, (residuals**2)[:, None] - after**2])
        return clipped_sum(np.clip(numbers, -limit, limit), norm, part.shares)


@dataclass(frozen=True, eq=False)
class _Directions:
    """The correction of the directions.

    `own_effect` is how much is kept of the effect of each column that is constant in public rows, `noise` what the
    releases' noise does to the solution (a matrix, as in `Change`), `undone` the share of an error of the plane along
    each coordinate that is corrected.
    """

    solution: Vector
    judged: Kept
    own_effect: Vector
    noise: Vector
    undone: Vector


def _directions(
    run: Mapping[str, Run],
    plan: ShiftedPlan,
    rows: Blocks[_PlaneRows],
    mean: Vector,
    varying: Vector,
    moved: Vector,
    established: float,
) -> _Directions:
    """Return the correction of the directions that the budget can pay for, as far as the gate keeps it.

    It begins where the plane, which was `moved`, ended.
    """
    geometry, n_rows = plan.geometry, plan.budget.n_rows
    unit = 2.0 * math.sqrt(geometry.variance)
    # How large private residuals are, relative to public ones. A row that is not finite has a residual that is not a
    # number, because the plane's columns come from the row; `votes` counts it as 0.
    sizes = added(rows.results(partial(_size_votes, moved=moved, unit=unit)))
    (seen,), noise = _release_facts(run["sizes"], sizes, n_rows)
    low, size = _relative_size(geometry.residuals, unit, float(seen), noise)
    chosen, stage = plan.correction(mean, size)
    corrected = _descend(run["correction"], stage, rows.map(partial(_stage_rows, moved=moved, stage=stage)), n_rows)
    # Check: how many gradients were clipped.
    if run["check"].unit == "row":
        checked = added(rows.results(partial(_row_votes, moved=moved, stage=stage, change=corrected)))
    else:
        # The rows of a person may be in several blocks, and the number of a person is no sum over rows.
        checked = votes(*_person_facts(rows, moved, stage, corrected))
    (unclipped, square), noise = _release_facts(run["check"], checked, n_rows)
    curvature = CORRECTION_CURVATURE * stage.weights * _safely_low(unclipped / stage.row_weight, noise)
    square = _safely_high(square, noise)
    variance = stage.weights * _variance(stage, curvature, square, n_rows)
    judged = keep(
        np.sqrt(stage.weights) * corrected,
        variance,
        dyadic_blocks(chosen),
        error=geometry.variance * low**2,
        established=established,
    )
    solution = np.asarray(stage.map @ (judged.factors * corrected))
    # A column that is constant in public rows, such as the indicator of a group that these lack, may have few private
    # rows: then its curvature is far below the one that was planned with, and its noise far above.
    columns = np.flatnonzero(plan.public.base.columns.constant)
    flat = varying[:, None] * curvature
    spread = stage.noise_of_average(flat) + varying[:, None] * _sample_variance(stage, flat, square, n_rows)
    spreads = np.einsum("jc,jc->j", (stage.map[columns] * judged.factors) ** 2, spread)
    own_effect = unseen_factors(
        solution[columns] / geometry.scale[columns], spreads / geometry.scale[columns] ** 2, geometry.variance
    )
    solution[columns] *= own_effect
    # The most likely curvature, not one on the safe side as above.
    likely = stage.weights * float(np.clip(unclipped / stage.row_weight, _LEAST_RELEASED_SHARE, 1.0))
    caused = np.asarray(stage.map * (judged.factors * np.sqrt(stage.noise_of_average(likely))))
    caused[columns] *= own_effect[:, None]
    undone = np.zeros(len(mean))
    undone[chosen] = judged.factors * np.minimum(likely * stage.response(likely), 1.0)
    return _Directions(solution, judged, own_effect, caused, undone)


def _row_mean(run: Run, plan: ShiftedPlan, private: Blocks[ScoredRows]) -> tuple[Vector, Vector]:
    """Return the mean of the private rows in whitened coordinates, where it exceeds its noise.

    With it comes how much private rows vary in each column that is constant in public rows, see `_varying`.
    """
    geometry = plan.geometry
    whitened = geometry.whitened
    longest = max(float(np.quantile(np.linalg.norm(whitened, axis=1), 0.95)), 1e-12)
    sums = partial(_whitened_sum, geometry=geometry, weights=plan.public.base.weights, longest=longest)
    mean = run.release(added(private.results(sums))) / plan.budget.n_rows
    noise = plan.noise("row mean") * longest
    varying = _varying(plan, mean, noise)
    mean = np.where(np.abs(mean) > max(_MEAN_THRESHOLD * noise, _LEAST_ROW_MEAN), mean, 0.0)
    # The constant is 1 in every row, so its mean is known even if noise hides it or shortening halves it.
    constant = float(np.sign(np.mean(whitened[:, 0])))
    if mean[0] * constant < _LEAST_CONSTANT:
        mean[0] = constant
    return mean, varying


def _whitened_sum(part: ScoredRows, *, geometry: TransferGeometry, weights: Vector, longest: float) -> Bounded:
    with np.errstate(all="ignore"):
        whitened = _wide(part, geometry, weights) @ geometry.whitening
    return clipped_outer_sum(Rows(whitened, np.zeros(len(whitened)), shares=part.shares), _ones, longest)


def _varying(plan: ShiftedPlan, mean: Vector, noise: float) -> Vector:
    """Return a lower estimate, from 0 to 1, of the mean square of columns that are constant in public rows.

    In the geometry such a column has the mean square 1 of the noise that stands in its place. A private indicator has
    the value 1 / scale in a share of the rows, so its mean square is its mean over the scale. The mean is released; one
    standard deviation of its noise is subtracted.
    """
    geometry, columns = plan.geometry, np.flatnonzero(plan.public.base.columns.constant)
    if not len(columns):
        return np.zeros(0)
    back = np.linalg.pinv(geometry.whitening)[:, columns]
    seen = np.abs(mean @ back) - noise * np.linalg.norm(back, axis=0)
    return np.asarray(np.clip(seen / geometry.scale[columns], 0.0, 1.0))


def _ones(block: Block) -> Vector:
    return np.ones(len(block.y))


def _size_votes(part: _PlaneRows, *, moved: Vector, unit: float) -> Bounded:
    with np.errstate(all="ignore"):
        return votes(np.clip(np.abs(part.left(moved)) / unit, 0.0, 1.0)[:, None], part.shares)


def _stage_rows(part: _PlaneRows, *, moved: Vector, stage: Stage) -> Rows:
    with np.errstate(all="ignore"):
        return Rows(part.wide @ stage.map, part.left(moved), max_norm=stage.max_norm, shares=part.shares)


def _row_votes(part: _PlaneRows, *, moved: Vector, stage: Stage, change: Vector) -> Bounded:
    facts = _stage_facts(part, moved=moved, stage=stage, change=change)
    if part.shares is not None:
        # The second number is a squared length.
        facts = facts * np.column_stack([part.shares.values, part.shares.values**2])
    return votes(facts)


def _stage_facts(part: _PlaneRows, *, moved: Vector, stage: Stage, change: Vector) -> Vector:
    rows = _stage_rows(part, moved=moved, stage=stage)
    return _residual_facts(rows, stage, change, _leverages(rows) * part.wide[:, -1] ** 2)


def _descend(run: Run, stage: Stage, rows: Blocks[Rows], n_rows: float) -> Vector:
    """Return the averaged iterate of the stage's steps."""
    current, average = np.zeros(len(stage.weights)), np.zeros(len(stage.weights))
    first = stage.n_steps // 2
    for t in range(stage.n_steps):
        gradient = released_gradient(run, rows, SquaredLoss(), current, stage.clip_norm, n_rows)
        current = current - stage.step * gradient
        if t >= first:
            average += current
    return average / (stage.n_steps - first)


def _residual_facts(rows: Rows, stage: Stage, change: Vector, row_weights: Vector) -> Vector:
    """Return two numbers in [0, 1] for each row that compare its residual after `change` with the clipping norm.

    They are `row_weights` if the row is not clipped, else 0, and the squared gradient over the squared clipping norm.
    """
    with np.errstate(all="ignore"):
        residuals = np.abs(rows.y - rows.X @ change)
        gradients = _leverages(rows) * np.minimum(rows.norms, 1e300) * residuals / stage.clip_norm
        facts = np.column_stack([(gradients < 1.0) * row_weights, np.minimum(gradients, 1.0) ** 2])
    # A null row contributes nothing.
    known = np.isfinite(rows.norms) & np.isfinite(facts).all(axis=1)
    return np.where(known[:, None], np.clip(facts, 0.0, 1.0), 0.0)


def _person_facts(rows: Blocks[_PlaneRows], moved: Vector, stage: Stage, change: Vector) -> tuple[Vector, Shares]:
    """Return the numbers of `_residual_facts` for each person, and the shares of a table with one row per person.

    The second number is the squared length of the person's mean clipped gradient over the squared clipping norm. It is
    in [0, 1] as well, and smaller than the mean over the rows unless these are alike.
    """

    def numbers(part: _PlaneRows) -> tuple[Vector, Shares | None]:
        own = _stage_rows(part, moved=moved, stage=stage)
        with np.errstate(all="ignore"):
            residuals = own.y - own.X @ change
            lengths = _leverages(own) * np.minimum(own.norms, 1e300) * np.abs(residuals)
            weights = _leverages(own) * residuals * np.minimum(1.0, stage.clip_norm / np.maximum(lengths, 1e-300))
            gradients = np.where(np.isfinite(weights)[:, None], own.X * weights[:, None], 0.0)
        facts = _stage_facts(part, moved=moved, stage=stage, change=change)
        return np.column_stack([facts[:, 0], gradients]), part.shares

    found = list(rows.results(numbers))
    shares = joined_shares([cast(Shares, own) for _, own in found])
    parts = shares.by_unit(np.concatenate([own for own, _ in found]))
    squares = np.einsum("ij,ij->i", parts[:, 1:], parts[:, 1:]) / stage.clip_norm**2
    return np.clip(np.column_stack([parts[:, 0], squares]), 0.0, 1.0), shares.of_units()


def _leverages(rows: Rows) -> Vector:
    """Return the weight of each row in a descent."""
    return np.ones(rows.n_rows) if rows.leverage is None else rows.leverage


def _release_facts(run: Run, facts: Bounded, n_rows: float) -> tuple[Vector, float]:
    """Return the means of a few numbers in [0, 1] per row, given their `votes`, and their noise."""
    if not isinstance(run.plan.mechanism, Gaussian):
        raise TypeError("the noise of this release must be Gaussian.")
    total = run.release(facts)
    # Claim: |sum - sum'|_2 <= sqrt(k) for k numbers in [0, 1] per row, by `votes`.
    noise = run.plan.mechanism.noise_multiplier * math.sqrt(len(facts.value)) / n_rows
    # They are means of numbers in [0, 1]; noise beyond that range must not count as evidence.
    return np.clip(total / n_rows, 0.0, 1.0), noise


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
    return stage.noise_of_average(curvature) + _sample_variance(stage, curvature, square, n_rows)


def _sample_variance(stage: Stage, curvature: Vector, square: float, n_rows: float) -> Vector:
    sample = square * stage.clip_norm**2 / (len(stage.weights) * n_rows)
    return sample * stage.response(curvature) ** 2
