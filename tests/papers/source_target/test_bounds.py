"""The guarantees of the paper hold for the implementation, and the bounds have the values of the paper."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, Public
from dpadapt.accounting.closed_forms import gaussian_epsilon
from dpadapt.clustering.solver import nearest
from dpadapt.papers.source_target.bounds import (
    approximate_bound,
    concentrated_bound,
    delta_t,
    diff_bound,
    private_delta_t,
    pure_bound,
    unavoidable_chance,
    unavoidable_error,
)
from dpadapt.papers.source_target.proxies import NAS, Ball

T_NEIGHBOURS, GAMMA = 40, 0.1


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    T = random.normal(size=(60, 2))
    ball = Ball.of(T)
    S = random.normal(size=(3000, 2))
    S = S[np.linalg.norm(ball.scaled(S), axis=1) <= 0.499]
    return S, T, ball


@pytest.mark.parametrize("kind", ["pure", "approximate", "concentrated"])
def test_proxies_are_within_the_bounds_of_the_theorems(kind, pair):
    """Each fails with probability at most 0.1; more than 8 of 25 has chance below 1e-3."""
    S, T, ball = pair
    sources, targets = ball.scaled(S), ball.scaled(T)
    size = {"n": len(T), "d": 2, "t": T_NEIGHBOURS, "gamma": GAMMA}
    measure = delta_t(sources, targets, T_NEIGHBOURS)
    bound, options = {
        "pure": (pure_bound(measure, **size, epsilon=3.0), {"epsilon": 3.0}),
        "approximate": (
            approximate_bound(measure, **size, epsilon=3.0, delta=1e-6),
            {"epsilon": 3.0, "delta": 1e-6, "constants": "paper"},
        ),
        "concentrated": (
            concentrated_bound(measure, **size, rho=3.0),
            {"epsilon": gaussian_epsilon(math.sqrt(6), 1e-6), "delta": 1e-6},
        ),
    }[kind]
    failures, distances = 0, []
    for seed in range(25):
        model = NAS(3, n_neighbours=T_NEIGHBOURS, coreset_distance=None, random_state=seed, **options)
        proxies = ball.scaled(model.fit(S, public=Public(T)).proxies_)
        distances.append(diff_bound(sources, proxies, targets))
        failures += distances[-1] > bound
    assert failures <= 8
    assert np.mean(distances) > 0.001 * bound  # what is bounded is not zero


def test_less_noise_gives_a_smaller_bound():
    size = {"n": 100, "d": 8, "t": 150, "gamma": 0.1}
    pure = pure_bound(0.1, **size, epsilon=3.0)
    assert pure > approximate_bound(0.1, **size, epsilon=3.0, delta=1e-6) > concentrated_bound(0.1, **size, rho=3.0)
    assert pure > pure_bound(0.1, **size | {"t": 300}, epsilon=3.0)
    assert pure < pure_bound(0.1, **size | {"n": 200}, epsilon=3.0)
    assert approximate_bound(0.1, **size, epsilon=3.0, delta=1e-6, distance=0.05) == pytest.approx(
        approximate_bound(0.1, **size, epsilon=3.0, delta=1e-6) + 0.05
    )
    with pytest.raises(ValueError, match="gamma must lie in"):
        pure_bound(0.1, **size | {"gamma": 0.0}, epsilon=3.0)


def test_the_difference_in_cost_is_bounded_for_every_choice_of_centres():
    random = np.random.default_rng(1)
    T, S, proxies = (random.normal(size=(30, 2)) for _ in range(3))
    most = diff_bound(S, proxies, T)
    for _ in range(50):
        chosen = nearest(T, T[random.choice(30, 4, replace=False)])[1]
        costs = [np.minimum(chosen, nearest(T, part)[1]).mean() for part in (S, proxies)]
        assert abs(costs[0] - costs[1]) <= most + 1e-12


def test_lower_bounds_have_the_values_of_the_paper():
    assert unavoidable_error(10) == pytest.approx(1 / 24)
    assert unavoidable_error(10, spread=0.1) == pytest.approx(0.1 / 12)
    # The paper: above a third where both are at most 0.1.
    assert unavoidable_chance(0.1, 0.1) > 1 / 3
    assert unavoidable_chance(3.0) < unavoidable_chance(1.0) < 0.5


def test_delta_t_is_the_mean_distance_and_a_missing_source_is_at_the_diameter():
    random = np.random.default_rng(2)
    S, T = random.uniform(-0.3, 0.3, (20, 2)), random.uniform(-0.3, 0.3, (15, 2))
    near = np.sort(np.linalg.norm(T[:, None] - S, axis=2), axis=1)[:, :5]
    assert delta_t(S, T, 5) == pytest.approx(near.mean())
    assert delta_t(S[:2], T, 4) == pytest.approx(
        (np.linalg.norm(T[:, None] - S[:2], axis=2).sum(axis=1) + 2).mean() / 4
    )
    assert delta_t(np.empty((0, 2)), T, 3) == 1.0


def test_the_private_delta_t_has_the_papers_noise():
    S, T = np.zeros((100, 2)), np.zeros((10, 2))
    draws = []
    for seed in range(300):
        ledger = Ledger(epsilon=2.0, random_state=seed)
        draws.append(private_delta_t(S, T, 50, 2.0, ledger))
        assert ledger.spent() == pytest.approx(2.0)
    # Laplace of scale 1 / (t epsilon): the mean of |noise| is its scale; 300 draws are within 25% of it.
    assert np.abs(draws).mean() == pytest.approx(1 / 100, rel=0.25)
