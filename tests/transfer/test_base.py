"""The public models that a transfer starts from: robust scales, out-of-fold scores, the blend, saving."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dpadapt
from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, persist
from dpadapt.transfer import base as module
from dpadapt.transfer.base import (
    Base,
    LinearModel,
    blend_weights,
    classification_base,
    regression_base,
    robust_columns,
    tamed_labels,
    without_errors,
)
from dpadapt.transfer.boosting import BoostedModel
from tests.saved_models import members, rewrite


def _generator(seed=0):
    return np.random.default_rng(seed)


def _corrupted(values, seed=1, share=0.005):
    """Multiply half a percent of the cells by 1000 or -1000, at least one in each column."""
    draw = _generator(seed)
    bad = draw.random(values.shape) < share
    bad[draw.integers(len(values)), ...] = True
    return np.where(bad, values * 1000.0 * draw.choice([-1.0, 1.0], values.shape), values), bad


# Robust scales


@pytest.mark.parametrize("n_rows", [200, 600, 5000])
def test_bad_cells_change_centre_and_scale_little(n_rows):
    X = _generator().standard_normal((n_rows, 20)) * np.logspace(-2, 3, 20) + 5.0
    dirty, _ = _corrupted(X)
    clean, columns = robust_columns(X, 10.0), robust_columns(dirty, 10.0)
    assert np.all(np.abs(columns.center - clean.center) < 0.1 * clean.scale)
    assert np.all(np.abs(columns.scale / clean.scale - 1.0) < 0.15)
    assert np.all(dirty.std(axis=0) > 5.0 * clean.scale)  # plain standard deviations fail
    assert np.abs(columns.standardise(dirty)).max() <= 10.0


def test_scales_of_clean_columns_are_nearly_standard_deviations():
    X = _generator().standard_normal((3000, 5)) * [0.1, 1.0, 10.0, 1.0, 1e6] + [0.0, 1e3, 0.0, -2.0, 0.0]
    columns = robust_columns(X, 10.0)
    assert np.allclose(columns.scale / X.std(axis=0), 1.0, atol=0.05)
    assert np.all(np.abs(columns.center - X.mean(axis=0)) < 0.05 * X.std(axis=0))
    assert not columns.constant.any()


@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_rare_indicator_has_a_scale_and_no_row_becomes_long(count):
    X = _generator().standard_normal((1000, 2))
    X[:, 1] = np.arange(1000) < count
    columns = robust_columns(X, 10.0)
    assert not columns.constant[1]
    assert 0.0 < columns.scale[1] <= 1.0
    assert abs(columns.standardise(np.array([[0.0, 1.0]]))[0, 1]) <= module._RARE_VALUE + 1e-9
    assert columns.standardise(np.array([[0.0, 1.0]]))[0, 1] > 1.0
    assert abs(columns.standardise(np.array([[0.0, 0.0]]))[0, 1]) < 0.5


def test_a_constant_column_is_kept_with_one_unit():
    X = np.column_stack([_generator().standard_normal(500), np.full(500, 7.0)])
    columns = robust_columns(X, 10.0)
    assert columns.constant.tolist() == [False, True]
    assert (columns.center[1], columns.scale[1], columns.limit[1]) == (7.0, 1.0, 1.0)
    cells = columns.standardise(np.array([[0.0, 7.0], [0.0, 7.5], [0.0, 8.0], [0.0, 1e9], [0.0, -1e9]]))[:, 1]
    assert cells.tolist() == [0.0, 0.5, 1.0, 1.0, -1.0]


def test_public_rows_have_noise_in_constant_columns_alone():
    X = np.column_stack([_generator().standard_normal(4000), np.full(4000, 7.0), np.zeros(4000)])
    columns = robust_columns(X, 10.0)
    rows = columns.public_rows(X)
    assert np.array_equal(rows[:, 0], columns.standardise(X)[:, 0])
    assert rows[:, 1:].std(axis=0) == pytest.approx(0.3, rel=0.05)
    assert abs(np.corrcoef(rows[:, 1], rows[:, 2])[0, 1]) < 0.08
    assert np.array_equal(rows, columns.public_rows(X))  # the same noise at every call
    assert np.array_equal(columns.standardise(X)[:, 1], np.zeros(4000))


def test_rounding_errors_of_a_constant_column_are_no_scale():
    X = 0.1 * (1.0 + 1e-15 * _generator().integers(-3, 4, (400, 1)))
    columns = robust_columns(X, 10.0)
    assert columns.constant[0]
    assert np.abs(columns.standardise(X)).max() < 1e-10


def test_standardising_is_cell_by_cell_and_accepts_any_cell():
    X = _generator().standard_normal((100, 3))
    columns = robust_columns(X, 5.0)
    rows = columns.standardise(X)
    assert np.array_equal(columns.standardise(X[::-1]), rows[::-1])
    assert np.array_equal(columns.standardise(X[7:8]), rows[7:8])
    extreme = columns.standardise(np.array([[1e308, -1e308, np.inf]]))
    assert extreme.tolist() == [[5.0, -5.0, 5.0]]


@pytest.mark.parametrize("n_rows", [200, 600, 5000])
def test_bad_labels_are_clipped_and_the_others_stay(n_rows):
    y = 3.0 + _generator().standard_normal(n_rows)
    dirty, bad = _corrupted(y)
    tamed = tamed_labels(dirty)
    assert np.array_equal(tamed[~bad], y[~bad])
    assert np.abs(tamed - 3.0).max() < 10.0
    assert tamed.mean() == pytest.approx(y.mean(), abs=0.2)


def test_values_too_far_away_to_be_true_are_left_out():
    draw = _generator()
    X, y = draw.standard_normal((600, 3)), 3.0 + draw.standard_normal(600)
    X[:, 2] = 7.0
    X[0, 2] = 8.0  # a rare value of a constant column is no error
    dirty_X, dirty_y = X.copy(), y.copy()
    dirty_X[5, 1], dirty_y[9] = 1e3, -1e3
    rows, labels = without_errors(dirty_X, dirty_y, numeric=True)
    assert np.array_equal(labels, np.delete(y, 9))
    expected = np.delete(X, 9, axis=0)
    expected[5, 1] = np.median(dirty_X[:, 1])
    assert np.array_equal(rows, expected)
    codes = np.zeros(600, dtype=np.int64)
    codes[0] = 10_000
    assert np.array_equal(without_errors(dirty_X, codes, numeric=False)[1], codes)


def test_heavy_tails_are_no_errors():
    heavy = np.exp(2.0 * _generator().standard_normal((5000, 1)))
    assert heavy.max() > 5.0 * np.quantile(heavy, 0.99)
    rows, labels = without_errors(heavy, heavy[:, 0], numeric=True)
    assert np.array_equal(rows, heavy)
    assert np.array_equal(labels, heavy[:, 0])


def test_labels_that_are_bad_for_their_row_alone_are_clipped():
    draw = _generator()
    X = draw.standard_normal((600, 2))
    y = 10.0 * X[:, 0] + 0.1 * draw.standard_normal(600)
    bad = np.argsort(np.abs(np.abs(X[:, 0]) - 1.5))[:3]
    dirty = y.copy()
    dirty[bad] *= -1.0  # about 30 away from the truth, inside the range of all labels
    assert np.array_equal(tamed_labels(dirty), dirty)
    labels = regression_base(Public(X, dirty), X, dirty, "linear").labels
    assert np.abs(labels - y).max() < 5.0
    assert np.abs(np.delete(labels - y, bad)).max() < 1e-9


# Linear models


def test_leave_one_out_predictions_are_those_of_models_without_the_row():
    draw = _generator()
    X = draw.standard_normal((40, 3))
    y = X[:, 0] + draw.standard_normal(40)
    columns = robust_columns(X, 10.0)
    ridge = np.array([0.3])
    model, scores = module._ridge(columns, X, y, ridge, shorten=False)
    rows = model.rows(X)
    strength = 0.3 * np.linalg.eigvalsh(rows.T @ rows / 40).mean() * 40
    for left_out in (0, 17):
        kept = np.arange(40) != left_out
        gram = rows[kept].T @ rows[kept] + strength * np.eye(4)
        coef = np.linalg.solve(gram, rows[kept].T @ (y[kept] - y.mean()))
        assert scores[left_out] == pytest.approx(y.mean() + rows[left_out] @ coef)


@pytest.mark.parametrize("n_rows", [30, 120])
def test_collinear_columns_give_finite_models(n_rows):
    draw = _generator()
    X = draw.standard_normal((n_rows, 3))
    X = np.column_stack([X, X[:, 0], X[:, 0] + X[:, 1], np.ones(n_rows), np.zeros(n_rows)])
    y = X[:, 0] - X[:, 2] + 0.1 * draw.standard_normal(n_rows)
    public_base = regression_base(Public(X, y), X, y, None)
    assert np.isfinite(public_base.scores).all()
    assert np.isfinite(public_base.base.scores(100.0 * X)).all()
    for model in public_base.base.models:
        if isinstance(model, LinearModel):
            assert np.abs(model.coef).max() < 10.0
            assert np.allclose(model.coef[5:7], 0.0)  # constant columns have no coefficient
    codes = (y > 0).astype(np.int64)
    classes = classification_base(Public(X, codes), X, codes, np.array([0, 1]), None)
    assert np.isfinite(classes.scores).all()
    assert np.isfinite(classes.base.scores(100.0 * X)).all()


def test_more_columns_than_rows_give_finite_models():
    X = _generator().standard_normal((60, 150))
    y = X[:, 0].copy()
    public_base = regression_base(Public(X, y), X, y, None)
    assert np.isfinite(public_base.scores).all()
    assert np.mean((public_base.base.weights @ public_base.scores - y) ** 2) < 1.5 * np.var(y)


# The blend


@pytest.mark.parametrize("least", [0.1, 0.2])
@pytest.mark.parametrize("n_models", [2, 3])
def test_weights_add_up_to_one_and_keep_their_least(n_models, least):
    y = _generator().standard_normal(200)
    scores = np.stack([y] + [-y] * (n_models - 1))
    weights = blend_weights(scores, lambda blend: float(np.mean((y - blend) ** 2)), least)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1:] == pytest.approx(least)
    assert weights[0] == pytest.approx(1.0 - (n_models - 1) * least)


def test_weights_are_close_to_the_optimum():
    draw = _generator()
    y = draw.standard_normal(5000)
    # Independent errors: the best weights are in proportion to 1 / variance, here 4 : 2 : 1.
    scores = y + np.array([[1.0], [math.sqrt(2.0)], [2.0]]) * draw.standard_normal((3, 5000))
    weights = blend_weights(scores, lambda blend: float(np.mean((y - blend) ** 2)), 0.05)
    assert weights == pytest.approx(np.array([4.0, 2.0, 1.0]) / 7.0, abs=0.06)


# Bases

PLACES = _generator(5).standard_normal((400, 4))
NOISE = _generator(6).standard_normal(400)
NEW = 2.0 * _generator(7).standard_normal((150, 4))


def _codes(n_classes, seed=8):
    y = PLACES[:, 0] + 0.5 * _generator(seed).standard_normal(400)
    return np.digitize(y, [0.0] if n_classes == 2 else [-0.5, 0.5]).astype(np.int64)


@pytest.fixture(scope="module")
def public_bases():
    """Return the bases of a regression, of two classes and of three."""
    y = PLACES[:, 0] + 0.5 * NOISE
    bases = {1: regression_base(Public(PLACES, y), PLACES, y, None)}
    for n_classes in (2, 3):
        codes = _codes(n_classes)
        bases[n_classes] = classification_base(Public(PLACES, codes), PLACES, codes, np.arange(n_classes), None)
    return bases


def test_scores_on_public_rows_are_out_of_fold_in_regression():
    base = regression_base(Public(PLACES, NOISE), PLACES, NOISE, None)
    boosted = base.base.models[2]
    assert isinstance(boosted, BoostedModel)
    assert np.corrcoef(boosted.scores(PLACES), base.labels)[0, 1] > 0.8
    # A correlation of 400 independent pairs has a standard error of 0.05. Leave-one-out means are anticorrelated.
    for scores in base.scores:
        assert np.corrcoef(scores, base.labels)[0, 1] < 0.2


def test_scores_on_public_rows_are_out_of_fold_in_classification():
    codes = (NOISE > 0).astype(np.int64)
    base = classification_base(Public(PLACES, codes), PLACES, codes, np.array([0, 1]), None)
    assert np.corrcoef(base.base.models[1].scores(PLACES)[:, 1], codes)[0, 1] > 0.8
    for scores in base.scores:
        assert np.corrcoef(scores[:, 1], codes)[0, 1] < 0.2


@pytest.mark.parametrize("n_classes", [1, 2])
def test_an_array_missing_or_too_many_is_an_error(n_classes, public_bases):
    arrays = public_bases[n_classes].base.arrays()
    for name in arrays:
        with pytest.raises((KeyError, TypeError, ValueError)):
            Base.from_arrays({key: array for key, array in arrays.items() if key != name})
    for name in ("other", "columns.other", "models.0.linear.other", "models.0.other", "models.9.linear.coef"):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Base.from_arrays(arrays | {name: np.zeros(1)})


def test_a_model_that_a_user_gave_is_not_saved():
    y = PLACES[:, 0].copy()
    base = regression_base(Public(PLACES, y), PLACES, y, LinearRegression()).base
    assert base.given
    assert base.weights.tolist() == [1.0]
    with pytest.raises(TypeError, match="can't be saved"):
        base.arrays()


def test_private_rows_too_long_for_a_float_are_nan_and_the_others_stay(public_bases):
    base = public_bases[1].base
    X = NEW.copy()
    X[3, 1], X[5, 0], X[9, 2] = 1e151, -1e200, 1e149
    rows = base.private_rows(X)
    assert np.isnan(rows[[3, 5]]).all()
    kept = np.delete(np.arange(150), [3, 5])
    assert np.isfinite(rows[kept]).all()
    others = np.delete(kept, np.flatnonzero(kept == 9))
    assert np.array_equal(rows[others], base.private_rows(NEW)[others])
    assert rows[9, 2] == base.columns.limit[2]
    for row in (0, 3, 149):
        assert np.array_equal(base.private_rows(X[row : row + 1]), rows[row : row + 1], equal_nan=True)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_private_scores_are_the_scores_and_finite_for_every_row(n_classes, public_bases):
    base = public_bases[n_classes].base
    X = NEW.copy()
    X[3], X[4] = 1e300, -1e300
    scores = base.private_scores(X, fixed_rows=True)
    assert np.isfinite(scores).all()
    assert np.array_equal(scores, base.scores(X))
    assert np.allclose(scores[:, :3], base.private_scores(X[:3], fixed_rows=True), rtol=1e-12, atol=1e-12)


def test_the_linear_model_alone_is_the_one_of_the_blend_that_shortens():
    y = PLACES[:, 0] + NOISE
    alone = regression_base(Public(PLACES, y), PLACES, y, "linear")
    blend = regression_base(Public(PLACES, y), PLACES, y, None)
    assert len(alone.base.models) == 1
    assert np.array_equal(alone.base.scores(NEW)[0], blend.base.scores(NEW)[1])
    assert np.array_equal(alone.scores[0], blend.scores[1])


def test_a_class_absent_from_public_rows_has_a_small_probability():
    codes = 2 * _codes(2)  # code 1 of three is absent
    base = classification_base(Public(PLACES, codes), PLACES, codes, np.arange(3), None)
    for scores in (*base.scores, *base.base.scores(NEW)):
        assert np.isfinite(scores).all()
        assert np.mean(scores[:, 1] < scores.max(axis=1) - 2.0) > 0.9


# Saving


def _fitted(kind):
    draw = _generator(9)
    X = draw.standard_normal((3000, 4)) + 0.3
    public_y = np.sign(PLACES[:, 0]) * PLACES[:, 1]
    y = np.sign(X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] + 1.0
    if kind == "regression":
        return PrivateTransferRegressor(epsilon=3.0, random_state=0).fit(X, y, public=Public(PLACES, public_y))
    edges = [0.0] if kind == "two classes" else [-0.4, 0.4]
    names = np.array(["a", "b", "c"])
    public = Public(PLACES, names[np.digitize(public_y, edges)])
    return PrivateTransferClassifier(epsilon=3.0, random_state=0).fit(X, names[np.digitize(y, edges)], public=public)


@pytest.fixture(scope="module", params=["regression", "two classes", "three classes"])
def fitted(request):
    return _fitted(request.param)


def _outputs(model):
    return model.predict_proba(NEW) if hasattr(model, "predict_proba") else model.predict(NEW)


def test_a_saved_model_predicts_bit_for_bit_the_same(fitted, tmp_path):
    assert fitted.adopted_ > 0.0
    assert len(fitted.public_base_.models) > 1
    dpadapt.save(fitted, tmp_path)
    again = persist.load(tmp_path).model
    assert np.array_equal(_outputs(again), _outputs(fitted))
    assert np.array_equal(again.predict(NEW), fitted.predict(NEW))
    assert np.array_equal(_outputs(again.public_only()), _outputs(fitted.public_only()))
    assert not np.array_equal(_outputs(again), _outputs(again.public_only()))


def test_a_folder_without_one_or_all_arrays_of_the_base_is_refused(fitted, tmp_path):
    dpadapt.save(fitted, tmp_path)
    whole = members(tmp_path)
    names = [name for name in whole if name.startswith("arrays/public_base_/")]
    for lost in (*([name] for name in names), names):
        rewrite(tmp_path, {**whole, **dict.fromkeys(lost)})
        with pytest.raises(ValueError, match=r"the model is damaged\. Make it again\.$") as refusal:
            persist.load(tmp_path)
        assert "\n" not in str(refusal.value)
