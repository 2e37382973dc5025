"""The private part of the transfer classifier: clipped steps from the public model, and the release of the gate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.base import Budget
from dpadapt.learning.losses import centred_residuals, softmax
from dpadapt.mechanisms.bounded import Array, Bounded, added, clipped_outer_sum, clipped_sum
from dpadapt.rows import Block, Blocks, Part, Rows, row_products
from dpadapt.transfer.base import CONSTANT_DEVIATION
from dpadapt.transfer.classification_plan import (
    AVERAGED_STEPS,
    EXCESS,
    STEPS,
    Plan,
    Prepared,
    Stride,
    likely_prior,
    residual_limits,
    step_length,
    stride,
)
from dpadapt.transfer.gate import (
    Gain,
    Path,
    Slope,
    loss_differences,
    row_divergences,
    slope_from_change,
    slope_from_losses,
    unseen_factors,
)

# Number of steps between two computations of the curvature. A larger one is faster but uses an older curvature.
# Chosen by hand.
_CURVATURE_EVERY = 4
# Steps between two choices of the prior, without public labels, and the step from which on gradients are averaged for
# them: the first are too far from the minimum to show it. Chosen by hand.
_PRIOR_EVERY, _FIRST_AVERAGED = 20, 8
# Scale of the effects of unseen groups, as a variance per direction of the scores: with it, the effect of a group on
# the log-odds of two classes is expected to be about 0.7. Chosen by hand.
_LOGIT_VARIANCE = 0.5


@dataclass(frozen=True, eq=False)
class _Private:
    """Some private rows in the plan's coordinates, with their labels, public scores and residual limits.

    The `y` of `rows` is the index of each row in the other three.
    """

    rows: Rows
    codes: NDArray[np.int64]
    scores: NDArray[Any]
    limits: NDArray[Any]


@dataclass(frozen=True, eq=False)
class PrivateChange:
    """What private rows change of the public model; computed from releases and public data alone.

    Parameters
    ----------
    change : ndarray
        In the coordinates of the public model.
    adopted : float
        How far to go along it, from 0 to 1.
    own_effect : ndarray
        How much to keep of the own effect of each column that is constant in public rows (`Prepared.unseen`).
    gain : Gain or None
        How much less the mean log-loss on the private population is than that of the public model. None without a gate.
    """

    change: NDArray[np.float64]
    adopted: float
    own_effect: NDArray[np.float64]
    gain: Gain | None


def private_change(
    plan: Plan,
    runs: Sequence[Run],
    prepared: Prepared,
    budget: Budget,
    rows: Blocks[Part],
    *,
    fixed_rows: bool,
) -> PrivateChange:
    """Return what private rows, with the codes of their classes, change of the public model.

    `fixed_rows`: whether neighbours have equally many rows, or rows are no longer than public ones (see `Rows`).
    """
    private = rows.map(partial(_private, prepared=prepared, plan=plan, fixed_rows=fixed_rows))
    change, pace = _descend(runs[0], private, prepared, plan, budget)
    full = np.zeros_like(prepared.start)
    full[plan.used] = change
    own_effect = np.zeros(0)
    if plan.unseen_share > 0:
        varying = _varying(runs[-1], rows, prepared.unseen, plan, budget)
        own_effect = _own_effects(plan, prepared, pace, change, varying)
    if plan.gate_share == 0:
        return PrivateChange(full, 1.0, own_effect, None)
    path = Path(prepared.sample_scores, prepared.sample_scores + prepared.sample[:, plan.used] @ change)
    measured, path = _released_slope(runs[1], private, change, path, pace, plan, budget)
    variance = EXCESS * (plan.noise / plan.weights[plan.used]) ** 2 + pace.curvature / budget.n_rows
    own = slope_from_change(change, pace.curvature + pace.ridge, variance)
    slope = own.with_other(measured)
    fraction = slope.fraction(path, plan.caution, plan.tolerance)
    return PrivateChange(full, fraction, own_effect, slope.gain(path, fraction))


def _varying(run: Run, rows: Blocks[Part], unseen: Sequence[int], plan: Plan, budget: Budget) -> NDArray[np.float64]:
    """Release the mean squares of columns that are constant in public rows; return a lower estimate, from 0 to 1.

    It is relative to the mean square of the noise that stands in the place of such a column.
    """
    columns = list(unseen)

    def squares(part: Part) -> Bounded:
        with np.errstate(all="ignore"):
            # Claim: |sum - sum'|_2 <= 1, by `clipped_sum`. A row of squares depends on that row alone.
            return clipped_sum(np.asarray(part.X[:, columns], dtype=np.float64) ** 2, 1.0, part.shares)

    mean = run.release(added(rows.results(squares))) / budget.n_rows
    noise = budget.noise(1.0) / math.sqrt(plan.unseen_share)
    return np.asarray(np.clip((mean - noise) / CONSTANT_DEVIATION**2, 0.0, 1.0))


def _own_effects(
    plan: Plan, prepared: Prepared, pace: Stride, change: NDArray[np.float64], varying: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what the effects of columns that are constant in public rows are multiplied by, see `unseen_factors`.

    Their private rows may be so few that the loss has next to no curvature there, whereas the steps reckon with that of
    the noise that stands in the place of such a column. So the noise of the change is computed with the curvature that
    `varying` leaves of it.
    """
    coordinates, used, columns = prepared.coordinates, plan.used, np.array(prepared.unseen, dtype=np.int64)
    # From coordinates to columns; the constant has no column.
    rows = np.column_stack([np.zeros(len(coordinates.scale)), coordinates.basis])[np.ix_(columns, used)]
    rows = rows / coordinates.scale[columns, None]
    # The average of the ends of whole Newton steps, change - newton, is linear in the noise of every step. Backwards:
    # `reach` is the derivative of the average in the iterate before step t.
    pull = (varying[:, None] * pace.curvature + pace.ridge) / (pace.curvature + pace.ridge)
    reach, squares = np.zeros_like(pull), np.zeros_like(pull)
    for t in reversed(range(STEPS)):
        averaged = float(t >= STEPS - AVERAGED_STEPS) / AVERAGED_STEPS
        squares += (step_length(t) * reach + averaged) ** 2
        reach = reach * (1.0 - step_length(t) * pull) + averaged * (1.0 - pull)
    one = STEPS * (plan.noise / (plan.weights[used] * (pace.curvature + pace.ridge))) ** 2
    effects = np.sqrt(np.sum((rows @ change) ** 2, axis=1) / (change.shape[1] - 1))
    return unseen_factors(effects, np.sum(rows**2 * one * squares, axis=1), _LOGIT_VARIANCE)


def _private(part: Part, *, prepared: Prepared, plan: Plan, fixed_rows: bool) -> _Private:
    X = part.X
    Z = prepared.coordinates.transform(X, plan.weights, fixed_rows=fixed_rows)
    rows = Rows(Z, np.arange(len(X)), shares=part.shares, fixed_rows=fixed_rows)
    with np.errstate(all="ignore"):
        scores = row_products(X, prepared.coef.astype(X.dtype), fixed_rows=fixed_rows)
        scores += prepared.intercept.astype(X.dtype)
    # A row too long for a float is a null row in `rows`; its scores only have to be finite.
    scores[~np.isfinite(scores).all(axis=1)] = 0.0
    return _Private(rows, part.y, scores, residual_limits(rows.norms, plan.clip_norm))


def _descend(
    run: Run, private: Blocks[_Private], prepared: Prepared, plan: Plan, budget: Budget
) -> tuple[NDArray[np.float64], Stride]:
    """Return the averaged end of the steps, and the last step's curvature and ridge.

    The average is over the points where whole Newton steps from the last iterates would end. In a quadratic loss with
    known curvature that is the minimum plus the step's own noise, wherever the step began: averaging may begin early,
    and the noise of each step counts once. Where the curvature is only roughly known, the error of the iterates shrinks
    further.

    Without public labels, the prior is chosen anew every 20 steps, by the same points without their shrinkage. The
    weights stay as planned.
    """
    weights = plan.weights[plan.used][:, None]
    change = np.zeros((len(plan.used), prepared.start.shape[1]))
    ends, targets, curvatures = np.zeros_like(change), np.zeros_like(change), np.zeros(len(plan.used))
    pace = stride(prepared, plan, change, budget.n_rows)
    for t in range(STEPS):
        if t and t % _PRIOR_EVERY == 0 and not prepared.warm:
            averaged = t - _FIRST_AVERAGED
            noise = STEPS / averaged * (plan.noise / plan.weights[plan.used]) ** 2
            mean = curvatures / averaged
            error = (noise + mean / budget.n_rows) / mean**2
            unshrunk = targets / curvatures[:, None]
            plan = replace(plan, expected=likely_prior(prepared, plan.used, unshrunk, error))
        if t and t % _CURVATURE_EVERY == 0:
            pace = stride(prepared, plan, change, budget.n_rows)
        sums = partial(_gradients, coef=change / weights, clip_norm=plan.clip_norm)
        gradient = run.release(added(private.results(sums))) / budget.n_rows
        # Residuals add up to zero over classes, so the mean over classes is pure noise.
        gradient = (gradient - gradient.mean(axis=1, keepdims=True)) / weights
        newton = pace.newton(gradient, change)
        if t >= _FIRST_AVERAGED:
            # Divided by the curvature: where a whole step without a ridge would end.
            targets += pace.curvature[:, None] * change - gradient
            curvatures += pace.curvature
        if t >= STEPS - AVERAGED_STEPS:
            ends += change - newton
        change = change - step_length(t) * newton
    return ends / AVERAGED_STEPS, pace


def _gradients(private: _Private, *, coef: NDArray[np.float64], clip_norm: float) -> Bounded:
    """Return the sum of clipped gradients, with centred residuals."""
    coef = coef.astype(private.rows.X.dtype)

    def residuals(block: Block) -> Array:
        scores = block.product(coef)
        scores += private.scores[block.y]
        return centred_residuals(softmax(scores, out=scores), private.codes[block.y], private.limits[block.y])

    return clipped_outer_sum(private.rows, residuals, clip_norm)


def _released_slope(
    run: Run,
    private: Blocks[_Private],
    change: NDArray[np.float64],
    path: Path,
    pace: Stride,
    plan: Plan,
    budget: Budget,
) -> tuple[Slope, Path]:
    """Release the mean clipped loss difference at the whole change; return its estimate of the slope, and the path."""
    sums = partial(_gains_and_spans, coef=change / plan.weights[plan.used][:, None], bound=path.bound)
    mean, span = (run.release(added(private.results(sums))) / budget.n_rows).tolist()
    noise = budget.noise(path.bound) / math.sqrt(plan.gate_share)
    # Akaike: the expected gain of a fit on its own rows by chance is one unit per effective coefficient.
    effective = (change.shape[1] - 1) * float(np.sum(pace.curvature / (pace.curvature + pace.ridge)))
    path = path.as_measured(span, noise)
    return slope_from_losses(mean, noise, path, optimism=effective / budget.n_rows, n_rows=budget.n_rows), path


def _gains_and_spans(private: _Private, *, coef: NDArray[np.float64], bound: float) -> Bounded:
    with np.errstate(all="ignore"):
        own = private.rows
        after = row_products(own.X, coef.astype(own.X.dtype), fixed_rows=own.fixed_rows)
        after += private.scores
        gains = loss_differences(private.scores, after, private.codes)
        spans = row_divergences(private.scores, after)
    # Claim: |sum - sum'|_2 <= bound, by `clipped_sum`. A pair depends on its own row and on released coefficients.
    return clipped_sum(np.column_stack([gains, spans]), bound, private.rows.shares)
