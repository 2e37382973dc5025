"""Results as one self-contained HTML page."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpadapt.report.plots import Level, Line, bar_chart, line_chart

# Curves with public data in one hue each, their private-only twins dashed in the neighbouring one.
_HUES = 6


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
    return str(_environment().get_template("fit.html.j2").render(summary, charts=charts))


def demo_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the demo; `summary` is from `summarise_demo`."""
    return str(
        _environment().get_template("demo.html.j2").render(summary, charts=[_case(case) for case in summary["cases"]])
    )


def _case(case: Mapping[str, Any]) -> Markup:
    lines = [
        Line(
            name=curve["name"],
            x=[point["epsilon"] for point in curve["points"]],
            mean=[point["mean"] for point in curve["points"]],
            low=[point["mean"] - point["spread"] for point in curve["points"]],
            high=[point["mean"] + point["spread"] for point in curve["points"]],
            style=f"s{index % _HUES + 1}",
            dashed=not curve["public"],
        )
        for index, curve in enumerate(case["curves"])
    ]
    levels = [Level(level["name"], level["mean"]) for level in case["references"]]
    return Markup(
        line_chart(
            lines, levels, title=f"{case['title']}: error by epsilon", x_label="epsilon (smaller is more private)",
            y_label=case["axis"],
        )
    )  # fmt: skip


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("dpadapt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
