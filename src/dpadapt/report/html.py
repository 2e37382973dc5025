"""Results as self-contained HTML pages: of a fit, the demo, an advice, a rehearsal, a forecast."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpadapt.report.charts import Chart, advice_chart, case_chart, coefficient_charts, forecast_charts


def fit_page(summary: Mapping[str, Any]) -> str:
    """Return the report of one fit; `summary` is from `summarise_fit`."""
    parts = zip(summary["coefficients"]["parts"], coefficient_charts(summary["coefficients"]), strict=True)
    charts = [{"title": part["title"], "svg": _drawn(chart)} for part, chart in parts]
    forecast = summary["forecast"]
    plots = [] if forecast is None else [_drawn(chart) for chart in forecast_charts(forecast)]
    return str(environment().get_template("fit.html.j2").render(summary, charts=charts, forecast_charts=plots))


def demo_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the demo; `summary` is from `summarise_demo`."""
    charts = {part: [_drawn(case_chart(case)) for case in summary[part]] for part in ("cases", "papers", "others")}
    return str(environment().get_template("demo.html.j2").render(summary, charts=charts))


def rehearsal_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a rehearsal; `summary` is from `summarise_rehearsal`."""
    return str(environment().get_template("rehearsal.html.j2").render(summary, chart=_drawn(case_chart(summary))))


def forecast_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a forecast; ``summary["forecast"]`` is from `summarise_forecast`."""
    plots = [_drawn(chart) for chart in forecast_charts(summary["forecast"])]
    return str(environment().get_template("forecast.html.j2").render(summary, forecast_charts=plots))


def advice_page(summary: Mapping[str, Any]) -> str:
    """Return the page of an advice; `summary` is from `summarise_advice`."""
    chart = advice_chart(summary)
    drawn = None if chart is None else _drawn(chart)
    return str(environment().get_template("advice.html.j2").render(summary, chart=drawn))


def _drawn(chart: Chart) -> Markup:
    return Markup(chart.svg())


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
