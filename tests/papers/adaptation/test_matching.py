"""Weights that match source to target, against independent solvers; private matching of second moments."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from benchmarks.rivals.adaptation import AlphaMixture, DiscrepancyMinimization
from dpadapt import Public
from dpadapt.papers.adaptation.matching import (
    PrivateDiscrepancyMinimization,
    best_da_objective,
    discrepancy_weights,
    solve_best_da,
)
from dpadapt.papers.adaptation.problem import Penalties


def spectral_oracle(source, moment, n_angles=2000):
    """Least spectral distance in the plane, by a linear program over a dense set of directions."""
    angles = np.linspace(0, np.pi, n_angles, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    along, goal = (directions @ source.T) ** 2, np.einsum("ij,jk,ik->i", directions, moment, directions)
    one = np.ones((n_angles, 1))
    m = len(source)
    program = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.block([[along, -one], [-along, -one]]),
        b_ub=np.concatenate([goal, -goal]),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
    )
    return program.fun


@pytest.mark.parametrize("stretch", [0.5, 2.0, 5.0])
def test_discrepancy_weights_reach_the_least_distance(stretch):
    random = np.random.default_rng(1)
    source, target = random.normal(size=(30, 2)), stretch * random.normal(size=(30, 2))
    moment = target.T @ target / 30
    least = spectral_oracle(source, moment)
    size = np.linalg.norm(moment, 2)
    for tolerance in (0.03, 0.003):
        matched = discrepancy_weights(source, moment, tolerance=tolerance, most_steps=5000)
        assert matched.weights.sum() == pytest.approx(1.0)
        assert matched.weights.min() >= 0
        reached = np.linalg.norm((source * matched.weights[:, None]).T @ source - moment, 2)
        assert matched.distance == pytest.approx(reached)
        assert matched.at_least <= least + 1e-5 * size
        assert least - 1e-5 * size <= matched.distance <= least + tolerance * size


def shifted_features(m=800, n=2000):
    random = np.random.default_rng(0)
    X_source, X = random.uniform(-2, 2, (m, 2)), random.uniform(0.5, 1.5, (n, 2))
    curve = lambda X: X[:, 0] ** 2 + X[:, 1]  # noqa: E731
    return X, curve(X), Public(X_source, curve(X_source))


def test_private_matching_comes_close_to_matching_without_privacy():
    X, y, public = shifted_features()
    error = lambda model: np.mean((model.predict(X) - y) ** 2)  # noqa: E731
    source, without_privacy = (
        AlphaMixture(1.0).fit(X, y, public=public),
        DiscrepancyMinimization().fit(X, y, public=public),
    )
    private = PrivateDiscrepancyMinimization(4.0, 1e-5, random_state=0).fit(X, public=public)
    assert error(without_privacy) < 0.3 * error(source)
    assert error(private) < 0.5 * error(source)


def best_da_problem(seed, m=5, d=2):
    rng = np.random.default_rng(seed)
    X, T = rng.uniform(-0.7, 0.7, (m, d)), rng.uniform(0.0, 0.7, (40, d))
    return X, X @ rng.standard_normal(d) + 0.1 * rng.standard_normal(m), T.T @ T / len(T)


def test_the_unlabelled_discrepancy_is_the_spectral_norm():
    """By brute force over pairs of hypotheses; the pairs of the local one are within its radius of each other."""
    X, y, moment = best_da_problem(0, m=20, d=3)
    rng = np.random.default_rng(1)
    q = rng.dirichlet(np.ones(len(y)))
    apart = (X * q[:, None]).T @ X - moment
    w = rng.standard_normal((2, 200_000, 3))
    w *= (1.5 * rng.random((2, 200_000, 1)) ** 0.1) / np.linalg.norm(w, axis=2, keepdims=True)
    difference = w[0] - w[1]
    found = np.abs(np.einsum("ij,jk,ik->i", difference, apart, difference))
    near = np.linalg.norm(difference, axis=1) <= 0.8
    zero = np.zeros(3)
    for reach, some in ((3.0, found), (0.8, found[near])):
        with_term, without = (
            best_da_objective(zero, q, X, y, moment, Penalties(0.0), reach=part) for part in (reach, 0.0)
        )
        assert 0.9 * (with_term - without) <= some.max() <= (with_term - without) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("penalties", "local"),
    [(Penalties(0.1), None), (Penalties(0.02, 0.1, 0.05), None), (Penalties(0.05), 0.5), (Penalties(3.0), None)],
)
def test_best_da_reaches_the_least_objective(penalties, local):
    """Against a general solver of the objective itself, without smoothing, from many starts."""
    X, y, moment = best_da_problem(2)
    solution = solve_best_da(X, y, moment, radius=1.0, penalties=penalties, local_radius=local)
    reach = 2.0 if local is None else local
    given = X, y, moment, penalties, reach
    assert solution.objective == pytest.approx(best_da_objective(solution.coef, solution.weights, *given))
    assert np.linalg.norm(solution.coef) <= 1 + 1e-9
    assert 0 <= solution.weights.min() <= solution.weights.max() <= 1

    def value(point):
        w, q = point[:2], np.clip(point[2:], 0.0, 1.0)
        return best_da_objective(w / max(1.0, np.linalg.norm(w)), q, *given)

    rng, least = np.random.default_rng(3), math.inf
    for _ in range(12):
        start = np.concatenate([rng.uniform(-1, 1, 2), rng.dirichlet(np.ones(5))])
        found = minimize(value, start, method="Powell", bounds=[(-2, 2)] * 2 + [(0, 1)] * 5, options={"ftol": 1e-10})
        found = minimize(value, found.x, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000})
        least = min(least, float(found.fun))
    assert least * 0.995 - 1e-4 <= solution.objective <= least * 1.01 + 1e-3


def test_private_matching_uses_no_private_label(make_tape):
    X, y, public = shifted_features(n=300)
    tapes = [make_tape(), make_tape()]
    first = PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, y, public=public, ledger=tapes[0].ledger)
    second = PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, public=public, ledger=tapes[1].ledger)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(tapes[0].values[0], tapes[1].values[0])
    with pytest.raises(ValueError, match="requires y"):
        PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, public=Public(public.X))
