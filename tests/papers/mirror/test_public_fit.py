"""Public preparation of mirror descent: coordinates, leave-one-out residuals, predicted loss, defaults."""

import math

import numpy as np
import pytest

from dpadapt.papers.mirror.public_fit import (
    DescentModel,
    choose_clip_and_rate,
    classification_fit,
    logistic_fit,
    public_coordinates,
    ridge_trial,
    squared_fit,
)


def public_rows(n=60, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * [1.0, 4.0, 0.2] + [0.0, 5.0, -1.0]
    return X, X @ [1.0, -0.5, 2.0] + random.standard_normal(n)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("standardise", [True, False])
def test_coefficients_give_raw_rows_the_scores_of_the_coordinates(standardise, intercept):
    X, _ = public_rows()
    coordinates = public_coordinates(X, 3, standardise=standardise, intercept=intercept)
    solution = np.arange(1.0, coordinates.n_columns + 1)
    coef, level = coordinates.coefficients(solution)
    assert X @ coef + level == pytest.approx(coordinates.extend(X) @ solution)


def test_squared_fit_leaves_each_row_out_exactly():
    X, y = public_rows()
    Z = np.column_stack([X, np.ones(len(X))])
    fit = squared_fit(Z, y)
    # The smallest ridge has the least error here.
    ridge = 1e-6 * np.trace(Z.T @ Z / 60) / 4 * np.eye(4)
    assert fit.solution == pytest.approx(np.linalg.solve(Z.T @ Z / 60 + ridge, Z.T @ y / 60))
    for i in (0, 17, 59):
        others = np.arange(60) != i
        left_out = np.linalg.solve(Z[others].T @ Z[others] / 60 + ridge, Z[others].T @ y[others] / 60)
        assert fit.derivatives[i] == pytest.approx(max(abs(y[i] - Z[i] @ left_out), 0.05 * y.std()))


def test_excess_of_the_public_start_is_right_on_average():
    random = np.random.default_rng(0)
    coef, predicted, true = np.array([1.0, -1.0, 0.5]), [], []
    for _ in range(300):
        Z = random.standard_normal((40, 3))
        fit = squared_fit(Z, Z @ coef + random.standard_normal(40))
        predicted.append(fit.excess)
        true.append(np.sum((fit.solution - coef) ** 2) / 2)
    # Both have a relative deviation of about 1: the means of 300 agree to a fifth.
    assert np.mean(predicted) == pytest.approx(np.mean(true), rel=0.2)


def test_logistic_fit_has_the_curvature_of_its_loss():
    X, y = public_rows()
    Z, codes = np.column_stack([X / X.std(axis=0), np.ones(len(X))]), (y > y.mean()).astype(np.int64)
    fit = logistic_fit(Z, codes, 1)

    def loss(w):
        return np.mean(np.logaddexp(0, Z @ w) - codes * (Z @ w))

    for direction in np.eye(4):
        step = 1e-3 * direction
        around = [loss(fit.solution + sign * step) for sign in (-1, 0, 1)]
        assert (around[0] - 2 * around[1] + around[2]) / 1e-6 == pytest.approx(
            direction @ fit.hessian @ direction, rel=1e-3
        )
    assert fit.derivatives.max() <= 1.0


@pytest.mark.parametrize("n_classes", [2, 4])
def test_without_labels_the_start_is_zero_and_derivatives_are_those_of_guessing(n_classes):
    X, _ = public_rows()
    coordinates = public_coordinates(X, 3, standardise=True, intercept=True)
    for Z in (None, coordinates.extend(X)):
        fit = classification_fit(coordinates, Z, None, n_classes)
        assert not fit.solution.any()
        assert fit.n_scores == (1 if n_classes == 2 else n_classes)
        # |p - e_y| at equal probabilities, over the scores that the model has.
        equal = np.full(n_classes, 1 / n_classes)
        expected = 0.5 if n_classes == 2 else np.linalg.norm(equal - np.eye(n_classes)[0])
        assert fit.derivatives == pytest.approx(np.full(len(fit.derivatives), expected))


def test_predicted_loss_of_the_chosen_rate_is_the_least_of_a_simulation():
    model = DescentModel(np.array([1.0]), noise_loss=1.0, decay=1.0, fastest=1.0, excess=0.5)
    settings = {"clip_norm": 2.0, "noise": 0.2, "steps": 30, "first": 15, "least_quantile": 0.25}
    _, chosen = choose_clip_and_rate(model, learning_rate=None, **settings)
    random = np.random.default_rng(0)

    def simulated(rate):
        error, average = np.ones(20_000), np.zeros(20_000)
        for t in range(30):
            error = error - rate * (error + 0.4 * random.standard_normal(20_000))
            average += error / 15 * (t >= 15)
        return 0.5 * np.mean(average) ** 2 + np.var(average)

    losses = {rate: simulated(rate) for rate in 2.0 ** -np.arange(8)}
    assert losses[chosen] <= 1.05 * min(losses.values())
    assert losses[1.0] > 1.3 * losses[chosen]  # the choice matters
    assert choose_clip_and_rate(model, learning_rate=0.3, **settings) == (2.0, 0.3)


def test_the_left_out_error_of_a_ridge_and_its_slope_are_exact():
    """Against refits without each row, and against differences between neighbouring ridges."""
    random = np.random.default_rng(0)
    Z, y = random.standard_normal((30, 6)) * np.geomspace(2, 0.2, 6), random.standard_normal(30)
    hessian, cross = Z.T @ Z / 30, Z.T @ y / 30
    for ridge in (1e-6, 0.05, 2.0):
        found = ridge_trial(hessian, cross, Z, y, ridge, 30)
        for i in (0, 7, 29):
            kept = np.delete(np.arange(30), i)
            refit = np.linalg.solve(Z[kept].T @ Z[kept] + 30 * ridge * np.eye(6), Z[kept].T @ y[kept])
            assert found.left_out[i] == pytest.approx(y[i] - Z[i] @ refit, rel=1e-8)
        assert found.error == pytest.approx(np.mean(found.left_out**2))
        step = 1e-4
        errors = [ridge_trial(hessian, cross, Z, y, ridge * math.exp(s), 30).error for s in (-step, step)]
        assert found.slope == pytest.approx((errors[1] - errors[0]) / (2 * step), rel=1e-4, abs=1e-9)
