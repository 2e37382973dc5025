import numpy as np
import pytest

from dpadapt import (
    PrivateLinearRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    forecast,
)
from dpadapt.learning.transfer_classification_forecast import forecast_classification
from dpadapt.learning.transfer_forecast import forecast as forecast_regression
from dpadapt.representation import PrivateProbe

random = np.random.default_rng(5)
X = random.uniform(-1, 1, (400, 4))
public = Public(X, X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * random.standard_normal(400))
labelled = Public(X, X[:, 0] > 0)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_an_estimator_forecasts_with_its_own_budget(adjacency):
    budget = {"epsilon": 0.4, "delta": 1e-4, "adjacency": adjacency}
    found = forecast(PrivateTransferRegressor(**budget), public, 300)
    assert found == forecast_regression(public, 300, 0.4, 1e-4, adjacency=adjacency)
    assert found != forecast(PrivateTransferRegressor(), public, 300)
    found = forecast(PrivateTransferClassifier(**budget), labelled, 300)
    assert found == forecast_classification(labelled, 300, 0.4, 1e-4, adjacency=adjacency)
    assert found != forecast(PrivateTransferClassifier(**budget, prior="same-population"), labelled, 300)


def test_classes_of_the_estimator_are_used_where_public_rows_have_no_labels():
    found = forecast(PrivateTransferClassifier(classes=[0, 1, 2]), Public(X), 3000)
    assert found.gate == "none"
    with pytest.raises(ValueError, match="classes must be given"):
        forecast(PrivateTransferClassifier(), Public(X), 3000)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((PrivateLinearRegression(), public, 10), TypeError, "has none"),
        ((PrivateTransferRegressor(), X, 10), TypeError, "wrapped"),
        ((PrivateTransferRegressor(), public, 0), ValueError, "n_private"),
        ((PrivateTransferRegressor(), Public(X), 10), ValueError, "labels"),
        ((PrivateTransferRegressor(prior="same-population"), public, 10), ValueError, "prior"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        forecast(*arguments)


@pytest.mark.parametrize(
    ("rows", "epsilon", "said"), [(10, 0.01, "nothing spent"), (300, 0.3, "some"), (90_000, 3.0, "hardly any")]
)
def test_a_classifier_says_in_words_what_the_noise_means(rows, epsilon, said):
    assert said in str(forecast(PrivateTransferClassifier(epsilon=epsilon), labelled, rows))


def test_without_public_labels_the_words_know_of_no_gate():
    assert "no gate" in str(forecast(PrivateTransferClassifier(classes=[0, 1]), Public(X), 3000))


@pytest.mark.parametrize("model", [PrivateTransferRegressor(), PrivateTransferClassifier(), PrivateProbe(encoder=abs)])
def test_raw_arrays_are_no_public_data(model):
    with pytest.raises(TypeError, match="must be wrapped"):
        model.forecast(X, 300)
