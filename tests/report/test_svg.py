"""Charts: finite, inside the plot, without overlapping labels."""

import re

import numpy as np
import pytest

from dpadapt.report.charts import BarChart, Level, Line, LineChart, Panel
from dpadapt.report.svg import bar_svg, line_svg


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e9, -1e-9], [-1.0, -2.0], [3e-7, 1e-7]], ids=str)
def test_bars_are_finite(values):
    svg = bar_svg(BarChart([f"n{k}" for k in range(len(values))], values, [None] * len(values), "t", "x"))
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("means", [[1.0, 1.0], [0.0, 0.0], [1e9, 1.0], [1.0, 1e-9]], ids=str)
def test_lines_are_finite_and_inside(means, whole):
    line = Line("a", [0.1, 10.0], means, means, means, "s1")
    panel = Panel([line], [Level("r", 1.0)], "x")
    svg = line_svg(LineChart([panel, panel], "t", "y", whole=whole))
    assert "nan" not in svg
    heights = [float(v) for v in re.findall(r'cy="([^"]*)"', svg)]
    heights += [float(y) for drawn in re.findall(r'points="([^"]*)"', svg) for y in re.findall(r",([-0-9.]+)", drawn)]
    assert all(0 <= height <= 400 for height in heights)
    assert ('<path class="dot' in svg) == (max(means) > 1 and not whole)


def test_a_curve_leaves_the_plot_at_its_own_slope_and_carries_its_value():
    line = Line("a", [1, 10, 100], [300.0, 0.9, 0.5], [300.0, 0.9, 0.5], [300.0, 0.9, 0.5], "s1")
    svg = line_svg(LineChart([Panel([line], [Level("r", 1.0)], "x")], "t", "y"))
    assert ">300<" in svg
    (drawn,) = re.findall(r'<polyline class="line s1" points="([^"]*)"', svg)
    (x0, y0), (x1, _), _ = (tuple(map(float, point.split(","))) for point in drawn.split())
    # Cut where it crosses the top edge, hardly left of its second point; not flat along the edge.
    assert x1 - x0 < 2
    assert y0 == pytest.approx(18)


def test_values_above_the_plot_do_not_overlap():
    lines = [Line(f"l{k}", [1, 10], [300.0 + k, 0.5], [300.0, 0.5], [300.0, 0.5], "s1") for k in range(3)]
    svg = line_svg(LineChart([Panel(lines, [Level("r", 1.0)], "x")], "t", "y"))
    places = [float(re.search(rf'y="([0-9.]+)">{300 + k}<', svg)[1]) for k in range(3)]
    assert min(np.diff(places)) > 16


def test_end_labels_do_not_overlap():
    lines = [Line(f"l{k}", [0.1, 1.0], [1, 0.5], [1, 0.5], [1, 0.5], "s1") for k in range(6)]
    svg = line_svg(LineChart([Panel(lines, [Level("r", 0.5)], "x")], "t", "y"))
    places = sorted(float(y) for y in re.findall(r'class="end [^"]*" x="[^"]*" y="([^"]*)"', svg))
    assert len(places) == 7
    assert min(np.diff(places)) > 16


def test_panels_stand_beside_each_other():
    line = Line("a", [0.1, 10.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5], "s1")
    panels = [Panel([line], [], "x", "left"), Panel([line], [], "n", "right")]
    svg = line_svg(LineChart(panels, "t", "y", whole=True))
    centres = [float(x) for x in re.findall(r'cx="([^"]*)"', svg)]
    assert max(centres[:2]) < min(centres[2:])
    assert svg.count('class="end s1"') == 1
    assert "left" in svg
    assert "right" in svg


def test_labels_below_an_axis_do_not_touch_and_the_last_stays():
    line = Line("a", [0.3, 0.31, 0.4, 5.0, 5.1], [1.0] * 5, [1.0] * 5, [1.0] * 5, "s1")
    page = line_svg(LineChart([Panel([line], [], "x")] * 6, "t", "y"))
    assert page.count(">5.1</text>") == 6
    assert ">5</text>" not in page
    assert page.count('class="mark"') == 30
