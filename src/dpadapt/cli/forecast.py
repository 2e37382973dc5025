"""`dpadapt forecast`: what private rows could do, told from public ones and the budget. Spends nothing."""

from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli._options import (
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

_HELP = teach(
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


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("forecast", help=_HELP)(_forecast)


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
    from dpadapt import _validate
    from dpadapt.cli._public import check_delta, chosen_method, encode_public, unfitted
    from dpadapt.persist import write_atomically
    from dpadapt.report.forecast import summarise_forecast
    from dpadapt.report.html import forecast_page
    from dpadapt.report.summarise import version
    from dpadapt.report.terminal import forecast_table
    from dpadapt.tables import read_schema

    epsilons = parse_epsilons(epsilon)
    check_delta(delta, "--delta")
    _validate.count(rows, "--rows")
    check_parent(out, "--out")
    known = read_schema(schema, origin=f"--schema {schema}")
    wanted = {"epsilon": epsilons[0], "delta": delta, "adjacency": adjacency.value}
    estimator = unfitted(chosen_method(None, task.value), known, label=label, **wanted)
    found = encode_public(public, known, label=label, task=task.value)
    if found.y is None and task is TaskName.regression:
        raise ValueError(f"--public {public}: column {label!r} is missing. A forecast of a regression needs it.")
    forecast = summarise_forecast(estimator, found.declared, rows, epsilons)
    page = forecast_page({"forecast": forecast, "label": label, "public": found.words, "version": version()})
    write_atomically(out, page.encode())
    screen = console()
    screen.print(forecast_table(forecast))
    screen.print(_READ[task.value])
    if not all(point["worthwhile"] for point in forecast["points"]):
        screen.print("Unspent: so small a budget is not touched for that many rows, and the public model returned.")
    screen.print(f"{forecast['caveat']} No private row was read and nothing was spent.")
    screen.print(f"Wrote {out}", soft_wrap=True, markup=False)
