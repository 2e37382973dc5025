"""`PrivateSubspaceRegressor`: its accuracy, its releases, and that bad input spends nothing."""

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from dpadapt import Public
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.learning.base import Budget
from dpadapt.representation import PrivateSubspaceRegressor
from dpadapt.representation.subspace import task_model, task_prior
from dpadapt.representation.subspace_regression import plan_descent

BUDGET = {"epsilon": 1.1, "delta": 1e-5}


def errors(n_public, n_private, draws=10, *, true=False, **params):
    """Return the l2 errors of the coefficients over draws."""
    measured = []
    for seed in range(draws):
        drawn = shared_subspace(n_public, n_private, seed=seed)
        if true:
            params["basis"] = drawn.basis
        else:
            params.setdefault("n_components", 5)
        model = PrivateSubspaceRegressor(**BUDGET, fit_intercept=False, random_state=seed, **params)
        measured.append(np.linalg.norm(model.fit(drawn.X, drawn.y, public=drawn.public).coef_ - drawn.private_coef))
    return np.array(measured)


def test_transfer_reaches_its_target_and_soft_projection_is_better_with_many_rows():
    hard, soft = (errors(5000, 5000, projection=projection) for projection in ("hard", "soft"))
    assert soft.mean() <= 0.16
    assert soft.mean() < 0.7 * hard.mean()


def test_error_inside_the_true_subspace_is_close_to_that_of_least_squares():
    private, plain = errors(2000, 1000, draws=20, true=True), []
    for seed in range(20):
        drawn = shared_subspace(2000, 1000, seed=seed)
        inside = np.linalg.lstsq(drawn.X @ drawn.basis, drawn.y, rcond=None)[0]
        plain.append(np.linalg.norm(drawn.basis @ inside - drawn.private_coef))
    assert private.mean() <= 1.25 * np.mean(plain)


@pytest.mark.parametrize(("n_public", "n_private"), [(5000, 300), (5000, 5000), (20_000, 1000)])
def test_public_data_predicts_the_excess_error(n_public, n_private):
    measured, predicted = [], []
    for seed in range(10):
        drawn = shared_subspace(n_public, n_private, seed=seed)
        model = PrivateSubspaceRegressor(**BUDGET, n_components=5, fit_intercept=False, random_state=seed)
        model.fit(drawn.X, drawn.y, public=drawn.public)
        measured.append(np.sum((model.coef_ - drawn.private_coef) ** 2))
        predicted.append(model.predicted_excess_)
    assert 0.6 < np.mean(predicted) / np.mean(measured) < 1.5


def test_the_plan_uses_the_subspace_with_few_rows_and_all_features_with_many():
    drawn = shared_subspace(20_000, 1, seed=0)
    model = task_model(drawn.public.X, drawn.public, method="em", k=5, intercept=False)
    prior = task_prior(model, intercept=False, soft=True)
    used = [len(plan_descent(prior, Budget(gaussian_mu(1.0, 1e-5), n, 1.0)).used) for n in (300.0, 1e6)]
    assert used == [5, 25]


def test_a_task_outside_the_subspace_is_learned_with_enough_rows():
    drawn = shared_subspace(5000, 1, n_features=10, n_components=2, seed=1)
    random = np.random.default_rng(0)
    X, coef = random.standard_normal((20_000, 10)), np.linalg.qr(np.column_stack([drawn.basis, np.eye(10)]))[0][:, 5]
    y = X @ coef + random.standard_normal(20_000)
    model = PrivateSubspaceRegressor(**BUDGET, n_components=2, random_state=0).fit(X, y, public=drawn.public)
    assert np.linalg.norm(model.coef_ - coef) < 0.3
    hard = PrivateSubspaceRegressor(**BUDGET, n_components=2, projection="hard", random_state=0)
    assert np.linalg.norm(hard.fit(X, y, public=drawn.public).coef_ - coef) > 0.9


def test_intercepts_scales_and_a_common_mean_of_tasks_are_transferred():
    random = np.random.default_rng(2)
    scale, shift = np.array([1.0, 100.0, 0.01, 1.0]), np.array([5.0, -300.0, 0.0, 1.0])
    names = np.arange(4000) % 40
    coef = (np.array([2.0, 1.0, 0.0, 0.0]) + random.standard_normal((41, 1)) * [0.0, 0.0, 1.0, 0.0]) / scale
    levels = 50 + random.standard_normal(41)
    X_public, X = (random.standard_normal((n, 4)) * scale + shift for n in (4000, 2000))
    noise = 0.5 * random.standard_normal(6000)
    y_public = np.sum(X_public * coef[names], axis=1) + levels[names] + noise[:4000]
    y = X @ coef[40] + levels[40] + noise[4000:]
    model = PrivateSubspaceRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public, tasks=names))
    assert np.mean((model.predict(X) - X @ coef[40] - levels[40]) ** 2) < 0.05


def test_a_known_subspace_needs_no_public_tasks():
    drawn = shared_subspace(500, 4000, seed=6)
    model = PrivateSubspaceRegressor(basis=drawn.basis, target_bounds=(-4, 4), random_state=0).fit(drawn.X, drawn.y)
    assert model.n_components_ == 5
    assert np.linalg.norm(model.coef_ - drawn.private_coef) < 0.3
    assert np.allclose(model.coef_, drawn.basis @ (drawn.basis.T @ model.coef_))
    assert model.predicted_excess_ is None
    assert "the basis: it was made without the private rows" in model.privacy_.assumptions
    with_tasks = PrivateSubspaceRegressor(basis=drawn.basis, random_state=0).fit(drawn.X, drawn.y, public=drawn.public)
    assert with_tasks.privacy_.assumptions[-1] == model.privacy_.assumptions[-1]
