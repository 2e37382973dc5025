"""The stages of a hybrid fit: what the curator releases, what people are asked, which model is returned.

Everything that follows from releases and from people's bits is post-processing, so each stage may use all before it.
`fit_plan` runs the stages in order; the functions below it are one stage each.
"""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.classifier_plan import HybridPlan
from dpadapt.hybrid.curator_releases import Moments, around, descend, find_tilt, release_moments, release_total
from dpadapt.hybrid.mapped_questions import LeadQuestion, PublicMap, ScoreQuestion, SquareQuestion, VectorQuestion
from dpadapt.rows import Rows

Array = NDArray[np.float64]

# The constants below were set on the populations of docs/hybrid.md, with other seeds than the benchmark's; neighbouring
# values were not compared unless a comment says so.
#
# Steps of descent on people's answers alone. More steps come closer to the optimum, with fewer people in each.
_LOCAL_STEPS = 10
# The least and largest ratio of a feature's mean square among the people to the one that the curator's covariance gives
# around the people's mean. It keeps noise from making the second moments degenerate.
_SQUARE_RATIOS = 0.1, 4.0
# Rounds of residuals in the recalibration, and the share of its people who are asked for the Hessian.
_RECALIBRATION_ROUNDS = 2
_HESSIAN_SHARE = 0.25
# The factor of the slope lies between this and its inverse: noise must not turn a model around.
_LEAST_SLOPE_FACTOR = 1 / 3
# The standard deviation of each of the two corrections, a priori: 0, or one of these, on the scale of the scores.
_RECALIBRATION_SIZES = np.concatenate([[0.0], np.geomspace(0.02, 5.0, 15)])
# Rounds of residuals in the correction, and the share of their people who are asked for the curvature. In a prototype
# five rounds instead of two did not help on Adult's older people.
_CORRECTION_ROUNDS = 2
_CURVATURE_SHARE = 0.04
# The standard deviation of the correction of a coefficient, a priori: 0, or one of these.
_CORRECTION_SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1.0, 15)])
# The probability, a priori, that a model needs no correction. Larger values leave good models unchanged more often. A
# tilted model has been fitted to the shift already.
_NO_CORRECTION = {"source": 0.6, "tilted": 0.9}
_CURVATURE_NUMBERS = ("curvature", "curvature, slope", "curvature, square")
_RESIDUAL_NUMBERS = ("residual", "residual, slope")


@dataclass(frozen=True, eq=False)
class Outcome:
    """The fitted model, and how it came about.

    Parameters
    ----------
    coef, source : ndarray of shape (n_columns + 1,)
        The model, and the model of the curator's rows alone, constants last.
    chosen : str
        Which model was returned.
    estimates : dict of str to float
        What people's bits and the releases say about it.
    people : dict of str to int
        How many people each stage asked.
    """

    coef: Array = field(repr=False)
    source: Array = field(repr=False)
    chosen: str = "nothing"
    estimates: dict[str, float] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)


def fit_plan(plan: HybridPlan, runs: dict[str, Run], rows: Rows, agents: Agents | None) -> Outcome:
    """Run all stages of the plan.

    Parameters
    ----------
    plan : HybridPlan
    runs : dict of str to Run
        Charged for the plan's releases.
    rows : Rows
        The curator's rows, mapped, with their constant and labels 0 and 1.
    agents : Agents, optional
        Needed by the modes "hybrid" and "local".
    """
    nothing = np.zeros(plan.where.n_columns + 1)
    if agents is not None and plan.mode == "local":
        before = agents.asked
        coef = fit_locally(agents, plan.where, plan.people["descent"], plan.positive)
        return Outcome(coef, nothing, "people alone", people={"descent": agents.asked - before})
    if not runs:
        return Outcome(nothing, nothing)
    moments = release_moments(
        runs["second moments"],
        rows,
        plan.where,
        n_rows=plan.n_rows,
        public=plan.exact_rows,
        noise=plan.moments_noise,
    )
    source = descend(
        runs["source model"], rows, moments.second, moments.n_rows, clip_norm=plan.clip_norm, blur=moments.blur
    )
    if agents is None or plan.mode == "curator":
        return Outcome(source, source, "source")
    return _hybrid(plan, runs, rows, agents, moments, source)


def _hybrid(
    plan: HybridPlan, runs: dict[str, Run], rows: Rows, agents: Agents, moments: Moments, source: Array
) -> Outcome:
    """Return the source model corrected by people's answers, or the source model if the gate stays shut."""
    where, people, positive = plan.where, plan.people, plan.positive
    asked: dict[str, int] = {}
    before = agents.asked

    def count(stage: str) -> None:
        asked[stage] = agents.asked - before - sum(asked.values())

    theirs = ask_moments(agents, where, moments, people["means"], people.get("squares", 0))
    count("moments")
    estimates = {"noise of a mean": theirs.noise}
    base, chosen = source, "source"
    if "tilted model" in runs and theirs.shifted:
        tilted, shift = _tilted(plan, runs, rows, moments, theirs)
        estimates |= shift
        lead = compare(agents, where, tilted, source, people["base"], positive, tolerance=0.0)
        count("choice of a base")
        if lead.difference < 0:
            base, chosen = tilted, "tilted"
    elif "tilted model" in runs:
        # No mean differs by more than noise: the budget of the tilted model pays for a second source model instead.
        again = descend(
            runs["tilted model"], rows, moments.second, moments.n_rows, clip_norm=plan.clip_norm, blur=moments.blur
        )
        shares = [plan.shares[name] for name in ("source model", "tilted model")]
        base = source = (shares[0] * source + shares[1] * again) / sum(shares)
    model = recalibrate(agents, where, base, theirs.second, people["recalibration"], positive)
    count("recalibration")
    if "correction" in people:
        unchanged = _NO_CORRECTION[chosen]
        model = correct(agents, where, model, theirs.second, people["correction"], positive, p_unchanged=unchanged)
        count("correction")
    if np.array_equal(model, source):
        return Outcome(source, source, "source", estimates, asked)
    # The gate. The people of this test took part in no stage above, so that their answers are unbiased about the model.
    lead = compare(agents, where, model, source, people["test"], positive, tolerance=plan.tolerance)
    count("test")
    estimates |= {"lead over the source model": -lead.difference, "margin of the lead": lead.margin}
    if not lead.proven:
        return Outcome(source, source, "source", estimates, asked)
    return Outcome(model, source, f"{chosen}, corrected", estimates, asked)


def _tilted(
    plan: HybridPlan, runs: dict[str, Run], rows: Rows, moments: Moments, theirs: "PeopleMoments"
) -> tuple[Array, dict[str, float]]:
    """Return the model of the curator's rows, weighted to have the people's means, and estimates of the shift."""
    tilt = find_tilt(
        runs["tilted means"],
        rows,
        plan.where,
        moments,
        theirs.mean,
        bound=plan.bound,
        noise=theirs.noise,
        scale=plan.means_noise,
    )
    total = release_total(runs["weights"], rows, tilt, moments.n_rows)
    model = descend(
        runs["tilted model"],
        rows,
        theirs.second,
        total,
        clip_norm=plan.clip_norm,
        blur=moments.blur,
        weights=tilt.weights,
    )
    return model, {"size of the shift": tilt.size, "largest weight": tilt.bound}


def fit_locally(agents: Agents, where: PublicMap, n: int, positive: object) -> Array:
    """Return a logistic model by descent on people's residuals; each step asks an equal share of `n` people."""
    # Indicators are not centred, so that in one direction the loss has a curvature of a quarter of their number.
    rate = min(1.0, 16.0 / (len(where.groups) + 1))
    coef = np.zeros(where.n_columns + 1)
    average = np.zeros_like(coef)
    for step in range(_LOCAL_STEPS):
        question = VectorQuestion(where, coef, positive)
        coef = coef + rate * question.estimate(agents.ask(question, n // _LOCAL_STEPS))
        if step >= _LOCAL_STEPS // 2:
            average += coef
    return average / (_LOCAL_STEPS - _LOCAL_STEPS // 2)


@dataclass(frozen=True, eq=False)
class PeopleMoments:
    """First and second moments of the people's features.

    Parameters
    ----------
    mean : ndarray of shape (n_columns,)
        From their answers; each entry has standard deviation `noise`.
    second : ndarray of shape (n_columns + 1, n_columns + 1)
        Approximate mean of row times row, constant last: the people's means and squares with the curator's covariance.
    noise : float
    shifted : bool
        Whether some mean differs from the curator's by more than noise.
    """

    mean: Array = field(repr=False)
    second: Array = field(repr=False)
    noise: float
    shifted: bool


def ask_moments(agents: Agents, where: PublicMap, moments: Moments, n_means: int, n_squares: int) -> PeopleMoments:
    """Ask people for their means and, if there are numeric features, for their mean squares."""
    question = VectorQuestion(where)
    answers = agents.ask(question, n_means)
    mean, noise = question.estimate(answers)[:-1], question.noise(len(answers), answers.scale)
    gap = mean - moments.mean
    # About the largest of 2 k normal errors. Averaging with the transpose divided the noise of the curator's sums by
    # sqrt 2.
    limit = math.sqrt(2 * math.log(2 * len(gap))) * math.hypot(noise, moments.noise / math.sqrt(2) / moments.n_rows)
    second = around(moments.covariance, moments.mean + _shrunk(gap, noise))
    if n_squares:
        squares = SquareQuestion(where)
        answers = agents.ask(squares, n_squares)
        numbers = list(where.numbers)
        old = np.maximum(np.diag(second)[numbers], 1e-6)
        new = old + _shrunk(squares.estimate(answers) - old, squares.noise(len(answers), answers.scale))
        scale = np.ones(len(second))
        scale[numbers] = np.sqrt(np.clip(new / old, *_SQUARE_RATIOS))
        second *= np.outer(scale, scale)
    return PeopleMoments(mean, second, noise, bool(np.abs(gap).max() > limit))


def _shrunk(gap: Array, noise: float) -> Array:
    """Return each gap shrunk towards 0 by as much as its noise demands (positive-part James-Stein, one at a time)."""
    return np.asarray(np.maximum(0.0, 1.0 - noise**2 / np.maximum(gap**2, 1e-300)) * gap)


def recalibrate(agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object) -> Array:
    """Return `coef` with its constant and slope corrected by `n` people's residuals; `second` are second moments.

    There are only two parameters, so that few people suffice.
    """
    span = max(2.0 * math.sqrt(float(coef @ second @ coef)), 1e-3)
    n_hessian = max(1, int(_HESSIAN_SHARE * n))
    of_curvature = ScoreQuestion(where, coef, _CURVATURE_NUMBERS, span, positive)
    curvature = of_curvature.estimate(agents.ask(of_curvature, n_hessian))
    # The Hessian is positive definite, and the curvature p (1 - p) is at most a quarter.
    corner = min(max(curvature["curvature"], 0.02), 0.25)
    square = min(max(curvature["curvature, square"], 0.1 * corner), corner)
    limit = 0.95 * math.sqrt(corner * square)
    across = min(max(curvature["curvature, slope"], -limit), limit)
    hessian = np.array([[corner, across], [across, square]])
    pooled, variance = np.zeros(2), math.inf
    per_round = max(1, (n - n_hessian) // _RECALIBRATION_ROUNDS)
    for _ in range(_RECALIBRATION_ROUNDS):
        question = ScoreQuestion(where, coef, _RESIDUAL_NUMBERS, span, positive)
        answers = agents.ask(question, per_round)
        estimate = question.estimate(answers)
        fresh = np.array([estimate[name] for name in _RESIDUAL_NUMBERS])
        noise = question.noise("residual", len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, fresh, noise)
        step = _recalibration_step(hessian, pooled, variance, span)
        step[1] = span * (min(max(1.0 + step[1] / span, _LEAST_SLOPE_FACTOR), 1 / _LEAST_SLOPE_FACTOR) - 1.0)
        pooled = pooled - hessian @ step
        coef = coef * (1.0 + step[1] / span)
        coef[-1] += step[0]  # not the caller's array: the line above made a new one
    return coef


def pool(old: Array, old_variance: float, fresh: Array, variance: float) -> tuple[Array, float]:
    """Return the mean of two estimates, weighted by their precision, and its variance."""
    share = 0.0 if math.isinf(old_variance) else variance / (variance + old_variance)
    return share * old + (1 - share) * fresh, (1 - share) * variance


def _recalibration_step(hessian: Array, seen: Array, variance: float, span: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori each of the two parameters is 0 with probability 1/2, otherwise normal with a standard deviation on a grid.
    """
    slopes = _RECALIBRATION_SIZES[0.5 * span >= _RECALIBRATION_SIZES]
    logarithms, steps = [], []
    for sizes in itertools.product(_RECALIBRATION_SIZES, slopes):
        prior = np.diag(np.square(sizes))
        spread = hessian @ prior @ hessian.T + variance * np.eye(2)
        solved = np.linalg.solve(spread, seen)
        logarithm = -0.5 * float(seen @ solved) - 0.5 * math.log(np.linalg.det(spread))
        for size, choices in zip(sizes, (_RECALIBRATION_SIZES, slopes), strict=True):
            logarithm -= math.log(2.0) + (math.log(len(choices) - 1) if size else 0.0)
        logarithms.append(logarithm)
        steps.append(prior @ hessian.T @ solved)
    chances = np.exp(np.array(logarithms) - max(logarithms))
    chances /= chances.sum()
    # The first pair of sizes is 0, 0: if it is likelier than all others together, the model is left as it is.
    return np.zeros(2) if chances[0] > 0.5 else np.asarray(chances @ np.array(steps))


def correct(
    agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object, *, p_unchanged: float
) -> Array:
    """Return `coef` with all coefficients corrected by `n` people's residuals, as far as their noise allows.

    `second` are approximate second moments of the people, and `p_unchanged` is the probability, a priori, that nothing
    is to be corrected. The residuals are the people's own, so that nothing is assumed about the curator's population:
    wrong second moments only make the steps shorter or longer.
    """
    per_round = n // _CORRECTION_ROUNDS
    pooled, variance = np.zeros(len(coef)), math.inf
    for _ in range(_CORRECTION_ROUNDS):
        of_curvature = ScoreQuestion(where, coef, ("curvature",), 1.0, positive)
        n_curvature = max(1, int(_CURVATURE_SHARE * per_round))
        estimate = of_curvature.estimate(agents.ask(of_curvature, n_curvature))
        curvature = min(max(estimate["curvature"], 0.05), 0.25)
        question = VectorQuestion(where, coef, positive)
        answers = agents.ask(question, max(1, per_round - n_curvature))
        noise = question.noise(len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, question.estimate(answers), noise)
        hessian = curvature * second + 0.01 * np.eye(len(coef))
        step = correction_step(hessian, pooled, variance, p_unchanged)
        pooled = pooled - hessian @ step
        coef = coef + step
    return coef


def correction_step(hessian: Array, seen: Array, variance: float, p_unchanged: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori the step is 0 with probability `p_unchanged`, otherwise normal with a standard deviation on a grid. Given
    this size, `seen` has the covariance size² hessian² + variance, which is diagonal in the Hessian's eigenvectors.
    """
    prior = np.full(len(_CORRECTION_SIZES), (1.0 - p_unchanged) / (len(_CORRECTION_SIZES) - 1))
    prior[0] = p_unchanged
    values, vectors = np.linalg.eigh(hessian)
    along = vectors.T @ seen
    spread = (_CORRECTION_SIZES[:, None] * values) ** 2 + variance
    logarithms = np.log(prior) - 0.5 * np.sum(along**2 / spread + np.log(spread), axis=1)
    chances = np.exp(logarithms - logarithms.max())
    chances /= chances.sum()
    if chances[0] > 0.5:
        return np.zeros_like(seen)
    return np.asarray(vectors @ (chances @ (_CORRECTION_SIZES[:, None] ** 2 * values / spread) * along))


@dataclass(frozen=True)
class Lead:
    """The comparison of a candidate with the incumbent.

    Parameters
    ----------
    difference : float
        Estimated error of the candidate less that of the incumbent; negative is good.
    margin : float
        Distance to the end of a one-sided 95% interval.
    proven : bool
        Whether the hypothesis that the candidate is worse by the tolerance or more is rejected at `level`.
    """

    difference: float
    margin: float
    proven: bool


def compare(
    agents: Agents,
    where: PublicMap,
    candidate: Array,
    incumbent: Array,
    n: int,
    positive: object,
    *,
    tolerance: float,
    level: float = 0.05,
) -> Lead:
    """Ask `n` people which of two models is right about them; test whether the candidate is worse by `tolerance`."""
    answers = agents.ask(LeadQuestion(where, candidate, incumbent, positive), n)
    n = len(answers)
    if not n:
        return Lead(0.0, 1.0, False)
    ups = int(np.count_nonzero(answers.bits > 0))
    # If the true difference is `tolerance` or more, a bit is up with probability (1 + tolerance / scale) / 2 or more.
    # People are drawn at random, so that the bits are independent and their sum is binomial, whatever the rows are.
    proven = bool(binom.cdf(ups, n, (1.0 + tolerance / answers.scale) / 2.0) <= level)
    margin = float(norm.isf(level)) * answers.scale / math.sqrt(n)
    return Lead(answers.mean(), margin, proven)
