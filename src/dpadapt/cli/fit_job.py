"""What `dpadapt fit --task clustering` does: check all of it, open the ledger, choose public rows, save them."""

import filecmp
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks, persist
from dpadapt.cli.options import Incomplete, console
from dpadapt.cli.public_rows import PublicRows, check_delta, chosen_method, encode_public, read_rows, unfitted
from dpadapt.data import Public
from dpadapt.methods import CHOICES, Method, Task
from dpadapt.tables import (
    Encoded,
    Schema,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    read_schema,
    read_table,
)

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.hybrid.agents import SimulatedAgents


# People who answer for themselves, simulated from a file: for methods that are helped by them.


@dataclass(frozen=True)
class AgentOptions:
    """The people's file, and what an answer may cost each of them."""

    path: Path | None = None
    epsilon: float | None = None

    def check(self, method: Method, public: Path | None) -> None:
        """Refuse options that do not fit the method or each other."""
        if self.path is None and self.epsilon is not None:
            raise ValueError("--agents-epsilon is what an answer costs a person. Name their file with --agents.")
        if method.beside != "agents":
            if self.path is not None:
                raise ValueError(
                    f"--agents: the method {method.name} asks nobody. Leave it out, or use --method hybrid."
                )
            return
        if public is not None:
            raise ValueError(f"--public: the method {method.name} is helped by people (--agents), not by public rows.")
        if self.path is not None:
            if self.epsilon is None:
                raise ValueError("--agents-epsilon must be given with --agents: what an answer may cost each person.")
            checks.positive(self.epsilon, "--agents-epsilon")

    def people(self, schema: Schema, *, label: str, task: Task, seed: int | None) -> "SimulatedAgents | None":
        """Return one simulated person per row of the file, if there is one."""
        from dpadapt.hybrid.agents import SimulatedAgents

        if self.path is None or self.epsilon is None:
            return None
        table = read_rows(self.path, "--agents", private=True)
        check_columns(table, schema, label=label)
        X = encode_features(table, schema, label=label)
        return SimulatedAgents(X, encode_labels(table, schema, label=label, task=task), self.epsilon, random_state=seed)


def beside(
    method: Method, options: AgentOptions, public: Any, schema: Schema, *, label: str, task: Task, seed: int | None
) -> dict[str, Any]:
    """Return what a fit is given beside the private rows, by name."""
    if method.beside == "agents":
        return {"agents": options.people(schema, label=label, task=task, seed=seed)}
    return {"public": public}


# What `dpadapt fit` does, in order: check all of it, open the ledger, fit, save, report.


# Fewer rows than this can't be told from noise by any budget; their number is public, save under add-remove.
_LEAST_ROWS = 10

_ASSUMED = (
    "the schema: column names, ranges, categories",
    "that every cell of the file has a value of its column's type",
)


@dataclass(frozen=True)
class LedgerOptions:
    """Which ledger to charge, and the cap of a new one."""

    path: Path | None
    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class Order:
    """What was asked for on the command line."""

    private: Path
    public: Path | None
    schema: Path
    label: str
    task: Task
    epsilon: float
    delta: float
    out: Path
    ledger: LedgerOptions
    method: str | None
    adjacency: str
    rows: int | None
    seed: int | None
    tasks: str | None = None
    agents: AgentOptions = field(default_factory=AgentOptions)


def carry_out(order: Order) -> dict[str, Any]:
    """Fit, save and report; return the summary. Nothing is spent unless every check has passed."""
    method = _check_options(order)
    schema = read_schema(order.schema, origin=f"--schema {order.schema}")
    model = _estimator(order, method, schema)
    public = None
    if order.public is not None:
        public = encode_public(order.public, schema, label=order.label, task=order.task, tasks=order.tasks)
        if method.tasks and order.tasks is None and public.y is not None:
            raise ValueError(
                f"--tasks must name the column of --public that says which task a row belongs to: {method.name} learns "
                f"from several. With one task, use --method transfer."
            )
    X, y = _encode_private(order, schema)
    declared = None if public is None else public.declared
    helpers = beside(method, order.agents, declared, schema, label=order.label, task=order.task, seed=order.seed)
    if order.public is not None and filecmp.cmp(order.public, order.private, shallow=False):
        raise ValueError(
            f"--public {order.public}: this is the private file. Public rows are not protected at all: give other "
            f"rows, or leave --public out."
        )
    if order.agents.path is not None and filecmp.cmp(order.agents.path, order.private, shallow=False):
        raise ValueError(
            f"--agents {order.agents.path}: this is the private file. Its people would pay twice, as rows and by their "
            f"answers: give other people."
        )
    persist.prepare(order.out)
    ledger = open_ledger(order.ledger, schema, epsilon=order.epsilon, delta=order.delta, adjacency=order.adjacency)

    model.fit(X, y, **helpers, ledger=ledger)
    # A fact assumed public belongs on the receipt; these are known here and not to the estimator.
    facts = (*model.privacy_.assumptions, *assumed(schema, order.label))
    model.privacy_ = replace(model.privacy_, assumptions=facts)
    # Saved before anything else is tried: the budget is spent.
    _save(model, order, schema)
    try:
        return _report(model, order, method, schema, public, declared, len(X), ledger)
    except Exception as error:
        raise Incomplete(
            f"--out {order.out}: the model and its receipt are there, but report.html could not be made "
            f"({_reason(error)}). The budget is spent."
        ) from None


def assumed(schema: Schema, label: str | None) -> list[str]:
    """Return what the files and the schema take to be public."""
    encoders = [
        f"the encoder of {column.name} ({column.encoder}): it was made without the private rows"
        for column in schema.features(label)
        if isinstance(column, Encoded)
    ]
    return [*_ASSUMED, *encoders]


def _save(model: Any, order: Order, schema: Schema) -> None:
    """Save the model; if its folder fails, somewhere else: another fit would have to be paid for."""
    extra = {"schema": schema.to_dict(), "label": order.label, "task": order.task}
    try:
        # The report of an earlier model must not stand beside this one.
        (order.out / "report.html").unlink(missing_ok=True)
        persist.save(model, order.out, extra=extra)
    except (OSError, ValueError) as error:
        failed = f"--out {order.out}: can't write there any more ({_reason(error)}). The budget is spent"
        try:
            spare = tempfile.mkdtemp(prefix="dpadapt-model-")
            persist.save(model, spare, extra=extra)
        except (OSError, ValueError):
            raise Incomplete(f"{failed}, and the model could not be saved elsewhere.") from None
        raise Incomplete(f"{failed}; the model and its receipt were saved to {spare} instead.") from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _report(
    model: Any,
    order: Order,
    method: Method,
    schema: Schema,
    public: PublicRows | None,
    declared: Public | None,
    n_private: int,
    ledger: "Ledger | None",
) -> dict[str, Any]:
    """Write report.html and return its summary."""
    from dpadapt.report.before_spending import forecast_of_fit
    from dpadapt.report.compare import compare_on_public
    from dpadapt.report.contributions import fit_in_words
    from dpadapt.report.html import fit_page
    from dpadapt.report.summarise import summarise_fit

    comparison = None
    if public is not None and public.y is not None:
        comparison = compare_on_public(model, public.X, public.y, task=order.task)
    # Under add-remove the number of rows is private, and the fit used the public estimate.
    forecast = forecast_of_fit(model, declared, n_private if order.rows is None else order.rows)
    summary = summarise_fit(
        model,
        method=method,
        dataset=schema.dataset,
        label=order.label,
        names=feature_names(schema, order.label),
        public=None if public is None else public.words,
        comparison=comparison,
        brought=fit_in_words(model, declared, comparison, forecast),
        forecast=forecast,
        ledger=None if ledger is None else _ledger_facts(ledger),
    )
    persist.write_atomically(order.out / "report.html", fit_page(summary).encode())
    return summary


def check_ledger_options(ledger: LedgerOptions) -> None:
    """Refuse a cap without a ledger, or one that is none."""
    if ledger.path is None and (ledger.epsilon is not None or ledger.delta is not None):
        raise ValueError("--ledger-epsilon and --ledger-delta are the cap of a ledger. Name its file with --ledger.")
    if ledger.epsilon is not None:
        checks.positive(ledger.epsilon, "--ledger-epsilon")
    if ledger.delta is not None:
        checks.delta(ledger.delta, "--ledger-delta")


def _check_options(order: Order) -> Method:
    checks.positive(order.epsilon, "--epsilon")
    check_delta(order.delta, "--delta")
    check_ledger_options(order.ledger)
    if order.ledger.delta is not None:
        check_delta(order.ledger.delta, "--ledger-delta")
    method = chosen_method(order.method, order.task)
    if order.tasks is not None and not method.tasks:
        raise ValueError(f"--tasks: the method {method.name} makes no use of tasks. Leave it out, or see --method.")
    if order.tasks is not None and order.public is None:
        raise ValueError("--tasks names a column of the public rows. Give them with --public.")
    order.agents.check(method, order.public)
    return method


def _estimator(order: Order, method: Method, schema: Schema) -> Any:
    """Return the unfitted estimator, or refuse options that it does not have."""
    known = method.estimator().get_params(deep=False)
    for name, option, asked in (
        ("adjacency", "--adjacency", order.adjacency != "zero-out"),
        ("n_rows", "--rows", order.rows is not None),
        ("random_state", "--seed", order.seed is not None),
    ):
        if asked and name not in known:
            raise ValueError(f"{option}: the method {method.name} has no such choice. Leave it out.")
    if order.rows is not None and order.adjacency != "add-remove":
        raise ValueError("--rows is only for --adjacency add-remove. Leave it out.")
    if order.rows is None and order.adjacency == "add-remove":
        raise ValueError("--rows must be given with --adjacency add-remove: a public estimate of the number of rows.")
    wanted: dict[str, Any] = {"epsilon": order.epsilon, "delta": order.delta, "adjacency": order.adjacency}
    wanted |= {"n_rows": order.rows, "random_state": order.seed}
    model = unfitted(method, schema, label=order.label, **wanted)
    persist.method_of(model)  # refuses now, not after the fit, what could not be saved
    return model


def _encode_private(order: Order, schema: Schema) -> tuple[NDArray[np.float64], NDArray[Any]]:
    least = _LEAST_ROWS if order.rows is None else 2
    table = read_rows(order.private, "--private", private=True, least=least)
    check_columns(table, schema, label=order.label)
    return (
        encode_features(table, schema, label=order.label),
        encode_labels(table, schema, label=order.label, task=order.task),
    )


def open_ledger(
    options: LedgerOptions, schema: Schema, *, epsilon: float, delta: float, adjacency: str
) -> "Ledger | None":
    """Open the ledger, or make it with the cap asked for (default: `epsilon` and `delta`, what this fit may spend)."""
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.adjacency import Adjacency

    path, cap = options.path, (options.epsilon, options.delta)
    if path is None:
        return None
    if not path.exists():
        cap = epsilon if cap[0] is None else cap[0], delta if cap[1] is None else cap[1]
    elif not path.is_file():
        raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
    try:
        return Ledger.open(
            path, epsilon=cap[0], delta=cap[1], adjacency=Adjacency.of(adjacency), dataset=schema.dataset
        )
    except OSError as error:
        raise ValueError(f"--ledger {path}: can't be opened or made ({error.strerror}).") from None


def _ledger_facts(ledger: "Ledger") -> dict[str, Any]:
    spent = ledger.spent()
    return {
        "cap": ledger.epsilon,
        "delta": ledger.delta,
        "spent": spent,
        "words": f"{ledger.dataset}: epsilon = {spent:.4g} of {ledger.epsilon:.4g} spent, delta = {ledger.delta:.3g}",
    }


_CHOSEN = "chosen.csv"


def choose(
    *,
    private: Path,
    public: Path | None,
    schema: Path,
    clusters: int | None,
    epsilon: float,
    delta: float,
    out: Path,
    ledger: LedgerOptions,
    adjacency: str,
    seed: int | None,
    method: str | None,
    unused: dict[str, Any],
) -> None:
    """Choose rows of the public table, save and print. Nothing is spent unless every check has passed."""
    from dpadapt.report.summarise import receipt_facts
    from dpadapt.report.terminal import facts_table

    for option, value in unused.items():
        if value is not None:
            raise ValueError(f"{option}: --task clustering has no such choice. Leave it out.")
    known = {choice.name: choice for choice in CHOICES}
    if method not in (None, *known):
        raise ValueError(f"--method must be one of {', '.join(known)} for clustering, got {method!r}.")
    if clusters is None or public is None:
        missing = "--public must be the table of rows to choose from" if public is None else "--clusters must be given"
        raise ValueError(f"{missing} with --task clustering.")
    checks.count(clusters, "--clusters")
    checks.positive(epsilon, "--epsilon")
    checks.delta(delta, "--delta")
    check_ledger_options(ledger)
    found = read_schema(schema, origin=f"--schema {schema}")
    targets, T = _encoded(public, "--public", found, private=False)
    if clusters > len(T):
        raise ValueError(f"--clusters must be at most the number of public rows, {len(T)}, got {clusters}.")
    _, S = _encoded(private, "--private", found, private=True)
    if filecmp.cmp(public, private, shallow=False):
        raise ValueError(f"--public {public}: this is the private file, which would not be protected. Give other rows.")
    persist.prepare(out)
    model = known[method or CHOICES[0].name].estimator(
        n_clusters=clusters, epsilon=epsilon, delta=delta, adjacency=adjacency, random_state=seed
    )
    book = open_ledger(ledger, found, epsilon=epsilon, delta=delta, adjacency=adjacency)
    model.fit(S, public=Public(T), ledger=book)
    model.privacy_ = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, *assumed(found, None)))
    rows = targets.frame.iloc[model.centers_]
    try:
        persist.save(model, out, extra={"schema": found.to_dict(), "task": "clustering"})
        text = rows.rename_axis("row").to_csv()
        persist.write_atomically(out / _CHOSEN, text.encode())
    except (OSError, ValueError) as error:
        chosen = " ".join(str(row) for row in sorted(model.centers_.tolist()))
        raise Incomplete(
            f"--out {out}: can't write there ({error}). The budget is spent; rows chosen: {chosen}."
        ) from None
    receipt = receipt_facts(model.privacy_)
    facts = {
        "cost": f"epsilon = {model.privacy_.epsilon:.4g}, delta = {model.privacy_.delta:.3g}",
        "protects": receipt["protects"],
        "released": "\n".join(f"{entry['label']}: {entry['mechanism']}" for entry in receipt["entries"]),
        "assumed public": "\n".join(receipt["assumptions"]),
        "chosen": f"{clusters} of {len(T):,} public rows",
        "distance to expect": f"{model.cost_estimate_:.4g} from a public row to its nearest centre, an estimate in the "
        f"units of the encoded columns",
    }
    screen = console()
    screen.print(facts_table("Receipt", facts))
    for warning in receipt["warnings"]:
        screen.print(f"[bold yellow]warning:[/] {warning}")
    screen.print(f"Wrote {_CHOSEN}, model.json, arrays.npz and receipt.json to {out}", soft_wrap=True, markup=False)


def _encoded(path: Path, option: str, schema: Schema, *, private: bool) -> tuple[Any, Any]:
    """Read a table and encode it by the schema, without a label."""
    # A single private row will do: the number of private rows may be private itself.
    table = read_table(path, origin=f"{option} {path}", private=private)
    check_columns(table, schema)
    return table, encode_features(table, schema)
