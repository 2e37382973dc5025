"""Theorems 4.1, 4.3, 4.4 and 5.2 against loops over the printed lines, and the gradient mapping against differences."""

import math

import numpy as np
import pytest

from dpadapt.papers.adaptation.convergence import ConvergenceBounds, gradient_mapping, relaxation_bound
from dpadapt.papers.adaptation.ncnvx import smoothness_of
from dpadapt.papers.adaptation.problem import (
    CrossEntropy,
    Penalties,
    objective,
    reference_weights,
    solve,
    solve_smooth,
    stack,
)


def samples(m=12, n=8, d=2, seed=0):
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
        data = samples(seed=seed)
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


def test_difference_of_the_two_objectives_is_within_the_relaxation_bound():
    rng = np.random.default_rng(0)
    p = reference_weights(5, 4, 0.3)
    for _ in range(200):
        q = p * rng.uniform(0.05, 1.0, 9) ** rng.choice([0.1, 1.0])
        losses, one = rng.random(9), rng.exponential()
        both = [objective(losses, q, p, Penalties(one, 0.7, 0.2), form) for form in ("convex", "original")]
        assert -1e-12 <= both[0] - both[1] <= relaxation_bound(q, p, one) + 1e-12
    # Attained where all weights shrink alike.
    assert both[0] - both[1] == pytest.approx(one * np.sum((p - q) ** 2 / q))
    half = [objective(losses, p / 2, p, Penalties(one), form) for form in ("convex", "original")]
    assert half[0] - half[1] == pytest.approx(relaxation_bound(p / 2, p, one))
    assert relaxation_bound(np.where(np.arange(9) == 3, 0.0, p), p, one) == math.inf
    with pytest.raises(ValueError, match="between 0 and"):
        relaxation_bound(2 * p, p, one)


def algorithm_1(X_s, y_s, X, y, *, alpha, radius, kappa1, kappa2, epsilon, delta, T, rng):
    """Algorithm 1 as printed; the averages of all iterates of w and of u."""
    m, n, d = len(X_s), len(X), X.shape[1]
    rest, B, G = 1 - alpha, (radius + 1) ** 2, 2 * (radius + 1)
    B_bar = B + kappa1 + kappa2
    noise = 2 * math.sqrt(T * math.log(3 / delta)) / epsilon
    sigma1, sigma2 = noise * 2 * rest * G / n, noise * rest**2 * B / n**2
    eta_w = radius / math.sqrt(T * (G**2 + d * sigma1**2))
    eta_s = m**1.5 / (math.sqrt(T) * alpha**2 * (B + B_bar))
    eta_t = n**1.5 / math.sqrt(T * (rest**4 * B_bar**2 + n**4 * sigma2**2))
    w, u, v = np.zeros(d), np.full(m, m / alpha), np.full(n, n / rest)
    totals = [np.zeros(d), np.zeros(m), np.zeros(n)]
    for _ in range(T):
        e_s, e = X_s @ w - y_s, X @ w - y
        size = math.sqrt((u**-2.0).sum() + (v**-2.0).sum())
        g_w = 2 * X_s.T @ (e_s / u) + 2 * X.T @ (e / v)
        g_u = -(e_s**2) / u**2 + kappa1 * alpha**2 / m**2 - kappa2 / (u**3 * size)
        g_v = -(e**2) / v**2 + kappa1 * rest**2 / n**2 - kappa2 / (v**3 * size)
        w = w - eta_w * (g_w + sigma1 * rng.standard_normal(d))
        w *= min(1.0, radius / np.linalg.norm(w))
        u = np.maximum(u - eta_s * g_u, m / alpha)
        v = np.maximum(v - eta_t * (g_v + sigma2 * rng.standard_normal(n)), n / rest)
        for total, part in zip(totals, (w, u, v), strict=True):
            total += part / T
    return totals


@pytest.mark.parametrize(("kappa1", "kappa2"), [(20.0, 0.0), (0.3, 0.2)])
@pytest.mark.parametrize("epsilon", [math.inf, 200.0, 5.0])
def test_algorithm_1_ends_within_theorem_4_3(kappa1, kappa2, epsilon):
    data, alpha, radius, T = samples(6, 5), 0.5, 1.0, 400
    penalties = Penalties(kappa1, kappa2)
    solution = solve(*data, alpha=alpha, radius=radius, penalties=penalties)
    X, y, m = stack(*data)
    p = reference_weights(m, len(y) - m, alpha)
    far = (1 / solution.weights - 1 / p) ** 2
    bounds = ConvergenceBounds(6, 5, 2, alpha, radius, penalties, epsilon, 0.01)
    bound = bounds.optimisation(T, source_distance=far[:m].sum(), target_distance=far[m:].sum())
    excesses = []
    for seed in range(20):
        w, u, v = algorithm_1(
            *data, alpha=alpha, radius=radius, kappa1=kappa1, kappa2=kappa2, epsilon=epsilon, delta=0.01, T=T,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
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


def test_gradient_mapping_vanishes_at_the_solution_alone():
    X, codes, m, _ = classified(30, 20)
    options = {"alpha": 0.4, "radius": 2.0, "penalties": Penalties(9.0, 0.5, 0.5), "sharpness": 4.0}
    solution = solve_smooth(X[:m], codes[:m], X[m:], codes[m:], **options)
    shared = {"n_source": m, "loss": CrossEntropy(), "smoothness": 1.0, **options}
    assert gradient_mapping(X, codes, solution.coef, 1 / solution.weights, **shared) < 1e-6
    assert gradient_mapping(X, codes, solution.coef + 0.1, 1 / solution.weights, **shared) > 1e-3


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


def test_objective_of_problem_7_is_as_smooth_as_lemma_5_1_says():
    """The largest curvature at random points, by differences of the gradient, against (19) to (21)."""
    X, codes, m, n = classified(6, 5, seed=3)
    p, loss, rng = reference_weights(m, n, 0.4), CrossEntropy(), np.random.default_rng(0)

    def value(v):
        return problem_7(loss.losses(X @ v[:2], codes), v[2:])

    largest = 0.0
    for _ in range(20):
        coef = rng.standard_normal(2)
        at = np.concatenate([coef / max(1.0, np.linalg.norm(coef) / 2), (1 + rng.exponential(0.2, m + n)) / p])
        steps = np.diag(np.full(len(at), 1e-3))
        hessian = [
            [(value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b)) / 4e-6 for b in steps]
            for a in steps
        ]
        largest = max(largest, np.linalg.norm(np.array(hessian), 2))
    assert 0.05 < largest <= smoothness(m, n)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"alpha": 1.0}, "alpha"),
        ({"n_rows": 0}, "n_rows"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"lipschitz": -1.0}, "lipschitz"),
    ],
)
def test_bad_sizes_are_named(change, name):
    with pytest.raises(ValueError, match=name):
        ConvergenceBounds(**{"n_source": 10, "n_rows": 10, "n_coefficients": 2, **change})
