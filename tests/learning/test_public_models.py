import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpadapt.learning.public_models import best_by_cross_validation, public_classifier, ridge_by_leave_one_out
from dpadapt.learning.scaling import public_geometry

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
