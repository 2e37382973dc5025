"""The plan of a private correction: which directions, how much noise in each, which clip. From public numbers only."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.base import Budget
from dpadapt.learning.centred_clipping import clipped_curvature
from dpadapt.learning.losses import softmax
from dpadapt.learning.transfer_classification_public import Prepared

PRIORS = ("shifted", "same-population")
# How many standard deviations below its estimate the gain's slope is taken to be. A shifted public model must not be
# left on weak evidence: 1.75 costs up to 0.3 points (Adult, one-hot, 1,000 rows), 2.25 up to 1.1% of log-loss (Fashion,
# 300 rows). If a common population is declared, the change is trusted unless the evidence is against it.
_CAUTION = {"shifted": 2.5, "same-population": -1.5}
# Share of the public model's own expected loss that a correction may cost if its slope is at the lower bound. Without
# it, gates stay nearly shut for few rows, where corrections are small: `fair` sets with 300 to 1,000 rows gain 0.3
# points and 1% of log-loss by it.
_HARM = 0.005
# The noise does not depend on the number of steps; more of them only follow the curved loss more closely.
STEPS = 100
# The last 80 vote on the end. Fewer votes are noisier; the first 20 steps are too far from it to be heard.
VOTES = 80
# Noise variance of the average vote, over that of one release of the whole budget.
EXCESS = STEPS / VOTES


def length(t: int) -> float:
    """Return the length of step t, in Newton steps: quick at first, then falling like 1 / t.

    It falls late, after six steps' worth: where private rows are surer than public ones the loss is flatter than
    planned, and steps that fall sooner stop short of the minimum (Adult, label-encoded: 0.2 points at epsilon 20).
    """
    return min(0.3, 6.0 / (t + 6.0))


# A residual is at most sqrt 2 long; half of that clips the surprising labels only.
_CLIP = 1.0 / math.sqrt(2.0)
# The gate gets the share of the budget that makes its noise about a three-hundredth of its range, between 1% and 10%.
# Larger shares are missed by the steps: Adult with 4% public rows, epsilon 0.3, closes 1% less of its gap at 1,000.
_GATE = 300.0
# A whole step moves scores by at most this many times the expected change, beyond its noise. Longer ones mean that the
# public curvature is far too small, as where private rows have a class that public ones lack: there, steps without a
# limit end far out (made-up data: log-loss 1.2 at epsilon 10, with a limit 0.1).
_LONGEST = 3.0
# The median length of a weighted row is a little above 1.
_LENGTH = 1.1
# Power of the shares of public variance in the prior of a model without public labels. With the shares themselves
# accuracies at epsilon 1 are lower (Fashion-MNIST 0.5 points, CIFAR-10 features 0.9), though the log-loss of the latter
# is 4% better.
_FLATTER = 0.8


@dataclass(frozen=True, eq=False)
class Plan:
    """What a private correction does, before any row is seen.

    Parameters
    ----------
    weights : ndarray of shape (1 + k,)
        Each coordinate is multiplied by this; 0 leaves it out. The squares add up to 1.
    expected : ndarray of shape (1 + k,)
        Variance that the change of each coordinate is expected to have.
    clip_norm : float
        Each row's term is scaled down to this length.
    noise : float
        Standard deviation of a weighted mean of clipped terms, if the whole run's budget goes into it.
    gate_share : float
        Share of mu² for the gate; 0 if there is none.
    caution : float
        How many standard deviations the gate stays below the estimated slope of the gain.
    tolerance : float
        By how much the gate lets the mean loss rise at worst.
    blur : float
        Forecast: standard deviation that the noise gives to a score.
    """

    weights: NDArray[np.float64]
    expected: NDArray[np.float64]
    clip_norm: float
    noise: float
    gate_share: float
    caution: float
    tolerance: float
    blur: float

    @property
    def used(self) -> NDArray[np.int64]:
        """Places of the coordinates that take part."""
        return np.flatnonzero(self.weights)


def expected_change(prepared: Prepared, prior: str) -> NDArray[np.float64]:
    """Return the variance that the best change of each coordinate is expected to have, per direction of the scores.

    A direction's share of the public variance is the prior: the energy of non-private fits follows it (log-log slope
    0.6 to 1.2 on images, embeddings and tables).
    """
    shares = prepared.coordinates.shares
    if not prepared.warm:
        # A little flatter than the shares, as those slopes are on average.
        flatter = shares**_FLATTER
        return np.concatenate([[1.0], 2.5 * flatter / max(float(flatter.sum()), 1e-300)])
    # What the public sample left open: its posterior variance.
    information = prepared.n_rows * prepared.curvature
    plain = shares[: len(shares) - len(prepared.score_variances)]
    left_open = 1.0 / (information + 1.0 / np.maximum(prepared.total * plain, 1e-12))
    if prior == "same-population":
        bias = 1.0 / (information + 0.25)
        # A model of few rows is too sure of itself, by a few percent of its scores (Adult, 4% public rows, epsilon 0.3:
        # 3% more of the gap is closed).
        return np.concatenate([[bias], left_open, 0.003 * prepared.score_variances])
    return np.concatenate([[0.25], 0.5 * plain + 0.5 * left_open, 0.06 * prepared.score_variances])


def waterfill(expected: NDArray[np.float64], curvature: float, noise: float) -> NDArray[np.float64]:
    """Share the budget among directions so that the expected loss after shrinkage is least; the shares add up to 1.

    A direction with share b has noise variance noise² / b. Shrunk optimally, what is left of its expected change t
    costs h t s² / (h² t + s²). Setting the derivatives in b equal gives b = max(0, (h t theta - noise²) / (h² t)) with
    one theta for all, found by bisection; directions below the water level are left out.
    """
    t = np.maximum(expected, 1e-300)

    def shares(theta: float) -> NDArray[np.float64]:
        return np.maximum(0.0, (curvature * t * theta - noise**2) / (curvature**2 * t))

    low = noise**2 / (curvature * float(t.max()))
    high = 2.0 * low + 2.0 * curvature
    while shares(high).sum() < 1.0:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle).sum() < 1.0 else (low, middle)
    found = shares(high)
    return np.asarray(found / found.sum())


def make_plan(prepared: Prepared, budget: Budget, prior: str) -> Plan:
    """Return the plan for a budget."""
    expected = expected_change(prepared, prior)
    h, classes = prepared.curvature, prepared.start.shape[1]
    signal = budget.n_rows * budget.mu / budget.factor
    # Without a public model there is nothing to protect.
    gate_share = min(max((_GATE / signal) ** 2, 0.01), 0.1) if prepared.warm else 0.0
    clip = _CLIP
    # Clipping biases probabilities, so the clip opens, up to twice as far, where a score's noise stays below 0.1.
    for _ in range(2):
        noise = budget.noise(clip * _LENGTH) / math.sqrt(1.0 - gate_share)
        shares = waterfill(expected, h, math.sqrt(EXCESS) * noise)
        used = shares > 0
        scatter = EXCESS * noise**2 / shares[used]
        gain = h / (h + (scatter + h / budget.n_rows) / (h * expected[used]))
        blur = math.sqrt((classes - 1) / classes * float(np.sum(scatter * gain**2))) / h
        clip = _CLIP * min(max(0.1 / blur, 1.0), 2.0)
    weights = np.sqrt(shares)
    lengths = np.linalg.norm(prepared.sample * weights, axis=1)
    clip_norm = clip * float(np.median(lengths))
    noise = budget.noise(clip_norm) / math.sqrt(1.0 - gate_share)
    return Plan(weights, expected, clip_norm, noise, gate_share, _CAUTION[prior], _HARM * prepared.entropy, blur)


@dataclass(frozen=True, eq=False)
class Stride:
    """How far a step goes in each used coordinate, how strongly it is pulled back, and how long a whole one may be."""

    curvature: NDArray[np.float64]
    ridge: NDArray[np.float64]
    longest: float

    def newton(self, gradient: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the whole step from `change`, to be subtracted, no longer than it may be."""
        step = (gradient + self.ridge[:, None] * change) / (self.curvature + self.ridge)[:, None]
        return step * min(1.0, self.longest / max(float(np.linalg.norm(step)), 1e-300))


def residual_limits(lengths: NDArray[Any], clip_norm: float) -> NDArray[Any]:
    """Return how long each row's residual may be, for its term to be no longer than the clip.

    Limits beyond 2 clip nothing; both ends only keep extreme rows from overflowing.
    """
    return np.asarray(np.clip(clip_norm / np.maximum(lengths, 1e-30), 1e-30, 2.0))


def stride(prepared: Prepared, plan: Plan, change: NDArray[np.float64], n_rows: float) -> Stride:
    """Return the step at the current change, from public rows: expected curvature of the clipped loss, and the ridge.

    The ridge is the linear least-mean-squares one: noise and sampling error over expected signal. The longest step has
    room for twice its own noise.
    """
    used = plan.used
    rows = prepared.sample[:, used]
    lengths = np.linalg.norm(rows * plan.weights[used], axis=1)
    p = softmax(prepared.sample_scores + rows @ change)
    a = clipped_curvature(p, residual_limits(lengths, plan.clip_norm))
    # A direction that the public rows hardly use would get steps without bound.
    curvature = np.maximum((rows**2).T @ a / len(a), 0.2 * float(a.mean()))
    release = (plan.noise / plan.weights[used]) ** 2
    ridge = (EXCESS * release + curvature / n_rows) / (curvature * plan.expected[used])
    free = change.shape[1] - 1
    expected = free * float(np.sum(plan.expected[used]))
    noise = free * STEPS * float(np.sum(release / (curvature + ridge) ** 2))
    return Stride(curvature, ridge, math.sqrt(_LONGEST**2 * expected + 4.0 * noise))
