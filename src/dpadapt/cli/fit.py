"""`dpadapt fit`: a private model, its receipt and a report from two tables and a schema.

The command and its job, in order: check everything, read and encode, open the ledger, fit, save, report. Predictions
and clustering take the same way; they differ in what is encoded, what `fit` is given and what is written.
"""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpadapt.cli.options import FitOptions, add_command, check_method_delta, chosen_method, flag_of, teach
from dpadapt.cli.screen import Incomplete, console, progress_bar, reason, working
from dpadapt.cli.spending import LedgerPlan, Spending, charge_in_words, plan_spending
from dpadapt.methods import METHODS, Method

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.cli.request import Request
    from dpadapt.hybrid.agents import SimulatedAgents
    from dpadapt.tables import EncodedRows, Schema, Table, TableModel

_PRODUCTS = ", ".join(dict.fromkeys(method.name for method in METHODS if not method.published))

_HELP = teach(
    f"""
Fit a model on private rows, helped by public ones, and write a receipt of what it cost.

The private table is read once and encoded by the schema. Only noisy statistics of it are released. Everything is
checked before anything is spent. --out gets model.dpadapt, receipt.json and report.html. dpadapt advise, forecast and
rehearse say beforehand, for free, what a budget could buy.

The cost is charged to a ledger, by default the file beside the private one (patients.ledger for patients.csv), which
adds up everything spent on these rows and refuses what exceeds the cap that the first fit fixes.

Example:

\b
  dpadapt fit --private private.csv --public public.csv --schema schema.toml \\
              --label cost --task regression --epsilon 1 --out model/

With --request it carries out what an analyst asks for, once you have agreed to the cost. With --task clustering it
chooses --clusters rows of the public table as centres, and writes chosen.csv in place of a report.

Methods: {_PRODUCTS}; --method help describes them and lists the published algorithms.
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    add_command(app, "fit", _fit, FitOptions, help=_HELP, optional=("schema", "task", "epsilon"))


def _fit(values: dict[str, Any], stated: set[str]) -> None:
    """Check everything, then fit, save and report."""
    request = None
    if values["request"] is not None:
        from dpadapt.cli.request import read_request

        request = read_request(values["request"])
        values = request.options(values, stated)
    for name in ("schema", "task", "epsilon"):
        if values[name] is None:
            raise ValueError(f"{flag_of(name)} must be given, unless --request names the file of a request.")
    order = FitOptions(**values)
    job = prepare(order, request)
    with Spending(job.plan, order, f"--out {order.out}: nothing was written there: the fit did not end") as spending:
        summary = carry_out(job, spending)
        _print(order, summary)


def _print(order: FitOptions, summary: dict[str, Any]) -> None:
    """Print the receipt, what each part of the data contributed, and what was written."""
    from dpadapt.report.terminal import print_fit, receipt_table

    screen = console()
    if order.task == "clustering":
        screen.print(receipt_table(summary["receipt"], summary["facts"]))
    else:
        print_fit(screen, summary)
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


@dataclass(frozen=True, repr=False)
class _Inputs:
    """Arguments of `fit`: private rows, and what helps them, if anything does: public rows, or people."""

    private: "EncodedRows"
    public: "EncodedRows | None"
    agents: "SimulatedAgents | None"


@dataclass(frozen=True, repr=False)
class _Job:
    """A fit that every check has passed: what to fit on which rows, and the ledger to charge, if there is one."""

    order: FitOptions
    method: Method
    model: "TableModel"
    inputs: _Inputs
    plan: LedgerPlan | None
    requested: bool


def prepare(order: FitOptions, request: "Request | None") -> _Job:
    """Check everything, read and encode; nothing is spent, and no ledger is made."""
    from dpadapt import persist
    from dpadapt.accounting.places import data_set_name
    from dpadapt.tables import read_schema

    method = check_options(order)
    if request is None:
        schema = read_schema(order.schema, origin=f"--schema {order.schema}")
        # A ledger that somebody names must be of the data set that the schema names. One that was found by the private
        # file is of its rows, whatever its name is.
        stated = schema.dataset if order.ledger else ""
    else:
        request.check_public(order.public)
        # Whoever writes a request does not choose the ledger: on a server, the name of the data set is its key.
        schema, stated = replace(request.schema, dataset=""), request.schema.dataset
    model = unfitted(order, method, schema)
    plan = plan_spending(
        order,
        pure=order.task == "clustering",  # it draws Laplace noise by default
        dataset=schema.dataset,
        stated=stated,
        cap_delta=order.ledger_delta,
        requested=request is not None,
    )
    makes_ledger = plan is not None and plan.cap is not None
    if request is not None and makes_ledger and None in (order.ledger_epsilon, order.ledger_delta):
        raise ValueError(
            f"--request: there is no ledger for {order.private} yet, and its cap is not the request's to choose. Give "
            f"--ledger-epsilon and --ledger-delta, or --ledger with the ledger of these rows."
        )
    name = (schema.dataset or data_set_name(order.private)) if plan is None else plan.wish.dataset
    model.schema = replace(model.schema, dataset=name)
    with working("reading"):
        inputs = _read_inputs(order, method, model)
    persist.prepare(order.out, name="--out")
    if request is not None:
        request.agree(order, method, plan)
    return _Job(order, method, model, inputs, plan, request is not None)


def carry_out(job: _Job, spending: Spending) -> dict[str, Any]:
    """Fit, save and report; return the summary."""
    order, model, inputs, plan, ledger = job.order, job.model, job.inputs, job.plan, spending.ledger
    if job.requested and plan is not None and ledger.dataset:
        model.schema = replace(model.schema, dataset=ledger.dataset)
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
    report, written = _CHOSEN if order.task == "clustering" else _REPORT, "model.dpadapt, receipt.json"
    spending.receipt = ""
    spending.failure = (
        f"--out {order.out}: the model and its receipt are there ({written}), but {report} could not be made"
    )
    with working("writing the report"):
        if order.task == "clustering":
            summary = _write_chosen(model, order, inputs)
        else:
            summary = _write_report(model, order, job.method, inputs, None if plan is None else ledger)
    spending.failure = (
        f"--out {order.out}: everything was written there ({written}, {report}), but the summary could not be printed"
    )
    notes = [] if plan is None else [*plan.notes, charge_in_words(plan, ledger)]
    return {**summary, "notes": [*model.notes_, *notes]}


def _rows_are_private(order: FitOptions) -> bool:
    """Return whether the number of private rows is private; how many rows a person has is."""
    return order.adjacency == "add-remove" or order.unit == "person"


def check_options(order: FitOptions) -> Method:
    """Return the method, or refuse options that don't fit it or each other; nothing is read."""
    method = chosen_method(order.method, order.task.value)
    order.check(task=order.task)
    check_method_delta(order.delta, "--delta", method)
    if order.ledger_delta is not None:
        check_method_delta(order.ledger_delta, "--ledger-delta", method)
    _check_places(order)
    if order.task == "clustering":
        for name, why in (("public", "the table of rows to choose from"), ("clusters", "the number of rows to choose")):
            if getattr(order, name) is None:
                raise ValueError(f"{flag_of(name)} must be given with --task clustering: {why}.")
        return method
    if order.label is None:
        raise ValueError(f"--label must name the column to predict with --task {order.task}.")
    if order.tasks is not None and not method.tasks:
        raise ValueError(f"--tasks: the method {method.name} makes no use of tasks. Leave it out, or see --method.")
    if order.rows is not None and order.adjacency != "add-remove":
        raise ValueError("--rows is only for --adjacency add-remove. Leave it out.")
    if order.rows is None and order.adjacency == "add-remove":
        raise ValueError("--rows must be given with --adjacency add-remove: a public estimate of the number of rows.")
    if order.intervals and order.public is None and method.beside == "public":
        raise ValueError(
            "--intervals needs public rows, which say how finely to count errors. Give them with --public."
        )
    if method.beside == "agents" and order.public is not None:
        raise ValueError(f"--public: the method {method.name} is helped by people (--agents), not by public rows.")
    if method.beside != "agents" and order.agents is not None:
        raise ValueError(
            f"--agents: the method {method.name} does not ask people. Leave it out, or use --method hybrid."
        )
    return method


def _check_places(order: FitOptions) -> None:
    """Refuse an input that stands where this command writes."""
    names = ("model.dpadapt", "receipt.json", _REPORT, _CHOSEN)
    written = {os.path.realpath(order.out / name) for name in names}
    places = {name: getattr(order, name) for name in ("private", "public", "schema", "agents", "request")}
    for name, path in (places | {"ledger": order.place}).items():
        if isinstance(path, Path) and os.path.realpath(path) in written:
            raise ValueError(
                f"{flag_of(name)} {path}: this file would be overwritten. Choose another folder for --out."
            )


def unfitted(order: FitOptions, method: Method, schema: "Schema") -> "TableModel":
    """Return the unfitted model, or refuse options that its estimator does not have."""
    from dpadapt import persist

    classes = schema.classes(str(order.label)) if order.task == "classification" else ()
    parameters = order.parameters(method, classes)
    for name in ("weight", "person"):
        column = getattr(order, name)
        if column is None:
            continue
        if column == order.label:
            raise ValueError(f"--{name} {column}: this is the column to predict. Name another column.")
        schema = schema.ignoring(column)
    beside = {"person": order.person, "weight": order.weight, "encoding": order.encoding}
    model = table_model(method, schema, parameters, label=order.label, **beside)
    estimator = model.configured()
    estimator._check_each_parameter()  # now, not when both tables were read
    persist.method_of(estimator)  # refuses now, not after the fit, what could not be saved
    return model


def table_model(
    method: Method, schema: "Schema", parameters: dict[str, Any], *, label: str | None, **beside: str | None
) -> "TableModel":
    """Return the unfitted model of tables, or refuse a label that the schema does not describe; no row is read.

    Of the parameters, only those that the estimator has are set.
    """
    from dpadapt.tables import TableModel

    estimator = method.estimator()
    known = estimator.get_params(deep=False)
    estimator.set_params(**{name: value for name, value in parameters.items() if name in known})
    model = TableModel(estimator, schema, label=label, **beside)
    model.configured()
    return model


def _read_inputs(order: FitOptions, method: Method, model: "TableModel") -> _Inputs:
    """Read and encode the private rows and what helps them."""
    from dpadapt.tables import same_table

    # Before anything is read: messages about a public file show its values.
    if same_table(order.public, order.private):
        raise ValueError(
            f"--public {order.public}: this is the private file. Public rows are not protected at all: give other "
            f"rows, or leave --public out."
        )
    if same_table(order.agents, order.private):
        raise ValueError(
            f"--agents {order.agents}: this is the private file. Its people would be charged twice, for their "
            f"rows and for their answers: give other people."
        )
    public = agents = None
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
    if order.agents is not None and order.agents_epsilon is not None:
        from dpadapt.hybrid.agents import SimulatedAgents

        people = read_private(model, order.agents, "--agents")
        agents = SimulatedAgents(people.X, people.y, order.agents_epsilon, random_state=order.seed)
    return _Inputs(private, public, agents)


def read_private(
    model: "TableModel",
    path: Path,
    option: str = "--private",
    *,
    least: int = 2,
    hidden: bool = False,
    memory: str | None = None,
) -> "EncodedRows":
    """Read and encode private rows of the curator or of people, in chunks if the estimator can do with that.

    If the number of rows is `hidden`, no message tells none from one.
    """
    from dpadapt.inputs.sources import DEFAULT_MEMORY, memory_in_bytes
    from dpadapt.tables import read_table, table_chunks

    origin = f"{option} {path}"
    if not model.reads_chunks or option != "--private":
        if memory is not None or path.is_dir():
            raise ValueError(
                f"{origin}: rows can't be read in chunks for {type(model.estimator).__name__}, for persons or "
                f"for weights. Give one file, and leave --memory out."
            )
        table = read_table(path, origin=origin, private=True, empty=hidden, encoding=model.encoding)
        _require_rows(len(table.frame), table.origin, least)
        return model.encode_private(table, empty=hidden)
    limit = DEFAULT_MEMORY if memory is None else memory_in_bytes(memory, "--memory")
    chunks = table_chunks(path, origin=origin, private=True, empty=hidden, encoding=model.encoding)
    with progress_bar("reading", None if hidden else chunks.n_rows) as done:
        rows = model.encode_chunks(chunks, memory=limit, done=lambda n: done(steps=n))
    _require_rows(rows.n_rows, chunks.header.origin, least)
    return rows


def read_public(model: "TableModel", path: Path, *, tasks: str | None = None) -> "EncodedRows":
    """Read and encode the public table, with its labels if there are any, and the column that names its tasks."""
    import numpy as np

    from dpadapt.tables import sampled_table, table_chunks

    chunks = table_chunks(path, origin=f"--public {path}", private=False, encoding=model.encoding)
    table, n_rows = sampled_table(chunks)
    _require_rows(n_rows, table.origin, 2 if model.label is not None else 1)
    if tasks is not None:
        _check_tasks(table, model, tasks)
    rows = replace(model.encode_public(table), sampled=n_rows if n_rows > len(table.frame) else 0)
    if tasks is None:
        return rows
    return replace(rows, tasks=np.asarray(rows.table.frame[tasks].astype(str)))


def _check_tasks(table: "Table", model: "TableModel", column: str) -> None:
    """Refuse a column that does not say which task each public row belongs to."""
    if column not in table.frame.columns:
        raise ValueError(f"--tasks {column}: {table.origin} has no such column.")
    if column == model.label or column in [part.name for part in model.schema.features(model.label)]:
        raise ValueError(
            f"--tasks {column}: this is a column to learn from or to predict. Tasks need a column of their own; set "
            f'type = "ignore" for it in the schema, or leave it out there.'
        )
    names = table.frame[column]
    if names.isna().any() or (names.astype(str).str.strip() == "").any():
        raise ValueError(f"--tasks {column}: some public rows have no task. Fill it in, or remove those rows.")


def _require_rows(n_rows: int, origin: str, least: int) -> None:
    if n_rows < min(least, 2):
        raise ValueError(f"{origin}: at least two rows are needed to fit on.")
    if n_rows < least:
        raise ValueError(
            f"{origin}: at least {least} rows are needed. With fewer, the noise that protects one row would hide all "
            f"of them. Nothing was spent."
        )


def _save(model: "TableModel", order: FitOptions) -> None:
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
    of_table: "TableModel", order: FitOptions, method: Method, inputs: _Inputs, ledger: "Ledger | None"
) -> dict[str, Any]:
    """Write report.html and return its summary."""
    from dpadapt.disk import write_atomically
    from dpadapt.report.fit import fit_page, summarise_fit

    public = inputs.public
    n_private = _n_units(inputs.private) if order.rows is None else order.rows
    summary = summarise_fit(
        of_table.model_,
        method=method,
        dataset=of_table.schema.dataset,
        label=str(order.label),
        ledger=None if ledger is None else _ledger_facts(ledger, order.allowance),
        public=None if public is None else public.declared,
        public_words=None if public is None else public.words,
        names=list(of_table.get_feature_names_out()),
        n_private=None if _rows_are_private(order) else n_private,
        planned_rows=n_private,
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


def _write_chosen(model: "TableModel", order: FitOptions, inputs: _Inputs) -> dict[str, Any]:
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
