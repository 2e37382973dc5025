"""What charts show, and how they are drawn: finite, inside the plot, without overlapping labels."""

import base64
import re
from xml.etree import ElementTree

import pytest

from dpadapt.report.charts import (
    BarChart,
    Level,
    Line,
    LineChart,
    Panel,
    forecast_charts,
    spending_chart,
)
from dpadapt.transfer.preview import forecast_of_errors, forecast_of_scores


def lines_of(*means, x=None, name="a", level=1.0):
    """Return a panel with one line for each list of means."""
    places = x or [10.0**k for k in range(len(means[0]))]
    lines = [Line(f"{name}{k}", places, each, each, each, "s1") for k, each in enumerate(means)]
    return Panel(lines, [] if level is None else [Level("r", level)], "x")


def test_the_axis_leaves_out_very_large_values_unless_all_are_wanted():
    panel = lines_of([300.0, 0.5])
    assert LineChart([panel], "t", "y").limits()[1] < 2
    assert LineChart([panel], "t", "y", whole=True).limits()[1] > 300


def test_the_curve_of_a_forecast_is_for_a_middle_shift_and_its_band_for_all_but_none():
    (chart,) = forecast_charts([forecast_of_errors(1.0, 100, (1.3, 0.95, 0.9, 0.8, 0.7, 0.5, 0.2))])
    ((line,),) = [panel.lines for panel in chart.panels]
    assert (line.low, line.mean, line.high) == ([0.2], [0.8], [0.95])


def test_a_forecast_of_classes_leaves_out_budgets_at_which_nothing_is_released():
    forecasts = [forecast_of_scores(0.1, 100, worthwhile=False), forecast_of_scores(1.0, 100, blur=0.3)]
    (chart,) = forecast_charts(forecasts)
    assert chart.panels[0].lines[0].x == [1.0]
    assert forecast_charts(forecasts[:1]) == []


@pytest.mark.parametrize("n", [0, 1, 199, 200, 201, 1001])
def test_the_chart_of_a_ledger_begins_at_nothing_and_ends_at_the_last_charge(n):
    spending = [float(k) for k in range(1, n + 1)]
    (line,) = spending_chart(spending, cap=5000.0).panels[0].lines
    assert (line.x[0], line.mean[0]) == (0, 0.0)
    assert (line.x[-1], line.mean[-1]) == (n, float(n))
    assert list(line.mean) == [float(x) for x in line.x]
    assert len(line.x) <= 201
    assert n > 200 or len(line.x) == n + 1


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("means", [[1.0, 1.0], [0.0, 0.0], [1e9, 1.0], [1.0, 1e-9]], ids=str)
def test_lines_are_finite_and_inside(means, whole):
    panel = lines_of(means)
    svg = LineChart([panel, panel], "t", "y", whole=whole).svg()
    assert "nan" not in svg
    heights = [float(v) for v in re.findall(r'cy="([^"]*)"', svg)]
    heights += [float(y) for drawn in re.findall(r'points="([^"]*)"', svg) for y in re.findall(r",([-0-9.]+)", drawn)]
    assert all(0 <= height <= 400 for height in heights)
    assert ('<path class="dot' in svg) == (max(means) > 1 and not whole)


@pytest.mark.parametrize(
    "chart",
    [LineChart([lines_of([1.0, 0.5])], "a <b> & 'c'", "y", note="n < 1"), BarChart(["<i>"], [1.0], [0.1], "t", "x")],
    ids=["lines", "bars"],
)
def test_a_picture_stands_alone_as_a_file_and_in_a_notebook(chart, tmp_path):
    chart.save(tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    texts = ["".join(part.itertext()) for part in root.iter("{http://www.w3.org/2000/svg}text")]
    assert chart.title in texts
    assert chart.note in texts
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"href|@import|url\(", text)
    shown = chart._repr_html_()
    assert base64.b64decode(re.search(r"base64,([^']*)'", shown)[1]).decode() == text
    assert "<b>" not in shown
    with pytest.raises(ValueError, match=r"path must end in \.svg, got 'chart\.png'"):
        chart.save(tmp_path / "chart.png")
