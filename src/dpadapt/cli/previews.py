"""`dpadapt advise`, `forecast` and `rehearse`: what a budget could buy, from public rows alone. All are free."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.fit import read_public, table_model
from dpadapt.cli.options import (
    TABLES,
    AdjacencyName,
    AdjacencyOption,
    Delta,
    EncodingOption,
    Epsilons,
    LabelOption,
    SchemaOption,
    TaskName,
    TaskOption,
    check_method_delta,
    chosen_method,
    parse_epsilons,
    teach,
)
from dpadapt.cli.schema import (
    CategoryOption,
    DatasetOption,
    EncodeOption,
    inferred_schema,
    public_table,
    say_notes,
    schema_options,
)
from dpadapt.cli.screen import check_parent, console, progress_bar, working, write_file

if TYPE_CHECKING:
    from dpadapt.advice import Advice
    from dpadapt.demo import Compared
    from dpadapt.report.previews import Part
    from dpadapt.tables import EncodedRows
    from dpadapt.transfer.preview import Preview


_ADVISE_HELP = teach(
    """Say which private fit to make, at which epsilon, and what to expect of it.

Reads public rows and a few facts that you state; no private row. It makes trial fits on public rows, some of which play
the role of private ones: split at random, and split along dates and other columns, so that the two parts differ as
private and public people may. It answers with a verdict, a table of expected errors at each epsilon, and the command to
run next. If the file of --schema does not exist, a schema is inferred from the public rows and written; --dataset,
--category and --encode are for this schema, as in dpadapt schema.
""",
    "dpadapt advise public.csv --label cost --rows 600 --schema schema.toml",
)


def _advise(
    public: Annotated[Path, typer.Argument(help=f"Public rows, {TABLES}. Never the private file.")],
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
    from threadpoolctl import threadpool_limits

    from dpadapt import checks
    from dpadapt.advice import advise
    from dpadapt.report.previews import advice_page
    from dpadapt.tables import read_schema, to_toml

    epsilons = parse_epsilons(epsilon)
    checks.count(rows, "--rows", least=2)
    check_parent(out, "--out")
    check_parent(schema, "--schema")
    made, options = not schema.exists(), schema_options(dataset, category, encode)
    if not made and any(options.values()):
        raise ValueError(
            f"--dataset, --category and --encode are for a schema that is inferred, and {schema} exists. Edit it, or "
            f"name another with --schema."
        )
    with working("reading"):
        table = public_table(public, str(public), encoding)
    known = inferred_schema(table, options) if made else read_schema(schema, origin=f"--schema {schema}")
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
    wrote = f"{out} and {schema}, which was inferred" if made else f"{out}"
    _show(advice, advice_page(advice, label, facts, command), out, f"\nNext:\n  {command}\n", wrote)
    if made:
        say_notes(known, schema)


def _show(preview: "Preview", page: str, out: Path, more: str = "", wrote: str = "") -> None:
    """Write the page, then print the preview, `more` and what was written."""
    from dpadapt.report.terminal import print_preview

    write_file(out, "--out", page.encode())
    screen = console()
    print_preview(screen, preview)
    screen.print(f"{more}Wrote {wrote or out}", soft_wrap=True, markup=False)


def _next_command(advice: "Advice", public: Path, schema: Path, label: str, person: str | None) -> str:
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


_FORECAST_HELP = teach(
    """Forecast whether the gate would open at each epsilon, before anything is spent.

Reads public rows only. For each epsilon: is the budget enough for that many private rows, how many coordinates of the
model is it spread over, and how far must the private population differ before the gate opens? This is a go / no-go
signal, not an error bar: only the private rows can tell how far they differ. dpadapt rehearse estimates errors, if
public rows can mimic the difference.
""",
    "dpadapt forecast --public public.csv --schema schema.toml --label cost \\",
    "                 --task regression --rows 600 --epsilon 0.3,1,3",
)


def _forecast(
    public: Annotated[Path, typer.Option(help=f"Public rows: {TABLES}; with the label for a regression.")],
    schema: SchemaOption,
    label: LabelOption,
    task: TaskOption,
    rows: Annotated[int, typer.Option(help="How many private rows there will be: a number that is public.")],
    epsilon: Epsilons = "0.1,0.3,1,3,10",
    delta: Delta = 1e-6,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    encoding: EncodingOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("forecast.html"),
) -> None:
    from dpadapt import checks
    from dpadapt.report.previews import forecast_page
    from dpadapt.tables import read_schema
    from dpadapt.transfer.preview import beside, forecasts_at

    epsilons = parse_epsilons(epsilon)
    method = chosen_method(None, task.value)
    check_method_delta(delta, "--delta", method)
    checks.count(rows, "--rows")
    check_parent(out, "--out")
    known = read_schema(schema, origin=f"--schema {schema}")
    wanted: dict[str, Any] = {"epsilon": epsilons[0], "delta": delta, "adjacency": adjacency.value}
    model = table_model(method, known, wanted, label=label, encoding=encoding)
    with working("reading"):
        rows_read = read_public(model, public)
    if rows_read.y is None and task is TaskName.regression:
        raise ValueError(f"--public {public}: column {label!r} is missing. A forecast of a regression needs it.")
    with working("forecasting"):
        forecasts = forecasts_at(model.configured(), rows_read.declared, rows, epsilons)
    _show(beside(forecasts), forecast_page(forecasts, label, rows_read.words), out)


# Least number of public rows to rehearse on: fewer would leave fewer than five rows to measure errors on.
_LEAST_ROWS_TO_REHEARSE = 30

_REHEARSE_HELP = teach(
    """Estimate the error at each epsilon by running whole fits on public rows.

Part of the public table takes the role of the private rows, part is held out to measure errors on, the rest stays
public. All methods for the task are tried on the same splits; the public rows alone and the private rows alone are
shown for comparison. A random split contains no difference between public and private people: --split-by mimics one,
such as young and old. No private row is read and nothing is spent.
""",
    "dpadapt rehearse --public public.csv --schema schema.toml --label cost \\",
    "                 --task regression --rows 600 --epsilon 0.3,1,3 \\",
    "                 --split-by age",
)


def _rehearse(
    public: Annotated[Path, typer.Option(help=f"Public rows with the label, {TABLES}.")],
    schema: SchemaOption,
    label: LabelOption,
    task: TaskOption,
    rows: Annotated[int, typer.Option(help="How many private rows there will be: a number that is public.")],
    epsilon: Epsilons = "0.1,0.3,1,3,10",
    delta: Delta = 1e-6,
    repeats: Annotated[int, typer.Option(help="How many splits: more take longer and give a smaller spread.")] = 5,
    split_by: Annotated[
        str | None,
        typer.Option(
            help="A column: rows with larger values take the role of private rows. Numbers, dates or categories."
        ),
    ] = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    encoding: EncodingOption = None,
    seed: Annotated[int | None, typer.Option(help="Repeats the same splits and noise.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("rehearsal.html"),
) -> None:
    import numpy as np

    from dpadapt import checks
    from dpadapt.advice import sort_key
    from dpadapt.demo import compared
    from dpadapt.report.previews import compared_rehearsals, rehearsal_page
    from dpadapt.tables import read_schema

    epsilons = parse_epsilons(epsilon)
    check_method_delta(delta, "--delta", chosen_method(None, task.value))
    checks.count(rows, "--rows", least=10)
    checks.count(repeats, "--repeats")
    if seed is not None:
        checks.count(seed, "--seed", least=0)
    check_parent(out, "--out")
    known = read_schema(schema, origin=f"--schema {schema}")
    counted = {"n_rows": rows} if adjacency is AdjacencyName.add_remove else {}
    lines = compared(task.value)
    wanted: dict[str, Any] = {"delta": delta, "adjacency": adjacency.value, **counted}
    models = [table_model(line.method, known, wanted, label=label, encoding=encoding) for line in lines]
    with working("reading"):
        rows_read = read_public(models[0], public)
    if rows_read.y is None:
        raise ValueError(f"--public {public}: column {label!r} is missing. A rehearsal needs labels.")
    if len(rows_read.X) < _LEAST_ROWS_TO_REHEARSE:
        raise ValueError(f"--public {public}: at least {_LEAST_ROWS_TO_REHEARSE} rows are needed to rehearse on.")
    key = None if split_by is None else sort_key(rows_read.table.frame, known, split_by)
    options = {"epsilons": epsilons, "repeats": repeats, "split_by": key}
    # Equal seeds give equal splits to all methods.
    options["random_state"] = int(np.random.default_rng().integers(2**31)) if seed is None else seed
    parts = _measure(lines, [model.configured() for model in models], rows_read, rows, options)
    preview = compared_rehearsals(parts, rows, split_by)
    facts = [f"{len(rows_read.X):,} public rows", f"{rows:,} private rows planned", f"δ = {delta:g}"]
    _show(preview, rehearsal_page(preview, parts, label, facts), out)


def _measure(
    lines: "Sequence[Compared]", estimators: Sequence[Any], public: "EncodedRows", rows: int, options: dict[str, Any]
) -> "list[Part]":
    """Rehearse every method under a progress bar, all on the same splits."""
    from threadpoolctl import threadpool_limits

    from dpadapt.report.previews import Part
    from dpadapt.transfer.preview import rehearse

    parts = []
    with progress_bar("rehearsing", len(lines) * options["repeats"]) as done, threadpool_limits(1):
        for line, estimator in zip(lines, estimators, strict=True):
            options["done"] = partial(done, f"rehearsing {line.name}")
            rehearsal = rehearse(estimator, public.declared, rows, use_public=line.shared, **options)
            parts.append(Part(line.key, line.name, line.method.name, line.shared, rehearsal))
    return parts


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("advise", help=_ADVISE_HELP)(_advise)
    app.command("forecast", help=_FORECAST_HELP)(_forecast)
    app.command("rehearse", help=_REHEARSE_HELP)(_rehearse)
