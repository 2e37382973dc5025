"""`SBest`: problem (5) against enumeration, problem (6) against its Huber form, outliers, and what the grid holds."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.adaptation.nonprivate import best_of
from dpadapt import Public
from dpadapt.papers.adaptation.problem import huber_objective
from dpadapt.papers.adaptation.sbest import SBest, SBestClassifier, sbest_grid
from dpadapt.papers.adaptation.unprotected import AlphaMixture


def samples(seed=0, m=60, n=25, wrong=0):
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
    X, y, public = samples()
    plain = AlphaMixture(0.4, ridge=1e-9).fit(X, y, public=public)
    for form in ("original", "convex"):
        model = SBest(0.4, lambda1=1e6, form=form).fit(X, y, public=public)
        assert model.coef_ == pytest.approx(plain.coef_, abs=1e-5)
        assert model.intercept_ == pytest.approx(plain.intercept_, abs=1e-5)


def test_rows_with_wrong_labels_are_left_out():
    X, y, public = samples(wrong=12)
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
    X, y, public = samples(wrong=6)
    rows, labels = scaled(X, y, public)
    p = np.concatenate([np.full(60, 0.5 / 60), np.full(25, 0.5 / 25)])
    extra = np.where(np.arange(85) < 60, 0.02, 0.0)
    value = lambda w: huber_objective(rows @ w - labels, extra, p, 0.3)  # noqa: E731
    oracle = minimize(value, np.zeros(3), tol=1e-14)
    model = SBest(0.5, lambda1=0.3, discrepancy=0.02, form="convex").fit(X, y, public=public)
    everything = np.concatenate([public.y, y])
    predicted = (model.predict(np.vstack([public.X, X])) - everything.mean()) / everything.std()
    assert predicted == pytest.approx(rows @ oracle.x, abs=1e-4)


def test_a_large_discrepancy_drops_the_source():
    X, y, public = samples()
    model = SBest(0.5, lambda1=1.0, discrepancy=5.0).fit(X, y, public=public)
    assert model.coef_ == pytest.approx(AlphaMixture(0.0, ridge=1e-9).fit(X, y).coef_, abs=1e-5)


def test_grid_always_holds_the_target_alone():
    assert any(candidate.alpha == 0.0 for candidate in sbest_grid(alphas=(0.5,)))
    random = np.random.default_rng(0)
    X, y, _ = samples(n=60)
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


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"alpha": 2.0}, "alpha"),
        ({"lambda1": -1.0}, "one"),
        ({"radius": 0.0}, "radius"),
        ({"discrepancy": -1.0}, "discrepancy"),
        ({"form": "other"}, "form"),
    ],
)
def test_bad_parameters_are_named(params, name):
    X, y, public = samples()
    with pytest.raises(ValueError, match=name):
        SBest(**params).fit(X, y, public=public)
