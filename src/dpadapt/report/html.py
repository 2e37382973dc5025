"""Results as self-contained HTML pages: of a fit, the demo, a rehearsal, a forecast."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpadapt.report.plots import Level, Line, Panel, bar_chart, line_chart

# CSS classes of curves: named by the key of the curve; curves with other keys take the next class of the second list.
_CURVE_STYLES = {"together": "s2", "private only": "s1", "not private": "ref", "public only": "ref"}
_OTHER_CURVE_STYLES = ("s6", "s4", "s3", "s5", "s1")


def fit_page(summary: Mapping[str, Any]) -> str:
    """Return the report of one fit; `summary` is from `summarise_fit`."""
    charts = [
        {
            "title": part["title"],
            "svg": Markup(
                bar_chart(
                    [row["name"] for row in part["rows"]],
                    [row["value"] for row in part["rows"]],
                    title=f"Coefficients of {part['title']}",
                    x_label=part["unit"],
                )
            ),
        }
        for part in summary["coefficients"]["parts"]
    ]
    forecast = summary["forecast"]
    forecast_charts = [] if forecast is None else _forecast_charts(forecast)
    return str(
        environment().get_template("fit.html.j2").render(summary, charts=charts, forecast_charts=forecast_charts)
    )


def demo_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the demo; `summary` is from `summarise_demo`."""
    charts = {part: [_case_chart(case) for case in summary[part]] for part in ("cases", "papers", "others")}
    return str(environment().get_template("demo.html.j2").render(summary, charts=charts))


def rehearsal_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a rehearsal; `summary` is from `summarise_rehearsal`."""
    return str(environment().get_template("rehearsal.html.j2").render(summary, chart=_case_chart(summary)))


def forecast_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a forecast; ``summary["forecast"]`` is from `summarise_forecast`."""
    plots = _forecast_charts(summary["forecast"])
    return str(environment().get_template("forecast.html.j2").render(summary, forecast_charts=plots))


def _forecast_charts(forecast: Mapping[str, Any]) -> list[Markup]:
    """Return the plots of a forecast: error over shift, or noise in a logit and gain needed over epsilon."""
    points = forecast["points"]
    if forecast["task"] == "regression":
        lines = []
        for index, point in enumerate(points):
            # The axis is logarithmic.
            xy = [(s, r) for s, r in zip(point["shifts"], point["error_ratios"], strict=True) if s > 0]
            lines.append(_line_without_spread(f"ε = {point['epsilon']:.3g}", xy, f"s{index % 6 + 1}"))
        axis = "assumed shift, as a share of the public model's error"
        panel = Panel(lines, [Level("the public model", 1.0)], axis)
        title = "Forecast: error by assumed shift"
        return [Markup(line_chart([panel], title=title, y_label="expected error ratio", whole=True))]
    charts = []
    for name, title, levels in (
        (
            "score_noise",
            "noise in a logit (standard deviation)",
            [Level("most information lost", 1.0), Level("little information lost", 0.1)],
        ),
        ("needed_gain", "log-loss gain needed per row", []),
    ):
        xy = [(point["epsilon"], point[name]) for point in points if point[name] is not None]
        if any(value > 0 for _, value in xy):
            panel = Panel([_line_without_spread(title, xy, "s2")], levels, "epsilon (smaller is more private)")
            charts.append(Markup(line_chart([panel], title=f"Forecast: {title} by epsilon", y_label=title, whole=True)))
    return charts


def _line_without_spread(name: str, points: Sequence[tuple[float, float]], style: str) -> Line:
    values = [value for _, value in points]
    return Line(name, [x for x, _ in points], values, values, values, style)


def _case_chart(case: Mapping[str, Any]) -> Markup:
    """Return the panels of a case of the demo, or of a rehearsal, as one plot."""
    panels = [
        Panel(
            [_line(curve, index) for index, curve in enumerate(panel["curves"])],
            [Level(level["name"], level["mean"]) for level in panel["levels"]],
            panel["axis"],
            panel["title"],
        )
        for panel in case["panels"]
    ]
    return Markup(
        line_chart(
            panels,
            title=f"{case['title']}: error by " + " and ".join(p["key"] for p in case["panels"]),
            y_label=case["axis"],
        )
    )


def _line(curve: Mapping[str, Any], index: int) -> Line:
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


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the jinja environment of the templates of all pages."""
    return Environment(
        loader=PackageLoader("dpadapt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
