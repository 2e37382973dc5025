"""What is prepared from the public targets before any source is read: scales, cells, rings and shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.cells import Cells, make_cells
from dpadapt.clustering.distances import distances, nearest
from dpadapt.clustering.greedy import greedy
from dpadapt.clustering.shares import Shares, make_shares, scatter

Array = NDArray[Any]

_SEED = 7  # samples of public targets; a fixed seed makes the same of the same targets
_MOST_ROWS = 20_000  # targets whose costs are summed
_MOST_POINTS = 4096  # up to here distances to the targets are measured from all of them,
_FEWER_POINTS = 2048  # above from these: the time to read the sources is proportional to it
_MOST_CANDIDATES = 2500
_COARSEST = 20
# Finest cells: as many for few targets, more where each still has so many targets.
_FINEST, _TARGETS_EACH = 320, 15
_POOL, _POOL_EACH = 30_000, 47  # points of the pool, and how many a finest cell has of them at least
_N_RADII = 12
_N_RINGS = 7
# Rings that are counted together in a cell, by how many bands they make.
_BANDS = {2: np.array([0, 0, 0, 1, 1, 1, 1]), 3: np.array([0, 1, 1, 1, 2, 2, 2]), 4: np.array([0, 1, 1, 2, 2, 3, 3])}


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Cells around public targets, and how near their parts are to each of them.

    Parameters
    ----------
    rows : ndarray
        The targets that stand for all: all of them, or a sample if there are very many.
    cells : Cells
    shares : Shares
        For the targets `rows`.
    """

    rows: NDArray[np.int64]
    cells: Cells
    shares: Shares


def surroundings(T: Array, n_clusters: Sequence[int], *, n_bands: int) -> Surroundings:
    """Prepare public targets `T` for choosing each of `n_clusters` numbers of centres."""
    random = np.random.default_rng(_SEED)
    rows = _sample(len(T), _MOST_ROWS, random)
    points = rows if len(rows) <= _MOST_POINTS else rows[_sample(len(rows), _FEWER_POINTS, random)]
    near, far = _medoid_counts(n_clusters, len(points))
    n_cells = min(max(_FINEST, len(rows) // _TARGETS_EACH), math.ceil(0.6 * len(points)))
    medoids = _medoids(T, points, max(n_cells, far), random)
    # R: beyond it a source hardly serves a target better than a few centres do. The usual distance: to many centres.
    reach = float(np.quantile(nearest(T[rows], T[medoids[:near]])[1], 0.95))
    usual = float(nearest(T[rows], T[medoids[:far]])[1].mean())
    if reach == 0.0:
        # Few distinct targets: any scale will do, since every target can be a centre.
        reach = float(np.abs(T[rows] - T[rows].mean(axis=0)).max()) or 1.0
    usual = min(max(usual, 1e-3 * reach), reach)
    inner = 0.5 * usual
    if len(points) < len(rows):
        # Distances are measured from a part of the targets only, so no ring is finer than their spacing.
        inner = min(max(inner, float(np.median(nearest(T[rows], T[points])[1]))), 0.9 * reach)
    edges = np.geomspace(inner, reach, _N_RINGS)
    order = np.concatenate([medoids, np.setdiff1d(points, medoids)])
    cells = make_cells(T[order], edges=edges, sizes=_sizes(n_cells), bands=_BANDS[n_bands])
    pool, codes = scatter(T[rows], cells, max(_POOL, _POOL_EACH * n_cells))
    radii = np.geomspace(0.25 * usual, reach, _N_RADII)
    return Surroundings(rows, cells, make_shares(T[rows], radii, pool, codes, cells.n_bins))


def _medoid_counts(n_clusters: Sequence[int], n: int) -> tuple[int, int]:
    """Return numbers of centres, few and many, that the scales of the problem are read off from."""
    low, high = min(n_clusters), max(n_clusters)
    if low == high:
        low, high = round(low / 5), round(1.4 * high)
    return min(max(1, low), n), min(max(1, high), n)


def _medoids(T: Array, points: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the first `count` greedy medoids of `points`."""
    candidates = points[_sample(len(points), _MOST_CANDIDATES, random)]
    middle = T[points].mean(axis=0)
    cost = distances(T[candidates] - middle, T[points] - middle).T
    return candidates[greedy(cost, np.full(len(points), np.inf), min(count, len(candidates)))]


def _sizes(n_cells: int) -> list[int]:
    """Return cells per level: twice as many at each, from the coarsest."""
    sizes = [_COARSEST]
    while 2 * sizes[-1] < n_cells:
        sizes.append(2 * sizes[-1])
    return [size for size in sizes if size < n_cells] + [n_cells]


def _sample(n: int, most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return all of range(n), or a sample of it."""
    return np.arange(n) if n <= most else np.sort(random.choice(n, most, replace=False))
