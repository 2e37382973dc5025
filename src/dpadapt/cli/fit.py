"""`dpadapt fit`: a private model, its receipt and a report from two tables and a schema.

The command and its job, in order: check everything, read and encode, open the ledger, fit, save, report. Predictions
and clustering take the same way; they differ in what is encoded, what `fit` is given and what is written.
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpadapt.cli.options import (
    AdjacencyName,
    AdjacencyOption,
    AllowanceOption,
    DatasetOption,
    Delta,
    EncodingOption,
    teach,
)
from dpadapt.cli.screen import Incomplete, console, reason, working
from dpadapt.methods import METHODS, Method, Task

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import Place
    from dpadapt.cli.budget import LedgerPlan
    from dpadapt.cli.request import Request
    from dpadapt.hybrid.agents import SimulatedAgents
    from dpadapt.tables import EncodedRows, Schema, TableModel

_LIST = "\n\n".join(f"{method.name} ({method.task}): {method.summary}" for method in METHODS)

_HELP = teach(
    f"""
Fit a model on private rows, helped by public ones, and write a receipt of what it cost.

The private table is read once and encoded by the schema. Only noisy statistics of it are released, at a cost of at
most --epsilon and --delta. Everything is checked before anything is spent. The folder gets model.dpadapt (the
model, no pickle), receipt.json (what was released) and report.html (the same in words and plots, opens offline).

Before fitting, dpadapt advise, forecast and rehearse estimate from public rows what a budget could buy, for free.

The cost is charged to a ledger: a file that belongs to the private rows and adds up everything spent on them. By
default it lies beside the private file and has its name: patients.ledger for patients.csv. So every fit on that file
finds it, with any schema and any public rows. --ledger keeps it elsewhere, or names the ledger of a file with the same
rows; a link beside the private file then leads to it. If another ledger lies in the folder, you are asked which one to
charge, or must name it. The first fit fixes the cap of the ledger: --ledger-epsilon, or what you answer at a terminal,
or else three times --epsilon. A fit that would exceed the cap is refused.

Example:

\b
  dpadapt fit --private private.csv --public public.csv \\
              --schema schema.toml --label cost --task regression \\
              --epsilon 1 --delta 1e-6 --ledger-epsilon 3 --out model/

With --request it carries out what an analyst has asked for by dpadapt request, once you have agreed to the cost:

\b
  dpadapt fit --request request.toml --private private.csv \\
              --public public.csv --allowance anna --out model/

With --task clustering it chooses rows of the public table instead: --clusters centres, where the private rows already
serve as centres. There is no label, and chosen.csv has the rows in place of a report.

Methods:

{_LIST}
"""
)


class FitTask(StrEnum):
    """What to fit: a model of a number, a model of a class, or centres among the public rows."""

    regression = "regression"
    classification = "classification"
    clustering = "clustering"


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("fit", help=_HELP)(_fit)


def _fit(
    context: typer.Context,
    private: Annotated[
        Path, typer.Option(help="The private rows: a CSV or Parquet file, or a folder of files of one kind.")
    ],
    out: Annotated[Path, typer.Option(help="A folder for the model, the receipt and the report.")],
    schema: Annotated[
        Path | None, typer.Option(help="What is known about the columns; made by dpadapt schema. Needed, or --request.")
    ] = None,
    task: Annotated[
        FitTask | None, typer.Option(help="Predict a number or a class, or choose centres. Needed, or --request.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="The most that this fit may spend. Positive; smaller is more private. Needed, or --request."),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option(help="What to fit, and at which cost, as an analyst has asked for it by dpadapt request."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --request: spend what it asks for, without a question.")] = (
        False
    ),
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    public: Annotated[
        Path | None, typer.Option(help="Public rows, CSV or Parquet, with or without the label. Not protected.")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="With --task clustering: how many public rows to choose as centres.")
    ] = None,
    delta: Delta = 1e-6,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger of the private rows, shared by all fits on them: a file, or postgresql://user@host/database "
            "for several machines. Created if missing. Default: beside the private file, with its name."
        ),
    ] = None,
    dataset: DatasetOption = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Charge no ledger: nothing then adds up what several fits cost.")
    ] = False,
    ledger_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Cap of a new ledger: the most that may ever be spent on these rows. Default: asked for, or three "
            "times --epsilon."
        ),
    ] = None,
    ledger_delta: Annotated[float | None, typer.Option(help="Delta of a new ledger. Default: --delta.")] = None,
    allowance: AllowanceOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(dict.fromkeys(m.name for m in METHODS))}. "
            "Default: transfer, or clustering for that task."
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="For --method subspace: the public column that says which task a row belongs to.")
    ] = None,
    agents: Annotated[
        Path | None,
        typer.Option(
            help="For --method hybrid: people to simulate, one row each, from the population that the model is for."
        ),
    ] = None,
    agents_epsilon: Annotated[
        float | None, typer.Option(help="With --agents: the epsilon of each person's one noisy bit.")
    ] = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    rows: Annotated[
        int | None, typer.Option(help="With --adjacency add-remove: a public estimate of the number of private rows.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="The column with the id of each row's person: protects all rows of a person together."),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(help="The column with the sample weight of each private row, such as a survey weight."),
    ] = None,
    max_weight: Annotated[
        float | None,
        typer.Option(help="With --weight: the largest weight, publicly known. Larger ones count as this one."),
    ] = None,
    mean_weight: Annotated[
        float | None,
        typer.Option(help="With --weight: the mean weight, if it is publicly known, such as population / sample size."),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(help="How much classes count: balanced (by public frequencies), or e.g. ill=20,healthy=1."),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="For two classes, from which probability on to answer the second: a number, 5:1 (what a miss and a "
            "false alarm cost), f1 or balanced_accuracy (chosen on public rows)."
        ),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Spend 2 to 10% of the budget so that predict --coverage gives intervals or sets."
        ),
    ] = False,
    encoding: EncodingOption = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="What private rows may take in memory, such as 2GB; the rest goes to a file without a name in TMPDIR. "
            "At least 64MB. Default: 512MB.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="FOR TESTS ONLY, NO GUARANTEE: anybody who knows the seed can subtract the noise."),
    ] = None,
) -> None:
    """Check everything, then fit, save and report."""
    asked = None
    if request is not None:
        from dpadapt.cli.request import taken_over

        asked = taken_over(request, context)
    elif yes:
        raise ValueError("--yes agrees to what a request asks for. Name its file with --request, or leave --yes out.")
    elif schema is None or task is None or epsilon is None:
        missing = "--schema" if schema is None else "--task" if task is None else "--epsilon"
        raise ValueError(f"{missing} must be given, unless --request names the file of a request.")
    # What an analyst may ask for, in the words of `Request`.
    wanted: dict[str, Any] = {
        "label": label,
        "task": None if task is None else task.value,
        "epsilon": epsilon,
        "delta": delta,
        "method": method,
        "adjacency": adjacency.value,
        "rows": rows,
        "tasks": tasks,
        "clusters": clusters,
        "person": person,
        "intervals": intervals,
        "weight": weight,
        "max_weight": max_weight,
        "mean_weight": mean_weight,
        "class_weight": class_weight,
        "threshold": threshold,
    }
    from dpadapt.cli.budget import given_place

    order = Order.of(
        wanted if asked is None else asked.fit,
        private=private,
        public=public,
        schema=schema or request or Path(),
        out=out,
        ledger=LedgerOptions(
            given_place(ledger, dataset), ledger_epsilon, ledger_delta, refused=no_ledger, allowance=allowance
        ),
        seed=seed,
        agents=AgentOptions(agents, agents_epsilon),
        encoding=encoding,
        memory=memory,
        request=asked,
        agreed=yes,
    )
    with Spending(order) as spending:
        summary = carry_out(order, spending)
        spending.stage = "the summary could not be printed"
        _print(order, summary)


# Colours of a verdict on the terminal.
_VERDICT_STYLES = {"go": "bold green", "stay": "bold blue", "more": "bold yellow", "open": "bold"}


def _print(order: "Order", summary: dict[str, Any]) -> None:
    """Print the receipt, what each part of the data contributed, and what was written."""
    from dpadapt.report.terminal import class_table, fit_table, receipt_table

    screen = console()
    if order.task == "clustering":
        screen.print(receipt_table(summary["receipt"], summary["facts"]))
    else:
        verdict = summary["verdict"]
        screen.print(f"{verdict['title']}.", style=_VERDICT_STYLES[verdict["kind"]], markup=False)
        screen.print(verdict["words"], markup=False)
        screen.print(fit_table(summary))
        screen.print("What the public and the private rows contributed", style="bold")
        for sentence in summary["brought"]:
            screen.print(sentence, markup=False)
        if summary["by_class"]:
            screen.print(class_table(summary["by_class"]))
        for sentence in (summary["threshold"], summary["intervals"], *summary["groups"]):
            if sentence:
                screen.print(sentence, markup=False)
    for note in summary["notes"]:
        screen.print(note, soft_wrap=True, markup=False)
    for warning in summary["receipt"]["warnings"]:
        screen.print(f"[bold yellow]warning:[/] {warning}")
    report = _CHOSEN if order.task == "clustering" else _REPORT
    # A folder's name may look like markup.
    screen.print(f"Wrote model.dpadapt, receipt.json and {report} to {order.out}", soft_wrap=True, markup=False)


# Least number of private rows: with fewer, noise would hide all of them at any reasonable budget. The number is public,
# except under add-remove. Chosen by hand.
_LEAST_PRIVATE_ROWS = 10

_REPORT, _CHOSEN = "report.html", "chosen.csv"


@dataclass(frozen=True)
class LedgerOptions:
    """Which ledger to charge, by default the one beside the private file, and the cap of a new one."""

    path: "Place | None"
    epsilon: float | None
    delta: float | None
    refused: bool = False
    allowance: str | None = None


@dataclass(frozen=True)
class AgentOptions:
    """The file of the people who answer for themselves, and what an answer may cost each of them."""

    path: Path | None = None
    epsilon: float | None = None


@dataclass(frozen=True)
class WeightOptions:
    """How much rows and classes count, and where a class begins."""

    column: str | None = None
    most: float | None = None
    mean: float | None = None
    classes: str | None = None
    threshold: str | None = None

    def parameters(self, label_classes: tuple[Any, ...]) -> dict[str, Any]:
        """Return the parameters of an estimator that these options set; texts become what they stand for."""
        if self.column is None and (self.most is not None or self.mean is not None):
            raise ValueError(
                "--max-weight and --mean-weight are about sample weights. Name their column with --weight."
            )
        if self.column is not None and self.most is None:
            raise ValueError("--max-weight must be given with --weight: the largest weight, publicly known.")
        wanted = {"max_weight": self.most, "mean_weight": self.mean}
        wanted |= {"class_weight": self._of_classes(label_classes), "decision_threshold": self._of_threshold()}
        return {name: value for name, value in wanted.items() if value is not None}

    def _of_classes(self, label_classes: tuple[Any, ...]) -> Any:
        if self.classes is None or self.classes == "balanced":
            return self.classes
        known, weights = {str(label): label for label in label_classes}, {}
        for part in self.classes.split(","):
            name, _, number = part.rpartition("=")
            if name.strip() not in known or not _is_number(number):
                raise ValueError(
                    "--class-weight must be balanced, or one weight for each class that does not count 1, such as "
                    "ill=20,healthy=1; the classes are those that the schema lists for the label."
                )
            weights[known[name.strip()]] = float(number)
        return weights

    def _of_threshold(self) -> Any:
        if self.threshold is None or _is_number(self.threshold):
            return None if self.threshold is None else float(self.threshold)
        miss, colon, alarm = self.threshold.partition(":")
        if colon and _is_number(miss) and _is_number(alarm):
            return {"miss": float(miss), "false alarm": float(alarm)}
        return self.threshold


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


@dataclass(frozen=True)
class Order:
    """What was asked for on the command line."""

    private: Path
    public: Path | None
    schema: Path
    label: str | None
    task: Task
    epsilon: float
    delta: float
    out: Path
    ledger: LedgerOptions
    method: str | None = None
    adjacency: str = "zero-out"
    rows: int | None = None
    seed: int | None = None
    tasks: str | None = None
    clusters: int | None = None
    agents: AgentOptions = AgentOptions()
    encoding: str | None = None
    memory: str | None = None
    person: str | None = None
    weights: WeightOptions = WeightOptions()
    intervals: bool = False
    request: "Request | None" = None
    agreed: bool = False

    @classmethod
    def of(cls, wanted: Mapping[str, Any], **rest: Any) -> "Order":
        """Return the order with what an analyst may ask for, by name, and with the rest."""
        names = ("weight", "max_weight", "mean_weight", "class_weight", "threshold")
        plain = {name: value for name, value in wanted.items() if name not in names}
        return cls(**plain, weights=WeightOptions(*(wanted.get(name) for name in names)), **rest)

    @property
    def unit(self) -> Literal["row", "person"]:
        """What is protected."""
        return "row" if self.person is None else "person"


@dataclass(frozen=True, repr=False)
class _Inputs:
    """Arguments of `fit`: private rows, and what helps them, if anything does: public rows, or people."""

    private: "EncodedRows"
    public: "EncodedRows | None"
    agents: "SimulatedAgents | None"


class Spending:
    """What this command has spent and written: any failure after the charge is said to be one.

    Until a charge was made, errors pass as they are: nothing was spent, and the exit code is 2. From the charge on,
    every error becomes `Incomplete`, which says so, and what was written where.

    Attributes
    ----------
    stage : str
        What could not be done if the next step fails.
    written : list of str
        The files that were written to --out.
    """

    def __init__(self, order: Order) -> None:
        self.stage = "the fit did not end"
        self.written: list[str] = []
        self._order = order
        self._ledger: Ledger | None = None
        self._entries_before = 0

    def begin(self, ledger: "Ledger") -> None:
        """Watch the ledger that the fit is charged to."""
        self._entries_before = len(ledger.entries)
        self._ledger = ledger

    def __enter__(self) -> "Spending":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn an error after the charge into `Incomplete`."""
        if error is None or isinstance(error, Incomplete):
            return
        spent = self._spent(error)
        if not spent:
            return
        out, report = self._order.out, _report_name(self._order)
        if report in self.written:
            where = f"--out {out}: everything was written there ({', '.join(self.written)}), but"
        elif self.written:
            where = f"--out {out}: the model and its receipt are there ({', '.join(self.written)}), but"
        else:
            where = f"--out {out}: nothing was written there:"
        receipt = "" if self.written or self._ledger is None else _receipt_text(self._ledger, self._order)
        raise Incomplete(
            f"{where} {self.stage} ({reason(error)}). {spent}.",
            receipt=receipt,
            code=130 if isinstance(error, KeyboardInterrupt) else 1,
        ) from None

    def _spent(self, error: BaseException) -> str:
        """Return what is known about the budget, in words; empty if nothing was spent."""
        from dpadapt.errors import BudgetExceeded

        if self._ledger is None:
            return ""
        # A fit is charged at once. If its charge was refused, new entries in the file are those of other processes.
        if isinstance(error, BudgetExceeded) and not self._order.ledger.refused:
            return ""
        try:
            charged = len(self._ledger.entries) > self._entries_before
        except Exception:
            return "The ledger can't be read: take the budget as spent"
        return "The budget is spent" if charged else ""


def _receipt_text(ledger: "Ledger", order: Order) -> str:
    """Return the receipt of a fit that no file holds; a durable ledger holds its charges anyway."""
    return str(ledger.receipt().to_json()) if order.ledger.refused else ""


def carry_out(order: Order, spending: Spending) -> dict[str, Any]:
    """Fit, save and report; return the summary. Nothing is spent unless every check has passed."""
    from dpadapt import persist
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.cli.budget import charge_in_words
    from dpadapt.mechanisms.adjacency import Adjacency
    from dpadapt.tables import read_schema

    method = check_options(order)
    if order.request is not None:
        order.request.check_public(order.public)
        # Whoever writes a request does not choose the ledger: on a server, the name of the data set is its key.
        schema = replace(order.request.schema, dataset="")
    else:
        schema = read_schema(order.schema, origin=f"--schema {order.schema}")
    model = unfitted(order, method, replace(schema, dataset=_dataset(order, schema)))
    plan = _plan_ledger(order, schema)
    if order.request is not None and plan is not None and plan.cap is not None and order.ledger.epsilon is None:
        raise ValueError(
            f"--request: there is no ledger for {order.private} yet, and its cap is not the request's to choose. Give "
            f"--ledger-epsilon, or --ledger with the ledger of these rows."
        )
    if plan is not None:
        model.schema = replace(model.schema, dataset=plan.wish.dataset)
    with working("reading"):
        inputs = _read_inputs(order, method, model)
    persist.prepare(order.out, name="--out")
    if order.request is not None:
        order.request.agree(order, method, plan)
    # Without a ledger's file, one in memory shows whether the fit was charged.
    durable = None if plan is None else plan.open()
    if order.request is not None and durable is not None and durable.dataset:
        model.schema = replace(model.schema, dataset=durable.dataset)
    ledger = durable or Ledger.of_one_fit(
        order.epsilon, order.delta, adjacency=Adjacency.of(order.adjacency), unit=order.unit
    )
    spending.begin(ledger)

    try:
        with working("fitting"):
            model.fit_encoded(inputs.private, public=inputs.public, agents=inputs.agents, ledger=ledger)
    except OverflowError:
        # Arrays never raise it (see `PrivateEstimator`): an accountant did.
        raise ValueError("--epsilon, --delta: the cost can't be computed for numbers as extreme as these.") from None
    if _rows_are_private(order) and order.task != "clustering":
        # Other files are refused, so that a fit tells this much about the rows.
        facts = (*model.privacy_.assumptions, "that there are at least two private rows")
        model.model_.privacy_ = replace(model.privacy_, assumptions=facts)
    # Saved before anything else is tried: the budget is spent.
    _save(model, order)
    spending.written += ["model.dpadapt", "receipt.json"]
    spending.stage = f"{_report_name(order)} could not be made"
    with working("writing the report"):
        if order.task == "clustering":
            summary = _write_chosen(model, order, inputs)
        else:
            summary = _write_report(model, order, method, inputs, durable)
    spending.written.append(_report_name(order))
    notes = [] if plan is None else [*plan.notes, charge_in_words(plan, ledger)]
    return {**summary, "notes": [*model.notes_, *notes]}


def _rows_are_private(order: Order) -> bool:
    """Return whether the number of private rows is private; how many rows a person has is."""
    return order.adjacency == "add-remove" or order.unit == "person"


def _report_name(order: Order) -> str:
    return _CHOSEN if order.task == "clustering" else _REPORT


def check_options(order: Order) -> Method:
    """Return the method, or refuse options that don't fit it or each other."""
    from dpadapt import checks
    from dpadapt.cli.inputs import check_delta, chosen_method

    method = chosen_method(order.method, order.task)
    checks.positive(order.epsilon, "--epsilon")
    check_delta(order.delta, "--delta", method)
    cap = order.ledger
    if cap.refused and any(part is not None for part in (cap.path, cap.epsilon, cap.delta, cap.allowance)):
        raise ValueError(
            "--no-ledger: --ledger, --ledger-epsilon, --ledger-delta and --allowance ask for a ledger. Leave one out."
        )
    if cap.epsilon is not None:
        checks.positive(cap.epsilon, "--ledger-epsilon")
    if cap.delta is not None:
        check_delta(cap.delta, "--ledger-delta", method)
    _check_places(order)
    if order.task == "clustering":
        _check_clustering(order)
    else:
        _check_prediction(order, method)
    return method


def _check_places(order: Order) -> None:
    """Refuse an input that stands where this command writes."""
    names = ("model.dpadapt", "receipt.json", _REPORT, _CHOSEN)
    written = {os.path.realpath(order.out / name) for name in names}
    inputs: dict[str, Any] = {"--private": order.private, "--public": order.public, "--schema": order.schema}
    inputs |= {"--agents": order.agents.path, "--ledger": order.ledger.path}
    inputs |= {"--request": None if order.request is None else order.request.path}
    for option, path in inputs.items():
        if isinstance(path, Path) and os.path.realpath(path) in written:
            raise ValueError(f"{option} {path}: this file would be overwritten. Choose another folder for --out.")


def _check_clustering(order: Order) -> None:
    from dpadapt import checks

    unused: dict[str, Any] = {"--label": order.label, "--tasks": order.tasks, "--rows": order.rows}
    unused |= {"--agents": order.agents.path, "--agents-epsilon": order.agents.epsilon}
    unused |= {
        "--weight": order.weights.column,
        "--max-weight": order.weights.most,
        "--mean-weight": order.weights.mean,
    }
    unused |= {"--class-weight": order.weights.classes, "--threshold": order.weights.threshold}
    unused |= {"--intervals": order.intervals or None}
    for option, value in unused.items():
        if value is not None:
            raise ValueError(f"{option}: --task clustering has no such choice. Leave it out.")
    if order.public is None:
        raise ValueError("--public must be the table of rows to choose from with --task clustering.")
    if order.clusters is None:
        raise ValueError("--clusters must be given with --task clustering.")
    checks.count(order.clusters, "--clusters")


def _check_prediction(order: Order, method: Method) -> None:
    from dpadapt import checks

    if order.clusters is not None:
        raise ValueError("--clusters is for --task clustering. Leave it out.")
    if order.label is None:
        raise ValueError(f"--label must name the column to predict with --task {order.task}.")
    if order.task == "regression" and (order.weights.classes is not None or order.weights.threshold is not None):
        raise ValueError("--class-weight and --threshold are for --task classification. Leave them out.")
    if order.tasks is not None and not method.tasks:
        raise ValueError(f"--tasks: the method {method.name} makes no use of tasks. Leave it out, or see --method.")
    if order.tasks is not None and order.public is None:
        raise ValueError("--tasks names a column of the public rows. Give them with --public.")
    if order.rows is not None and order.adjacency != "add-remove":
        raise ValueError("--rows is only for --adjacency add-remove. Leave it out.")
    if order.rows is not None:
        checks.count(order.rows, "--rows")
    if order.rows is None and order.adjacency == "add-remove":
        raise ValueError("--rows must be given with --adjacency add-remove: a public estimate of the number of rows.")
    if order.intervals and order.public is None and method.beside == "public":
        raise ValueError(
            "--intervals needs public rows, which say how finely to count errors. Give them with --public."
        )
    people = order.agents
    if people.path is None and people.epsilon is not None:
        raise ValueError("--agents-epsilon is what an answer costs a person. Name their file with --agents.")
    if method.beside != "agents":
        if people.path is not None:
            raise ValueError(
                f"--agents: the method {method.name} does not ask people. Leave it out, or use --method hybrid."
            )
    elif order.public is not None:
        raise ValueError(f"--public: the method {method.name} is helped by people (--agents), not by public rows.")
    elif people.path is not None and people.epsilon is None:
        raise ValueError("--agents-epsilon must be given with --agents: what an answer may cost each person.")
    if people.epsilon is not None:
        checks.positive(people.epsilon, "--agents-epsilon")


def unfitted(order: Order, method: Method, schema: "Schema") -> "TableModel":
    """Return the unfitted model, or refuse options that its estimator does not have."""
    from dpadapt import persist
    from dpadapt.cli.inputs import table_model

    wanted: dict[str, Any] = {
        "epsilon": order.epsilon,
        "delta": order.delta,
        "adjacency": order.adjacency,
        "n_rows": order.rows,
    }
    wanted |= {"random_state": order.seed, "n_clusters": order.clusters, "intervals": order.intervals}
    counting = order.weights.parameters(schema.classes(str(order.label)) if order.weights.classes else ())
    beside: dict[str, Any] = {"person": order.person, "weight": order.weights.column, "encoding": order.encoding}
    model = table_model(method, schema, label=order.label, **beside, **wanted, **counting)
    known = model.estimator.get_params(deep=False)
    for name, option, asked in (
        ("adjacency", "--adjacency", order.adjacency != "zero-out"),
        ("n_rows", "--rows", order.rows is not None),
        ("random_state", "--seed", order.seed is not None),
        ("class_weight", "--class-weight", "class_weight" in counting),
        ("decision_threshold", "--threshold", "decision_threshold" in counting),
        ("intervals", "--intervals", order.intervals),
    ):
        if asked and name not in known:
            raise ValueError(f"{option}: the method {method.name} has no such choice. Leave it out.")
    persist.method_of(model.configured())  # refuses now, not after the fit, what could not be saved
    return model


def _read_inputs(order: Order, method: Method, model: "TableModel") -> _Inputs:
    """Read and encode the private rows and what helps them."""
    from dpadapt.cli.inputs import read_private, read_public
    from dpadapt.tables import same_table

    # Before anything is read: messages about a public file show its values.
    if same_table(order.public, order.private):
        raise ValueError(
            f"--public {order.public}: this is the private file. Public rows are not protected at all: give other "
            f"rows, or leave --public out."
        )
    if same_table(order.agents.path, order.private):
        raise ValueError(
            f"--agents {order.agents.path}: this is the private file. Its people would be charged twice, for their "
            f"rows and for their answers: give other people."
        )
    public = None
    if order.public is not None:
        public = read_public(model, order.public, tasks=order.tasks)
        if method.tasks and order.tasks is None and public.y is not None:
            raise ValueError(
                f"--tasks must name the column of --public that says which task a row belongs to: {method.name} learns "
                f"from several. With one task, use --method transfer."
            )
        if order.clusters is not None and order.clusters > len(public.X):
            raise ValueError(
                f"--clusters must be at most the number of public rows, {len(public.X)}, got {order.clusters}."
            )
    least = 1 if order.task == "clustering" else _LEAST_PRIVATE_ROWS
    hidden = _rows_are_private(order)
    if hidden:
        # To refuse a file for its number of rows reveals that number. Clustering accepts any; estimators that predict
        # need two rows, and the receipt says that there are two.
        least = 0 if order.task == "clustering" else 2
    private = read_private(model, order.private, least=least, hidden=hidden, memory=order.memory)
    return _Inputs(private, public, _people(order, model))


def _people(order: Order, model: "TableModel") -> "SimulatedAgents | None":
    """Return one simulated person per row of the file of people, if there is one."""
    from dpadapt.cli.inputs import read_private
    from dpadapt.hybrid.agents import SimulatedAgents

    if order.agents.path is None or order.agents.epsilon is None:
        return None
    rows = read_private(model, order.agents.path, "--agents")
    return SimulatedAgents(rows.X, rows.y, order.agents.epsilon, random_state=order.seed)


def _plan_ledger(order: Order, schema: "Schema") -> "LedgerPlan | None":
    """Return the ledger to charge, by default that beside the private file; None if one is refused."""
    from dpadapt.accounting.places import ServerPlace
    from dpadapt.cli.budget import Wish, cost_of_budget, found_place, plan_ledger

    if order.ledger.refused:
        return None
    # Clustering draws Laplace noise by default.
    event = cost_of_budget(order.epsilon, order.delta, pure=order.task == "clustering")
    wish = Wish(event, order.epsilon, order.delta, order.adjacency, order.unit, _dataset(order, schema))
    wish = replace(wish, requested=order.request is not None)
    path, link = found_place(order.private, order.ledger.path)
    if isinstance(path, ServerPlace):
        wish = replace(wish, dataset=path.dataset)
    # A ledger that somebody names must be of the data set that the schema names. One that was found by the private file
    # is of its rows, whatever its name is.
    stated = schema.dataset if order.ledger.path else ""
    if order.request is not None:
        stated = order.request.schema.dataset
    cap = {"epsilon": order.ledger.epsilon, "delta": order.ledger.delta}
    return plan_ledger(path, wish, **cap, dataset=stated, link=link, allowance=order.ledger.allowance)


def _dataset(order: Order, schema: "Schema") -> str:
    """Return the name of the private data set: what the schema states, or else the private file's name."""
    from dpadapt.accounting.places import data_set_name

    return schema.dataset or data_set_name(order.private)


def _save(model: "TableModel", order: Order) -> None:
    """Save the model; if its folder fails, save it elsewhere, because another fit would spend again."""
    from dpadapt import persist
    from dpadapt.disk import write_atomically

    try:
        # The report of an earlier model must not stand beside this one.
        (order.out / _REPORT).unlink(missing_ok=True)
        persist.save(model, order.out)
        write_atomically(order.out / "receipt.json", model.privacy_.to_json().encode())
    except BaseException as error:
        failed = f"--out {order.out}: can't write there any more ({reason(error)})."
        if not model.privacy_.entries:
            raise ValueError(f"{failed} Nothing was spent.") from None
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        spare = None
        try:
            spare = tempfile.mkdtemp(prefix="dpadapt-model-")
            persist.save(model, spare)
        except Exception:
            if spare is not None:
                with suppress(OSError):  # only an empty folder is removed
                    os.rmdir(spare)
            raise Incomplete(
                f"{failed} The budget is spent, and the model could not be saved elsewhere. Its receipt follows.",
                receipt=model.privacy_.to_json(),
                code=code,
            ) from None
        raise Incomplete(
            f"{failed} The budget is spent; the model and its receipt (in model.dpadapt) were "
            f"saved to {spare} instead.",
            code=code,
        ) from None


def _write_report(
    of_table: "TableModel", order: Order, method: Method, inputs: _Inputs, ledger: "Ledger | None"
) -> dict[str, Any]:
    """Write report.html and return its summary."""
    from dpadapt.cli.inputs import predicted
    from dpadapt.disk import write_atomically
    from dpadapt.report.fit import errors_on_public, fit_page, summarise_fit
    from dpadapt.report.previews import forecasts_of_fit

    model, public = of_table.model_, inputs.public
    declared = None if public is None else public.declared
    comparison = None
    if declared is not None and declared.y is not None:
        comparison = errors_on_public(model, declared, predicted(order.task))
    n_private = _n_units(inputs.private) if order.rows is None else order.rows
    summary = summarise_fit(
        model,
        method=method,
        dataset=of_table.schema.dataset,
        label=str(order.label),
        names=list(of_table.get_feature_names_out()),
        public=declared,
        public_words=None if public is None else public.words,
        comparison=comparison,
        forecasts=forecasts_of_fit(model, declared, n_private),
        ledger=None if ledger is None else _ledger_facts(ledger, order.ledger.allowance),
        n_private=None if _rows_are_private(order) else n_private,
    )
    write_atomically(order.out / _REPORT, fit_page(summary).encode())
    return summary


def _n_units(private: "EncodedRows") -> int:
    """Return the number of rows or, if persons are protected, of persons: how many rows a person has is private.

    Under add-remove this number is private too, and the fit used the public estimate.
    """
    return private.n_rows if private.shares is None else private.shares.n_units


def _ledger_facts(ledger: "Ledger", allowance: str | None) -> dict[str, Any]:
    spent, under = ledger.spent(), "" if allowance is None else f", allowance {allowance}"
    return {
        "cap": ledger.epsilon,
        "delta": ledger.delta,
        "spent": spent,
        "words": f"{ledger.dataset}{under}: epsilon = {spent:.4g} of {ledger.epsilon:.4g} spent, "
        f"delta = {ledger.delta:.3g}",
    }


def _write_chosen(model: "TableModel", order: Order, inputs: _Inputs) -> dict[str, Any]:
    """Write chosen.csv, the rows of the public table that were chosen, and return the summary."""
    from dpadapt.disk import write_atomically
    from dpadapt.report.receipt import receipt_facts
    from dpadapt.tables import to_csv

    if inputs.public is None:
        raise ValueError("--public must be the table of rows to choose from with --task clustering.")
    rows = inputs.public.table.frame.iloc[model.centers_].copy()
    rows.insert(0, "row", rows.index, allow_duplicates=True)
    write_atomically(order.out / _CHOSEN, to_csv(rows))
    facts = {"chosen": f"{order.clusters} of {len(inputs.public.X):,} public rows"}
    if hasattr(model, "cost_estimate_"):
        facts["distance to expect"] = (
            f"{model.cost_estimate_:.4g} from a public row to its nearest centre, an estimate in the units of the "
            f"encoded columns"
        )
    return {"facts": facts, "receipt": receipt_facts(model.privacy_)}
