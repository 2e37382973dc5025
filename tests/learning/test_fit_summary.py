"""What a fit tells about itself, and the errors of a public model on rows that it was not fitted to."""

import numpy as np
import pytest

from dpadapt import PrivateLinearRegression, PrivateLogisticRegression, PrivateTransferRegressor, Public
from dpadapt.learning.fit_summary import held_out_errors

rng = np.random.default_rng(0)


def test_errors_of_numbers_are_squared_ones_and_beside_them_their_roots():
    y = rng.normal(size=200)
    errors = held_out_errors(y, y + 0.1)
    constant, public = errors["rows"]
    assert [constant["error"], constant["beside"]] == pytest.approx([np.var(y), np.std(y)])
    assert [public["error"], public["beside"]] == pytest.approx([0.01, 0.1])
    assert (errors["measure"], errors["measure beside"]) == ("mean squared error", "root mean squared error")
    assert errors["n_public"] == 200


def test_errors_of_classes_are_log_loss_and_beside_it_the_share_of_wrong_ones():
    codes = np.repeat([0, 1], 100)
    probabilities = np.tile([0.8, 0.2], (200, 1))
    errors = held_out_errors(codes, probabilities)
    constant, public = errors["rows"]
    assert constant["error"] == pytest.approx(np.log(2))
    assert public["error"] == pytest.approx(-(np.log(0.8) + np.log(0.2)) / 2)
    assert public["beside"] == 0.5
    assert (errors["measure"], errors["measure beside"]) == ("log-loss", "share of wrong classes")
    # A class that was thought impossible: large, and still a number that JSON can hold.
    assert np.isfinite(held_out_errors(codes, np.tile([1.0, 0.0], (200, 1)))["rows"][1]["error"])


def test_few_rows_have_no_errors():
    assert held_out_errors(np.zeros(19), np.zeros(19)) is None


def test_the_errors_of_a_fit_are_those_of_rows_that_the_public_model_was_not_fitted_to():
    # Labels are noise: only a model that is scored on its own rows would be better than the mean.
    public = Public(rng.standard_normal((60, 30)), rng.standard_normal(60))
    X, y = rng.standard_normal((100, 30)), rng.standard_normal(100)
    for prior in ("shifted", "same-population"):
        model = PrivateTransferRegressor(prior=prior, public_model=None, random_state=0).fit(X, y, public=public)
        constant, alone = (row["error"] for row in model.public_errors_["rows"])
        assert alone > 0.8 * constant
    assert PrivateTransferRegressor(random_state=0).fit(X, y).public_errors_ is None


def test_a_summary_is_shown_as_text_and_in_a_notebook():
    X = rng.uniform(-1, 1, (300, 2))
    model = PrivateTransferRegressor(random_state=0).fit(X, X[:, 0], public=Public(X[:60], X[:60, 1]))
    summary = model.summary()
    gain = f"{summary.gain[0]:.3g} ({summary.gain[1]:.3g} to {summary.gain[2]:.3g} with 90% confidence)"
    for shown in (str(summary), summary._repr_html_()):
        assert gain in shown
        assert str(model.privacy_.entries[0]) in shown
        assert f"{model.public_errors_['rows'][1]['error']:.4g}" in shown
        assert model.privacy_.assumptions[0] in shown


def test_an_estimator_without_a_gate_or_a_public_model_says_so():
    X, y = rng.uniform(-1, 1, (200, 2)), rng.uniform(-1, 1, 200)
    model = PrivateLinearRegression(random_state=0).fit(X, y)
    summary = model.summary()
    assert summary.receipt is model.privacy_
    assert summary.coefficients is model.coef_
    assert (summary.adopted, summary.gain, summary.public_model, summary.classes) == (None, None, None, ())
    classifier = PrivateLogisticRegression(decision_threshold=0.3, random_state=0).fit(X, y > 0)
    assert classifier.summary().threshold == (0.3, 0.3)
    assert len(classifier.summary().classes) == 2
