"""`dpadapt schema`: describe a table from public rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import EncodingOption, check_parent, progress_bar, say, teach, working, write_file

if TYPE_CHECKING:
    from dpadapt.tables import Schema, Table

# Notes on columns that are printed; all are comments in the schema. Chosen by hand.
_MOST_NOTES = 20

_HELP = teach(
    """
Describe a table from its public rows: columns, types, ranges, categories.

The schema is what a fit knows about the private table before the table is opened. It is made from public data only
and written as TOML. It can be used as it is. Edit it by what you know about the subject: widen ranges, add categories
that can occur, set type = "ignore" for what must not be used. Private numbers outside a range are clipped, categories
that are not listed count as others, missing cells are filled from public rows, all without a message.

Example:

\b
  dpadapt schema public.csv -o schema.toml
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("schema", help=_HELP)(_schema)


def _schema(
    public: Annotated[Path, typer.Argument(help="Public rows, CSV or Parquet. Never the private file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the schema.")] = Path("schema.toml"),
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the private data set, if it comes in files of several names: they share a ledger."),
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
    encoding: EncodingOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing schema.")] = False,
) -> None:
    """Infer and write a schema."""
    from dpadapt.tables import Category, Date, Encoded, Ignored, Number, read_table, to_toml

    check_parent(out, "--out")
    if out.exists() and not force:
        raise ValueError(
            f"--out {out}: this file exists and may have been edited. Choose another name, or add --force."
        )
    named = dataset or ""
    if dataset is not None and (not named.isprintable() or not named.strip()):
        raise ValueError("--dataset must be a name, without control characters. A ledger belongs to one name.")
    encoders = _encoders(encode or [])
    with working("reading"):
        table = read_table(public, origin=str(public), private=False, encoding=encoding)
    inferred = _infer(table, named, tuple(category or ()), encoders)
    if all(isinstance(column, Ignored) for column in inferred.columns):
        why = "; ".join(inferred.notes[:3])
        raise ValueError(f"{public}: no column can be used ({why}). Check that the file is a table with a header.")
    write_file(out, "--out", to_toml(inferred, origin=public.name).encode())
    kinds = {"number": Number, "category": Category, "date": Date, "encoded": Encoded, "ignored": Ignored}
    counts = {name: sum(isinstance(column, kind) for column in inferred.columns) for name, kind in kinds.items()}
    say(f"Wrote {out}: {', '.join(f'{count} {name}' for name, count in counts.items() if count)} columns.")
    for note in inferred.notes[:_MOST_NOTES]:
        say(f"  {note}")
    if len(inferred.notes) > _MOST_NOTES:
        say(f"  and {len(inferred.notes) - _MOST_NOTES} more, which are comments in {out}")
    say("It can be used as it is. Better: edit ranges and categories by what you know about the subject.")


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
