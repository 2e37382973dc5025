"""Pages of the benchmarks: Markdown tables for the documentation, and one offline HTML page per benchmark."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup

from dpadapt import __version__
from dpadapt.report.charts import Level, Line, LineChart, Panel
from dpadapt.report.html import environment as report_environment


def environment() -> Environment:
    """Return the templates of the benchmarks' pages, which extend those of the reports."""
    base = report_environment()
    own = FileSystemLoader(Path(__file__).parent / "templates")
    return base.overlay(loader=ChoiceLoader([own, *([base.loader] if base.loader else [])]))


# Markdown. A benchmark's tables stand between two markers on a page of the documentation; a later run replaces them.


def write_between(path: Path, text: str, start: str, end: str) -> None:
    """Write `text` between the markers of a page; a page without markers gets both at its end."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, _, rest = page.partition(start)
    # Without the second marker an older table can't be recognised, so all of the text stays.
    old, has_end, after = rest.partition(end)
    body = f"{start}\n\n{text}\n{end}"
    path.write_text(before + body + ((after if has_end else old) or "\n"), encoding="utf-8")


def state_run(path: Path, command: str, versions: Mapping[str, str]) -> None:
    """Write the date and the versions of a run to the line of its command at the top of a page.

    The line says which data was used, and a person writes it: "- `COMMAND`: measured on DATE; VERSIONS. Data: ...".
    A page without such a line stays as it is.
    """
    used = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "measured on")
    line = f"- `{command}`: measured on {versions['measured on']}; {used}. Data:"
    page = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(rf"^- `{re.escape(command)}`: .*? Data:", lambda _: line, page, flags=re.M), encoding="utf-8"
    )


def print_wide(text: str) -> None:
    """Print text that has wide tables, without taking brackets for markup."""
    from rich.console import Console

    Console(highlight=False, width=200).print(text, markup=False)


def pipes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(pipes(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


# The page of `python -m benchmarks adaptation`.


def adaptation_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the adaptation benchmark; `summary` is from `benchmarks.adaptation.show.summarise`."""
    template = environment().get_template("adaptation.html.j2")
    return str(template.render(summary, charts=[_adaptation_chart(curve) for curve in summary["curves"]]))


def _adaptation_chart(curve: Mapping[str, Any]) -> Markup:
    panels = [_adaptation_panel(panel) for panel in curve["panels"]]
    return Markup(LineChart(panels, f"{curve['title']}: {curve['axis']} by rows", curve["axis"]).svg())


def _adaptation_panel(panel: Mapping[str, Any]) -> Panel:
    lines = [
        Line(
            name=line["name"],
            x=[point["n"] for point in line["points"]],
            mean=[point["mean"] for point in line["points"]],
            low=[point["mean"] - point["spread"] for point in line["points"]],
            high=[point["mean"] + point["spread"] for point in line["points"]],
            style="ref" if line["name"].startswith("target") else _STYLES[index],
            dashed=line["dashed"],
        )
        for index, line in enumerate(panel["lines"])
    ]
    levels = [Level(level["name"], level["value"]) for level in panel["levels"]]
    return Panel(lines, levels, "private rows", f"epsilon {panel['epsilon']:g}")


# The page of `python -m benchmarks clustering`, with a plot of one run in two dimensions.


_CLUSTERING_STYLES = {"ours": "s2", "NNA": "s1", "NAS": "s3", "private k-means": "s5", "non-private": "ref"}
_SIDE, _EDGE, _LABEL = 340, 14, 26


def clustering_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the clustering benchmark; `summary` is from `benchmarks.clustering.show.summarise`."""
    template = environment().get_template("clustering.html.j2")
    charts = [_clustering_chart(curve) for curve in summary["curves"]]
    return str(template.render(summary, charts=charts, drawn=Markup(picture_svg(summary["picture"]))))


def _clustering_chart(curve: Mapping[str, Any]) -> Markup:
    panels = [
        Panel([_line(line) for line in panel["lines"]], [Level("ClusterT", 1.0)], "k", panel["title"])
        for panel in curve["panels"]
    ]
    axis = "cost over ClusterT's"
    return Markup(LineChart(panels, f"{curve['title']}: {axis} by k", axis).svg())


def _line(line: Mapping[str, Any]) -> Line:
    low, high = ([m + sign * s for m, s in zip(line["mean"], line["spread"], strict=True)] for sign in (-1, 1))
    name = line["name"]
    return Line(name, line["x"], line["mean"], low, high, _CLUSTERING_STYLES[name], dashed=name not in ("ours", "NNA"))


def picture_svg(picture: Mapping[str, Any]) -> str:
    """Return an SVG of one run: targets, sources, the proxies of NNA, and the centres of each method.

    Examples
    --------
    >>> points = [[0.0, 0.0], [1.0, 1.0]]
    >>> run = {"set": "a", "budget": "epsilon 3", "k": 1, "targets": points, "sources": points, "proxies": points,
    ...        "centres": {"ours": points}, "costs": {"ours": 0.5}}
    >>> picture_svg(run).startswith("<svg")
    True
    """
    # The frame is that of targets and sources; proxies may lie far outside it.
    everything = [*picture["targets"], *picture["sources"]]
    low = [min(point[axis] for point in everything) for axis in (0, 1)]
    reach = max(max(point[axis] for point in everything) - low[axis] for axis in (0, 1)) or 1.0
    title = f"{picture['set']}: one run with {picture['k']} centres at {picture['budget']}"

    def place(point: Sequence[float], left: float) -> tuple[float, float]:
        room = _SIDE - 2 * _EDGE
        x = left + _EDGE + (point[0] - low[0]) / reach * room
        return x, _LABEL + _SIDE - _EDGE - (point[1] - low[1]) / reach * room

    views: list[tuple[str, list[tuple[str, str]], Any]] = [
        ("targets, sources and NNA's proxies", [("sources", "src"), ("targets", "tgt"), ("proxies", "prx")], [])
    ]
    views += [
        (f"centres, {name}: cost {picture['costs'][name]:.4f}", [("sources", "src"), ("targets", "tgt")], points)
        for name, points in picture["centres"].items()
    ]
    columns = 2
    height = (_SIDE + _LABEL) * ((len(views) + 1) // columns)
    parts = [
        f'<svg class="plane" viewBox="0 0 {columns * _SIDE} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>"
    ]
    for index, (name, layers, centres) in enumerate(views):
        left, top = (index % columns) * _SIDE, (index // columns) * (_SIDE + _LABEL)
        parts.append(f'<g transform="translate(0 {top})">')
        parts.append(f'<text x="{left + _EDGE}" y="18">{escape(name)}</text>')
        for key, style in layers:
            inside = (point for point in picture[key] if all(0 <= point[i] - low[i] <= reach for i in (0, 1)))
            dots = (place(point, left) for point in inside)
            parts.extend(f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="1.6"/>' for x, y in dots)
        for x, y in (place(point, left) for point in centres):
            parts.append(f'<path class="centre" d="M{x - 5:.1f} {y:.1f}h10M{x:.1f} {y - 5:.1f}v10"/>')
        parts.append("</g>")
    return "".join(parts) + "</svg>"


# Heat maps as inline SVG: ratios around 1, blue below and red above. Colours are CSS variables of the page.


_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP = 232, 46, 33, 24, 9
# Logarithms of the ratios with full colour, 0.25 and 1.05: the colour scale is finer for harm than for gain.
_FULL_GAIN, _FULL_HARM = math.log(4.0), math.log(1.05)
# Opacity of the smallest visible change, of full colour, and the least opacity of a cell with harm. Chosen by hand.
_FAINT, _FULL, _HARM_LEAST = 0.06, 0.5, 0.3


def heat_map(
    rows: Sequence[Mapping[str, Any]],
    groups: Sequence[Mapping[str, Any]],
    *,
    title: str,
    description: str,
    x_label: str,
) -> str:
    """Return an SVG with a cell per ratio, its value inside; cells with `harm` are red, framed and bold.

    Parameters
    ----------
    rows : sequence of mappings
        Each with `name` and `cells`: a mapping with `value` (a ratio), `harm` (bool) and `note`, or None.
    groups : sequence of mappings
        Each with `name` and `columns`: the columns of every row, group by group.
    title, description, x_label : str
        The first two are read out by screen readers.

    Examples
    --------
    >>> cell = {"value": 1.2, "harm": True, "note": "worse"}
    >>> svg = heat_map([{"name": "a", "cells": [cell]}], [{"name": "50 rows", "columns": ["1"]}],
    ...                title="t", description="d", x_label="epsilon")
    >>> "heat harm" in svg and "1.20" in svg
    True
    """
    places: list[float] = []
    parts: list[str] = []
    x = float(_LEFT)
    for group in groups:
        names = group["columns"]
        middle = x + _WIDTH * len(names) / 2
        parts.append(f'<text class="row" x="{middle:.1f}" y="16" text-anchor="middle">{escape(group["name"])}</text>')
        for name in names:
            centre = x + _WIDTH / 2
            parts.append(
                f'<text class="tick" x="{centre:.1f}" y="{_TOP - 10}" text-anchor="middle">{escape(name)}</text>'
            )
            places.append(x)
            x += _WIDTH
        x += _GAP
    parts.append(f'<text class="name" x="{_LEFT - 12}" y="{_TOP - 10}" text-anchor="end">{escape(x_label)}</text>')
    for index, row in enumerate(rows):
        y = _TOP + index * _HEIGHT
        parts.append(f'<text class="row" x="{_LEFT - 12}" y="{y + 17}" text-anchor="end">{escape(row["name"])}</text>')
        parts.extend(_cell(cell, place, y) for place, cell in zip(places, row["cells"], strict=True) if cell)
    width, height = x - _GAP + 2, _TOP + _HEIGHT * len(rows) + 6
    spoken = escape(f"{title}. {description}")
    head = (
        f'<svg class="heatmap" viewBox="0 0 {width:g} {height}" role="img" aria-label="{spoken}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    )
    return head + "".join(parts) + "</svg>"


# Colours of a heat map that stands alone, on white; those of the reports in daylight.
_ALONE = (
    "text{fill:#1d2226;font-size:13px}.tick,.name{fill:#5c656d}.heat{fill:#1f5fa8}.heat.loss{fill:#a3231b}"
    ".heat.harm{fill:#a3231b;stroke:#a3231b;stroke-width:2}.value{font-size:12px}.value.harm{font-weight:700}"
)


# The same for a line chart.
_COLOURS = {
    **{"s1": "#c2571a", "s2": "#1f5fa8", "s3": "#8a6d00", "s4": "#1f7a5c", "s5": "#a03a78", "s6": "#5b4bb0"},
    "ref": "#7b848c",
}
_CHART_ALONE = (
    "text{font-size:13px}.tick,.name,text.ref{fill:#5c656d}.grid,.tie,path.ref{fill:none;stroke:#eceae4}"
    ".axis,.mark{stroke:#5c656d;fill:none}path.ref{stroke:#7b848c;stroke-dasharray:2 4}.band{opacity:.13}"
    ".line{fill:none;stroke-width:2.4}.dashed{stroke-dasharray:6 4}.end{font-weight:600}"
) + "".join(f".line.{k}{{stroke:{v}}}.band.{k},.dot.{k},.end.{k}{{fill:{v}}}" for k, v in _COLOURS.items())


def svg_file(svg: str, style: str = _ALONE) -> str:
    """Return a heat map as a file of its own, which a page of the documentation shows as a picture."""
    head, body = svg.split(">", 1)
    font = 'font-family="ui-sans-serif, system-ui, sans-serif"'
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg" {font}><style>{style}</style>{white}{body}\n'


def chart_file(svg: str) -> str:
    """Return a line chart as a file of its own."""
    return svg_file(svg, _CHART_ALONE)


def _cell(cell: Mapping[str, Any], x: float, y: float) -> str:
    value = float(cell["value"])
    style = "harm" if cell["harm"] else "gain" if value < 1 else "loss"
    return (
        f"<g><title>{escape(cell['note'])}</title>"
        f'<rect class="heat {style}" x="{x + 1:.1f}" y="{y + 1}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" rx="3" '
        f'fill-opacity="{_opacity(value, harm=cell["harm"]):.3f}"/>'
        f'<text class="value{" harm" if cell["harm"] else ""}" x="{x + _WIDTH / 2:.1f}" y="{y + 16}" '
        f'text-anchor="middle">{_text(value)}</text></g>'
    )


def _opacity(value: float, *, harm: bool) -> float:
    """Return the opacity of a ratio's colour: 0 at a ratio of 1, and at least `_HARM_LEAST` for harm."""
    if not math.isfinite(value):
        return _FULL
    distance = math.log(max(value, 1e-9))
    share = min(1.0, -distance / _FULL_GAIN if distance < 0 else distance / _FULL_HARM)
    opacity = 0.0 if share == 0 else _FAINT + share * (_FULL - _FAINT)
    return max(opacity, _HARM_LEAST) if harm else opacity


def _text(value: float) -> str:
    if not math.isfinite(value) or value >= 10:
        return "≥10" if value >= 10 else "?"
    return "1" if value == 1.0 else f"{value:.2f}".removeprefix("0")


# The page of `python -m benchmarks transfer`.


def transfer_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the transfer benchmark; `summary` is from `benchmarks.transfer.tables.summarise`."""
    drawn = [Markup(transfer_map(part)) for part in summary["maps"]]
    return str(environment().get_template("transfer.html.j2").render(summary, heat_maps=drawn))


def transfer_map(part: Mapping[str, Any]) -> str:
    """Return one of the maps of `benchmarks.transfer.tables.heat_maps` as SVG."""
    return heat_map(part["rows"], part["groups"], title=part["title"], description=part["words"], x_label="epsilon")


# The pages of `mirror`, `hybrid` and `representation`, which share one template.


_PANELS_PER_ROW = 3  # so that axes can be read
_STYLES = ("s2", "s1", "s3", "s4", "s5", "s6")


def paper_page(summary: Mapping[str, Any]) -> str:
    """Return the page of a paper's benchmark as one HTML file.

    Parameters
    ----------
    summary : mapping
        `command`, `title` and `words` head the page. A figure has a `title`, `words`, a `y_label` and `panels`. A panel
        has a `title`, an `x_label`, `lines` (a `name` and `points` of `x`, `mean` and `spread`) and `levels` (a `name`
        and a `value`). Claims have `claim`, `measured` and `verdict`. Tables have a `title`, `columns`, `rows` and
        perhaps `words`. `facts` are sentences on how the results were measured.
    """
    charts = [_charts(figure) for figure in summary["figures"]]
    return str(environment().get_template("paper.html.j2").render(summary, charts=charts, version=__version__))


def figure_file(figure: Mapping[str, Any]) -> str:
    """Return a figure of a paper's benchmark as one picture: all of its panels side by side."""
    panels = [_panel(panel) for panel in figure["panels"]]
    return chart_file(LineChart(panels, figure["title"], figure["y_label"]).svg())


def _charts(figure: Mapping[str, Any]) -> list[Markup]:
    panels = [_panel(panel) for panel in figure["panels"]]
    n_rows = math.ceil(len(panels) / _PANELS_PER_ROW)
    # Rows of about equal length.
    ends = [len(panels) * row // n_rows for row in range(n_rows + 1)]
    return [
        Markup(LineChart(panels[first:last], figure["title"], figure["y_label"]).svg())
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
