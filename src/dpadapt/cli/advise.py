"""`dpadapt advise`: which private fit to make and what to expect of it, from public rows and a few facts."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import EncodingOption, Epsilons, LabelOption, TaskName, parse_epsilons, teach
from dpadapt.cli.schema import CategoryOption, DatasetOption, EncodeOption, SchemaOptions, say_notes
from dpadapt.cli.screen import check_parent, console, progress_bar, working, write_file

if TYPE_CHECKING:
    from dpadapt.advice import Advice

_HELP = teach(
    """
Say which private fit to make, at which epsilon, and what to expect of it.

Reads public rows and a few facts that you state; no private row. It makes trial fits on public rows, some of which play
the role of private ones: split at random, and split along dates and other columns, so that the two parts differ as
private and public people may. It answers with a verdict, a table of expected errors at each epsilon, and the command to
run next. If the file of --schema does not exist, a schema is inferred from the public rows and written; --dataset,
--category and --encode are for this schema, as in dpadapt schema.

Example:

\b
  dpadapt advise public.csv --label cost --rows 600 --schema schema.toml
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("advise", help=_HELP)(_advise)


def _advise(
    public: Annotated[Path, typer.Argument(help="Public rows, CSV or Parquet. Never the private file.")],
    label: LabelOption,
    rows: Annotated[int, typer.Option(help="How many private rows there are: a number that is public.")],
    schema: Annotated[
        Path, typer.Option(help="What is known about the columns. Inferred and written if the file does not exist.")
    ] = Path("schema.toml"),
    task: Annotated[
        TaskName | None, typer.Option(help="Predict a number or a class. Default: by the column's type.")
    ] = None,
    person: Annotated[
        str | None, typer.Option(help="The column with the id of each row's person, if persons have several rows.")
    ] = None,
    rows_per_person: Annotated[
        float | None, typer.Option(help="Rows of a private person, on average. Default: as in the public table.")
    ] = None,
    same_population: Annotated[
        bool, typer.Option("--same-population", help="The public rows are a random sample of the private population.")
    ] = False,
    secret_size: Annotated[
        bool, typer.Option("--secret-size", help="The number of private rows is secret; --rows is an estimate.")
    ] = False,
    split_by: Annotated[
        str | None, typer.Option(help="A column along which public and private people differ. Tried first.")
    ] = None,
    epsilon: Epsilons = "0.1,0.3,1,3",
    dataset: DatasetOption = None,
    category: CategoryOption = None,
    encode: EncodeOption = None,
    encoding: EncodingOption = None,
    seed: Annotated[int | None, typer.Option(help="Repeats the same splits and noise.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("advice.html"),
) -> None:
    """Check everything, then rehearse, print and write a page."""
    from threadpoolctl import threadpool_limits

    from dpadapt import checks
    from dpadapt.advice import advise
    from dpadapt.cli.inputs import public_table
    from dpadapt.report.previews import advice_page
    from dpadapt.report.terminal import print_preview
    from dpadapt.tables import read_schema, to_toml

    epsilons = parse_epsilons(epsilon)
    checks.count(rows, "--rows", least=2)
    check_parent(out, "--out")
    check_parent(schema, "--schema")
    made, options = not schema.exists(), SchemaOptions.checked(dataset, category, encode)
    if not made and options != SchemaOptions.checked(None, None, None):
        raise ValueError(
            f"--dataset, --category and --encode are for a schema that is inferred, and {schema} exists. Edit it, or "
            f"name another with --schema."
        )
    with working("reading"):
        table = public_table(public, str(public), encoding)
    known = options.infer(table) if made else read_schema(schema, origin=f"--schema {schema}")
    with progress_bar("rehearsing", None) as done, threadpool_limits(1):
        advice = advise(
            table,
            rows,
            label=label,
            schema=known,
            task=None if task is None else task.value,
            person=person,
            rows_per_person=rows_per_person,
            same_population=same_population,
            secret_size=secret_size,
            split_by=split_by,
            epsilons=epsilons,
            random_state=seed,
            done=done,
        )
    if made:
        known = known if person is None else known.ignoring(person)
        write_file(schema, "--schema", to_toml(known, origin=public.name).encode())
    command = _next_command(advice, public, schema, label, person)
    facts = [f"{len(table.frame):,} public rows of {public.name}"]
    write_file(out, "--out", advice_page(advice, label, facts, command).encode())
    screen = console()
    print_preview(screen, advice)
    screen.print("\nNext:", style="bold")
    screen.print(f"  {command}", markup=False, soft_wrap=True)
    wrote = f"{out} and {schema}, which was inferred" if made else f"{out}"
    screen.print(f"Wrote {wrote}", soft_wrap=True, markup=False)
    if made:
        say_notes(known, schema)


def _next_command(advice: "Advice", public: Path, schema: Path, label: str, person: str | None) -> str:
    """Return the command that carries the advice out."""
    parts = ["dpadapt fit --private PRIVATE.csv"]
    if advice.chosen is None or advice.chosen.use_public:
        parts.append(f"--public {shlex.quote(str(public))}")
    parts += [f"--schema {shlex.quote(str(schema))}", f"--label {shlex.quote(label)}", f"--task {advice.task}"]
    if advice.chosen is not None and advice.chosen.method.name != "transfer":
        parts.append(f"--method {advice.chosen.method.name}")
    parts.append(f"--epsilon {advice.epsilon:g} --delta {advice.delta:g}")
    if advice.adjacency == "add-remove":
        parts.append(f"--adjacency add-remove --rows {advice.n_private}")
    if advice.unit == "person":
        parts.append(f"--person {shlex.quote(person or 'COLUMN')}")
    return " ".join([*parts, "--out model/"])
