"""Learners: every release keeps its bound for hostile neighbours, nothing else leaks, and linear models are learned."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger
from dpadapt.accounting import epsilon as cost
from dpadapt.hybrid.questions import LinearHypothesis, Squares
from dpadapt.learning.losses import LogisticLoss
from dpadapt.mechanisms.mechanism import Gaussian, Sampled
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.papers.reweigh.learners import (
    DescentLearner,
    Facts,
    HingeLoss,
    OnlineLearner,
    Sample,
    choice_of,
    noise_of,
    strength,
)
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

FACTS = Facts(1000.0, 3, np.array([0, 1]))


def data(n=200, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, (X[:, 0] > 0.2).astype(int)


SAMPLED = {
    "descent": DescentLearner(n_steps=5, sampling_rate=0.3),
    "descent of squares": DescentLearner(Squares(0.5), n_steps=5, sampling_rate=0.3),
    "online": OnlineLearner(n_steps=5),
}


def sampled_run(seed, release):
    """Return a run on Poisson samples that are drawn with this seed; `release` is called instead of adding noise."""
    ledger = Ledger(math.inf, random_state=seed)
    ledger._draw = lambda mechanism, bounded, scale, random: release(bounded.value)
    return ledger.start(Sampled(Gaussian(1.0), 0.3, 5), label="gradient")


def small_sample(learner):
    """Return rows that are never clipped."""
    X = np.random.default_rng(0).uniform(-0.1, 0.1, (300, 3))
    return Sample(X, learner.prepare(X), np.zeros(300, dtype=int), np.ones(300), 300.0, FACTS)


@pytest.mark.parametrize("learner", SAMPLED.values(), ids=SAMPLED)
def test_samples_reach_a_hypothesis_only_through_the_releases(learner):
    """The same releases with other samples and other weights: the model is divided by public numbers alone."""
    sample = small_sample(learner)
    lighter = replace(sample, weights=np.linspace(0, 1, 300))
    coefs = []
    for seed, rows in ((0, sample), (1, sample), (2, lighter)):
        released = iter(np.random.default_rng(0).standard_normal((5, 4)))
        hypothesis = learner.learn(rows, [sampled_run(seed, lambda value, released=released: next(released))])
        coefs.append((*np.ravel(hypothesis.coef), float(np.ravel(hypothesis.intercept)[0])))
    assert coefs[0] == coefs[1] == coefs[2]


@pytest.mark.parametrize("learner", SAMPLED.values(), ids=SAMPLED)
def test_every_sampled_release_is_a_sum_over_the_sample_of_its_own_step(learner, monkeypatch):
    samples, sums = [], []
    poisson_sample = SeededRandom.poisson_sample

    def watched(random, n_rows, rate):
        samples.append(poisson_sample(random, n_rows, rate))
        return samples[-1]

    def release(value):
        sums.append(value.copy())
        return np.zeros_like(value)

    monkeypatch.setattr(SeededRandom, "poisson_sample", watched)
    sample = small_sample(learner)
    learner.learn(sample, [sampled_run(0, release)])
    assert len(samples) == len(sums) == 5
    # At coefficients 0 the derivative is 1/2 for every row.
    for index, total in zip(samples, sums, strict=True):
        assert total[-1] == pytest.approx(0.5 * len(index))
        assert total[:-1] == pytest.approx(0.5 * sample.features[index].sum(axis=0))


def test_online_learner_with_the_papers_noise_learns_and_costs_what_the_ledger_says():
    X, y = data(60_000)
    learner = OnlineLearner(lipschitz=1.0, diameter=4.0, n_steps=800)
    model = SubsampleTestReweigh(
        learner, constants="paper", alpha=0.1, density=0.02, n_rounds=1, epsilon=0.5, delta=1e-5, random_state=0
    ).fit(X, y)
    assert 0 < model.privacy_.epsilon <= 0.5
    assert np.mean(model.predict(X) != y) < 0.35


def test_online_learner_has_the_papers_noise_and_steps():
    facts = Facts(4000.0, 3, np.array([0, 1]), 0.1, 0.5, 1e-5)
    learner = OnlineLearner(lipschitz=0.7, diameter=3.0, alpha=0.4, beta=0.01)
    ((plan, _),) = learner.plans(1.0, facts)
    square = (16 / 0.5 * math.log(1e5) + 8) / math.log(400)
    assert plan.mechanism.noise_multiplier == pytest.approx(math.sqrt(square))
    assert plan.rate == pytest.approx(1 / 400)
    L, sigma = 0.7, 0.7 * math.sqrt(square)
    assert plan.steps == math.ceil(9 * 3**2 * (L**2 + sigma**2 * 4) / 0.4**2)
    # With very many records the other term of the maximum decides.
    ((plan, _),) = learner.plans(1.0, replace(facts, n_rows=1e10))
    assert plan.mechanism.noise_multiplier == pytest.approx(math.sqrt(20))
    # Strongly convex: the noise is that of the records' part of the loss, of Lipschitz constant 0.7.
    ((plan, _),) = replace(learner, strong_convexity=0.5).plans(1.0, replace(facts, n_rows=1e10))
    assert plan.mechanism.noise_multiplier == pytest.approx(math.sqrt(20))
    length = (0.7 + 0.5 * 3 / 2) ** 2 + 20 * 0.7**2 * 4
    ratio = length / (0.5 * 0.4)
    confident = 8 * 3**2 * (0.7 + 0.75) ** 2 * math.log(2 / 0.01) / 0.4**2
    assert plan.steps == math.ceil(max(4 * ratio * math.log(ratio), confident))


@pytest.mark.parametrize("strong", [0.0, 0.4])
def test_online_learner_takes_the_steps_of_algorithm_3(strong):
    """Against a plain loop over the same noisy gradients, which are given here."""
    learner = OnlineLearner(lipschitz=0.8, diameter=1.5, n_steps=30, strong_convexity=strong)
    X = np.random.default_rng(0).uniform(-0.1, 0.1, (50, 3))
    noisy = np.random.default_rng(1).standard_normal((30, 4))
    released = iter(noisy)
    ledger = Ledger(math.inf, random_state=0)
    ledger._draw = lambda mechanism, bounded, scale, random: next(released)
    run = ledger.start(Sampled(Gaussian(2.0), 0.3, 30), label="gradient")
    sample = Sample(X, X, np.zeros(50, dtype=int), np.ones(50), 50.0, FACTS)
    found = learner.learn(sample, [run])
    h, visited = np.zeros(4), []
    for r in range(1, 31):
        visited.append(h)
        gradient = noisy[r - 1] / (0.3 * 50) + strong * h
        h = h - gradient * (1 / (strong * r) if strong else 1.5 / (0.8 * 2.0 * math.sqrt(r)))
        if np.linalg.norm(h) > 0.75:
            h = 0.75 * h / np.linalg.norm(h)
    expected = np.mean(visited, axis=0)
    assert np.allclose(np.append(found.coef.ravel(), found.intercept), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", [LogisticLoss(), HingeLoss(), HingeLoss(0.3)], ids=["logistic", "hinge", "margin"])
def test_losses_of_records_are_shares_of_the_largest_and_have_the_right_derivative(loss):
    X, y = data(400)
    learner = OnlineLearner(lipschitz=1.2, diameter=2.0, loss=loss)
    rng = np.random.default_rng(2)
    coef, intercept = rng.standard_normal(3), 0.3
    found = learner.losses(LinearHypothesis(coef, intercept), X, y)
    scores = X @ coef + intercept
    signs = 2 * y - 1
    direct = np.log1p(np.exp(-signs * scores)) if isinstance(loss, LogisticLoss) else np.maximum(
        0, loss.margin - signs * scores
    )  # fmt: skip
    assert np.allclose(found, np.minimum(direct / 2.4, 1.0))
    assert loss.value(scores, y) == pytest.approx(direct.mean())
    step = 1e-6
    slope = (loss.each(scores + step, y) - loss.each(scores - step, y)) / (2 * step)
    assert np.allclose(loss.weights(scores.copy(), y), slope, atol=1e-6)
    # Rows that overflow lose everything, and nothing else happens.
    huge = np.full((2, 3), np.inf)
    with np.errstate(all="ignore"):
        assert set(learner.losses(LinearHypothesis(coef, intercept), huge, np.array([0, 1]))) <= {0.0, 1.0}


def test_strength_spends_the_budget_and_no_more():
    for plans in (
        lambda mu: [(choice_of(mu, 0.5, 6), "a"), (choice_of(mu, 0.5), "b")],
        lambda mu: [(noise_of(mu, 0.5, 3), "a"), (choice_of(mu, 0.5), "b")],
    ):
        for epsilon, delta in ((0.5, 1e-4),):
            mu = strength(plans, epsilon, delta, Adjacency.ZERO_OUT)
            spent = cost([plan for plan, _ in plans(mu)], delta)
            assert 0.995 * epsilon < spent <= epsilon
    alone = strength(lambda mu: [(choice_of(mu, 1.0), "a")], 0.7, 0.0, Adjacency.ZERO_OUT)
    assert choice_of(alone, 1.0).mechanism.epsilon == pytest.approx(0.7, rel=1e-3)
    assert isinstance(noise_of(1.0, 1.0).mechanism, Gaussian)
