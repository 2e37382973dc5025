"""Charts: results as curves, references and bars, drawn as SVG.

There is one drawer. A report has its charts inside the page; `dpadapt.plots` returns them, a notebook shows them, and
`save` writes a picture. Colours are CSS variables (`templates/_chart.css`), so that a chart follows the reader's theme.
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpadapt.advice import Advice
    from dpadapt.transfer.preview import Forecast

# Points of the chart of a ledger: one for each 2.5 units of the width of its plot (500), as a line is 2.4 units wide.
_MOST_POINTS = 200
# Styles of curves: named by the key of the curve; curves with other keys take the next style of the second list.
_CURVE_STYLES = {"together": "s2", "private only": "s1", "not private": "ref", "public only": "ref"}
_OTHER_CURVE_STYLES = ("s6", "s4", "s3", "s5", "s1")
_EPSILON_AXIS = "epsilon (smaller is more private)"
# Sizes in units of the SVG's view box (pixels at full width).
_WIDTH, _HEIGHT = 808, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 244, 18, 52  # margins
_LABEL_HEIGHT = 17
_LETTER_WIDTH = 7.5
_PANEL_EXTRA_WIDTH = 140  # what each further panel adds to the width
_PANEL_GAP = 26  # between two panels
_HEADING = 60  # above a picture that stands alone

_Scale = Callable[[float], float]
_Point = tuple[float, float]


class Chart:
    """A chart that a notebook shows, and that can be saved as a picture.

    A subclass has a ``title``, a ``note`` on bands or whiskers, and `_drawn`.
    """

    title: str
    note: str

    def _drawn(self) -> tuple[float, float, list[str]]:
        """Return width, height and the elements of the picture."""
        raise NotImplementedError

    def svg(self) -> str:
        """Return the chart as part of a page, whose style sheet holds `templates/_chart.css`."""
        width, height, parts = self._drawn()
        return "".join([self._opening(width, height, 0, ""), *parts, "</svg>"])

    def __html__(self) -> str:
        """Return what a template shows."""
        return self.svg()

    def picture(self) -> str:
        """Return the chart as an SVG file that stands alone, with its title and its note above it."""
        width, height, parts = self._drawn()
        style = (Path(__file__).parent / "templates" / "_chart.css").read_text(encoding="utf-8")
        alone = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + _HEADING}"'
        heading = [
            f"<style>{style}</style>",
            f'<rect class="paper" y="{-_HEADING}" width="{width}" height="{height + _HEADING}"/>',
            f'<text class="end" x="16" y="{28 - _HEADING}">{escape(self.title)}</text>',
            f'<text class="name" x="16" y="{46 - _HEADING}">{escape(self.note)}</text>',
        ]
        return "".join([self._opening(width, height, _HEADING, alone), *heading, *parts, "</svg>\n"])

    def _opening(self, width: float, height: float, above: int, more: str) -> str:
        name = escape(self.title)
        box = f"0 {-above} {width} {height + above}"
        return f'<svg{more} viewBox="{box}" role="img" aria-label="{name}"><title>{name}</title>'

    def save(self, path: str | Path) -> None:
        """Write the picture to a file whose name ends in .svg."""
        if Path(path).suffix.lower() != ".svg":
            raise ValueError(f"path must end in .svg, got {Path(path).name!r}: pictures are SVG.")
        Path(path).write_text(self.picture(), encoding="utf-8")

    def _repr_html_(self) -> str:
        # Inside an image, the style sheet does not reach into the other outputs of the notebook.
        code = base64.b64encode(self.picture().encode()).decode()
        return (
            f"<img alt='{escape(self.title)}' style='width:100%;max-width:60em' src='data:image/svg+xml;base64,{code}'>"
        )


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
    """Curves and references over one axis."""

    lines: Sequence[Line]
    levels: Sequence[Level]
    x_label: str
    title: str = ""
    logarithmic: bool = True


@dataclass(frozen=True)
class LineChart(Chart):
    """Panels side by side with one vertical axis.

    Unless `whole`, the vertical axis leaves out very large values, which would flatten all curves.
    """

    panels: Sequence[Panel]
    title: str
    y_label: str
    whole: bool = False
    note: str = ""

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

    def _drawn(self) -> tuple[float, float, list[str]]:
        """Draw panels side by side; curves are labelled right of the last panel.

        Points above the vertical axis are marked at the top edge with their values.
        """
        panels = self.panels
        width = _WIDTH + (len(panels) - 1) * _PANEL_EXTRA_WIDTH
        room = (width - _LEFT - _RIGHT - (len(panels) - 1) * _PANEL_GAP) / len(panels)
        top = _TOP + (_LABEL_HEIGHT if any(panel.title for panel in panels) else 0)
        low, high = self.limits()
        ticks = _ticks(low, high)
        low, high = min(low, ticks[0]), max(high, ticks[-1])

        def at_y(y: float) -> float:
            return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - top - _BOTTOM)

        parts = [
            f'<text class="tick" x="{_LEFT - 9}" y="{at_y(tick) + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
            for tick in ticks
        ]
        middle = (_HEIGHT - _BOTTOM + top) / 2
        parts.append(
            f'<text class="name" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )
        for index, panel in enumerate(panels):
            left = _LEFT + index * (room + _PANEL_GAP)
            parts.extend(f'<path class="grid" d="M{left:.1f} {at_y(tick):.1f}H{left + room:.1f}"/>' for tick in ticks)
            parts.extend(_panel(panel, left, left + room, at_y, top))
        last = panels[-1]
        labels = [(at_y(level.value), level.name, "ref") for level in last.levels]
        labels += [(max(at_y(line.mean[-1]), top), line.name, line.style) for line in last.lines]
        parts.extend(_end_labels(labels, width - _RIGHT))
        return width, _HEIGHT, parts


@dataclass(frozen=True)
class BarChart(Chart):
    """Horizontal bars from zero, each with its spread, if that is known."""

    names: Sequence[str]
    values: Sequence[float]
    spreads: Sequence[float | None]
    title: str
    x_label: str
    note: str = ""

    def _drawn(self) -> tuple[float, float, list[str]]:
        """Draw positive bars to the right, each with its spread as a whisker."""
        names, values = self.names, self.values
        step, left, right = 26, 210, 74
        width, height = _WIDTH, _TOP + step * len(names) + 44
        halves = [spread or 0.0 for spread in self.spreads]
        reach = max((abs(v) for v in values), default=0.0) or 1.0
        smallest = min(0.0, *(value - half for value, half in zip(values, halves, strict=True)))
        largest = max(0.0, *(value + half for value, half in zip(values, halves, strict=True)))
        span = (largest - smallest) or 1.0
        # Room at both ends for the values, which stand beside the bars.
        room = width - left - right - (56 if smallest < 0 else 0)
        zero = left + (56 if smallest < 0 else 0) + room * (-smallest / span)
        bottom = _TOP + step * len(names)
        parts = []
        for row, (name, value, half) in enumerate(zip(names, values, halves, strict=True)):
            y, length, whisker = _TOP + row * step, abs(value) / span * room, half / span * room
            x = zero if value >= 0 else zero - length
            end = zero + length if value >= 0 else zero - length
            anchor, place = ("start", end + whisker + 6) if value >= 0 else ("end", end - whisker - 6)
            shown = f"{name}: {value:.4g}" + (f" ± {half:.2g}" if half else "")
            parts.append(
                f'<text class="row" x="{left - 10}" y="{y + 16}" text-anchor="end">{escape(_shortened(name, 30))}'
                f"<title>{escape(name)}</title></text>"
                f'<rect class="bar {"up" if value >= 0 else "down"}" x="{x:.1f}" y="{y + 3}" '
                f'width="{max(length, 0.5):.1f}" height="{step - 8}" rx="2">'
                f"<title>{escape(shown)}</title></rect>"
                f'<text class="tick" x="{place:.1f}" y="{y + 16}" text-anchor="{anchor}">{_signed(value, reach)}</text>'
            )
            if whisker:
                parts.append(f'<path class="whisker" d="M{end - whisker:.1f} {y + step / 2 - 1}h{2 * whisker:.1f}"/>')
        parts.append(f'<path class="axis" d="M{zero:.1f} {_TOP - 4}V{bottom}"/>')
        parts.append(
            f'<text class="name" x="{(left + width - right) / 2}" y="{bottom + 28}" text-anchor="middle">'
            f"{escape(self.x_label)}</text>"
        )
        return width, height, parts


def forecast_charts(forecasts: "Sequence[Forecast]") -> list[LineChart]:
    """Return forecasts over epsilon: expected error, or noise in a logit. None if nothing would ever be released."""
    if forecasts[0].shifts:
        # One curve for a shift of middle size; the band goes from the smallest to the largest shift.
        ratios = [[r for s, r in zip(f.shifts, f.error_ratios, strict=True) if s > 0] for f in forecasts]
        middle = [sorted(of_shifts)[len(of_shifts) // 2] for of_shifts in ratios]
        epsilons = [forecast.epsilon for forecast in forecasts]
        line = Line("this fit", epsilons, middle, [min(r) for r in ratios], [max(r) for r in ratios], "s2")
        band = "Curve: a shift of middle size. Band: from the smallest shift to the largest."
        panel = Panel([line], [Level("the public model", 1.0)], _EPSILON_AXIS)
        title, label = "Forecast: mean squared error by epsilon", "mean squared error / public model's"
        return [LineChart([panel], title, label, whole=True, note=band)]
    noise = {forecast.epsilon: forecast.blur for forecast in forecasts if math.isfinite(forecast.blur)}
    if not any(blur > 0 for blur in noise.values()):
        return []
    title = "noise in a logit (standard deviation)"
    levels = [Level("most information lost", 1.0), Level("little information lost", 0.1)]
    line = _line_without_spread(title, list(noise), list(noise.values()), "s2")
    panel = Panel([line], levels, _EPSILON_AXIS)
    return [LineChart([panel], f"Forecast: {title} by epsilon", title, whole=True)]


def advice_chart(advice: "Advice") -> LineChart | None:
    """Return the expected errors of an advice; None if nothing was rehearsed."""
    if advice.chosen is None:
        return None
    epsilons, (random, *shifted) = advice.epsilons, advice.chosen.ratios.tolist()
    lines = [_line_without_spread("no difference", epsilons, random, "ref")]
    if shifted:
        columns = list(zip(*shifted, strict=True))
        low, high = [min(column) for column in columns], [max(column) for column in columns]
        lines.append(Line("with differences", epsilons, advice.chosen.expected.tolist(), low, high, "s2"))
    panel = Panel(lines, [Level("the public model", 1.0)], _EPSILON_AXIS)
    note = "Band: from the least to the largest of the differences."
    measure = advice.error
    return LineChart([panel], f"Expected {measure} by epsilon", f"{measure} / public model's", whole=True, note=note)


def case_chart(case: Mapping[str, Any]) -> LineChart:
    """Return the panels of a case of the demo, or of a rehearsal, as one chart; they have means and spreads."""
    panels = [
        Panel(
            [_measured(curve, index) for index, curve in enumerate(panel["curves"])],
            [Level(level["name"], level["mean"]) for level in panel["levels"]],
            panel["axis"],
            panel["title"],
        )
        for panel in case["panels"]
    ]
    title = f"{case['title']}: error by " + " and ".join(panel["key"] for panel in case["panels"])
    return LineChart(panels, title, case["axis"], note="Bands: ± one standard deviation over the splits.")


def spending_chart(spending: Sequence[float], cap: float) -> LineChart:
    """Return what was spent of a ledger after each charge; of many charges some are left out, never the last."""
    step = -(-len(spending) // _MOST_POINTS)
    counts = [0, *range(len(spending), 0, -step)[::-1]] if spending else [0]
    line = _line_without_spread("spent", counts, [spending[k - 1] if k else 0.0 for k in counts], "s2")
    panel = Panel([line], [Level("cap", cap)] if math.isfinite(cap) else [], "charges", logarithmic=False)
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


def _panel(panel: Panel, left: float, right: float, at_y: _Scale, top: float) -> list[str]:
    """Return one panel without its vertical axis."""
    xs = sorted({x for line in panel.lines for x in line.x})
    middle, bottom = (left + right) / 2, _HEIGHT - _BOTTOM

    def at_x(x: float) -> float:
        if xs[0] == xs[-1]:
            return middle
        share = (x - xs[0]) / (xs[-1] - xs[0])
        if panel.logarithmic:
            share = math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
        return left + 14 + share * (right - left - 28)

    parts = [f'<path class="mark" d="M{at_x(x):.1f} {bottom}v5"/>' for x in xs]
    parts.extend(
        f'<text class="tick" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>'
        for x, text in _without_overlap([(at_x(x), _count(x)) for x in xs])
    )
    parts.append(f'<path class="axis" d="M{left:.1f} {bottom}H{right:.1f}"/>')
    for text, y in ((panel.x_label, _HEIGHT - 8), (panel.title, _TOP - 2)):
        if text:
            parts.append(f'<text class="name" x="{middle:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>')
    parts.extend(f'<path class="ref" d="M{left:.1f} {at_y(level.value):.1f}H{right:.1f}"/>' for level in panel.levels)
    for line in panel.lines:
        parts.extend(_curve(line, at_x, at_y, top))
    parts.extend(_marks_above(panel.lines, at_x, at_y, top))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers inside [low, high], about five of them."""
    raw = (high - low) / 5
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low, high]


def _curve(line: Line, at_x: _Scale, at_y: _Scale, top: float) -> list[str]:
    points = list(zip(line.x, line.mean, line.low, line.high, strict=True))
    upper = [(at_x(x), at_y(high)) for x, _, _, high in points]
    lower = [(at_x(x), at_y(low)) for x, _, low, _ in points]
    middle = [(at_x(x), at_y(mean)) for x, mean, _, _ in points]
    band = [*_clipped_at(upper, top), *reversed(_clipped_at(lower, top))]
    dash = " dashed" if line.dashed else ""
    parts = [f'<polygon class="band {line.style}" points="{_coordinates(band)}"/>']
    # Above the plot a curve is not drawn: along the edge it would look flat.
    parts.extend(
        f'<polyline class="line {line.style}{dash}" points="{_coordinates(piece)}"/>' for piece in _pieces(middle, top)
    )
    parts.extend(
        f'<circle class="dot {line.style}" cx="{px:.1f}" cy="{py:.1f}" r="3.6">{_tooltip(line, k)}</circle>'
        for k, (px, py) in enumerate(middle)
        if py >= top
    )
    return parts


def _marks_above(lines: Sequence[Line], at_x: _Scale, at_y: _Scale, top: float) -> list[str]:
    """Return marks with values for the points above the plot; several at one x are placed below each other."""
    parts, taken = [], dict[float, int]()
    for line in lines:
        for k, (x, mean) in enumerate(zip(line.x, line.mean, strict=True)):
            if at_y(mean) >= top:
                continue
            px, y = at_x(x), top + _LABEL_HEIGHT * taken.get(x, 0)
            taken[x] = taken.get(x, 0) + 1
            parts.append(
                f'<path class="dot {line.style}" d="M{px - 5:.1f} {y + 8:.1f}L{px:.1f} {y:.1f}L{px + 5:.1f} '
                f'{y + 8:.1f}z">{_tooltip(line, k)}</path>'
                f'<text class="tick" x="{px + 9:.1f}" y="{y + 9:.1f}">{mean:.3g}</text>'
            )
    return parts


def _tooltip(line: Line, k: int) -> str:
    """Return the text shown when the pointer rests on a point."""
    spread = f" ({line.low[k]:.4g} to {line.high[k]:.4g})" if line.low[k] < line.high[k] else ""
    return f"<title>{escape(line.name)} at {line.x[k]:g}: {line.mean[k]:.4g}{spread}</title>"


def _with_crossings(points: Sequence[_Point], top: float) -> list[_Point]:
    """Return the points together with those at which the line crosses the top edge."""
    extended = list(points[:1])
    for (x0, y0), (x1, y1) in pairwise(points):
        if (y0 < top) != (y1 < top):
            extended.append((x0 + (x1 - x0) * (top - y0) / (y1 - y0), top))
        extended.append((x1, y1))
    return extended


def _clipped_at(points: Sequence[_Point], top: float) -> list[_Point]:
    """Return the line with every part above the top edge moved to the edge."""
    return [(x, max(y, top)) for x, y in _with_crossings(points, top)]


def _pieces(points: Sequence[_Point], top: float) -> list[list[_Point]]:
    """Return the parts of the line at or below the top edge."""
    pieces: list[list[_Point]] = [[]]
    for x, y in _with_crossings(points, top):
        if y >= top:
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if len(piece) > 1]


def _coordinates(points: Sequence[_Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _end_labels(labels: Sequence[tuple[float, str, str]], right: float) -> list[str]:
    """Return labels beside the plot, moved apart where they would overlap, each connected to its line."""
    placed: list[float] = []
    ordered = sorted(labels)
    for wanted, _, _ in ordered:
        placed.append(max(wanted, placed[-1] + _LABEL_HEIGHT) if placed else wanted)
    # Labels moved below the plot are moved up again, from the last one.
    limit = float(_HEIGHT - _BOTTOM + 6)
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LABEL_HEIGHT
    return [
        f'<path class="tie" d="M{right + 2} {wanted:.1f}L{right + 12} {y:.1f}"/>'
        f'<text class="end {style}" x="{right + 16}" y="{y + 4:.1f}">{escape(_shortened(name, 27))}</text>'
        for (wanted, name, style), y in zip(ordered, placed, strict=True)
    ]


def _without_overlap(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the labels of an axis without those that would touch another; the last always stays."""
    shown: list[tuple[float, str]] = []
    for x, text in [ticks[-1], *ticks[:-1]]:
        if all(abs(x - place) >= _LETTER_WIDTH * (len(text) + len(label) + 1) / 2 for place, label in shown):
            shown.append((x, text))
    return shown


def _short(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _signed(value: float, reach: float) -> str:
    digits = min(6, max(0, 2 - math.floor(math.log10(reach))))
    return f"{value:+.{digits}f}" if reach < 1e6 else f"{value:+.3g}"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
