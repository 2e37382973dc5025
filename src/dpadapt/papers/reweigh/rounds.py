"""The rounds of Subsample-Test-Reweigh: learn from weighted records, ask fresh people, reweigh; the best one wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.deciding import CUT_SHARE, decide, people_needed
from dpadapt.hybrid.questions import Hypothesis, LinearHypothesis, LossQuestion
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.mechanism import NoiseMechanism
from dpadapt.papers.reweigh.learners import Facts, Learner, Sample

# Weights of the curator's records: multiplicative updates, the dense projection, and a normaliser that is released.
#
# A record's weight falls with the number of rounds that got it right. `dense_weights` is the projection of the paper,
# eq. (2), whose normaliser c is computed from all records: one record then moves every other one's weight. Ours takes
# c from a noisy histogram instead, so that a record's weight depends on itself and on what was released, on nothing
# else.


Array = NDArray[np.float64]


def normaliser(log_weights: Array, counts: Array, density: float) -> float:
    """Return log c for the smallest c with sum of counts * min(1, c * weight) = density * sum of counts.

    Parameters
    ----------
    log_weights : ndarray
        Logarithms of different weights.
    counts : ndarray
        How many records have each; what is not positive counts as none.
    density : float
        In (0, 1].

    Examples
    --------
    >>> log_c = normaliser(np.log([1.0, 0.5]), np.array([1.0, 3.0]), 0.5)
    >>> np.minimum(1.0, np.exp(log_c) * np.array([1.0, 0.5])).round(3)
    array([0.8, 0.4])
    """
    order = np.argsort(-log_weights, kind="stable")
    logs, amounts = log_weights[order], np.maximum(counts[order], 0.0)
    present = amounts > 0
    if not present.any():
        return 0.0
    logs, amounts = logs[present], amounts[present]
    # Relative to the heaviest, so that nothing underflows after many rounds.
    relative = np.exp(logs - logs[0])
    wanted = density * amounts.sum()
    # If the first j kinds are held at 1, the rest must make up for what they leave.
    held = np.concatenate([[0.0], np.cumsum(amounts)[:-1]])
    rest = np.cumsum((amounts * relative)[::-1])[::-1]
    with np.errstate(divide="ignore"):
        candidates = np.maximum(wanted - held, 0.0) / np.maximum(rest, 1e-300)
    # The first j for which no further kind would exceed 1 is the solution.
    fits = candidates * relative <= 1 + 1e-12
    j = int(np.argmax(fits)) if fits.any() else len(logs) - 1
    return math.log(max(candidates[j], 1e-300)) - float(logs[0])


def dense_weights(weights: Array, density: float) -> Array:
    """Return the projection of `weights` that is dense, eq. (2): min(1, c * weight), adding up to density * n.

    No weight exceeds 1 / density times the average. For the paper's algorithms; the normaliser is not protected.

    Examples
    --------
    >>> dense_weights(np.array([8.0, 1.0, 1.0, 1.0]), 0.5)
    array([1.        , 0.33333333, 0.33333333, 0.33333333])
    """
    weights = np.asarray(weights, dtype=np.float64)
    check_density(density, len(weights))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    return record_weights(logs, normaliser(logs, np.ones(len(logs)), density))


def record_weights(log_weights: Array, log_c: float) -> Array:
    """Return min(1, c * weight) for each record: a function of that record and of the released c."""
    return np.asarray(np.exp(np.minimum(log_weights + log_c, 0.0)))


def released_weights(noisy: Array, learning_rate: float, density: float, noise: float | None) -> tuple[Array, float]:
    """Return the weight for each number of rounds got right, and the weights' sum over records, from noisy counts.

    Everything here follows from the release: entry b of `noisy` estimates how many records b rounds got right. `noise`
    is its standard deviation; with None the weights add up to density times the number of records, as in the paper,
    even where they could all be larger.
    """
    logs = -learning_rate * np.arange(len(noisy), dtype=np.float64)
    counts = np.maximum(noisy, 0.0)
    log_c = normaliser(logs, counts, density)
    # A sum that no cap limits can be scaled up until the heaviest records that seem to exist have weight 1: the noise
    # of what is learned from the weighted records does not grow with them.
    if noise is not None:
        exists = noisy > max(2.0 * noise, 0.05 * density * counts.sum())
        log_c = max(log_c, -float(logs[np.argmax(exists)])) if exists.any() else log_c
    weights = record_weights(logs, log_c)
    return weights, float(max(counts @ weights, density * counts.sum(), 1.0))


def check_density(density: float, n_rows: float) -> None:
    """Refuse a density that would put all weight on less than one record."""
    if not 0 < density <= 1:
        raise ValueError(f"density must lie in (0, 1], got {density!r}.")
    if density * n_rows < 1:
        raise ValueError(
            f"density times the number of rows must be at least 1, got {density * n_rows:.3g}: one record could carry "
            f"all the weight. Raise density, lower divergence, or bring more rows."
        )


# The constant baseline is only reported, so a rough figure will do.
_BASELINE_ERROR = 0.05


@dataclass(frozen=True)
class Checked:
    """One test by fresh people.

    Parameters
    ----------
    round : int
        The round that learned the hypothesis, from 1; 0 for a constant one.
    estimate : float
        The estimated error on the target population.
    asked : int
        How many people were asked.
    accepted : bool
        Whether the test found the error small enough.
    """

    round: int
    estimate: float
    asked: int
    accepted: bool


@dataclass(frozen=True)
class Protocol:
    """The public constants of the rounds.

    Parameters
    ----------
    n_rounds : int
    learning_rate, density : float
        Of the weights.
    low, high : float
        A test tells an error of at most `low` from one of at least `high`.
    error : float
        The most that one test may err with.
    paper : bool
        Whether every round is tested, and the weights always add up to `density`; else tests are on a geometric
        schedule, and weights as large as may be.
    draws : int
        Not 0: a round sees this many records, drawn by their weights. Not private: for Algorithm 1 alone.
    """

    n_rounds: int
    learning_rate: float
    density: float
    low: float
    high: float
    error: float
    paper: bool = False
    draws: int = 0

    @property
    def tested(self) -> tuple[int, ...]:
        """The rounds that are tested, from 1: 1, 2, 4, … and the last, so at most ceil(log2 T) + 1 of them."""
        if self.paper:
            return tuple(range(1, self.n_rounds + 1))
        doubling = [2**k for k in range(math.ceil(math.log2(self.n_rounds)) if self.n_rounds > 1 else 0)]
        return tuple(sorted({*doubling, self.n_rounds}))

    def most_people(self, epsilon: float) -> int:
        """Return how many people the tests and the baseline may ask, at most."""
        # Where a sequential test is cut.
        size = people_needed(self.low, self.high, CUT_SHARE * self.error, epsilon)
        return len(self.tested) * size + self.baseline_people(epsilon)

    def baseline_people(self, epsilon: float) -> int:
        """Return how many people are asked about the constant hypothesis."""
        return people_needed(self.low, self.high, _BASELINE_ERROR, epsilon)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the rounds came to."""

    hypothesis: Hypothesis
    rounds: int
    tests: tuple[Checked, ...] = field(default=())
    constant: Checked | None = None
    notes: tuple[str, ...] = ()


def require_people(agents: Agents, protocol: Protocol) -> None:
    """Refuse before anything is spent if people could run out."""
    most = protocol.most_people(agents.epsilon)
    if agents.available < most:
        raise PrivacyError(
            f"{len(protocol.tested)} tests and the constant baseline may ask {most} people, but {agents.available} are "
            f"left who were never asked. Nothing was spent. Bring more people, lower n_rounds, or raise alpha or "
            f"test_error."
        )


def run_rounds(
    learner: Learner,
    X: NDArray[Any],
    y: NDArray[Any],
    codes: NDArray[np.int64],
    facts: Facts,
    protocol: Protocol,
    *,
    learner_runs: Sequence[Sequence[Run]],
    histogram_run: Run | None,
    agents: Agents | None,
    generator: np.random.Generator | None = None,
) -> Outcome:
    """Carry out the rounds; every release was charged before. `generator` draws records where the protocol says so."""
    right = np.zeros(len(X), dtype=np.int64)
    # A null record, which is what zero-out turns a record into, has no weight and counts nowhere.
    with np.errstate(all="ignore"):
        null = ~np.isfinite(np.einsum("ij,ij->i", X, X))
    hypotheses: list[Hypothesis] = []
    tests: list[Checked] = []
    notes: tuple[str, ...] = ()
    for t, runs in enumerate(learner_runs):
        start = protocol.density if protocol.paper else 1.0
        per_count, total = np.array([start]), start * facts.n_rows
        if t and histogram_run is not None:
            per_count, total = _reweigh(histogram_run, np.where(null, -1, right), t, protocol)
        # u = min(1, c * weight): a function of the record's own count and of the released histogram.
        sample = Sample(X, codes, np.where(null, 0.0, per_count[right]), total, facts)
        if protocol.draws and generator is not None:
            sample = _drawn(sample, protocol.draws, generator)
        # A warning would tell of an extreme row.
        with np.errstate(all="ignore"):
            hypotheses.append(learner.learn(sample, runs))
            right += hypotheses[-1].predict(X) == y
        if agents is not None and t + 1 in protocol.tested:
            try:
                tests.append(_test(agents, hypotheses[-1], t + 1, protocol))
            except PrivacyError as error:
                # The rounds are paid for: what they gave is kept, not lost with the people who did not answer.
                notes = (f"a test was left out: {error}",)
                break
            if tests[-1].accepted:
                break
    if agents is None or not tests:
        return Outcome(hypotheses[-1], len(hypotheses), notes=notes)
    # An accepted test is the last one; else the least estimate.
    best = tests[-1] if tests[-1].accepted else min(tests, key=lambda test: test.estimate)
    constant = _constant(agents, facts, protocol)
    return Outcome(hypotheses[best.round - 1], len(hypotheses), tuple(tests), constant, notes)


def _reweigh(run: Run, right: NDArray[np.int64], t: int, protocol: Protocol) -> tuple[NDArray[np.float64], float]:
    mechanism = run.plan.mechanism
    noisy = run.release(histogram(right, t + 1))
    # In counts: a record is one unit in one bin, or in two under replace-one.
    noise = math.sqrt(2) * mechanism.noise_multiplier if isinstance(mechanism, NoiseMechanism) else 0.0
    return released_weights(
        np.asarray(noisy, dtype=np.float64),
        protocol.learning_rate,
        protocol.density,
        None if protocol.paper else noise,
    )


def _drawn(sample: Sample, n: int, generator: np.random.Generator) -> Sample:
    """Draw records by their weights, with replacement: the subsample of Algorithm 1."""
    index = generator.choice(len(sample.X), size=n, p=sample.weights / sample.weights.sum())
    return Sample(sample.X[index], sample.codes[index], np.ones(n), float(n), sample.facts)


def _test(agents: Agents, hypothesis: Hypothesis, number: int, protocol: Protocol) -> Checked:
    question = LossQuestion(hypothesis)
    found = decide(agents, question, protocol.low, protocol.high, error=protocol.error)
    return Checked(number, found.estimate, found.asked, found.accepted)


def _constant(agents: Agents, facts: Facts, protocol: Protocol) -> Checked | None:
    """Estimate the error of the better constant hypothesis, if there are people left: one question does both labels."""
    n = protocol.baseline_people(agents.epsilon)
    if agents.available < n:
        return None
    # As a hyperplane it can travel to a device.
    always = LinearHypothesis(np.zeros(facts.n_features), -1.0, facts.classes)
    answers = agents.ask(LossQuestion(always), n)
    if not len(answers):
        return None
    error = (1 + answers.mean()) / 2
    better = min(error, 1 - error)
    return Checked(0, better, n, better <= protocol.low)
