"""The public side of a job, which `fit`, `forecast` and `rehearse` share: the method, the table, the estimator."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.data import Public
from dpadapt.methods import Method, Task, find
from dpadapt.tables import Schema, Table, check_columns, encode_features, encode_labels, read_table


@dataclass(frozen=True)
class PublicRows:
    """The public table, as read and encoded."""

    table: Table
    X: NDArray[np.float64]
    y: NDArray[Any] | None

    @property
    def declared(self) -> Public:
        """The rows as estimators take them."""
        return Public(self.X, self.y)

    @property
    def words(self) -> str:
        """How many rows, and whether they have labels."""
        return f"{len(self.X):,} rows {'without labels' if self.y is None else 'with labels'}"


def chosen_method(name: str | None, task: Task) -> Method:
    """Return the method that --method names, or the task's default."""
    try:
        return find(name, task)
    except ValueError as error:
        raise ValueError(f"--method: {error}") from None


def check_delta(delta: float, option: str) -> None:
    """Refuse a delta that is none, and 0."""
    # Here, not in the fit: by then a new ledger would have a cap that no fit could ever be charged to.
    if _validate.delta(delta, option) == 0:
        raise ValueError(f"{option} must be positive: the methods draw Gaussian noise, got 0. A common choice is 1e-6.")


def read_rows(path: Path, option: str, *, private: bool, least: int = 2) -> Table:
    """Read a table of at least two rows, or of as many as are asked for."""
    table = read_table(path, origin=f"{option} {path}", private=private)
    if len(table.frame) < 2:
        raise ValueError(f"{table.origin}: at least two rows are needed to fit on.")
    if len(table.frame) < least:
        raise ValueError(
            f"{table.origin}: at least {least} rows are needed; the noise that protects one of so few would drown all "
            f"of them. Nothing was spent."
        )
    return table


def encode_public(path: Path, schema: Schema, *, label: str, task: Task) -> PublicRows:
    """Read and encode the public table, with its labels if there are any."""
    table = read_rows(path, "--public", private=False)
    check_columns(table, schema, label=label, optional=label)
    X = encode_features(table, schema, label=label)
    if label not in table.frame.columns:
        return PublicRows(table, X, None)
    return PublicRows(table, X, encode_labels(table, schema, label=label, task=task))


def unfitted(method: Method, schema: Schema, *, label: str, **wanted: Any) -> Any:
    """Return the estimator, given what the schema says about the label and nothing from the rows."""
    if method.task == "regression":
        wanted["target_bounds"] = schema.bounds(label)
    else:
        wanted["classes"] = list(schema.classes(label))
    known = method.estimator().get_params(deep=False)
    return method.estimator(**{name: value for name, value in wanted.items() if name in known})
