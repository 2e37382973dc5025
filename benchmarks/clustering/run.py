"""Paper 5, source-target clustering: `python -m benchmarks clustering`.

Differentially Private Source-Target Clustering: the content of its Figures 3 to 10 and 15 to 106, on three synthetic
sets, MNIST, Office-Caltech10, Superconductivity, Adult and Reviews; without real data in `DPADAPT_DATA`, on the
synthetic sets. The same solver computes every method's centres. Then the bound on the cost, the choice of rows to
label, and a run at scale. Every core runs one process; the solver's speed and the run at scale are measured afterwards,
one at a time.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clustering import labelling
from benchmarks.clustering import measure as measures
from benchmarks.clustering.sets import SETS, named
from benchmarks.clustering.show import show, summarise, write_markdown
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import real_data, versions
from dpadapt.errors import DataUnavailable

PARTS = ("cells", "variants", "no harm", "theorems", "certificates")
# Seeds of the data. No constant was chosen on these draws; constants were chosen on other draws of the same real sets.
SEED, FRESH = 11, (12, 13)


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
    solver: dict[str, int] = field(default_factory=dict)
    fresh: tuple[int, ...] = ()


FULL = Size(
    sets=tuple(paper_set.name for paper_set in SETS),
    ks=(10, 20, 30, 40, 50, 60, 70),
    runs=dict.fromkeys(measures.BUDGETS, 30),
    other_runs={"epsilon 3": 30, "rho 3": 30, "epsilon 1": 10, "epsilon 0.3": 10, "epsilon 0.1": 10},
    rival_runs={"epsilon 3": 10, "rho 3": 10, "epsilon 1": 3, "epsilon 0.3": 3, "epsilon 0.1": 3},
    other_rival_runs={"epsilon 3": 3, "rho 3": 3},
    variant_runs=3,
    harm_runs=5,
    bound_runs=15,
    solver={"n": 20_000, "k": 70, "repeats": 3},
    fresh=FRESH,
)
_MAIN = tuple(paper_set.name for paper_set in SETS if paper_set.main)
QUICK = Size(
    sets=_MAIN,
    ks=(10, 40, 70),
    runs={"epsilon 3": 4, "rho 3": 4, "epsilon 1": 4, "epsilon 0.3": 4, "epsilon 0.1": 4},
    other_runs={},
    rival_runs={"epsilon 3": 2, "rho 3": 2},
    other_rival_runs={},
    variant_runs=1,
    harm_runs=1,
    bound_runs=2,
    solver={"n": 20_000, "k": 70, "repeats": 1},
)


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    part: str
    name: str
    seed: int
    quick: bool


def pieces(*, quick: bool) -> list[Piece | labelling.Piece]:
    """Return all pieces of work, the longest first."""
    size = QUICK if quick else FULL
    sets = [paper_set for paper_set in SETS if paper_set.name in size.sets and (real_data() or not paper_set.real)]
    main = [paper_set for paper_set in sets if paper_set.main]
    todo: list[Piece | labelling.Piece] = []
    todo += [
        Piece("cells", paper_set.name, SEED, quick)
        for paper_set in sorted(sets, key=lambda paper_set: not paper_set.main)
    ]
    todo += [
        Piece("cells", paper_set.name, seed, quick) for paper_set in main if not paper_set.real for seed in size.fresh
    ]
    todo += [Piece(part, paper_set.name, SEED, quick) for part in PARTS[1:] for paper_set in main]
    return [*todo, *(labelling.pieces(quick=quick) if real_data() else [])]


def measure(piece: Piece | labelling.Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    start = time.process_time()
    if isinstance(piece, labelling.Piece):
        return labelling.measure(piece) | {"seconds": time.process_time() - start}
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
    rows_by_part: dict[str, list[tuple[int, Any]]] = {part: [] for part in (*PARTS, "labelling")}
    skipped: set[str] = set()
    seconds = 0.0
    for piece, result in watched(measure, todo, cores(), name=lambda piece: f"{_part(piece)}: {piece.name}"):
        if "row" in result:
            rows_by_part[_part(piece)].append((todo.index(piece), result["row"]))
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


def _part(piece: Piece | labelling.Piece) -> str:
    return "labelling" if isinstance(piece, labelling.Piece) else piece.part


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
