"""Results as self-contained HTML pages: of a fit, the demo, an advice, a rehearsal, a forecast."""

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
                    spreads=[row["noise"] for row in part["rows"]],
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


def advice_page(summary: Mapping[str, Any]) -> str:
    """Return the page of an advice; `summary` is from `summarise_advice`."""
    chart = None
    if summary["splits"]:
        epsilons, (random, *shifted) = summary["epsilons"], summary["splits"]
        lines = [_line_without_spread("no difference", list(zip(epsilons, random["ratios"], strict=True)), "ref")]
        if shifted:
            columns = list(zip(*(split["ratios"] for split in shifted), strict=True))
            low, high = [min(column) for column in columns], [max(column) for column in columns]
            lines.append(Line("with differences", epsilons, summary["expected"], low, high, "s2"))
        panel = Panel(lines, [Level("the public model", 1.0)], "epsilon (smaller is more private)")
        chart = Markup(
            line_chart(
                [panel],
                title=f"Expected {summary['measure']} by epsilon",
                y_label=f"{summary['measure']} / public model's",
                whole=True,
            )
        )
    return str(environment().get_template("advice.html.j2").render(summary, chart=chart))


def _forecast_charts(forecast: Mapping[str, Any]) -> list[Markup]:
    """Return the plot of a forecast over epsilon: expected error, or noise in a logit."""
    points = forecast["points"]
    epsilons = [point["epsilon"] for point in points]
    if forecast["task"] == "regression":
        # One curve for a shift of middle size; the band goes from the smallest to the largest shift.
        ratios = [[r for s, r in zip(p["shifts"], p["error_ratios"], strict=True) if s > 0] for p in points]
        middle = [sorted(of_shifts)[len(of_shifts) // 2] for of_shifts in ratios]
        line = Line("this fit", epsilons, middle, [min(r) for r in ratios], [max(r) for r in ratios], "s2")
        panel = Panel([line], [Level("the public model", 1.0)], "epsilon (smaller is more private)")
        title, label = "Forecast: mean squared error by epsilon", "mean squared error / public model's"
        return [Markup(line_chart([panel], title=title, y_label=label, whole=True))]
    xy = [(point["epsilon"], point["score_noise"]) for point in points if point["score_noise"] is not None]
    if not any(value > 0 for _, value in xy):
        return []
    title = "noise in a logit (standard deviation)"
    levels = [Level("most information lost", 1.0), Level("little information lost", 0.1)]
    panel = Panel([_line_without_spread(title, xy, "s2")], levels, "epsilon (smaller is more private)")
    return [Markup(line_chart([panel], title=f"Forecast: {title} by epsilon", y_label=title, whole=True))]


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
