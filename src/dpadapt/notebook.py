"""HTML of results in a notebook: small cards that follow its light or dark theme.

Text has the colour of the notebook, and lines and bars are half transparent, so that they can be seen on any
background. Styles stand in the elements: a style sheet would reach into the other outputs of the page. Where a viewer
removes them, headings, tables and lists remain. All functions escape the texts that they are given.
"""

from collections.abc import Mapping, Sequence
from html import escape

_RULE = "1px solid rgba(128,128,128,0.35)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:none;border-bottom:{_RULE};background:none"


def card(kind: str, *parts: str) -> str:
    """Return what a notebook shows: what it is, and below it `parts`, which the other functions here return."""
    heading = f"<div style='font-size:85%;opacity:0.7'>{escape(kind)}</div>"
    return (
        f"<div style='border:{_RULE};border-radius:6px;padding:8px 12px;margin:4px 0;max-width:60em;color:inherit;"
        f"line-height:1.5'>{heading}{''.join(parts)}</div>"
    )


def headline(text: str) -> str:
    """Return the result itself, in larger letters."""
    return f"<div style='font-size:115%;font-weight:600'>{escape(text)}</div>"


def sentence(text: str) -> str:
    """Return a paragraph."""
    return f"<div style='margin:2px 0'>{escape(text)}</div>"


def note(text: str) -> str:
    """Return a paragraph in small letters."""
    return f"<div style='margin:2px 0;font-size:85%;opacity:0.7'>{escape(text)}</div>"


def warning(text: str) -> str:
    """Return a paragraph that stands out."""
    # Amber has a contrast of at least 3 with white and with black.
    return f"<div style='margin:4px 0;border-left:4px solid #b8860b;padding-left:8px'>Warning: {escape(text)}</div>"


def facts(named: Mapping[str, str]) -> str:
    """Return names and values in two columns."""
    rows = "".join(
        f"<tr style='background:none'><th style='{_CELL};font-weight:600;white-space:nowrap'>{escape(name)}</th>"
        f"<td style='{_CELL}'>{escape(value)}</td></tr>"
        for name, value in named.items()
    )
    return f"<table style='border-collapse:collapse;margin:4px 0;color:inherit'>{rows}</table>"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the columns after the first hold numbers or short words."""

    def line(tag: str, cells: Sequence[str]) -> str:
        aligned = [f"{_CELL};text-align:{'right' if k else 'left'}" for k in range(len(cells))]
        inside = "".join(
            f"<{tag} style='{style}'>{escape(cell)}</{tag}>" for style, cell in zip(aligned, cells, strict=True)
        )
        return f"<tr style='background:none'>{inside}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f"<div style='overflow-x:auto'><table style='border-collapse:collapse;margin:4px 0;color:inherit'>"
        f"<thead>{line('th', headings)}</thead><tbody>{body}</tbody></table></div>"
    )


def folded(name: str, items: Sequence[str]) -> str:
    """Return a list that opens on a click; nothing if it is empty."""
    if not items:
        return ""
    inside = "".join(f"<li>{escape(item)}</li>" for item in items)
    return (
        f"<details style='margin:2px 0'><summary style='cursor:pointer'>{escape(name)} ({len(items):,})</summary>"
        f"<ul style='margin:2px 0;padding-left:20px'>{inside}</ul></details>"
    )


def meter(share: float) -> str:
    """Return a bar of which `share`, between 0 and 1, is filled."""
    width = 100 * min(max(share, 0.0), 1.0)
    return (
        "<div style='height:8px;border-radius:4px;background:rgba(128,128,128,0.3);margin:4px 0;overflow:hidden'>"
        f"<div style='height:100%;width:{width:.1f}%;background:#3b7dd8'></div></div>"
    )
