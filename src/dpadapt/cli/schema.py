"""`dpadapt schema`: describe a table from public rows."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.options import check_parent, teach

_HELP = teach(
    """
Describe a table from its public rows: columns, types, ranges, categories.

The schema is what a fit knows about the private table before it opens it. It is made from public data only and
written as TOML for you to edit: widen ranges by what you know about the subject, add categories that can occur, set
type = "ignore" for identifiers. Private numbers outside a range are clipped silently.

Example:

\b
  dpadapt schema public.csv -o schema.toml --dataset patients
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("schema", help=_HELP)(_schema)


def _schema(
    public: Annotated[Path, typer.Argument(help="Public rows, CSV or Parquet. Never the private file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the schema.")] = Path("schema.toml"),
    dataset: Annotated[
        str | None, typer.Option(help="Name of the private data set; its ledger belongs to this name.")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(help="A column of numbers that are codes, not amounts. Repeat for several.")
    ] = None,
    encode: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of texts or image files and its encoder, e.g. review=wordllama. Repeat for several."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a schema that is there already.")] = False,
) -> None:
    """Infer and write a schema."""
    from dpadapt.persist import write_atomically
    from dpadapt.tables import Category, Ignored, Number, infer, read_table, to_toml

    check_parent(out, "--out")
    if out.exists() and not force:
        raise ValueError(f"--out {out}: there is a file already, perhaps edited. Choose another name, or add --force.")
    table = read_table(public, origin=str(public), private=False)
    named = dataset or f"{public.stem}-private"
    found = infer(table, dataset=named, categories=tuple(category or ()), encoders=_encoders(encode or []))
    write_atomically(out, to_toml(found, origin=public.name).encode())
    numbers = sum(isinstance(column, Number) for column in found.columns)
    categories = sum(isinstance(column, Category) for column in found.columns)
    ignored = [column.name for column in found.columns if isinstance(column, Ignored)]
    typer.echo(f"Wrote {out}: {numbers} number and {categories} category columns.")
    if ignored:
        typer.echo(f"Ignored for having too many different texts: {', '.join(ignored)}.")
    typer.echo(f"Now edit it: the name of the data set ({found.dataset}), ranges and categories by what you know.")


def _encoders(options: list[str]) -> dict[str, str]:
    """Return the encoder of each column that --encode names."""
    from dpadapt.representation.encoders import find_encoder

    found = {}
    for option in options:
        column, _, name = option.rpartition("=")
        if not column:
            raise ValueError(f"--encode must be COLUMN=ENCODER, e.g. review=wordllama, got {option!r}.")
        try:
            found[column] = find_encoder(name).name
        except ValueError as error:
            raise ValueError(f"--encode: {error}") from None
    return found
