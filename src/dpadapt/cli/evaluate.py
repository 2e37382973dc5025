"""`dpadapt evaluate`: how good a model is on private rows, charged to their ledger."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import Json, SpendingOptions, Use, add_command, teach
from dpadapt.cli.screen import console, print_json, say, working
from dpadapt.cli.spending import LedgerPlan, Spending, charge_in_words, plan_spending

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.evaluation import Evaluation
    from dpadapt.persist import Saved
    from dpadapt.tables import TableModel

_HELP = teach(
    """Release how good a fitted model is on private rows, with an interval.

An accuracy that is simply computed from private rows reveals something about each of them. This one has noise and is
charged to the ledger beside the private file. If there is none, you are asked for it, or must name it with --ledger:
rows held out from a fit belong to the same private data set, and to its ledger. Rows without a readable label are no
evidence: the result says what share was usable. The interval allows for the noise and for the sampling of rows.

A log-loss or squared error is the mean of losses that are clipped at a public bound, which the receipt states.
""",
    "dpadapt evaluate model/ --private test.csv --epsilon 0.1 \\",
    "            --ledger private.ledger",
    "dpadapt evaluate model/ --private test.csv --epsilon 0.1 --metric auc \\",
    "            --public public.csv",
)

# Of a ledger that an evaluation makes. An evaluation needs no delta itself, but fits do.
_DELTA_OF_NEW_LEDGER = 1e-6


class MetricName(StrEnum):
    """What to measure."""

    accuracy = "accuracy"
    log_loss = "log-loss"
    squared_error = "squared-error"
    auc = "auc"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(SpendingOptions):
    """Options of `dpadapt evaluate`."""

    model: Annotated[Path, typer.Argument(help="A folder made by dpadapt fit."), Use()]
    metric: Annotated[
        MetricName | None,
        typer.Option(help="Default: accuracy of a classification, squared error of a regression."),
        Use(),
    ] = None
    delta: Annotated[
        float,
        typer.Option(
            help="Positive: Gaussian noise, not Laplace. A ledger with many Gaussian charges has more room for it."
        ),
        Use(check="delta"),
    ] = 0.0
    error_bound: Annotated[
        float | None,
        typer.Option(
            help="The largest loss of a row that counts: an absolute error, or a log-loss. Default: from public rows "
            "or the schema; for a log-loss, that of a probability of 1%."
        ),
        Use(check="positive"),
    ] = None
    public: Annotated[
        Path | None, typer.Option(help="Public rows, which only set the error bound or the bins of scores."), Use()
    ] = None
    as_json: Annotated[Json, Use()] = False


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    add_command(app, "evaluate", _evaluate, EvaluateOptions, help=_HELP)


def _evaluate(values: dict[str, Any], _stated: set[str]) -> None:
    from dpadapt.evaluation import checked_metric, evaluate
    from dpadapt.persist import load

    options = EvaluateOptions(**values)
    options.check()
    with working("reading"):
        of_table = _model_of_tables(options.model, load(options.model))
        of_table.encoding = options.encoding
    metric = checked_metric(of_table, None if options.metric is None else options.metric.value)
    if options.error_bound is not None and metric not in ("log-loss", "squared-error"):
        raise ValueError(f"--error-bound: {metric} has no errors to bound. Leave it out.")
    # The model may come from somebody else: its column of ids may be another one in every row.
    person = options.person
    if person is not None and any(column.name == person for column in of_table.schema.features(of_table.label)):
        raise ValueError(f"--person {person}: this column is a feature of the model. Name the column with the ids.")
    # For the same reason, a new ledger has the name of the file, not that of the model's rows.
    pure = options.delta == 0
    plan = plan_spending(options, pure=pure, new=False, default_delta=_DELTA_OF_NEW_LEDGER if pure else None)
    public, rows = _tables(of_table, options)
    with Spending(plan, options, "the evaluation did not end") as spending:
        with working("evaluating"):
            result = evaluate(
                of_table,
                rows,
                epsilon=options.epsilon,
                metric=metric,
                delta=options.delta,
                error_bound=options.error_bound,
                public=public,
                persons=person,
                ledger=spending.ledger,
            )
        # What was paid for is shown on standard error, if it can't be printed.
        spending.receipt = str(result)
        _print(result, spending.ledger, plan, options.as_json)


def _model_of_tables(folder: Path, saved: "Saved") -> "TableModel":
    from dpadapt.tables import TableModel

    if not isinstance(saved.model, TableModel) or saved.model.label is None:
        raise ValueError(f"{folder}: the model predicts no column of a table. Evaluate a model made by dpadapt fit.")
    return saved.model


def _tables(of_table: "TableModel", options: EvaluateOptions) -> tuple[Any, Any]:
    from dpadapt.tables import read_table, same_table

    private, public, encoding = options.private, options.public, options.encoding
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
