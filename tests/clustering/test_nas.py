"""`NAS`: what it releases, what that costs, and that no source shows beyond it."""

import math

import numpy as np
import pandas as pd
import pytest

from dpadapt import Ledger, Public
from dpadapt.accounting.gaussian import gaussian_epsilon
from dpadapt.clustering.coresets import coreset
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.nas import NAS, advanced_composition
from dpadapt.errors import BudgetExceeded, PrivacyError
from dpadapt.mechanisms import Adjacency

RHO = gaussian_epsilon(math.sqrt(6), 1e-6)  # rho = 3


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    return random.normal(size=(400, 2)), random.normal(size=(120, 2)) + 0.5


@pytest.mark.parametrize(
    ("options", "spent"),
    [
        ({"epsilon": 3.0}, 3.0),
        ({"epsilon": 3.0, "constants": "paper"}, 3.0),
        ({"epsilon": RHO, "delta": 1e-6}, RHO),
        ({"epsilon": 3.0, "delta": 1e-6, "adjacency": "replace-one"}, 3.0),
    ],
)
def test_what_is_charged_is_what_was_asked_for(pair, options, spent):
    S, T = pair
    model = NAS(5, **options, random_state=0).fit(S, public=Public(T))
    assert model.privacy_.epsilon == pytest.approx(spent, rel=1e-6)
    assert model.privacy_.seeded
    assert len(set(model.centers_.tolist())) == 5


def test_the_printed_composition_spends_more_noise_than_it_must(pair):
    S, T = pair
    printed = NAS(5, 1.0, 1e-6, constants="paper", coreset_distance=0.2, random_state=0).fit(S, public=Public(T))
    assert printed.privacy_.epsilon < 0.9
    assert advanced_composition(1.0, 1e-6, 100) * math.sqrt(2 * 100 * math.log(1e6)) < 1.0


def noise_of(S, T, **options):
    """Return the noise of the averages, over those without privacy."""
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


def test_one_gaussian_release_needs_less_than_half_of_the_printed_noise(pair):
    S, T = pair
    printed, tight = (
        noise_of(S, T, epsilon=1.0, delta=1e-6, constants=constants).std() for constants in ("paper", "tight")
    )
    assert tight < 0.45 * printed  # in eight dimensions, a quarter


def test_an_outlier_moves_nothing(pair):
    S, T = pair
    far = np.vstack([S, [[1e9, -1e9]], [[np.nan, 0.0]]])
    first, second = (NAS(5, random_state=0).fit(part, public=Public(T)) for part in (S, far))
    assert np.array_equal(first.proxies_, second.proxies_)


@pytest.mark.parametrize("m", [0, 1, 10])
def test_few_sources_count_as_the_target_itself(m, pair):
    S, T = pair
    model = NAS(5, math.inf, coreset_distance=None).fit(S[:m], public=Public(T))
    # Most of the 150 neighbours are missing, so the average stays near the target.
    assert nearest(model.proxies_, T)[1].max() <= 2 * m / 150 * np.linalg.norm(T - T.mean(axis=0), axis=1).max() + 1e-9
    NAS(5, random_state=0).fit(S[:m], public=Public(T))


def test_enough_budget_finds_what_the_sources_serve(pair):
    _, T = pair
    S = np.repeat([[2.0, 2.0]], 2000, axis=0)
    model = NAS(3, 1e5, 1e-6, n_neighbours=100, coreset_distance=None, random_state=0).fit(S, public=Public(T))
    assert np.abs(model.proxies_ - 2.0).max() < 0.2


def test_columns_in_another_order_are_refused(pair):
    S, T = (pd.DataFrame(points, columns=["east", "north"]) for points in pair)
    with pytest.raises(ValueError, match="same order"):
        NAS(3).fit(S[["north", "east"]], public=Public(T))


def test_nothing_is_spent_when_refused(pair):
    S, T = pair
    ledger = Ledger(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE, random_state=0)
    with pytest.raises(BudgetExceeded):
        NAS(5, 3.0).fit(S, public=Public(T), ledger=ledger)
    for model, sources, public, error, words in (
        (NAS(5), S, None, ValueError, "public must hold the targets"),
        (NAS(5), S, T, TypeError, "public must be wrapped"),
        (NAS(5), T, Public(T), PrivacyError, "the private sources themselves"),
        (NAS(0), S, Public(T), ValueError, "n_clusters must be a whole number"),
        (NAS(500), S, Public(T), ValueError, "n_clusters must be at most the number of targets, 120"),
        (NAS(5), S[:, :1], Public(T), ValueError, "S must have the targets' 2 columns, got 1"),
        (NAS(5), S[:, 0], Public(T), ValueError, "S must be a table of numbers"),
        (NAS(5), [["a", "b"]], Public(T), ValueError, "S must be a table of numbers"),
        (NAS(5), S, Public(np.full((9, 2), np.nan)), ValueError, "finite numbers alone"),
        (NAS(5, -1.0), S, Public(T), ValueError, "epsilon must be a positive number"),
        (NAS(5, n_neighbours=0), S, Public(T), ValueError, "n_neighbours"),
        (NAS(5, constants="loose"), S, Public(T), ValueError, "constants must be one of"),
        (NAS(5, coreset_distance=0.0), S, Public(T), ValueError, "coreset_distance must be a positive"),
        (NAS(5, adjacency="zero-out"), S, Public(T), PrivacyError, "Make them agree"),
    ):
        with pytest.raises(error, match=words):
            model.fit(sources, public=public, ledger=ledger)
    assert ledger.spent() == 0.0


def test_a_coreset_is_close_to_every_target():
    T = np.random.default_rng(2).normal(size=(500, 3))
    for distance in (0.3, 1.0, 10.0):
        kept = coreset(T, distance)
        assert nearest(T, T[kept])[1].max() <= distance
        assert len(set(kept.tolist())) == len(kept)
    assert len(coreset(T, 1e-9)) == 500
    assert len(coreset(np.zeros((7, 2)), 0.1)) == 1
