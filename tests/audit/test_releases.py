"""What an attacker sees: outputs of a mechanism, and the log-likelihood ratio of all releases of a fit."""

import math

import numpy as np
import pytest

from dpadapt.accounting import epsilon
from dpadapt.audit import MechanismOutputs, lower_bound
from dpadapt.audit.releases import ReleaseScores, weakened
from dpadapt.mechanisms import ExponentialMechanism, Gaussian, Laplace, PermuteAndFlip, clipped_sum, votes
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.papers.reweigh.parity import RandomParity
from tests.audit.fakes import D_NEIGHBOUR, D, Fake, X, y


def test_a_call_returns_one_output_and_many_returns_them_stacked():
    outputs = MechanismOutputs(Gaussian(1.0), lambda rows: clipped_sum(rows, 1.0), seed=0)
    assert outputs([[1.0, 0.0]]).shape == (2,)
    assert outputs.many([[1.0, 0.0]], 5).shape == (5, 2)


def sums(rows):
    return clipped_sum(rows, 1.0)


def test_the_factor_scales_the_noise_and_not_the_value():
    for factor in (1.0, 0.5):
        outputs = MechanismOutputs(Gaussian(2.0), sums, noise=factor, seed=0).many([[0.6, 0.8]], 4000)
        # Four standard errors of a mean, and of a standard deviation, over 4,000 draws.
        assert outputs.mean(axis=0) == pytest.approx([0.6, 0.8], abs=4 * 2.0 * factor / 4000**0.5)
        assert outputs.std(axis=0) == pytest.approx([2.0 * factor] * 2, rel=4 / 8000**0.5)


def test_choices_are_drawn_one_by_one():
    outputs = MechanismOutputs(PermuteAndFlip(1.0), votes, seed=0).many([[1, 0]], 50)
    assert outputs.shape == (50,)
    assert set(outputs) == {0, 1}


def test_a_mechanism_with_one_number_for_all_coordinates_is_drawn_one_by_one():
    class OneShift(Gaussian):
        def _apply(self, bounded, *, scale, random):
            return bounded.value + random.normal(scale, (1,))

    outputs = MechanismOutputs(OneShift(1.0), sums, seed=0).many([[0.5, 0.5]], 50)
    assert len(set(outputs[:, 0])) == 50


def test_a_sampled_plan_returns_all_of_its_steps():
    outputs = MechanismOutputs(Sampled(Gaussian(1.0), rate=0.5, steps=3), sums, seed=0)
    assert outputs.many(np.ones((4, 2)) / 2, 7).shape == (7, 6)


class Sampling(Fake):
    """Releases sums over Poisson batches."""

    def released(self, ledger, X):
        run = ledger.start(Sampled(Gaussian(2.0), rate=0.4, steps=6), label="sums")
        total = 0.0
        for batch in run.batches(len(X)):
            total = total + run.release(batch.of(lambda index: clipped_sum(X[index], 1.0)))
        return total


class OneRow(Fake):
    def released(self, ledger, X):
        return ledger.release(Gaussian(1.0), clipped_sum(X, 1.0), label="sum")


def test_release_scores_are_log_likelihood_ratios():
    far = np.array([[1.0, 0.0], [0.0, 0.0]]), y[:2]
    null = np.array([[0.0, 0.0], [0.0, 0.0]]), y[:2]
    scores = ReleaseScores(OneRow, far, null)
    drawn = np.array([[scores(data) for _ in range(600)] for data in (far, null)])
    # For mu = 1 they are normal with means -+1/2 and deviation 1; four deviations of a mean of 600 are 0.16.
    assert drawn.mean(axis=1) == pytest.approx([-0.5, 0.5], abs=0.16)
    assert drawn.std(axis=1) == pytest.approx([1.0, 1.0], abs=0.12)
    bound = lower_bound(ReleaseScores(OneRow, far, null), far, null, delta=1e-3, runs=300, method="gaussian")
    assert 0 < bound.epsilon_lower < 3.4


def test_release_scores_support_laplace_noise():
    class Counts(Fake):
        def released(self, ledger, X):
            return ledger.release(Laplace(0.2), votes(X), label="sum")

    far, null = (np.array([[1.0]]), y[:1]), (np.array([[0.0]]), y[:1])
    scores = ReleaseScores(Counts, far, null)
    assert all(abs(scores(data)) <= 5.0 for data in (far, null) for _ in range(50))


def test_release_scores_refuse_fits_without_a_known_likelihood():
    class Choice(Fake):
        def released(self, ledger, X):
            return ledger.release(PermuteAndFlip(1.0), votes(X), label="best")

    class Mixed(Sampling):
        def released(self, ledger, X):
            return super().released(ledger, X) + ledger.release(Gaussian(2.0), clipped_sum(X, 1.0), label="sum")

    class Replacing(Sampling):
        adjacency = "replace-one"

    with pytest.raises(TypeError, match="no likelihood here"):
        ReleaseScores(Choice, D, D_NEIGHBOUR)(D)
    with pytest.raises(TypeError, match="several rates"):
        ReleaseScores(Mixed, D, D_NEIGHBOUR)(D)
    with pytest.raises(TypeError, match="missing or null"):
        ReleaseScores(Replacing, D, D_NEIGHBOUR)(D)
    with pytest.raises(ValueError, match="one of the two data sets"):
        ReleaseScores(Fake, D, D_NEIGHBOUR)((X, y))


def test_half_the_noise_of_a_parity_keeps_records_as_at_twice_the_epsilon():
    for claimed in (0.3, 2.0):
        keep, more = (-math.expm1(-e) for e in (claimed, 2 * claimed))
        assert weakened(RandomParity(claimed, 3), keep, 0.5) == pytest.approx(more)
    assert weakened(Laplace(2.0), 3.0, 0.5) == 1.5


def test_release_scores_of_choices_are_log_likelihood_ratios():
    class Choice(Fake):
        def released(self, ledger, X):
            return ledger.release(ExponentialMechanism(2.0), votes(X), label="best")

    # One vote for the first of two candidates, or none: P(first) is e^2 / (1 + e^2), or 1/2.
    one, none = (np.array([[1.0, 0.0]]), y[:1]), (np.array([[0.0, 0.0]]), y[:1])
    scores = ReleaseScores(Choice, one, none)
    first = math.log(0.5 * (1 + math.exp(2)) / math.exp(2))
    second = math.log(0.5 * (1 + math.exp(2)))
    assert {round(scores(data), 9) for data in (one, none) for _ in range(60)} == {round(first, 9), round(second, 9)}


def test_release_scores_of_sampled_sums_are_log_likelihood_ratios():
    class One(Sampling):
        def released(self, ledger, X):
            run = ledger.start(Sampled(Gaussian(1.0), rate=0.4, steps=1), label="sums")
            for batch in run.batches(len(X)):
                return run.release(batch.of(lambda index: clipped_sum(X[index], 1.0)))

    far, null = (np.array([[2.0], [0.3]]), y[:2]), (np.array([[0.0], [0.3]]), y[:2])
    scores = ReleaseScores(One, far, null)
    drawn = np.array([[scores(data) for _ in range(400)] for data in (far, null)])
    # E exp(score) is 1 under D, and E exp(-score) is 1 under its neighbour: so it is a likelihood ratio of the two.
    # The first is bounded by 1 / 0.6; five deviations of a mean of 400 are 0.1 and 0.2.
    assert np.exp(drawn[0]).mean() == pytest.approx(1.0, abs=0.1)
    assert np.exp(-drawn[1]).mean() == pytest.approx(1.0, abs=0.2)
    assert np.exp(drawn).max() <= 1 / 0.6 + 1e-9


def test_sampled_fits_with_half_the_noise_are_detected():
    class Two(Sampling):
        def released(self, ledger, X):
            run = ledger.start(Sampled(Gaussian(0.7), rate=0.5, steps=2), label="sums")
            return sum(run.release(batch.of(lambda i: clipped_sum(X[i], 1.0))) for batch in run.batches(len(X)))

    far, null = (np.array([[1.0], [0.3]]), y[:2]), (np.array([[0.0], [0.3]]), y[:2])
    claimed = epsilon(Sampled(Gaussian(0.7), rate=0.5, steps=2), 0.2)
    bounds = [
        lower_bound(ReleaseScores(Two, far, null, noise=noise), far, null, delta=0.2, runs=500) for noise in (1.0, 0.5)
    ]
    assert [bound.refutes(claimed) for bound in bounds] == [False, True]
