"""Previews are plain data and pages, made from public rows alone; sentences agree with the numbers."""

import numpy as np

from dpadapt import PrivateLinearRegression, PrivateTransferRegressor, Public, rehearse
from dpadapt.report.fit import forecasts_of_fit
from dpadapt.report.previews import (
    Part,
    clearly_less,
    compared_rehearsals,
    forecast_page,
    help_in_words,
    rehearsal_page,
)
from dpadapt.transfer.preview import beside, forecasts_at
from tests.report.rows import CASES, TASKS, X_public, y_public


@TASKS
def test_forecasts_stand_beside_each_other_and_make_a_page(task):
    estimator, labels, _, _ = CASES[task]
    forecasts = forecasts_at(estimator, Public(X_public, labels), 500, [0.001, 0.3, 1.0, 3.0])
    assert [forecast.worthwhile for forecast in forecasts] == [False, True, True, True]
    preview = beside(forecasts)
    assert [row[0] for row in preview.rows] == ["ε = 0.001", "ε = 0.3", "ε = 1", "ε = 3"]
    assert preview.rows[0][-1] == "unspent"
    assert "the public model is returned" in preview.notes[0]
    assert beside(forecasts[1:]).notes == preview.notes[1:]
    page = forecast_page(forecasts, "<b>y</b>", "300 rows")
    assert "<b>y</b>" not in page
    assert page.count("<svg") == 1
    assert "not an error bar" in page


def test_methods_and_data_without_a_forecast_have_none():
    labelled, bare = Public(X_public, y_public), Public(X_public)
    assert forecasts_of_fit(PrivateLinearRegression(), labelled, 100) == []
    assert forecasts_of_fit(PrivateTransferRegressor(), bare, 100) == []
    assert forecasts_of_fit(PrivateTransferRegressor(), None, 100) == []
    assert forecasts_of_fit(PrivateTransferRegressor(prior="same-population"), labelled, 100) == []


def test_a_rehearsal_makes_a_page_and_compares():
    options = {"epsilons": (0.3, 3.0), "repeats": 3, "random_state": 0}
    public = Public(X_public, y_public)
    lines = [("together", True, PrivateTransferRegressor()), ("other", True, PrivateLinearRegression())]
    lines.append(("private only", False, PrivateTransferRegressor()))
    parts = [
        Part(key, key, "m", shared, rehearse(model, public, 60, use_public=shared, **options))
        for key, shared, model in lines
    ]
    preview = compared_rehearsals(parts, 60, None)
    assert "With m, public rows clearly helped" in " ".join(preview.words)
    errors = parts[0].rehearsal.errors[:, 1]
    assert preview.rows[1][2] == f"{errors.mean():.3f} ± {errors.std(ddof=1):.3f}"
    page = rehearsal_page(preview, parts, "<i>y</i>", ["300 public rows"])
    assert "<i>y</i>" not in page
    assert page.count("<svg") == 1
    assert "nothing was spent" in page


def two_methods(public, errors, epsilons):
    """Return levels and curves of a rehearsal; `errors` has one row per split."""
    levels = [{"key": "public only", "values": public, "mean": float(np.mean(public))}]
    points = [
        {"x": x, "values": list(column), "mean": float(np.mean(column))}
        for x, column in zip(epsilons, np.transpose(errors), strict=True)
    ]
    keys = [("together", True), ("private only", False)]
    return levels, [{"key": key, "method": "m", "public": public, "points": points} for key, public in keys]


def test_the_sentence_names_every_epsilon_at_which_the_table_shows_a_higher_error():
    # Higher at both epsilons; by more than two standard errors at the second alone.
    text = " ".join(help_in_words(*two_methods([0.8, 0.8, 0.8], [[0.7, 0.83], [0.9, 0.83], [0.9, 0.83]], (1.0, 3.0))))
    assert "its error is higher at every ε; the difference is clear at ε = 3." in text
    text = " ".join(help_in_words(*two_methods([0.8, 0.8, 0.8], [[0.7], [0.9], [0.9]], (1.0,))))
    assert "its error is higher at every ε; the difference is clear at no ε." in text


def test_clear_means_two_standard_errors_of_paired_differences():
    rising = np.linspace(0, 5, 8)
    assert clearly_less(rising, rising + 0.01)
    assert not clearly_less(rising, rising + 0.0005)
    assert not clearly_less(rising, rising[::-1])
    # A standard error of 0.5 / sqrt(8) = 0.19 around a difference of 0.3.
    assert not clearly_less(np.zeros(8), 0.3 + np.tile([-0.5, 0.5], 4))
    assert clearly_less(np.zeros(8), 0.5 + np.tile([-0.5, 0.5], 4))
