"""The bound on the cost holds with its stated probability, and one source moves it no further than its noise covers."""

import numpy as np
import pytest

from dpadapt import Ledger, Public, audit
from dpadapt.clustering.estimator import PrivateSourceTargetClustering, certified_cost, most_moved
from dpadapt.clustering.inference import choose_neighbours
from dpadapt.clustering.solver import nearest
from dpadapt.mechanisms import Adjacency, Laplace
from dpadapt.mechanisms.bounded_neighbours import local_neighbour_distance_sum


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    return random.standard_normal((400, 2)), random.standard_normal((150, 2)) + 0.7


def released_bound(S, T, caps, n_neighbours, *, epsilon, gamma, seed=0):
    """Return the bound and the ledger that it was charged to."""
    ledger = Ledger(epsilon=epsilon, adjacency=Adjacency.ADD_REMOVE, random_state=seed)
    (run,) = ledger.start_all([(Laplace(1 / epsilon), "bound")])
    options = {"epsilon": epsilon, "gamma": gamma, "adjacency": ledger.adjacency, "run": run}
    return certified_cost(S, T, caps, n_neighbours, **options), ledger


def test_bound_holds_with_the_stated_probability(pair):
    """400 bounds at gamma = 0.2 with one neighbour: 80 fail on average, more than 115 with probability below 1e-4."""
    S, T = pair
    caps = nearest(T, T[:5])[1]
    true = float(np.minimum(caps, nearest(T, S)[1]).mean())
    failed, near = 0, 0
    for seed in range(400):
        bound, ledger = released_bound(S, T, caps, 1, epsilon=1.0, gamma=0.2, seed=seed)
        failed += bound < true
        near += bound < true + caps.mean() * 0.2
    assert failed <= 115
    assert near > failed  # many bounds are close to the cost
    assert ledger.spent() == pytest.approx(1.0)


@pytest.mark.parametrize("neighbours", [1, 3, 500])
def test_mean_over_more_neighbours_is_never_below_the_cost(pair, neighbours):
    S, T = pair
    caps = nearest(T, T[:5])[1]
    true = float(np.minimum(caps, nearest(T, S)[1]).mean())
    assert released_bound(S, T, caps, neighbours, epsilon=1e6, gamma=0.05)[0] >= true - 1e-9


def test_more_budget_chooses_fewer_neighbours():
    expected = np.outer(np.ones(50), np.linspace(0, 200, 10))
    radii, caps = np.linspace(0.1, 1.0, 10), np.full(50, 0.9)
    numbers = [
        choose_neighbours(expected, radii, caps, moved=0.5, epsilon=e, gamma=0.05) for e in (0.01, 0.1, 1.0, 100.0)
    ]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]


def test_most_moved_is_the_sensitivity_of_the_mean_over_targets(pair):
    T = pair[1]
    caps = nearest(T, T[::30])[1]
    assert most_moved(T, caps) == pytest.approx(local_neighbour_distance_sum(T[:0], T, 1, caps).l1 / len(T))
    assert 0 < most_moved(T, caps) <= caps.mean()


def test_estimator_pays_for_the_bound_from_its_own_budget(pair):
    S, T = pair
    model = PrivateSourceTargetClustering(5, 2.0, certificate_share=0.5, random_state=0).fit(S, public=Public(T))
    true = float(np.minimum(nearest(T, T[model.centers_])[1], nearest(T, S)[1]).mean())
    assert true <= model.cost_bound_ <= nearest(T, T[model.centers_])[1].mean() + 1e-9
    assert model.privacy_.epsilon == pytest.approx(2.0)
    assert [entry.label for entry in model.privacy_.entries][-1] == "bound on the cost"
    model.set_params(certificate_share=0.0).fit(S, public=Public(T))
    assert not hasattr(model, "cost_bound_")


def test_without_sources_the_bound_is_at_most_the_cost_of_the_centres(pair):
    T = pair[1]
    model = PrivateSourceTargetClustering(5, 2.0, certificate_share=0.5, random_state=0)
    model.fit(np.empty((0, 2)), public=Public(T))
    assert model.cost_bound_ <= nearest(T, T[model.centers_])[1].mean() * (1 + 1e-9)


@pytest.mark.parametrize("params", [{"certificate_share": 0.5}, {"delta": 1e-5, "noise": "gaussian"}], ids=str)
def test_nothing_shows_whether_there_is_a_source_at_all(pair, params):
    S, T = pair[0][:40], pair[1][:60]
    make = lambda: PrivateSourceTargetClustering(3, 2.0, random_state=0, **params)  # noqa: E731
    for other in (S[:0], S[:1], np.full((1, 2), np.nan)):
        assert audit.leaks(make, (S,), (other,), public=Public(T)) == []


@pytest.mark.parametrize("repeated", [1, 4])
def test_bound_is_zero_where_every_target_is_at_a_centre(pair, repeated):
    S, T = pair
    public = Public(np.repeat(T[:5], repeated, axis=0))
    model = PrivateSourceTargetClustering(5, 2.0, certificate_share=0.5, random_state=0).fit(S, public=public)
    assert model.cost_bound_ == 0.0
