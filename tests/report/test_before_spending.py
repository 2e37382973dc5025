"""Forecasts and rehearsals: plain data and pages, made from public rows alone."""

import json

import numpy as np
import pytest

from dpadapt import PrivateLinearRegression, PrivateTransferClassifier, PrivateTransferRegressor, Public, rehearse
from dpadapt.report.before_spending import Part, forecast_of_fit, summarise_forecast, summarise_rehearsal
from dpadapt.report.html import forecast_page, rehearsal_page

random = np.random.default_rng(3)
X = random.uniform(-1, 1, (4000, 3))
X_public = random.uniform(-1, 1, (300, 3))
y_public = X_public @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(300)
y = X @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(4000)
moved = X @ [1.0, -2.0, -1.0] + 0.3 * random.standard_normal(4000)

CASES = {
    "regression": (PrivateTransferRegressor(random_state=0), y_public, y, moved),
    "classification": (PrivateTransferClassifier(random_state=0), y_public > 0, y > 0, moved > 0),
}
TASKS = pytest.mark.parametrize("task", CASES)


@TASKS
def test_a_forecast_is_plain_data_and_makes_a_page(task):
    estimator, labels, _, _ = CASES[task]
    forecast = summarise_forecast(estimator, Public(X_public, labels), 500, [0.001, 0.3, 1.0, 3.0])
    json.dumps(forecast, allow_nan=False)
    assert [point["worthwhile"] for point in forecast["points"]] == [False, True, True, True]
    assert forecast["points"][0]["verdict"] == "unspent"
    page = forecast_page({"forecast": forecast, "label": "<b>y</b>", "public": "300 rows", "version": "0"})
    assert "<b>y</b>" not in page
    assert page.count("<svg") == 1
    assert "not an error bar" in page


def test_a_forecast_of_budgets_that_are_all_too_small_still_makes_a_page():
    forecast = summarise_forecast(CASES["classification"][0], Public(X_public, y_public > 0), 10, [0.001])
    page = forecast_page({"forecast": forecast, "label": "y", "public": "300 rows", "version": "0"})
    assert "<svg" not in page
    assert "unspent" in page


def test_methods_and_data_without_a_forecast_have_none():
    labelled, bare = Public(X_public, y_public), Public(X_public)
    assert forecast_of_fit(PrivateLinearRegression(), labelled, 100) is None
    assert forecast_of_fit(PrivateTransferRegressor(), bare, 100) is None
    assert forecast_of_fit(PrivateTransferRegressor(), None, 100) is None
    assert forecast_of_fit(PrivateTransferRegressor(prior="same-population"), labelled, 100) is None


def test_a_rehearsal_makes_a_page_and_compares():
    options = {"epsilons": (0.3, 3.0), "repeats": 3, "random_state": 0}
    public = Public(X_public, y_public)
    lines = [("together", True, PrivateTransferRegressor()), ("other", True, PrivateLinearRegression())]
    lines.append(("private only", False, PrivateTransferRegressor()))
    parts = [
        Part(key, key, "m", shared, rehearse(model, public, 60, use_public=shared, **options))
        for key, shared, model in lines
    ]
    summary = summarise_rehearsal(parts, label="<i>y</i>", n_public=300, n_private=60, delta=1e-6, split_by=None)
    json.dumps(summary, allow_nan=False)
    assert "With m, public rows clearly helped" in " ".join(summary["words"])
    page = rehearsal_page(summary)
    assert "<i>y</i>" not in page
    assert page.count("<svg") == 1
    assert "nothing was spent" in page
