"""The page of `dpadapt bench adaptation`."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from dpadapt.report.html import environment
from dpadapt.report.plots import Level, Line, Panel, line_chart


def adaptation_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the adaptation benchmark; `summary` is from `benchmarks.paper1_show.summarise`."""
    template = environment().get_template("adaptation.html.j2")
    return str(template.render(summary, charts=[_chart(curve) for curve in summary["curves"]]))


def _chart(curve: Mapping[str, Any]) -> Markup:
    panels = [_panel(panel) for panel in curve["panels"]]
    return Markup(line_chart(panels, title=f"{curve['title']}: {curve['axis']} by rows", y_label=curve["axis"]))


def _panel(panel: Mapping[str, Any]) -> Panel:
    lines = [
        Line(
            name=line["name"],
            x=[point["n"] for point in line["points"]],
            mean=[point["mean"] for point in line["points"]],
            low=[point["mean"] - point["spread"] for point in line["points"]],
            high=[point["mean"] + point["spread"] for point in line["points"]],
            style=("s2", "s1", "s3", "ref")[index],
            dashed=index >= 2,
        )
        for index, line in enumerate(panel["lines"])
    ]
    levels = [Level(level["name"], level["value"]) for level in panel["levels"]]
    return Panel(lines, levels, "private rows", f"epsilon {panel['epsilon']:g}")
