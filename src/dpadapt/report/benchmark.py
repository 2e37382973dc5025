"""The page of `dpadapt bench transfer`."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from dpadapt.report.heatmap import heat_map
from dpadapt.report.html import environment
from dpadapt.report.plots import Level, Line, Panel, line_chart


def transfer_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the transfer benchmark; `summary` is from `benchmarks.transfer_tables.summarise`."""
    maps = [
        Markup(
            heat_map(part["rows"], part["groups"], title=part["title"], description=part["words"], x_label="epsilon")
        )
        for part in summary["maps"]
    ]
    template = environment().get_template("transfer.html.j2")
    return str(template.render(summary, heat_maps=maps, charts=[_chart(part) for part in summary["curves"]]))


def _chart(curve: Mapping[str, Any]) -> Markup:
    lines = [
        Line(
            name=line["name"],
            x=[point["epsilon"] for point in line["points"]],
            mean=[point["mean"] for point in line["points"]],
            low=[point["mean"] - point["spread"] for point in line["points"]],
            high=[point["mean"] + point["spread"] for point in line["points"]],
            style=f"s{index + 1}",
        )
        for index, line in enumerate(curve["lines"])
    ]
    levels = [Level(level["name"], level["value"]) for level in curve["levels"]]
    panel = Panel(lines, levels, "epsilon (smaller is more private)")
    return Markup(line_chart([panel], title=f"{curve['title']}: error by epsilon", y_label=curve["axis"]))
