"""Results as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from dpadapt.accounting.entry import Entry


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
        "released": "\n".join(f"{e['label']}: {e['mechanism']} x {e['times']}" for e in receipt["entries"]),
        "assumed public": "\n".join(receipt["assumptions"]),
        "method": f"{summary['method']['name']} ({summary['task']})",
    }
    if summary["ledger"]:
        facts["ledger"] = summary["ledger"]["words"]
    return facts_table("Receipt", facts)


def demo_table(case: Mapping[str, Any]) -> Table:
    """Return one case of the demo: a row per model, a column per epsilon."""
    heading = f"{_plain(case['title'])}\n[not bold dim]{_plain(case['measure'])}[/]"
    table = Table(title=heading, title_justify="left", title_style="bold", box=SIMPLE_HEAD, collapse_padding=True)
    table.add_column("model", no_wrap=True)
    epsilons = case["epsilons"]
    for epsilon in epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right", no_wrap=True)
    for level in case["references"]:
        table.add_row(_plain(level["name"]), *[f"{level['mean']:.3f}"] * len(epsilons), style="dim")
    for curve in case["curves"]:
        cells = [f"{point['mean']:.3f}" for point in curve["points"]]
        table.add_row(_plain(curve["name"]), *cells, style="bold" if curve["public"] else "")
    return table


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
