"""The theorems of papers 2 to 5 as functions: against their formulas, the papers' figures, and simulation."""

import math

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from benchmarks.theory.mirror import (
    ellipsoid_width,
    empirical_risk_bound,
    noise_stability_bound,
    population_risk_bound,
    prescribed_epsilon,
)
from benchmarks.theory.reweigh import algorithm_4_cost, paper_people, plan
from benchmarks.theory.source_target import (
    approximate_bound,
    concentrated_bound,
    delta_t,
    diff_bound,
    pure_bound,
    rho_to_epsilon,
)
from benchmarks.theory.subspace import lower_bound, private_rows_needed, upper_bound
from dpadapt import Public
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.clustering.solver import nearest
from dpadapt.papers.mirror.maps import QuadraticMap
from dpadapt.papers.reweigh.learners import Descent
from dpadapt.papers.reweigh.reweigh import paper_rounds
from dpadapt.papers.source_target.proxies import NAS, Ball
from dpadapt.representation import PrivateSubspaceRegressor, subspace_distance

T_NEIGHBOURS, GAMMA = 40, 0.1
EASY = {"alpha": 0.08, "epsilon": 0.5, "delta": 1e-4, "divergence": 0.3515}


@pytest.mark.parametrize("radii", [[1.0], [1.0, 0.3], np.linspace(0.1, 1, 40), [2.0, 0.0, 1e-3]])
def test_width_of_an_ellipsoid_agrees_with_monte_carlo(radii):
    g = np.random.default_rng(0).standard_normal((50_000, len(radii)))
    lengths = np.linalg.norm(g * radii, axis=1)
    # Four standard errors: a false alarm in 16,000.
    assert abs(ellipsoid_width(radii) - lengths.mean()) <= 4 * lengths.std() / math.sqrt(len(lengths))
    assert ellipsoid_width(radii) <= math.sqrt(np.sum(np.square(radii))) + 1e-12


def test_the_loss_is_strongly_convex_in_the_smallest_set_but_not_in_the_printed_one():
    values = np.array([1.0, 4.0, 9.0])
    x = np.random.default_rng(0).standard_normal((1000, 3))
    curvature = np.sum(values * x**2, axis=1)
    for radii, holds in ((1 / np.sqrt(values), True), (1 / values, False)):
        minkowski = np.sum((x / radii) ** 2, axis=1)
        assert bool(np.all(curvature >= minkowski * (1 - 1e-12))) is holds


def test_theorem_35_follows_from_theorem_32_and_the_lemmas():
    """At the prescribed settings the empirical bound, plus L |C| epsilon, is a constant times the first term."""
    ratios = []
    for private, public, width, diameter in ((10_000, 500, 10.0, 1.0), (1_000_000, 20_000, 50.0, 3.0)):
        delta, spread = 1e-5, 2.0
        shared = {"gradient_spread": spread, "width": width, "delta": delta, "diameter": diameter}
        epsilon = prescribed_epsilon(**shared, n_private=private, n_public=public)
        steps = round(epsilon**2 * private**2 / (width**2 * math.log(1 / delta)))
        bound = empirical_risk_bound(
            gradient_spread=spread,
            strong_convexity=1.0,
            learning_rate=spread / math.sqrt(steps * public),
            n_steps=steps,
            n_public=public,
            lipschitz=1.0,
            set_radius=1.0,
            width=width,
            scale=math.sqrt(8 * steps * math.log(1 / delta)) / (epsilon * private),
        )
        privacy = population_risk_bound(**shared, lipschitz=1.0, n_private=private, n_public=public).terms["privacy"]
        ratios.append((bound.total + diameter * epsilon) / privacy)
    assert min(ratios) > 1
    assert max(ratios) < 12


def test_noise_stability_is_an_equality_for_a_quadratic_loss():
    random = np.random.default_rng(0)
    rows = random.standard_normal((50, 6)) * [1, 1, 2, 2, 3, 5]
    map_ = QuadraticMap(rows.T @ rows / 50 + 0.1 * np.eye(6))
    values, vectors = np.linalg.eigh(map_.hessian)
    direction = np.linalg.qr(random.standard_normal((6, 6)))[0][0]
    noise = 0.3 * random.standard_normal((6, 100_000))
    shifts = np.abs(direction @ map_.step(np.zeros_like(noise), noise, 2.0))
    bound = noise_stability_bound(vectors.T @ direction, values / map_.unit, learning_rate=2.0, scale=0.3)
    # Four standard errors of a mean of half-normal numbers.
    assert shifts.mean() == pytest.approx(bound, rel=4 * math.sqrt(math.pi / 2 - 1) / math.sqrt(100_000))


def excess(n_private, *, epsilon, angle=0.0, k=5, draws=5, delta=1e-5):
    """Return the mean squared error of coefficients fitted inside a subspace at a known angle from the true one.

    The subspace is rotated away along the direction of the private task: the worst case.
    """
    errors = []
    for seed in range(draws):
        drawn = shared_subspace(1000, n_private, n_features=20, n_components=k, seed=seed)
        inside = drawn.basis.T @ drawn.private_coef
        turn = np.linalg.qr(np.column_stack([inside, np.eye(k)]))[0][:, :k]
        basis = drawn.basis @ turn
        away = np.linalg.qr(np.column_stack([basis, np.eye(20)]))[0][:, k]
        basis[:, 0] = math.sqrt(1 - angle**2) * basis[:, 0] + angle * away
        assert subspace_distance(basis, drawn.basis) == pytest.approx(angle, abs=1e-9)
        model = PrivateSubspaceRegressor(epsilon, delta, basis=basis, fit_intercept=False, random_state=seed)
        coef = model.fit(drawn.X, drawn.y, public=drawn.public).coef_
        errors.append(np.sum((coef - drawn.private_coef) ** 2))
    return float(np.mean(errors))


@pytest.mark.parametrize(("n_private", "epsilon", "angle"), [(500, 0.5, 0.3), (5000, 1.0, 0.0)])
def test_private_regression_lies_between_the_bounds_up_to_a_constant(n_private, epsilon, angle):
    measured = excess(n_private, epsilon=epsilon, angle=angle)
    low = lower_bound(5, n_private, epsilon=epsilon, angle=angle).total
    high = upper_bound(5, n_private, epsilon=epsilon, delta=1e-5, angle=angle).total
    assert 0.5 * low < measured < 3 * high


def test_with_the_rows_of_equation_8_the_bound_is_at_most_the_error():
    n = math.ceil(private_rows_needed(5, epsilon=0.5, error=0.02))
    terms = lower_bound(5, n, epsilon=0.5, angle=0.0).terms
    assert terms["sampling"] + terms["privacy"] <= 0.02


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


def test_the_difference_in_cost_is_bounded_for_every_choice_of_centres():
    random = np.random.default_rng(1)
    T, S, proxies = (random.normal(size=(30, 2)) for _ in range(3))
    most = diff_bound(S, proxies, T)
    for _ in range(50):
        chosen = nearest(T, T[random.choice(30, 4, replace=False)])[1]
        costs = [np.minimum(chosen, nearest(T, part)[1]).mean() for part in (S, proxies)]
        assert abs(costs[0] - costs[1]) <= most + 1e-12


def test_appendix_d_needs_324_7_million_records_as_in_the_paper():
    sizes = plan(**EASY, descent=Descent(0.1, 0.006, 9), n_rounds=997, n_steps=50_000_000, density=0.08 / (4 * 1.3515))
    assert sizes.rows == pytest.approx(324_700_000, rel=1e-3)
    assert sizes.noise == pytest.approx(math.sqrt(20))
    assert "324,6" in str(sizes)


def test_one_bit_each_needs_a_twentieth_of_the_people():
    sizes = plan(**EASY)
    assert sizes.rounds == paper_rounds(0.08, 0.3515) == 141_569
    assert sizes.people == 687_191
    assert sizes.people_exact < sizes.people / 20
    # At 1,000 rounds, as the paper's runs took.
    assert paper_people(0.08, 1e-6 / 2000, 0.5, 1e-4) == 564_566


def test_algorithm_4_costs_a_tenth_of_what_its_accountant_says():
    cost = algorithm_4_cost(324_700_000, 0.08 / (4 * 1.3515), 997, 50_000_000, math.sqrt(20), 1e-4)
    assert cost.truncated <= 0.5
    assert cost.renyi == pytest.approx(0.057, abs=0.001)
    assert algorithm_4_cost(324_700_000, 0.0148, 997, 50_000_000, 1.0, 1e-4).truncated == math.inf  # not its conditions


@pytest.mark.parametrize("mu", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("budget", [1e-3, 1e-10])
def test_the_epsilon_of_zcdp_lies_between_the_gaussian_and_the_textbook_one(mu, budget):
    # A mu-Gaussian release is mu²/2-zCDP; the conversion from zCDP does not use that the noise is Gaussian.
    rho = mu**2 / 2
    exact, converted = gaussian_epsilon(mu, budget), rho_to_epsilon(rho, budget)
    assert exact <= converted * (1 + 1e-9) <= (rho + 2 * math.sqrt(rho * math.log(1 / budget))) * (1 + 1e-6)
