"""`SubsampleTestReweigh`: learn from a curator's records, let people test the hypothesis, reweigh the records, repeat.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022: Algorithms 1, 2 and 4.
"""

import math
import sys
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.questions import ConstantHypothesis, Hypothesis
from dpadapt.inputs.gate import label_codes, label_set, private_arrays
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import as_plan
from dpadapt.mechanisms.randomness import random_source
from dpadapt.papers.reweigh.learners import (
    DescentLearner,
    Facts,
    Learner,
    OnlineLearner,
    Plans,
    counts_of,
    prepared,
    require_losses,
    strength,
)
from dpadapt.papers.reweigh.rounds import Checked, Outcome, Protocol, check_density, require_people, run_rounds

# The share of mu² for the histograms that the weights are computed from; the learner has the rest. A larger share gives
# less noisy weights. In a prototype 1% to 3% was enough.
_HISTOGRAM_SHARE = 0.03
# The default number of rounds. All rounds are paid for in advance, so that more of them mean more noise in each.
# Chosen by hand.
_DEFAULT_ROUNDS = 4
# Algorithm 1's tolerance tau over alpha, if none is given. The paper names no number for tau; its experiments end at an
# error of 2 alpha, so that tau is small beside alpha. People in a test grow with 1 / tau². Chosen by hand.
_TOLERANCE_SHARE = 0.1
# The largest number of rounds times steps: more take hours. The paper's constants ask for many millions.
_MOST_STEPS_IN_ALL = 2_000_000


def check_divergence(divergence: float, name: str = "divergence") -> float:
    """Return the divergence, or raise a ValueError if the theorems can't use it."""
    if isinstance(divergence, bool) or not isinstance(divergence, int | float):
        raise ValueError(f"{name} must be a number, got {type(divergence).__name__}.")
    # Not inf: a whole number may be too large for a float.
    if not 0 <= divergence <= sys.float_info.max:
        raise ValueError(
            f"{name} must be finite and not negative. It is infinite if the curator's "
            "population lacks a part of the target population; then no weights can help."
        )
    return float(divergence)


class SubsampleTestReweigh(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier learned from a curator's sample, for another population, whose people only answer questions.

    In each round a private learner fits the curator's weighted records. People of the target population, who have not
    been asked before, then test whether its error is small, with one noisy bit each. If it is not, records that were
    labelled correctly lose weight. The accepted hypothesis is returned, or else the one with the smallest tested error.
    Without `agents` there is one round and no test.

    **Privacy.** Protects one record of the curator (see `adjacency`), and each person with the agents' own pure
    epsilon. Releases: those of the learner (for `DescentLearner`, clipped weighted gradients, Gaussian); from the
    second round on, a histogram of how many rounds labelled a record correctly, Gaussian, or discrete Laplace if delta
    is 0. Costs at most `epsilon`, `delta`; see `privacy_`. All rounds are charged before the first, however early they
    stop.

    Parameters
    ----------
    learner : Learner, optional
        How a hypothesis is learned in a round: `DescentLearner` (default), `FiniteLearner`, `SparseLearner`, ….
    alpha : float, default=0.05
        A test decides between an error of at most 2 alpha and one of at least 4 alpha (2 alpha + 2 tolerance in
        Algorithm 1). Below 1/4.
    epsilon : float, default=1.0
        The most that this fit may spend. Positive; inf is Algorithm 1: no protection, and the receipt says so.
    {delta}
    divergence : float, default=1.0
        The chi-squared divergence of the target from the curator's population, or a guess of it. Choose it without the
        private rows.
    attainable : float, default=0.0
        The smallest error that a hypothesis can have on the target population; it is added to both limits of a test.
    n_rounds : int, optional
        The largest number of rounds. Default: 4; with `constants="paper"` the paper's formula.
    learning_rate : float, optional
        How fast records that were labelled correctly lose weight. Default: 1; the paper's: alpha / 8.
    density : float, optional
        The weights add up to at least this share of the rows. Default: 1 / (divergence + 1); the paper's: alpha / 8
        times that, and none in Algorithm 1, whose weights have no bound.
    constants : {"exact", "paper"}, default="exact"
        Whose constants to use. "paper" also tests every round; it often needs more rounds and records than are
        feasible, see `plan`.
    tolerance : float, optional
        tau of Algorithm 1, for `epsilon=inf` and `constants="paper"` only: people estimate an error to within tau, and
        the rounds end at an estimate of at most 2 alpha + tau. Default: alpha / 10.
    reweigh_by : {"labels", "losses"}, default="labels"
        What a record's weight falls with: the number of rounds that labelled it correctly, or the sum of 1 - loss over
        rounds, losses divided by the largest one (Algorithm 4). "losses" needs a learner with a method `losses`.
    test_error : float, default=1e-3
        The error probability of all tests together.
    classes : array-like of two, optional
        The labels. Default: those that occur in `y`, which the receipt then lists as assumed public.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    hypothesis_ : object with `predict`
    classes_ : ndarray of shape (2,)
    rounds_ : int
        How many rounds were run.
    users_asked_ : int
        How many people were asked, including those for the baselines.
    accepted_ : bool
        Whether a test accepted the hypothesis.
    tests_ : tuple of Checked
        Each test: its round, the estimated error, how many people it asked.
    baselines_ : dict of str to Checked
        People's tests of "S-only" (the first round) and of "constant" (the better of the two constant labels). An entry
        is missing if people ran out before.
    n_features_in_ : int
    privacy_ : Receipt
        What was released about the curator's records and what it cost.

    Notes
    -----
    Where we differ from the paper (`constants="exact"`): the normaliser of the weights is released, because the
    analysis of sampling does not hold for one that is computed from the records; a round uses all records, weighted,
    instead of a sample; tests use one randomized bit per person and exact binomial errors; not every round is tested.
    Tests are about the share of wrong labels, also with `reweigh_by="losses"`.

    Algorithm 1 asks an oracle with tolerance tau, and halts if its reply is at most 2 alpha + tau: always at an error
    of at most 2 alpha, never at one above 2 alpha + 2 tau. Ours is a sequential test of these two errors, which fails
    with probability `test_error` at most in all rounds together.

    References
    ----------
    .. [1] R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022.

    Examples
    --------
    >>> from dpadapt.hybrid.agents import SimulatedAgents
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.uniform(-1, 1, (4000, 2)), rng.uniform(-1, 1, (60_000, 2))
    >>> agents = SimulatedAgents(X_target, (X_target[:, 0] > 0).astype(int), epsilon=1.0, random_state=0)
    >>> model = SubsampleTestReweigh(random_state=0).fit(X, (X[:, 0] > 0).astype(int), agents=agents)
    >>> model.accepted_, model.rounds_, model.privacy_.epsilon <= 1.0
    (True, 1, True)
    """

    # `agents` and `ledger` always belong to `fit`, also when scikit-learn routes metadata.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"agents": True, "ledger": True}

    def __init__(
        self,
        learner: Learner | None = None,
        *,
        alpha: checks.Positive = 0.05,
        epsilon: Annotated[float, checks.or_infinite] = 1.0,
        delta: float = 1e-6,
        divergence: Annotated[float, check_divergence] = 1.0,
        attainable: checks.Share = 0.0,
        n_rounds: checks.Count | None = None,
        learning_rate: checks.Positive | None = None,
        density: checks.Proportion | None = None,
        constants: Annotated[str, checks.choice("exact", "paper")] = "exact",
        tolerance: checks.Positive | None = None,
        reweigh_by: Annotated[str, checks.choice("labels", "losses")] = "labels",
        test_error: checks.Positive = 1e-3,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.learner = learner
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.divergence = divergence
        self.attainable = attainable
        self.n_rounds = n_rounds
        self.learning_rate = learning_rate
        self.density = density
        self.constants = constants
        self.tolerance = tolerance
        self.reweigh_by = reweigh_by
        self.test_error = test_error
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(
        self, X: Any, y: Any, *, agents: Agents | None = None, ledger: Ledger | None = None
    ) -> "SubsampleTestReweigh":
        """Fit on the curator's private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The curator's features.
        y : array-like of shape (n_rows,)
            The curator's labels.
        agents : Agents, optional
            People of the target population. Default: nobody, hence one round and no test.
        ledger : Ledger, optional
            The curator's ledger, to which this fit is charged.
        """
        X, y = private_arrays(self, X, y, y_numeric=False)
        if agents is not None and not isinstance(agents, Agents):
            raise TypeError(f"agents must be Agents, such as SimulatedAgents, or None, got {type(agents).__name__}.")
        classes, source = label_set(self.classes, None, y)
        if len(classes) > 2:
            raise ValueError("Only binary classification is supported. The type of the target is multiclass.")
        codes = label_codes(y, classes, "y")
        budget = self._terms(len(X))
        if agents is not None:
            agents.check_columns(X.shape[1])
        protocol = self._protocol(budget.n_rows, X.shape[1], agents)
        terms = float(self.epsilon), float(self.delta)
        facts = Facts(budget.n_rows, X.shape[1], classes, protocol.density, *terms)
        learner = self._learner(protocol)
        if protocol.by_loss:
            require_losses(learner)
        _check_work(learner, protocol.n_rounds, facts)
        if agents is not None:
            require_people(agents, protocol)
        features = prepared(learner, X)
        child = self._ledger(ledger)
        outcome = Outcome(ConstantHypothesis(classes[0]), 0)
        before = 0 if agents is None else agents.asked
        if budget.worthwhile:
            runs = child.start_all(self._plans(learner, protocol, facts))
            width = len(learner.plans(math.inf, facts))
            learner_runs = [runs[t * width : (t + 1) * width] for t in range(protocol.n_rounds)]
            histogram_run = runs[-1] if protocol.n_rounds > 1 else None
            outcome = run_rounds(
                learner,
                X,
                features,
                classes[codes],
                codes,
                facts,
                protocol,
                learner_runs=learner_runs,
                histogram_run=histogram_run,
                agents=agents,
                generator=random_source(self.random_state).generator if protocol.draws else None,
            )
        assumed = [source, "divergence, density and the learner's settings, chosen without the private rows"]
        if agents is not None and agents.asked > before:
            assumed.append(agents.assumption)
        # The receipt first: an interrupted refit must not leave a new hypothesis under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed, notes=[*self._notes(agents), *outcome.notes])
        self.hypothesis_: Hypothesis = outcome.hypothesis
        self.classes_ = classes
        self.rounds_ = outcome.rounds
        self.users_asked_ = 0 if agents is None else agents.asked - before
        self.tests_ = outcome.tests
        self.accepted_ = any(test.accepted for test in outcome.tests)
        self.baselines_ = _baselines(outcome)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(self.hypothesis_.predict(X))

    def _terms(self, n_rows: int) -> Budget:
        """Check the privacy parameters and return the budget; epsilon = inf is allowed, and delta = 0 if pure."""
        epsilon, delta = float(self.epsilon), float(self.delta)
        pure = self.learner is not None and getattr(self.learner, "pure", False)
        if epsilon < math.inf and not (pure and delta == 0):
            return self._budget(n_rows)
        # mu only decides whether the budget is worthwhile; a pure release at epsilon counts like a Gaussian one with
        # mu = epsilon.
        checked: Budget = clone(self).set_params(epsilon=1.0, delta=1e-6)._budget(n_rows)
        return replace(checked, mu=epsilon)

    def _learner(self, protocol: Protocol) -> Learner:
        """Return the given learner, or the default one."""
        if self.learner is not None:
            if not (hasattr(self.learner, "plans") and hasattr(self.learner, "learn")):
                raise TypeError(
                    f"learner must be a Learner, such as DescentLearner, got {type(self.learner).__name__}."
                )
            return self.learner
        return OnlineLearner(alpha=self.alpha) if protocol.paper and self.epsilon < math.inf else DescentLearner()

    def _protocol(self, n_rows: float, n_features: int, agents: Agents | None) -> Protocol:
        """Return the constants of the rounds, all public."""
        paper, alpha = self.constants == "paper", float(self.alpha)
        divergence, attainable = float(self.divergence), float(self.attainable)
        private = self.epsilon < math.inf
        gap = self._gap(alpha, algorithm_1=paper and not private)
        if not 2 * alpha + gap + attainable < 1:
            what = "4 * alpha" if gap == 2 * alpha else "2 * alpha + 2 * tolerance"
            raise ValueError(
                f"{what} + attainable must lie below 1, the largest error, got {2 * alpha + gap + attainable!r}."
            )
        error = float(self.test_error)
        rounds = paper_rounds(alpha, divergence, private=private) if paper else _DEFAULT_ROUNDS
        if self.n_rounds is not None:
            rounds = int(self.n_rounds)
        if agents is None:
            rounds = 1
        density = self.density
        if density is None and paper and not private:
            # Algorithm 1 has no projection onto dense weights.
            density = 0.0
        else:
            if density is None:
                density = (alpha / 8 if paper else 1.0) / (divergence + 1)
            check_density(density, n_rows)
        rate = self.learning_rate
        if rate is None:
            rate = alpha / 8 if paper else 1.0
        protocol = Protocol(
            rounds,
            float(rate),
            density,
            2 * alpha + attainable,
            2 * alpha + gap + attainable,
            error,
            paper=paper,
            # The sample size of Appendix C, for hyperplanes.
            draws=math.ceil((n_features + math.log(rounds / 0.05)) / alpha) if paper and not private else 0,
            by_loss=self.reweigh_by == "losses",
        )
        return replace(protocol, error=min(error / len(protocol.tested), 0.49))

    def _gap(self, alpha: float, *, algorithm_1: bool) -> float:
        """Return the distance of the two errors between which a test decides."""
        if algorithm_1:
            # The oracle's reply is within tau of the error and is compared with 2 alpha + tau (Theorem 3.1).
            tolerance = _TOLERANCE_SHARE * alpha if self.tolerance is None else self.tolerance
            return 2 * float(tolerance)
        if self.tolerance is not None:
            raise ValueError(
                f'tolerance is for Algorithm 1, epsilon=inf with constants="paper", got {self.tolerance!r}. Use None: '
                f"other tests are of 2 alpha against 4 alpha."
            )
        return 2 * alpha

    def _plans(self, learner: Learner, protocol: Protocol, facts: Facts) -> Plans:
        """Return everything that will be released, with the least noise that the budget allows."""
        rounds = protocol.n_rounds
        share = _HISTOGRAM_SHARE if rounds > 1 else 0.0

        def at(mu: float) -> Plans:
            each = learner.plans(mu * math.sqrt((1 - share) / rounds), facts)
            plans = [(plan, f"round {t + 1}: {label}") for t in range(rounds) for plan, label in each]
            if rounds > 1:
                what = "of sums of losses" if protocol.by_loss else "of rounds with a correct label"
                plans.append((counts_of(mu, share, rounds - 1, pure=self.delta == 0), f"histogram {what}"))
            return plans

        terms = float(self.epsilon), float(self.delta), Adjacency.of(self.adjacency)
        return at(strength(at, *terms))

    def _notes(self, agents: Agents | None) -> list[str]:
        """Return the warnings of the receipt that don't depend on the rounds."""
        notes = []
        if math.isinf(self.epsilon):
            notes.append("not private: epsilon is infinite, so hypotheses show the rows; they must not be shared")
        if agents is None:
            notes.append("no agents: nobody tested the hypothesis on the target population")
        else:
            notes += agents.warnings
        return notes


def _check_work(learner: Learner, n_rounds: int, facts: Facts) -> None:
    """Raise a ValueError if the rounds would take hours, before anybody is asked or charged."""
    mu = 1.0 if math.isfinite(facts.epsilon) else math.inf
    steps = sum(as_plan(plan).steps for plan, _ in learner.plans(mu, facts))
    if n_rounds * steps > _MOST_STEPS_IN_ALL:
        raise ValueError(
            f"{n_rounds:,} rounds of {steps:,} steps were planned; the limit is {_MOST_STEPS_IN_ALL:,} steps in all. "
            f"Lower n_rounds or the learner's n_steps; `dpadapt.papers.reweigh.plan` shows what the paper asks for."
        )


def _baselines(outcome: Outcome) -> dict[str, Checked]:
    """Return the tests of the first round and of the constant hypothesis, if there were any."""
    baselines = {"S-only": outcome.tests[0]} if outcome.tests else {}
    return baselines if outcome.constant is None else {**baselines, "constant": outcome.constant}


def paper_rounds(alpha: float, divergence: float, *, reach: float = 1.0, private: bool = True) -> int:
    """Return T of Algorithms 2 and 4, or of Algorithm 1 if not `private`; `reach` is the largest loss.

    Examples
    --------
    >>> paper_rounds(0.08, 0.3515)
    141569
    """
    constant = 128 if private else 32
    return math.ceil(constant * reach**2 * math.log2(8 * (divergence + 1) / alpha) / alpha**2)
