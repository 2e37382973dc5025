"""Paper 5, source-target clustering: `python -m benchmarks clustering`.

Differentially Private Source-Target Clustering: ours, the paper's algorithms and its baselines on three synthetic
sets, MNIST, Office-Caltech10, Superconductivity, Adult and Reviews, and on pairs that the paper does not have; without
real data in `DPADAPT_DATA`, on the synthetic sets. The paper's figures are judged by `clustering-appendix`, on all of
the paper's sets and no others. The same solver computes every method's centres. Then the bound on
the cost, an ablation of ours, and runs with more targets and sources. Every core runs one process; the solver's speed
and the runs with more targets are measured afterwards, one at a time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clustering import measure as measures
from benchmarks.clustering import scale
from benchmarks.clustering.sets import SETS, named
from benchmarks.clustering.show import show, summarise, write_markdown
from benchmarks.running import command, cores, resumes, watched
from benchmarks.transfer.common import real_data, versions
from dpadapt.errors import DataUnavailable

PARTS = ("cells", "no harm", "theorems", "certificates", "ablation")
# Seeds of the data. No constant was chosen on these draws; `sets.DEVELOPMENT` lists the pairs of which other draws were
# used. The synthetic sets are drawn with all of the seeds.
SEED, FRESH = 11, (12, 13, 14, 15)


@dataclass(frozen=True)
class Size:
    """The size of a run: sets, numbers of centres, and runs by budget, on the main sets and on the others."""

    sets: tuple[str, ...]
    ks: tuple[int, ...]
    runs: dict[str, int]
    other_runs: dict[str, int]
    rival_runs: dict[str, int]
    other_rival_runs: dict[str, int]
    harm_runs: int
    bound_runs: int
    ablation_runs: int
    solver: dict[str, int] = field(default_factory=dict)
    fresh: tuple[int, ...] = ()


_OURS = dict.fromkeys(("epsilon 3", "epsilon 1", "epsilon 0.3", "epsilon 0.1"), 30)
FULL = Size(
    sets=tuple(paper_set.name for paper_set in SETS),
    ks=(10, 40, 70),
    runs={**_OURS, "rho 3": 10},
    other_runs=_OURS,
    rival_runs={"epsilon 3": 5, "rho 3": 5, "epsilon 1": 1, "epsilon 0.1": 1},
    other_rival_runs={"epsilon 3": 1},
    harm_runs=5,
    bound_runs=5,
    ablation_runs=5,
    solver={"n": 20_000, "k": 70, "repeats": 3},
    fresh=FRESH,
)
_MAIN = tuple(paper_set.name for paper_set in SETS if paper_set.main)
QUICK = Size(
    sets=_MAIN,
    ks=(10, 40, 70),
    runs={"epsilon 3": 5, "epsilon 1": 5, "epsilon 0.3": 5, "epsilon 0.1": 5},
    other_runs={},
    rival_runs={"epsilon 3": 1},
    other_rival_runs={},
    harm_runs=1,
    bound_runs=1,
    ablation_runs=0,
    solver={"n": 20_000, "k": 70, "repeats": 1},
)


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: all parts that are measured on one draw of a set."""

    name: str
    seed: int
    parts: tuple[str, ...]
    quick: bool


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    size = QUICK if quick else FULL
    sets = [paper_set for paper_set in SETS if paper_set.name in size.sets and (real_data() or not paper_set.real)]
    every = tuple(part for part in PARTS if part != "ablation" or size.ablation_runs)
    sets.sort(key=lambda paper_set: not paper_set.main)
    todo = [Piece(one.name, SEED, every if one.main else PARTS[:1], quick) for one in sets]
    return todo + [Piece(one.name, seed, PARTS[:1], quick) for one in sets if not one.real for seed in size.fresh]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of each part of a piece, or the reason why it was skipped."""
    start = time.process_time()
    size, paper_set = QUICK if piece.quick else FULL, named(piece.name)
    main = len(piece.parts) > 1
    runs = (size.runs, size.rival_runs) if main else (size.other_runs, size.other_rival_runs)
    measured: dict[str, Callable[[measures.Problem], dict[str, Any]]] = {
        "cells": lambda problem: measures.cells(problem, *runs),
        "no harm": lambda problem: measures.no_harm(problem, size.harm_runs),
        "theorems": measures.theorems,
        "certificates": lambda problem: measures.certificates(problem, size.bound_runs),
        "ablation": lambda problem: measures.ablation(problem, size.ablation_runs),
    }
    try:
        problem = measures.Problem(paper_set, piece.seed, size.ks)
    except DataUnavailable as missing:
        return {"skipped": f"{piece.name}: {missing}"}
    facts = {name: getattr(paper_set, name) for name in ("family", "main", "real", "development")}
    facts |= {"set": paper_set.name, "seed": piece.seed}
    rows = {part: facts | measured[part](problem) for part in piece.parts}
    return {"rows": rows, "seconds": time.process_time() - start}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start = time.perf_counter()
    size, todo = QUICK if quick else FULL, pieces(quick=quick)
    rows_by_part: dict[str, list[tuple[int, Any]]] = {part: [] for part in PARTS}
    skipped: set[str] = set()
    seconds = 0.0
    for piece, result in watched(measure, todo, cores(), name=lambda piece: f"{piece.name}, seed {piece.seed}"):
        if "skipped" in result:
            skipped.add(result["skipped"])
            continue
        seconds += result["seconds"]
        for part, row in result["rows"].items():
            rows_by_part[part].append((todo.index(piece), row))
    # Processes finish in any order; sorted, the tables don't depend on it.
    parts = {part: [row for _, row in sorted(rows, key=lambda pair: pair[0])] for part, rows in rows_by_part.items()}
    return {
        "quick": quick,
        "data": "synthetic and real sets" if real_data() else "synthetic sets; DPADAPT_DATA not set",
        "ks": list(size.ks),
        "seed": SEED,
        "runs": {"ours": [size.runs, size.other_runs], "rivals": [size.rival_runs, size.other_rival_runs]},
        "skipped": sorted(skipped),
        "versions": versions(),
        "processes": cores(),
        "cpu_minutes": seconds / 60,
        **parts,
        "picture": measures.picture(named("synthetic 2"), SEED, 10, "epsilon 3"),
        "solver": measures.solver_speed(**size.solver),
        "scale": [scale.measure(piece) for piece in scale.pieces(quick=True)],
        "minutes": None if resumes() else (time.perf_counter() - start) / 60,
    }


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the figures."""
    from benchmarks.pages import clustering_page

    path.write_text(clustering_page(summarise(results)), encoding="utf-8")


if __name__ == "__main__":
    writers = {
        "report": ("write a page with the figures", write_report),
        "markdown": ("write the tables between this page's markers", write_markdown),
    }
    command(__spec__.name, __doc__, run, show, writers=writers)
