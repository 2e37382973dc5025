"""Subsample-Test-Reweigh: what it spends, how many people it asks, what it returns, and what it refuses."""

import math

import numpy as np
import pytest

from benchmarks.data.synthetic import GaussianPair
from benchmarks.hybrid.separator import SeparatorLearner
from dpadapt import BudgetExceeded, Ledger, PrivacyError
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import ConstantHypothesis, LinearHypothesis
from dpadapt.mechanisms.mechanism import NonPrivate
from dpadapt.papers.reweigh.learners import DescentLearner
from dpadapt.papers.reweigh.learners_discrete import FiniteLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

FEW_STEPS = DescentLearner(n_steps=5)


def sample(n, seed, share=0.5):
    """Draw rows of which `share` lie on the right (first feature above 0), where labels are reversed."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    X[:, 0] = np.abs(X[:, 0]) * np.where(rng.random(n) < share, 1, -1)
    return X, ((X[:, 1] > 0) == (X[:, 0] < 0)).astype(int)


# Right on the left, right on the right, and a constant.
UP, DOWN = LinearHypothesis([0.0, 1.0]), LinearHypothesis([0.0, -1.0])
LISTED = FiniteLearner([UP, DOWN, ConstantHypothesis(1)])


def people(share=1.0, *, n=60_000, epsilon=3.0, seed=1):
    return SimulatedAgents(*sample(n, seed, share), epsilon, random_state=seed)


def model(learner=LISTED, **params):
    return SubsampleTestReweigh(learner, **{"alpha": 0.05, "random_state": 0, "divergence": 9.0, **params})


def test_reweighing_finds_the_hypothesis_of_a_rare_part_of_the_curators_population():
    X, y = sample(4000, 0, share=0.1)  # a tenth looks like the target
    fitted = model(n_rounds=8).fit(X, y, agents=people(1.0))
    assert fitted.hypothesis_ is DOWN
    assert fitted.accepted_
    assert 1 < fitted.rounds_ <= 8
    alone = model().fit(X, y)
    assert alone.hypothesis_ is UP
    assert fitted.baselines_["S-only"].estimate > 0.9
    assert fitted.baselines_["constant"].estimate == pytest.approx(0.5, abs=0.2)


def test_infinite_epsilon_is_algorithm_1_and_recorded_as_a_leak():
    X, y = sample(4000, 0, share=0.1)
    for constants in ("exact", "paper"):
        fitted = model(FEW_STEPS, epsilon=math.inf, n_rounds=2, constants=constants, alpha=0.1).fit(
            X, y, agents=people(0.1, n=100_000)
        )
        assert fitted.privacy_.epsilon == math.inf
        assert any("not private" in text for text in fitted.privacy_.warnings)
    with pytest.raises(BudgetExceeded):
        model(FEW_STEPS, epsilon=math.inf).fit(X, y, ledger=Ledger(1.0, 1e-6))


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_records_are_drawn_by_their_weights_only_in_algorithm_1(epsilon):
    """A record that is drawn twice would move a release by twice its bound."""
    X, y = sample(4000, 0)
    asked = model(FEW_STEPS, epsilon=epsilon, n_rounds=2, constants="paper", alpha=0.1, divergence=1.0)
    assert bool(asked._protocol(4000, 2, people(0.5)).draws) == math.isinf(epsilon)
    assert asked.fit(X, y, agents=people(0.5, n=100_000)).privacy_.epsilon == pytest.approx(epsilon, rel=0.01)


def test_algorithm_1_with_the_papers_constants_runs_at_the_divergence_of_appendix_c():
    """It has no density: at a divergence of 3e15 Algorithm 2's would put all weight on less than one record."""
    pair = GaussianPair(12, 10, 1.0, 0.02, 0.01, "half-space")
    assert pair.divergence > 3e15
    X, y = pair.curator(2000, seed=0)
    agents = SimulatedAgents(*pair.target(4000, seed=0), 20.0, n_people=10**7, random_state=0)
    settings = {"constants": "paper", "alpha": 0.01, "divergence": pair.divergence, "n_rounds": 3, "classes": [0, 1]}
    fitted = model(SeparatorLearner(), epsilon=math.inf, **settings).fit(X, y, agents=agents)
    assert 1 <= fitted.rounds_ <= 3
    assert fitted.privacy_.epsilon == math.inf
    protocol = model(epsilon=math.inf, **settings)._protocol(2000, 12, agents)
    assert (protocol.density, protocol.learning_rate) == (0.0, 0.01 / 8)
    # Algorithm 2 still needs its density, and a density that is asked for is kept.
    with pytest.raises(ValueError, match="at least 1"):
        model(epsilon=1.0, **settings)._protocol(2000, 12, agents)
    assert model(epsilon=math.inf, density=0.2, **settings)._protocol(2000, 12, agents).density == 0.2


class Scripted:
    """A learner whose rounds return these thresholds, whatever the records are."""

    def __init__(self, thresholds):
        self.hypotheses = [LinearHypothesis([1.0], -threshold) for threshold in thresholds]

    def plans(self, mu, facts):
        return [(NonPrivate(), "scripted")]

    def learn(self, sample, runs):
        return self.hypotheses.pop(0)


@pytest.mark.parametrize("seed", range(6))
def test_algorithm_1_halts_in_the_round_of_the_papers_loop(seed):
    """Against the paper's loop, by brute force: reply a; reweigh if a > 2 alpha + tau + alpha_H, otherwise halt.

    Any reply within tau of the error is allowed. Errors in (2 alpha, 2 alpha + 2 tau] are left out, because both
    decisions are right there. All tests of a run err with probability 1e-3 at most.
    """
    rng = np.random.default_rng(seed)
    alpha, tolerance, attainable, rounds = 0.05, [0.005, 0.02][seed % 2], [0.0, 0.1][seed % 3 == 2], 8
    low, high = 2 * alpha + attainable, 2 * alpha + 2 * tolerance + attainable
    # Mostly above `high`, and below the 4 alpha of Algorithm 2, which would halt there.
    errors = np.where(rng.random(rounds) < 0.2, low - 0.02, rng.uniform(high, high + 0.04, rounds))
    halts = rounds
    for t, error in enumerate(errors):
        reply = error + rng.uniform(-tolerance, tolerance)
        if not reply > 2 * alpha + tolerance + attainable:
            halts = t + 1
            break
    # A threshold errs on the share of people below it: their values are even, and all labels are 1.
    X = np.linspace(0, 1, 20_001)[1:].reshape(-1, 1)
    agents = SimulatedAgents(X, np.ones(len(X), dtype=int), 20.0, n_people=10**8, random_state=seed)
    settings = {"n_rounds": rounds, "alpha": alpha, "attainable": attainable, "tolerance": tolerance}
    fitted = model(Scripted(errors), epsilon=math.inf, constants="paper", classes=[0, 1], **settings).fit(
        X[:200], np.arange(200) % 2, agents=agents
    )
    assert fitted.rounds_ == halts
    assert fitted.accepted_ == (errors[halts - 1] <= low)


def test_the_papers_constants_are_refused_if_they_need_too_many_steps():
    X, y = sample(4000, 0)
    with pytest.raises(ValueError, match=r"[\d,]+ rounds of [\d,]+ steps were planned"):
        model(None, constants="paper", divergence=0.35, alpha=0.08, density=0.1).fit(X, y, agents=people(0.5))


def test_too_few_people_are_not_asked_and_nothing_is_spent():
    X, y = sample(2000, 0)
    ledger, agents = Ledger(5.0, 1e-5), people(n=1000)
    with pytest.raises(PrivacyError, match="Nothing was spent"):
        model(alpha=0.01).fit(X, y, agents=agents, ledger=ledger)
    assert ledger.entries == []
    assert agents.asked == 0


def test_agents_with_other_columns_are_refused_and_nothing_is_spent():
    X, y = sample(2000, 0)
    ledger = Ledger(5.0, 1e-5)
    agents = SimulatedAgents(np.zeros((60_000, 3)), np.zeros(60_000), 3.0)
    with pytest.raises(ValueError, match="agents must have the private rows' 2 columns, got 3"):
        model().fit(X, y, agents=agents, ledger=ledger)
    assert ledger.entries == []
    assert agents.asked == 0
