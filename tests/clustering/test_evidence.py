"""The gate: an e-value against "no source is near", exact for discrete noise."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from dpadapt.clustering import evidence
from dpadapt.clustering.evidence import Noise, log_evidence, pooled_evidence
from dpadapt.mechanisms.randomness import SeededRandom


def draw(noise, size, random):
    return (random.discrete_laplace if noise.law == "laplace" else random.discrete_gaussian)(noise.scale, size)


NOISES = [Noise("laplace", 0.4), Noise("laplace", 3.0), Noise("gaussian", 0.5), Noise("gaussian", 4.0)]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=str)


def mean_of_evidence(noise, n_bins, reach):
    """Return the mean of the e-value under noise alone, by summation over all counts up to `reach`."""
    log_norm = logsumexp(noise.log_density(np.arange(-reach, reach + 1)))
    logs = [
        log_evidence(np.array(counts), noise) + noise.log_density(np.array(counts)).sum() - n_bins * log_norm
        for counts in itertools.product(range(-reach, reach + 1), repeat=n_bins)
    ]
    return math.exp(logsumexp(logs))


@every_noise
def test_its_mean_is_one_where_there_is_noise_alone(noise, monkeypatch):
    """Exactly, at any noise: the ratios are those of whole numbers."""
    monkeypatch.setattr(evidence, "_HEIGHTS", (0.5, 2, 8))
    assert mean_of_evidence(noise, 1, int(75 * noise.scale) + 2) == pytest.approx(1.0, rel=1e-9)


def test_two_bins_multiply(monkeypatch):
    monkeypatch.setattr(evidence, "_HEIGHTS", (1, 5, 9))
    assert mean_of_evidence(Noise("laplace", 0.4), 2, 18) == pytest.approx(1.0, rel=1e-9)
    assert mean_of_evidence(Noise("gaussian", 0.6), 2, 14) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[3]], ids=str)
def test_a_thousand_null_draws_open_the_gate_in_no_more_than_its_share(noise):
    """At gamma = 0.1 the mean of 1000 is 100 at most; more than 140 has probability below 1e-4."""
    random, groups = SeededRandom(0), np.arange(60) % 3
    coarse = Noise(noise.law, 2 * noise.scale)
    opened = 0
    for _ in range(1000):
        stages = [(draw(coarse, 60, random), groups, coarse), (draw(noise, 60, random), groups, noise)]
        opened += pooled_evidence(stages) >= math.log(10)
    assert opened <= 140


@every_noise
def test_too_large_a_noise_is_found_out(noise):
    """The bound is for the stated law: thrice the noise opens the gate nearly always."""
    random, groups = SeededRandom(1), np.arange(60) % 3
    wrong = Noise(noise.law, 3 * noise.scale)
    opened = sum(pooled_evidence([(draw(wrong, 60, random), groups, noise)] * 2) >= math.log(10) for _ in range(50))
    assert opened > 40


@every_noise
def test_many_sources_open_it(noise):
    counts = draw(noise, 60, SeededRandom(2))
    counts[5] += int(30 * noise.scale) + 10
    assert pooled_evidence([(counts, np.zeros(60), noise)] * 2) > math.log(10)


def test_no_bins_say_nothing():
    assert log_evidence(np.empty(0, dtype=int), NOISES[0]) == 0.0
