"""`dpadapt audit`: check a saved model and its receipt."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.ledger import open_existing
from dpadapt.cli.options import Json, teach
from dpadapt.cli.screen import console, print_json, say

_HELP = teach(
    """
Check a saved model and its receipt, without the private rows.

A second accountant must confirm the receipt, its entries must add up and agree with the model's parameters, and, with
--ledger, they must have been charged. Nothing private is read and nothing is spent.

An audit is no proof: it can refute a receipt, never confirm it. The exit code is 1 if the receipt is refuted, and 0
otherwise.

Example:

\b
  dpadapt audit model/ --ledger patients.ledger
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("audit", help=_HELP)(_audit)


def _audit(
    model: Annotated[Path, typer.Argument(help="A model made by dpadapt fit or dpadapt.save.")],
    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger of its private data set, to look for the model's charges; a file, or "
            "postgresql://user@host/database."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="With --ledger on a server: the name of the private data set there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Audit a model; the exit code is 1 if its receipt is refuted."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from dpadapt.audit.saved_model import audit_model

    # The model may come from somebody else: its folder does not say which ledger is opened.
    audit = audit_model(model, ledger=None if ledger is None else open_existing(ledger, dataset)[0])
    if as_json:
        print_json(audit.to_dict())
        return int(audit.verdict == "refuted")
    table = Table(title=escape(f"Audit of {model.name}"), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for head, width in (("check", 24), ("verdict", 9), ("result", None)):
        table.add_column(head, overflow="fold", min_width=width)
    for finding in audit.findings:
        refuted = finding.verdict == "refuted"
        cells = finding.check, "REFUTED" if refuted else finding.verdict, finding.words
        table.add_row(*map(escape, cells), style="bold red" if refuted else None)
    console().print(table)
    say(audit.words)
    return int(audit.verdict == "refuted")
