"""What the algorithms are compared with: with all sources, with none, and with summaries of them."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.clustering.solver import cluster_t, nearest, non_private, public_prior
from dpadapt.papers.source_target.baselines import PrivateHistogramSource, PrivateKMeansSource

SUMMARIES = [PrivateKMeansSource, PrivateHistogramSource]


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    T = middles[random.integers(4, size=300)] + 0.05 * random.normal(size=(300, 2))
    S = middles[random.integers(2, size=3000)] + 0.05 * random.normal(size=(3000, 2))
    return S, T


def cost(S, T, chosen):
    return np.minimum(nearest(T, S)[1], nearest(T, T[chosen])[1]).mean()


def test_the_sources_are_worth_something_and_only_without_privacy_all_of_it(pair):
    S, T = pair
    assert cost(S, T, non_private(S, T, 2)) < 0.5 * cost(S, T, cluster_t(T, 2))
    assert cost(S, T, public_prior(T, 2)) >= cost(S, T, non_private(S, T, 2))
    assert np.array_equal(public_prior(T, 5, factor=1e9), cluster_t(T, 5))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", SUMMARIES)
def test_summaries_stay_within_their_budget_and_find_the_crowds(kind, delta, pair):
    S, T = pair
    model = kind(2, 8.0, delta, random_state=0).fit(S, public=Public(T))
    assert model.privacy_.epsilon == pytest.approx(8.0, rel=1e-6)
    # Most proxies lie where the sources are, in the lower half.
    assert np.mean(model.proxies_[:, 1] < 0.5) > 0.8


@pytest.mark.parametrize("kind", SUMMARIES)
def test_summaries_of_no_source_leave_what_ignores_the_sources(kind, pair):
    _, T = pair
    far = kind(3, 1.0, random_state=0).fit(np.full((50, 2), 1e9), public=Public(T))
    none = kind(3, 1.0, random_state=0).fit(np.empty((0, 2)), public=Public(T))
    assert np.array_equal(far.proxies_, none.proxies_)


def test_sources_outside_the_cube_or_not_finite_have_no_box(pair):
    S, T = pair
    more = np.vstack([S, [[np.nan, 0.0], [1e300, 0.0], [np.inf, -np.inf]]])
    first, second = (PrivateHistogramSource(2, random_state=0).fit(part, public=Public(T)) for part in (S, more))
    assert np.array_equal(first.proxies_, second.proxies_)


def test_bad_settings_are_refused(pair):
    S, T = pair
    for model, words in (
        (PrivateKMeansSource(2, n_proxies=0), "n_proxies"),
        (PrivateKMeansSource(2, n_steps=0), "n_steps"),
        (PrivateKMeansSource(2, np.inf), "epsilon must be a positive number"),
        (PrivateHistogramSource(2, n_splits=30), "n_splits must be at most 20"),
        (PrivateHistogramSource(2, n_proxies=0), "n_proxies"),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(S, public=Public(T))
