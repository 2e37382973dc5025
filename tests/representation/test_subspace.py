"""Subspaces of tasks: distances, estimators, dimension, the prior of a task, and what `PublicSubspace` refuses."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from benchmarks.data.synthetic import shared_subspace
from dpadapt import Public
from dpadapt.representation import PublicSubspace, subspace_distance, task_diversity
from dpadapt.representation.subspace import (
    by_task,
    choose_dimension,
    fit_loadings,
    label_moment,
    leading_eigenvectors,
    log_likelihood,
    pack,
    pair_moment,
    task_model,
    task_prior,
    whitened_scale,
)

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


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 1.2, np.pi / 2])
def test_distance_is_the_sine_of_the_largest_angle(angle):
    first = np.eye(5)[:, :2]
    second = first.copy()
    second[:, 1] = [0, np.cos(angle), 0, np.sin(angle), 0]
    assert subspace_distance(first, second) == pytest.approx(np.sin(angle), rel=1e-6, abs=1e-12)


def test_distance_depends_on_spans_not_on_columns():
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, 8, 3))
    turned = first @ random.standard_normal((3, 3))
    assert subspace_distance(first, turned) < 1e-9
    assert subspace_distance(turned, second) == pytest.approx(subspace_distance(first, second))
    assert subspace_distance(first, second) == pytest.approx(subspace_distance(second, first))
    assert subspace_distance(first[:, :1], first) < 1e-9


def test_lemma_5_1_brackets_the_distance():
    random = np.random.default_rng(1)
    B, other = (np.linalg.qr(random.standard_normal((9, 4)))[0] for _ in range(2))
    frobenius = np.linalg.norm(B - other @ (other.T @ B))
    assert frobenius / np.sqrt(4) <= subspace_distance(B, other) <= frobenius


@pytest.mark.parametrize(
    ("bad", "words"),
    [([1.0, 2.0], "shape"), ([[1.0, 2.0], [1.0, 2.0]], "independent"), ([[np.nan], [1.0]], "finite")],
)
def test_columns_that_span_no_subspace_are_refused(bad, words):
    with pytest.raises(ValueError, match=f"first must.*{words}|first must be {words}"):
        subspace_distance(bad, [[1.0], [0.0]])


def test_subspaces_of_different_spaces_are_refused():
    with pytest.raises(ValueError, match="same number of rows"):
        subspace_distance(np.eye(3)[:, :1], np.eye(4)[:, :1])


def test_diversity_follows_from_the_tasks_second_moment():
    tasks = np.random.default_rng(2).standard_normal((500, 3)) * [2.0, 1.0, 0.5]
    values = np.linalg.eigvalsh(tasks.T @ tasks / 500)
    diversity = task_diversity(tasks)
    assert diversity.weakest == pytest.approx(values[0])
    assert diversity.average_condition == pytest.approx(values.mean() / values[0])
    assert diversity.worst_condition == pytest.approx(values[-1] / values[0])


def test_tasks_that_miss_a_direction_have_no_diversity():
    diversity = task_diversity([[1.0, 0.0], [2.0, 0.0]])
    assert diversity.weakest == 0.0
    assert diversity.worst_condition == np.inf


def test_em_raises_the_likelihood_and_a_fixed_fit_keeps_its_span():
    drawn = shared_subspace(3000, 1, n_features=10, n_components=2, seed=5)
    tasks = by_task(drawn.public.X, drawn.public.y, drawn.public.tasks, centred=False)
    start = leading_eigenvectors(pair_moment(tasks), 2)
    fitted = fit_loadings(pack(tasks), start)
    fixed = fit_loadings(pack(tasks), start, fixed=True)
    assert fitted.log_likelihood > fixed.log_likelihood
    assert subspace_distance(fixed.loading, start) < 1e-8


def test_packed_tasks_have_the_likelihood_of_their_rows():
    """Compared with the density of the labels under their explicit covariance matrix."""
    from scipy.stats import multivariate_normal

    random = np.random.default_rng(6)
    rows, y, names = random.standard_normal((60, 3)), random.standard_normal(60), np.repeat([0, 1, 2], [2, 8, 50])
    loading, noise = random.standard_normal((3, 2)), 0.7
    whole = 0.0
    for task in range(3):
        mine = rows[names == task]
        covariance = noise * np.eye(len(mine)) + mine @ loading @ loading.T @ mine.T
        whole += multivariate_normal(np.zeros(len(mine)), covariance).logpdf(y[names == task])
    tasks = by_task(rows, y, names, centred=False)
    assert pack(tasks).rows.shape == (3, 4, 3)
    assert log_likelihood(pack(tasks), loading, noise) == pytest.approx(whole, rel=1e-9)


def test_pair_moment_is_an_unbiased_estimate_of_the_tasks_moment():
    drawn = shared_subspace(400_000, 1, n_features=6, n_components=2, n_tasks=20, seed=7)
    tasks = by_task(drawn.public.X, drawn.public.y, drawn.public.tasks, centred=False)
    moment = drawn.public_coef.T @ drawn.public_coef / 20
    assert np.allclose(pair_moment(tasks), moment, atol=0.01)


def test_whitened_rows_have_second_moment_one_and_constant_features_are_zero():
    random = np.random.default_rng(8)
    X = random.standard_normal((5000, 4)) @ (np.eye(4) + 0.3) * [1.0, 10.0, 1.0, 0.01] + 3
    X[:, 2] = 5.0
    scale = whitened_scale(X, centred=True)
    Z = scale.transform(X)
    moment = Z.T @ Z / len(Z)
    kept = [0, 1, 3]
    # Up to the floor under small variances.
    assert np.allclose(moment[np.ix_(kept, kept)], np.eye(3), atol=0.05)
    assert np.allclose(Z[:, 2], 0.0)
    assert np.allclose(scale.raw(np.ones(4))[2], 0.0)


def test_label_moment_is_the_identity_plus_twice_the_tasks_moment_up_to_scale():
    drawn = shared_subspace(400_000, 1, n_features=6, n_components=2, n_tasks=20, seed=7)
    moment = drawn.public_coef.T @ drawn.public_coef / 20
    # Isserlis: E y² x x' = (noise + |β|²) 1 + 2 β β' for normal rows; tasks have length 1 and the noise variance 1.
    expected = 2.0 * np.eye(6) + 2 * moment
    assert np.allclose(label_moment(drawn.public.X, drawn.public.y), expected, atol=0.05)


def test_rows_are_sorted_by_task_and_centred_within_it():
    rows, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    tasks = by_task(rows, y, np.array(["b", "a", "b", "a", "b", "c"]), centred=True)
    assert tasks.counts.tolist() == [2, 3, 1]
    assert tasks.codes.tolist() == [0, 0, 1, 1, 1, 2]
    assert tasks.y_mean.tolist() == [2.0, 2.0, 5.0]
    assert tasks.y.tolist() == [-1.0, 1.0, -2.0, 0.0, 2.0, 0.0]
    kept = tasks.take(np.array([False, True, True]))
    assert kept.codes.tolist() == [0, 0, 0, 1]
    assert kept.row_mean.tolist() == [[4.0, 5.0], [10.0, 11.0]]


def test_the_dimension_is_chosen_by_cross_validation():
    assert PublicSubspace().fit(shared_subspace(5000, 1, seed=1).public).n_components_ == 5
    assert PublicSubspace().fit(shared_subspace(3000, 1, n_components=2, seed=2).public).n_components_ == 2


def test_the_dimension_is_at_most_the_number_of_tasks_that_a_fold_leaves():
    random = np.random.default_rng(0)
    tasks = by_task(random.standard_normal((200, 6)), random.standard_normal(200), np.arange(200) % 2, centred=False)
    assert choose_dimension(tasks, "em") == 1


@pytest.fixture(scope="module")
def drawn():
    return shared_subspace(5000, 1, n_features=8, n_components=2, noise=1.0, seed=1)


def learned(drawn, **params):
    return task_model(drawn.public.X, drawn.public, **{"method": "em", "k": 2, "intercept": False, **params})


def test_the_model_has_the_tasks_coefficients_and_the_noise(drawn):
    model = learned(drawn)
    assert subspace_distance(model.basis, drawn.basis) < 0.2
    assert np.allclose(model.basis.T @ model.basis, np.eye(2))
    assert model.noise == pytest.approx(1.0, abs=0.1)
    assert np.mean(model.residuals**2) == pytest.approx(model.noise)
    assert model.variance.sum() == pytest.approx(1.0, abs=0.15)  # tasks have length 1


def test_a_given_subspace_is_kept_and_has_nothing_outside(drawn):
    model = learned(drawn, basis=drawn.basis)
    assert subspace_distance(model.scale.raw(model.basis), drawn.basis) < 1e-9
    assert model.outside == 0.0
    assert learned(drawn).outside > 0.0


def test_a_soft_prior_covers_all_directions_and_a_hard_one_the_subspace(drawn):
    model = learned(drawn)
    soft, hard = (task_prior(model, intercept=False, soft=soft) for soft in (True, False))
    assert soft.turn.shape == (8, 8)
    assert np.allclose(soft.turn.T @ soft.turn, np.eye(8))
    assert soft.blocks == (slice(0, 2), slice(2, 8))
    assert np.all(soft.variance[2:] == model.outside)
    assert hard.turn.shape == (8, 2)
    assert np.array_equal(hard.variance, soft.variance[:2])


def test_coefficients_of_the_prior_predict_like_its_rows():
    random = np.random.default_rng(2)
    drawn = shared_subspace(3000, 1, n_features=5, n_components=2, seed=3)
    public = type(drawn.public)(drawn.public.X * [1, 10, 0.1, 1, 1] + 3, drawn.public.y + 7, tasks=drawn.public.tasks)
    model = task_model(public.X, public, method="em", k=2, intercept=True)
    prior = task_prior(model, intercept=True, soft=True)
    solution, X = random.standard_normal(6), random.standard_normal((20, 5))
    coef, intercept = prior.coefficients(solution)
    assert np.allclose(X @ coef + intercept, prior.rows(X) @ solution)
    # A centred task's intercept is its mean label at the centre of the rows.
    assert prior.mean[-1] == pytest.approx(7.0, abs=0.5)
    assert prior.blocks[-1] == slice(5, 6)
