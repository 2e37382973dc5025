"""`dpadapt fit`: a private model, its receipt and a report from two tables and a schema."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpadapt.cli.options import AdjacencyName, AdjacencyOption, Delta, SchemaOption, console, teach
from dpadapt.methods import CHOICES, METHODS, Task

_LIST = "\n\n".join(f"{method.name} ({method.task}): {method.summary}" for method in (*METHODS, *CHOICES))

_HELP = teach(
    f"""
Fit a model on private rows, helped by public ones, and write a receipt of what it cost.

The private table is read once, encoded by the schema and released only as noisy statistics that cost at most --epsilon
and --delta. Everything is checked before anything is spent. The folder gets model.json and arrays.npz (the model, no
pickle), receipt.json (what was released) and report.html (the same in words and plots, opens offline).

Before it, dpadapt forecast and dpadapt rehearse say what a budget could buy, from public rows and for free.

With --ledger, the cost is charged to a file that belongs to the private data set, together with everything spent on
it before; a fit over its cap is refused. Without it, nobody adds up what several fits cost together.

Example:

\b
  dpadapt fit --private private.csv --public public.csv \\
              --schema schema.toml --label cost --task regression \\
              --epsilon 1 --delta 1e-6 --ledger patients.ledger --out model/

With --task clustering it chooses rows of the public table instead: --clusters centres, where the private rows serve as
centres already. There is no label, and chosen.csv has the rows in place of a report.

Methods:

{_LIST}
"""
)


class FitTask(StrEnum):
    """What is asked for: a number, a class, or rows of the public table."""

    regression = "regression"
    classification = "classification"
    clustering = "clustering"


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("fit", help=_HELP)(_fit)


def _fit(
    private: Annotated[Path, typer.Option(help="The private rows, CSV or Parquet.")],
    schema: SchemaOption,
    task: Annotated[FitTask, typer.Option(help="Predict a number or a class, or choose centres.")],
    epsilon: Annotated[float, typer.Option(help="The most this fit may spend. Positive; smaller is more private.")],
    out: Annotated[Path, typer.Option(help="A folder for the model, the receipt and the report.")],
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    public: Annotated[
        Path | None, typer.Option(help="Public rows, CSV or Parquet, with or without the label. Not protected.")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="With --task clustering: how many public rows to choose as centres.")
    ] = None,
    delta: Delta = 1e-6,
    ledger: Annotated[
        Path | None, typer.Option(help="The private data set's ledger, shared by all fits on it. Made if missing.")
    ] = None,
    ledger_epsilon: Annotated[
        float | None, typer.Option(help="Cap of a new ledger: the most ever to be spent. Default: --epsilon.")
    ] = None,
    ledger_delta: Annotated[float | None, typer.Option(help="Delta of a new ledger. Default: --delta.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(dict.fromkeys(m.name for m in (*METHODS, *CHOICES)))}. Default: transfer."
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="For --method subspace: the public column that says which task a row belongs to.")
    ] = None,
    agents: Annotated[
        Path | None,
        typer.Option(help="For --method hybrid: people of the population that matters, one row each, simulated."),
    ] = None,
    agents_epsilon: Annotated[
        float | None, typer.Option(help="With --agents: what each person's one noisy bit may cost that person.")
    ] = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    rows: Annotated[
        int | None, typer.Option(help="With --adjacency add-remove: a public estimate of the number of private rows.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="FOR TESTS ONLY, NO GUARANTEE: noise that anybody with the seed can subtract.")
    ] = None,
) -> None:
    """Check everything, then fit, save and report."""
    from dpadapt.cli.fit_job import AgentOptions, LedgerOptions, Order, carry_out, choose
    from dpadapt.report.terminal import fit_table

    if task is FitTask.clustering:
        choose(
            private=private,
            public=public,
            schema=schema,
            clusters=clusters,
            epsilon=epsilon,
            delta=delta,
            out=out,
            ledger=LedgerOptions(ledger, ledger_epsilon, ledger_delta),
            adjacency=adjacency.value,
            seed=seed,
            unused={
                "--label": label,
                "--tasks": tasks,
                "--agents": agents,
                "--agents-epsilon": agents_epsilon,
                "--rows": rows,
            },
            method=method,
        )
        return
    kind: Task = "regression" if task is FitTask.regression else "classification"
    if clusters is not None:
        raise ValueError("--clusters is for --task clustering. Leave it out.")
    if label is None:
        raise ValueError(f"--label must name the column to predict with --task {kind}.")
    order = Order(
        private=private,
        public=public,
        schema=schema,
        label=label,
        task=kind,
        epsilon=epsilon,
        delta=delta,
        out=out,
        ledger=LedgerOptions(ledger, ledger_epsilon, ledger_delta),
        method=method,
        adjacency=adjacency.value,
        rows=rows,
        seed=seed,
        tasks=tasks,
        agents=AgentOptions(agents, agents_epsilon),
    )
    summary = carry_out(order)
    screen = console()
    screen.print(fit_table(summary))
    screen.print("What the public and the private rows brought", style="bold")
    for sentence in summary["brought"]:
        screen.print(sentence, markup=False)
    for warning in summary["receipt"]["warnings"]:
        screen.print(f"[bold yellow]warning:[/] {warning}")
    # A folder's name may look like markup.
    screen.print(f"Wrote model.json, arrays.npz, receipt.json and report.html to {out}", soft_wrap=True, markup=False)
