"""The stages of a hybrid fit: what the curator releases, what people are asked, which model is returned.

Everything that follows from releases and from people's bits is post-processing, so each stage may use all before it.
`fit_plan` runs the stages in order; the functions below it are one stage each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.agents import Agents, bit_scale
from dpadapt.hybrid.classifier_plan import LOCAL_STEPS, HybridPlan, step_noise
from dpadapt.hybrid.curator_releases import Moments, around, descend, find_tilt, release_moments, release_total
from dpadapt.hybrid.mapped_questions import (
    ErrorQuestion,
    LabelQuestion,
    PublicMap,
    ResidualQuestion,
    VectorQuestion,
    probability,
)
from dpadapt.rows import Rows
from dpadapt.transfer.base import UsableLabels

Array = NDArray[np.float64]

# "Development data" are the populations of docs/benchmarks/hybrid.md, with two or three other seeds of each.
#
# Momentum of descent on people's answers alone: the first number without noise, less the second for each unit of the
# standard deviation of a mean residual, and at least 0. Momentum m moves 1 / (1 - m) times as far in as many steps,
# and makes the noise as many times larger. On development data 0.5 changed the error by -0.009 to +0.005 at a noise
# of 0.03, by -0.008 to +0.019 at 0.045, and by -0.012 to +0.011 at 0.07; above 0.1 it was worse on most.
_NOISELESS_MOMENTUM, _MOMENTUM_PER_NOISE = 0.7, 10.0
# Rounds of residuals, for the constant and for all coefficients: the second starts from a better model, and its answers
# are pooled with the first's. On development data five rounds were no better than two.
_CORRECTION_ROUNDS = 2
# The standard deviation of the correction of a coefficient, a priori: 0, or one of these. Likewise of the constant, on
# the scale of the scores. The grids reach from what changes no label to what changes most of them.
_CORRECTION_SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1.0, 15)])
_CONSTANT_SIZES = np.concatenate([[0.0], np.geomspace(0.02, 5.0, 15)])
# The probability, a priori, that a model needs no correction. Larger values leave good models unchanged more often. On
# development data 0.6 and 0.9 gave weighted models the same mean error, 0.300 and 0.301.
_NO_CORRECTION = 0.6
# The mean curvature p (1 - p) is at least this: a smaller one would make steps long, and it is at most 1/4. By hand.
_LEAST_CURVATURE = 0.05
# What is added to the curvature of every direction, so that directions without variance get no long steps. By hand.
_CURVATURE_RIDGE = 0.01
# Nodes and weights of the mean over a normal variable; 20 nodes are exact to 1e-4 for scores of any spread.
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


NO_LABELS_OF_PEOPLE = (
    "the share of people with a readable label did not exceed its noise, so nobody else was asked, and the model is "
    "that of the curator's rows alone. Compare how labels are written on people's devices and in classes="
)


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
    decision : str
        The candidates, their estimated errors and the choice, in words; empty if there was no test.
    usable : UsableLabels or None
        How many people have a readable label; None if nobody was asked.
    """

    coef: Array = field(repr=False)
    source: Array = field(repr=False)
    chosen: str = "nothing"
    estimates: dict[str, float] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)
    decision: str = ""
    usable: UsableLabels | None = None


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
    source = np.zeros(plan.where.n_columns + 1)
    candidates: dict[str, Array] = {}
    estimates: dict[str, float] = {}
    people = _Counted(agents)
    usable: UsableLabels | None = None
    if agents is not None and "labels" in plan.people:
        usable = ask_labels(agents, plan.people["labels"], plan.classes)
        people.count("labels")
        if usable.none:
            # Nobody else is asked: answers without labels are no evidence, and noise would choose and correct a model.
            agents = None
    if runs:
        moments = release_moments(
            runs["second moments"],
            rows,
            plan.where,
            n_rows=plan.n_rows,
            public=plan.exact_rows,
            noise=plan.moments_noise,
        )
        source = _descend(plan, runs["source model"], rows, moments)
        if agents is not None and plan.mode == "hybrid":
            source, corrected, estimates = _corrected(plan, runs, rows, agents, moments, source, people)
            # A model that was left as it is would be tested twice.
            candidates = {name: coef for name, coef in corrected.items() if not np.array_equal(coef, source)}
        candidates = {"source": source} | candidates
    if agents is not None and "people alone" in plan.people:
        alone = fit_locally(agents, plan.where, plan.people["people alone"], plan.classes)
        people.count("people alone")
        candidates["people alone"] = alone
    if agents is None or "test" not in plan.people:
        chosen, coef = next(iter(candidates.items()), ("nothing", source))
        decision = NO_LABELS_OF_PEOPLE if usable is not None and usable.none else ""
        return Outcome(coef, source, chosen, estimates, people.by_stage, decision, usable)
    # The people of the test took part in no stage above, so that their answers are unbiased about the candidates.
    chosen, coef, errors, decision = choose(agents, plan.where, candidates, plan.people["test"], plan.classes)
    people.count("test")
    return Outcome(coef, source, chosen, estimates | errors, people.by_stage, decision, usable)


class _Counted:
    """How many people each stage asked."""

    def __init__(self, agents: Agents | None) -> None:
        self._agents, self._before = agents, 0 if agents is None else agents.asked
        self.by_stage: dict[str, int] = {}

    def count(self, stage: str) -> None:
        """Put all people who were asked since the last call under `stage`."""
        if self._agents is not None:
            self.by_stage[stage] = self._agents.asked - self._before
            self._before = self._agents.asked


def _descend(plan: HybridPlan, run: Run, rows: Rows, moments: Moments) -> Array:
    """Return a model of the curator's rows, all of the same weight."""
    return descend(run, rows, moments.second, moments.n_rows, clip_norm=plan.clip_norm, blur=moments.blur)


def _corrected(
    plan: HybridPlan,
    runs: dict[str, Run],
    rows: Rows,
    agents: Agents,
    moments: Moments,
    source: Array,
    people: _Counted,
) -> tuple[Array, dict[str, Array], dict[str, float]]:
    """Return the source model, the model that people's answers correct under its name, and estimates."""
    where, classes = plan.where, plan.classes
    theirs = ask_moments(agents, where, moments, plan.people["means"])
    people.count("means")
    estimates = {"noise of a mean": theirs.noise}
    base, name = source, "source, corrected"
    if "tilted model" in runs and theirs.shifted:
        tilted, shift = _tilted(plan, runs, rows, moments, theirs)
        estimates |= shift
        question = ErrorQuestion(where, np.array([source, tilted]), classes)
        errors = question.estimate(agents.ask(question, plan.people["base"]))
        people.count("base")
        if errors[1] < errors[0]:
            base, name = tilted, "tilted, corrected"
    elif "tilted model" in runs:
        # No mean differs by more than noise: the budget of the tilted model pays for a second source model instead.
        again = _descend(plan, runs["tilted model"], rows, moments)
        shares = [plan.shares[release] for release in ("source model", "tilted model")]
        base = source = (shares[0] * source + shares[1] * again) / sum(shares)
    model = correct_constant(agents, where, base, theirs.second, plan.people["constant"], classes)
    people.count("constant")
    model = correct(agents, where, model, theirs.second, plan.people["correction"], classes)
    people.count("correction")
    return source, {name: model}, estimates


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


def ask_labels(agents: Agents, n: int, classes: Sequence[Any]) -> UsableLabels:
    """Ask `n` people whether their label is one of the classes."""
    question = LabelQuestion(classes)
    answers = agents.ask(question, n)
    share = question.estimate(answers) if len(answers) else 0.0
    return UsableLabels(share, question.noise(len(answers), answers.scale))


def fit_locally(agents: Agents, where: PublicMap, n: int, classes: Sequence[Any]) -> Array:
    """Return a logistic model by descent on people's residuals; each step asks an equal share of `n` people."""
    # Indicators are not centred: with k categories and the constant, the loss has in one direction the curvature
    # (k + 1) p (1 - p). Descent with this rate converges there while p (1 - p) is below 1/8. Chosen by hand.
    rate = min(1.0, 16.0 / (len(where.groups) + 1))
    momentum = local_momentum(where, n, bit_scale(agents.epsilon))
    coef, step = np.zeros(where.n_columns + 1), np.zeros(where.n_columns + 1)
    average = np.zeros_like(coef)
    for turn in range(LOCAL_STEPS):
        question = VectorQuestion(where, coef, classes)
        step = momentum * step + rate * question.estimate(agents.ask(question, n // LOCAL_STEPS))
        coef = coef + step
        if turn >= LOCAL_STEPS // 2:
            average += coef
    return average / (LOCAL_STEPS - LOCAL_STEPS // 2)


def local_momentum(where: PublicMap, n: int, scale: float) -> float:
    """Return the momentum of a descent on the answers of `n` people: less, the noisier a step is."""
    return max(0.0, _NOISELESS_MOMENTUM - _MOMENTUM_PER_NOISE * step_noise(where, n, scale))


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


def ask_moments(agents: Agents, where: PublicMap, moments: Moments, n: int) -> PeopleMoments:
    """Ask `n` people for their means."""
    question = VectorQuestion(where)
    answers = agents.ask(question, n)
    mean, noise = question.estimate(answers)[:-1], question.noise(len(answers), answers.scale)
    gap = mean - moments.mean
    # About the largest of 2 k normal errors. Averaging with the transpose divided the noise of the curator's sums by
    # sqrt 2.
    limit = math.sqrt(2 * math.log(2 * len(gap))) * math.hypot(noise, moments.noise / math.sqrt(2) / moments.n_rows)
    # Each gap is shrunk towards 0 by as much as its noise demands (positive-part James-Stein, one at a time).
    shrunk = np.maximum(0.0, 1.0 - noise**2 / np.maximum(gap**2, 1e-300)) * gap
    second = around(moments.covariance, moments.mean + shrunk)
    return PeopleMoments(mean, second, noise, bool(np.abs(gap).max() > limit))


def mean_curvature(coef: Array, second: Array) -> float:
    """Return the mean of p (1 - p), if scores are normal with the mean and variance that second moments give them."""
    mean = float(second[-1] @ coef)
    spread = math.sqrt(max(float(coef @ second @ coef) - mean**2, 0.0))
    p = probability(mean + spread * _NODES)
    return min(max(float(_NODE_WEIGHTS @ (p * (1 - p)) / _NODE_WEIGHTS.sum()), _LEAST_CURVATURE), 0.25)


def correct_constant(
    agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, classes: Sequence[Any]
) -> Array:
    """Return `coef` with its constant corrected by `n` people's residuals.

    This one number needs few people, however many columns there are.
    """
    coef = coef.copy()
    pooled, variance = np.zeros(1), math.inf
    for _ in range(_CORRECTION_ROUNDS):
        answers = agents.ask(ResidualQuestion(where, coef, classes), max(1, n // _CORRECTION_ROUNDS))
        if len(answers):
            fresh, noise = np.array([answers.mean()]), answers.scale**2 / len(answers)
            pooled, variance = pool(pooled, variance, fresh, noise)
            hessian = np.array([[mean_curvature(coef, second)]])
            step = correction_step(hessian, pooled, variance, _CONSTANT_SIZES)
            pooled = pooled - hessian @ step
            coef[-1] += step[0]
    return coef


def correct(agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, classes: Sequence[Any]) -> Array:
    """Return `coef` with all coefficients corrected by `n` people's residuals, as far as their noise allows.

    `second` are approximate second moments of the people. The residuals are the people's own, so that nothing is
    assumed about the curator's population: wrong second moments only make the steps shorter or longer.
    """
    pooled, variance = np.zeros(len(coef)), math.inf
    for _ in range(_CORRECTION_ROUNDS):
        question = VectorQuestion(where, coef, classes)
        answers = agents.ask(question, max(1, n // _CORRECTION_ROUNDS))
        noise = question.noise(len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, question.estimate(answers), noise)
        hessian = mean_curvature(coef, second) * second + _CURVATURE_RIDGE * np.eye(len(coef))
        step = correction_step(hessian, pooled, variance, _CORRECTION_SIZES)
        pooled = pooled - hessian @ step
        coef = coef + step
    return coef


def pool(old: Array, old_variance: float, fresh: Array, variance: float) -> tuple[Array, float]:
    """Return the mean of two estimates, weighted by their precision, and its variance."""
    share = 0.0 if math.isinf(old_variance) else variance / (variance + old_variance)
    return share * old + (1 - share) * fresh, (1 - share) * variance


def correction_step(hessian: Array, seen: Array, variance: float, sizes: Array) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori the step is 0 with probability `_NO_CORRECTION`, otherwise normal with a standard deviation among `sizes`,
    the first of which is 0. Given this size, `seen` has the covariance size² hessian² + variance, which is diagonal in
    the Hessian's eigenvectors.
    """
    prior = np.full(len(sizes), (1.0 - _NO_CORRECTION) / (len(sizes) - 1))
    prior[0] = _NO_CORRECTION
    values, vectors = np.linalg.eigh(hessian)
    along = vectors.T @ seen
    spread = (sizes[:, None] * values) ** 2 + variance
    logarithms = np.log(prior) - 0.5 * np.sum(along**2 / spread + np.log(spread), axis=1)
    chances = np.exp(logarithms - logarithms.max())
    chances /= chances.sum()
    if chances[0] > 0.5:
        return np.zeros_like(seen)
    return np.asarray(vectors @ (chances @ (sizes[:, None] ** 2 * values / spread) * along))


def choose(
    agents: Agents, where: PublicMap, candidates: dict[str, Array], n: int, classes: Sequence[Any]
) -> tuple[str, Array, dict[str, float], str]:
    """Ask `n` people about the errors of the candidates and of a constant label; choose the one that errs least.

    Each person is asked about one candidate. One group is asked about both constant labels: where one of them is wrong
    the other is right. Returns the name of the choice, its coefficients, the estimated errors, and all this in words.
    """
    always = np.zeros(where.n_columns + 1)
    always[-1] = 1.0
    question = ErrorQuestion(where, np.array([*candidates.values(), always]), classes)
    answers = agents.ask(question, n)
    errors = question.estimate(answers)
    if errors[-1] > 0.5:
        always, errors[-1] = -always, 1.0 - errors[-1]
    # Without answers about a candidate its error is unknown, so that it is not chosen before another.
    known = np.nan_to_num(errors, nan=math.inf)
    models = {**candidates, "constant": always}
    chosen = list(models)[int(np.argmin(known))]
    noise = question.noise(len(answers), answers.scale)
    listed = "; ".join(f"{name}: {error:.3f}" for name, error in zip(models, errors, strict=True))
    decision = (
        f"{len(answers):,} people whom no candidate had used tested the candidates; their noisy answers estimate these "
        f"errors, each with a standard deviation of {noise:.3f} at most. {listed}. The least decides: {chosen}"
    )
    estimates = {f"error of {name}": float(error) for name, error in zip(models, errors, strict=True)}
    return chosen, models[chosen], {**estimates, "noise of an error": noise}, decision
