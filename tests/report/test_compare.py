"""Errors on public rows, of no model, of public rows alone and of a private model."""

import numpy as np
import pytest

from dpadapt.methods import PREDICTORS
from dpadapt.report.compare import compare_on_public, public_only

rng = np.random.default_rng(0)


class Constant:
    """A model that predicts one value."""

    def __init__(self, value):
        self.value = value

    def predict(self, X):
        return np.full(len(X), self.value)


def test_errors_are_those_of_three_models_in_order():
    X = rng.uniform(-1, 1, (200, 2))
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(200)
    comparison = compare_on_public(Constant(1.0), X, y, task="regression")
    constant, public, private = (row["error"] for row in comparison["rows"])
    assert comparison["n_public"] == 200
    # The mean of other folds is a little worse than the mean of all rows.
    assert np.std(y) <= constant < 1.05 * np.std(y)
    assert public == pytest.approx(0.1, rel=0.3)
    assert private == pytest.approx(np.sqrt(np.mean((y - 1.0) ** 2)))


def test_the_public_model_predicts_rows_it_was_not_fitted_on():
    # Labels are noise: only a model that is scored on its own rows would be better than the mean.
    X, y = rng.standard_normal((40, 30)), rng.standard_normal(40)
    constant, public, _ = (row["error"] for row in compare_on_public(Constant(0.0), X, y, task="regression")["rows"])
    assert public > 0.9 * constant
    assert np.sqrt(np.mean((y - public_only(X, y, "regression").predict(X)) ** 2)) < public


def test_comparison_needs_enough_public_rows_and_accepts_one_class(fit):
    model, X, y = fit(PREDICTORS[1])
    assert compare_on_public(model, X[:10], y[:10], task="classification") is None
    one = compare_on_public(model, X, np.zeros_like(y), task="classification")
    assert one["rows"][1]["error"] == 0.0
