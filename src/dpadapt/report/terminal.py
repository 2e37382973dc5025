"""Results as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from dpadapt.transfer.preview import Preview


# Colours of a verdict.
_VERDICT_STYLES = {"go": "bold green", "stay": "bold blue", "more": "bold yellow", "open": "bold"}


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Return names and values in two columns."""
    table = Table(title=_escaped(title), title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _escaped(value))
    return table


def history_table(title: str, history: Sequence[Mapping[str, Any]]) -> Table:
    """Return a ledger's charges with their releases, and the changes of its allowances; `history` is `history_of` it.

    Two columns, so that a release fits into one line of 80 characters.
    """
    table = Table(title=_escaped(title), title_justify="left", title_style="bold", show_lines=True)
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("for, its epsilon alone, the epsilon spent so far, and what was released", overflow="fold")
    for record in history:
        if record["kind"] == "change":
            words = f"allowance {record['who']}: epsilon = {record['epsilon']}, delta = {record['delta']}"
            table.add_row(record["time"], _escaped(words))
            continue
        under = f", under the allowance {record['who']}" if record["who"] else ""
        seeded = " (seeded: no guarantee)" if record["seeded"] else ""
        lines = [f"{record['what']}{under}: epsilon = {record['cost']}, so far {record['spent']}{seeded}"]
        for release in record["releases"]:
            times = "" if release["times"] == "1" else f" x {release['times']}"
            lines.append(f"  {release['label']}: {release['mechanism']}{times}")
        table.add_row(record["time"], _escaped("\n".join(lines)))
    return table


def receipt_table(receipt: Mapping[str, Any], more: Mapping[str, str]) -> Table:
    """Return a receipt as `receipt_facts` gives it, and `more` facts below it."""
    facts = {
        "cost": receipt["cost"],
        "protects": receipt["protects"],
        "released": "\n".join(receipt["released"]) or "nothing",
        "assumed public": "\n".join(receipt["assumptions"]),
    }
    return facts_table("Receipt", {**facts, **more})


def print_fit(screen: "Console", summary: Mapping[str, Any]) -> None:
    """Print the report of a fit; `summary` is from `summarise_fit`."""
    verdict = summary["verdict"]
    screen.print(f"{verdict['title']}.", style=_VERDICT_STYLES[verdict["kind"]], markup=False)
    screen.print(verdict["words"], markup=False)
    more = {"method": f"{summary['method']['name']} ({summary['task']})"}
    if summary["ledger"]:
        more["ledger"] = summary["ledger"]["words"]
    screen.print(receipt_table(summary["receipt"], more))
    screen.print("What the public and the private rows contributed", style="bold")
    for sentence in summary["brought"]:
        screen.print(sentence, markup=False)
    if summary["by_class"]:
        table = Table(title="On public rows, another population", title_justify="left", box=SIMPLE_HEAD)
        for heading in summary["by_class"]["headings"]:
            table.add_column(heading, justify="left" if heading == "class" else "right")
        for row in summary["by_class"]["rows"]:
            table.add_row(*map(_escaped, row))
        screen.print(table)
    for sentence in (summary["threshold"], summary["intervals"], *summary["groups"]):
        if sentence:
            screen.print(sentence, markup=False)


def panel_tables(screen: "Console", case: Mapping[str, Any]) -> None:
    """Print a case of the demo or a rehearsal: a table per panel, a row per model, a column per epsilon or size."""
    screen.print(case["title"], style="bold", markup=False)
    screen.print(case["measure"], style="dim", markup=False)
    for panel in case["panels"]:
        table = Table(box=SIMPLE_HEAD, collapse_padding=True)
        table.add_column(_escaped(panel["title"]), no_wrap=True, min_width=22)
        for x in panel["x"]:
            table.add_column(f"{panel['symbol']} = {x:,g}", justify="right", no_wrap=True, min_width=9)
        for level in panel["levels"]:
            table.add_row(_escaped(level["name"]), *[f"{level['mean']:.3f}"] * len(panel["x"]), style="dim")
        for curve in panel["curves"]:
            cells = [f"{point['mean']:.3f}" for point in curve["points"]]
            style = {"together": "bold", "not private": "dim"}.get(curve["key"], "")
            table.add_row(_escaped(curve["name"]), *cells, style=style)
        screen.print(table)


def print_preview(screen: "Console", preview: "Preview") -> None:
    """Print a forecast, rehearsals or an advice: what it says, its table, and how to read that."""
    if preview.headline:
        screen.print(f"{preview.headline}.", style="bold", markup=False)
    for sentence in preview.words:
        screen.print(sentence, markup=False)
    if preview.rows:
        screen.print(f"\n{preview.title}", style="bold", markup=False)
    for line in preview.table():
        screen.print(line, markup=False, soft_wrap=True)
    screen.print()
    for note in preview.notes:
        screen.print(note, markup=False)
    screen.print("No private row was read and nothing was spent.")


def _escaped(text: str) -> str:
    """Return `text` so that rich prints brackets instead of reading them as markup."""
    from rich.markup import escape

    return escape(text)
