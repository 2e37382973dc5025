"""Learners of `SubsampleTestReweigh`: what a learner is, and the learners of linear models.

A learner says what one round releases, and makes a hypothesis from weighted rows by these releases. `DescentLearner` is
ours, and `OnlineLearner` has the paper's steps and noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.questions import (
    ConstantHypothesis,
    EllipsoidHypothesis,
    Hypothesis,
    LinearHypothesis,
    MappedHypothesis,
    ParityHypothesis,
    RowMap,
)
from dpadapt.learning.descent import constant, private_descent, released_gradient
from dpadapt.learning.losses import LogisticLoss, Loss
from dpadapt.learning.row_by_row import on_private_rows, require_row_by_row, silenced, try_on_made_up_rows
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.choices import ExponentialMechanism
from dpadapt.mechanisms.events import Event, GaussianEvent
from dpadapt.mechanisms.mechanism import (
    DiscreteLaplace,
    Gaussian,
    Mechanism,
    NonPrivate,
    Plan,
    Repeated,
    Sampled,
    as_plan,
)
from dpadapt.rows import Rows

Plans = Sequence[tuple[Plan | Mechanism, str]]


@dataclass(frozen=True, eq=False)
class Facts:
    """What a learner may know before it uses a row. All of it is public.

    Parameters
    ----------
    n_rows : float
        The public number of rows.
    n_features : int
    classes : ndarray of shape (2,)
    density : float
        The weights add up to at least this share of the rows. 0 in Algorithm 1, which bounds no weight.
    epsilon, delta : float
        What the whole fit may cost.
    """

    n_rows: float
    n_features: int
    classes: NDArray[Any]
    density: float = 1.0
    epsilon: float = math.inf
    delta: float = 1e-6


@dataclass(frozen=True, eq=False)
class Sample:
    """The curator's rows in one round.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Private.
    features : ndarray
        What the learner's `prepare` made of the rows, before anything was charged. Private.
    codes : ndarray of int64
        The class of each row, 0 or 1. Private.
    weights : ndarray
        The weight of each row, in [0, 1]: a function of that row and of earlier releases. 0 for a null record, which
        must not contribute to anything.
    total : float
        A public estimate of the sum of weights, to divide by.
    facts : Facts
    """

    X: NDArray[Any] = field(repr=False)
    features: NDArray[Any] = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)
    total: float
    facts: Facts


class Learner(Protocol):
    """What `SubsampleTestReweigh` needs of a learner.

    A learner releases only through the runs that it is given, one for each of its plans. It may also have a method
    `prepare`, which takes the private rows and returns features, one row each, for `Sample.features`. It is called
    once, before anything is charged, so that it can refuse what would fail later. A method `losses` takes a hypothesis
    that it made, features and codes, and returns the loss of each record over the largest loss, from that record
    alone; it is needed for `reweigh_by="losses"`.
    """

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return what one round releases, with labels, at a cost of mu (see `noise_of`, `choice_of`).

        There is no noise if mu is infinite.
        """
        ...

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return a hypothesis, from one release per step of each plan."""
        ...


def require_losses(learner: Learner) -> None:
    """Raise a ValueError if a learner has no loss for each record, before anything is charged."""
    loss = getattr(learner, "loss", None)
    if not hasattr(learner, "losses") or (loss is not None and not hasattr(loss, "each")):
        raise ValueError(
            "reweigh_by='losses' needs a learner with a method losses, such as OnlineLearner with LogisticLoss or "
            "HingeLoss. Use reweigh_by='labels'."
        )


def prepared(learner: Learner, X: NDArray[Any]) -> NDArray[Any]:
    """Return the features that the learner computes with: those of its method `prepare`, or the rows themselves."""
    prepare = getattr(learner, "prepare", None)
    return X if prepare is None else np.asarray(prepare(X))


def noise_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` Gaussian releases that together cost sqrt(share) * mu; no noise if mu is infinite."""
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(Gaussian(math.sqrt(steps / share) / mu), steps)


def counts_of(mu: float, share: float, steps: int, *, pure: bool) -> Repeated:
    """Return `steps` releases of a histogram that together cost sqrt(share) * mu; without delta if `pure`."""
    if not pure or math.isinf(mu):
        return noise_of(mu, share, steps)
    return Repeated(DiscreteLaplace(math.sqrt(steps / share) / mu), steps)


def choice_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` choices by the exponential mechanism that together cost about sqrt(share) * mu.

    A choice is epsilon²/8-zCDP and a Gaussian release mu²/2-zCDP, hence epsilon = 2 mu. No noise if mu is infinite.
    """
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(ExponentialMechanism(2.0 * mu * math.sqrt(share / steps)), steps)


def chosen(run: Run, scores: Bounded) -> int:
    """Return the candidate that a run of `choice_of` chooses: the best one if there is no noise."""
    released = run.release(scores)
    return int(np.argmax(released)) if isinstance(run.plan.mechanism, NonPrivate) else int(released)


def strength(plans_at: Callable[[float], Plans], epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """Return the largest mu at which the releases of `plans_at(mu)` cost at most (`epsilon`, `delta`)."""
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
                f"the learner's own noise costs at least epsilon={cost:.3g} with this many rows, more than the "
                f"{epsilon:.3g} that this fit may spend. Nothing was spent. Bring more rows, or lower n_rounds or the "
                f"learner's n_steps."
            )
        if fixed or (low > 0 and high / low < 1 + 2e-4):
            break
        # The cost is roughly proportional to mu, so that this guess is close to the root. It aims slightly below the
        # root, because the largest mu that fits is returned.
        guess = mu * min(4.0, max(0.25, epsilon / max(cost, 1e-300))) * (1 - 5e-5)
        mu = guess if low < guess < high else (low + high) / 2 if math.isfinite(high) else 2 * low
    return low


@lru_cache(maxsize=512)
def _cost(events: frozenset[tuple[Event, int]], delta: float, adjacency: Adjacency) -> float:
    return cost_of(dict(events), delta, adjacency=adjacency)


@dataclass(frozen=True)
class DescentLearner:
    """Private gradient descent on the weighted loss of a generalised linear model.

    Every gradient is a sum over the weighted records, each clipped: of all records, which costs exactly as Gaussian
    noise does, or of Poisson samples, for very many rows.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself; features should be of size about 1. It must accept
        any finite numbers. Maps that mix rows are refused before anything is spent. Default: none.
    loss : Loss, default=LogisticLoss()
        The loss, given by its derivative in the score, for classes coded 0 and 1.
    n_steps : int, default=40
        Gradient steps in a round.
    clip_norm : float, optional
        The clipping norm of a record's gradient. Default: half the length of a row whose features spread over [-1, 1].
    step : float, optional
        Step size. Default: one that is stable for such rows.
    sampling_rate : float, default=1.0
        Below 1, each step uses a Poisson sample of the records. This saves time, not noise; for very many rows.

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
        # The limit law of many sampled steps: mu² = q² steps (e^(1/s²) - 1). An approximation; `strength` finds the mu
        # whose exact cost fits.
        noise = 1.0 / math.sqrt(math.log1p(mu**2 / (q**2 * self.n_steps)))
        return [(Sampled(Gaussian(noise), q, self.n_steps), "gradient")]

    def prepare(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the features of the private rows, or refuse a map or loss that mixes rows."""
        return _mapped(self.row_map, self.loss, X)

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of the last half of the steps."""
        Z = sample.features
        # Where the number of rows is private, they are of double precision.
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True, fixed_rows=Z.dtype == np.float32)
        # Claim: |sum - sum'|_2 <= clip_norm. A record's gradient is multiplied by its weight before it is clipped.
        rows.leverage = sample.weights.astype(Z.dtype)
        square = 1.0 + Z.shape[1] / 3.0
        solution = private_descent(
            runs[0],
            rows,
            self.loss,
            np.zeros(Z.shape[1] + 1),
            clip_norm=0.5 * math.sqrt(square) if self.clip_norm is None else self.clip_norm,
            n_rows=sample.total,
            step=constant(8.0 / square if self.step is None else self.step),
        )
        return hyperplane(self.row_map, solution, sample.facts.classes)


def _mapped(row_map: RowMap | None, loss: Loss, X: NDArray[Any]) -> NDArray[Any]:
    """Return the features of the private rows, in the precision of the rows."""

    # A row of the trial is a score with its label, 0 or 1. A loss may overwrite its scores.
    def derivative(rows: NDArray[Any]) -> NDArray[Any]:
        return loss.weights(rows[:, 0].copy(), (rows[:, 1] > 0).astype(rows.dtype))

    require_row_by_row(derivative, 2, X.dtype, "loss")
    each = getattr(loss, "each", None)
    if each is not None:
        require_row_by_row(lambda rows: each(rows[:, 0], (rows[:, 1] > 0).astype(rows.dtype)), 2, X.dtype, "loss")
    if row_map is None:
        return X
    require_row_by_row(row_map, X.shape[1], X.dtype, "row_map", axes=2)
    # Under add-remove the rows are in float64. Features in float32 would be refused there, but only after the charge.
    return on_private_rows(row_map, X, "row_map", axes=2).astype(X.dtype)


def hyperplane(row_map: RowMap | None, solution: NDArray[Any], classes: NDArray[Any]) -> Hypothesis:
    """Return the hypothesis with these coefficients, the constant's last; without a map it can be sent to devices."""
    coef, intercept = np.asarray(solution[:-1], dtype=np.float64), float(solution[-1])
    if row_map is None:
        return LinearHypothesis(coef, intercept, classes)
    return MappedHypothesis(row_map, coef, intercept, classes)


@dataclass(frozen=True)
class HingeLoss:
    """The hinge loss max(0, margin - s), s the score with the sign of the class; margin 0 is Appendix D's."""

    margin: float = 0.0

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the derivative: the negative sign of the class where the loss is positive, or at the kink, else 0."""
        signs = (2 * y - 1).astype(scores.dtype)
        return np.where(signs * scores <= self.margin, -signs, scores.dtype.type(0))

    def each(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the loss of each example."""
        return np.asarray(np.maximum(self.margin - (2 * y - 1) * scores, 0.0))

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean loss."""
        return float(np.mean(self.each(scores, y)))


@dataclass(frozen=True)
class OnlineLearner:
    """The paper's private online descent over a ball of hypotheses, averaged over all steps (Algorithm 3).

    A step uses a sample whose weights add up to about 1, and pays for a sample of rate 1 / (density n). The noise is
    the paper's, sigma² = max(20 L², L² (16 ln(1/delta) / epsilon + 8) / ln(density n)), so that its cost depends on the
    number of rows: with too few, the fit is refused. Without privacy there is no noise, and L takes the place of sigma
    in the step size.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself. Default: none.
    lipschitz : float, default=1.0
        L, the clipping norm of gradients.
    diameter : float, default=2.0
        D, the diameter of the ball of hypotheses.
    alpha, beta : float
        They determine the number of steps, R, if `n_steps` is not given.
    n_steps : int, optional
        R. Default: the paper's formula, which is too large to run for small alpha.
    loss : Loss, default=LogisticLoss()
    strong_convexity : float, default=0.0
        lambda: lambda / 2 times the squared length of the hypothesis is added to the loss, which makes it strongly
        convex. R and the step sizes are then those of the strongly convex case. L is that of the loss without this
        term, whose gradient needs no record.

    Notes
    -----
    The paper draws one record by the weights. Here each record takes part with its own probability, independently,
    which costs no more and lets the weights be normalised by a release. In the strongly convex case the paper prints a
    step of D / (lambda r). Theorem A.1 is about 1 / (lambda r), as in Hazan (2016), and that is used: with a diameter
    below 1/2 the printed steps converge more slowly than the theorem says.
    """

    row_map: RowMap | None = None
    lipschitz: float = 1.0
    diameter: float = 2.0
    alpha: float = 0.05
    beta: float = 1e-6
    n_steps: int | None = None
    loss: Loss = field(default_factory=LogisticLoss)
    strong_convexity: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lipschitz", "diameter", "alpha", "beta"):
            checks.positive(getattr(self, name), name)
        if self.n_steps is not None:
            checks.count(self.n_steps, "n_steps")
        checks.penalty(self.strong_convexity, "strong_convexity")

    def steps(self, n_features: int, square: float) -> int:
        """Return R, for rows of `n_features` features and noise with a variance of `square` times L²."""
        if self.n_steps is not None:
            return self.n_steps
        # Within the ball the added term has a gradient of at most lambda D / 2.
        lipschitz = self.lipschitz + self.strong_convexity * self.diameter / 2
        descent = Descent(lipschitz, self.diameter, n_features + 1, self.strong_convexity)
        return descent.steps(self.alpha, self.beta, square * (self.lipschitz / lipschitz) ** 2)

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the steps of one round, at the paper's noise whatever mu is."""
        if math.isinf(mu):
            return [(Repeated(NonPrivate(), self.steps(facts.n_features, 0.0)), "gradient")]
        size = facts.density * facts.n_rows
        square = paper_noise_variance(facts.epsilon, facts.delta, size)
        steps = self.steps(facts.n_features, square)
        return [(Sampled(Gaussian(math.sqrt(square)), min(1.0, 1.0 / size), steps), "gradient")]

    def prepare(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the features of the private rows, or refuse a map or loss that mixes rows."""
        return _mapped(self.row_map, self.loss, X)

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of all steps."""
        run, Z = runs[0], sample.features
        # Where the number of rows is private, they are of double precision.
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True, fixed_rows=Z.dtype == np.float32)
        rows.leverage = sample.weights.astype(Z.dtype)
        # The expected sum of the weights in a sample: 1, if all weights add up to density times n.
        expected = sample.total * (run.plan.rate if isinstance(run.plan, Sampled) else 1.0)
        at = np.zeros(Z.shape[1] + 1)
        average = np.zeros_like(at)
        mechanism, convexity = run.plan.mechanism, float(self.strong_convexity)
        noise = self.lipschitz * (mechanism.noise_multiplier if isinstance(mechanism, Gaussian) else 1.0)
        for r, batch in enumerate(run.batches(rows.n_rows), start=1):
            # Algorithm 3 averages the hypotheses 1 to R: each before its step.
            average += at
            gradient = released_gradient(run, rows, self.loss, at, self.lipschitz, expected, batch=batch)
            step = 1.0 / (convexity * r) if convexity else self.diameter / (noise * math.sqrt(r))
            at = at - step * (gradient + convexity * at)
            at *= min(1.0, self.diameter / 2 / max(float(np.linalg.norm(at)), 1e-300))
        return hyperplane(self.row_map, average / run.plan.steps, sample.facts.classes)

    def losses(self, hypothesis: Hypothesis, features: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return each record's loss over the largest one, L D; what is larger, or not a number, counts as 1."""
        coef, intercept = (np.asarray(getattr(hypothesis, name)) for name in ("coef", "intercept"))
        scores = features @ coef.ravel().astype(features.dtype) + features.dtype.type(intercept.item())
        loss: Any = self.loss
        shares = loss.each(scores, codes) / (self.lipschitz * self.diameter)
        return np.asarray(np.clip(np.nan_to_num(shares, nan=1.0), 0.0, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class Descent:
    """The terms of Algorithm 3, the paper's online descent.

    Parameters
    ----------
    lipschitz, diameter : float
        The Lipschitz constant of the loss and the diameter of the set of hypotheses: the largest loss is their product.
    n_features : int
    strong_convexity : float, default=0.0
        lambda, if the loss is strongly convex; fewer steps are then enough for small alpha.
    """

    lipschitz: float
    diameter: float
    n_features: int
    strong_convexity: float = 0.0

    def steps(self, alpha: float, beta: float, square: float) -> int:
        """Return R, for noise with a variance of `square` times the squared Lipschitz constant."""
        confident = 8 * (self.diameter * self.lipschitz / alpha) ** 2 * math.log(2 / beta)
        # The expected squared length of a noisy gradient, at most.
        length = self.lipschitz**2 * (1 + square * self.n_features)
        if self.strong_convexity:
            ratio = length / (self.strong_convexity * alpha)
            return math.ceil(max(4 * ratio * math.log(ratio), confident))
        return math.ceil(max(9 * self.diameter**2 * length / alpha**2, confident))


def paper_noise_variance(epsilon: float, delta: float, size: float) -> float:
    """Return sigma² / L² of Algorithm 4, for a `size` of density times the number of records.

    Examples
    --------
    >>> paper_noise_variance(0.5, 1e-4, 0.0148 * 324_700_000), round(paper_noise_variance(0.5, 1e-4, 100.0), 2)
    (20.0, 65.74)
    """
    if size <= 1:
        raise ValueError(f"density times n_rows must exceed 1, got {size:.3g}. Bring more rows or raise density.")
    return max(20.0, (16 * math.log(1 / delta) / epsilon + 8) / math.log(size))


# Hypotheses that a user brings: each must label a row by that row alone.

# What messages call a hypothesis.
_HYPOTHESIS = "predict of a hypothesis"

# Hypotheses that treat each row by itself by construction: they need no trial, which would take long for long lists.
_ROW_BY_ROW = (LinearHypothesis, ConstantHypothesis, EllipsoidHypothesis, ParityHypothesis)


def require_hypothesis(hypothesis: Hypothesis, X: NDArray[Any]) -> None:
    """Raise a ValueError if a hypothesis can't label the private rows, each by itself; before anything is charged."""
    if type(hypothesis) in _ROW_BY_ROW:
        try_on_made_up_rows(hypothesis.predict, np.zeros((2, X.shape[1]), dtype=X.dtype), _HYPOTHESIS, 1)
    else:
        labels_of(hypothesis, X)


def labels_of(hypothesis: Hypothesis, X: NDArray[Any]) -> NDArray[Any]:
    """Return the label that a hypothesis gives each private row, from that row alone."""
    if type(hypothesis) in _ROW_BY_ROW:
        with silenced():
            return np.asarray(hypothesis.predict(X))
    require_row_by_row(hypothesis.predict, X.shape[1], X.dtype, _HYPOTHESIS)
    return on_private_rows(hypothesis.predict, X, _HYPOTHESIS)
