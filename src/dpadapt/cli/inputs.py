"""Inputs of `fit`, `forecast` and `rehearse`: the method, encoded tables, and the unfitted estimator."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.methods import Method, Task, find
from dpadapt.tables import (
    Category,
    Schema,
    Table,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    read_table,
)


@dataclass(frozen=True)
class PublicRows:
    """The public table, as read and encoded."""

    table: Table
    X: NDArray[np.float64]
    y: NDArray[Any] | None
    tasks: NDArray[Any] | None = None

    @property
    def declared(self) -> Public:
        """The rows, declared public for estimators."""
        return Public(self.X, self.y, tasks=self.tasks)

    @property
    def words(self) -> str:
        """Number of rows, and whether they have labels, in words."""
        return f"{len(self.X):,} rows {'without labels' if self.y is None else 'with labels'}"


def chosen_method(name: str | None, task: Task) -> Method:
    """Return the method that --method names, or the task's default."""
    try:
        return find(name, task)
    except ValueError as error:
        raise ValueError(f"--method: {error}") from None


def check_delta(delta: float, option: str, method: Method) -> None:
    """Require 0 < delta < 1, or 0 <= delta < 1 for clustering, which has pure forms."""
    # Checked here, not in `fit`: by then a new ledger would exist, with a cap that no fit could be charged to.
    if checks.delta(delta, option) == 0 and method.task != "clustering":
        raise ValueError(f"{option} must be positive: the methods draw Gaussian noise, got 0. A common choice is 1e-6.")


def read_rows(path: Path, option: str, *, private: bool, least: int = 2, hidden: bool = False) -> Table:
    """Read a table of at least `least` rows; if their number is `hidden`, no message tells none from one."""
    table = read_table(path, origin=f"{option} {path}", private=private, empty=hidden)
    if len(table.frame) < min(least, 2):
        raise ValueError(f"{table.origin}: at least two rows are needed to fit on.")
    if len(table.frame) < least:
        raise ValueError(
            f"{table.origin}: at least {least} rows are needed. With fewer, the noise that protects one row would hide "
            f"all of them. Nothing was spent."
        )
    return table


def encode_rows(
    path: Path, option: str, schema: Schema, *, label: str | None, task: Task, least: int = 2, hidden: bool = False
) -> tuple[NDArray[Any], ...]:
    """Read private rows of the curator or of people and return them encoded: features, and labels if there are any."""
    table = read_rows(path, option, private=True, least=least, hidden=hidden)
    check_columns(table, schema, label=label)
    X = encode_features(table, schema, label=label)
    return (X,) if label is None else (X, encode_labels(table, schema, label=label, task=predicted(task)))


def encode_public(path: Path, schema: Schema, *, label: str | None, task: Task, tasks: str | None = None) -> PublicRows:
    """Read and encode the public table, with its labels if there are any, and the column that names its tasks."""
    table = read_rows(path, "--public", private=False, least=2 if label is not None else 1)
    names = None
    if tasks is not None:
        names = _task_names(table, schema, label, tasks)
        if tasks not in [column.name for column in schema.columns]:
            table = replace(table, frame=table.frame.drop(columns=tasks))
    check_columns(table, schema, label=label, optional=label)
    X = encode_features(table, schema, label=label)
    if label is None or label not in table.frame.columns:
        return PublicRows(table, X, None, names)
    return PublicRows(table, X, encode_labels(table, schema, label=label, task=predicted(task)), names)


def predicted(task: Task) -> Literal["regression", "classification"]:
    """Return the kind of label of a task that predicts one: a number or a class."""
    return "regression" if task == "regression" else "classification"


def _task_names(table: Table, schema: Schema, label: str | None, column: str) -> NDArray[Any]:
    """Return the column that says which task each public row belongs to."""
    if column not in table.frame.columns:
        raise ValueError(f"--tasks {column}: {table.origin} has no such column.")
    if column == label or column in [part.name for part in schema.features(label)]:
        raise ValueError(
            f"--tasks {column}: this is a column to learn from or to predict. Tasks need a column of their own; set "
            f'type = "ignore" for it in the schema, or leave it out there.'
        )
    names = table.frame[column]
    if names.isna().any() or (names.astype(str).str.strip() == "").any():
        raise ValueError(f"--tasks {column}: some public rows have no task. Fill it in, or remove those rows.")
    return np.asarray(names.astype(str))


def category_columns(schema: Schema, label: str | None) -> list[list[int]]:
    """Return, for each category, the columns of the encoded rows that are its indicators."""
    groups, start = [], 0
    for column in schema.features(label):
        width = len(feature_names(Schema(schema.dataset, (column,)), None))
        if isinstance(column, Category) and width > 1:
            groups.append(list(range(start, start + width)))
        start += width
    return groups


def unfitted(method: Method, schema: Schema, *, label: str | None, **wanted: Any) -> Any:
    """Return the unfitted estimator, with what the schema says about the label; no row is read.

    Of `wanted`, only the parameters that the estimator has are set.
    """
    if label is not None and method.task == "regression":
        wanted["target_bounds"] = schema.bounds(label)
    elif label is not None:
        wanted["classes"] = list(schema.classes(label))
        wanted["groups"] = category_columns(schema, label)
    model = method.estimator()
    known = model.get_params(deep=False)
    return model.set_params(**{name: value for name, value in wanted.items() if name in known})
