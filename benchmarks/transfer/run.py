"""Both transfer estimators: `python -m benchmarks transfer`.

Harm against the public model, gains, monotonicity, models without a gate, what a user already has, and speed, on the
real sets in `DPADAPT_DATA` if that is set, else on bundled and synthetic ones. Splits and noise are seeded; nothing is
tuned per set or cell. Every core runs one process; speed is measured afterwards, by one.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import running as in_pieces
from benchmarks.running import command
from benchmarks.transfer import alternatives, alternatives_fits, classification, regression, tables
from benchmarks.transfer.common import EPSILONS, ROWS, Row, claim, over_seeds, real_data, versions
from benchmarks.transfer.rivals import bad_public_claims, classification_rivals, regression_rivals
from dpadapt.data import Public
from dpadapt.errors import DataUnavailable
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

KINDS = {"regression": regression, "classification": classification}
# Seeds in a quick run and in a full one.
SEEDS = {"regression": (3, 10), "classification": (2, 10)}


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: one split of one set, or, without a name, the claims of classification."""

    kind: str
    name: str | None
    seed: int
    quick: bool


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first; splits of a set are adjacent, so that a process loads it once."""
    todo = [Piece("classification", None, 0, quick)] if real_data() else []
    for kind, module in KINDS.items():
        for task in module.TASKS:
            if (real_data() or task.bundled) and (task.quick or not quick):
                seeds = SEEDS[kind][0 if quick else 1]
                todo += [Piece(kind, task.name, seed, quick) for seed in range(seeds)]
    return todo


def measure(piece: Piece) -> dict[str, Any]:
    """Return the cells and contenders or the claims of one piece, or the reason why it was skipped."""
    try:
        if piece.name is None:
            return {"claims": list(classification.gain_claims(quick=piece.quick))}
        if piece.kind == "regression":
            task = _named(regression.TASKS, piece.name)
            cells = regression.grid(task, 1, first=piece.seed)
            return {"grid": cells, "rivals": regression_rivals(task, piece.seed)}
        task = _named(classification.TASKS, piece.name)
        cells = classification.grid(task, 1, first=piece.seed)
        return {"grid": cells, "rivals": classification_rivals(task, piece.seed)}
    except DataUnavailable as missing:
        return {"skipped": f"{piece.name or 'gains'}: {missing}"}


def measured(todo: list[Piece], processes: int) -> Iterator[tuple[Piece, dict[str, Any]]]:
    """Yield each piece with its results, as processes finish."""
    return in_pieces.measured(measure, todo, processes)


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start = time.perf_counter()
    processes = in_pieces.cores()
    rows_by_kind: dict[str, dict[str, list[Row]]] = {kind: {"grid": [], "rivals": []} for kind in KINDS}
    claims: list[dict[str, str]] = []
    skipped: set[str] = set()
    for piece, results in in_pieces.watched(measure, pieces(quick=quick), processes, name=_spoken):
        claims += results.get("claims", [])
        skipped |= {results["skipped"]} if "skipped" in results else set()
        for part in ("grid", "rivals"):
            # Processes finish in any order; rows are sorted below, so that tables don't depend on it.
            rows_by_kind[piece.kind][part] += [row | {"seed": piece.seed} for row in results.get(part, [])]
    parts: dict[str, dict[str, Any]] = {}
    for kind, lists in rows_by_kind.items():
        order = {task.name: place for place, task in enumerate(KINDS[kind].TASKS)}
        parts[kind] = {"setting": _setting(kind), "seeds": SEEDS[kind][0 if quick else 1]}
        for name, rows in lists.items():
            rows.sort(key=lambda row: (order[row["task"]], row["n"], row["epsilon"], row["seed"]))
            parts[kind][name] = over_seeds(rows)
    gains = [
        gain for task, rows in _by_task(parts["regression"]["grid"]) for gain in regression.gain_claims(task, rows)
    ]
    gains += [*claims, *regression.same_population_claims(quick=quick)]
    return {
        "quick": quick,
        "data": "real, bundled and synthetic sets"
        if real_data()
        else "bundled and synthetic sets; DPADAPT_DATA not set",
        "skipped": sorted(skipped),
        "versions": versions(),
        "processes": processes,
        "cells": {"rows": ROWS, "epsilons": EPSILONS},
        **parts,
        "gains": gains,
        "alternatives": alternatives_fits.run(quick=quick),
        "left": [left for kind in KINDS for left in bad_public_claims(parts[kind]["rivals"])],
        "speed": [
            *regression.speed_claims(),
            classification.speed_claim(quick=quick),
            *repeated_claims(),
        ],
        "minutes": (time.perf_counter() - start) / 60,
    }


def repeated_claims() -> Iterator[dict[str, str]]:
    """Yield the CPU time of a second fit on the same public data, relative to the first."""
    random = np.random.default_rng(0)
    X, X_public = random.standard_normal((1000, 134)), random.standard_normal((4000, 134))
    coef = random.standard_normal(134)
    y, y_public = (part @ coef + random.standard_normal(len(part)) for part in (X, X_public))
    learners: list[tuple[Any, Any, Any]] = [
        (PrivateTransferRegressor, y, y_public),
        (PrivateTransferClassifier, y > 0, y_public > 0),
    ]
    for learner, labels, public_labels in learners:
        ratios = []
        for _ in range(4):
            public, marks = Public(X_public, public_labels), [time.process_time()]
            for _ in range(2):
                learner(random_state=0).fit(X, labels, public=public)
                marks.append(time.process_time())
            ratios.append((marks[2] - marks[1]) / (marks[1] - marks[0]))
        ratio = float(np.median(ratios[1:]))
        what = f"{learner.__name__}: public data is prepared once, a repeated fit takes 0.9 x the first"
        yield claim(what, f"{ratio:.2f} x", ratio <= 0.9)


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the heat maps."""
    from benchmarks.pages import transfer_page

    path.write_text(transfer_page(tables.summarise(results)), encoding="utf-8")


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write both groups of tables, each between its own markers."""
    tables.write_markdown(results, path)
    alternatives.write_markdown(results["alternatives"], path)


def _spoken(piece: Piece) -> str:
    return piece.name or "gains"


def _setting(kind: str) -> str:
    if kind == "regression":
        return f"{regression.ADJACENCY}, delta {regression.DELTA:g}"
    return f"zero-out, delta {classification.DELTA:g}"


def _named(tasks: Any, name: str) -> Any:
    return next(task for task in tasks if task.name == name)


def _by_task(rows: list[Row]) -> Iterator[tuple[Any, list[Row]]]:
    for name in dict.fromkeys(row["task"] for row in rows):
        yield _named(regression.TASKS, name), [row for row in rows if row["task"] == name]


if __name__ == "__main__":
    writers = {
        "report": ("write a page with heat maps and curves", write_report),
        "markdown": ("write the tables between this page's markers", write_markdown),
    }
    command(__spec__.name, __doc__, run, tables.show, writers=writers)
