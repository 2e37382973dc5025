"""`dpadapt statement`: one page about a saved model for a data-protection assessment."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.options import teach
from dpadapt.cli.screen import check_parent, say, write_file

_HELP = teach(
    """
Write a one-page privacy statement of a model, for a data-protection assessment.

What is protected, how strongly, what left the private data, what was assumed to be public, what the model's folder
contains, and how to verify all of it. It is made from the receipt alone: the private data is not needed.

Example:

\b
  dpadapt statement model/ -o statement.html
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("statement", help=_HELP)(_statement)


def _statement(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file to write. Default: the text is printed.")
    ] = None,
) -> None:
    """Read the model's receipt, and write the statement."""
    from dpadapt.persist import load
    from dpadapt.report.receipt import statement_page, statement_text, summarise_statement
    from dpadapt.tables import TableModel

    if out is not None:
        check_parent(out, "--out")
    saved = load(model)
    dataset = (saved.model.schema.dataset if isinstance(saved.model, TableModel) else "") or "the private data"
    summary = summarise_statement(
        saved.model.privacy_, dataset=dataset, method=f"{saved.method.name} ({saved.method.task})"
    )
    if out is None:
        say(statement_text(summary))
        return
    write_file(out, "--out", statement_page(summary).encode())
    say(f"Wrote {out}")
