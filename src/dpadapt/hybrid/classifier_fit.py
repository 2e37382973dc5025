"""The stages of a hybrid fit, one after the other: what the curator releases, what people are asked, what is kept.

Everything that follows from a release or from people's bits is post-processing, so each stage may use all before it.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.classifier_plan import HybridPlan
from dpadapt.hybrid.curator_releases import Moments, around, descend, find_tilt, release_moments, release_total
from dpadapt.hybrid.mapped_questions import LeadQuestion, PublicMap, ScoreQuestion, SquareQuestion, VectorQuestion
from dpadapt.learning.estimator import Budget
from dpadapt.rows import Rows

# Local only: a model from people's answers alone, by descent on one-bit residuals. The curator's rows are not used.


Array = NDArray[np.float64]

LOCAL_ROUNDS = 10


def fit_locally(agents: Agents, where: PublicMap, n: int, positive: object) -> Array:
    """Return a logistic model by descent, each step on the residuals of an equal share of `n` people."""
    # Indicators are not centred, so that the loss is as curved as a quarter of their number in one direction.
    rate = min(1.0, 16.0 / (len(where.groups) + 1))
    coef = np.zeros(where.n_columns + 1)
    average = np.zeros_like(coef)
    for turn in range(LOCAL_ROUNDS):
        question = VectorQuestion(where, coef, positive)
        coef = coef + rate * question.estimate(agents.ask(question, n // LOCAL_ROUNDS))
        if turn >= LOCAL_ROUNDS // 2:
            average += coef
    return average / (LOCAL_ROUNDS - LOCAL_ROUNDS // 2)


# The people's first and second moments: their own means and squares, and for the rest the curator's covariance.


# A column's scale among the people, relative to the curator's covariance around their mean.
_SCALES = 0.1, 4.0


@dataclass(frozen=True, eq=False)
class PeopleMoments:
    """What people's answers say about the features of their population.

    Parameters
    ----------
    mean : ndarray of shape (n_columns,)
        Each entry with standard deviation `noise`.
    second : ndarray of shape (n_columns + 1, n_columns + 1)
        About the mean of row times row, constant last.
    noise : float
    shifted : bool
        Whether some mean differs from the curator's by more than noise.
    """

    mean: Array = field(repr=False)
    second: Array = field(repr=False)
    noise: float
    shifted: bool


def ask_moments(agents: Agents, where: PublicMap, moments: Moments, n_means: int, n_squares: int) -> PeopleMoments:
    """Ask people for their means and, where there are numbers, their squares."""
    question = VectorQuestion(where)
    answers = agents.ask(question, n_means)
    mean, noise = question.estimate(answers)[:-1], question.noise(len(answers), answers.scale)
    gap = mean - moments.mean
    # The largest of 2 k normals; the sums in the second moments have 1 / sqrt 2 of the noise, by symmetry.
    limit = math.sqrt(2 * math.log(2 * len(gap))) * math.hypot(noise, moments.noise / math.sqrt(2) / moments.n_rows)
    second = around(moments.covariance, moments.mean + _kept(gap, noise))
    if n_squares:
        squares = SquareQuestion(where)
        answers = agents.ask(squares, n_squares)
        numbers = list(where.numbers)
        old = np.maximum(np.diag(second)[numbers], 1e-6)
        new = old + _kept(squares.estimate(answers) - old, squares.noise(len(answers), answers.scale))
        scale = np.ones(len(second))
        scale[numbers] = np.sqrt(np.clip(new / old, *_SCALES))
        second *= np.outer(scale, scale)
    return PeopleMoments(mean, second, noise, bool(np.abs(gap).max() > limit))


def _kept(gap: Array, noise: float) -> Array:
    """Return the part of each gap that noise does not explain."""
    return np.asarray(np.maximum(0.0, 1.0 - noise**2 / np.maximum(gap**2, 1e-300)) * gap)


# Recalibration: people's residuals correct a model's constant and slope. Two parameters, so few people suffice.


RECALIBRATION_ROUNDS = 2
_HESSIAN_SHARE = 0.25
_FLATTEST = 1 / 3
_CURVATURE = ("curvature", "curvature, slope", "curvature, square")
_RESIDUAL = ("residual", "residual, slope")
# How large the two parameters may turn out to be: 0, or one of these.
_RECALIBRATION_SIZES = np.concatenate([[0.0], np.geomspace(0.02, 5.0, 15)])


def recalibrate(agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object) -> Array:
    """Return `coef` with another constant and slope, by `n` people's answers; `second` are released second moments."""
    span = max(2.0 * math.sqrt(float(coef @ second @ coef)), 1e-3)
    asked = max(1, int(_HESSIAN_SHARE * n))
    shape = ScoreQuestion(where, coef, _CURVATURE, span, positive)
    found = shape.estimate(agents.ask(shape, asked))
    # A Hessian is not negative, nor is the curvature above a quarter.
    corner = min(max(found["curvature"], 0.02), 0.25)
    square = min(max(found["curvature, square"], 0.1 * corner), corner)
    limit = 0.95 * math.sqrt(corner * square)
    across = min(max(found["curvature, slope"], -limit), limit)
    hessian = np.array([[corner, across], [across, square]])
    pooled, variance = np.zeros(2), math.inf
    per_round = max(1, (n - asked) // RECALIBRATION_ROUNDS)
    for _ in range(RECALIBRATION_ROUNDS):
        question = ScoreQuestion(where, coef, _RESIDUAL, span, positive)
        answers = agents.ask(question, per_round)
        estimate = question.estimate(answers)
        fresh = np.array([estimate[name] for name in _RESIDUAL])
        noise = question.noise("residual", len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, fresh, noise)
        step = _posterior(hessian, pooled, variance, span)
        # A slope between a third and three times the old one: noise must not turn a model around.
        step[1] = span * (min(max(1.0 + step[1] / span, _FLATTEST), 1 / _FLATTEST) - 1.0)
        pooled = pooled - hessian @ step
        coef = coef * (1.0 + step[1] / span)
        coef[-1] += step[0]  # a new array by now
    return coef


def pool(old: Array, old_variance: float, fresh: Array, variance: float) -> tuple[Array, float]:
    """Return the mean of two estimates weighted by their precision, and its variance."""
    share = 0.0 if math.isinf(old_variance) else variance / (variance + old_variance)
    return share * old + (1 - share) * fresh, (1 - share) * variance


def _posterior(hessian: Array, seen: Array, variance: float, span: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori each of the two parameters is 0 with probability 1/2, else normal of an unknown size on a grid.
    """
    slopes = _RECALIBRATION_SIZES[0.5 * span >= _RECALIBRATION_SIZES]
    chances, steps = [], []
    for sizes in itertools.product(_RECALIBRATION_SIZES, slopes):
        prior = np.diag(np.square(sizes))
        spread = hessian @ prior @ hessian.T + variance * np.eye(2)
        solved = np.linalg.solve(spread, seen)
        chance = -0.5 * float(seen @ solved) - 0.5 * math.log(np.linalg.det(spread))
        for size, choices in zip(sizes, (_RECALIBRATION_SIZES, slopes), strict=True):
            chance -= math.log(2.0) + (math.log(len(choices) - 1) if size else 0.0)
        chances.append(chance)
        steps.append(prior @ hessian.T @ solved)
    weights = np.exp(np.array(chances) - max(chances))
    weights /= weights.sum()
    # The first pair of sizes is 0, 0: if it is likelier than all others, a right model is left as it is.
    return np.zeros(2) if weights[0] > 0.5 else np.asarray(weights @ np.array(steps))


# Correction: people's residuals, asked as vectors, correct all coefficients as far as noise lets them be seen.
#
# The residual is measured on the people themselves, so it assumes nothing about the curator's population: wrong
# second moments only make the steps shorter or longer.


CORRECTION_ROUNDS = 2
_CURVATURE_SHARE = 0.04
# How large the correction of a coefficient may be: 0, or one of these.
_CORRECTION_SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1.0, 15)])


def correct(
    agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object, *, doubt: float
) -> Array:
    """Return `coef` corrected by `n` people's answers.

    `second` are the people's second moments, about, and `doubt` the probability that there is nothing to correct.
    """
    per_round = n // CORRECTION_ROUNDS
    pooled, variance = np.zeros(len(coef)), math.inf
    for _ in range(CORRECTION_ROUNDS):
        about = ScoreQuestion(where, coef, ("curvature",), 1.0, positive)
        few = max(1, int(_CURVATURE_SHARE * per_round))
        curvature = min(max(about.estimate(agents.ask(about, few))["curvature"], 0.05), 0.25)
        question = VectorQuestion(where, coef, positive)
        answers = agents.ask(question, max(1, per_round - few))
        noise = question.noise(len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, question.estimate(answers), noise)
        hessian = curvature * second + 0.01 * np.eye(len(coef))
        step = posterior_step(hessian, pooled, variance, doubt)
        pooled = pooled - hessian @ step
        coef = coef + step
    return coef


def posterior_step(hessian: Array, seen: Array, variance: float, doubt: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori the step is 0 with probability `doubt`, else normal of an unknown size on a grid. Given the size, `seen`
    has the covariance size² hessian² + variance, which is diagonal in the hessian's own axes.
    """
    prior = np.full(len(_CORRECTION_SIZES), (1.0 - doubt) / (len(_CORRECTION_SIZES) - 1))
    prior[0] = doubt
    values, vectors = np.linalg.eigh(hessian)
    along = vectors.T @ seen
    spread = (_CORRECTION_SIZES[:, None] * values) ** 2 + variance
    logarithms = np.log(prior) - 0.5 * np.sum(along**2 / spread + np.log(spread), axis=1)
    chances = np.exp(logarithms - logarithms.max())
    chances /= chances.sum()
    if chances[0] > 0.5:
        # More likely nothing than anything: then nothing, so that a right model is left as it is.
        return np.zeros_like(seen)
    return np.asarray(vectors @ (chances @ (_CORRECTION_SIZES[:, None] ** 2 * values / spread) * along))


# Switching: people who were never asked before say whether a candidate is right more often than the incumbent.


@dataclass(frozen=True)
class Lead:
    """By how much a candidate is wrong more often than the incumbent, as `people` people's bits say.

    Parameters
    ----------
    difference : float
        Error of the candidate less that of the incumbent; negative is good.
    margin : float
        Distance to the end of a one-sided 95% interval.
    people : int
    proven : bool
        Whether chance alone would make a candidate that is worse by the tolerance look so good with probability
        `level` at most.
    """

    difference: float
    margin: float
    people: int
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
    """Ask `n` people which of two models is right about them."""
    answers = agents.ask(LeadQuestion(where, candidate, incumbent, positive), n)
    n = len(answers)
    if not n:
        return Lead(0.0, 1.0, 0, False)
    ups = int(np.count_nonzero(answers.bits > 0))
    # If the true difference is `tolerance` or more, a bit is up with probability (1 + tolerance / scale) / 2 or more.
    # The bits are independent, so their sum is binomial whatever the people's rows are (drawn at random).
    proven = bool(binom.cdf(ups, n, (1.0 + tolerance / answers.scale) / 2.0) <= level)
    margin = float(norm.isf(level)) * answers.scale / math.sqrt(n)
    return Lead(answers.mean(), margin, n, proven)


# How likely it is, a priori, that a base needs no correction.
_DOUBT = {"source": 0.6, "tilted": 0.9}


@dataclass(eq=False)
class Outcome:
    """What came out.

    Parameters
    ----------
    coef, source : ndarray of shape (n_columns + 1,)
        The model and the one from the curator's rows alone, constants last.
    chosen : str
        How the model came about.
    estimates : dict of str to float
        What people's bits and releases say of it.
    people : dict of str to int
        How many were asked, by stage.
    """

    coef: Array = field(repr=False)
    source: Array = field(repr=False)
    chosen: str = "nothing"
    estimates: dict[str, float] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)


class Stages:
    """A hybrid fit under way.

    Parameters
    ----------
    plan : HybridPlan
    where : PublicMap
    budget : Budget
    public_rows : bool
        Whether the number of rows is exact and public.
    rows : Rows
        The curator's rows, mapped, with their constant and labels 0 and 1.
    agents : Agents, optional
    positive : object
        The people's label that counts as 1.
    tolerance : float
    """

    def __init__(
        self,
        plan: HybridPlan,
        where: PublicMap,
        budget: Budget,
        rows: Rows,
        agents: Agents | None,
        *,
        public_rows: bool,
        positive: Any,
        tolerance: float,
    ) -> None:
        self.plan, self.where, self.budget, self.rows = plan, where, budget, rows
        self.agents, self.positive, self.tolerance = agents, positive, tolerance
        self.public_rows = public_rows
        nothing = np.zeros(where.n_columns + 1)
        self.outcome = Outcome(nothing, nothing)

    def carry_out(self, runs: dict[str, Run]) -> Outcome:
        """Run all stages of the plan; `runs` were charged for its releases."""
        if self.agents is not None and self.plan.mode == "local":
            before = self.agents.asked
            self.outcome.coef = fit_locally(self.agents, self.where, self.plan.people["descent"], self.positive)
            self.outcome.chosen = "people alone"
            self._count("descent", self.agents, before)
        elif runs:
            moments = self._second_moments(runs["second moments"])
            self._keep_source(self._descend(runs["source model"], moments, moments.second, moments.n_rows))
            if self.agents is not None and self.plan.mode == "hybrid":
                self._hybrid(runs, moments, self.agents)
        return self.outcome

    def _hybrid(self, runs: dict[str, Run], moments: Moments, agents: Agents) -> None:
        people, outcome = self.plan.people, self.outcome
        before = agents.asked
        theirs = ask_moments(agents, self.where, moments, people["means"], people.get("squares", 0))
        before = self._count("moments", agents, before)
        outcome.estimates["noise of a mean"] = theirs.noise
        base, chosen = outcome.source, "source"
        if self.plan.tilting and theirs.shifted:
            tilted = self._tilted(runs, moments, theirs)
            lead = compare(agents, self.where, tilted, base, people["base"], self.positive, tolerance=0.0)
            before = self._count("choice of a base", agents, before)
            if lead.difference < 0:
                base, chosen = tilted, "tilted"
        elif self.plan.tilting:
            # No shift to be seen: what was to buy the tilted model buys a second source model.
            again = self._descend(runs["tilted model"], moments, moments.second, moments.n_rows)
            shares = [self.plan.shares[name] for name in ("source model", "tilted model")]
            self._keep_source((shares[0] * base + shares[1] * again) / sum(shares))
            base = outcome.source
        model = recalibrate(agents, self.where, base, theirs.second, people["recalibration"], self.positive)
        before = self._count("recalibration", agents, before)
        if "correction" in people:
            # A tilted model has seen the shift already.
            doubt = _DOUBT[chosen]
            model = correct(agents, self.where, model, theirs.second, people["correction"], self.positive, doubt=doubt)
            before = self._count("correction", agents, before)
        if np.array_equal(model, outcome.source):
            return
        # Nobody of those asked so far takes part, so the choices above do not flatter the candidate.
        lead = compare(
            agents, self.where, model, outcome.source, people["test"], self.positive, tolerance=self.tolerance
        )
        self._count("test", agents, before)
        outcome.estimates |= {"lead over the source model": -lead.difference, "margin of the lead": lead.margin}
        if lead.proven:
            outcome.coef, outcome.chosen = model, f"{chosen}, corrected"

    def _second_moments(self, run: Run) -> Moments:
        plan, budget, where = self.plan, self.budget, self.where
        # Replacing a row moves a second moment by sqrt 2 times its bound, not by twice.
        noise = plan.multiplier("second moments", budget.mu) * where.max_norm**2 * budget.factor**0.5
        return release_moments(run, self.rows, where, n_rows=budget.n_rows, public=self.public_rows, noise=noise)

    def _keep_source(self, coef: Array) -> None:
        self.outcome.coef = self.outcome.source = coef
        self.outcome.chosen = "source"

    def _descend(self, run: Run, moments: Moments, second: Array, total: float, weights: Any = None) -> Array:
        limits = {"clip_norm": self.plan.clip_norm, "blur": moments.blur}
        return descend(run, self.rows, second, total, weights=weights, **limits)

    def _tilted(self, runs: dict[str, Run], moments: Moments, theirs: PeopleMoments) -> Array:
        """Return the model fitted on the curator's rows, weighted to look like the people."""
        scale = self.plan.multiplier("tilted means", self.budget.mu) * self.where.max_norm * self.budget.factor
        tilt = find_tilt(
            runs["tilted means"],
            self.rows,
            self.where,
            moments,
            theirs.mean,
            bound=self.plan.bound,
            noise=theirs.noise,
            scale=scale,
        )
        self.outcome.estimates |= {"size of the shift": tilt.size, "largest weight": tilt.bound}
        total = release_total(runs["weights"], self.rows, tilt, moments.n_rows)
        return self._descend(runs["tilted model"], moments, theirs.second, total, tilt.weights)

    def _count(self, stage: str, agents: Agents, before: int) -> int:
        """Note how many people a stage asked; return how many were asked in all."""
        self.outcome.people[stage] = agents.asked - before
        return agents.asked
