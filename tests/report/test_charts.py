"""What a chart shows, before it is drawn."""

import pytest

from dpadapt.report.charts import Level, Line, LineChart, Panel, coefficient_charts, forecast_charts, spending_chart


def test_the_axis_leaves_out_very_large_values_unless_all_are_wanted():
    line = Line("a", [1, 10], [300.0, 0.5], [300.0, 0.5], [300.0, 0.5], "s1")
    panel = Panel([line], [Level("r", 1.0)], "x")
    assert LineChart([panel], "t", "y").limits()[1] < 2
    assert LineChart([panel], "t", "y", whole=True).limits()[1] > 300


def test_the_curve_of_a_forecast_is_for_a_middle_shift_and_its_band_for_all_but_none():
    point = {"epsilon": 1.0, "shifts": [0.0, 0.1, 0.5, 2.0], "error_ratios": [1.3, 0.9, 0.7, 0.2]}
    (chart,) = forecast_charts({"task": "regression", "points": [point]})
    ((line,),) = [panel.lines for panel in chart.panels]
    assert (line.low, line.mean, line.high) == ([0.2], [0.7], [0.9])


def test_a_forecast_of_classes_leaves_out_budgets_at_which_nothing_is_released():
    points = [{"epsilon": 0.1, "score_noise": None}, {"epsilon": 1.0, "score_noise": 0.3}]
    (chart,) = forecast_charts({"task": "classification", "points": points})
    assert chart.panels[0].lines[0].x == [1.0]
    assert forecast_charts({"task": "classification", "points": points[:1]}) == []


def test_coefficients_keep_their_noise():
    rows = [{"name": "age", "value": 2.0, "noise": 0.5}, {"name": "bmi", "value": -1.0, "noise": None}]
    (chart,) = coefficient_charts({"parts": [{"title": "cost", "unit": "change of cost", "rows": rows}]})
    assert (chart.names, chart.values, chart.spreads) == (["age", "bmi"], [2.0, -1.0], [0.5, None])


@pytest.mark.parametrize("n", [0, 1, 2, 199, 200, 201, 1001])
def test_the_chart_of_a_ledger_begins_at_nothing_and_ends_at_the_last_charge(n):
    spending = [float(k) for k in range(1, n + 1)]
    (line,) = spending_chart(spending, cap=5000.0).panels[0].lines
    assert (line.x[0], line.mean[0]) == (0, 0.0)
    assert (line.x[-1], line.mean[-1]) == (n, float(n))
    assert list(line.mean) == [float(x) for x in line.x]
    assert len(line.x) <= 201
    assert n > 200 or len(line.x) == n + 1
