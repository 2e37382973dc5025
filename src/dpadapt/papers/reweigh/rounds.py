"""The rounds of Subsample-Test-Reweigh: learn from weighted records, let people test the hypothesis, reweigh.

A record's weight falls with its score: the number of rounds whose hypothesis labelled it correctly, or the sum of 1 -
loss over rounds. `dense_weights` is the paper's projection, eq. (2). Its normaliser c is computed from all records, so
that one record moves the weights of all others. Ours takes c from a noisy histogram of the scores instead
(`released_normaliser`), so that a record's weight depends only on the record itself and on releases.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Run
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.questions import Hypothesis, LinearHypothesis, LossQuestion
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.mechanism import NoiseMechanism, NonPrivate
from dpadapt.papers.reweigh.deciding import CUT_SHARE, decide, people_needed
from dpadapt.papers.reweigh.learners import Facts, Learner, Sample, labels_of

Array = NDArray[np.float64]

# The error probability of the test that estimates the constant baseline, which is only reported. A smaller one asks
# more people. Chosen by hand.
_BASELINE_ERROR = 0.05
# Bins of the histogram per unit of score, where scores are sums of losses. More bins follow the weights more closely
# and each adds noise; scores that count labels need one. Chosen by hand.
_BINS_PER_LOSS = 4


def normaliser(log_weights: Array, counts: Array, density: float) -> float:
    """Return log c for the smallest c with sum of counts * min(1, c * weight) = density * sum of counts.

    Parameters
    ----------
    log_weights : ndarray
        The logarithm of each distinct weight.
    counts : ndarray
        How many records have this weight; counts that are not positive are treated as 0.
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
    # Relative to the largest weight, so that nothing underflows after many rounds.
    relative = np.exp(logs - logs[0])
    wanted = density * amounts.sum()
    # If the j largest weights are capped at 1, the others must add up to the remainder.
    capped = np.concatenate([[0.0], np.cumsum(amounts)[:-1]])
    rest = np.cumsum((amounts * relative)[::-1])[::-1]
    with np.errstate(divide="ignore"):
        candidates = np.maximum(wanted - capped, 0.0) / np.maximum(rest, 1e-300)
    # The solution is the first j for which no other weight exceeds 1.
    fits = candidates * relative <= 1 + 1e-12
    j = int(np.argmax(fits)) if fits.any() else len(logs) - 1
    return math.log(max(candidates[j], 1e-300)) - float(logs[0])


def dense_weights(weights: Array, density: float) -> Array:
    """Return the dense projection of `weights`, eq. (2): min(1, c * weight), with the sum density * n.

    No weight exceeds 1 / density times the average. The normaliser is not protected.

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


def released_normaliser(noisy: Array, rate: float, density: float, noise: float | None) -> tuple[float, float]:
    """Return log c of the weights min(1, c exp(-rate b)) of the bins b, and the sum of the weights of all records.

    Both are post-processing of a released histogram: entry b of `noisy` estimates how many records have a score in bin
    b. `noise` is the standard deviation of an entry. If it is None, the weights add up to density times the number of
    records, as in the paper, even where they could all be larger. A density of 0 is Algorithm 1's: no weight is capped,
    and the heaviest record has weight 1.
    """
    logs = -rate * np.arange(len(noisy), dtype=np.float64)
    counts = np.maximum(noisy, 0.0)
    if not density:
        log_c = -float(logs[np.argmax(counts > 0)])
        return log_c, max(float(counts @ record_weights(logs, log_c)), 1.0)
    log_c = normaliser(logs, counts, density)
    # Weights below the cap are scaled up until the heaviest records that seem to exist have weight 1: the noise of the
    # learner does not grow with the weights.
    if noise is not None:
        exists = noisy > max(2.0 * noise, 0.05 * density * counts.sum())
        log_c = max(log_c, -float(logs[np.argmax(exists)])) if exists.any() else log_c
    return log_c, float(max(counts @ record_weights(logs, log_c), density * counts.sum(), 1.0))


def check_density(density: float, n_rows: float) -> None:
    """Raise a ValueError if the density is not in (0, 1] or puts all weight on less than one record."""
    if checks.unit(density, "density") * n_rows < 1:
        raise ValueError(
            f"density times the number of rows must be at least 1, got {density * n_rows:.3g}: one record could carry "
            f"all the weight. Raise density, lower divergence, or bring more rows."
        )


@dataclass(frozen=True)
class Checked:
    """One test by people who were not asked before.

    Parameters
    ----------
    round : int
        The round that learned the hypothesis, from 1; 0 for the constant hypothesis.
    estimate : float
        The estimated error on the target population.
    asked : int
        How many people were asked.
    accepted : bool
        Whether the test decided that the error is small enough.
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
        Of the weights; see `released_normaliser`. A density of 0 is for Algorithm 1 only.
    low, high : float
        A test decides between an error of at most `low` and one of at least `high`.
    error : float
        The error probability of one test.
    paper : bool
        If True, every round is tested, and the weights add up to `density` times the number of records. Otherwise tests
        are on a geometric schedule, and weights are as large as possible.
    draws : int
        If not 0, a round uses this many records, drawn by their weights. Not private: for Algorithm 1 only.
    by_loss : bool
        Whether a record's score is the sum of 1 - loss over rounds, rather than the number of correct labels.
    """

    n_rounds: int
    learning_rate: float
    density: float
    low: float
    high: float
    error: float
    paper: bool = False
    draws: int = 0
    by_loss: bool = False

    @property
    def bins(self) -> int:
        """Bins of the histogram per round."""
        return _BINS_PER_LOSS if self.by_loss else 1

    @property
    def tested(self) -> tuple[int, ...]:
        """The rounds that are tested, from 1: 1, 2, 4, … and the last, so at most ceil(log2 T) + 1 of them."""
        if self.paper:
            return tuple(range(1, self.n_rounds + 1))
        doubling = [2**k for k in range(math.ceil(math.log2(self.n_rounds)) if self.n_rounds > 1 else 0)]
        return tuple(sorted({*doubling, self.n_rounds}))

    def most_people(self, epsilon: float) -> int:
        """Return the largest number of people that the tests and the baseline may ask."""
        # The number of answers at which a sequential test is cut off.
        size = people_needed(self.low, self.high, CUT_SHARE * self.error, epsilon)
        return len(self.tested) * size + self.baseline_people(epsilon)

    def baseline_people(self, epsilon: float) -> int:
        """Return how many people are asked about the constant hypothesis."""
        return people_needed(self.low, self.high, _BASELINE_ERROR, epsilon)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The hypothesis that the rounds return, how many rounds were run, and the tests."""

    hypothesis: Hypothesis
    rounds: int
    tests: tuple[Checked, ...] = field(default=())
    constant: Checked | None = None
    notes: tuple[str, ...] = ()


def require_people(agents: Agents, protocol: Protocol) -> None:
    """Raise a PrivacyError if people could run out, before anything is spent."""
    most = protocol.most_people(agents.epsilon)
    if agents.available < most:
        raise PrivacyError(
            f"{len(protocol.tested)} tests and the constant baseline may ask {most} people, but only "
            f"{agents.available} have not been asked before. Nothing was spent. Bring more people, lower n_rounds, or "
            f"raise alpha or test_error."
        )


def run_rounds(
    learner: Learner,
    X: NDArray[Any],
    features: NDArray[Any],
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
    """Run the rounds. Every release was charged before; `generator` draws records if the protocol asks for draws."""
    if protocol.draws and not all(isinstance(run.plan.mechanism, NonPrivate) for runs in learner_runs for run in runs):
        # A record that is drawn several times counts several times, which no bound allows for.
        raise PrivacyError("records can be drawn by their weights only without noise, for Algorithm 1.")
    scores = np.zeros(len(X))
    # A null record, into which zero-out turns a record, has weight 0 and is in no bin of a histogram.
    with np.errstate(all="ignore"):
        null = ~np.isfinite(np.einsum("ij,ij->i", X, X))
    hypotheses: list[Hypothesis] = []
    tests: list[Checked] = []
    notes: tuple[str, ...] = ()
    for t, runs in enumerate(learner_runs):
        start = protocol.density if protocol.paper and protocol.density else 1.0
        log_c, total = math.log(start), start * facts.n_rows
        if t and histogram_run is not None:
            log_c, total = _reweigh(histogram_run, np.where(null, -1.0, scores), t, protocol)
        # u = min(1, c * weight): a function of the record's own score and of the released histogram.
        weights = np.where(null, 0.0, record_weights(-protocol.learning_rate * scores, log_c))
        sample = Sample(X, features, codes, weights, total, facts)
        if protocol.draws and generator is not None:
            sample = _drawn(sample, protocol.draws, generator)
        # A warning would reveal that there is an extreme row.
        with np.errstate(all="ignore"):
            hypotheses.append(learner.learn(sample, runs))
            if protocol.by_loss:
                scores += 1.0 - _losses(learner, hypotheses[-1], features, codes)
            else:
                scores += labels_of(hypotheses[-1], X) == y
        if agents is not None and t + 1 in protocol.tested:
            try:
                tests.append(_test(agents, hypotheses[-1], t + 1, protocol))
            except PrivacyError as error:
                # The rounds are paid for: their hypotheses are kept although too few people answered.
                notes = (f"a test was left out: {error}",)
                break
            if tests[-1].accepted:
                break
    if agents is None or not tests:
        return Outcome(hypotheses[-1], len(hypotheses), notes=notes)
    # Only the last test can be an accepted one; otherwise the smallest estimate decides.
    best = tests[-1] if tests[-1].accepted else min(tests, key=lambda test: test.estimate)
    constant = _constant(agents, facts, protocol)
    return Outcome(hypotheses[best.round - 1], len(hypotheses), tuple(tests), constant, notes)


def _losses(learner: Any, hypothesis: Hypothesis, features: NDArray[Any], codes: NDArray[np.int64]) -> Array:
    """Return the learner's losses, each in [0, 1], so that a score is at most the number of rounds."""
    return np.asarray(np.clip(np.nan_to_num(learner.losses(hypothesis, features, codes), nan=1.0), 0.0, 1.0))


def _reweigh(run: Run, scores: Array, t: int, protocol: Protocol) -> tuple[float, float]:
    """Release the histogram of scores after `t` rounds; return `released_normaliser`. A negative score is in no bin."""
    mechanism = run.plan.mechanism
    # Claim: |h - h'|_1 <= 1, by `histogram`. A record has one score, hence one bin: the nearest.
    bins = np.rint(scores * protocol.bins).astype(np.int64)
    noisy = run.release(histogram(bins, t * protocol.bins + 1))
    # In counts. A record moves one bin by 1, or two bins under replace-one, hence at most sqrt 2 in l2.
    noise = math.sqrt(2) * mechanism.noise_multiplier if isinstance(mechanism, NoiseMechanism) else 0.0
    return released_normaliser(
        np.asarray(noisy, dtype=np.float64),
        protocol.learning_rate / protocol.bins,
        protocol.density,
        None if protocol.paper else noise,
    )


def _drawn(sample: Sample, n: int, generator: np.random.Generator) -> Sample:
    """Return the subsample of Algorithm 1: records drawn by their weights, with replacement."""
    index = generator.choice(len(sample.X), size=n, p=sample.weights / sample.weights.sum())
    return Sample(sample.X[index], sample.features[index], sample.codes[index], np.ones(n), float(n), sample.facts)


def _test(agents: Agents, hypothesis: Hypothesis, number: int, protocol: Protocol) -> Checked:
    """Let people test the hypothesis of round `number`."""
    verdict = decide(agents, LossQuestion(hypothesis), protocol.low, protocol.high, error=protocol.error)
    return Checked(number, verdict.estimate, verdict.asked, verdict.accepted)


def _constant(agents: Agents, facts: Facts, protocol: Protocol) -> Checked | None:
    """Estimate the error of the better constant hypothesis, if enough people are left; one question covers both."""
    n = protocol.baseline_people(agents.epsilon)
    if agents.available < n:
        return None
    # A LinearHypothesis with coefficients 0.
    always = LinearHypothesis(np.zeros(facts.n_features), -1.0, facts.classes)
    answers = agents.ask(LossQuestion(always), n)
    if not len(answers):
        return None
    error = (1 + answers.mean()) / 2
    better = min(error, 1 - error)
    return Checked(0, better, n, better <= protocol.low)
