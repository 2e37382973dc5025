"""`dpadapt ledger show` and `dpadapt ledger history`: what was spent on a private data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import Json, console, print_json, say, teach

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger


_GROUP = teach(
    """
Show the ledger of a private data set: its cap, what was spent, and on what.

A ledger is a file to which every fit and every evaluation on one private data set is charged before
noise is drawn. It refuses what would exceed its cap. By default it lies beside the private file. For
several machines it is kept on a PostgreSQL server instead. Reading it costs nothing.

Examples:

\b
  dpadapt ledger show patients.ledger
  dpadapt ledger history patients.ledger
  dpadapt ledger show postgresql://anna@server/budgets --dataset patients
"""
)

_SHOW = teach(
    """
Show the data set of a ledger, its cap, and what is spent and left.

Example:

\b
  dpadapt ledger show patients.ledger
"""
)

_HISTORY = teach(
    """
List every charge of a ledger, oldest first.

Example:

\b
  dpadapt ledger history patients.ledger --json
"""
)

File = Annotated[
    str,
    typer.Argument(
        help="A ledger created by dpadapt fit or Ledger.open: its file, or postgresql://user@host/database."
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Name of the private data set; needed for a ledger on a server.")]


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help=_GROUP)
    group.callback(invoke_without_command=True)(_help)
    group.command("show", help=_SHOW)(_show)
    group.command("history", help=_HISTORY)(_history)
    app.add_typer(group, name="ledger")


def _help(context: typer.Context) -> None:
    """Show the help if no command was given."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def _open(file: str, dataset: str | None) -> tuple["Ledger", str]:
    """Open a ledger that exists; return also what it is called."""
    from dpadapt.cli.budget import ledger_exists, ledger_place, open_ledger

    place = ledger_place(file, dataset or "")
    if not isinstance(place, Path) and not dataset:
        raise ValueError("--dataset: a ledger on a server is found by the name of its data set. Give that name.")
    if not (place.is_file() if isinstance(place, Path) else ledger_exists(place)):
        raise ValueError(
            f"{place}: there is no such ledger. If there was one, its budget must be taken as spent; for data about "
            f"which nothing was released yet, dpadapt fit --ledger {place} makes one."
        )
    ledger = open_ledger(place, read_only=True, dataset=dataset)
    return ledger, place.name if isinstance(place, Path) else f"{place}: {dataset}"


def _show(file: File, dataset: Dataset = None, as_json: Json = False) -> None:
    """Print the summary."""
    ledger, name = _open(file, dataset)
    entries = ledger.entries
    facts = {
        "dataset": ledger.dataset,
        "adjacency": ledger.adjacency.value,
        "unit": ledger.unit,
        "cap_epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "spent_epsilon": ledger.spent(),
        "remaining_epsilon": ledger.remaining(),
        "rule": ledger.rule,
        "charges": ledger.n_charges,
        "entries": len(entries),
        "seeded": any(entry.seeded for entry in entries),
    }
    if as_json:
        print_json(facts)
        return
    from dpadapt.report.terminal import facts_table

    receipt = ledger.receipt()
    kept = receipt.epsilon <= ledger.epsilon * (1 + 1e-6)
    promise = ": guaranteed, however charges are chosen" if kept else ""
    kind = "Gaussian noise" if ledger.delta else "pure noise"
    shown = {
        "data set": ledger.dataset or "(no name)",
        "cap": f"epsilon = {ledger.epsilon:.4g} at delta = {ledger.delta:.3g}{promise}",
        "spent": f"epsilon = {receipt.epsilon:.4g}: {receipt.meaning}",
        "left": f"epsilon = {facts['remaining_epsilon']:.4g}: the largest further release ({kind}) that is let through",
        "rule": f"{ledger.rule} (how charges are added up; docs/ledger.md)",
        "neighbours": f"{ledger.adjacency.value}, of one {ledger.unit}",
    }
    if facts["seeded"]:
        shown["warning"] = "some noise came from a seed: no guarantee for those charges"
    console().print(facts_table(name, shown))


def _history(file: File, dataset: Dataset = None, as_json: Json = False) -> None:
    """Print every charge."""
    ledger, name = _open(file, dataset)
    history = ledger.history()
    if as_json:
        print_json(
            {"dataset": ledger.dataset, "charges": [{"time": time, **entry.to_dict()} for time, entry in history]}
        )
        return
    from dpadapt.report.terminal import history_table

    console().print(history_table(name, history))
