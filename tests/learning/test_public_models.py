import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from dpadapt.learning import public_models as module
from dpadapt.learning.losses import softmax
from dpadapt.learning.public_models import (
    best_by_cross_validation,
    cross_fitted_softmax,
    public_classifier,
    public_softmax,
    ridge_by_leave_one_out,
    whitening,
)
from dpadapt.learning.scaling import WHITENING_FLOOR, public_geometry
from dpadapt.transfer.base import mixed_units

random = np.random.default_rng(5)
X = random.standard_normal((300, 4)) @ random.standard_normal((4, 4)) + [5.0, 0.0, -3.0, 100.0]


def test_leave_one_out_residuals_equal_those_of_refitting():
    Z = public_geometry(X[:40]).transform(X[:40])
    y = X[:40, 0] + random.standard_normal(40)
    model = ridge_by_leave_one_out(Z, y)
    for i in (0, 17):
        keep = np.arange(40) != i
        gram = Z[keep].T @ Z[keep] / 40 + model.ridge * np.eye(Z.shape[1])
        refit = np.linalg.solve(gram, Z[keep].T @ y[keep] / 40)
        assert y[i] - Z[i] @ refit == pytest.approx(model.residuals[i], rel=1e-6)


def test_public_classifier_agrees_with_scikit_learn():
    Z = public_geometry(X).extend(X)
    y = (Z[:, 0] + 0.5 * random.standard_normal(300) > 0).astype(int)
    ours = Z @ public_classifier(Z, y, 1)[:, 0]
    theirs = LogisticRegression(C=1.0).fit(Z, y).decision_function(Z)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.98
    assert np.mean((ours > 0) == (theirs > 0)) > 0.97


def test_public_classifier_allows_a_class_without_rows():
    Z = public_geometry(X).extend(X)
    y = (Z[:, 0] > 0).astype(int)  # class 2 never occurs
    scores = Z @ public_classifier(Z, y, 3)
    assert np.isfinite(scores).all()
    assert np.mean(scores.argmax(axis=1) == 2) < 0.02


def test_cross_validation_starts_each_fit_from_the_one_before_and_returns_the_best():
    folds = [(np.array([0, 1]), np.array([2])), (np.array([2]), np.array([0, 1]))]
    starts = []

    def fit(train, setting, start):
        starts.append(start.tolist())
        return start + setting

    best = best_by_cross_validation(folds, (1.0, 2.0), fit, lambda test, coef: abs(coef[0] - 3.0), np.zeros(1))
    assert best == 2.0
    assert starts == [[0.0], [1.0], [0.0], [1.0]]


def _folds(n, n_folds=4):
    return list(KFold(n_folds, shuffle=True, random_state=0).split(np.zeros(n)))


def _centred(n, scales):
    rows = random.standard_normal((n, len(scales))) * np.asarray(scales)
    return rows - rows.mean(axis=0)


def test_whitened_directions_have_unit_variance_and_no_correlation():
    rows = _centred(500, [1.0, 2.0, 1.5, 1.0]) @ random.standard_normal((4, 4))
    basis, shares = whitening(rows)
    values = np.linalg.eigvalsh(rows.T @ rows / 500)[::-1]
    covariance = (rows @ basis).T @ (rows @ basis) / 500
    # The floor takes a little from directions of small variance.
    assert np.allclose(np.diag(covariance), values / (values + WHITENING_FLOOR * values.mean()))
    assert np.allclose(covariance - np.diag(np.diag(covariance)), 0.0, atol=1e-10)
    assert np.allclose(shares, values / values.sum())
    assert np.all(np.diff(shares) <= 0)


def test_whitening_leaves_out_constant_and_collinear_columns():
    rows = _centred(300, [1.0, 0.0, 3.0])
    basis, shares = whitening(rows)
    assert basis.shape == (3, 2)
    assert np.allclose(basis[1], 0.0)
    assert shares.sum() == pytest.approx(1.0)
    collinear = np.column_stack([rows, rows[:, 0] + rows[:, 2]])
    basis, _ = whitening(collinear)
    assert basis.shape == (4, 2)
    assert np.abs(basis).max() < 10


def test_predictions_agree_with_logistic_regression():
    rows = random.standard_normal((2000, 4))
    codes = (rows @ [2.0, -1.0, 0.5, 0.0] + random.logistic(size=2000) > 0.3).astype(np.int64)
    coef, _ = cross_fitted_softmax(rows, codes, 2, _folds(2000))
    other = LogisticRegression(C=100.0).fit(rows, codes)
    difference = coef[:, 1] - coef[:, 0]
    assert np.allclose(difference, np.append(other.coef_[0], other.intercept_), atol=0.1)


def test_scores_do_not_remember_noise_labels_which_the_whole_model_does():
    rows = random.standard_normal((120, 60))
    codes = random.integers(0, 2, 120)
    coef, scores = cross_fitted_softmax(rows, codes, 2, _folds(120))
    whole = np.column_stack([rows, np.ones(120)]) @ coef
    signs = 2.0 * codes - 1.0
    assert np.corrcoef(whole[:, 1], signs)[0, 1] > 0.5
    # Without labels of their own, 120 correlations have a standard error of 0.09.
    assert np.corrcoef(scores[:, 1], signs)[0, 1] < 0.3
    assert np.abs(scores - whole).max() > 0.1


def test_scores_are_those_of_a_fit_from_zero_to_the_other_folds():
    # The search starts from the model of all rows, which knows the labels; it must not stay there.
    rows = random.standard_normal((120, 30))
    rows -= rows.mean(axis=0)
    codes = random.integers(0, 3, 120)
    folds = _folds(120)
    _, scores = cross_fitted_softmax(rows, codes, 3, folds)
    basis, shares = whitening(rows)
    whitened = np.column_stack([np.ones(120), rows @ basis])
    whole, total = public_softmax(whitened, codes, 3, shares)
    for train, test in folds:
        penalty = module._penalty(total, shares, len(train))
        part = module._fit_map(whitened[train], codes[train], penalty, np.zeros_like(whole), 1e-12)
        expected = whitened[test] @ (part - part.mean(axis=1, keepdims=True))
        moved = np.linalg.norm(expected - whitened[test] @ whole)
        assert np.linalg.norm(scores[test] - expected) < 0.05 * moved


def test_a_class_without_rows_becomes_improbable_and_stays_finite():
    rows = random.standard_normal((200, 3))
    codes = 2 * (rows[:, 0] > 0).astype(np.int64)  # class 1 of three has none
    coef, scores = cross_fitted_softmax(rows, codes, 3, _folds(200))
    assert np.isfinite(coef).all()
    assert np.isfinite(scores).all()
    probabilities = softmax(scores.copy())
    assert probabilities[:, 1].mean() < 0.05
    assert np.mean(np.argmax(probabilities, axis=1) == codes) > 0.9


def test_fewer_than_fifty_columns_or_one_of_a_large_scale_are_a_table():
    assert mixed_units(np.ones(49))
    assert not mixed_units(np.linspace(0.1, 1.0, 50))
    assert mixed_units(np.append(np.ones(50), 31.0))
    assert not mixed_units(np.append(np.ones(50), 29.0))
