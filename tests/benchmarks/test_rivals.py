"""The baselines that protect nothing are what they claim to be; the solver of paper 5 is close to ours."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression

from benchmarks.rivals.adaptation import (
    AlphaMixture,
    SBest,
    SBestClassifier,
    kernel_mean_weights,
    weighted_logistic,
)
from benchmarks.rivals.clustering import accelerated_k_medoids
from benchmarks.theory.adaptation_problems import huber_objective
from dpadapt import Public
from dpadapt.clustering.solver import capped_k_medoids, nearest


def samples(task, seed=0, m=120, n=50):
    random = np.random.default_rng(seed)
    X_source, X = random.normal(size=(m, 3)), random.normal(size=(n, 3)) + 0.5
    y_source, y = X_source @ [1.0, 0.3, 0.1], X @ [1.0, 0.0, 0.2]
    y_source, y = y_source + 0.1 * random.normal(size=m), y + 0.1 * random.normal(size=n)
    if task == "classification":
        return X, np.where(y > 0, "yes", "no"), Public(X_source, np.where(y_source > 0, "yes", "no"))
    return X, y, Public(X_source, y_source)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_mixture_minimises_the_mixed_error(alpha):
    X, y, public = samples("regression")
    weights = np.concatenate([np.full(120, alpha / 120), np.full(50, (1 - alpha) / 50)])
    rows, labels = np.vstack([public.X, X]), np.concatenate([public.y, y])
    oracle = LinearRegression().fit(rows, labels, sample_weight=weights)
    model = AlphaMixture(alpha, ridge=1e-9).fit(X, y, public=public)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.intercept_, abs=1e-6)


def two_columns(seed=0, m=60, n=25, wrong=0):
    random = np.random.default_rng(seed)
    X_source, X = random.normal(size=(m, 2)), random.normal(size=(n, 2))
    y_source = X_source @ [1.0, -0.5] + 0.1 * random.normal(size=m)
    y = X @ [1.0, -0.5] + 0.1 * random.normal(size=n)
    y_source[:wrong] += 8.0
    return X, y, Public(X_source, y_source)


def scaled(X, y, public):
    """The rows and labels as the estimator sees them, source first, with the constant."""
    rows, labels = np.vstack([public.X, X]), np.concatenate([public.y, y])
    Z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return np.column_stack([Z, np.ones(len(Z))]), (labels - labels.mean()) / labels.std()


def test_original_form_finds_the_best_subset_of_a_few_rows():
    random = np.random.default_rng(2)
    X, X_source = random.normal(size=(5, 1)), random.normal(size=(5, 1))
    y, y_source = X[:, 0], X_source[:, 0].copy()
    y_source[1] += 6.0
    public = Public(X_source, y_source)
    rows, labels = scaled(X, y, public)
    p = np.full(10, 0.1)
    lowest, best = np.inf, None
    # Without penalties two and infinity each best weight is 0 or its share, so all subsets are all candidates.
    for chosen in itertools.product([0.0, 1.0], repeat=10):
        q = p * np.array(chosen)
        root = np.sqrt(q)[:, None]
        coef = np.linalg.lstsq(root * rows, root[:, 0] * labels, rcond=None)[0]
        value = q @ (rows @ coef - labels) ** 2 + 0.5 * (1 - q.sum())
        if value < lowest:
            lowest, best = value, coef
    model = SBest(0.5, lambda1=0.5, discrepancy=0.0).fit(X, y, public=public)
    predicted = (model.predict(np.vstack([X_source, X])) - np.mean(np.append(y_source, y))) / np.std(
        np.append(y_source, y)
    )
    assert predicted == pytest.approx(rows @ best, abs=1e-6)


def test_convex_form_is_the_huber_minimiser():
    X, y, public = two_columns(wrong=6)
    rows, labels = scaled(X, y, public)
    p = np.concatenate([np.full(60, 0.5 / 60), np.full(25, 0.5 / 25)])
    extra = np.where(np.arange(85) < 60, 0.02, 0.0)
    value = lambda w: huber_objective(rows @ w - labels, extra, p, 0.3)  # noqa: E731
    oracle = minimize(value, np.zeros(3), tol=1e-14)
    model = SBest(0.5, lambda1=0.3, discrepancy=0.02, form="convex").fit(X, y, public=public)
    everything = np.concatenate([public.y, y])
    predicted = (model.predict(np.vstack([public.X, X])) - everything.mean()) / everything.std()
    assert predicted == pytest.approx(rows @ oracle.x, abs=1e-4)


def test_classifier_leaves_out_flipped_labels():
    random = np.random.default_rng(0)
    X_source, X = random.normal(size=(300, 2)), random.normal(size=(60, 2))
    y_source, y = X_source[:, 0] > 0, X[:, 0] > 0
    y_source[X_source[:, 1] > 0.7] ^= True
    public = Public(X_source, y_source)
    robust = SBestClassifier(0.5, lambda1=1.0).fit(X, y, public=public)
    plain = SBestClassifier(0.5, lambda1=1e6).fit(X, y, public=public)
    assert robust.score(X, y) > plain.score(X, y)
    assert robust.coef_[0, 0] > 2 * plain.coef_[0, 0]  # flipped labels make the model unsure


def kernel(left, right, bandwidth):
    return np.exp(-((left[:, None] - right[None]) ** 2).sum(axis=2) / (2 * bandwidth**2))


def kernel_problem(seed, m=40):
    random = np.random.default_rng(seed)
    source, target = random.normal(size=(m, 2)), 0.5 * random.normal(size=(25, 2)) + 1
    K, k = kernel(source, source, 1.5), kernel(source, target, 1.5).mean(axis=1) * m
    return source, target, lambda b: b @ K @ b / 2 - k @ b, lambda b: K @ b - k


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("largest", [1000.0, 3.0])
def test_kernel_weights_equal_those_of_a_general_solver(seed, largest):
    source, target, value, slope = kernel_problem(seed)
    m = len(source)
    weights = kernel_mean_weights(source, target, bandwidth=1.5, largest=largest, tolerance=1e-7, most_steps=20_000)
    slack = (math.sqrt(m) - 1) / math.sqrt(m)
    band = [
        {"type": "ineq", "fun": lambda b: b.sum() - m * (1 - slack)},
        {"type": "ineq", "fun": lambda b: m * (1 + slack) - b.sum()},
    ]
    bounds = [(0, largest)] * m
    oracle = minimize(value, np.ones(m), jac=slope, bounds=bounds, constraints=band, options={"maxiter": 1000})
    assert value(weights) <= oracle.fun + 1e-5 * abs(oracle.fun)
    assert weights.min() >= 0
    assert weights.max() <= largest
    assert m * (1 - slack) - 1e-9 <= weights.sum() <= m * (1 + slack) + 1e-9


def test_accelerated_k_medoids_is_close_to_the_solver_on_few_targets():
    random = np.random.default_rng(7)
    T, caps = random.normal(size=(300, 2)), random.uniform(0.1, 2.5, 300)
    ours, theirs = (
        np.minimum(caps, nearest(T, T[solve(T, 10, caps)])[1]).sum()
        for solve in (capped_k_medoids, accelerated_k_medoids)
    )
    assert ours <= theirs <= 1.1 * ours


def test_weighted_logistic_minimises_the_weighted_loss():
    random = np.random.default_rng(0)
    Z, weights = random.normal(size=(60, 2)), random.uniform(0, 1, 60)
    codes = (Z[:, 0] + random.normal(size=60) > 0).astype(np.int64)
    share = weights / weights.sum()
    strength = 0.1 * share @ np.mean(Z**2, axis=1)

    def value(w):
        scores = Z @ w[:2] + w[2]
        return share @ (np.logaddexp(0, scores) - codes * scores) + strength * (w[:2] @ w[:2]) / 2

    oracle = minimize(value, np.zeros(3), tol=1e-12)
    coef, intercept = weighted_logistic(Z, codes, weights, 0.1, 2)
    assert np.append(coef[0], intercept) == pytest.approx(oracle.x, abs=1e-4)
