"""`dpadapt schema`: describe a table from public rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import check_parent, progress_bar, say, teach, working, write_file

if TYPE_CHECKING:
    from dpadapt.tables import Schema, Table

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
    from dpadapt.tables import Category, Ignored, Number, read_table, to_toml

    check_parent(out, "--out")
    if out.exists() and not force:
        raise ValueError(
            f"--out {out}: this file exists and may have been edited. Choose another name, or add --force."
        )
    named = "".join(c if c.isprintable() else "-" for c in public.stem) + "-private" if dataset is None else dataset
    if not named.isprintable() or not named.strip():
        raise ValueError("--dataset must be a name, without control characters. A ledger belongs to one name.")
    encoders = _encoders(encode or [])
    with working("reading"):
        table = read_table(public, origin=str(public), private=False)
    inferred = _infer(table, named, tuple(category or ()), encoders)
    write_file(out, "--out", to_toml(inferred, origin=public.name).encode())
    numbers = sum(isinstance(column, Number) for column in inferred.columns)
    categories = sum(isinstance(column, Category) for column in inferred.columns)
    ignored = [column.name for column in inferred.columns if isinstance(column, Ignored)]
    say(f"Wrote {out}: {numbers} number and {categories} category columns.")
    if ignored:
        say(f"Ignored, because they have too many different texts: {', '.join(ignored)}.")
    say(f"Now edit it by what you know: the name of the data set ({inferred.dataset}), ranges and categories.")


def _infer(table: "Table", dataset: str, categories: tuple[str, ...], encoders: dict[str, str]) -> "Schema":
    """Infer the schema, under a progress bar."""
    from dpadapt.tables import infer

    what = "describing columns"
    with progress_bar(what, table.frame.shape[1]) as done:
        return infer(table, dataset=dataset, categories=categories, encoders=encoders, done=lambda: done(what))


def _encoders(options: list[str]) -> dict[str, str]:
    """Return the encoder of each column that --encode names."""
    if not options:
        return {}
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
