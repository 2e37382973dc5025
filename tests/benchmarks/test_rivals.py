"""The baselines that protect nothing are what they claim to be; the solver of paper 5 is close to ours."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from benchmarks.adaptation.nonprivate import BASELINES, baseline, best_of
from benchmarks.rivals.adaptation import (
    AlphaMixture,
    DiscrepancyMinimization,
    KernelMeanMatching,
    KernelMeanMatchingClassifier,
    SBest,
    SBestClassifier,
    kernel_mean_weights,
    median_distance,
    sbest_grid,
    weighted_logistic,
)
from benchmarks.rivals.clustering import accelerated_k_medoids, public_prior
from benchmarks.theory.adaptation_problems import huber_objective
from dpadapt import Public
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, nearest, non_private

every_open = pytest.mark.parametrize(
    "entry", [entry for entry in BASELINES if not entry.private], ids=lambda entry: f"{entry.name}-{entry.task}"
)


def samples(task, seed=0, m=120, n=50):
    random = np.random.default_rng(seed)
    X_source, X = random.normal(size=(m, 3)), random.normal(size=(n, 3)) + 0.5
    y_source, y = X_source @ [1.0, 0.3, 0.1], X @ [1.0, 0.0, 0.2]
    y_source, y = y_source + 0.1 * random.normal(size=m), y + 0.1 * random.normal(size=n)
    if task == "classification":
        return X, np.where(y > 0, "yes", "no"), Public(X_source, np.where(y_source > 0, "yes", "no"))
    return X, y, Public(X_source, y_source)


@every_open
@pytest.mark.parametrize("public_too", [True, False])
def test_constant_columns_and_fewer_rows_than_columns_are_handled(entry, public_too):
    random = np.random.default_rng(1)
    X, X_source = random.normal(size=(12, 20)), random.normal(size=(15, 20))
    X[:, 3] = 7.0
    X_source[:, 4] = 7.0
    if public_too:
        X_source[:, 3] = 7.0
    y, y_source = X[:, 0], X_source[:, 0]
    if entry.task == "classification":
        y, y_source = y > 0, y_source > 0
    model = entry.estimator().fit(X, y, public=Public(X_source, y_source))
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


@every_open
def test_one_class_or_one_value_in_the_target_is_handled(entry):
    X, y, public = samples(entry.task)
    same = np.full(len(y), y[0])
    model = entry.estimator().fit(X, same, public=public)
    assert len(model.predict(X)) == len(X)
    if entry.task == "classification":
        assert list(model.classes_) == ["no", "yes"]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_mixture_minimises_the_mixed_error(alpha):
    X, y, public = samples("regression")
    weights = np.concatenate([np.full(120, alpha / 120), np.full(50, (1 - alpha) / 50)])
    rows, labels = np.vstack([public.X, X]), np.concatenate([public.y, y])
    oracle = LinearRegression().fit(rows, labels, sample_weight=weights)
    model = AlphaMixture(alpha, ridge=1e-9).fit(X, y, public=public)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.intercept_, abs=1e-6)


def test_best_of_picks_by_validation_rows():
    X, y, public = samples("regression")
    X_validation, y_validation, _ = samples("regression", seed=5)
    candidates = [AlphaMixture(alpha) for alpha in (1.0, 0.5, 0.0)]
    best = best_of(candidates, X, y, X_validation=X_validation, y_validation=y_validation, public=public)
    scores = [clone(c).fit(X, y, public=public).score(X_validation, y_validation) for c in candidates]
    assert best.alpha == candidates[int(np.argmax(scores))].alpha
    with pytest.raises(ValueError, match="candidates"):
        best_of([], X, y, X_validation=X, y_validation=y)


def test_table_of_baselines_names_each_once():
    assert len({(entry.name, entry.task) for entry in BASELINES}) == len(BASELINES)
    for entry in BASELINES:
        assert entry.private == ("epsilon" in entry.estimator().get_params())
    with pytest.raises(ValueError, match="KMM"):
        baseline("no such thing")


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


def test_a_high_price_on_leaving_the_mixture_gives_the_mixture():
    X, y, public = two_columns()
    plain = AlphaMixture(0.4, ridge=1e-9).fit(X, y, public=public)
    for form in ("original", "convex"):
        model = SBest(0.4, lambda1=1e6, form=form).fit(X, y, public=public)
        assert model.coef_ == pytest.approx(plain.coef_, abs=1e-5)
        assert model.intercept_ == pytest.approx(plain.intercept_, abs=1e-5)


def test_rows_with_wrong_labels_are_left_out():
    X, y, public = two_columns(wrong=12)
    model = SBest(0.7, lambda1=1.0, discrepancy=0.0).fit(X, y, public=public)
    assert model.coef_ == pytest.approx([1.0, -0.5], abs=0.1)
    assert np.abs(AlphaMixture(0.7).fit(X, y, public=public).coef_ - [1.0, -0.5]).max() > 0.3


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


def test_grid_always_holds_the_target_alone():
    assert any(candidate.alpha == 0.0 for candidate in sbest_grid(alphas=(0.5,)))
    random = np.random.default_rng(0)
    X, y, _ = two_columns(n=60)
    X_source = random.normal(size=(300, 2))
    harmful = Public(X_source, X_source @ [-1.0, 2.0])
    best = best_of(sbest_grid(), X[:40], y[:40], X_validation=X[40:], y_validation=y[40:], public=harmful)
    alone = AlphaMixture(0.0).fit(X[:40], y[:40])
    assert best.score(X[40:], y[40:]) >= alone.score(X[40:], y[40:]) - 1e-3


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


def test_kernel_weights_stay_in_a_tight_band():
    # The target is far off: without the band the weights would vanish.
    source, target = np.zeros((9, 1)), np.full((5, 1), 50.0)
    weights = kernel_mean_weights(source, target, bandwidth=1.0)
    assert weights.sum() == pytest.approx(9 * (1 - 2 / 3))


def test_kernel_weights_agree_with_skada():
    reweight = pytest.importorskip("skada._reweight", reason="skada is not installed (extra bench)")
    source, target, value, _ = kernel_problem(1, m=150)
    theirs = reweight.KMMReweightAdapter(kernel="rbf", gamma=1 / (2 * 1.5**2), max_iter=5000)
    theirs.fit(np.vstack([source, target]), sample_domain=np.repeat([1, -2], [150, 25]))
    ours = kernel_mean_weights(source, target, bandwidth=1.5)
    assert value(ours) <= value(np.ravel(theirs.source_weights_)) + 1e-3 * abs(value(ours))


def test_median_distance_is_that_of_all_pairs():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    apart = [np.linalg.norm(a - b) for i, a in enumerate(rows) for b in rows[:i]]
    assert median_distance(rows) == pytest.approx(np.median(apart))
    assert median_distance(np.ones((5, 2))) == 1.0


def shifted(seed=0, m=400, n=80):
    """A curved relation that is the same in source and target; the target lies to one side."""
    random = np.random.default_rng(seed)
    X_source, X = random.uniform(-2, 2, (m, 2)), random.uniform(1, 2, (n, 2))
    curve = lambda X: X[:, 0] ** 2 + X[:, 1]  # noqa: E731
    return X, curve(X), Public(X_source, curve(X_source))


@pytest.mark.parametrize("estimator", [KernelMeanMatching(), DiscrepancyMinimization()])
def test_matching_helps_where_only_the_features_shift(estimator):
    X, y, public = shifted()
    error = lambda model: np.mean((model.predict(X) - y) ** 2)  # noqa: E731
    source_alone = AlphaMixture(1.0).fit(X, y, public=public)
    assert error(estimator.fit(X, y, public=public)) < 0.5 * error(source_alone)


def test_kernel_matching_classifies():
    random = np.random.default_rng(0)
    X_source, X = random.uniform(-2, 2, (400, 2)), random.uniform(0, 2, (80, 2))
    labels = lambda X: np.where(np.abs(X[:, 0]) > 1, "far", "near")  # noqa: E731
    model = KernelMeanMatchingClassifier().fit(X, labels(X), public=Public(X_source, labels(X_source)))
    assert model.score(X, labels(X)) > 0.85
    assert list(model.classes_) == ["far", "near"]


def test_a_long_source_is_thinned_evenly():
    X, y, public = shifted(m=400)
    few = Public(public.X[np.linspace(0, 399, 100).astype(int)], public.y[np.linspace(0, 399, 100).astype(int)])
    thinned = KernelMeanMatching(2.0, max_rows=100).fit(X, y, public=public)
    # Not to the last digit: columns are standardised by all rows.
    assert thinned.coef_ == pytest.approx(KernelMeanMatching(2.0).fit(X, y, public=few).coef_, rel=0.1)
    assert KernelMeanMatching(2.0).fit(X, y, public=public).coef_ != pytest.approx(thinned.coef_, rel=1e-6)


@pytest.mark.parametrize("params", [{"bandwidth": 0.0}, {"largest": 0.5}, {"max_rows": 1}, {"ridge": -1.0}])
def test_bad_matching_parameters_are_named(params):
    X, y, public = shifted()
    with pytest.raises(ValueError, match=next(iter(params))):
        KernelMeanMatching(**params).fit(X, y, public=public)
    with pytest.raises(ValueError, match="tolerance"):
        DiscrepancyMinimization(tolerance=0.0).fit(X, y, public=public)


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    T = middles[random.integers(4, size=300)] + 0.05 * random.normal(size=(300, 2))
    S = middles[random.integers(2, size=3000)] + 0.05 * random.normal(size=(3000, 2))
    return S, T


def cost(S, T, chosen):
    return np.minimum(nearest(T, S)[1], nearest(T, T[chosen])[1]).mean()


def test_exact_sources_halve_the_cost_and_no_public_prior_does_better(pair):
    S, T = pair
    assert cost(S, T, non_private(S, T, 2)) < 0.5 * cost(S, T, cluster_t(T, 2))
    assert cost(S, T, public_prior(T, 2)) >= cost(S, T, non_private(S, T, 2))
    assert np.array_equal(public_prior(T, 5, factor=1e9), cluster_t(T, 5))


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


def test_weighted_logistic_never_predicts_a_class_without_rows():
    random = np.random.default_rng(0)
    Z = random.normal(size=(40, 2))
    codes = (Z[:, 0] > 0).astype(np.int64) * 2  # classes 0 and 2 of three
    coef, intercept = weighted_logistic(Z, codes, np.ones(40), 1e-3, 3)
    scores = Z @ coef.T + intercept
    assert np.mean(scores.argmax(axis=1) == codes) > 0.9
    assert (scores[:, 1] < scores.max(axis=1) - 100).all()
    only, level = weighted_logistic(Z, np.ones(40, np.int64), np.ones(40), 1e-3, 3)
    assert ((Z @ only.T + level).argmax(axis=1) == 1).all()
