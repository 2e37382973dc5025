"""Plots as inline SVG. Colours are CSS variables of the page, so they follow its theme."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 196, 18, 52
_LINE = 17  # height of one label

_Scale = Callable[[float], float]


@dataclass(frozen=True)
class Line:
    """A measured curve: means with their spread; `style` is a CSS class that gives the colour."""

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


def line_chart(lines: Sequence[Line], levels: Sequence[Level], *, title: str, x_label: str, y_label: str) -> str:
    """Return an SVG of curves over a logarithmic axis, with references, labelled at their right ends.

    Points above the axis are drawn at its top edge with their value beside them.

    Examples
    --------
    >>> line = Line("a", [0.1, 1.0], [1.0, 0.5], [0.9, 0.4], [1.1, 0.6], "s1")
    >>> line_chart([line], [Level("mean", 1.0)], title="t", x_label="x", y_label="y").startswith("<svg")
    True
    """
    xs = sorted({x for line in lines for x in line.x})
    low, high = _limits(lines, levels)
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def at_x(x: float) -> float:
        if xs[0] == xs[-1]:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        share = math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
        return _LEFT + 14 + share * (_WIDTH - _LEFT - _RIGHT - 28)

    def at_y(y: float) -> float:
        share = (min(max(y, low), high) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    right = _WIDTH - _RIGHT
    parts = [_open(_WIDTH, _HEIGHT, title)]
    for tick in ticks:
        y = at_y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 9}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    for x in xs:
        parts.append(f'<path class="mark" d="M{at_x(x):.1f} {_HEIGHT - _BOTTOM}v5"/>')
        parts.append(
            f'<text class="tick" x="{at_x(x):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{x:g}</text>'
        )
    parts.append(f'<path class="axis" d="M{_LEFT} {_HEIGHT - _BOTTOM}H{right}"/>')
    parts.append(
        f'<text class="name" x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    parts.append(
        f'<text class="name" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    labels = [(at_y(level.value), level.name, "ref") for level in levels]
    parts.extend(f'<path class="ref" d="M{_LEFT} {at_y(level.value):.1f}H{right}"/>' for level in levels)
    for line in lines:
        parts.extend(_curve(line, at_x, at_y, high))
        labels.append((at_y(line.mean[-1]), line.name, line.style))
    parts.extend(_end_labels(labels, right))
    return "".join(parts) + "</svg>"


def bar_chart(names: Sequence[str], values: Sequence[float], *, title: str, x_label: str) -> str:
    """Return an SVG of horizontal bars from zero, positive ones to the right.

    Examples
    --------
    >>> "age" in bar_chart(["age", "plan = free"], [0.5, -1.0], title="t", x_label="x")
    True
    """
    step, left, right = 26, 210, 74
    width, height = _WIDTH, _TOP + step * len(names) + 44
    reach = max((abs(v) for v in values), default=0.0) or 1.0
    smallest, largest = min(0.0, *values), max(0.0, *values)
    span = (largest - smallest) or 1.0
    # Values are written beside the bars, so both ends keep room for them.
    room = width - left - right - (56 if smallest < 0 else 0)
    zero = left + (56 if smallest < 0 else 0) + room * (-smallest / span)
    bottom = _TOP + step * len(names)
    parts = [_open(width, height, title)]
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        y, length = _TOP + row * step, abs(value) / span * room
        x = zero if value >= 0 else zero - length
        anchor, place = ("start", zero + length + 6) if value >= 0 else ("end", zero - length - 6)
        parts.append(
            f'<text class="row" x="{left - 10}" y="{y + 16}" text-anchor="end">{escape(_cut(name, 30))}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar {"up" if value >= 0 else "down"}" x="{x:.1f}" y="{y + 3}" '
            f'width="{max(length, 0.5):.1f}" height="{step - 8}" rx="2">'
            f"<title>{escape(name)}: {value:.4g}</title></rect>"
            f'<text class="tick" x="{place:.1f}" y="{y + 16}" text-anchor="{anchor}">{_signed(value, reach)}</text>'
        )
    parts.append(f'<path class="axis" d="M{zero:.1f} {_TOP - 4}V{bottom}"/>')
    parts.append(
        f'<text class="name" x="{(left + width - right) / 2}" y="{bottom + 28}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    return "".join(parts) + "</svg>"


def _open(width: float, height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'


def _limits(lines: Sequence[Line], levels: Sequence[Level]) -> tuple[float, float]:
    """Return the range to show; a few very bad points must not flatten everything else."""
    everything = [v for line in lines for v in (*line.low, *line.high)] + [level.value for level in levels]
    usual = [min(line.mean) for line in lines] + [level.value for level in levels]
    low, high, top = min(everything), max(everything), max(usual)
    high = min(high, top + 1.2 * (top - low))
    pad = 0.06 * ((high - low) or abs(high) or 1.0)
    return low - pad, high + pad


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers inside [low, high], about five of them."""
    raw = (high - low) / 5
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low, high]


def _curve(line: Line, at_x: _Scale, at_y: _Scale, top: float) -> list[str]:
    points = list(zip(line.x, line.mean, line.low, line.high, strict=True))
    upper = " ".join(f"{at_x(x):.1f},{at_y(h):.1f}" for x, _, _, h in points)
    lower = " ".join(f"{at_x(x):.1f},{at_y(lo):.1f}" for x, _, lo, _ in reversed(points))
    path = " ".join(f"{at_x(x):.1f},{at_y(m):.1f}" for x, m, _, _ in points)
    dash = " dashed" if line.dashed else ""
    parts = [
        f'<polygon class="band {line.style}" points="{upper} {lower}"/>',
        f'<polyline class="line {line.style}{dash}" points="{path}"/>',
    ]
    for x, mean, low, high in points:
        note = f"<title>{escape(line.name)} at {x:g}: {mean:.4g} ({low:.4g} to {high:.4g})</title>"
        px, py = at_x(x), at_y(mean)
        if mean > top:
            parts.append(
                f'<path class="dot {line.style}" d="M{px - 5:.1f} {py + 7:.1f}L{px:.1f} {py - 1:.1f}L{px + 5:.1f} '
                f'{py + 7:.1f}z">{note}</path>'
                f'<text class="tick" x="{px + 9:.1f}" y="{py + 7:.1f}">{mean:.3g}</text>'
            )
        else:
            parts.append(f'<circle class="dot {line.style}" cx="{px:.1f}" cy="{py:.1f}" r="3.6">{note}</circle>')
    return parts


def _end_labels(labels: Sequence[tuple[float, str, str]], right: float) -> list[str]:
    """Place labels beside the plot, pushed apart where they would overlap, tied to their lines."""
    placed: list[float] = []
    ordered = sorted(labels)
    for wanted, _, _ in ordered:
        placed.append(max(wanted, placed[-1] + _LINE) if placed else wanted)
    # Pushed out below the plot: move up again, from the last one.
    limit = float(_HEIGHT - _BOTTOM + 6)
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LINE
    return [
        f'<path class="tie" d="M{right + 2} {wanted:.1f}L{right + 12} {y:.1f}"/>'
        f'<text class="end {style}" x="{right + 16}" y="{y + 4:.1f}">{escape(_cut(name, 27))}</text>'
        for (wanted, name, style), y in zip(ordered, placed, strict=True)
    ]


def _short(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def _signed(value: float, reach: float) -> str:
    digits = min(6, max(0, 2 - math.floor(math.log10(reach))))
    return f"{value:+.{digits}f}" if reach < 1e6 else f"{value:+.3g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
