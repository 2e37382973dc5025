"""Inputs of `fit`, `forecast` and `rehearse`: the method, the unfitted model, and encoded tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpadapt.cli.screen import progress_bar
from dpadapt.inputs.sources import memory_in_bytes
from dpadapt.inputs.spill import DEFAULT_MEMORY
from dpadapt.methods import Method
from dpadapt.tables import EncodedRows, Schema, Table, TableModel, read_table, sampled_table, table_chunks


def table_model(
    method: Method,
    schema: Schema,
    *,
    label: str | None,
    person: str | None = None,
    weight: str | None = None,
    encoding: str | None = None,
    **wanted: Any,
) -> TableModel:
    """Return the unfitted model of tables, or refuse a label that the schema does not describe; no row is read.

    Of `wanted`, only the parameters that the estimator has are set.
    """
    estimator = method.estimator()
    known = estimator.get_params(deep=False)
    estimator.set_params(**{name: value for name, value in wanted.items() if name in known})
    if weight is not None:
        if weight == label:
            raise ValueError(f"--weight {weight}: this is the column to predict. Name the column with the weights.")
        schema = schema.ignoring(weight)
    if person is not None:
        if person == label:
            raise ValueError(f"--person {person}: this is the column to predict. Name the column with the ids.")
        schema = schema.ignoring(person)
    model = TableModel(estimator, schema, label=label, person=person, weight=weight, encoding=encoding)
    model.configured()
    return model


def read_rows(
    path: Path, option: str, *, private: bool, least: int = 2, hidden: bool = False, encoding: str | None = None
) -> Table:
    """Read a table of at least `least` rows; if their number is `hidden`, no message tells none from one."""
    table = read_table(path, origin=f"{option} {path}", private=private, empty=hidden, encoding=encoding)
    _require_rows(len(table.frame), table.origin, least)
    return table


def _require_rows(n_rows: int, origin: str, least: int) -> None:
    if n_rows < min(least, 2):
        raise ValueError(f"{origin}: at least two rows are needed to fit on.")
    if n_rows < least:
        raise ValueError(
            f"{origin}: at least {least} rows are needed. With fewer, the noise that protects one row would hide all "
            f"of them. Nothing was spent."
        )


def read_private(
    model: TableModel,
    path: Path,
    option: str = "--private",
    *,
    least: int = 2,
    hidden: bool = False,
    memory: str | None = None,
) -> EncodedRows:
    """Read and encode private rows of the curator or of people, in chunks if the estimator can do with that."""
    if not model.reads_chunks or option != "--private":
        if memory is not None or path.is_dir():
            raise ValueError(
                f"{option} {path}: rows can't be read in chunks for {type(model.estimator).__name__}, for persons or "
                f"for weights. Give one file, and leave --memory out."
            )
        table = read_rows(path, option, private=True, least=least, hidden=hidden, encoding=model.encoding)
        return model.encode_private(table, empty=hidden)
    limit = memory_in_bytes(DEFAULT_MEMORY if memory is None else memory, "--memory")
    chunks = table_chunks(path, origin=f"{option} {path}", private=True, empty=hidden, encoding=model.encoding)
    with progress_bar("reading", None if hidden else chunks.n_rows) as done:
        rows = model.encode_chunks(chunks, memory=limit, done=lambda n: done("reading", n))
    _require_rows(rows.n_rows, chunks.header.origin, least)
    return rows


def public_table(path: Path, origin: str, encoding: str | None) -> Table:
    """Read a public file or folder; a large one is represented by a random sample, as in a fit."""
    return sampled_table(table_chunks(path, origin=origin, private=False, encoding=encoding))[0]


def read_public(model: TableModel, path: Path, *, tasks: str | None = None) -> EncodedRows:
    """Read and encode the public table, with its labels if there are any, and the column that names its tasks."""
    chunks = table_chunks(path, origin=f"--public {path}", private=False, encoding=model.encoding)
    table, n_rows = sampled_table(chunks)
    _require_rows(n_rows, table.origin, 2 if model.label is not None else 1)
    if tasks is not None:
        _check_tasks(table, model, tasks)
    rows = replace(model.encode_public(table), sampled=n_rows if n_rows > len(table.frame) else 0)
    if tasks is None:
        return rows
    return replace(rows, tasks=np.asarray(rows.table.frame[tasks].astype(str)))


def predicted(task: str) -> Literal["regression", "classification"]:
    """Return the kind of label of a task that predicts one: a number or a class."""
    return "regression" if task == "regression" else "classification"


def _check_tasks(table: Table, model: TableModel, column: str) -> None:
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
