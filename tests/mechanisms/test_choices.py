"""Choices have the exact distributions. Seeds are fixed; each test has a false-alarm rate of one in a thousand seeds.

The tests of the secure source, which has no seed, have a false-alarm rate of one in a million runs.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from dpadapt.errors import PrivacyError
from dpadapt.mechanisms import (
    Adjacency,
    ExponentialMechanism,
    PermuteAndFlip,
    RandomizedResponse,
    clipped_sum,
    histogram,
    responses,
    votes,
)
from dpadapt.mechanisms.randomness import SecureRandom, SeededRandom

SCORES = votes([[1, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]])  # 2, 1, 0, 3
ZERO, SWAP = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def exponential_law(scores, scale):
    weights = np.exp(np.asarray(scores) / scale)
    return weights / weights.sum()


def permute_and_flip_law(scores, scale):
    """Return the distribution by enumerating permutations: accept each with probability exp((score - best) / scale)."""
    accept = np.exp((np.asarray(scores) - np.max(scores)) / scale)
    law = np.zeros(len(accept))
    orders = list(itertools.permutations(range(len(accept))))
    for order in orders:
        reached = 1.0
        for j in order:
            law[j] += reached * accept[j] / len(orders)
            reached *= 1 - accept[j]
    return law


@pytest.mark.parametrize(
    ("mechanism", "law"), [(ExponentialMechanism(1.0), exponential_law), (PermuteAndFlip(1.0), permute_and_flip_law)]
)
def test_choices_have_the_exact_distribution(mechanism, law):
    scale, random = mechanism.scale(SCORES, SWAP), SeededRandom(0)
    assert scale == 2.0  # a replaced record can raise one score and lower another
    chosen = [mechanism._apply(SCORES, scale=scale, random=random) for _ in range(10_000)]
    seen = np.bincount(chosen, minlength=4)
    assert chisquare(seen, 10_000 * law(SCORES.value, scale)).pvalue > 1e-3
    assert chisquare(seen, 10_000 * law(SCORES.value, scale * 2 / 3)).pvalue < 1e-6  # the test can fail


@pytest.mark.parametrize("mechanism", [ExponentialMechanism, PermuteAndFlip])
def test_exact_distributions_of_choices_have_the_claimed_epsilon(mechanism):
    law = exponential_law if mechanism is ExponentialMechanism else permute_and_flip_law
    epsilon = 1.3
    for adjacency in Adjacency:
        for base in itertools.product(range(3), repeat=3):
            moves = itertools.product((0, 1) if adjacency is not SWAP else (-1, 0, 1), repeat=3)
            for move in moves:
                scale = mechanism(epsilon).scale(votes([[0, 0, 0]]), adjacency)
                loss = np.log(law(base, scale) / law(np.add(base, move), scale))
                assert np.abs(loss).max() <= epsilon + 1e-12
                if mechanism is ExponentialMechanism:
                    assert np.ptp(loss) <= epsilon + 1e-12  # the range that its event promises


def test_scores_that_are_not_monotone_get_twice_the_noise():
    scores = clipped_sum([[0.3, -0.3]], 1.0)
    assert ExponentialMechanism(0.5).scale(scores, ZERO) == 4.0
    assert ExponentialMechanism(0.5).scale(scores, SWAP) == 8.0
    assert ExponentialMechanism(0.5).scale(histogram([0], 2), ZERO) == 2.0
    assert ExponentialMechanism(0.5).scale(histogram([0], 2), SWAP) == 4.0


@pytest.mark.parametrize(("random", "alarm"), [(SeededRandom(0), 1e-3), (SecureRandom(), 1e-6)])
def test_randomized_response_keeps_answers_with_the_stated_probability(random, alarm):
    epsilon, k, n = 1.0, 4, 20_000
    bounded = responses(np.full(n, 2), k)
    mechanism = RandomizedResponse(epsilon)
    answers = mechanism._apply(bounded, scale=mechanism.scale(bounded, ZERO), random=random)
    keep = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    law = np.full(k, (1 - keep) / (k - 1))
    law[2] = keep
    seen = np.bincount(answers, minlength=k)
    assert chisquare(seen, n * law).pvalue > alarm
    less = np.full(k, (1 - keep) * 0.5 / (k - 1))
    less[2] = 1 - (1 - keep) * 0.5
    assert chisquare(seen, n * less).pvalue < 1e-6  # the test can fail


def test_randomized_response_refuses_what_it_does_not_protect():
    with pytest.raises(PrivacyError, match="shows how many records"):
        RandomizedResponse(1.0).scale(responses([0, 1], 2), Adjacency.ADD_REMOVE)
    with pytest.raises(TypeError, match="one answer per record"):
        RandomizedResponse(1.0).scale(histogram([0], 2), ZERO)
    assert 0 < RandomizedResponse(5000.0).scale(responses([0], 2), ZERO) < 1e-300


@pytest.mark.parametrize("mechanism", [ExponentialMechanism, PermuteAndFlip, RandomizedResponse])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_must_be_positive(mechanism, bad):
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        mechanism(bad)
