"""What each part of the transfer engine brings: `python -m benchmarks.transfer.ablation`.

Every part is left out once, on the tasks and seeds of the grid. The tables show the geometric mean, over
the tasks, of the error over that of the whole engine: above 1, the part helps. Harm is the worst mean over that of the
engine's own public model, on these tasks and on the sets that are hard on purpose: some parts are there for the latter.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.pages import write_between
from benchmarks.running import command
from benchmarks.transfer.common import (
    SIZES,
    Row,
    error,
    gathered,
    print_tables,
    run_text,
    size_text,
    split,
    titled,
    versions,
    wanted,
)
from benchmarks.transfer.fits import estimator, measured
from benchmarks.transfer.sets import KINDS, ROBUSTNESS_TASKS, TASKS, Task, classes_of, loaded, task_named
from dpadapt.data import Public
from dpadapt.errors import DataUnavailable
from dpadapt.transfer import base, regression_fit, regression_plan
from dpadapt.transfer.gate import Kept

START, END = "<!-- bench transfer ablation -->", "<!-- end of bench transfer ablation -->"
EPSILON = 1.0
SEEDS = (2, 4)
_NEVER = (1e30, 2e30)
WHOLE = "the whole engine"


@dataclass(frozen=True)
class Variant:
    """The engine with some of its names replaced, and parameters of the estimator."""

    name: str
    kinds: tuple[str, ...]
    replaced: tuple[tuple[Any, str, Any], ...] = ()
    params: tuple[tuple[str, Any], ...] = ()
    # Whether the public models change, so that they are prepared anew.
    prepares: bool = False


def _nothing_kept(change: Any, variance: Any, *, error: float) -> Kept:
    return Kept(np.zeros(len(change)), 0.0, float(np.sum(change**2)), 0.0)


def _without_the_second(
    scores: Any, loss: Callable[[Any], float], least: float, *, blend: Callable[..., Any] = base.blend_weights
) -> Any:
    """Return the weights of a blend in which the second of three models has none."""
    first, last = blend(scores[[0, 2]], loss, least)
    return np.array([first, 0.0, last])


BOTH, REGRESSION = tuple(KINDS), ("regression",)
VARIANTS = (
    Variant(WHOLE, BOTH),
    Variant("linear public model alone", BOTH, params=(("public_model", "linear"),)),
    Variant("no least weight (hedge)", REGRESSION, ((base, "_LEAST_WEIGHT", 0.0),), prepares=True),
    Variant("no ridge on shortened rows", REGRESSION, ((base, "blend_weights", _without_the_second),), prepares=True),
    Variant("no scout, so no slope and mix", REGRESSION, ((regression_plan, "_SCOUT_SIGNALS", _NEVER),)),
    Variant("no slope and mix", REGRESSION, ((regression_plan, "_MIX_SIGNALS", _NEVER),)),
    Variant("no plane (level, slope, mix)", REGRESSION, ((regression_fit, "keep_few", _nothing_kept),)),
    Variant("no directions", REGRESSION, ((regression_plan, "_DIRECTION_SIGNALS", _NEVER),)),
    Variant("no check of the gain", REGRESSION, ((regression_plan, "_GAIN_SHARES", (0.0, 0.0)),)),
)


@contextmanager
def _replaced(variant: Variant) -> Iterator[None]:
    with _all([mock.patch.object(*part) for part in variant.replaced]):
        yield


@contextmanager
def _all(patches: Sequence[Any]) -> Iterator[None]:
    if not patches:
        yield
        return
    with patches[0], _all(patches[1:]):
        yield


@dataclass(frozen=True)
class Piece:
    """All variants on one task."""

    name: str
    seeds: int


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work."""
    return [Piece(task.name, SEEDS[0 if quick else 1]) for task in wanted((*TASKS, *ROBUSTNESS_TASKS), quick=quick)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the errors of all variants on one task, or the reason why it was skipped."""
    task = task_named(piece.name)
    try:
        return {"rows": list(_rows(task, piece.seeds))}
    except DataUnavailable as missing:
        return {"skipped": f"{task.name}: {missing}"}


def _rows(task: Task, seeds: int) -> Iterator[Row]:
    (domains, shared), classes = loaded(task), classes_of(task)
    for variant in VARIANTS:
        if task.kind not in variant.kinds:
            continue
        public = Public(domains.X_public, domains.y_public) if variant.prepares else shared
        with _replaced(variant):
            for seed in range(seeds):
                test, private = split(len(domains.y), seed)
                for size, rows in private.items():
                    params = {"epsilon": EPSILON, "random_state": seed, **dict(variant.params)}
                    model = estimator(task, **params).fit(domains.X[rows], domains.y[rows], public=public)
                    errors = [
                        error(measured(fitted, domains.X[test], domains.y[test], classes))
                        for fitted in (model, model.public_only())
                    ]
                    cell = {"task": task.name, "kind": task.kind, "size": size, "seed": seed, "variant": variant.name}
                    yield cell | {"error": errors[0], "public": errors[1]}


def run(*, quick: bool) -> dict[str, Any]:
    """Return the comparison as plain data."""
    start = time.perf_counter()
    rows, skipped = gathered(measure, pieces(quick=quick))
    minutes = (time.perf_counter() - start) / 60
    return {"quick": quick, "minutes": minutes, "versions": versions(), "rows": rows, "skipped": skipped}


def tables(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one table per kind."""
    return [_table(part, kind) for kind in KINDS if any(row["kind"] == kind for row in part["rows"])]


def _table(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    means: dict[tuple[str, str, int], tuple[float, float]] = {}
    of_kind = [row for row in part["rows"] if row["kind"] == kind]
    for key in {(row["variant"], row["task"], row["size"]) for row in of_kind}:
        same = [row for row in of_kind if (row["variant"], row["task"], row["size"]) == key]
        means[key] = float(np.mean([row["error"] for row in same])), float(np.mean([row["public"] for row in same]))
    hard = {task.name for task in ROBUSTNESS_TASKS}
    lines = []
    for variant in VARIANTS:
        if kind not in variant.kinds:
            continue
        cells = [variant.name]
        for size in SIZES:
            logs = [
                math.log(means[key][0] / means[WHOLE, key[1], size][0])
                for key in means
                if key[0] == variant.name and key[2] == size and key[1] not in hard
            ]
            cells.append(f"{math.exp(np.mean(logs)):.3f}" if logs else "")
        harms = [
            (mean / max(public, 1e-300), task)
            for (name, task, _), (mean, public) in means.items()
            if name == variant.name
        ]
        for of_hard in (False, True):
            worst = max((harm for harm in harms if (harm[1] in hard) == of_hard), default=None)
            cells.append("" if worst is None else f"{worst[0]:.3f} ({worst[1]})")
        lines.append({"cells": cells, "bad": False})
    tasks = len({row["task"] for row in of_kind} - hard)
    seeds = 1 + max(row["seed"] for row in of_kind)
    words = (
        f"Error over that of the whole engine at epsilon {EPSILON:g}: geometric mean of {tasks} tasks, {seeds} seeds."
    )
    header = [
        "engine",
        *(f"{size_text(size)} rows" for size in SIZES),
        "worst over its public model",
        "the same, hard sets",
    ]
    return {"title": f"{kind.capitalize()}, parts left out", "words": words, "header": header, "rows": lines}


def facts(part: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know about the run."""
    return [f"{run_text(part)}.", *part["skipped"]]


def show(part: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(part), [], facts(part))


def write_markdown(part: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page; a page without markers gets them at its end."""
    parts = [" ".join(["Printed by `python -m benchmarks.transfer.ablation`.", *facts(part)])]
    for table in tables(part):
        parts += titled(table)
    write_between(path, "\n\n".join(parts) + "\n", START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
