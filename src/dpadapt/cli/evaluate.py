"""`dpadapt evaluate`: how good a model is on private rows, charged to their ledger."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import (
    AdjacencyName,
    AdjacencyOption,
    AllowanceOption,
    DatasetOption,
    EncodingOption,
    Json,
    teach,
)
from dpadapt.cli.screen import Incomplete, console, print_json, reason, say, working

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import Place
    from dpadapt.cli.budget import LedgerPlan
    from dpadapt.evaluation import Evaluation
    from dpadapt.persist import Saved
    from dpadapt.tables import TableModel

_HELP = teach(
    """
Release how good a fitted model is on private rows, with an interval.

An accuracy that is simply computed from private rows reveals something about each of them. This one has noise and is
charged to the ledger beside the private file. If there is none, you are asked for it, or must name it with --ledger:
rows held out from a fit belong to the same private data set, and to its ledger. Rows without a readable label are no
evidence: the result says what share was usable. The interval allows for the noise and for the sampling of rows.

A log-loss or squared error is the mean of losses that are clipped at a public bound, which the receipt states.

Examples:

\b
  dpadapt evaluate model/ --private test.csv --epsilon 0.1 \\
              --ledger private.ledger
  dpadapt evaluate model/ --private test.csv --epsilon 0.1 --metric auc \\
              --public public.csv
"""
)

# Of a ledger that an evaluation makes. An evaluation needs no delta itself, but fits do.
_DELTA_OF_NEW_LEDGER = 1e-6


class MetricName(StrEnum):
    """What to measure."""

    accuracy = "accuracy"
    log_loss = "log-loss"
    squared_error = "squared-error"
    auc = "auc"


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("evaluate", help=_HELP)(_evaluate)


def _evaluate(
    model: Annotated[Path, typer.Argument(help="A folder made by dpadapt fit.")],
    private: Annotated[
        Path, typer.Option(help="Private rows with labels: a CSV or Parquet file, or a folder of them.")
    ],
    epsilon: Annotated[float, typer.Option(help="What this evaluation costs. Positive; smaller is more private.")],
    metric: Annotated[
        MetricName | None,
        typer.Option(help="Default: accuracy of a classification, squared error of a regression."),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(
            help="Positive: Gaussian noise, not Laplace. A ledger with many Gaussian charges has more room for it."
        ),
    ] = 0.0,
    error_bound: Annotated[
        float | None,
        typer.Option(
            help="The largest loss of a row that counts: an absolute error, or a log-loss. Default: from public rows "
            "or the schema; for a log-loss, that of a probability of 1%."
        ),
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="Public rows, which only set the error bound or the bins of scores.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger of the private rows: a file, or postgresql://user@host/database. Default: the one beside "
            "their file."
        ),
    ] = None,
    dataset: DatasetOption = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Charge no ledger: nothing then adds up what several evaluations cost.")
    ] = False,
    ledger_epsilon: Annotated[
        float | None, typer.Option(help="Cap of a new ledger. Default: asked for, or three times --epsilon.")
    ] = None,
    allowance: AllowanceOption = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    person: Annotated[
        str | None,
        typer.Option(
            help="The column with the id of each row's person, who counts as one row. Default: single rows count. The "
            "model does not choose it."
        ),
    ] = None,
    encoding: EncodingOption = None,
    as_json: Json = False,
) -> None:
    """Check everything, then charge, release and print."""
    from dpadapt import checks
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import data_set_name
    from dpadapt.cli.budget import found_place, given_place
    from dpadapt.evaluation import checked_metric, evaluate
    from dpadapt.mechanisms.adjacency import Adjacency
    from dpadapt.persist import load

    checks.positive(epsilon, "--epsilon")
    checks.delta(delta, "--delta")
    if error_bound is not None:
        checks.positive(error_bound, "--error-bound")
    if ledger_epsilon is not None:
        checks.positive(ledger_epsilon, "--ledger-epsilon")
    if no_ledger and (ledger is not None or ledger_epsilon is not None or allowance is not None):
        raise ValueError("--no-ledger: --ledger, --ledger-epsilon and --allowance ask for a ledger. Leave one out.")
    with working("reading"):
        of_table = _model_of_tables(model, load(model))
        of_table.encoding = encoding
    chosen = checked_metric(of_table, None if metric is None else metric.value)
    if person is not None and any(column.name == person for column in of_table.schema.features(of_table.label)):
        raise ValueError(f"--person {person}: this column is a feature of the model. Name the column with the ids.")
    unit: Any = "row" if person is None else "person"
    plan = None
    if not no_ledger:
        path, link = found_place(private, given_place(ledger, dataset), new=False)
        # The model may come from somebody else: a new ledger has the name of the file, not that of the model's rows.
        wish = _wish(epsilon, delta, adjacency.value, unit, getattr(path, "dataset", data_set_name(private)))
        plan = _plan(path, link, wish, ledger_epsilon, allowance)
    known, rows = _tables(of_table, private, public, encoding)
    charged = (
        Ledger.of_one_fit(epsilon, delta, adjacency=Adjacency.of(adjacency.value), unit=unit)
        if plan is None
        else plan.open()
    )
    before, result = len(charged.entries), None
    try:
        with working("evaluating"):
            result = evaluate(
                of_table,
                rows,
                epsilon=epsilon,
                metric=chosen,
                delta=delta,
                error_bound=error_bound,
                public=known,
                persons=person,
                ledger=charged,
            )
        _print(result, charged, plan, as_json)
    except BaseException as error:
        spent = _spent(charged, before)
        if not spent:
            raise
        # What was paid for is shown on standard error, if it is known.
        raise Incomplete(
            f"the evaluation did not end ({reason(error)}). {spent}.",
            receipt="" if result is None else str(result),
            code=130 if isinstance(error, KeyboardInterrupt) else 1,
        ) from None


def _model_of_tables(folder: Path, saved: "Saved") -> "TableModel":
    """Return the model, or refuse one that predicts nothing for tables."""
    from dpadapt.tables import TableModel

    if not isinstance(saved.model, TableModel) or saved.model.label is None:
        raise ValueError(f"{folder}: the model predicts no column of a table. Evaluate a model made by dpadapt fit.")
    return saved.model


def _spent(ledger: "Ledger", before: int) -> str:
    """Return what is known about the budget after an error, in words; empty if nothing was spent."""
    try:
        return "The budget is spent" if len(ledger.entries) > before else ""
    except Exception:
        return "The ledger can't be read: take the budget as spent"


def _wish(epsilon: float, delta: float, adjacency: str, unit: Any, dataset: str) -> Any:
    from dpadapt.cli.budget import Wish, cost_of_budget

    return Wish(cost_of_budget(epsilon, delta, pure=delta == 0), epsilon, delta, adjacency, unit, dataset)


def _plan(path: "Place", link: Path | None, wish: Any, cap: float | None, allowance: str | None) -> "LedgerPlan":
    from dpadapt.accounting.places import ledger_exists
    from dpadapt.cli.budget import plan_ledger

    delta = None if wish.delta or ledger_exists(path) else _DELTA_OF_NEW_LEDGER
    return plan_ledger(path, wish, epsilon=cap, delta=delta, link=link, allowance=allowance)


def _tables(of_table: "TableModel", private: Path, public: Path | None, encoding: str | None) -> tuple[Any, Any]:
    """Read the public and the private table."""
    from dpadapt.tables import read_table, same_table

    if same_table(public, private):
        raise ValueError(
            f"--public {public}: this is the private file. Public rows are not protected: give other rows."
        )
    known = None
    with working("reading"):
        if public is not None:
            known = read_table(public, origin=f"--public {public}", private=False, encoding=encoding)
        rows = read_table(private, origin=f"--private {private}", private=True, empty=True, encoding=encoding)
    return known, rows


def _print(result: "Evaluation", ledger: "Ledger", plan: "LedgerPlan | None", as_json: bool) -> None:
    """Print the result, its receipt and the state of the ledger."""
    from dpadapt.cli.budget import charge_in_words

    notes = [] if plan is None else [*plan.notes, charge_in_words(plan, ledger)]
    if as_json:
        numbers = {
            name: getattr(result, name) for name in ("metric", "value", "low", "high", "usable", "usable_margin")
        }
        print_json({**numbers, "receipt": result.receipt.to_dict(), "notes": notes})
        return
    from dpadapt.report.receipt import receipt_facts
    from dpadapt.report.terminal import receipt_table

    receipt = receipt_facts(result.receipt)
    say(result.summary)
    console().print(receipt_table(receipt, {}))
    for warning in receipt["warnings"]:
        console().print(f"[bold yellow]warning:[/] {warning}")
    for note in notes:
        say(note)
