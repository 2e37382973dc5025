"""Results as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from dpadapt.accounting.receipt import Entry


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Return names and values in two columns."""
    table = Table(title=_plain(title), title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _plain(value))
    return table


def history_table(title: str, history: Sequence[tuple[str, "Entry"]]) -> Table:
    """Return a ledger's charges, oldest first."""
    table = Table(title=_plain(title), title_justify="left", title_style="bold")
    for heading in ("time (UTC)", "for", "release", "times"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "times" else "left")
    for time, entry in history:
        seeded = " (seeded: no guarantee)" if entry.seeded else ""
        table.add_row(time, _plain(entry.label + seeded), _plain(str(entry.event)), f"{entry.times}")
    return table


def fit_table(summary: Mapping[str, Any]) -> Table:
    """Return the receipt of one fit."""
    receipt = summary["receipt"]
    facts = {
        "cost": f"epsilon = {_number(receipt['epsilon'])}, delta = {receipt['delta']:.3g}",
        "protects": receipt["protects"],
        "released": "\n".join(f"{e['label']}: {e['mechanism']} x {e['times']}" for e in receipt["entries"])
        or "nothing",
        "assumed public": "\n".join(receipt["assumptions"]),
        "method": f"{summary['method']['name']} ({summary['task']})",
    }
    if summary["ledger"]:
        facts["ledger"] = summary["ledger"]["words"]
    return facts_table("Receipt", facts)


def panel_tables(screen: "Console", case: Mapping[str, Any]) -> None:
    """Print a case of the demo or a rehearsal, a table per panel: a row per model, a column per epsilon or size."""
    screen.print(case["title"], style="bold", markup=False)
    screen.print(case["measure"], style="dim", markup=False)
    for panel in case["panels"]:
        table = Table(box=SIMPLE_HEAD, collapse_padding=True)
        table.add_column(_plain(panel["title"]), no_wrap=True, min_width=22)
        for x in panel["x"]:
            table.add_column(f"{panel['symbol']} = {x:,g}", justify="right", no_wrap=True, min_width=9)
        for level in panel["levels"]:
            table.add_row(_plain(level["name"]), *[f"{level['mean']:.3f}"] * len(panel["x"]), style="dim")
        for curve in panel["curves"]:
            cells = [f"{point['mean']:.3f}" for point in curve["points"]]
            style = {"together": "bold", "not private": "dim"}.get(curve["key"], "")
            table.add_row(_plain(curve["name"]), *cells, style=style)
        screen.print(table)


def forecast_table(forecast: Mapping[str, Any]) -> Table:
    """Return a forecast: a row per epsilon."""
    title = f"Forecast for {forecast['rows']:,} private rows"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, collapse_padding=True)
    points = forecast["points"]
    if forecast["task"] == "regression":
        # The ratio of the expected error to the public model's, for each assumed size of the shift.
        headings = [f"{shift:.0%}" for shift in points[0]["shifts"]]
        rows = [[f"{ratio:.2f}" for ratio in point["error_ratios"]] for point in points]
    else:
        headings = ["noise in a score", "log-loss to save"]
        rows = [[_given(point["blur"]), _given(point["needed_gain"])] for point in points]
    for index, heading in enumerate(["", *headings, "directions", "heard"]):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for point, row in zip(points, rows, strict=True):
        table.add_row(f"ε = {point['epsilon']:g}", *row, f"{point['n_directions']}", point["verdict"])
    return table


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _given(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
