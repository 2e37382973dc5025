import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpadapt.data import Public
from dpadapt.learning.preparation import (
    Remembered,
    best_by_cross_validation,
    centre_and_scale,
    declared_geometry,
    label_spread,
    public_classifier,
    public_geometry,
    ridge_by_leave_one_out,
    shrunk_spectrum,
)

random = np.random.default_rng(5)
X = random.standard_normal((300, 4)) @ random.standard_normal((4, 4)) + [5.0, 0.0, -3.0, 100.0]


def test_transformed_public_rows_are_white():
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


def _values(n, p, variances, seed=3):
    rows = np.random.default_rng(seed).standard_normal((n, p)) * np.sqrt(variances)
    return np.maximum(np.linalg.eigvalsh(rows.T @ rows / n), 0.0)


@pytest.mark.parametrize(("n", "p"), [(300, 200), (120, 200)])
def test_the_corrected_spectrum_of_isotropic_rows_is_flat(n, p):
    values = _values(n, p, np.ones(p))
    shrunk = shrunk_spectrum(values, n)
    assert np.all(np.diff(shrunk) >= 0)
    assert np.mean((shrunk - 1) ** 2) < 0.1 * np.mean((values - 1) ** 2)


def test_exactly_dependent_columns_do_not_change_the_other_variances():
    values = _values(300, 200, np.ones(200))
    with_null = shrunk_spectrum(np.concatenate([[0.0, 0.0], values]), 300)
    assert with_null[:2] == pytest.approx([0.0, 0.0])
    assert with_null[2:] == pytest.approx(shrunk_spectrum(values, 300))


def test_the_spectrum_of_many_rows_is_not_corrected():
    values = _values(1000, 5, np.arange(1, 6))
    assert np.array_equal(shrunk_spectrum(values, 1000), values)


def test_constant_columns_get_an_infinite_scale():
    X = np.column_stack([np.arange(4.0), np.full(4, 7.0), np.full(4, 1e6) + 1e-9 * np.arange(4)])
    center, scale = centre_and_scale(X)
    assert center == pytest.approx([1.5, 7.0, 1e6])
    assert np.isinf(scale).tolist() == [False, True, True]


def test_cross_validation_starts_each_fit_from_the_one_before_and_returns_the_best():
    folds = [(np.array([0, 1]), np.array([2])), (np.array([2]), np.array([0, 1]))]
    starts = []

    def fit(train, setting, start):
        starts.append(start.tolist())
        return start + setting

    best = best_by_cross_validation(folds, (1.0, 2.0), fit, lambda test, coef: abs(coef[0] - 3.0), np.zeros(1))
    assert best == 2.0
    assert starts == [[0.0], [1.0], [0.0], [1.0]]


def test_a_preparation_is_made_again_when_the_content_changes():
    memory, made, X = Remembered(), [], np.zeros((2, 2))
    public = Public(X)
    for _ in range(2):
        memory.get(public, [X], lambda: made.append(1))
    X[0, 0] = 1.0
    memory.get(public, [X, None], lambda: made.append(1))
    assert len(made) == 2


@pytest.mark.parametrize("tiny", [5e-324, 1e-200, 1e200, 1.7e308])
def test_no_float_setting_makes_an_extreme_row_visible(tiny):
    rows = np.vstack([X, np.full(4, tiny)])
    with np.errstate(all="raise"):
        for geometry in (public_geometry(X), declared_geometry(4)):
            geometry.transform(rows)


def test_the_spread_of_labels_is_their_deviation_in_any_unit():
    labels = random.standard_normal(50)
    for unit in (1e-100, 1.0, 1e50):
        assert label_spread(labels * unit) == pytest.approx(labels.std() * unit)
    assert label_spread(np.full(7, -0.3)) == 1.0
