"""Gaussian width, risk bounds and noise stability against their formulas."""

import math

import numpy as np
import pytest

from dpadapt.papers.mirror.bounds import (
    ellipsoid_width,
    empirical_risk_bound,
    gaussian_width,
    noise_stability_bound,
    population_risk_bound,
    prescribed_epsilon,
)
from dpadapt.papers.mirror.maps import QuadraticMap


@pytest.mark.parametrize("radii", [[1.0], [1.0, 0.3], np.linspace(0.1, 1, 40), [2.0, 0.0, 1e-3]])
def test_width_of_an_ellipsoid_agrees_with_monte_carlo(radii):
    g = np.random.default_rng(0).standard_normal((50_000, len(radii)))
    lengths = np.linalg.norm(g * radii, axis=1)
    # Four standard errors: a false alarm in 16,000.
    assert abs(ellipsoid_width(radii) - lengths.mean()) <= 4 * lengths.std() / math.sqrt(len(lengths))
    assert ellipsoid_width(radii) <= math.sqrt(np.sum(np.square(radii))) + 1e-12


def test_width_lies_between_one_and_the_root_of_the_dimension():
    assert gaussian_width(np.eye(9)) == pytest.approx(3.0)
    assert gaussian_width([1.0, *[1e9] * 8]) == pytest.approx(1.0, abs=1e-6)
    values = [1.0, 2.0, 5.0]
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    assert gaussian_width(turn @ np.diag(values) @ turn.T) == pytest.approx(gaussian_width(values))
    assert gaussian_width(7 * np.diag(values)) == pytest.approx(gaussian_width(values))


def test_the_loss_is_strongly_convex_in_the_smallest_set_but_not_in_the_printed_one():
    values = np.array([1.0, 4.0, 9.0])
    x = np.random.default_rng(0).standard_normal((1000, 3))
    curvature = np.sum(values * x**2, axis=1)
    for radii, holds in ((1 / np.sqrt(values), True), (1 / values, False)):
        minkowski = np.sum((x / radii) ** 2, axis=1)
        assert bool(np.all(curvature >= minkowski * (1 - 1e-12))) is holds


def test_a_singular_hessian_has_no_width():
    with pytest.raises(ValueError, match="ridge"):
        gaussian_width(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="form must be"):
        gaussian_width(np.eye(2), form="other")


EMPIRICAL = {
    "gradient_spread": 1.0,
    "strong_convexity": 1.0,
    "learning_rate": 0.1,
    "n_steps": 100,
    "n_public": 500,
    "lipschitz": 1.0,
    "set_radius": 1.0,
    "width": 10.0,
    "scale": 0.1,
}
POPULATION = {
    "gradient_spread": 1.0,
    "lipschitz": 1.0,
    "diameter": 2.0,
    "width": 10.0,
    "delta": 1e-5,
    "n_private": 10_000,
    "n_public": 500,
}


@pytest.mark.parametrize(
    ("bound", "usual", "name", "sign"),
    [
        (empirical_risk_bound, EMPIRICAL, "n_public", -1),
        (empirical_risk_bound, EMPIRICAL, "n_steps", -1),
        (empirical_risk_bound, EMPIRICAL, "strong_convexity", -1),
        (empirical_risk_bound, EMPIRICAL, "gradient_spread", 1),
        (empirical_risk_bound, EMPIRICAL, "width", 1),
        (empirical_risk_bound, EMPIRICAL, "scale", 1),
        (empirical_risk_bound, EMPIRICAL, "lipschitz", 1),
        (population_risk_bound, POPULATION, "n_public", -1),
        (population_risk_bound, POPULATION, "n_private", -1),
        (population_risk_bound, POPULATION, "width", 1),
        (population_risk_bound, POPULATION, "gradient_spread", 1),
        (population_risk_bound, POPULATION, "diameter", 1),
        (population_risk_bound, POPULATION, "delta", -1),
    ],
)
def test_risk_bounds_move_the_right_way(bound, usual, name, sign):
    before, after = (bound(**{**usual, name: factor * usual[name]}).total for factor in (1, 2))
    assert sign * (after - before) > 0


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


def test_noise_stability_bound_adds_the_rare_noise():
    usual = {"learning_rate": 1.0, "scale": 1.0}
    near = noise_stability_bound([1.0, 0.0], [2.0, 1.0], **usual)
    assert noise_stability_bound([1.0, 0.0], [2.0, 1.0], margin=1.0, **usual) == pytest.approx(near + 6 * math.exp(-1))
    with pytest.raises(ValueError, match="unit vector"):
        noise_stability_bound([1.0, 1.0], [2.0, 1.0], **usual)
    with pytest.raises(ValueError, match="positive"):
        noise_stability_bound([1.0, 0.0], [2.0, 0.0], **usual)
