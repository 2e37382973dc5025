"""Conversion of private and public arrays, and refusals that show no value and no number of rows."""

import math

import numpy as np
import pandas as pd
import pytest

from dpadapt import Ledger, PrivateLinearRegression, Public
from dpadapt.inputs.gate import declared_public, label_codes, label_set, numeric_labels, public_labels, public_table

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]


def refusal(rows, labels, *, model=None, **beside):
    """Return the message with which a fit refuses its input, having charged nothing and attached nothing."""
    ledger = Ledger(epsilon=9.0, delta=1e-5)
    model = PrivateLinearRegression() if model is None else model
    with pytest.raises((ValueError, TypeError)) as failure:
        model.fit(rows, labels, ledger=ledger, **beside)
    assert ledger.entries == []
    assert failure.value.__context__ is None
    return str(failure.value)


@pytest.mark.parametrize("cell", [None, "secret-7731", "nan", math.inf, b"x7731", {7731: 1}, 10**400])
def test_every_target_of_a_regression_must_be_a_finite_number(cell):
    labels = y.astype(object)
    labels[5] = cell
    assert "7731" not in refusal(X, labels)


def test_targets_in_text_that_are_numbers_are_converted_as_features_are():
    model, read = PrivateLinearRegression(random_state=0), y.astype(str)
    assert np.array_equal(model.fit(X.astype(str), read).coef_, model.fit(X, y).coef_)


@pytest.mark.parametrize("values", ["1977-03-01", np.timedelta64(7, "s")])
def test_dates_and_times_are_no_numbers(values):
    kind = "datetime64[D]" if isinstance(values, str) else "timedelta64[s]"
    dates = np.full(60, values, dtype=kind)
    for rows, labels in (
        (np.column_stack([dates, dates]), y),
        (X, dates),
        (pd.DataFrame({"a": X[:, 0], "b": dates}), y),
        (np.column_stack([X[:, 0].astype(object), dates.astype(object)]), y),
        (X, [np.datetime64("1977-03-01"), *y[1:]]),
    ):
        assert "must not hold dates or times" in refusal(rows, labels) or "only numbers" in refusal(rows, labels)
    assert "public X must not hold dates" in refusal(X, y, public=Public(np.column_stack([dates, dates])))
    assert "public y must not hold dates" in refusal(X, y, public=Public(X[:, :], dates))


def test_masked_cells_are_not_read():
    masked = np.ma.masked_array(X, mask=X > 0.9)
    assert "masked" in refusal(masked, y)
    assert "masked" in refusal(X, np.ma.masked_array(y, mask=y > 0.9))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((5, 2), 1e100), "numbers up to 1e\\+60"),
        ([["a", "b"], ["c", "d"]], "could not convert string"),
        (np.full((5, 2), np.nan), "contains NaN"),
        (np.zeros(5), "Expected 2D array"),
    ],
)
def test_public_features_must_be_finite_numbers_of_usual_size(values, message):
    with pytest.raises(ValueError, match=f"public X must .*{message}"):
        public_table(values)


def test_public_labels_are_one_per_row():
    assert public_labels(np.ones((5, 1)), 5).shape == (5,)
    for labels in (np.ones((5, 2)), np.ones(4), [[1], [1, 2]], 7):
        with pytest.raises(ValueError, match="public y must have one label per public row"):
            public_labels(labels, 5)
    with pytest.raises(ValueError, match="public y must be finite"):
        public_labels([1.0, np.inf], 2)


def test_public_labels_of_a_regression_must_be_finite_numbers():
    assert list(numeric_labels(np.array(["1", "2.5"]))) == [1.0, 2.5]
    with pytest.raises(ValueError, match="holds text"):
        numeric_labels(np.array(["low", "high"]))
    with pytest.raises(ValueError, match="must be finite"):
        numeric_labels(np.array([1.0, np.nan]))


def test_the_receipt_says_where_the_classes_come_from():
    y, y_public = np.array([0, 1]), np.array([0, 1, 2])
    assert "declared" in label_set([3, 4], y_public, y)[1]
    assert list(label_set(None, y_public, y)[0]) == [0, 1, 2]
    assert "taken from y" in label_set(None, None, y)[1]
    with pytest.raises(ValueError, match="at least two classes"):
        label_set(None, None, np.zeros(3))


def test_unknown_labels_are_refused_and_not_shown():
    assert list(label_codes(["b", "a"], np.array(["a", "b"]), "y")) == [1, 0]
    with pytest.raises(ValueError, match="not among the classes") as failure:
        label_codes([0, 77], np.array([0, 1]), "y")
    assert "77" not in str(failure.value)


@pytest.mark.parametrize(
    "declared", [[[0, 1], [1, 2]], np.array([0, "a"], object), [0.0, math.nan], [0.0, math.inf], [1j, 2], {1: 2}, 3]
)
def test_declared_classes_must_be_a_list_of_labels(declared):
    with pytest.raises(ValueError, match=r"classes must hold labels of one kind|at least two classes"):
        label_set(declared, None, y)


def test_public_data_must_be_declared():
    public = Public([[1.0]])
    assert declared_public(public) is public
    with pytest.raises(TypeError, match=r"public must be wrapped.* got list"):
        declared_public([[1.0]])
