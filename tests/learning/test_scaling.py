import numpy as np
import pytest

from dpadapt.learning.scaling import Scaling, declared_geometry, label_spread, public_geometry

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


def test_constant_columns_get_an_infinite_scale():
    X = np.column_stack([np.arange(4.0), np.full(4, 7.0), np.full(4, 1e6) + 1e-9 * np.arange(4)])
    scaling = Scaling.of(X)
    assert scaling.center == pytest.approx([1.5, 7.0, 1e6])
    assert np.isinf(scaling.scale).tolist() == [False, True, True]


def test_scaled_rows_keep_their_precision_and_coefficients_are_undone():
    scaling = Scaling.of(X)
    coef, intercept = scaling.raw(random.standard_normal((4, 2)), np.zeros(2))
    assert np.allclose(X @ coef + intercept, scaling.scaled(X) @ (coef.T * scaling.scale).T)
    assert scaling.scaled(X.astype(np.float32)).dtype == np.float32


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
