"""Forecast against realised gain of the transfer regressor: `python -m benchmarks.transfer.forecasts`.

A forecast states the expected error for several sizes of the shift, because public data can't show how large it is.
Here the size is measured afterwards, without privacy: what the best linear correction of the public model saves on
private rows. The forecast at that size stands beside the error that the fits had.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import write_between
from benchmarks.running import command
from benchmarks.transfer.common import (
    SIZES,
    Row,
    gathered,
    print_tables,
    run_text,
    size_text,
    split,
    titled,
    versions,
    wanted,
)
from benchmarks.transfer.sets import TASKS, Task, loaded, task_named
from dpadapt.errors import DataUnavailable
from dpadapt.transfer.regression import PrivateTransferRegressor

START, END = "<!-- bench transfer forecasts -->", "<!-- end of bench transfer forecasts -->"
EPSILON = 1.0
SEEDS = (2, 8)


@dataclass(frozen=True)
class Piece:
    """One task."""

    name: str
    seeds: int


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work."""
    numeric = [task for task in TASKS if task.kind == "regression"]
    return [Piece(task.name, SEEDS[0 if quick else 1]) for task in wanted(numeric, quick=quick)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the cells of one task, or the reason why it was skipped."""
    task = task_named(piece.name)
    try:
        return {"rows": list(_cells(task, piece.seeds))}
    except DataUnavailable as missing:
        return {"skipped": f"{task.name}: {missing}"}


def _cells(task: Task, seeds: int) -> Iterator[Row]:
    domains, public = loaded(task)
    fits: dict[int, list[list[float]]] = {}
    n_rows: dict[int, int] = {}
    for seed in range(seeds):
        test, private = split(len(domains.y), seed)
        X_test, y_test = domains.X[test], domains.y[test]
        models: dict[int, Any] = {
            size: PrivateTransferRegressor(epsilon=EPSILON, random_state=seed).fit(
                domains.X[rows], domains.y[rows], public=public
            )
            for size, rows in private.items()
        }
        # All fits have one public model, and the shift is that of all private rows, however many a fit gets.
        alone = float(np.mean((models[0].public_only().predict(X_test) - y_test) ** 2))
        best = _best_linear(models[0], domains.X[private[0]], domains.y[private[0]], X_test, y_test)
        for size, model in models.items():
            ours = float(np.mean((model.predict(X_test) - y_test) ** 2))
            fits.setdefault(size, []).append([ours, alone, min(best, alone)])
            n_rows[size] = len(private[size])
    for size, of_seeds in fits.items():
        ours, alone, best = np.mean(of_seeds, axis=0)
        forecast = PrivateTransferRegressor(epsilon=EPSILON).forecast(public, n_rows[size])
        shift = float(alone / best - 1.0)
        expected = float(np.interp(shift, forecast.shifts, forecast.error_ratios))
        yield {"task": task.name, "size": size, "shift": shift, "expected": expected, "realised": float(ours / alone)}


def _best_linear(model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    """Return the error of the best linear correction of the public model, without privacy."""
    from sklearn.linear_model import RidgeCV

    base, alone = model.public_base_, model.public_only()

    def columns(rows: Any) -> Any:
        return np.column_stack([base.columns.standardise(rows), base.scores(rows).T])

    ridge = RidgeCV(np.logspace(-2, 5, 15)).fit(columns(X), y - alone.predict(X))
    return float(np.mean((alone.predict(X_test) + ridge.predict(columns(X_test)) - y_test) ** 2))


def run(*, quick: bool) -> dict[str, Any]:
    """Return the comparison as plain data."""
    start = time.perf_counter()
    rows, skipped = gathered(measure, pieces(quick=quick))
    names = [task.name for task in TASKS]
    rows.sort(key=lambda row: (names.index(row["task"]), SIZES.index(row["size"])))
    minutes = (time.perf_counter() - start) / 60
    seeds = SEEDS[0 if quick else 1]
    return {
        "quick": quick,
        "minutes": minutes,
        "seeds": seeds,
        "versions": versions(),
        "rows": rows,
        "skipped": skipped,
    }


def table(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table: one line per task and number of rows."""
    lines = []
    for row in part["rows"]:
        numbers = [f"{row['shift']:.0%}", f"{row['expected']:.3f}", f"{row['realised']:.3f}"]
        gap = row["expected"] - row["realised"]
        lines.append({"cells": [row["task"], size_text(row["size"]), *numbers, f"{gap:+.3f}"], "bad": gap < -0.1})
    words = (
        "Shift: what the best linear correction would save, over the error that is left. Forecast and realised are "
        "errors over that of the public model. A negative difference is a forecast that promised too much."
    )
    header = ["set", "rows", "shift", "forecast", "realised", "difference"]
    return {"title": f"Forecast and fits at epsilon {EPSILON:g}", "words": words, "header": header, "rows": lines}


def facts(part: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know about the run."""
    gaps = np.array([row["expected"] - row["realised"] for row in part["rows"]])
    sentences = [f"{run_text(part)}; {part['seeds']} seeds."]
    if len(gaps):
        sentences.append(
            f"Median size of the difference {np.median(np.abs(gaps)):.3f}; {int(np.sum(gaps < -0.1))} of {len(gaps)} "
            f"forecasts promised over 0.1 too much."
        )
    return [*sentences, *part["skipped"]]


def show(part: dict[str, Any]) -> None:
    """Print the table."""
    print_tables([table(part)], [], facts(part))


def write_markdown(part: Mapping[str, Any], path: Path) -> None:
    """Write the table between the markers of a page; a page without markers gets them at its end."""
    parts = [" ".join(["Printed by `python -m benchmarks.transfer.forecasts`.", *facts(part)]), *titled(table(part))]
    write_between(path, "\n\n".join(parts) + "\n", START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the table between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
