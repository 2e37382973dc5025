import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpadapt.learning.preparation import declared_geometry, public_classifier, public_geometry, ridge_by_leave_one_out

random = np.random.default_rng(5)
X = random.standard_normal((300, 4)) @ random.standard_normal((4, 4)) + [5.0, 0.0, -3.0, 100.0]


def test_public_rows_come_out_white():
    Z = public_geometry(X).transform(X)
    second = Z.T @ Z / len(Z)
    assert np.allclose(second, np.diag(np.diag(second)), atol=1e-8)
    assert np.all(np.diag(second) <= 1.0 + 1e-9)
    assert np.diag(second).max() > 0.95


@pytest.mark.parametrize("geometry", [public_geometry(X), declared_geometry(4)], ids=["public", "declared"])
def test_coefficients_undo_the_transform(geometry):
    solution = random.standard_normal(5)
    coef, intercept = geometry.coefficients(solution)
    assert np.allclose(X @ coef + intercept, geometry.transform(X) @ solution)
    extended = random.standard_normal(5)
    assert np.allclose(geometry.extend(X) @ extended, geometry.transform(X) @ geometry.solution_for(extended))


def test_columns_that_are_constant_in_public_are_left_out():
    flat = np.column_stack([X, np.full(300, 7.0)])
    geometry = public_geometry(flat)
    moved = flat.copy()
    moved[:, -1] = 1000.0
    assert np.array_equal(geometry.transform(moved), geometry.transform(flat))
    coef, intercept = geometry.coefficients(random.standard_normal(6))
    assert coef[-1] == 0.0
    assert np.isfinite(intercept)


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
