"""Results as curves, references and bars: what a chart shows, without how it is drawn.

Two files draw from these values, each without any knowledge of what it draws. `report/svg.py` writes inline SVG for
reports: a page must open offline, follow the reader's theme and need nothing but the core. `dpadapt/plots.py` draws
with matplotlib, which is optional, into the axes of a user's own figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Points of the chart of a ledger: more would touch each other. Chosen by hand.
_MOST_POINTS = 200
# Styles of curves: named by the key of the curve; curves with other keys take the next style of the second list.
_CURVE_STYLES = {"together": "s2", "private only": "s1", "not private": "ref", "public only": "ref"}
_OTHER_CURVE_STYLES = ("s6", "s4", "s3", "s5", "s1")
_EPSILON_AXIS = "epsilon (smaller is more private)"


@dataclass(frozen=True)
class Line:
    """A measured curve: means with their spread; `style` names its colour."""

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    style: str
    dashed: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal reference."""

    name: str
    value: float


@dataclass(frozen=True)
class Panel:
    """Curves and references over one axis; `band` says what the bands around the curves are."""

    lines: Sequence[Line]
    levels: Sequence[Level]
    x_label: str
    title: str = ""
    logarithmic: bool = True
    band: str = ""


@dataclass(frozen=True)
class LineChart:
    """Panels side by side with one vertical axis.

    Unless `whole`, the vertical axis leaves out very large values, which would flatten all curves.
    """

    panels: Sequence[Panel]
    title: str
    y_label: str
    whole: bool = False

    def limits(self) -> tuple[float, float]:
        """Return the range of the vertical axis."""
        lines = [line for panel in self.panels for line in panel.lines]
        levels = [level.value for panel in self.panels for level in panel.levels]
        everything = [v for line in lines for v in (*line.low, *line.high)] + levels
        always_shown = [min(line.mean) for line in lines] + levels
        low, high, top = min(everything), max(everything), max(always_shown)
        high = high if self.whole else min(high, top + 1.2 * (top - low))
        pad = 0.06 * ((high - low) or abs(high) or 1.0)
        return low - pad, high + pad


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from zero, each with its spread, if that is known."""

    names: Sequence[str]
    values: Sequence[float]
    spreads: Sequence[float | None]
    title: str
    x_label: str


def forecast_charts(forecast: Mapping[str, Any]) -> list[LineChart]:
    """Return a forecast over epsilon, expected error or noise in a logit; `forecast` is from `summarise_forecast`."""
    points = forecast["points"]
    epsilons = [point["epsilon"] for point in points]
    if forecast["task"] == "regression":
        # One curve for a shift of middle size; the band goes from the smallest to the largest shift.
        ratios = [[r for s, r in zip(p["shifts"], p["error_ratios"], strict=True) if s > 0] for p in points]
        middle = [sorted(of_shifts)[len(of_shifts) // 2] for of_shifts in ratios]
        line = Line("this fit", epsilons, middle, [min(r) for r in ratios], [max(r) for r in ratios], "s2")
        band = "from the smallest to the largest shift"
        panel = Panel([line], [Level("the public model", 1.0)], _EPSILON_AXIS, band=band)
        title, label = "Forecast: mean squared error by epsilon", "mean squared error / public model's"
        return [LineChart([panel], title, label, whole=True)]
    known = [point for point in points if point["score_noise"] is not None]
    noise = [point["score_noise"] for point in known]
    if not any(value > 0 for value in noise):
        return []
    title = "noise in a logit (standard deviation)"
    levels = [Level("most information lost", 1.0), Level("little information lost", 0.1)]
    line = _line_without_spread(title, [point["epsilon"] for point in known], noise, "s2")
    panel = Panel([line], levels, _EPSILON_AXIS)
    return [LineChart([panel], f"Forecast: {title} by epsilon", title, whole=True)]


def advice_chart(summary: Mapping[str, Any]) -> LineChart | None:
    """Return the expected errors of an advice, from `summarise_advice`; None if nothing was rehearsed."""
    if not summary["splits"]:
        return None
    epsilons, (random, *shifted) = summary["epsilons"], summary["splits"]
    lines = [_line_without_spread("no difference", epsilons, random["ratios"], "ref")]
    if shifted:
        columns = list(zip(*(split["ratios"] for split in shifted), strict=True))
        low, high = [min(column) for column in columns], [max(column) for column in columns]
        lines.append(Line("with differences", epsilons, summary["expected"], low, high, "s2"))
    band = "from the least to the largest of the differences"
    panel = Panel(lines, [Level("the public model", 1.0)], _EPSILON_AXIS, band=band)
    measure = summary["measure"]
    return LineChart([panel], f"Expected {measure} by epsilon", f"{measure} / public model's", whole=True)


def case_chart(case: Mapping[str, Any]) -> LineChart:
    """Return the panels of a case of the demo, or of a rehearsal, as one chart; they have means and spreads."""
    panels = [
        Panel(
            [_measured(curve, index) for index, curve in enumerate(panel["curves"])],
            [Level(level["name"], level["mean"]) for level in panel["levels"]],
            panel["axis"],
            panel["title"],
            band="± one standard deviation over the splits",
        )
        for panel in case["panels"]
    ]
    title = f"{case['title']}: error by " + " and ".join(panel["key"] for panel in case["panels"])
    return LineChart(panels, title, case["axis"])


def coefficient_charts(coefficients: Mapping[str, Any]) -> list[BarChart]:
    """Return the largest coefficients of a model, a chart for each class; `coefficients` is from `coefficients_of`."""
    return [
        BarChart(
            [row["name"] for row in part["rows"]],
            [row["value"] for row in part["rows"]],
            [row["noise"] for row in part["rows"]],
            f"Coefficients of {part['title']}",
            part["unit"],
        )
        for part in coefficients["parts"]
    ]


def spending_chart(spending: Sequence[float], cap: float) -> LineChart:
    """Return what was spent of a ledger after each charge; of many charges some are left out, never the last."""
    step = -(-len(spending) // _MOST_POINTS)
    kept = [0, *range(len(spending), 0, -step)[::-1]] if spending else [0]
    line = _line_without_spread("spent", kept, [spending[k - 1] if k else 0.0 for k in kept], "s2")
    panel = Panel([line], [Level("cap", cap)], "charges", logarithmic=False)
    return LineChart([panel], "Spent after each charge", "epsilon", whole=True)


def _line_without_spread(name: str, x: Sequence[float], y: Sequence[float], style: str) -> Line:
    return Line(name, x, y, y, y, style)


def _measured(curve: Mapping[str, Any], index: int) -> Line:
    points = curve["points"]
    return Line(
        name=curve["name"],
        x=[point["x"] for point in points],
        mean=[point["mean"] for point in points],
        low=[point["mean"] - point["spread"] for point in points],
        high=[point["mean"] + point["spread"] for point in points],
        style=_CURVE_STYLES.get(curve["key"], _OTHER_CURVE_STYLES[index % len(_OTHER_CURVE_STYLES)]),
        dashed=curve["key"] == "private only",
    )
