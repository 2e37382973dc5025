"""NAS, NNA and the baselines show nothing of the sources but what was released, at the noise of the theorems."""

import math

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.clustering.solver import nearest
from dpadapt.papers.source_target.proxies import NAS, NNA, advanced_composition, coreset

RHO = gaussian_epsilon(math.sqrt(6), 1e-6)  # rho = 3


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    return random.normal(size=(400, 2)), random.normal(size=(120, 2)) + 0.5


def test_composition_of_the_paper_adds_more_noise_than_needed(pair):
    S, T = pair
    printed = NAS(5, 1.0, 1e-6, constants="paper", coreset_distance=0.2, random_state=0).fit(S, public=Public(T))
    assert printed.privacy_.epsilon < 0.9
    assert advanced_composition(1.0, 1e-6, 100) * math.sqrt(2 * 100 * math.log(1e6)) < 1.0


def noise_of(S, T, **options):
    """Return the noise of the averages: their difference from those without privacy."""
    exact = NAS(3, math.inf, coreset_distance=None).fit(S, public=Public(T)).proxies_
    draws = [NAS(3, coreset_distance=None, **options, random_state=seed).fit(S, public=Public(T)) for seed in range(8)]
    longest = np.linalg.norm(T - T.mean(axis=0), axis=1).max()
    return np.stack([draw.proxies_ - exact for draw in draws]) * 0.5 / longest


def test_the_noise_has_the_scale_of_the_theorems(pair):
    S, T = pair
    n, d, t = len(T), 2, 150
    # Theorem 5.9: Laplace noise of n sqrt(d) / (t epsilon), whose standard deviation is sqrt(2) times that.
    assert noise_of(S, T, epsilon=3.0).std() == pytest.approx(math.sqrt(2) * n * math.sqrt(d) / (t * 3.0), rel=0.1)
    # Theorem 5.11: Gaussian noise of sqrt(n / (2 rho)) / t.
    assert noise_of(S, T, epsilon=RHO, delta=1e-6).std() == pytest.approx(math.sqrt(n / 6.0) / t, rel=0.1)


@pytest.mark.parametrize("m", [0, 1, 10])
def test_missing_neighbours_count_as_the_target_itself(m, pair):
    S, T = pair
    model = NAS(5, math.inf, coreset_distance=None).fit(S[:m], public=Public(T))
    # Most of the 150 neighbours are missing, so the average stays near the target.
    assert nearest(model.proxies_, T)[1].max() <= 2 * m / 150 * np.linalg.norm(T - T.mean(axis=0), axis=1).max() + 1e-9
    NAS(5, random_state=0).fit(S[:m], public=Public(T))


def test_a_coreset_is_close_to_every_target():
    T = np.random.default_rng(2).normal(size=(500, 3))
    for distance in (0.3, 1.0, 10.0):
        kept = coreset(T, distance)
        assert nearest(T, T[kept])[1].max() <= distance
        assert len(set(kept.tolist())) == len(kept)
    assert len(coreset(T, 1e-9)) == 500
    assert len(coreset(np.zeros((7, 2)), 0.1)) == 1


@pytest.fixture(scope="module")
def nna_pair():
    random = np.random.default_rng(0)
    return random.normal(size=(2000, 2)), random.normal(size=(150, 2)) + 0.5


def nna_noise_of(model):
    """Return the scale of the noise over the sensitivity, from the receipt."""
    return model.privacy_.entries[0].event.noise_multiplier


def test_the_papers_constants_give_the_papers_noise(nna_pair):
    S, T = nna_pair
    d = T.shape[1]
    printed = NNA(5, 3.0, constants="paper", random_state=0).fit(S, public=Public(T))
    assert nna_noise_of(printed) * (math.sqrt(d) / 2 + 1) == pytest.approx((math.sqrt(d) + 1) / 3.0)
    printed = NNA(5, RHO, 1e-6, constants="paper", random_state=0).fit(S, public=Public(T))
    assert nna_noise_of(printed) * math.sqrt(1.25) == pytest.approx(math.sqrt(2 / 3.0), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 0.0), (0.3, 0.0), (RHO, 1e-6)])
def test_empty_cells_rarely_pass_the_corrected_threshold(epsilon, delta):
    """Some of 300 empty cells passes with probability gamma = 0.2 at most; in over 25 of 60 draws, below 1e-4."""
    T = np.random.default_rng(3).uniform(-1, 1, (300, 8))
    none = np.empty((0, 8))

    def passed(threshold):
        options = {"threshold": threshold, "gamma": 0.2, "coreset_distance": None}
        return [
            len(NNA(2, epsilon, delta, **options, random_state=seed).fit(none, public=Public(T)).proxies_)
            for seed in range(60)
        ]

    assert np.count_nonzero(passed("corrected")) <= 25
    if delta == 0:
        # As printed, about one in ten passes: dozens of sources that don't exist.
        assert np.mean(passed("paper")) > 10


def test_without_privacy_nna_proxies_are_the_averages_of_the_cells(nna_pair):
    S, T = nna_pair
    model = NNA(5, math.inf, coreset_distance=None).fit(S, public=Public(T))
    longest = np.linalg.norm(T - T.mean(axis=0), axis=1).max()
    inside = S[np.linalg.norm(S - T.mean(axis=0), axis=1) <= longest * (1 - 1e-6)]
    cell = nearest(inside, T)[0]
    averages = np.stack([inside[cell == c].mean(axis=0) for c in np.unique(cell)])
    assert nearest(averages, model.proxies_)[1].max() < 1e-9
    assert model.privacy_.epsilon == math.inf


def test_sources_out_of_range_give_nna_the_centres_of_no_sources(nna_pair):
    _, T = nna_pair
    model = NNA(7, 0.5, gamma=1e-6, random_state=0).fit(np.empty((0, 2)), public=Public(T))
    assert len(model.proxies_) == 0
    other = NNA(7, 0.5, gamma=1e-6, random_state=1).fit(np.full((3, 2), 1e6), public=Public(T))
    assert np.array_equal(model.centers_, other.centers_)
