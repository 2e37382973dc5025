"""Prediction intervals and sets: how often they hold, how wide they are, and what their calibration costs the model.

The tasks of no paper (`fresh`), with 1,000 private rows and with all; new rows come from the private population. Widths
are compared with those of the same model calibrated without privacy, on the same rows (conformal prediction). Sizes of
sets are compared in the same way. Coverage is also shown for limits that are taken from public rows, which costs
nothing. The constants of the method were chosen while looking at these tasks.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.sources import FRESH
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import (
    claim,
    error,
    print_tables,
    real_data,
    setting_text,
    split,
    versions,
    write_claims_and_tables,
)
from benchmarks.transfer.fits import estimator, measured
from benchmarks.transfer.sets import TASKS, Task, classes_of, loaded
from dpadapt import CalibrationWarning
from dpadapt.learning.losses import softmax
from dpadapt.transfer.base import classification_base, regression_base
from dpadapt.transfer.intervals import log_losses

Array = NDArray[Any]
COVERAGE = 0.9
EPSILONS = (0.3, 1.0, 3.0)
# Numbers of private rows; 0 stands for all rows that are not test rows.
SIZES = (1_000, 0)
SEEDS = (2, 8)
KINDS = {"regression": "intervals", "classification": "sets"}
START, END = "<!-- bench intervals -->", "<!-- end of bench intervals -->"
_FRESH = {file.part for file in FRESH}


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    task: Task
    seed: int

    @property
    def name(self) -> str:
        """The task and the seed."""
        return f"{self.task.name}, seed {self.seed}"


def measure(piece: Piece) -> list[dict[str, Any]]:
    """Return one row for each number of private rows and epsilon."""
    return list(_rows(piece.task, piece.seed))


def _rows(task: Task, seed: int) -> Iterator[dict[str, Any]]:
    (domains, public), classes = loaded(task), classes_of(task)
    test, private = split(len(domains.y), seed)
    X_test, y_test = domains.X[test], domains.y[test]
    on_public = conformal_limit(_public_scores(task))
    for size in SIZES:
        if size not in private:
            continue
        X, y = domains.X[private[size]], domains.y[private[size]]
        for epsilon in EPSILONS:
            # The noise of one task must not be that of another.
            params = {"epsilon": epsilon, "random_state": 100 * TASKS.index(task) + seed}
            model = estimator(task, intervals=True, **params).fit(X, y, public=public)
            plain = estimator(task, **params).fit(X, y, public=public)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                limit = _limit(model, X_test[:1])
            exact = conformal_limit(_own_scores(model, X, y, classes))
            own, sizes = _own_scores(model, X_test, y_test, classes), _sizes(model, X_test, classes)
            yield {
                "task": task.name,
                "kind": task.kind,
                "seed": seed,
                "size": size,
                "epsilon": epsilon,
                "coverage": float(np.mean(own <= limit)),
                "ratio": sizes(limit) / sizes(exact) if math.isfinite(limit) else None,
                "exact coverage": float(np.mean(own <= exact)),
                "public coverage": float(np.mean(own <= on_public)),
                "error": error(measured(model, X_test, y_test, classes)),
                "plain error": error(measured(plain, X_test, y_test, classes)),
            }


def conformal_limit(scores: Array) -> float:
    """Return the limit of conformal prediction without privacy.

    Examples
    --------
    >>> conformal_limit(np.arange(1.0, 20.0))
    18.0
    """
    place = math.ceil(COVERAGE * (len(scores) + 1) - 1e-9)
    return float(np.sort(scores)[place - 1]) if place <= len(scores) else math.inf


def _limit(model: Any, X: Array) -> float:
    """Return the limit of a fitted model's scores, through what users call."""
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(X, coverage=COVERAGE)[0]
        return float(high - low) / 2
    return float(model.calibration_.limit(COVERAGE))


def _own_scores(model: Any, X: Array, y: Array, classes: Array) -> Array:
    """Return the size of each residual, or the negative logarithm of the probability of the row's class."""
    if not len(classes):
        return np.asarray(np.abs(model.predict(X) - y))
    return np.asarray(log_losses(model.predict_proba(X))[np.arange(len(y)), np.searchsorted(classes, y)])


def _sizes(model: Any, X: Array, classes: Array) -> Any:
    """Return the function that gives the mean size of sets, or half the width of intervals, for a limit of scores."""
    if not len(classes):
        return lambda limit: limit
    losses = log_losses(model.predict_proba(X))
    return lambda limit: float(np.mean(np.sum(losses <= limit, axis=1)))


def _public_scores(task: Task) -> Array:
    """Return the scores of public rows by public models that were not fitted to these rows."""
    domains, public = loaded(task)
    if task.kind == "regression":
        made = regression_base(public, domains.X_public, np.asarray(domains.y_public, dtype=np.float64), None)
        return np.asarray(np.abs(made.labels - made.base.weights @ made.scores))
    classes = classes_of(task)
    codes = np.searchsorted(classes, domains.y_public)
    made = classification_base(public, domains.X_public, codes, classes, None)
    p = softmax(np.tensordot(made.base.weights, made.scores, 1))
    return np.asarray(log_losses(p)[np.arange(len(codes)), made.labels])


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    tasks = [task for task in TASKS if real_data() and task.name in _FRESH and (task.quick or not quick)]
    tasks.sort(key=lambda task: not task.long)
    todo = [Piece(task, seed) for task in tasks for seed in range(SEEDS[0 if quick else 1])]
    rows: list[dict[str, Any]] = []
    for _, part in watched(measure, todo, cores(), name=lambda piece: piece.name):
        rows += part
    if not rows:
        raise SystemExit("DPADAPT_DATA must be set: this benchmark has real sets only.")
    order = [task.name for task in TASKS]
    rows.sort(key=lambda row: (order.index(row["task"]), row["size"], row["epsilon"], row["seed"]))
    return {"quick": quick, "versions": versions(), "rows": rows}


def cells(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over seeds, one cell for each task, number of rows and epsilon.

    Examples
    --------
    >>> row = {"task": "a", "kind": "regression", "size": 0, "epsilon": 1.0, "coverage": 0.9, "ratio": 1.1}
    >>> row |= {"exact coverage": 0.9, "public coverage": 0.8, "error": 1.01, "plain error": 1.0}
    >>> cell = cells([row, row | {"ratio": None, "coverage": 1.0}])[0]
    >>> round(cell["coverage"], 3), cell["ratio"], cell["infinite"], round(cell["lost"], 3)
    (0.95, 1.1, 1, 0.01)
    """
    merged = []
    for key in dict.fromkeys((row["task"], row["kind"], row["size"], row["epsilon"]) for row in rows):
        same = [row for row in rows if (row["task"], row["kind"], row["size"], row["epsilon"]) == key]
        means = {name: float(np.mean([row[name] for row in same])) for name in same[0] if name.endswith("coverage")}
        finite = [row["ratio"] for row in same if row["ratio"] is not None]
        lost = np.mean([row["error"] for row in same]) / np.mean([row["plain error"] for row in same]) - 1.0
        merged.append(
            dict(zip(("task", "kind", "size", "epsilon"), key, strict=True))
            | means
            | {"ratio": float(np.mean(finite)) if finite else math.nan, "infinite": len(same) - len(finite)}
            | {"lost": float(lost), "fits": len(same)}
        )
    return merged


def _merged(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over tasks, and the task whose mean coverage is lowest."""
    worst = min(found, key=lambda cell: float(cell["coverage"]))
    public = min(found, key=lambda cell: float(cell["public coverage"]))
    names = ("coverage", "exact coverage", "public coverage", "lost")
    means = {name: float(np.mean([cell[name] for cell in found])) for name in names}
    ratios = [cell["ratio"] for cell in found if math.isfinite(cell["ratio"])]
    return means | {
        "ratio": float(np.mean(ratios)) if ratios else math.nan,
        "worst": worst,
        "worst public": public,
        "infinite": sum(cell["infinite"] for cell in found),
        "fits": sum(cell["fits"] for cell in found),
    }


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a table for intervals and one for sets, and one with every task at epsilon 1."""
    every, shown = cells(results["rows"]), []
    seeds = 1 + max(row["seed"] for row in results["rows"])
    for kind, what in KINDS.items():
        rows = []
        for size in SIZES:
            for epsilon in EPSILONS:
                chosen = [c for c in every if (c["kind"], c["size"], c["epsilon"]) == (kind, size, epsilon)]
                if not chosen:
                    continue
                mean = _merged(chosen)
                texts = [
                    _rows_text(size),
                    f"{epsilon:g}",
                    f"{mean['coverage']:.3f}",
                    f"{mean['worst']['coverage']:.3f} ({mean['worst']['task']})",
                    f"{mean['ratio']:.3f}",
                    f"{mean['infinite']} of {mean['fits']}",
                    f"{mean['exact coverage']:.3f}",
                    f"{mean['public coverage']:.3f} ({mean['worst public']['public coverage']:.3f})",
                    f"{100 * mean['lost']:.2f}%",
                ]
                rows.append({"cells": texts, "bad": False})
        width = "width" if kind == "regression" else "size"
        header = ["rows", "epsilon", "coverage", "worst task", f"{width} / not private", "infinite"]
        header += ["coverage, not private", "coverage of public limits (worst task)", "error added"]
        words = (
            f"Means over {seeds} seeds and over the tasks; 90% was asked for. The worst task is that of the lowest "
            f"mean coverage. Means of {width}s are over fits with a finite limit."
        )
        shown.append({"title": f"Prediction {what}", "words": words, "header": header, "rows": rows})
    rows = [
        {
            "cells": [
                cell["task"],
                KINDS[cell["kind"]],
                _rows_text(cell["size"]),
                *(f"{cell[name]:.3f}" for name in ("coverage", "ratio", "exact coverage", "public coverage")),
                f"{100 * cell['lost']:.2f}%",
            ],
            "bad": False,
        }
        for cell in every
        if cell["epsilon"] == 1.0
    ]
    header = ["task", "what", "rows", "coverage", "width or size / not private", "coverage, not private"]
    header += ["coverage of public limits", "error added"]
    return [*shown, {"title": "Every task at epsilon 1", "words": "", "header": header, "rows": rows}]


def _rows_text(size: int) -> str:
    return f"{size:,}" if size else "all"


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return each target with its figure."""
    every, made = cells(results["rows"]), []
    for kind, what in KINDS.items():
        own = [cell for cell in every if cell["kind"] == kind]
        if not own:
            continue
        keys = [(size, epsilon) for size in SIZES for epsilon in EPSILONS if epsilon >= 1]
        means = {key: _merged([c for c in own if (c["size"], c["epsilon"]) == key]) for key in keys}
        low, high = (pick(mean["coverage"] for mean in means.values()) for pick in (min, max))
        wanted = f"{what}: mean coverage in [0.895, 0.935] at epsilon 1 and 3"
        made.append(claim(wanted, f"{low:.3f} to {high:.3f}", low >= 0.895 and high <= 0.935))
        worst = min((mean["worst"] for mean in means.values()), key=lambda cell: float(cell["coverage"]))
        text = (
            f"{worst['coverage']:.3f} ({worst['task']}, {_rows_text(worst['size'])} rows, epsilon {worst['epsilon']:g})"
        )
        made.append(claim(f"{what}: worst task's mean coverage at least 0.885", text, worst["coverage"] >= 0.885))
        for size, most in ((0, 1.05), (1_000, 1.12)):
            mean = means[size, 1.0]
            text = f"{mean['ratio']:.3f}; infinite {mean['infinite']} of {mean['fits']}"
            holds = mean["ratio"] <= most and not mean["infinite"]
            measure_of = "width" if kind == "regression" else "size"
            made.append(
                claim(f"{what}: {measure_of} at most {most} of the non-private one, epsilon 1, {_rows_text(size)} rows",
                      text, holds)
            )  # fmt: skip
        lost = max(mean["lost"] for mean in means.values())
        text = f"{100 * lost:.2f}%"
        made.append(claim(f"{what}: error added by the calibration's share at most 1% on average", text, lost <= 0.01))
    return made


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    command_text = "python -m benchmarks intervals"
    write_claims_and_tables(path, (START, END), command_text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
