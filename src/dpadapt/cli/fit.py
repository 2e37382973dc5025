"""`dpadapt fit`: a private model, its receipt and a report from two tables and a schema.

The command and its job, in order: check everything, read and encode, open the ledger, fit, save, report. Predictions
and clustering take the same way; they differ in what is encoded, what `fit` is given and what is written.
"""

import os
import tempfile
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
    Delta,
    EncodingOption,
    Incomplete,
    SchemaOption,
    console,
    reason,
    teach,
    working,
)
from dpadapt.methods import METHODS, Method, Task

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.hybrid.agents import SimulatedAgents
    from dpadapt.tables import EncodedRows, Schema, TableModel

_LIST = "\n\n".join(f"{method.name} ({method.task}): {method.summary}" for method in METHODS)

_HELP = teach(
    f"""
Fit a model on private rows, helped by public ones, and write a receipt of what it cost.

The private table is read once and encoded by the schema. Only noisy statistics of it are released, at a cost of at
most --epsilon and --delta. Everything is checked before anything is spent. The folder gets model.json and arrays.npz
(the model, no pickle), receipt.json (what was released) and report.html (the same in words and plots, opens offline).

Before fitting, dpadapt forecast and dpadapt rehearse estimate from public rows what a budget could buy, for free.

With --ledger, the cost is charged to a file that belongs to the private data set, together with everything spent on
it before; a fit that would exceed its cap is refused. Without a ledger, nothing adds up what several fits cost.

Example:

\b
  dpadapt fit --private private.csv --public public.csv \\
              --schema schema.toml --label cost --task regression \\
              --epsilon 1 --delta 1e-6 --ledger patients.ledger \\
              --ledger-epsilon 3 --out model/

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
    private: Annotated[Path, typer.Option(help="The private rows, CSV or Parquet.")],
    schema: SchemaOption,
    task: Annotated[FitTask, typer.Option(help="Predict a number or a class, or choose centres.")],
    epsilon: Annotated[
        float, typer.Option(help="The most that this fit may spend. Positive; smaller is more private.")
    ],
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
        Path | None, typer.Option(help="Ledger of the private data set, shared by all fits on it. Created if missing.")
    ] = None,
    ledger_epsilon: Annotated[
        float | None, typer.Option(help="Cap of a new ledger: the most that may ever be spent. Default: --epsilon.")
    ] = None,
    ledger_delta: Annotated[float | None, typer.Option(help="Delta of a new ledger. Default: --delta.")] = None,
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
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Spend 2 to 10% of the budget so that predict --coverage gives intervals or sets."
        ),
    ] = False,
    encoding: EncodingOption = None,
    seed: Annotated[
        int | None,
        typer.Option(help="FOR TESTS ONLY, NO GUARANTEE: anybody who knows the seed can subtract the noise."),
    ] = None,
) -> None:
    """Check everything, then fit, save and report."""
    order = Order(
        private=private,
        public=public,
        schema=schema,
        label=label,
        task=task.value,
        epsilon=epsilon,
        delta=delta,
        out=out,
        ledger=LedgerOptions(ledger, ledger_epsilon, ledger_delta),
        method=method,
        adjacency=adjacency.value,
        rows=rows,
        seed=seed,
        tasks=tasks,
        clusters=clusters,
        agents=AgentOptions(agents, agents_epsilon),
        encoding=encoding,
        person=person,
        intervals=intervals,
    )
    with Spending(order) as spending:
        summary = carry_out(order, spending)
        spending.stage = "the summary could not be printed"
        _print(order, summary)


def _print(order: "Order", summary: dict[str, Any]) -> None:
    """Print the receipt, what each part of the data contributed, and what was written."""
    from dpadapt.report.terminal import fit_table, receipt_table

    screen = console()
    if order.task == "clustering":
        screen.print(receipt_table(summary["receipt"], summary["facts"]))
    else:
        screen.print(fit_table(summary))
        screen.print("What the public and the private rows contributed", style="bold")
        for sentence in summary["brought"]:
            screen.print(sentence, markup=False)
    for note in summary["notes"]:
        screen.print(note, markup=False)
    for warning in summary["receipt"]["warnings"]:
        screen.print(f"[bold yellow]warning:[/] {warning}")
    report = _CHOSEN if order.task == "clustering" else _REPORT
    # A folder's name may look like markup.
    screen.print(
        f"Wrote model.json, arrays.npz, receipt.json and {report} to {order.out}", soft_wrap=True, markup=False
    )


# Least number of private rows: with fewer, noise would hide all of them at any reasonable budget. The number is public,
# except under add-remove. Chosen by hand.
_LEAST_PRIVATE_ROWS = 10

_REPORT, _CHOSEN = "report.html", "chosen.csv"


@dataclass(frozen=True)
class LedgerOptions:
    """Which ledger to charge, and the cap of a new one."""

    path: Path | None
    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class AgentOptions:
    """The file of the people who answer for themselves, and what an answer may cost each of them."""

    path: Path | None = None
    epsilon: float | None = None


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
    person: str | None = None
    intervals: bool = False

    @property
    def unit(self) -> Literal["row", "person"]:
        """What is protected."""
        return "row" if self.person is None else "person"


@dataclass(frozen=True)
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
        if isinstance(error, BudgetExceeded) and self._order.ledger.path is not None:
            return ""
        try:
            charged = len(self._ledger.entries) > self._entries_before
        except Exception:
            return "The ledger can't be read: take the budget as spent"
        return "The budget is spent" if charged else ""


def _receipt_text(ledger: "Ledger", order: Order) -> str:
    """Return the receipt of a fit that no file holds; a durable ledger holds its charges anyway."""
    return "" if order.ledger.path is not None else str(ledger.receipt().to_json())


def carry_out(order: Order, spending: Spending) -> dict[str, Any]:
    """Fit, save and report; return the summary. Nothing is spent unless every check has passed."""
    from dpadapt import persist
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.adjacency import Adjacency
    from dpadapt.tables import read_schema

    method = _check_options(order)
    schema = read_schema(order.schema, origin=f"--schema {order.schema}")
    model = _unfitted(order, method, schema)
    with working("reading"):
        inputs = _read_inputs(order, method, model)
    persist.prepare(order.out, name="--out")
    durable = _open_ledger(order, schema.dataset)
    # Without a ledger's file, one in memory shows whether the fit was charged.
    ledger = durable or Ledger(order.epsilon, order.delta, adjacency=Adjacency.of(order.adjacency), unit=order.unit)
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
    spending.written += ["model.json", "arrays.npz", "receipt.json"]
    spending.stage = f"{_report_name(order)} could not be made"
    with working("writing the report"):
        if order.task == "clustering":
            summary = _write_chosen(model, order, inputs)
        else:
            summary = _write_report(model, order, method, inputs, durable)
    spending.written.append(_report_name(order))
    return {**summary, "notes": model.notes_}


def _rows_are_private(order: Order) -> bool:
    """Return whether the number of private rows is private; how many rows a person has is."""
    return order.adjacency == "add-remove" or order.unit == "person"


def _report_name(order: Order) -> str:
    return _CHOSEN if order.task == "clustering" else _REPORT


def _check_options(order: Order) -> Method:
    """Return the method, or refuse options that don't fit it or each other."""
    from dpadapt import checks
    from dpadapt.cli.inputs import check_delta, chosen_method

    method = chosen_method(order.method, order.task)
    checks.positive(order.epsilon, "--epsilon")
    check_delta(order.delta, "--delta", method)
    cap = order.ledger
    if cap.path is None and (cap.epsilon is not None or cap.delta is not None):
        raise ValueError("--ledger-epsilon and --ledger-delta are the cap of a ledger. Name its file with --ledger.")
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
    names = ("model.json", "arrays.npz", "receipt.json", _REPORT, _CHOSEN)
    written = {os.path.realpath(order.out / name) for name in names}
    inputs = {"--private": order.private, "--public": order.public, "--schema": order.schema}
    inputs |= {"--agents": order.agents.path, "--ledger": order.ledger.path}
    for option, path in inputs.items():
        if path is not None and os.path.realpath(path) in written:
            raise ValueError(f"{option} {path}: this file would be overwritten. Choose another folder for --out.")


def _check_clustering(order: Order) -> None:
    from dpadapt import checks

    unused: dict[str, Any] = {"--label": order.label, "--tasks": order.tasks, "--rows": order.rows}
    unused |= {"--agents": order.agents.path, "--agents-epsilon": order.agents.epsilon, "--person": order.person}
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


def _unfitted(order: Order, method: Method, schema: "Schema") -> "TableModel":
    """Return the unfitted model, or refuse options that its estimator does not have."""
    from dpadapt import persist
    from dpadapt.cli.inputs import table_model

    wanted = {"epsilon": order.epsilon, "delta": order.delta, "adjacency": order.adjacency, "n_rows": order.rows}
    wanted |= {"random_state": order.seed, "n_clusters": order.clusters, "intervals": order.intervals}
    model = table_model(method, schema, label=order.label, person=order.person, encoding=order.encoding, **wanted)
    known = model.estimator.get_params(deep=False)
    for name, option, asked in (
        ("adjacency", "--adjacency", order.adjacency != "zero-out"),
        ("n_rows", "--rows", order.rows is not None),
        ("random_state", "--seed", order.seed is not None),
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
    private = read_private(model, order.private, least=least, hidden=hidden)
    return _Inputs(private, public, _people(order, model))


def _people(order: Order, model: "TableModel") -> "SimulatedAgents | None":
    """Return one simulated person per row of the file of people, if there is one."""
    from dpadapt.cli.inputs import read_private
    from dpadapt.hybrid.agents import SimulatedAgents

    if order.agents.path is None or order.agents.epsilon is None:
        return None
    rows = read_private(model, order.agents.path, "--agents")
    return SimulatedAgents(rows.X, rows.y, order.agents.epsilon, random_state=order.seed)


def _open_ledger(order: Order, dataset: str) -> "Ledger | None":
    """Open the ledger, or create it with the given cap (default: what this fit may spend)."""
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.adjacency import Adjacency

    path, cap = order.ledger.path, (order.ledger.epsilon, order.ledger.delta)
    if path is None:
        return None
    adjacency = Adjacency.of(order.adjacency)
    try:
        if not path.exists():
            cap = order.epsilon if cap[0] is None else cap[0], order.delta if cap[1] is None else cap[1]
        elif not path.is_file():
            raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
        return Ledger.open(path, epsilon=cap[0], delta=cap[1], adjacency=adjacency, dataset=dataset, unit=order.unit)
    except OSError as error:
        raise ValueError(f"--ledger {path}: can't be opened or made ({error.strerror}).") from None


def _save(model: "TableModel", order: Order) -> None:
    """Save the model; if its folder fails, save it elsewhere, because another fit would spend again."""
    from dpadapt import persist

    try:
        # The report of an earlier model must not stand beside this one.
        persist.save(model, order.out, stale=[_REPORT])
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
            f"{failed} The budget is spent; the model and its receipt (model.json, arrays.npz, receipt.json) were "
            f"saved to {spare} instead.",
            code=code,
        ) from None


def _write_report(
    of_table: "TableModel", order: Order, method: Method, inputs: _Inputs, ledger: "Ledger | None"
) -> dict[str, Any]:
    """Write report.html and return its summary."""
    from dpadapt import persist
    from dpadapt.cli.inputs import predicted
    from dpadapt.report.before_spending import forecast_of_fit
    from dpadapt.report.contributions import compare_on_public, fit_in_words
    from dpadapt.report.html import fit_page
    from dpadapt.report.summarise import summarise_fit

    model, public = of_table.model_, inputs.public
    declared = None if public is None else public.declared
    comparison = None
    if public is not None and public.y is not None:
        comparison = compare_on_public(model, public.X, public.y, task=predicted(order.task))
    # Under add-remove the number of rows is private, and the fit used the public estimate.
    n_private = len(inputs.private.X) if order.rows is None else order.rows
    forecast = forecast_of_fit(model, declared, n_private)
    summary = summarise_fit(
        model,
        method=method,
        dataset=of_table.schema.dataset,
        label=str(order.label),
        names=list(of_table.get_feature_names_out()),
        public=None if public is None else public.words,
        comparison=comparison,
        brought=fit_in_words(model, declared, comparison, forecast),
        forecast=forecast,
        ledger=None if ledger is None else _ledger_facts(ledger),
    )
    persist.write_atomically(order.out / _REPORT, fit_page(summary).encode())
    return summary


def _ledger_facts(ledger: "Ledger") -> dict[str, Any]:
    spent = ledger.spent()
    return {
        "cap": ledger.epsilon,
        "delta": ledger.delta,
        "spent": spent,
        "words": f"{ledger.dataset}: epsilon = {spent:.4g} of {ledger.epsilon:.4g} spent, delta = {ledger.delta:.3g}",
    }


def _write_chosen(model: "TableModel", order: Order, inputs: _Inputs) -> dict[str, Any]:
    """Write chosen.csv, the rows of the public table that were chosen, and return the summary."""
    from dpadapt import persist
    from dpadapt.report.summarise import receipt_facts
    from dpadapt.tables import to_csv

    if inputs.public is None:
        raise ValueError("--public must be the table of rows to choose from with --task clustering.")
    rows = inputs.public.table.frame.iloc[model.centers_].copy()
    rows.insert(0, "row", rows.index, allow_duplicates=True)
    persist.write_atomically(order.out / _CHOSEN, to_csv(rows))
    facts = {"chosen": f"{order.clusters} of {len(inputs.public.X):,} public rows"}
    if hasattr(model, "cost_estimate_"):
        facts["distance to expect"] = (
            f"{model.cost_estimate_:.4g} from a public row to its nearest centre, an estimate in the units of the "
            f"encoded columns"
        )
    return {"facts": facts, "receipt": receipt_facts(model.privacy_)}
