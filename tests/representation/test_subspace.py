"""`PublicSubspace`: which estimator is most accurate, what it reports about the subspace, and what it refuses."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from benchmarks.data.synthetic import shared_subspace
from dpadapt import Public
from dpadapt.representation import PublicSubspace, subspace_distance

RAW = {"whiten": False, "fit_intercept": False}


def distances(method, n_public, draws=8, **params):
    """Return the distance of the estimated subspace from the true one, in each draw."""
    measured = []
    for seed in range(draws):
        drawn = shared_subspace(n_public, 1, seed=seed)
        learned = PublicSubspace(5, method=method, **params).fit(drawn.public)
        measured.append(subspace_distance(learned.components_.T, drawn.basis))
    return np.array(measured)


@pytest.mark.parametrize(("n_public", "target"), [(2000, 0.45), (5000, 0.22)])
def test_em_is_more_accurate_than_pairs_and_pairs_than_moments(n_public, target):
    em, pairs = (distances(method, n_public) for method in ("em", "pairs"))
    moments = distances("moments", n_public, **RAW)
    # Paired over draws: the mean differences are more than five standard errors.
    for near, far in ((em, pairs), (pairs, moments)):
        gap = far - near
        assert gap.mean() > 5 * gap.std() / np.sqrt(len(gap))
    # Without intercepts, as tasks are drawn. Means over 60 draws are 0.409 and 0.218; two standard errors are allowed.
    exact = distances("em", n_public, draws=16, fit_intercept=False)
    assert exact.mean() <= target + 2 * exact.std() / np.sqrt(len(exact))


def test_noise_and_expected_error_are_close_to_the_truth():
    outside, expected, noise = [], [], []
    for seed in range(12):
        drawn = shared_subspace(5000, 1, noise=1.0, seed=seed)
        learned = PublicSubspace(5, fit_intercept=False).fit(drawn.public)
        missed = drawn.public_coef - drawn.public_coef @ learned.components_.T @ learned.components_
        outside.append(np.mean(np.sum(missed**2, axis=1)))
        expected.append(learned.outside_)
        noise.append(learned.noise_)
    assert np.mean(noise) == pytest.approx(1.0, abs=0.03)
    # The expectation is a first-order approximation, so it is a little low.
    assert 0.7 < np.mean(expected) / np.mean(outside) < 1.2


def test_features_of_any_scale_and_correlation_give_the_same_span():
    drawn = shared_subspace(4000, 1, n_features=8, n_components=2, seed=3)
    X, random = drawn.public.X, np.random.default_rng(0)
    mix = random.standard_normal((8, 8)) + 2 * np.eye(8)
    scale = 10.0 ** np.arange(-3, 5)
    # The coefficients of X @ mix are the inverse of mix times those of X.
    truth = np.linalg.solve(mix * scale, drawn.basis)
    public = Public(X @ mix * scale + 100 * scale, drawn.public.y + 7, tasks=drawn.public.tasks)
    learned = PublicSubspace(2).fit(public)
    # In units of the features' standard deviations.
    spread = public.X.std(axis=0)[:, None]
    assert subspace_distance(learned.components_.T * spread, truth * spread) < 0.3


def test_with_as_many_dimensions_as_features_task_coefficients_are_least_squares():
    """With one hidden dimension per feature and many rows, posterior means are the coefficients of each task alone."""
    drawn = shared_subspace(6000, 1, n_features=3, n_components=3, n_tasks=6, noise=0.1, seed=4)
    learned = PublicSubspace(3, **RAW).fit(drawn.public)
    assert np.allclose(learned.task_coef_ @ learned.components_, drawn.public_coef, atol=0.02)


def test_constant_features_take_no_part():
    drawn = shared_subspace(2000, 1, n_features=6, n_components=2, seed=9)
    X = np.column_stack([drawn.public.X, np.full(2000, 4.0)])
    learned = PublicSubspace(2).fit(Public(X, drawn.public.y, tasks=drawn.public.tasks))
    assert np.all(learned.components_[:, -1] == 0)
    assert subspace_distance(learned.components_[:, :-1].T, drawn.basis) < 0.3


def test_tasks_of_one_row_count_only_without_intercepts():
    drawn = shared_subspace(3000, 1, n_features=6, n_components=2, n_tasks=50, seed=10)
    X, y = drawn.public.X.copy(), drawn.public.y.copy()
    names = np.append(drawn.public.tasks[:-100], 1000 + np.arange(100))
    for intercept in (True, False):
        learned = PublicSubspace(2, fit_intercept=intercept).fit(Public(X, y, tasks=names))
        assert len(learned.task_coef_) == (50 if intercept else 150)
        assert subspace_distance(learned.components_.T, drawn.basis) < 0.2


def public_of(n_tasks, rows_each=20, n_features=4, labels=None):
    random = np.random.default_rng(12)
    n = n_tasks * rows_each
    y = random.standard_normal(n) if labels is None else np.full(n, labels)
    return Public(random.standard_normal((n, n_features)), y, tasks=np.repeat(np.arange(n_tasks), rows_each))


@pytest.mark.parametrize(
    ("public", "params", "words"),
    [
        (public_of(3), {"n_components": 4}, "at most the number of public tasks"),
        (public_of(9), {"n_components": 5}, "at most the number of features"),
        (public_of(1), {}, "at least 2 tasks"),
        (public_of(6, rows_each=1), {}, "single row"),
        (public_of(6, labels=3.0), {}, "do not vary"),
        (public_of(6), {"n_components": 0}, "n_components must be a whole number"),
        (public_of(6), {"method": "pca"}, "method must be one of"),
        (Public(np.ones((9, 2)), np.arange(9.0), tasks=np.arange(9) % 3), {}, "constant in public"),
        (Public(np.eye(6), np.arange(6.0)), {}, "has no tasks"),
        (Public(np.eye(6), tasks=[0, 0, 0, 1, 1, 1]), {}, "has no y"),
        (Public(np.eye(6), ["a"] * 6, tasks=[0, 0, 0, 1, 1, 1]), {}, "public y must hold numbers"),
        (Public(np.eye(6), np.arange(6.0), tasks=np.eye(6)), {}, "one name or number per row"),
    ],
)
def test_public_data_that_gives_no_subspace_is_refused(public, params, words):
    with pytest.raises(ValueError, match=words):
        PublicSubspace(**params).fit(public)


def test_arrays_that_are_not_declared_public_are_refused():
    with pytest.raises(TypeError, match=r"Public\(X, y, tasks=tasks\)"):
        PublicSubspace().fit(np.eye(3))


def test_rows_are_projected_in_a_pipeline():
    drawn = shared_subspace(2000, 50, n_features=6, n_components=2, seed=13)
    learned = PublicSubspace(2).fit(drawn.public)
    assert np.allclose(learned.transform(drawn.X), drawn.X @ learned.components_.T)
    assert np.allclose(learned.components_ @ learned.components_.T, np.eye(2))
    with pytest.raises(ValueError, match="features"):
        learned.transform(drawn.X[:, :3])


@pytest.mark.parametrize("name", [None, float("nan"), pd.NA, pd.NaT, Decimal("sNaN")])
def test_every_row_needs_a_task(name):
    X, tasks = np.random.default_rng(0).standard_normal((60, 3)), (np.arange(60) % 4).astype(object)
    tasks[3] = name
    with pytest.raises(ValueError, match="known for every row"):
        PublicSubspace().fit(Public(X, X[:, 0], tasks=tasks))
