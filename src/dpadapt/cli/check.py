"""`dpadapt check`: all problems of two tables and their schema at once, before any private cell is read."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.options import EncodingOption, SchemaOption, TaskName, say, teach, working, write_file

_HELP = teach(
    """
List all problems of two tables and their schema at once, each with its fix.

Reads the public table, the schema and only the first line of the private table: no private cell. With --fix, the
corrected schema is written. Nothing is spent.

Example:

\b
  dpadapt check --public public.csv --private private.csv \\
                --schema schema.toml --label cost --fix
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("check", help=_HELP)(_check)


def _check(
    public: Annotated[Path, typer.Option(help="Public rows, CSV or Parquet.")],
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
    """Check everything and print one line per finding."""
    from dpadapt.cli.inputs import predicted, public_table
    from dpadapt.tables import check_tables, read_schema, to_toml

    known = read_schema(schema, origin=f"--schema {schema}")
    with working("checking"):
        table = public_table(public, f"--public {public}", encoding)
        wanted = None if task is None else predicted(task.value)
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
