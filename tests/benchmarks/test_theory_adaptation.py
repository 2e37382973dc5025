"""The theorems of paper 1 and the exact solvers of its problems, against general methods and the printed lines."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.theory.adaptation import (
    ConvergenceBounds,
    discrepancy,
    gradient_mapping,
    learning_bound,
    relaxation_bound,
)
from benchmarks.theory.adaptation_problems import (
    best_weights,
    huber_objective,
    objective,
    solve,
    solve_smooth,
    stack,
)
from dpadapt.papers.adaptation.ncnvx import smoothness_of
from dpadapt.papers.adaptation.problem import CrossEntropy, Penalties, SquaredError, reference_weights
from tests.papers.adaptation.test_cnvx import verbatim


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


def smooth_problem(losses, q, p, penalties, sharpness):
    """(5) with (1 / sharpness) log sum exp(sharpness q) in place of the largest weight, as printed."""
    smooth_maximum = np.log(np.sum(np.exp(sharpness * q))) / sharpness
    plain = losses @ q + penalties.one * (1 - q.sum()) + penalties.two * np.sqrt(np.sum(q**2))
    return plain + penalties.infinity * smooth_maximum


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
        return smooth_problem(losses, v[: m + n], p, penalties, sharpness)

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


OPTIONS = {"n_source": 40, "alpha": 0.25, "discrepancy": 0.3, "complexity": 0.1, "loss_bound": 4.0, "risk": 0.1}


def test_every_term_is_the_theorem_s():
    rng = np.random.default_rng(0)
    p = reference_weights(40, 20, 0.25)
    q, losses = p * rng.uniform(0.6, 1.0, 60), rng.random(60)
    bound = learning_bound(losses, q, **OPTIONS)
    far = np.abs(q - p).sum()
    assert bound.weighted_loss == pytest.approx(q @ losses)
    assert bound.discrepancy == pytest.approx(q[:40].sum() * 0.3)
    assert bound.complexity == 0.2
    assert bound.distance == pytest.approx(24 * far)
    chance = math.sqrt(math.log(math.log2(2 / (1 - far)))) + math.sqrt(math.log(20) / 2)
    assert bound.deviation == pytest.approx(4 * (np.linalg.norm(q) + 2 * far) * chance)
    assert bound.total == pytest.approx(sum(bound.terms.values()))


@pytest.mark.parametrize("center", [None, [0.5, -0.2, 0.1]])
def test_discrepancy_is_the_largest_difference_of_mean_losses(center):
    X_s, y_s, X, y = samples(30, 20, 3, seed=1)
    rng = np.random.default_rng(1)
    computed = discrepancy(X_s, y_s, X, y, radius=1.5, center=center)
    V = rng.standard_normal((40_000, 3))
    V *= 1.5 * rng.uniform(0.8, 1, (len(V), 1)) / np.linalg.norm(V, axis=1, keepdims=True)
    W = V + (0.0 if center is None else np.array(center))
    gaps = np.abs(((W @ X.T - y) ** 2).mean(axis=1) - ((W @ X_s.T - y_s) ** 2).mean(axis=1))
    assert gaps.max() <= computed <= gaps.max() * 1.02


def short_samples(m=12, n=8, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m + n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.clip(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(m + n), -1, 1)
    return X[:m], y[:m], X[m:], y[m:]


@pytest.mark.parametrize(
    "penalties", [Penalties(0.3, 1.0), Penalties(0.6, 0.5, 1.0), Penalties(0.9, 0.2, 0.1)], ids=str
)
def test_solving_the_convex_problem_costs_no_more_than_theorem_4_1_says(penalties):
    finite = 0
    for seed in range(10):
        data = short_samples(seed=seed)
        options = {"alpha": 0.4, "radius": 1.5, "discrepancy": 0.1, "penalties": penalties}
        convex, original = solve(*data, **options), solve(*data, **options, form="original")
        X, y, m = stack(*data)
        p = reference_weights(m, len(y) - m, 0.4)
        losses = (X @ convex.coef - y) ** 2 + np.where(np.arange(len(y)) < m, 0.1, 0.0)
        excess = objective(losses, convex.weights, p, penalties, "original") - original.objective
        bound = relaxation_bound(original.weights, p, penalties.one)
        assert excess <= bound + 1e-9
        finite += math.isfinite(bound)
    assert finite  # the theorem says something in some of them


def algorithm_1(data, *, alpha, radius, kappa, epsilon, T, seed):
    """Return the averages of all iterates of Algorithm 1, with the printed noise."""
    (n, d), rest, rng = data[2].shape, 1 - alpha, np.random.default_rng(seed)
    noise = 2 * math.sqrt(T * math.log(3 / 0.01)) / epsilon
    sigma1, sigma2 = noise * 4 * rest * (radius + 1) / n, noise * rest**2 * (radius + 1) ** 2 / n**2
    z, z_weights = sigma1 * rng.standard_normal((T, d)), sigma2 * rng.standard_normal((T, n))
    return verbatim(
        *data, alpha=alpha, radius=radius, kappa=(*kappa, 0.0), T=T, sigma1=sigma1, sigma2=sigma2, z=z,
        z_weights=z_weights, discrepancy=0.0, moves=(True, True),
    )  # fmt: skip


@pytest.mark.parametrize(("kappa1", "kappa2"), [(20.0, 0.0), (0.3, 0.2)])
@pytest.mark.parametrize("epsilon", [math.inf, 200.0, 5.0])
def test_algorithm_1_ends_within_theorem_4_3(kappa1, kappa2, epsilon):
    data, alpha, radius, T = short_samples(6, 5), 0.5, 1.0, 400
    penalties = Penalties(kappa1, kappa2)
    solution = solve(*data, alpha=alpha, radius=radius, penalties=penalties)
    X, y, m = stack(*data)
    p = reference_weights(m, len(y) - m, alpha)
    far = (1 / solution.weights - 1 / p) ** 2
    bounds = ConvergenceBounds(6, 5, 2, alpha, radius, penalties, epsilon, 0.01)
    bound = bounds.optimisation(T, source_distance=far[:m].sum(), target_distance=far[m:].sum())
    excesses = []
    for seed in range(20):
        w, u, v = algorithm_1(data, alpha=alpha, radius=radius, kappa=(kappa1, kappa2), epsilon=epsilon, T=T, seed=seed)
        q = 1 / np.concatenate([u, v])
        excesses.append(objective((X @ w - y) ** 2, q, p, penalties, "convex") - solution.objective)
    assert min(excesses) >= -1e-9
    assert np.mean(excesses) <= bound.total
    if kappa1 == 20.0 and epsilon >= 200.0:
        # The bound is below what doing nothing costs, so it says something.
        assert bound.total < 1.0
    # As printed in Appendix C.3: valid, and larger.
    B, G, L = (radius + 1) ** 2, 2 * (radius + 1), math.log(2 / 0.01)
    printed = radius * G * math.sqrt(1 / T + 32 * 0.25 * 2 * L / (5 * epsilon) ** 2)
    assert bound.coefficients <= printed
    bar = B + penalties.total
    weights = 0.25 * (far[m:].sum() + 1) / (2 * 5**1.5) * math.sqrt(bar**2 / T + 8 * B**2 * L / epsilon**2)
    assert bound.target_weights <= weights * (1 + 1e-12)
    assert bound.source_weights == pytest.approx(0.25 * (far[:m].sum() + 1) * (B + bar) / (2 * 6**1.5 * math.sqrt(T)))
    if math.isinf(epsilon):
        assert (bound.coefficients, bound.target_weights) == pytest.approx((printed, weights))


def test_theorem_4_4_follows_from_theorem_4_3():
    rng = np.random.default_rng(1)
    for _ in range(300):
        alpha, radius = rng.uniform(0.05, 0.95), rng.exponential(2.0) + 0.1
        n, m, d = (int(10 ** rng.uniform(1, 4)) for _ in range(3))
        penalties = Penalties(*rng.exponential(3.0, 3))
        bounds = ConvergenceBounds(m, n, d, alpha, radius, penalties, rng.exponential(3.0), 10 ** rng.uniform(-8, -1))
        distance = rng.exponential(2.0)
        if n < bounds.required_rows(distance):
            continue
        share = rng.random()
        T = math.ceil(bounds.required_steps)
        bound = bounds.optimisation(T, source_distance=share * distance, target_distance=(1 - share) * distance)
        assert bound.total <= bounds.optimal_rate * (1 + 1e-9)
    # Four times as many rows, a quarter of the error.
    twice = ConvergenceBounds(m, 4 * n, d, alpha, radius, penalties, bounds.epsilon, bounds.delta)
    assert twice.optimal_rate == pytest.approx(bounds.optimal_rate / 4)
    assert ConvergenceBounds(10, 10, 2, epsilon=math.inf).required_steps == math.inf


SMALL = {"alpha": 0.4, "radius": 2.0, "penalties": Penalties(1.0, 0.5, 0.5), "sharpness": 4.0}


def classified(m=9, n=7, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m + n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, rng.integers(2, size=m + n), m, n


def problem_7(losses, u):
    """The objective as printed, in inverse weights."""
    penalties, mu = SMALL["penalties"], SMALL["sharpness"]
    plain = np.sum(losses / u) + penalties.one * (1 - np.sum(1 / u)) + penalties.two * np.sqrt(np.sum(u**-2.0))
    return plain + penalties.infinity / mu * np.log(np.sum(np.exp(mu / u)))


def smoothness(m, n):
    loss = CrossEntropy()
    return smoothness_of(0.25, 1.0, loss.bound(1, 2.0), m, n, 0.4, SMALL["penalties"], SMALL["sharpness"])


def test_gradient_mapping_is_that_of_numerical_derivatives():
    X, codes, m, n = classified()
    p = reference_weights(m, n, 0.4)
    rng = np.random.default_rng(2)
    beta, loss, extra = smoothness(m, n), CrossEntropy(), np.where(np.arange(m + n) < m, 0.2, 0.0)

    def value(v):
        return problem_7(loss.losses(X @ v[:2], codes) + extra, v[2:])

    for scale in (0.5, 3.0):
        coef = rng.standard_normal(2)
        coef *= scale * 2.0 / (3.0 * np.linalg.norm(coef))
        at = np.concatenate([coef, (1 + rng.random(m + n) * (rng.random(m + n) < 0.7)) / p])
        slope = np.array([(value(at + h) - value(at - h)) / (2 * h.sum()) for h in np.diag(1e-5 * np.abs(at))])
        moved = at - slope / beta
        moved[:2] *= min(1.0, 2.0 / np.linalg.norm(moved[:2]))
        moved[2:] = np.maximum(moved[2:], 1 / p)
        expected = beta * np.linalg.norm(at - moved)
        mapped = gradient_mapping(
            X, codes, at[:2], at[2:], n_source=m, loss=loss, smoothness=beta, discrepancy=0.2, **SMALL
        )
        assert mapped == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("epsilon", [math.inf, 50.0, 2.0])
def test_algorithm_2_is_as_stationary_as_theorem_5_2_says(epsilon):
    X, codes, m, n = classified()
    alpha, radius, penalties, T = SMALL["alpha"], SMALL["radius"], SMALL["penalties"], 60
    loss, beta, p = CrossEntropy(), smoothness(m, n), reference_weights(m, n, alpha)
    B, rest = loss.bound(1, radius), 1 - alpha
    bounds = ConvergenceBounds(m, n, 2, alpha, radius, penalties, epsilon, 0.01, lipschitz=1.0, loss_bound=B)
    noise = 2 * math.sqrt(T * math.log(3 / 0.01)) / epsilon
    sigma1, sigma2 = noise * 2 * rest / n, noise * rest**2 * B / n**2
    squares = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        w, u = np.zeros(2), 1 / p
        for _ in range(T):
            shared = {"n_source": m, "loss": loss, "smoothness": beta, **SMALL}
            squares.append(gradient_mapping(X, codes, w, u, **shared) ** 2)
            scores = X @ w
            losses = loss.losses(scores, codes)
            q = 1 / u
            soft = np.exp(SMALL["sharpness"] * q)
            in_u = -(losses - penalties.one) * q**2 - penalties.two * q**3 / np.linalg.norm(q)
            in_u -= penalties.infinity * q**2 * soft / soft.sum()
            in_w = X.T @ (loss.weights(scores, codes) / u)
            noisy = np.concatenate([np.zeros(m), sigma2 * rng.standard_normal(n)])
            w, u = w - (in_w + sigma1 * rng.standard_normal(2)) / beta, u - (in_u + noisy) / beta
            w *= min(1.0, radius / np.linalg.norm(w))
            u = np.maximum(u, 1 / p)
    assert np.mean(squares) <= bounds.stationarity(T, beta)
    # The proof's two lines: 8 beta M / T + 10 (d sigma_1² + n sigma_2²).
    most = 2 * B + penalties.one + penalties.two * (alpha / math.sqrt(m) + rest / math.sqrt(n))
    most += penalties.infinity * max(alpha / m, rest / n)
    expected = 8 * beta * most / T + 10 * (2 * sigma1**2 + n * sigma2**2)
    assert bounds.stationarity(T, beta) == pytest.approx(expected)
    best = bounds.best_steps(beta)
    if math.isfinite(epsilon):
        assert bounds.stationarity(round(best), beta) <= min(bounds.stationarity(t, beta) for t in range(1, 300)) * 1.02
    else:
        assert best == math.inf
