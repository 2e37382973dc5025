"""Clustering at scale: `python -m benchmarks clustering-scale`.

A million targets, ten million sources that are read in blocks, eight dimensions, fifty centres; with `--quick`, and in
`python -m benchmarks clustering`, 30,000 targets and 300,000 sources. Time and memory are those of one fit in a process
of its own, without making the data and computing the costs.
"""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from benchmarks.pages import pipes, write_between
from benchmarks.running import command, peak_memory
from benchmarks.transfer.common import claim, versions
from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.clustering.inference import prepare
from dpadapt.clustering.solver import capped_k_medoids, nearest
from dpadapt.data import Public

Array = NDArray[Any]

START, END = "<!-- bench clustering-scale -->", "<!-- end of bench clustering-scale -->"

# Synthetic data: dimensions, clusters of targets, how many of these have sources, standard deviation in a cluster.
DIMENSIONS, CLUSTERS, COVERED, SPREAD = 8, 60, 20, 0.3
_BLOCK = 250_000  # sources
# Targets on which costs are computed, and others on which the non-private choice is made: at most a third of all.
_EVALUATED, _NON_PRIVATE = 5000, 20_000


@dataclass(frozen=True)
class ScalePiece:
    """The size of one run at scale: targets, sources, centres, epsilon, seed."""

    n: int
    m: int
    k: int
    epsilon: float
    seed: int


def pieces(*, quick: bool) -> list[ScalePiece]:
    """Return the sizes to measure."""
    n, m = (30_000, 300_000) if quick else (1_000_000, 10_000_000)
    return [ScalePiece(n, m, 50, 1.0, seed) for seed in (22, 23, 24, 25, 26)]


def measure(piece: ScalePiece) -> dict[str, Any]:
    """Return time, memory and gap of one size."""
    # A new process for each of the two tasks.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        centres, alone, facts = pool.submit(_fit, piece).result()
        costs = pool.submit(_costs, piece, centres, alone).result()
    gap = (costs["ours"] - costs["non-private"]) / (costs["ClusterT"] - costs["non-private"])
    return {"n": piece.n, "m": piece.m, "k": piece.k, "epsilon": piece.epsilon, "gap": gap, "costs": costs, **facts}


def _costs(piece: ScalePiece, centres: NDArray[np.int64], alone: NDArray[np.int64]) -> dict[str, float]:
    """Return the costs of our centres, of those without sources, and of a non-private choice."""
    T = _targets(piece)
    order = np.random.default_rng([piece.seed, 3]).permutation(piece.n)
    evaluated, known = order[:_EVALUATED], order[_EVALUATED:][: min(_NON_PRIVATE, piece.n // 3)]
    # A tree over all sources: distances to the nearest one are exact.
    tree = cKDTree(np.concatenate(list(_sources(piece))), leafsize=64, balanced_tree=False)
    cap, cap_known = (np.asarray(tree.query(T[rows])[0]) for rows in (evaluated, known))
    chosen = capped_k_medoids(T, piece.k, cap_known, rows=known)
    return {
        name: float(np.minimum(cap, nearest(T[evaluated], T[rows])[1]).mean())
        for name, rows in (("ours", centres), ("ClusterT", alone), ("non-private", chosen))
    }


def verdicts(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield each target of the runs at scale, what was measured, and whether it was met."""
    if not rows:
        return
    row = rows[0]
    size = f"n = {row['n']:,}, m = {row['m']:,}, d = {DIMENSIONS}, k = {row['k']}, ε = {row['epsilon']:g}"
    slowest, largest = max(row["cpu"] for row in rows), max(row["gigabytes"] for row in rows)
    gaps = np.array([row["gap"] for row in rows])
    spread = 1.96 * float(gaps.std(ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    for target, measured, met in (
        ("at most 120 s of CPU time", f"{slowest:.0f} s", round(slowest) <= 120),
        ("at most 1.2 GB", f"{largest:.2f} GB", round(largest, 2) <= 1.2),
        ("below ClusterT's cost (gap below 1)", f"gap {gaps.mean():.2f} ± {spread:.2f}", gaps.mean() + spread < 1),
    ):
        yield claim(f"{size}, {len(rows)} seeds: {target}", measured, met)


def _fit(piece: ScalePiece) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, float]]:
    """Return the centres, those without sources, and the time and memory of one fit without making its data."""
    T = _targets(piece)
    public = Public(T)
    made = 0.0, 0.0

    def watched() -> Iterator[Array]:
        nonlocal made
        start = time.perf_counter(), time.process_time()
        for block in _sources(piece):
            made = made[0] + time.perf_counter() - start[0], made[1] + time.process_time() - start[1]
            yield block
            start = time.perf_counter(), time.process_time()

    start = time.perf_counter(), time.process_time()
    model = PrivateSourceTargetClustering(piece.k, piece.epsilon, random_state=piece.seed)
    model.fit(watched(), public=public)
    facts = {
        "seconds": time.perf_counter() - start[0] - made[0],
        "cpu": time.process_time() - start[1] - made[1],
        "gigabytes": peak_memory() / 2**30,
    }
    # ClusterT's centres were computed by the fit; they are looked up.
    return np.asarray(model.centers_), prepare(public, T, [piece.k])[1][piece.k], facts


def _middles(piece: ScalePiece) -> Array:
    return np.random.default_rng([piece.seed, 0]).standard_normal((CLUSTERS, DIMENSIONS))


def _targets(piece: ScalePiece) -> Array:
    random = np.random.default_rng([piece.seed, 1])
    return _middles(piece)[random.integers(CLUSTERS, size=piece.n)] + SPREAD * random.standard_normal(
        (piece.n, DIMENSIONS)
    )


def _sources(piece: ScalePiece) -> Iterator[NDArray[np.float32]]:
    """Yield the sources in blocks; they lie around some of the targets' clusters."""
    random, middles = np.random.default_rng([piece.seed, 2]), _middles(piece)[:COVERED].astype(np.float32)
    for start in range(0, piece.m, _BLOCK):
        size = min(_BLOCK, piece.m - start)
        noise = random.standard_normal((size, DIMENSIONS), dtype=np.float32)
        yield middles[random.integers(COVERED, size=size)] + np.float32(SPREAD) * noise


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the runs as a table."""
    lines = [
        [f"{row['n']:,}", f"{row['m']:,}", f"{row['cpu']:.0f} s", f"{row['gigabytes']:.2f} GB", f"{row['gap']:.3f}"]
        for row in rows
    ]
    header = ["targets", "sources", "CPU time", "memory", "gap"]
    words = (
        "Fits at epsilon 1 with 50 centres, sources read in blocks, one row for each seed of the data. The bands and "
        "the clumping with many sources were chosen on the first of these seeds."
    )
    return {"title": "Scale", "words": words, "header": header, "rows": lines}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    return {"quick": quick, "versions": versions(), "scale": [measure(piece) for piece in pieces(quick=quick)]}


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table and its verdicts for the documentation."""
    name = f"python -m benchmarks clustering-scale{' --quick' if results['quick'] else ''}"
    numbers = ", ".join(f"{part} {number}" for part, number in results["versions"].items())
    shown = table(results["scale"])
    judged = [[row["claim"], row["measured"], row["verdict"]] for row in verdicts(results["scale"])]
    words = f"Printed by `{name}`. {shown['words']} {numbers}."
    return (
        "\n\n".join([words, pipes(shown["header"], shown["rows"]), pipes(["claim", "measured", "verdict"], judged)])
        + "\n"
    )


def show(results: dict[str, Any]) -> None:
    """Print the table and its verdicts."""
    print(markdown(results))


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the table between the markers of a documentation page."""
    write_between(path, markdown(results), START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the table between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
