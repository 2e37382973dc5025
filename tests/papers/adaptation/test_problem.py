"""The exact solver of problems (6) and (5), the derivatives in the weights, and the constants of the smooth losses."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpadapt.papers.adaptation.problem import (
    CrossEntropy,
    Penalties,
    SquaredError,
    best_weights,
    checked_loss,
    huber_objective,
    objective,
    reference_weights,
    smooth_objective,
    solve,
    solve_smooth,
    stack,
    weight_gradient,
)


def samples(m=60, n=25, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m + n, d)) / math.sqrt(d)
    y = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(m + n)
    y[:m] += X[:m] @ rng.standard_normal(d)
    y[::9] += 3 * rng.standard_normal(len(y[::9]))
    return X[:m], y[:m], X[m:], y[m:]


PENALTIES = [
    Penalties(0.05),
    Penalties(0.5),
    Penalties(0.05, 1.0),
    Penalties(0.05, 0.0, 2.0),
    Penalties(0.1, 1.0, 2.0),
    Penalties(5.0, 0.5, 0.5),
]


@pytest.mark.parametrize("one", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("radius", [0.5, 20.0])
def test_problem_6_without_penalties_two_and_infinity_is_huber_regression(one, radius):
    data = samples()
    solution = solve(*data, alpha=0.6, radius=radius, discrepancy=0.1, penalties=Penalties(one))
    X, y, m = stack(*data)
    p = reference_weights(m, len(y) - m, 0.6)
    extra = np.where(np.arange(len(y)) < m, 0.1, 0.0)

    def huber(w):
        return huber_objective(X @ w - y, extra, p, one)

    assert solution.objective == pytest.approx(huber(solution.coef), abs=1e-12)
    # Huber's objective, minimised by a general method without weights.
    ball = {"type": "ineq", "fun": lambda w: radius**2 - w @ w}
    other = minimize(huber, np.zeros(4), method="SLSQP", constraints=[ball], options={"ftol": 1e-14, "maxiter": 500})
    assert solution.objective <= other.fun + 1e-9
    assert solution.objective >= other.fun - 1e-6
    assert solution.gap <= 1e-9


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("form", ["convex", "original"])
def test_best_weights_beat_every_neighbour(penalties, form):
    rng = np.random.default_rng(5)
    p = reference_weights(30, 12, 0.4)
    losses = rng.exponential(0.2, 42)
    q = best_weights(losses, p, penalties, form)
    assert np.all((q >= 0) & (q <= p * (1 + 1e-12)))
    value = objective(losses, q, p, penalties, form)
    for size in (1e-6, 1e-3, 0.1, 1.0):
        for _ in range(200):
            direction = rng.standard_normal(42) * (rng.random(42) < rng.choice([0.05, 1.0]))
            other = np.clip(q + size * p * direction, p * 1e-9, p)
            assert objective(losses, other, p, penalties, form) >= value - 1e-13
    for scale in (0.5, 0.9, 0.99, 0.999):
        assert objective(losses, np.maximum(q * scale, p * 1e-9), p, penalties, form) >= value - 1e-13
        capped = np.maximum(np.minimum(q, q.max() * scale), p * 1e-9)
        assert objective(losses, capped, p, penalties, form) >= value - 1e-13


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_the_gap_bounds_the_distance_from_the_minimum(penalties):
    data = samples(seed=3)
    rough = solve(*data, alpha=0.5, radius=1.0, penalties=penalties, max_rounds=1)
    fine = solve(*data, alpha=0.5, radius=1.0, penalties=penalties)
    assert fine.gap <= 1e-9 * max(1.0, fine.objective)
    assert 0 <= rough.objective - fine.objective <= rough.gap + 1e-12
    # Convexity: no random point of the ball does better.
    X, y, m = stack(*data)
    p = reference_weights(m, len(y) - m, 0.5)
    rng = np.random.default_rng(1)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(30):
            w = fine.coef + size * rng.standard_normal(4)
            w *= min(1.0, 1 / np.linalg.norm(w))
            losses = (X @ w - y) ** 2
            value = objective(losses, best_weights(losses, p, penalties, "convex"), p, penalties, "convex")
            assert value >= fine.objective - 1e-9


def test_problem_5_falls_with_every_round_and_ends_where_neither_block_improves():
    data = samples(seed=4)
    values = [
        solve(*data, alpha=0.5, radius=2.0, penalties=Penalties(0.3, 0.5, 1.0), form="original", max_rounds=k).objective
        for k in (1, 2, 4, 60)
    ]
    assert values == sorted(values, reverse=True)
    solution = solve(*data, alpha=0.5, radius=2.0, penalties=Penalties(0.3, 0.5, 1.0), form="original")
    assert solution.gap <= 1e-8


def test_without_a_source_and_with_weak_weights_it_is_least_squares():
    _, _, X, y = samples()
    solution = solve(None, None, X, y, radius=100.0, penalties=Penalties(1e3))
    assert solution.coef == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], abs=1e-8)
    assert solution.weights == pytest.approx(np.full(len(y), 1 / len(y)))


def test_fewer_rows_than_columns_and_constant_columns_are_solved():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(6), np.zeros(6), rng.standard_normal((6, 10))])
    solution = solve(X[:3], X[:3, 2], X[3:], X[3:, 2], radius=2.0)
    assert np.isfinite(solution.coef).all()
    assert solution.objective == pytest.approx(0.0, abs=1e-9)
    assert solution.gap <= 1e-9


def problem_7(losses, q, p, penalties, sharpness):
    """(5) with (1 / sharpness) log sum exp(sharpness q) in place of the largest weight, as printed."""
    smooth_maximum = np.log(np.sum(np.exp(sharpness * q))) / sharpness
    plain = losses @ q + penalties.one * (1 - q.sum()) + penalties.two * np.sqrt(np.sum(q**2))
    return plain + penalties.infinity * smooth_maximum


@pytest.mark.parametrize("sharpness", [0.0, 7.0])
def test_weight_gradients_are_the_derivatives_of_the_objectives(sharpness):
    rng = np.random.default_rng(2)
    p = reference_weights(5, 4, 0.3)
    u = (1 + rng.random(9)) / p
    losses, penalties = rng.random(9), Penalties(0.7, 1.3, 0.4)

    def value(u):
        if sharpness:
            return problem_7(losses, 1 / u, p, penalties, sharpness)
        return objective(losses, 1 / u, p, penalties, "convex")

    numeric = [(value(u + h) - value(u - h)) / (2 * h.sum()) for h in np.diag(u * 1e-6)]
    assert weight_gradient(losses, u, p, penalties, sharpness) == pytest.approx(np.array(numeric), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError()])
def test_bounds_lipschitz_constants_and_smoothness_of_the_losses_hold(loss, k):
    rng = np.random.default_rng(0)
    n, radius = 4000, 2.0
    scores = rng.standard_normal((n, k))
    scores *= radius * rng.choice([0.3, 1.0], (n, 1)) / np.linalg.norm(scores, axis=1, keepdims=True)
    scores = scores[:, 0] if k == 1 else scores
    codes = rng.integers(max(k, 2), size=n)
    losses = loss.losses(scores, codes)
    assert 0 <= losses.min() <= losses.max() <= loss.bound(k, radius)
    slopes = loss.weights(scores.copy(), codes).reshape(n, k)
    assert np.linalg.norm(slopes, axis=1).max() <= loss.lipschitz(k, radius)
    step = 1e-5 * rng.standard_normal((n, k)).reshape(scores.shape)
    change = loss.losses(scores + step, codes) - losses
    assert change == pytest.approx(np.sum(slopes * step.reshape(n, k), axis=1), abs=1e-8)
    bend = loss.weights(scores + step, codes).reshape(n, k) - slopes
    ratio = np.linalg.norm(bend, axis=1) / np.linalg.norm(step.reshape(n, k), axis=1)
    assert 0.3 * loss.smoothness(k) < ratio.max() <= loss.smoothness(k) * (1 + 1e-4)


def test_bad_input_is_named():
    data = samples()
    for options, name in (
        ({"radius": -1.0}, "radius"),
        ({"alpha": 1.5}, "alpha"),
        ({"discrepancy": math.nan}, "discrepancy"),
        ({"penalties": Penalties(0.0)}, "one"),
        ({"form": "other"}, "form"),
    ):
        with pytest.raises(ValueError, match=name):
            solve(*data, **options)
    with pytest.raises(ValueError, match="penalty"):
        Penalties(-1.0)
    with pytest.raises(ValueError, match="columns"):
        solve(data[0][:, :2], data[1], *data[2:])


class Mixing(CrossEntropy):
    def losses(self, scores, codes):
        return super().losses(scores, codes) + scores.mean()


class Unbounded(CrossEntropy):
    def bound(self, n_scores, radius):
        return math.inf


@pytest.mark.parametrize("n_scores", [1, 3])
def test_a_loss_is_tried_on_made_up_scores(n_scores):
    for loss in (CrossEntropy(), SquaredError()):
        assert checked_loss(loss, n_scores, 2.0) is loss
    with pytest.raises(ValueError, match="by that row alone"):
        checked_loss(Mixing(), n_scores, 2.0)
    for loss in (Unbounded(), "hinge", CrossEntropy):
        with pytest.raises(TypeError, match="loss must be a SmoothLoss"):
            checked_loss(loss, n_scores, 2.0)


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("sharpness", [1.0, 8.0, 300.0])
def test_best_weights_of_problem_7_are_those_of_a_general_method(penalties, sharpness):
    rng = np.random.default_rng(6)
    p = reference_weights(8, 5, 0.4)
    losses = rng.exponential(0.2, 13)
    q = best_weights(losses, p, penalties, "original", sharpness)
    assert np.all((q >= 0) & (q <= p * (1 + 1e-12)))
    value = problem_7(losses, q, p, penalties, sharpness)
    assert smooth_objective(losses, q, p, penalties, sharpness) == pytest.approx(value, abs=1e-12)
    # The problem in the weights is convex; a general method finds nothing better, from several starts.
    for start in (p, p / 2, p * rng.random(13)):
        other = minimize(
            lambda q: problem_7(losses, q, p, penalties, sharpness),
            start,
            bounds=[(1e-12, top) for top in p],
            tol=1e-14,
        )
        assert value <= other.fun + 1e-9
    for size in (1e-6, 1e-3, 0.1, 1.0):
        for _ in range(200):
            near = np.clip(q + size * p * rng.standard_normal(13), 1e-300, p)
            assert problem_7(losses, near, p, penalties, sharpness) >= value - 1e-13


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError()])
@pytest.mark.parametrize("penalties", [Penalties(5.0), Penalties(0.7, 0.3, 0.5), Penalties(0.9, 0.0, 1.0)], ids=str)
def test_solution_of_problem_7_is_not_improved_by_a_general_method(k, loss, penalties):
    rng = np.random.default_rng(k)
    m, n, d, radius, extra, sharpness = 7, 6, 2, 2.0, 0.1, 3.0
    X = rng.uniform(-1, 1, (m + n, d)) / math.sqrt(d)
    codes = rng.integers(k, size=m + n)
    options = {"n_classes": k, "loss": loss, "alpha": 0.4, "radius": radius, "discrepancy": extra}
    solution = solve_smooth(X[:m], codes[:m], X[m:], codes[m:], penalties=penalties, sharpness=sharpness, **options)
    p = reference_weights(m, n, 0.4)
    shape = (d,) if k == 2 else (d, k)

    def value(v):
        losses = loss.losses(X @ v[m + n :].reshape(shape), codes) + np.where(np.arange(m + n) < m, extra, 0.0)
        return problem_7(losses, v[: m + n], p, penalties, sharpness)

    at = np.concatenate([solution.weights, solution.coef.ravel()])
    assert value(at) == pytest.approx(solution.objective, abs=1e-12)
    assert solution.gap <= 1e-6
    assert np.linalg.norm(solution.coef) <= radius * (1 + 1e-9)
    # Weights and coefficients together, from random starts: no start ends below.
    ball = {"type": "ineq", "fun": lambda v: radius**2 - np.sum(v[m + n :] ** 2)}
    bounds = [(1e-9, top) for top in p] + [(None, None)] * math.prod(shape)
    for _ in range(8):
        start = np.concatenate([p * rng.random(m + n), rng.standard_normal(math.prod(shape)) / 2])
        found = minimize(value, start, method="SLSQP", bounds=bounds, constraints=[ball], options={"maxiter": 300})
        if found.success and ball["fun"](found.x) >= -1e-9:
            assert solution.objective <= found.fun + 1e-6


def test_problem_7_with_weights_at_their_reference_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    X, codes = rng.standard_normal((400, 3)), rng.integers(2, size=400)
    X[:, 0] += codes
    solution = solve_smooth(
        X[:150], codes[:150], X[150:], codes[150:], alpha=0.3, radius=50.0, penalties=Penalties(99.0)
    )
    p = reference_weights(150, 250, 0.3)
    assert solution.weights == pytest.approx(p)
    plain = LogisticRegression(C=1e12, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, codes, sample_weight=p)
    assert solution.coef == pytest.approx(plain.coef_[0], abs=1e-4)


def test_bad_input_of_problem_7_is_named():
    X, codes = np.ones((3, 1)), [0, 1, 0]
    with pytest.raises(ValueError, match="codes"):
        solve_smooth(X, [0, 2, 0], X, codes)
    with pytest.raises(ValueError, match="sharpness"):
        solve_smooth(X, codes, X, codes, sharpness=0.0)
    with pytest.raises(TypeError, match="SmoothLoss"):
        solve_smooth(X, codes, X, codes, loss="hinge")
    alone = solve_smooth(None, None, X, codes, penalties=Penalties(9.0))
    assert alone.weights == pytest.approx(np.full(3, 1 / 3))
