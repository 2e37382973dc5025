"""What `dpadapt fit` does, in order: check all of it, open the ledger, fit, save, report."""

import filecmp
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate, persist
from dpadapt.cli._options import Incomplete
from dpadapt.data import Public
from dpadapt.methods import Method, find
from dpadapt.tables import (
    Schema,
    Table,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    read_schema,
    read_table,
)

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger

Task = Literal["regression", "classification"]

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


@dataclass(frozen=True)
class _Public:
    """The public table, encoded."""

    X: NDArray[np.float64]
    y: NDArray[Any] | None

    @property
    def words(self) -> str:
        return f"{len(self.X):,} rows {'without labels' if self.y is None else 'with labels'}"


def carry_out(order: Order) -> dict[str, Any]:
    """Fit, save and report; return the summary. Nothing is spent unless every check has passed."""
    method = _check_options(order)
    schema = read_schema(order.schema, origin=f"--schema {order.schema}")
    model = _estimator(order, method, schema)
    public = None if order.public is None else _encode_public(order, schema, order.public)
    X, y = _encode_private(order, schema)
    if order.public is not None and filecmp.cmp(order.public, order.private, shallow=False):
        raise ValueError(
            f"--public {order.public}: this is the private file. Public rows are not protected at all: give other "
            f"rows, or leave --public out."
        )
    persist.prepare(order.out)
    ledger = _open_ledger(order, schema)

    declared = None if public is None else Public(public.X, public.y)
    model.fit(X, y, public=declared, ledger=ledger)
    # A fact assumed public belongs on the receipt; these are known here and not to the estimator.
    model.privacy_ = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, *_ASSUMED))
    # Saved before anything else is tried: the budget is spent.
    _save(model, order, schema)
    try:
        return _report(model, order, method, schema, public, ledger)
    except Exception as error:
        raise Incomplete(
            f"--out {order.out}: the model and its receipt are there, but report.html could not be made "
            f"({_reason(error)}). The budget is spent."
        ) from None


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
    model: Any, order: Order, method: Method, schema: Schema, public: _Public | None, ledger: "Ledger | None"
) -> dict[str, Any]:
    """Write report.html and return its summary."""
    from dpadapt.report.compare import compare_on_public
    from dpadapt.report.html import fit_page
    from dpadapt.report.summarise import summarise_fit

    comparison = None
    if public is not None and public.y is not None:
        comparison = compare_on_public(model, public.X, public.y, task=order.task)
    summary = summarise_fit(
        model,
        method=method,
        dataset=schema.dataset,
        label=order.label,
        names=feature_names(schema, order.label),
        public=None if public is None else public.words,
        comparison=comparison,
        ledger=None if ledger is None else _ledger_facts(ledger),
    )
    persist.write_atomically(order.out / "report.html", fit_page(summary).encode())
    return summary


def _check_options(order: Order) -> Method:
    _validate.positive(order.epsilon, "--epsilon")
    _check_delta(order.delta, "--delta")
    if order.ledger.path is None and (order.ledger.epsilon is not None or order.ledger.delta is not None):
        raise ValueError("--ledger-epsilon and --ledger-delta are the cap of a ledger. Name its file with --ledger.")
    if order.ledger.epsilon is not None:
        _validate.positive(order.ledger.epsilon, "--ledger-epsilon")
    if order.ledger.delta is not None:
        _check_delta(order.ledger.delta, "--ledger-delta")
    try:
        return find(order.method, order.task)
    except ValueError as error:
        raise ValueError(f"--method: {error}") from None


def _check_delta(delta: float, option: str) -> None:
    # Here, not in the fit: by then a new ledger would have a cap that no fit could ever be charged to.
    if _validate.delta(delta, option) == 0:
        raise ValueError(f"{option} must be positive: the methods draw Gaussian noise, got 0. A common choice is 1e-6.")


def _estimator(order: Order, method: Method, schema: Schema) -> Any:
    """Return the unfitted estimator, given what the schema says about the label and nothing from the rows."""
    wanted: dict[str, Any] = {"epsilon": order.epsilon, "delta": order.delta, "adjacency": order.adjacency}
    wanted |= {"n_rows": order.rows, "random_state": order.seed}
    if order.task == "regression":
        wanted["target_bounds"] = schema.bounds(order.label)
    else:
        wanted["classes"] = list(schema.classes(order.label))
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
    model = method.estimator(**{name: value for name, value in wanted.items() if name in known})
    persist.method_of(model)  # refuses now, not after the fit, what could not be saved
    return model


def _read(path: Path, option: str, *, private: bool) -> Table:
    table = read_table(path, origin=f"{option} {path}", private=private)
    if len(table.frame) < 2:
        raise ValueError(f"{table.origin}: at least two rows are needed to fit on.")
    return table


def _encode_public(order: Order, schema: Schema, path: Path) -> _Public:
    table = _read(path, "--public", private=False)
    check_columns(table, schema, label=order.label, optional=order.label)
    X = encode_features(table, schema, label=order.label)
    if order.label not in table.frame.columns:
        return _Public(X, None)
    return _Public(X, encode_labels(table, schema, label=order.label, task=order.task))


def _encode_private(order: Order, schema: Schema) -> tuple[NDArray[np.float64], NDArray[Any]]:
    table = _read(order.private, "--private", private=True)
    check_columns(table, schema, label=order.label)
    return (
        encode_features(table, schema, label=order.label),
        encode_labels(table, schema, label=order.label, task=order.task),
    )


def _open_ledger(order: Order, schema: Schema) -> "Ledger | None":
    """Open the ledger, or make it with the cap asked for (default: as much as this fit may spend)."""
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.adjacency import Adjacency

    path, epsilon, delta = order.ledger.path, order.ledger.epsilon, order.ledger.delta
    if path is None:
        return None
    if not path.exists():
        epsilon = order.epsilon if epsilon is None else epsilon
        delta = order.delta if delta is None else delta
    elif not path.is_file():
        raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
    try:
        return Ledger.open(
            path, epsilon=epsilon, delta=delta, adjacency=Adjacency.of(order.adjacency), dataset=schema.dataset
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
