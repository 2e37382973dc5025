"""Both transfer estimators: `python -m benchmarks transfer`.

The grid against the public model and against what a user already has, sets that are hard on purpose, corrupted public
data, other settings, and speed; on the real sets in `DPADAPT_DATA` if that is set, else on bundled and synthetic ones.
Splits and noise are seeded; nothing is tuned per set or cell. Every core runs one process; one of them measures speed
afterwards.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import running as in_pieces
from benchmarks.running import command
from benchmarks.transfer import claims, fits, tables
from benchmarks.transfer.common import gathered, real_data, versions, wanted
from benchmarks.transfer.sets import CORRUPTED_TASKS, TASKS, task_named
from dpadapt.errors import DataUnavailable

# Claims in other settings that need real sets, by the name of their piece of work. They are left out of a quick run.
SETTINGS: dict[str, Callable[[], Iterator[dict[str, str]]]] = {
    "one population": claims.one_population_claims,
    "unlabelled public rows": claims.unlabelled_claims,
    "calibration": claims.calibration_claims,
}


@dataclass(frozen=True)
class Corrupted:
    """The work of one process at a time: one task, with clean and with corrupted public data."""

    name: str
    seeds: int


@dataclass(frozen=True)
class Setting:
    """The work of one process at a time: one of `SETTINGS`."""

    name: str


Piece = fits.Piece | Corrupted | Setting


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work; long ones are first."""
    seeds = claims.CORRUPTION_SEEDS[0 if quick else 1]
    settings = [] if quick or not real_data() else [Setting(name) for name in SETTINGS]
    corrupted = [Corrupted(task.name, seeds) for task in wanted(CORRUPTED_TASKS, quick=quick)]
    return [*settings, *fits.pieces(quick=quick), *corrupted]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the rows of one piece, each with the name of its part, or the reason why the piece was skipped."""
    if isinstance(piece, fits.Piece):
        results = fits.measure(piece)
        part = "cells" if any(piece.name == task.name for task in TASKS) else "robustness"
        return results | {"rows": [row | {"part": part} for row in results.get("rows", [])]}
    try:
        if isinstance(piece, Corrupted):
            return {"rows": [claims.corruption(task_named(piece.name), piece.seeds) | {"part": "corruption"}]}
        return {"rows": [row | {"part": "claims"} for row in SETTINGS[piece.name]()]}
    except DataUnavailable as missing:
        return {"skipped": f"{piece.name}: {missing}"}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start = time.perf_counter()
    rows, skipped = gathered(measure, pieces(quick=quick))
    parts: dict[str, list[dict[str, Any]]] = {"cells": [], "robustness": [], "corruption": [], "claims": []}
    for row in rows:
        parts[row.pop("part")].append(row)
    places = {task.name: place for place, task in enumerate(TASKS)}
    parts["corruption"].sort(key=lambda row: places[row["task"]])
    parts["claims"].sort(key=lambda row: row["claim"])
    if not fits.has_dp_ebm():
        skipped.append(f"{fits.DP_EBM}: the package interpret is not installed.")
    stored = fits.landed()
    landed_fits = {(row["task"], row["size"], row["epsilon"]): row["fits"] for row in stored["rows"]}
    return {
        "quick": quick,
        "data": "real, bundled and synthetic sets"
        if real_data()
        else "bundled and synthetic sets; DPADAPT_DATA not set",
        "skipped": sorted(set(skipped)),
        "versions": versions(),
        "processes": in_pieces.cores(),
        "seeds": [numbers[0 if quick else 1] for numbers in (fits.SEEDS, fits.RIVAL_SEEDS)],
        "setting": fits.setting(),
        "landed": {name: value for name, value in stored.items() if name != "rows"},
        "cells": fits.cells(parts["cells"], landed_fits),
        "robustness": fits.cells(parts["robustness"], {}),
        "corruption": parts["corruption"],
        "claims": [*parts["claims"], *claims.sparse_claims(quick=quick), *claims.speed_claims(quick=quick)],
        "minutes": (time.perf_counter() - start) / 60,
    }


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the heat maps."""
    from benchmarks.pages import transfer_page

    path.write_text(transfer_page(tables.summarise(results)), encoding="utf-8")


if __name__ == "__main__":
    writers = {
        "report": ("write a page with heat maps", write_report),
        "markdown": ("write the tables between this page's markers, and heat maps beside it", tables.write_markdown),
    }
    command(__spec__.name, __doc__, run, tables.show, writers=writers)
