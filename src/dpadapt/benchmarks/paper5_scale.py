"""Paper 5 at scale: a million targets, ten million sources that are read in blocks, eight dimensions, fifty centres.

Time and memory are those of one fit in a process of its own; making the data and judging the centres don't count.
"""

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dpadapt.benchmarks.transfer_common import claim
from dpadapt.clustering.baselines import cluster_t
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.private import PrivateSourceTargetClustering
from dpadapt.clustering.solver import capped_k_medoids
from dpadapt.data import Public

Array = NDArray[Any]

DIMENSIONS, CLUSTERS, COVERED, SPREAD = 8, 60, 20, 0.3
_BLOCK = 250_000
# Targets by which centres are judged, and others on which the non-private choice is made.
_JUDGES, _KNOWN = 5000, 20_000


@dataclass(frozen=True)
class Piece:
    """One size."""

    n: int
    m: int
    k: int
    epsilon: float
    seed: int


def pieces(*, quick: bool) -> list[Piece]:
    """Return the sizes to measure."""
    if quick:
        return [Piece(30_000, 300_000, 50, 1.0, 22)]
    return [Piece(1_000_000, 10_000_000, 50, 1.0, 22)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return time, memory and gap of one size."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found, facts = pool.submit(_fit, piece).result()
    T = _targets(piece)
    order = np.random.default_rng([piece.seed, 3]).permutation(piece.n)
    judges, known = order[:_JUDGES], order[_JUDGES : _JUDGES + _KNOWN]
    # Every source is looked at, in a tree: distances to the nearest one are exact.
    tree = cKDTree(np.concatenate(list(_sources(piece))), leafsize=64, balanced_tree=False)
    cap, cap_known = (np.asarray(tree.query(T[rows])[0]) for rows in (judges, known))
    chosen = known[capped_k_medoids(T[known], piece.k, cap_known)]
    costs = {
        name: float(np.minimum(cap, nearest(T[judges], T[rows])[1]).mean())
        for name, rows in (("ours", found), ("ClusterT", cluster_t(T, piece.k)), ("non-private", chosen))
    }
    gap = (costs["ours"] - costs["non-private"]) / (costs["ClusterT"] - costs["non-private"])
    return {"n": piece.n, "m": piece.m, "k": piece.k, "epsilon": piece.epsilon, "gap": gap, "costs": costs, **facts}


def claims(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield what was aimed at, what was measured, and whether it was met."""
    for row in rows:
        size = f"n = {row['n']:,}, m = {row['m']:,}, d = {DIMENSIONS}, k = {row['k']}, ε = {row['epsilon']:g}"
        for aim, measured, met in (
            ("at most 5 minutes", f"{row['seconds']:.0f} s, CPU {row['cpu']:.0f} s", row["seconds"] <= 300),
            ("at most 4 GB", f"{row['gigabytes']:.1f} GB", row["gigabytes"] <= 4),
            ("gap at most .25", f"{row['gap']:.2f}", row["gap"] <= 0.25),
        ):
            yield claim(f"{size}: {aim}", measured, met)


def _fit(piece: Piece) -> tuple[NDArray[np.int64], dict[str, float]]:
    """Return the centres, and what one fit costs beyond making its data."""
    public = Public(_targets(piece))
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
    return np.asarray(model.centers_), {
        "seconds": time.perf_counter() - start[0] - made[0],
        "cpu": time.process_time() - start[1] - made[1],
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def _middles(piece: Piece) -> Array:
    return np.random.default_rng([piece.seed, 0]).standard_normal((CLUSTERS, DIMENSIONS))


def _targets(piece: Piece) -> Array:
    random = np.random.default_rng([piece.seed, 1])
    return _middles(piece)[random.integers(CLUSTERS, size=piece.n)] + SPREAD * random.standard_normal(
        (piece.n, DIMENSIONS)
    )


def _sources(piece: Piece) -> Iterator[NDArray[np.float32]]:
    """Yield the sources in blocks; they lie around some of the targets' clusters."""
    random, middles = np.random.default_rng([piece.seed, 2]), _middles(piece)[:COVERED].astype(np.float32)
    for start in range(0, piece.m, _BLOCK):
        size = min(_BLOCK, piece.m - start)
        noise = random.standard_normal((size, DIMENSIONS), dtype=np.float32)
        yield middles[random.integers(COVERED, size=size)] + np.float32(SPREAD) * noise
