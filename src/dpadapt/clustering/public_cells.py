"""Everything that is prepared from the public targets before any source is read.

Nested cells around greedy medoids and rings by distance to the targets are the bins in which sources are counted.
`Shares` tells how much of each bin lies near each target. `prepare` makes both, and the centres that ignore the
sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from dpadapt.clustering.solver import cluster_t, distances, greedy, nearest
from dpadapt.data import Public
from dpadapt.learning.preparation import Remembered

Array = NDArray[Any]
Centres = dict[int, NDArray[np.int64]]  # rows of the targets, by the number of centres

# The tuned constants below were chosen on the development draws that docs/clustering.md lists; except where a comment
# says so, what neighbouring values cost was not recorded.

# Whole numbers up to this are exact in float64.
_LARGEST_EXACT = 2.0**53
# Bytes of a block of distances from sources or pool points to targets, so that it stays in the processor's cache.
_ASSIGNED_BLOCK_BYTES = 2**20
# Entries of the dense table that counts pool points near targets: memory against passes of a Python loop.
_SHARES_BLOCK_ENTRIES = 4 * 2**20
# Fixed seeds of public samples: the same targets give the same bins.
_POOL_SEED = 5
_TARGET_SAMPLE_SEED = 7
# Targets whose costs are summed: above it, a sample of this size. Time and memory grow with it.
_MOST_SUMMED_TARGETS = 6000
# Distances of sources are measured to all targets up to the first number, to a sample of the second size above it: the
# time to read the sources is proportional to it.
_MOST_RING_TARGETS = 4096
_SAMPLED_RING_TARGETS = 2048
# Targets among which the centres of cells are chosen. Time and memory grow with it.
_MOST_CELL_CANDIDATES = 2500
# Cells of each level, coarsest first. Few coarsest cells mix covered and uncovered targets, many leave too few sources
# in each: with 20 instead of 10 the gap on development draws rose from .29 to .34 (real) and .13 to .15 (synthetic) at
# epsilon .3, and fell from .23 to .22 and from .084 to .072 at epsilon 1. No level has more than this share of the
# targets as centres.
_LEVELS = (10, 20, 40, 80, 160, 320, 640)
_MOST_CELLS_PER_TARGET = 0.6
# Pool points: more give more exact shares, in more time and memory. With 20,000, and 320 finest cells instead of 640,
# the gap on real development draws at epsilon 3 was .169 instead of .155.
_POOL_POINTS = 40_000
# Radii at which expected distances are tabulated, and rings of distance: finer against slower and, for rings, noisier.
_N_RADII = 14
_N_RINGS = 7
# Which rings are counted together within a cell, by the number of bands.
BANDS = {2: np.array([0, 0, 0, 1, 1, 1, 1]), _N_RINGS: np.arange(_N_RINGS)}

_known: Remembered[tuple["Surroundings", Centres]] = Remembered()


def prepare(public: Public, T: Array, numbers: Sequence[int]) -> tuple["Surroundings", Centres]:
    """Return the bins of the targets `T`, and the centres that ignore the sources; made once for each `Public`."""

    def make() -> tuple[Surroundings, Centres]:
        return surroundings(T, numbers), {k: cluster_t(T, k) for k in numbers}

    return _known.get(public, [T, np.array(numbers)], make)


# Cells and rings. The bin of a source is its nearest cell centre and how far it is from the targets: a function of that
# source and of public targets alone.


@dataclass(frozen=True, eq=False)
class Cells:
    """Nested cells, and rings by distance, around public targets.

    `origin` and `step` are those of the grid that points are rounded to. `points` are targets on the grid; the first
    `n_cells` are the centres of the finest cells. Row l of `ancestors` has the cell of level l, coarsest first, that
    each finest cell belongs to. `edges` are the outer edges of the rings, in the units of the data. A source further
    from all points is not counted.
    """

    origin: Array
    step: float
    points: Array
    ancestors: NDArray[np.int64]
    edges: Array

    @property
    def n_cells(self) -> int:
        """Number of finest cells."""
        return int(self.ancestors.shape[1])

    @property
    def n_rings(self) -> int:
        """Number of rings."""
        return len(self.edges)

    @property
    def n_bins(self) -> int:
        """Number of finest bins."""
        return self.n_cells * self.n_rings

    def codes(self, rows: Array) -> NDArray[np.int64]:
        """Return the finest bin of each row, cell * n_rings + ring; -1 for a row that is out of range or not finite."""
        codes = np.full(len(rows), -1)
        with np.errstate(all="ignore"):
            grid = np.rint((rows - self.origin) / self.step)
            reach = np.abs(self.points).max() + math.ceil(self.edges[-1] / self.step)
            near = np.flatnonzero((np.abs(grid) <= reach).all(axis=1))
        size = max(1, _ASSIGNED_BLOCK_BYTES // (8 * len(self.points)))
        for start in range(0, len(near), size):
            part = near[start : start + size]
            codes[part] = self._codes(grid[part])
        return codes

    def _codes(self, grid: Array) -> NDArray[np.int64]:
        # |s - c|² less |s|²: sums of products of whole numbers below 2⁵³ in all (see `grid_step`), so none is rounded,
        # in whatever order they are added. The bin of a row therefore depends on no other row of its block, and one
        # record is counted in one bin or in none.
        squares = np.column_stack([grid, np.ones(len(grid))]) @ self._products
        cell = squares[:, : self.n_cells].argmin(axis=1)
        nearest_square = squares.min(axis=1) + np.einsum("ij,ij->i", grid, grid)
        ring = np.searchsorted((self.edges / self.step) ** 2, nearest_square)
        return np.where(ring < self.n_rings, cell * self.n_rings + ring, -1)

    @cached_property
    def _products(self) -> Array:
        return np.vstack([-2.0 * self.points.T, np.einsum("ij,ij->i", self.points, self.points)])

    def coarse(self) -> NDArray[np.int64]:
        """Return the coarse bin of each finest bin, coarsest cell * n_rings + ring."""
        return np.asarray((self.ancestors[0][:, None] * self.n_rings + np.arange(self.n_rings)).ravel())


def make_cells(targets: Array, *, edges: Array, sizes: Sequence[int]) -> Cells:
    """Return cells and rings around public `targets`, best medoids first: a level of s cells has the first s."""
    origin = (targets.max(axis=0) + targets.min(axis=0)) / 2
    reach = float(np.abs(targets - origin).max()) + 2 * float(edges[-1])
    step = grid_step(reach, targets.shape[1])
    points = np.rint((targets - origin) / step)
    # Chained, so that a coarse cell is a union of whole finer ones.
    ancestors = [np.arange(sizes[-1])]
    for size, below in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
        parents = nearest(points[:below], points[:size])[0]
        ancestors.append(parents[ancestors[-1]])
    return Cells(origin, step, points, np.array(ancestors[::-1]), np.asarray(edges, dtype=float))


def grid_step(reach: float, n_features: int) -> float:
    """Return the step of a grid on which squared distances within `reach` are exact in float64."""
    # |s|² + 2 |s'c| + |c|² <= 4 n_features q², q the largest coordinate: below 2⁵³ for q = 2²⁵ / sqrt(n_features).
    most = math.sqrt(_LARGEST_EXACT / (8 * n_features))
    step = 2 * reach / most
    # A power of two: dividing by it does not round.
    return math.ldexp(1.0, math.ceil(math.log2(step))) if step > 0 else 1.0


# How much of each bin lies near each target: measured with a public pool of points scattered around the targets.


@dataclass(frozen=True, eq=False)
class Shares:
    """Numbers of pool points: `sizes` in each finest bin, and `near` within each radius of each target.

    `near` has a row for each target and radius, target * n_radii + radius, and a column for each finest bin.
    """

    radii: Array
    sizes: Array
    near: csr_array

    def of(self, part: NDArray[np.int64], n_parts: int) -> csr_array:
        """Return, for every target and radius, which share of each part's pool points lies within that radius."""
        n = len(self.sizes)
        join = csr_array((np.ones(n, dtype=np.float32), part, np.arange(n + 1)), shape=(n, n_parts))
        sizes = np.bincount(part, weights=self.sizes, minlength=n_parts)
        shares = (self.near @ join).tocsr()
        shares.data /= sizes[shares.indices].astype(np.float32)
        return shares


def scatter(targets: Array, cells: Cells, size: int) -> tuple[Array, NDArray[np.int64]]:
    """Return about `size` pool points, scattered in random directions around the targets, and their finest bins."""
    random = np.random.default_rng(_POOL_SEED)
    per_ring = max(1, size // (cells.n_rings * len(targets)))
    if len(targets) * cells.n_rings > size:
        targets = targets[random.choice(len(targets), size // cells.n_rings, replace=False)]
    points = []
    for low, high in zip(np.append(0.0, cells.edges[:-1]), cells.edges, strict=True):
        around = np.repeat(targets, per_ring, axis=0)
        away = random.standard_normal(around.shape)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        points.append(around + random.uniform(low, high, len(around))[:, None] * away)
    pool = np.vstack(points)
    codes = cells.codes(pool)
    return pool[codes >= 0], codes[codes >= 0]


def make_shares(targets: Array, radii: Array, pool: Array, codes: NDArray[np.int64], n_bins: int) -> Shares:
    """Return how many pool points of each bin lie within each of `radii` of the public `targets`."""
    order = np.argsort(codes, kind="stable")
    pool, codes = pool[order], codes[order]
    n_radii = len(radii)
    size = max(1, _SHARES_BLOCK_ENTRIES // max(n_bins * n_radii, len(pool)))
    parts = []
    for start in range(0, len(targets), size):
        block = distances(targets[start : start + size], pool)
        within = np.searchsorted(radii, block.ravel()).reshape(block.shape)
        key = (within * len(block) + np.arange(len(block))[:, None]) * n_bins + codes
        counts = np.bincount(key[within < n_radii], minlength=n_radii * len(block) * n_bins)
        counts = counts.reshape(n_radii, len(block), n_bins).cumsum(axis=0).transpose(1, 0, 2)
        parts.append(csr_array(counts.reshape(-1, n_bins).astype(np.float32)))
    return Shares(radii, np.bincount(codes, minlength=n_bins).astype(float), csr_array(vstack(parts)))


# All of it together, with scales read off from the targets.


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Bins around public targets, and how near they are to each target.

    `rows` are the numbers of the targets whose costs are summed: all, or a sample if there are very many. `targets` are
    these targets, and `shares` is for them.
    """

    rows: NDArray[np.int64]
    targets: Array
    cells: Cells
    shares: Shares


def surroundings(T: Array, n_clusters: Sequence[int]) -> Surroundings:
    """Return the bins around public targets `T`, scaled for choosing each of `n_clusters` numbers of centres."""
    random = np.random.default_rng(_TARGET_SAMPLE_SEED)
    rows = _sample(len(T), _MOST_SUMMED_TARGETS, random)
    points = rows if len(rows) <= _MOST_RING_TARGETS else rows[_sample(len(rows), _SAMPLED_RING_TARGETS, random)]
    near, far = _medoid_counts(n_clusters, len(points))
    most_cells = math.ceil(_MOST_CELLS_PER_TARGET * min(len(points), _MOST_CELL_CANDIDATES))
    sizes = [size for size in _LEVELS if size <= most_cells] or [most_cells]
    medoids = _medoids(T, points, max(sizes[-1], far), random)
    # Beyond `reach` a source hardly serves a target better than a few centres do.
    reach = float(np.quantile(nearest(T[rows], T[medoids[:near]])[1], 0.95))
    # The usual distance is that to many centres.
    usual = float(nearest(T[rows], T[medoids[:far]])[1].mean())
    if reach == 0.0:
        # Few distinct targets, which can all be centres: any scale is good enough.
        reach = float(np.abs(T[rows] - T[rows].mean(axis=0)).max()) or 1.0
    usual = min(max(usual, 1e-3 * reach), reach)
    inner = 0.5 * usual
    if len(points) < len(rows):
        # Distances are measured to a sample of the targets, so no ring is finer than the spacing of that sample.
        inner = min(max(inner, float(np.median(nearest(T[rows], T[points])[1]))), 0.9 * reach)
    order = np.concatenate([medoids, np.setdiff1d(points, medoids)])
    cells = make_cells(T[order], edges=np.geomspace(inner, reach, _N_RINGS), sizes=sizes)
    radii = np.geomspace(0.25 * usual, reach, _N_RADII)
    pool, codes = scatter(T[rows], cells, _POOL_POINTS)
    return Surroundings(rows, T[rows], cells, make_shares(T[rows], radii, pool, codes, cells.n_bins))


def _medoid_counts(n_clusters: Sequence[int], n: int) -> tuple[int, int]:
    """Return a small and a large number of centres, from which the scales of the problem are computed."""
    low, high = min(n_clusters), max(n_clusters)
    if low == high:
        low, high = round(low / 5), round(1.4 * high)
    return min(max(1, low), n), min(max(1, high), n)


def _medoids(T: Array, points: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the first `count` greedy medoids of `points`."""
    candidates = points[_sample(len(points), _MOST_CELL_CANDIDATES, random)]
    middle = T[points].mean(axis=0)
    cost = distances(T[candidates] - middle, T[points] - middle).T
    return candidates[greedy(cost, np.full(len(points), np.inf), min(count, len(candidates)))]


def _sample(n: int, most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return range(n), or a random sample of it if n exceeds `most`."""
    return np.arange(n) if n <= most else np.sort(random.choice(n, most, replace=False))
