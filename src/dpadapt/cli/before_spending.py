"""`dpadapt rehearse`: the whole private fit, tried on public rows, for every method. Spends nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import (
    AdjacencyName,
    AdjacencyOption,
    Delta,
    Epsilons,
    LabelOption,
    SchemaOption,
    TaskName,
    TaskOption,
    check_parent,
    console,
    parse_epsilons,
    teach,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpadapt.cli.inputs import PublicRows
    from dpadapt.demo.side_by_side import Compared
    from dpadapt.report.before_spending import Part
    from dpadapt.tables import Schema


# `dpadapt forecast`: what private rows could do, told from public ones and the budget. Spends nothing.


_FORECAST_HELP = teach(
    """
Say what a fit could do before anything is spent.

Reads public rows only. For each epsilon: is the budget enough for that many private rows, over how many directions is
it spread, and how far must the private population differ before the private rows are heard? A go / no-go signal, not an
error bar: how far it differs, only the private rows can tell. dpadapt rehearse goes further where public rows can mimic
the difference.

Example:

\b
  dpadapt forecast --public public.csv --schema schema.toml --label cost \\
                   --task regression --rows 600 --epsilon 0.3,1,3
"""
)


_READ = {
    "regression": "Columns: expected error over the public model's, if the shift is worth that share of the public "
    "model's error. 1.00: the public model is kept.",
    "classification": "Columns: the noise in a logit (0.1: hardly anything is lost, 1: most is), and the log-loss per "
    "row that private rows must save to be heard, if they differ as much as is usual.",
}


def mount_forecast(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("forecast", help=_FORECAST_HELP)(_forecast)


def _forecast(
    public: Annotated[Path, typer.Option(help="Public rows, CSV or Parquet; with the label for a regression.")],
    schema: SchemaOption,
    label: LabelOption,
    task: TaskOption,
    rows: Annotated[int, typer.Option(help="How many private rows there will be: a number that is public.")],
    epsilon: Epsilons = "0.1,0.3,1,3,10",
    delta: Delta = 1e-6,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("forecast.html"),
) -> None:
    """Check everything, then forecast, print and write a page."""
    from dpadapt import __version__, checks
    from dpadapt.cli.inputs import check_delta, chosen_method, encode_public, unfitted
    from dpadapt.persist import write_atomically
    from dpadapt.report.before_spending import summarise_forecast
    from dpadapt.report.html import forecast_page
    from dpadapt.report.terminal import forecast_table
    from dpadapt.tables import read_schema

    epsilons = parse_epsilons(epsilon)
    method = chosen_method(None, task.value)
    check_delta(delta, "--delta", method)
    checks.count(rows, "--rows")
    check_parent(out, "--out")
    known = read_schema(schema, origin=f"--schema {schema}")
    wanted = {"epsilon": epsilons[0], "delta": delta, "adjacency": adjacency.value}
    estimator = unfitted(method, known, label=label, **wanted)
    found = encode_public(public, known, label=label, task=task.value)
    if found.y is None and task is TaskName.regression:
        raise ValueError(f"--public {public}: column {label!r} is missing. A forecast of a regression needs it.")
    forecast = summarise_forecast(estimator, found.declared, rows, epsilons)
    page = forecast_page({"forecast": forecast, "label": label, "public": found.words, "version": __version__})
    write_atomically(out, page.encode())
    screen = console()
    screen.print(forecast_table(forecast))
    screen.print(_READ[task.value])
    if not all(point["worthwhile"] for point in forecast["points"]):
        screen.print("Unspent: so small a budget is not touched for that many rows, and the public model returned.")
    screen.print(f"{forecast['caveat']} No private row was read and nothing was spent.")
    screen.print(f"Wrote {out}", soft_wrap=True, markup=False)


# Fewer public rows can't be split into three parts that say anything.
_LEAST = 30

_REHEARSE_HELP = teach(
    """
Try the whole private fit on public rows: what error to expect at each epsilon, and with which method.

Part of the public table plays the private rows, part is held out to measure errors on, the rest stays public. All
methods see the same splits; the public rows alone and the private rows alone are shown beside them. A random split
knows nothing of the difference between public and private people: --split-by mimics one, such as young and old. No
private row is read and nothing is spent.

Example:

\b
  dpadapt rehearse --public public.csv --schema schema.toml --label cost \\
                   --task regression --rows 600 --epsilon 0.3,1,3 \\
                   --split-by age
"""
)


def mount_rehearse(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("rehearse", help=_REHEARSE_HELP)(_rehearse)


def _rehearse(
    public: Annotated[Path, typer.Option(help="Public rows with the label, CSV or Parquet.")],
    schema: SchemaOption,
    label: LabelOption,
    task: TaskOption,
    rows: Annotated[int, typer.Option(help="How many private rows there will be: a number that is public.")],
    epsilon: Epsilons = "0.1,0.3,1,3,10",
    delta: Delta = 1e-6,
    repeats: Annotated[int, typer.Option(help="How many splits: more take longer and tell more surely.")] = 5,
    split_by: Annotated[
        str | None,
        typer.Option(help="A column: rows with larger values play the private part. Numbers, dates or categories."),
    ] = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    seed: Annotated[int | None, typer.Option(help="Repeats the same splits and noise.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("rehearsal.html"),
) -> None:
    """Check everything, then rehearse each method, print and write a page."""
    import numpy as np

    from dpadapt import checks
    from dpadapt.cli.inputs import check_delta, chosen_method, encode_public, unfitted
    from dpadapt.demo.side_by_side import compared
    from dpadapt.persist import write_atomically
    from dpadapt.report.before_spending import summarise_rehearsal
    from dpadapt.report.html import rehearsal_page
    from dpadapt.report.terminal import panel_tables
    from dpadapt.tables import read_schema

    epsilons = parse_epsilons(epsilon)
    check_delta(delta, "--delta", chosen_method(None, task.value))
    checks.count(rows, "--rows", least=10)
    checks.count(repeats, "--repeats")
    if seed is not None:
        checks.count(seed, "--seed", least=0)
    check_parent(out, "--out")
    known = read_schema(schema, origin=f"--schema {schema}")
    counted = {"n_rows": rows} if adjacency is AdjacencyName.add_remove else {}
    lines = compared(task.value)
    estimators = [
        unfitted(line.method, known, label=label, delta=delta, adjacency=adjacency.value, **counted) for line in lines
    ]
    found = encode_public(public, known, label=label, task=task.value)
    if found.y is None:
        raise ValueError(f"--public {public}: column {label!r} is missing. A rehearsal needs labels.")
    if len(found.X) < _LEAST:
        raise ValueError(f"--public {public}: at least {_LEAST} rows are needed to rehearse on.")
    options = {"epsilons": epsilons, "repeats": repeats, "split_by": _key(found, known, split_by)}
    # Equal seeds are equal splits, for all lines.
    options["random_state"] = int(np.random.default_rng().integers(2**31)) if seed is None else seed
    parts = _measure(lines, estimators, found, rows, options)
    summary = summarise_rehearsal(
        parts, label=label, n_public=len(found.X), n_private=rows, delta=delta, split_by=split_by
    )
    write_atomically(out, rehearsal_page(summary).encode())
    screen = console()
    panel_tables(screen, summary)
    for sentence in summary["words"]:
        screen.print(sentence, markup=False)
    screen.print("No private row was read and nothing was spent.")
    screen.print(f"Wrote {out}", soft_wrap=True, markup=False)


def _measure(
    lines: "Sequence[Compared]", estimators: Sequence[Any], public: "PublicRows", rows: int, options: dict[str, Any]
) -> "list[Part]":
    """Rehearse every line under a progress bar, all on the same splits."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from threadpoolctl import threadpool_limits

    from dpadapt.report.before_spending import Part
    from dpadapt.transfer.rehearsal import rehearse

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    parts = []
    with Progress(*columns, console=console(), transient=True) as progress, threadpool_limits(1):
        bar = progress.add_task("rehearsing", total=len(lines) * options["repeats"])

        def done() -> None:
            progress.update(bar, advance=1)

        for line, estimator in zip(lines, estimators, strict=True):
            progress.update(bar, description=f"rehearsing {line.name}")
            found = rehearse(estimator, public.declared, rows, use_public=line.shared, done=done, **options)
            parts.append(Part(line.key, line.name, line.method.name, line.shared, found))
    return parts


def _key(public: "PublicRows", schema: "Schema", column: str | None) -> "NDArray[np.float64] | None":
    """Return what --split-by sorts by: numbers, dates, or the order of categories in the schema."""
    import numpy as np
    import pandas as pd

    from dpadapt.tables import Category
    from dpadapt.tables.schema import parse_numbers, parse_text

    if column is None:
        return None
    frame = public.table.frame
    if column not in frame.columns:
        raise ValueError(f"--split-by {column}: the public table has no such column.")
    numbers = parse_numbers(frame[column])
    if np.isfinite(numbers).all():
        return numbers
    described = next((part for part in schema.columns if part.name == column), None)
    if isinstance(described, Category):
        order = {str(value): position for position, value in enumerate(described.values)}
        return np.array([order[text] for text in parse_text(frame[column])], dtype=np.float64)
    dates = pd.to_datetime(frame[column], errors="coerce", format="ISO8601")
    if dates.notna().all():
        return np.asarray(dates.astype("int64"), dtype=np.float64)
    raise ValueError(
        f"--split-by {column}: it must hold a number, a date such as 2024-05-31 or a category of the schema in every "
        f"row."
    )
