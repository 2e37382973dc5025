"""Paper 5, source-target clustering: `python -m benchmarks clustering`.

Differentially Private Source-Target Clustering: the content of its Figures 3 to 10 and 15 to 106, on three synthetic
sets, MNIST, Office-Caltech10, Superconductivity, Adult and Reviews, and on pairs that the paper does not have; without
real data in `DPADAPT_DATA`, on the synthetic sets. The same solver computes every method's centres. Then the bound on
the cost, an ablation of ours, and runs at scale. Every core runs one process; the solver's speed and the runs at scale
are measured afterwards, one at a time.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clustering import measure as measures
from benchmarks.clustering.sets import SETS, named
from benchmarks.clustering.show import show, summarise, write_markdown
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import real_data, versions
from dpadapt.errors import DataUnavailable

PARTS = ("cells", "variants", "no harm", "theorems", "certificates", "ablation")
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
    variant_runs: int
    harm_runs: int
    bound_runs: int
    ablation_runs: int
    solver: dict[str, int] = field(default_factory=dict)
    fresh: tuple[int, ...] = ()


_OURS = dict.fromkeys(("epsilon 3", "epsilon 1", "epsilon 0.3", "epsilon 0.1"), 8)
FULL = Size(
    sets=tuple(paper_set.name for paper_set in SETS),
    ks=(10, 20, 30, 40, 50, 60, 70),
    runs={**_OURS, "rho 3": 5},
    other_runs=_OURS,
    rival_runs={"epsilon 3": 5, "rho 3": 5, "epsilon 1": 2, "epsilon 0.1": 2},
    other_rival_runs={"epsilon 3": 1, "rho 3": 1},
    variant_runs=1,
    harm_runs=5,
    bound_runs=8,
    ablation_runs=4,
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
    variant_runs=0,
    harm_runs=1,
    bound_runs=1,
    ablation_runs=0,
    solver={"n": 20_000, "k": 70, "repeats": 1},
)


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    part: str
    name: str
    seed: int
    quick: bool


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    size = QUICK if quick else FULL
    sets = [paper_set for paper_set in SETS if paper_set.name in size.sets and (real_data() or not paper_set.real)]
    main = [paper_set for paper_set in sets if paper_set.main]
    todo: list[Piece] = []
    todo += [
        Piece("cells", paper_set.name, SEED, quick)
        for paper_set in sorted(sets, key=lambda paper_set: not paper_set.main)
    ]
    todo += [
        Piece("cells", paper_set.name, seed, quick) for paper_set in main if not paper_set.real for seed in size.fresh
    ]
    left_out = {part for part, runs in (("variants", size.variant_runs), ("ablation", size.ablation_runs)) if not runs}
    parts = [part for part in PARTS[1:] if part not in left_out]
    return [*todo, *(Piece(part, paper_set.name, SEED, quick) for part in parts for paper_set in main)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    start = time.process_time()
    size, paper_set = QUICK if piece.quick else FULL, named(piece.name)
    try:
        if piece.part == "variants":
            row = measures.variants(paper_set, piece.seed, size.ks, size.variant_runs)
        elif piece.part == "no harm":
            row = measures.no_harm(paper_set, piece.seed, size.ks, size.harm_runs)
        elif piece.part == "theorems":
            row = measures.theorems(paper_set, piece.seed)
        elif piece.part == "certificates":
            row = measures.certificates(paper_set, piece.seed, (20, 50), size.bound_runs)
        elif piece.part == "ablation":
            row = measures.ablation(paper_set, piece.seed, size.ks, size.ablation_runs)
        else:
            main = paper_set.main and piece.seed == SEED
            runs = (size.runs, size.rival_runs) if main else (size.other_runs, size.other_rival_runs)
            row = measures.cells(paper_set, piece.seed, size.ks, *runs)
    except DataUnavailable as missing:
        return {"skipped": f"{piece.name}: {missing}"}
    return {"row": row, "seconds": time.process_time() - start}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start = time.perf_counter()
    size, todo = QUICK if quick else FULL, pieces(quick=quick)
    rows_by_part: dict[str, list[tuple[int, Any]]] = {part: [] for part in PARTS}
    skipped: set[str] = set()
    seconds = 0.0
    for piece, result in watched(measure, todo, cores(), name=lambda piece: f"{piece.part}: {piece.name}"):
        if "row" in result:
            rows_by_part[piece.part].append((todo.index(piece), result["row"]))
            seconds += result["seconds"]
        else:
            skipped.add(result["skipped"])
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
        "scale": [measures.measure_scale(piece) for piece in measures.scale_pieces(quick=quick)],
        "minutes": (time.perf_counter() - start) / 60,
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
