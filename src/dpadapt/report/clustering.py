"""The page of `dpadapt bench clustering`, with a picture of one run in the plane."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from dpadapt.report.html import environment
from dpadapt.report.plots import Level, Line, Panel, line_chart

_STYLES = {"ours": "s2", "NNA": "s1", "NAS": "s3", "private k-means": "s5", "non-private": "ref"}
_SIDE, _EDGE, _LABEL = 340, 14, 26


def clustering_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the clustering benchmark; `summary` is from `benchmarks.paper5_show.summarise`."""
    template = environment().get_template("clustering.html.j2")
    charts = [_chart(curve) for curve in summary["curves"]]
    return str(template.render(summary, charts=charts, drawn=Markup(picture_svg(summary["picture"]))))


def _chart(curve: Mapping[str, Any]) -> Markup:
    panels = [
        Panel([_line(line) for line in panel["lines"]], [Level("ClusterT", 1.0)], "k", panel["title"])
        for panel in curve["panels"]
    ]
    axis = "cost over ClusterT's"
    return Markup(line_chart(panels, title=f"{curve['title']}: {axis} by k", y_label=axis))


def _line(line: Mapping[str, Any]) -> Line:
    low, high = ([m + sign * s for m, s in zip(line["mean"], line["spread"], strict=True)] for sign in (-1, 1))
    name = line["name"]
    return Line(name, line["x"], line["mean"], low, high, _STYLES[name], dashed=name not in ("ours", "NNA"))


def picture_svg(picture: Mapping[str, Any]) -> str:
    """Return an SVG of one run: targets and sources, what NNA makes of the sources, and the centres of each method.

    Examples
    --------
    >>> points = [[0.0, 0.0], [1.0, 1.0]]
    >>> run = {"set": "a", "budget": "epsilon 3", "k": 1, "targets": points, "sources": points, "proxies": points,
    ...        "centres": {"ours": points}, "costs": {"ours": 0.5}}
    >>> picture_svg(run).startswith("<svg")
    True
    """
    # Proxies may lie far out; the frame is that of the points.
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
