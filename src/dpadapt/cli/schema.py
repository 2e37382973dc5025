"""`dpadapt schema`: describe a table from public rows."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.options import check_parent, teach

_HELP = teach(
    """
Describe a table from its public rows: columns, types, ranges, categories.

The schema is what a fit knows about the private table before the table is opened. It is made from public data only
and written as TOML. Edit it by what you know about the subject: widen ranges, add categories that can occur, set
type = "ignore" for identifiers. Private numbers outside a range are clipped without a message.

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
        str | None, typer.Option(help="Name of the private data set. A ledger belongs to one name.")
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
    force: Annotated[bool, typer.Option("--force", help="Replace an existing schema.")] = False,
) -> None:
    """Infer and write a schema."""
    from dpadapt.persist import write_atomically
    from dpadapt.tables import Category, Ignored, Number, infer, read_table, to_toml

    check_parent(out, "--out")
    if out.exists() and not force:
        raise ValueError(
            f"--out {out}: this file exists and may have been edited. Choose another name, or add --force."
        )
    table = read_table(public, origin=str(public), private=False)
    named = dataset or f"{public.stem}-private"
    inferred = infer(table, dataset=named, categories=tuple(category or ()), encoders=_encoders(encode or []))
    write_atomically(out, to_toml(inferred, origin=public.name).encode())
    numbers = sum(isinstance(column, Number) for column in inferred.columns)
    categories = sum(isinstance(column, Category) for column in inferred.columns)
    ignored = [column.name for column in inferred.columns if isinstance(column, Ignored)]
    typer.echo(f"Wrote {out}: {numbers} number and {categories} category columns.")
    if ignored:
        typer.echo(f"Ignored, because they have too many different texts: {', '.join(ignored)}.")
    typer.echo(f"Now edit it by what you know: the name of the data set ({inferred.dataset}), ranges and categories.")


def _encoders(options: list[str]) -> dict[str, str]:
    """Return the encoder of each column that --encode names."""
    from dpadapt.representation.encoders import find_encoder

    encoders = {}
    for option in options:
        column, _, name = option.rpartition("=")
        if not column:
            raise ValueError(f"--encode must be COLUMN=ENCODER, e.g. review=wordllama, got {option!r}.")
        try:
            encoders[column] = find_encoder(name).name
        except ValueError as error:
            raise ValueError(f"--encode: {error}") from None
    return encoders
