"""Mirror steps against brute-force minimisation of η<g, θ> + B(θ, θ_t), on the whole space and on a ball."""

import numpy as np
import pytest
from scipy.linalg import cho_factor
from scipy.optimize import minimize
from scipy.special import logsumexp

from dpadapt.papers.mirror.maps import Ball, LogisticMap, QuadraticMap, solve_factored

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.standard_normal((60, 4)) * [1.0, 2.0, 0.5, 1.0]


def quadratic():
    hessian = ROWS.T @ ROWS / 60 + 0.1 * np.eye(4)
    return QuadraticMap(hessian), lambda t: 0.5 * t @ hessian @ t, lambda t: hessian @ t


def logistic(classes):
    start = np.zeros(4) if classes == 2 else np.zeros((4, classes))
    map_ = LogisticMap(ROWS, 0.05, start)

    def value(flat):
        theta = flat.reshape(start.shape)
        scores = ROWS @ theta
        partition = np.logaddexp(0, scores) if classes == 2 else logsumexp(scores, axis=1)
        return np.mean(partition) + 0.025 * np.sum(flat**2)

    return map_, value, lambda flat: map_.gradient(flat.reshape(start.shape)).ravel()


def brute_force(value, slope, current, gradient, length, ball=None):
    """Minimise the objective of line 4 of Algorithm 1 numerically."""
    base = slope(current)

    def objective(theta):
        bregman = value(theta) - value(current) - base @ (theta - current)
        return length * gradient @ theta + bregman

    inside = [{"type": "ineq", "fun": lambda t: ball.radius**2 - np.sum((t - ball.center) ** 2)}] if ball else []
    jac = lambda t: length * gradient + slope(t) - base  # noqa: E731
    options = {"maxiter": 1000, "ftol": 1e-15} if ball else {"maxiter": 1000, "gtol": 1e-10}
    begin = current if ball is None else ball.nearest(current)
    return minimize(
        objective, begin, jac=jac, method="SLSQP" if ball else "BFGS", constraints=inside, options=options
    ).x


CASES = {"quadratic": quadratic, "logistic": lambda: logistic(2), "softmax": lambda: logistic(3)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("radius", [None, 0.4])
def test_step_minimises_linear_term_plus_bregman_divergence(name, radius):
    map_, value, slope = CASES[name]()
    shape = (4,) if name != "softmax" else (4, 3)
    center = np.full(shape, 0.1)
    ball = None if radius is None else Ball(center, radius)
    map_ = type(map_)(**{**vars_of(map_), "ball": ball})
    current = center + 0.1 * RANDOM.standard_normal(shape)
    for size in (0.1, 3.0):
        gradient = size * RANDOM.standard_normal(shape)
        # The map is normalised by its unit, so a step of 1 / unit is a step of 1 in the map as it is.
        stepped = map_.step(current, gradient, 1.0 / map_.unit)
        flat_ball = None if ball is None else Ball(center.ravel(), radius)
        wanted = brute_force(value, slope, current.ravel(), gradient.ravel(), 1.0, flat_ball)
        assert np.allclose(stepped.ravel(), wanted, atol=2e-4 if radius else 2e-6)
        if ball is not None:
            assert np.linalg.norm(stepped - center) <= radius * (1 + 1e-9)


def vars_of(map_):
    return {name: getattr(map_, name) for name in map_.__dataclass_fields__}


def test_inverse_hessian_is_normalised_to_one():
    map_, _, _ = quadratic()
    columns = np.column_stack([-map_.step(np.zeros(4), unit, 1.0) for unit in np.eye(4)])
    assert np.linalg.eigvalsh(columns)[-1] == pytest.approx(1.0)


def test_solutions_by_a_factor_are_those_of_the_matrix():
    rng = np.random.default_rng(0)
    for k in (1, 5, 90):
        rows = rng.standard_normal((2 * k + 3, k))
        matrix = rows.T @ rows / k
        factor = cho_factor(matrix.T.copy(), lower=True)
        before, vector, vectors = factor[0].copy(), rng.standard_normal(k), rng.standard_normal((k, 3))
        kept = vector.copy()
        assert solve_factored(factor, vector) == pytest.approx(np.linalg.solve(matrix, vector), rel=1e-8)
        assert solve_factored(factor, vectors) == pytest.approx(np.linalg.solve(matrix, vectors), rel=1e-8)
        assert np.array_equal(vector, kept)
        assert np.array_equal(factor[0], before)


def test_a_logistic_step_exists_for_any_noise():
    map_, _, _ = logistic(2)
    target = map_.gradient(np.zeros(4)) - 1e3 * map_.unit * np.ones(4)
    stepped = map_.step(np.zeros(4), np.ones(4), 1e3)
    assert np.allclose(map_.gradient(stepped), target, rtol=1e-8, atol=1e-8)
