"""Forecasts of both transfer estimators: from public data alone, in numbers and in words."""

import numpy as np
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, forecast
from dpadapt.transfer.forecast import (
    TransferForecast,
    forecast_classification,
    forecast_regression,
)

random = np.random.default_rng(5)
X = random.uniform(-1, 1, (400, 4))
public = Public(X, X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * random.standard_normal(400))
labelled = Public(X, X[:, 0] > 0)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_an_estimator_forecasts_with_its_own_budget(adjacency):
    budget = {"epsilon": 0.4, "delta": 1e-4, "adjacency": adjacency}
    answer = forecast(PrivateTransferRegressor(**budget), public, 300)
    assert answer == forecast_regression(public, 300, 0.4, 1e-4, adjacency=adjacency)
    assert answer != forecast(PrivateTransferRegressor(), public, 300)
    answer = forecast(PrivateTransferClassifier(**budget), labelled, 300)
    assert answer == forecast_classification(labelled, 300, 0.4, 1e-4, adjacency=adjacency)
    assert answer != forecast(PrivateTransferClassifier(**budget, prior="same-population"), labelled, 300)


def test_classes_of_the_estimator_are_used_where_public_rows_have_no_labels():
    answer = forecast(PrivateTransferClassifier(classes=[0, 1, 2]), Public(X), 3000)
    assert answer.gate == "none"
    with pytest.raises(ValueError, match="classes must be given"):
        forecast(PrivateTransferClassifier(), Public(X), 3000)


class_random = np.random.default_rng(6)
X_class = class_random.uniform(-1, 1, (400, 5))
class_public = Public(X_class, (X_class[:, 0] > 0).astype(int))


def test_gate_is_shut_at_a_tiny_budget_and_open_at_a_large_one():
    nothing = forecast_classification(class_public, 20, 0.01)
    assert (nothing.worthwhile, nothing.gate, nothing.n_directions) == (False, "shut", 0)
    assert forecast_classification(class_public, 100_000, 4.0).gate == "open"
    assert forecast_classification(class_public, 100, 0.5).gate in ("shut", "undecided")


def test_unlabelled_public_data_needs_the_classes_and_has_no_gate():
    with pytest.raises(ValueError, match="classes must be given"):
        forecast_classification(Public(X_class), 1000)
    answer = forecast_classification(Public(X_class), 1000, classes=range(3))
    assert answer.gate == "none"
    assert answer.needed_gain == 0.0


def test_forecast_noise_in_a_score_is_the_measured_one():
    # Without a gate, the same rows again and again: what varies is noise. 20 fits, so within 40% at 4 standard errors.
    rows, labels = class_random.uniform(-1, 1, (1000, 5)), class_random.integers(0, 2, 1000)
    unlabelled = Public(X_class)
    fits = [
        PrivateTransferClassifier(classes=[0, 1], random_state=seed).fit(rows, labels, public=unlabelled)
        for seed in range(20)
    ]
    margins = np.std([model.decision_function(rows) for model in fits], axis=0)
    # A margin of two classes is the difference of two scores that are each other's negative.
    measured = float(np.sqrt(np.mean(margins**2))) / 2
    assert measured == pytest.approx(forecast_classification(unlabelled, 1000, classes=[0, 1]).blur, rel=0.4)


def _labelled(d, n, seed=0):
    random = np.random.default_rng(seed)
    mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
    coef = random.standard_normal(d)
    coef /= np.linalg.norm(mix.T @ coef)
    rows = random.standard_normal((n, d)) @ mix.T
    return Public(rows, rows @ coef + 0.4 * random.standard_normal(n))


def test_forecast_is_not_worthwhile_when_the_budget_is_too_small():
    rows = _labelled(10, 300)
    hopeless = forecast_regression(rows, 20, 0.1)
    assert not hopeless.worthwhile
    assert "nothing spent" in str(hopeless)
    good = forecast_regression(rows, 10_000, 4.0)
    assert good.opens_at < 0.2
    assert good.error_ratios[-1] < 0.6
    assert good.error_ratios[0] <= 1.01
    with pytest.raises(ValueError, match="labels"):
        forecast_regression(Public(rows.X), 100)


def test_a_regressor_says_in_words_from_which_shift_on_the_gate_opens():
    good = forecast_regression(_labelled(10, 300), 10_000, 4.0)
    assert f"save at least {good.opens_at:.0%} of the public model's mean squared error" in str(good)
    assert "can't say" in str(good)
    never = TransferForecast(True, 3, (0.0, 1.0), (1.0, 1.0), np.inf)
    assert "stay shut for every shift" in str(never)
