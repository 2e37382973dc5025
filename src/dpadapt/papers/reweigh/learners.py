"""`SeparatorLearner`: a hyperplane by exact minimisation of the squared hinge, **not private**: for Algorithm 1.

The paper's Appendix C uses a support vector machine with C = 1e30, whose solver does not converge; Newton's method on
the squared hinge needs a dozen steps, each on the records inside the margin alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_mu
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Run
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.questions import Hypothesis, LinearHypothesis, MappedHypothesis, RowMap
from dpadapt.learning.descent import LogisticLoss, Loss, constant, gradient_weights, private_descent
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, clipped_outer_sum
from dpadapt.mechanisms.choices import ExponentialMechanism
from dpadapt.mechanisms.mechanism import Event, GaussianEvent, Mechanism, NonPrivate, Plan, Repeated, Sampled, as_plan
from dpadapt.mechanisms.noise import DiscreteLaplace, Gaussian
from dpadapt.papers.reweigh.planning import Descent
from dpadapt.rows import Rows

# What a learner is: it says what one round would release, and makes a hypothesis of weighted rows by doing that.


Plans = Sequence[tuple[Plan | Mechanism, str]]


@dataclass(frozen=True, eq=False)
class Facts:
    """What a learner may know before it sees a row: all of it is public.

    Parameters
    ----------
    n_rows : float
        A public number of rows.
    n_features : int
    classes : ndarray of shape (2,)
    density : float
        The weights add up to at least this share of the rows.
    """

    n_rows: float
    n_features: int
    classes: NDArray[Any]
    density: float = 1.0


@dataclass(frozen=True, eq=False)
class Sample:
    """The curator's rows in one round.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Private.
    codes : ndarray of int64
        The class of each row, 0 or 1. Private.
    weights : ndarray
        Of each row, in [0, 1]: a function of that row and of what was released before. 0 for a null record, which must
        not count at all.
    total : float
        A public estimate of the sum of weights, to divide by.
    facts : Facts
    """

    X: NDArray[Any] = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)
    total: float
    facts: Facts


class Learner(Protocol):
    """What `SubsampleTestReweigh` needs of a learner.

    Everything that leaves a learner leaves through the runs it is given, one for each of its plans.
    """

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return what one round releases, with labels, at a cost of mu (see `noise_of`, `choice_of`); inf: no noise."""
        ...

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return a hypothesis, from one release per step of each plan."""
        ...


def noise_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` Gaussian releases that together cost sqrt(share) * mu; no noise if mu is infinite."""
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(Gaussian(math.sqrt(steps / share) / mu), steps)


def counts_of(mu: float, share: float, steps: int, *, pure: bool) -> Repeated:
    """Return `steps` releases of a histogram that together cost sqrt(share) * mu; `pure`: without any delta."""
    if not pure or math.isinf(mu):
        return noise_of(mu, share, steps)
    return Repeated(DiscreteLaplace(math.sqrt(steps / share) / mu), steps)


def choice_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` choices by the exponential mechanism that together cost about sqrt(share) * mu.

    Each is epsilon²/8-zCDP, a Gaussian release mu²/2: so epsilon = 2 mu. No noise if mu is infinite.
    """
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(ExponentialMechanism(2.0 * mu * math.sqrt(share / steps)), steps)


def chosen(run: Run, scores: Bounded) -> int:
    """Return which candidate a run that `choice_of` planned chooses; the best, where nothing is protected."""
    found = run.release(scores)
    return int(np.argmax(found)) if isinstance(run.plan.mechanism, NonPrivate) else int(found)


def strength(plans_at: Callable[[float], Plans], epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """Return the largest mu for which what `plans_at(mu)` releases costs at most (`epsilon`, `delta`)."""
    if math.isinf(epsilon):
        return math.inf

    def events(mu: float) -> frozenset[tuple[Event, int]]:
        counted: dict[Event, int] = {}
        for plan, _ in plans_at(mu):
            ready = as_plan(plan)
            counted[ready.event()] = counted.get(ready.event(), 0) + ready.steps
        return frozenset(counted.items())

    start = gaussian_mu(epsilon, delta) if delta else epsilon / 2
    if delta and all(isinstance(event, GaussianEvent) for event, _ in events(start)):
        return start
    fixed = events(start) == events(2 * start)
    low, high = 0.0, math.inf
    mu = start
    for _ in range(60):
        cost = _cost(events(mu), delta, adjacency)
        low, high = (mu, high) if cost <= epsilon else (low, mu)
        if not low and (fixed or high < 1e-3 * start):
            raise ValueError(
                f"the learner's own noise costs epsilon={cost:.3g} or more on so few rows, over the {epsilon:.3g} that "
                f"this fit may spend. Nothing was spent. Bring more rows, or lower n_rounds or the learner's n_steps."
            )
        if fixed or (low > 0 and high / low < 1 + 2e-4):
            break
        # Cost grows about as mu does, so this lands near the root; a hair below it, to be returned.
        guess = mu * min(4.0, max(0.25, epsilon / max(cost, 1e-300))) * (1 - 5e-5)
        mu = guess if low < guess < high else (low + high) / 2 if math.isfinite(high) else 2 * low
    return low


@lru_cache(maxsize=512)
def _cost(events: frozenset[tuple[Event, int]], delta: float, adjacency: Adjacency) -> float:
    return cost_of(dict(events), delta, adjacency=adjacency)


# `DescentLearner`: a generalised linear model by private weighted gradient descent, for any round of reweighing.
#
# Every gradient is that of the weighted records, clipped record by record: full batch (exactly Gaussian), or on
# Poisson samples for very many rows.


@dataclass(frozen=True)
class DescentLearner:
    """Weighted private descent on the loss of a generalised linear model.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself; features should be about 1 in size. Default: none.
    loss : Loss, default=LogisticLoss()
        By its derivative in the score, for classes coded 0 and 1.
    n_steps : int, default=40
        Gradient steps in a round.
    clip_norm : float, optional
        Each record's gradient is scaled down to this length. Default: half the length of a row whose features spread
        over [-1, 1].
    step : float, optional
        Length of each step. Default: what is stable for such rows.
    sampling_rate : float, default=1.0
        Below 1: each step sees a Poisson sample of the records. It saves time, not noise; for very many rows.

    Examples
    --------
    >>> DescentLearner(n_steps=10).plans(0.5, Facts(1000, 3, np.array([0, 1])))[0][1]
    'gradient'
    """

    row_map: RowMap | None = None
    loss: Loss = field(default_factory=LogisticLoss)
    n_steps: int = 40
    clip_norm: float | None = None
    step: float | None = None
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        checks.count(self.n_steps, "n_steps")
        checks.unit(self.sampling_rate, "sampling_rate")
        for name in ("clip_norm", "step"):
            if getattr(self, name) is not None:
                checks.positive(getattr(self, name), name)

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the gradients of one round."""
        q = self.sampling_rate
        if q == 1.0 or math.isinf(mu):
            return [(noise_of(mu, 1.0, self.n_steps), "gradient")]
        # The limit law of many sampled steps: mu² = q² steps (e^(1/s²) - 1). A first guess; `strength` settles it.
        noise = 1.0 / math.sqrt(math.log1p(mu**2 / (q**2 * self.n_steps)))
        return [(Sampled(Gaussian(noise), q, self.n_steps), "gradient")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of the last half of the steps."""
        facts = sample.facts
        Z = sample.X if self.row_map is None else self.row_map(sample.X)
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True)
        # A record's gradient is multiplied by its weight, at most 1, before it is clipped: the bound stays clip_norm.
        rows.leverage = sample.weights.astype(Z.dtype)
        square = 1.0 + Z.shape[1] / 3.0
        found = private_descent(
            runs[0],
            rows,
            self.loss,
            np.zeros(Z.shape[1] + 1),
            clip_norm=0.5 * math.sqrt(square) if self.clip_norm is None else self.clip_norm,
            n_rows=sample.total,
            step=constant(8.0 / square if self.step is None else self.step),
        )
        return hyperplane(self.row_map, found, facts.classes)


def hyperplane(row_map: RowMap | None, solution: NDArray[Any], classes: NDArray[Any]) -> Hypothesis:
    """Return the hypothesis with these coefficients, the constant's last; without a map it can travel to devices."""
    coef, intercept = np.asarray(solution[:-1], dtype=np.float64), float(solution[-1])
    if row_map is None:
        return LinearHypothesis(coef, intercept, classes)
    return MappedHypothesis(row_map, coef, intercept, classes)


# `OnlineLearner`: the paper's private online descent, with its constants (Algorithm 3, as Algorithm 4 uses it).
#
# A step sees about one record's worth of weight and pays for a sample of rate 1 / (density n). The paper draws one
# record by the weights; here each record takes part with its own probability, independently, which costs no more and
# lets the weights be normalised by a release. The noise is the paper's, so what it costs depends on the number of
# rows: with too few, the ledger refuses.


# sigma² = 20 L², the least that Theorem A.3 allows.
_SQUARE = 20.0


@dataclass(frozen=True)
class OnlineLearner:
    """Online descent over a ball of hypotheses, averaged over all steps.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself. Default: none.
    lipschitz : float, default=1.0
        L: gradients are scaled down to this length.
    diameter : float, default=2.0
        D, of the ball of hypotheses.
    alpha, beta : float
        Of the number of steps, R, where that is not given.
    n_steps : int, optional
        R. Default: the paper's formula, which is beyond reach for small alpha.
    loss : Loss, default=LogisticLoss()
    """

    row_map: RowMap | None = None
    lipschitz: float = 1.0
    diameter: float = 2.0
    alpha: float = 0.05
    beta: float = 1e-6
    n_steps: int | None = None
    loss: Loss = field(default_factory=LogisticLoss)

    def __post_init__(self) -> None:
        for name in ("lipschitz", "diameter", "alpha", "beta"):
            checks.positive(getattr(self, name), name)
        if self.n_steps is not None:
            checks.count(self.n_steps, "n_steps")

    def steps(self, n_features: int) -> int:
        """Return R, for rows of so many features."""
        if self.n_steps is not None:
            return self.n_steps
        return Descent(self.lipschitz, self.diameter, n_features + 1).steps(self.alpha, self.beta, _SQUARE)

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the steps of one round, at the paper's noise whatever mu is."""
        steps = self.steps(facts.n_features)
        if math.isinf(mu):
            return [(Repeated(NonPrivate(), steps), "gradient")]
        rate = min(1.0, 1.0 / (facts.density * facts.n_rows))
        return [(Sampled(Gaussian(math.sqrt(_SQUARE)), rate, steps), "gradient")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of all steps."""
        run = runs[0]
        Z = sample.X if self.row_map is None else self.row_map(sample.X)
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True)
        rows.leverage = sample.weights.astype(Z.dtype)
        sampled = isinstance(run.plan, Sampled)
        # What the weights of a sample add up to on average: 1, if the weights add up to density times n.
        expected = sample.total * (run.plan.rate if isinstance(run.plan, Sampled) else 1.0)
        at = np.zeros(Z.shape[1] + 1)
        average = np.zeros_like(at)
        noise = math.sqrt(_SQUARE) * self.lipschitz
        batches = run.batches(rows.n_rows) if sampled else iter([None] * run.plan.steps)
        for r, index in enumerate(batches, start=1):
            batch = rows if index is None else rows.take(index)
            gradient = run.release(clipped_outer_sum(batch, gradient_weights(self.loss, at), self.lipschitz)) / expected
            at = at - self.diameter / (noise * math.sqrt(r)) * gradient
            at *= min(1.0, self.diameter / 2 / max(float(np.linalg.norm(at)), 1e-300))
            average += at
        return hyperplane(self.row_map, average / run.plan.steps, sample.facts.classes)


Single = NDArray[np.float32]


@dataclass(frozen=True)
class SeparatorLearner:
    """Minimise ridge / 2 |w|² + the weighted sum of squared hinge losses. Only for epsilon = inf.

    Parameters
    ----------
    ridge : float, default=1.0
        Small: the hyperplane separates as well as it can.
    n_steps : int, default=20
        Most Newton steps.
    """

    ridge: float = 1.0
    n_steps: int = 20

    def __post_init__(self) -> None:
        checks.positive(self.ridge, "ridge")
        checks.count(self.n_steps, "n_steps")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one deliberate leak; a ledger with a finite cap refuses it."""
        return [(NonPrivate(), "separating hyperplane (not private)")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the hyperplane."""
        if not isinstance(runs[0].plan.mechanism, NonPrivate):
            raise PrivacyError("this learner is not private: it must be charged as a leak.")
        X = np.column_stack([sample.X, np.ones(len(sample.X))]).astype(np.float32)
        signs = (2 * sample.codes - 1).astype(np.float32)
        found = _newton(X, signs, sample.weights.astype(np.float32), self.ridge, self.n_steps).astype(np.float64)
        return LinearHypothesis(found[:-1], found[-1], sample.facts.classes)


def _newton(X: Single, signs: Single, weights: Single, ridge: float, n_steps: int) -> Single:
    """Return the minimiser, to a thousandth of the objective."""
    coef = np.zeros(X.shape[1], dtype=np.float32)
    scores = np.zeros(len(X), dtype=np.float32)

    def objective(coef: Single, scores: Single) -> float:
        hinge = np.maximum(1 - signs * scores, 0)
        return float(ridge / 2 * coef @ coef + weights @ (hinge * hinge))

    value = objective(coef, scores)
    for _ in range(n_steps):
        hinge = 1 - signs * scores
        active = np.flatnonzero(hinge > 0)
        part, weight = X[active], weights[active]
        gradient = ridge * coef - 2 * (part.T @ (weight * signs[active] * hinge[active]))
        hessian = (2 * ((part.T * weight) @ part)).astype(np.float64)
        hessian[np.diag_indices_from(hessian)] += ridge
        step = np.linalg.solve(hessian, gradient.astype(np.float64)).astype(np.float32)
        change, length, before = X @ step, np.float32(1.0), value
        value = objective(coef - step, scores - change)
        while value > before and length > 1e-3:
            length /= np.float32(2.0)
            value = objective(coef - length * step, scores - length * change)
        coef, scores = coef - length * step, scores - length * change
        if before - value < 1e-3 * before:
            break
    return coef
