"""`NNA`: cells, thresholds and constants."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, Public
from dpadapt.accounting.gaussian import gaussian_epsilon
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.nna import NNA
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Adjacency

RHO = gaussian_epsilon(math.sqrt(6), 1e-6)  # rho = 3


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    return random.normal(size=(2000, 2)), random.normal(size=(150, 2)) + 0.5


@pytest.mark.parametrize(
    ("options", "spent"),
    [
        ({"epsilon": 3.0}, 3.0),
        # sqrt(2) / 2 + 1 instead of sqrt(2) + 1: 1.41 times less noise would do.
        ({"epsilon": 3.0, "constants": "paper"}, 3.0 * (math.sqrt(0.5) + 1) / (math.sqrt(2) + 1)),
        ({"epsilon": RHO, "delta": 1e-6}, RHO),
        # sqrt(1.25) instead of 2.
        ({"epsilon": RHO, "delta": 1e-6, "constants": "paper"}, gaussian_epsilon(math.sqrt(6 * 1.25) / 2, 1e-6)),
        ({"epsilon": 3.0, "adjacency": "replace-one"}, 3.0),
    ],
)
def test_the_receipt_shows_what_the_constants_cost(pair, options, spent):
    S, T = pair
    model = NNA(5, **options, random_state=0).fit(S, public=Public(T))
    assert model.privacy_.epsilon == pytest.approx(spent, rel=1e-6)
    assert len(set(model.centers_.tolist())) == 5


def noise_of(model):
    """Return the scale of the noise over the sensitivity, from the receipt."""
    return model.privacy_.entries[0].event.noise_multiplier


def test_the_papers_constants_give_the_papers_noise(pair):
    S, T = pair
    d = T.shape[1]
    printed = NNA(5, 3.0, constants="paper", random_state=0).fit(S, public=Public(T))
    assert noise_of(printed) * (math.sqrt(d) / 2 + 1) == pytest.approx((math.sqrt(d) + 1) / 3.0)
    printed = NNA(5, RHO, 1e-6, constants="paper", random_state=0).fit(S, public=Public(T))
    assert noise_of(printed) * math.sqrt(1.25) == pytest.approx(math.sqrt(2 / 3.0), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 0.0), (0.3, 0.0), (RHO, 1e-6)])
def test_empty_cells_pass_the_corrected_threshold_rarely(epsilon, delta):
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


def test_without_privacy_the_proxies_are_the_averages_of_the_cells(pair):
    S, T = pair
    model = NNA(5, math.inf, coreset_distance=None).fit(S, public=Public(T))
    longest = np.linalg.norm(T - T.mean(axis=0), axis=1).max()
    inside = S[np.linalg.norm(S - T.mean(axis=0), axis=1) <= longest * (1 - 1e-6)]
    cell = nearest(inside, T)[0]
    averages = np.stack([inside[cell == c].mean(axis=0) for c in np.unique(cell)])
    assert nearest(averages, model.proxies_)[1].max() < 1e-9
    assert model.privacy_.epsilon == math.inf


@pytest.mark.parametrize("far", [[1e9, 1e9], [np.inf, 0.0], [np.nan, np.nan], [1e300, -1e300]])
def test_an_outlier_changes_nothing(far, pair):
    S, T = pair
    first, second = (NNA(5, random_state=0).fit(part, public=Public(T)) for part in (S, np.vstack([S, [far]])))
    assert np.array_equal(first.proxies_, second.proxies_)


def test_no_source_leaves_what_ignores_the_sources(pair):
    _, T = pair
    model = NNA(7, 0.5, gamma=1e-6, random_state=0).fit(np.empty((0, 2)), public=Public(T))
    assert len(model.proxies_) == 0
    other = NNA(7, 0.5, gamma=1e-6, random_state=1).fit(np.full((3, 2), 1e6), public=Public(T))
    assert np.array_equal(model.centers_, other.centers_)


def test_nothing_is_spent_when_refused(pair):
    S, T = pair
    ledger = Ledger(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE, random_state=0)
    with pytest.raises(BudgetExceeded):
        NNA(5, 3.0).fit(S, public=Public(T), ledger=ledger)
    for model, words in (
        (NNA(5, gamma=0.0), "gamma must lie in"),
        (NNA(5, threshold="none"), "threshold must be one of"),
        (NNA(5, constants="none"), "constants must be one of"),
        (NNA(5, delta=1.0), "delta must lie in"),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(S, public=Public(T), ledger=ledger)
    assert ledger.spent() == 0.0
    NNA(5, 0.6).fit(S, public=Public(T), ledger=ledger)
    assert ledger.spent() == pytest.approx(0.6)
