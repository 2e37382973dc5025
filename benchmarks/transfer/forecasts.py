"""What the transfer estimators say of their gain, before and after a fit: `python -m benchmarks.transfer.forecasts`.

Before: a forecast of the regressor states the expected error for several sizes of the shift, because public data can't
show how large it is. Here the size is measured afterwards, without privacy: what the best linear correction of the
public model saves on private rows. The forecast at that size stands beside the error that the fits had.

After: a fit estimates its own gain from its releases (`estimated_gain_`). It stands beside the gain on test rows.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss

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
from benchmarks.transfer.sets import TASKS, Task, classes_of, loaded, task_named
from dpadapt.errors import DataUnavailable
from dpadapt.transfer.classification import PrivateTransferClassifier
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
    return [Piece(task.name, SEEDS[0 if quick else 1]) for task in wanted(TASKS, quick=quick)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the cells of one task, or the reason why it was skipped."""
    task = task_named(piece.name)
    try:
        return {"rows": list(_cells(task, piece.seeds))}
    except DataUnavailable as missing:
        return {"skipped": f"{task.name}: {missing}"}


def _cells(task: Task, seeds: int) -> Iterator[Row]:
    domains, public = loaded(task)
    regression = task.kind == "regression"
    estimator = PrivateTransferRegressor() if regression else PrivateTransferClassifier(classes=classes_of(task))
    estimator.set_params(epsilon=EPSILON)
    fits: dict[int, list[list[float]]] = {}
    gains: dict[int, list[tuple[float, ...]]] = {}
    n_rows: dict[int, int] = {}
    for seed in range(seeds):
        test, private = split(len(domains.y), seed)
        X_test, y_test = domains.X[test], domains.y[test]
        best = -np.inf
        # All fits have one public model, and the shift is that of all private rows, however many a fit gets: they
        # come first.
        for size in sorted(private):
            rows = private[size]
            model = clone(estimator).set_params(random_state=seed)
            model.fit(domains.X[rows], domains.y[rows], public=public)
            ours, alone = (_error(m, X_test, y_test) for m in (model, model.public_only()))
            if regression and size == 0:
                best = _best_linear(model, domains.X[rows], domains.y[rows], X_test, y_test)
            fits.setdefault(size, []).append([ours, alone, min(best, alone)])
            # A budget that pays for the level alone leaves the gain unmeasured.
            stated = model.estimated_gain_ or (0.0, 0.0, 0.0)
            gains.setdefault(size, []).append((*stated, (alone - ours) / (alone if regression else 1.0)))
            n_rows[size] = len(rows)
    for size, of_seeds in fits.items():
        ours, alone, best = np.mean(of_seeds, axis=0)
        row = {"task": task.name, "kind": task.kind, "size": size, "realised": float(ours / alone)}
        if regression:
            forecast = clone(estimator).forecast(public, n_rows[size])
            shift = float(alone / best - 1.0)
            row |= {"shift": shift, "expected": float(np.interp(shift, forecast.shifts, forecast.error_ratios))}
        value, low, high, true = np.array(gains[size]).T
        # A fit that keeps the public model gains exactly nothing, and says so; it is not counted.
        changed = (value != 0.0) | (high != 0.0)
        row |= {
            "estimated": float(np.mean(value)),
            "gained": float(np.mean(true)),
            "half_width": float(np.mean(high - low) / 2),
            "covered": int(np.sum((low <= true) & (true <= high) & changed)),
            "overstated": int(np.sum((true < low) & changed)),
            "changed": int(np.sum(changed)),
        }
        yield row


def _error(model: Any, X: Any, y: Any) -> float:
    """Return the squared error, or the log-loss."""
    if is_classifier(model):
        return float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    return float(np.mean((model.predict(X) - y) ** 2))


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
    for row in _of_regressors(part):
        numbers = [f"{row['shift']:.0%}", f"{row['expected']:.3f}", f"{row['realised']:.3f}"]
        gap = row["expected"] - row["realised"]
        lines.append({"cells": [row["task"], size_text(row["size"]), *numbers, f"{gap:+.3f}"], "bad": gap < -0.1})
    words = (
        "Shift: what the best linear correction would save, over the error that is left. Forecast and realised are "
        "errors over that of the public model. A negative difference is a forecast that promised too much."
    )
    header = ["set", "rows", "shift", "forecast", "realised", "difference"]
    return {"title": f"Forecast and fits at epsilon {EPSILON:g}", "words": words, "header": header, "rows": lines}


def gains_table(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of gains that fits estimated: one line per task and number of rows."""
    lines = []
    for row in part["rows"]:
        numbers = [f"{row[key]:.3f}" for key in ("estimated", "half_width", "gained")]
        shares = [f"{row[key]} of {row['changed']}" for key in ("covered", "overstated")]
        cells = [row["task"], size_text(row["size"]), *numbers, *shares]
        lines.append({"cells": cells, "bad": row["overstated"] > 0.1 * part["seeds"]})
    words = (
        "Means over fits: what a fit estimates of its gain (share of the public model's squared error; for classifiers "
        "log-loss), half the width of its 90% interval, and the gain on test rows. Then, of the fits that changed the "
        "public model: how many gains lie in the interval, and how many below it."
    )
    header = ["set", "rows", "estimated", "half width", "on test rows", "in the interval", "below"]
    return {"title": f"Gain that fits estimate, epsilon {EPSILON:g}", "words": words, "header": header, "rows": lines}


def _of_regressors(part: Mapping[str, Any]) -> list[Row]:
    return [row for row in part["rows"] if row["kind"] == "regression"]


def facts(part: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know about the run."""
    gaps = np.array([row["expected"] - row["realised"] for row in _of_regressors(part)])
    sentences = [f"{run_text(part)}; {part['seeds']} seeds."]
    if len(gaps):
        sentences.append(
            f"Median size of the difference {np.median(np.abs(gaps)):.3f}; {int(np.sum(gaps < -0.1))} of {len(gaps)} "
            f"forecasts promised over 0.1 too much."
        )
    counts = {key: sum(row[key] for row in part["rows"]) for key in ("covered", "overstated", "changed")}
    if counts["changed"]:
        sentences.append(
            f"Of {counts['changed']} fits that changed the public model, {counts['covered'] / counts['changed']:.0%} "
            f"had a gain within the 90% interval that they stated, {counts['overstated'] / counts['changed']:.0%} one "
            f"below it."
        )
    return [*sentences, *part["skipped"]]


def show(part: dict[str, Any]) -> None:
    """Print the table."""
    print_tables([table(part), gains_table(part)], [], facts(part))


def write_markdown(part: Mapping[str, Any], path: Path) -> None:
    """Write the table between the markers of a page; a page without markers gets them at its end."""
    parts = [" ".join(["Printed by `python -m benchmarks.transfer.forecasts`.", *facts(part)])]
    parts += [*titled(table(part)), *titled(gains_table(part))]
    write_between(path, "\n\n".join(parts) + "\n", START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the table between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
