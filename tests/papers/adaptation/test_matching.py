"""`PrivateBestDA`: weights and model chosen together, against independent solvers."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpadapt.papers.adaptation.matching import (
    best_da_objective,
    solve_best_da,
)
from dpadapt.papers.adaptation.problem import Penalties


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
