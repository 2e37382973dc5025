"""The private summaries of sources keep their budget and find the sources."""

import numpy as np
import pytest

from benchmarks.rivals.private_clustering import PrivateHistogramSource, PrivateKMeansSource
from dpadapt import Adjacency, Ledger, Public

SUMMARIES = [PrivateKMeansSource, PrivateHistogramSource]


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    T = middles[random.integers(4, size=300)] + 0.05 * random.normal(size=(300, 2))
    S = middles[random.integers(2, size=3000)] + 0.05 * random.normal(size=(3000, 2))
    return S, T


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", SUMMARIES)
def test_summaries_spend_their_budget_and_lie_where_the_sources_are(kind, delta, pair):
    S, T = pair
    model = kind(2, 8.0, delta, random_state=0).fit(S, public=Public(T))
    assert model.privacy_.epsilon == pytest.approx(8.0, rel=1e-6)
    # Most proxies lie where the sources are, in the lower half.
    assert np.mean(model.proxies_[:, 1] < 0.5) > 0.8


def test_sources_outside_the_cube_or_not_finite_have_no_box(pair):
    S, T = pair
    more = np.vstack([S, [[np.nan, 0.0], [1e300, 0.0], [np.inf, -np.inf]]])
    first, second = (PrivateHistogramSource(2, random_state=0).fit(part, public=Public(T)) for part in (S, more))
    assert np.array_equal(first.proxies_, second.proxies_)


@pytest.mark.parametrize("make", [PrivateKMeansSource, PrivateHistogramSource])
def test_an_epsilon_whose_noise_no_float_holds_is_refused_before_the_charge(pair, make):
    S, T = pair
    ledger = Ledger(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match="too large"):
        make(3, epsilon=1e-12).fit(S, public=Public(T), ledger=ledger)
    assert ledger.entries == []
