"""Plots: the charts have the values of the results."""

import numpy as np
import pandas as pd
import pytest

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
    rehearse,
)
from dpadapt.mechanisms import Gaussian, NonPrivate
from dpadapt.plots import plot_coefficients, plot_forecast, plot_ledger, plot_rehearsal
from dpadapt.transfer.preview import forecasts_at

RNG = np.random.default_rng(0)
X_PUBLIC = RNG.uniform(-1, 1, (200, 3))
PUBLIC = Public(X_PUBLIC, X_PUBLIC @ [1.0, 0.5, -1.0] + 0.1 * RNG.standard_normal(200))
X = RNG.uniform(-1, 1, (3000, 3))


def contents(chart):
    """Return the curves and references of a chart of one panel, by name, after it was drawn."""
    assert chart.svg().startswith("<svg")
    (panel,) = chart.panels
    return {line.name: line for line in panel.lines} | {level.name: level.value for level in panel.levels}


def test_a_forecast_is_drawn_as_the_report_has_it():
    epsilons = [0.3, 1.0, 3.0]
    chart = plot_forecast(PrivateTransferRegressor(), PUBLIC, 3000, epsilons=epsilons)
    forecasts = forecasts_at(PrivateTransferRegressor(), PUBLIC, 3000, epsilons)
    line = contents(chart)["this fit"]
    assert line.x == epsilons
    assert line.mean == [sorted(forecast.error_ratios[1:])[3] for forecast in forecasts]
    assert contents(chart)["the public model"] == 1.0
    assert "from the smallest shift to the largest" in chart.note


def test_rehearsals_are_drawn_with_their_names_and_their_spread():
    options = {"epsilons": (0.3, 3.0), "repeats": 3, "random_state": 0}
    rehearsals = {
        "linear": rehearse(PrivateLinearRegression(), PUBLIC, 200, **options),
        "transfer": rehearse(PrivateTransferRegressor(), PUBLIC, 200, **options),
    }
    chart = plot_rehearsal(rehearsals)
    for name, rehearsal in rehearsals.items():
        line, mean, spread = contents(chart)[name], rehearsal.errors.mean(axis=0), rehearsal.errors.std(axis=0, ddof=1)
        assert line.x == [0.3, 3.0]
        assert [line.low, line.mean, line.high] == [pytest.approx(mean + k * spread) for k in (-1, 0, 1)]
    assert contents(chart)["public only"] == pytest.approx(rehearsals["linear"].public_only.mean())
    assert chart.y_label == rehearsals["linear"].metric


def test_coefficients_are_drawn_by_size_with_the_noise_that_is_known():
    model = PrivateTransferRegressor(public_model="linear", random_state=0).fit(X, X @ [1.5, 0.5, -1.0], public=PUBLIC)
    assert np.any(model.coef_noise_ > 0)
    chart = plot_coefficients(model, names=["a", "b", "c"], public=PUBLIC)
    scaled, noise = (values * PUBLIC.X.std(axis=0) for values in (model.coef_, model.coef_noise_))
    order = np.argsort(-np.abs(scaled))
    assert chart.names == ["abc"[k] for k in order]
    assert chart.values == pytest.approx(scaled[order].tolist())
    assert chart.spreads == pytest.approx(noise[order].tolist())
    assert "one standard deviation of the privacy noise" in chart.note
    assert chart.svg().count('class="bar') == 3


def test_coefficients_of_a_table_model_have_the_names_of_its_columns():
    frame = pd.DataFrame(X, columns=["age", "bmi", "height"]).assign(cost=X[:, 0])
    schema = Schema.infer(frame.head(50), dataset="patients")
    model = TableModel(PrivateLinearRegression(random_state=0), schema, label="cost").fit(frame)
    chart = plot_coefficients(model)
    assert set(chart.names) <= set(model.get_feature_names_out())
    assert chart.x_label == "change of cost"


def test_the_curve_of_a_ledger_ends_at_what_is_spent():
    ledger = Ledger(3.0, 1e-6)
    for noise in (30.0, 20.0, 40.0):
        ledger.start(Gaussian(noise), label="a sum")
    drawn = contents(plot_ledger(ledger))
    assert drawn["spent"].x == [0, 1, 2, 3]
    assert drawn["spent"].mean[-1] == pytest.approx(ledger.spent())
    assert drawn["cap"] == 3.0
    assert contents(plot_ledger(Ledger(1.0, 1e-6)))["spent"].x == [0]
    with pytest.raises(TypeError, match=r"ledger must be a dpadapt\.Ledger"):
        plot_ledger("a.ledger")


def test_a_ledger_without_a_cap_has_no_line_for_it_and_what_is_not_finite_is_refused():
    ledger = Ledger(float("inf"), 1e-6)
    ledger.start(Gaussian(20.0), label="a sum")
    assert contents(plot_ledger(ledger)).keys() == {"spent"}
    ledger.start(NonPrivate(), label="a leak")
    with pytest.raises(ValueError, match="not finite"):
        plot_ledger(ledger)
