"""Heat maps as inline SVG: ratios around 1, blue below, red above. Colours are CSS variables of the page."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP = 232, 46, 33, 24, 9
# A ratio of 0.25 or 1.05 has the full colour: harm is told apart at a finer scale than gain.
_FULL_GAIN, _FULL_HARM = math.log(4.0), math.log(1.05)
_LEAST, _MOST, _HARM = 0.06, 0.5, 0.3


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
    """Return how much colour a ratio gets; none at 1, and never so little that harm is missed."""
    if not math.isfinite(value):
        return _MOST
    distance = math.log(max(value, 1e-9))
    share = min(1.0, -distance / _FULL_GAIN if distance < 0 else distance / _FULL_HARM)
    colour = 0.0 if share == 0 else _LEAST + share * (_MOST - _LEAST)
    return max(colour, _HARM) if harm else colour


def _text(value: float) -> str:
    if not math.isfinite(value) or value >= 10:
        return "≥10" if value >= 10 else "?"
    return "1" if value == 1.0 else f"{value:.2f}".removeprefix("0")
