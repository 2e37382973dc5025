"""`dpadapt schema` and `dpadapt check`: a table described from public rows, and whether two tables fit it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import TABLES, EncodingOption, SchemaOption, TaskName, teach
from dpadapt.cli.screen import check_parent, progress_bar, say, working, write_file

if TYPE_CHECKING:
    from dpadapt.tables import Schema, Table

# Notes on columns that are printed; all are comments in the schema.
_MOST_NOTES = 20

_SCHEMA = teach(
    """Describe a table from its public rows: columns, types, ranges, categories.

The schema is what a fit knows about the private table before the table is opened. It is made from public data only
and written as TOML. It can be used as it is. Edit it by what you know about the subject: widen ranges, add categories
that can occur, set type = "ignore" for what must not be used. Private numbers outside a range are clipped, categories
that are not listed count as others, missing cells are filled from public rows, all without a message.
""",
    "dpadapt schema public.csv -o schema.toml",
)

_CHECK = teach(
    """List all problems of two tables and their schema at once, each with its fix.

Reads the public table, the schema and only the first line of the private table: no private cell. With --fix, the
corrected schema is written. Nothing is spent.
""",
    "dpadapt check --public public.csv --private private.csv \\",
    "              --schema schema.toml --label cost --fix",
)

DatasetOption = Annotated[str | None, typer.Option(help="Name of the private data set, as models and reports show it.")]
CategoryOption = Annotated[
    list[str] | None, typer.Option(help="A column of numbers that are codes, not amounts. Repeat for several.")
]
EncodeOption = Annotated[
    list[str] | None,
    typer.Option(help="A column of texts or image files and its encoder, e.g. review=wordllama. Repeat for several."),
]


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("schema", help=_SCHEMA)(_schema)
    app.command("check", help=_CHECK)(_check)


def _schema(
    public: Annotated[Path, typer.Argument(help=f"Public rows, {TABLES}. Never the private file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the schema.")] = Path("schema.toml"),
    dataset: DatasetOption = None,
    category: CategoryOption = None,
    encode: EncodeOption = None,
    encoding: EncodingOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing schema.")] = False,
) -> None:
    from dpadapt.tables import Category, Date, Encoded, Ignored, Number, to_toml

    check_parent(out, "--out")
    if out.exists() and not force:
        raise ValueError(
            f"--out {out}: this file exists and may have been edited. Choose another name, or add --force."
        )
    options = schema_options(dataset, category, encode)
    with working("reading"):
        table = public_table(public, str(public), encoding)
    inferred = inferred_schema(table, options)
    if all(isinstance(column, Ignored) for column in inferred.columns):
        why = "; ".join(inferred.notes[:3])
        raise ValueError(f"{public}: no column can be used ({why}). Check that the file is a table with a header.")
    write_file(out, "--out", to_toml(inferred, origin=public.name).encode())
    kinds = {"number": Number, "category": Category, "date": Date, "encoded": Encoded, "ignored": Ignored}
    counts = {name: sum(isinstance(column, kind) for column in inferred.columns) for name, kind in kinds.items()}
    say(f"Wrote {out}: {', '.join(f'{count} {name}' for name, count in counts.items() if count)} columns.")
    say_notes(inferred, out)
    say("It can be used as it is. Better: edit ranges and categories by what you know about the subject.")


def public_table(path: Path, origin: str, encoding: str | None) -> "Table":
    """Read a public file or folder; a large one is represented by a random sample, as in a fit."""
    from dpadapt.tables import sampled_table, table_chunks

    return sampled_table(table_chunks(path, origin=origin, private=False, encoding=encoding))[0]


def say_notes(schema: "Schema", out: Path) -> None:
    """Print the notes on columns of a schema that was written to `out`."""
    for note in schema.notes[:_MOST_NOTES]:
        say(f"  {note}")
    if len(schema.notes) > _MOST_NOTES:
        say(f"  and {len(schema.notes) - _MOST_NOTES} more, which are comments in {out}")


def schema_options(dataset: str | None, category: list[str] | None, encode: list[str] | None) -> dict[str, Any]:
    """Return what a command is told about the columns before it infers a schema, or refuse it; nothing is read."""
    if dataset is not None and (not dataset.isprintable() or not dataset.strip()):
        raise ValueError("--dataset must be a name, without control characters. A ledger belongs to one name.")
    return {"dataset": dataset or "", "categories": tuple(category or ()), "encoders": _encoders(encode or [])}


def inferred_schema(table: "Table", options: dict[str, Any]) -> "Schema":
    """Infer the schema of a public table, under a progress bar."""
    from dpadapt.tables import infer

    with progress_bar("describing columns", table.frame.shape[1]) as done:
        return infer(table, **options, done=done)


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


def _check(
    public: Annotated[Path, typer.Option(help=f"Public rows, {TABLES}.")],
    schema: SchemaOption,
    private: Annotated[
        Path | None, typer.Option(help="The private table: only the names of its columns are read.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    task: Annotated[TaskName | None, typer.Option(help="Predict a number or a class.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write the corrected schema.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --fix: where to write it. Default: in place of --schema.")
    ] = None,
    encoding: EncodingOption = None,
) -> None:
    from dpadapt.tables import check_tables, read_schema, to_toml

    if out is not None and not fix:
        raise ValueError("--out is where --fix writes the corrected schema. Give both, or leave it out.")
    known = read_schema(schema, origin=f"--schema {schema}")
    with working("checking"):
        table = public_table(public, f"--public {public}", encoding)
        wanted: Any = None if task is None else task.value
        found = check_tables(table, known, private, label=label, task=wanted, encoding=encoding)
    say(str(found))
    if fix and found.fixed != known:
        place = schema if out is None else out
        write_file(place, "--schema" if out is None else "--out", to_toml(found.fixed, origin=schema.name).encode())
        say(f"Wrote {place}, with {_counted(sum(f.column is not None for f in found.findings), 'column')} corrected.")
    left = found.unfixable if fix else found.problems
    if left:
        remedy = "Correct the tables or the schema by hand" if fix else "Correct them, or add --fix"
        raise ValueError(f"{_counted(len(left), 'problem')} left. {remedy}. No private cell was read.")


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
