"""The page of a benchmark that holds a paper's claims against measurements: figures, claims, tables, facts."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from dpadapt.report.html import environment
from dpadapt.report.plots import Level, Line, Panel, line_chart
from dpadapt.report.summarise import version

_MOST_BESIDE = 3  # panels, so that their axes can be read
_STYLES = ("s2", "s1", "s3", "s4", "s5", "s6")


def paper_page(summary: Mapping[str, Any]) -> str:
    """Return the page as one HTML file.

    Parameters
    ----------
    summary : mapping
        `command`, `title` and `words` head the page. `figures` have a `title`, `words`, a `y_label` and `panels`; a
        panel has a `title`, an `x_label`, `lines` (a `name` and `points` of `x`, `mean` and `spread`) and `levels` (a
        `name` and a `value`); a figure may bring ready `pictures` (SVG) instead. `claims` have `claim`, `measured` and
        `verdict`. `tables` have a `title`, `columns`, `rows` and perhaps `words`. `facts` are sentences on how it was
        measured.
    """
    charts = [_charts(figure) for figure in summary["figures"]]
    return str(environment().get_template("paper.html.j2").render(summary, charts=charts, version=version()))


def _charts(figure: Mapping[str, Any]) -> list[Markup]:
    if "pictures" in figure:
        return [Markup(picture) for picture in figure["pictures"]]
    panels = [_panel(panel) for panel in figure["panels"]]
    n_rows = math.ceil(len(panels) / _MOST_BESIDE)
    # Rows of about equal length.
    ends = [len(panels) * row // n_rows for row in range(n_rows + 1)]
    return [
        Markup(line_chart(panels[first:last], title=figure["title"], y_label=figure["y_label"]))
        for first, last in pairwise(ends)
    ]


def _panel(panel: Mapping[str, Any]) -> Panel:
    lines = [
        Line(
            name=line["name"],
            x=[point["x"] for point in line["points"]],
            mean=[point["mean"] for point in line["points"]],
            low=[point["mean"] - point["spread"] for point in line["points"]],
            high=[point["mean"] + point["spread"] for point in line["points"]],
            style=_STYLES[index % len(_STYLES)],
            dashed=index >= len(_STYLES),
        )
        for index, line in enumerate(panel["lines"])
    ]
    levels = [Level(level["name"], level["value"]) for level in panel["levels"]]
    return Panel(lines, levels, panel["x_label"], panel["title"])
