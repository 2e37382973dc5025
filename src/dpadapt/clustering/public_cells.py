"""Everything that is prepared from the public targets before any source is read.

Nested cells around greedy medoids and rings by distance to the targets are the bins in which sources are counted.
`Shares` tells how much of each bin lies near each target. `prepare` makes both and the centres that ignore the sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from dpadapt.clustering.solver import cluster_t, distances, greedy, nearest
from dpadapt.data import Public
from dpadapt.learning.preparation import Remembered

Array = NDArray[Any]
Centres = dict[int, NDArray[np.int64]]  # rows of the targets, by the number of centres

# The tuned constants below were chosen together, on the development draws that docs/clustering.md lists; except where a
# comment says so, what neighbouring values cost was not recorded.

# Whole numbers up to this are exact in float64.
_LARGEST_EXACT = 2.0**53
# Size of a block: bytes of distances while sources are assigned to bins, and entries of the table that counts points of
# the pool near targets. Smaller blocks need less memory and more passes of a Python loop. Chosen by hand.
_CODES_BLOCK_BYTES = 32 * 2**20
_SHARES_BLOCK_ENTRIES = 4 * 2**20
# Fixed seeds of public samples: the same targets give the same bins.
_POOL_SEED = 5
_TARGET_SAMPLE_SEED = 7
# Targets whose costs are summed: above it, a sample of this size. Time and memory grow with it.
_MOST_SUMMED_TARGETS = 20_000
# Distances of sources are measured to all targets up to the first number, to a sample of the second size above it: the
# time to read the sources is proportional to it.
_MOST_RING_TARGETS = 4096
_SAMPLED_RING_TARGETS = 2048
# Targets among which the centres of cells are chosen. Time and memory grow with it.
_MOST_CELL_CANDIDATES = 2500
# Coarse cells. In a prototype 10 put covered and uncovered clusters into one cell (a gap of up to 2.0 at epsilon 0.3
# and below), and 40 left too few sources in each at epsilon 0.1.
_COARSEST_CELLS = 20
# Finest cells: the first number, more where each still has the second number of targets, but never more than 0.6 of
# the ring targets. More cells locate sources better, but cost memory. The second number was chosen on a run with a
# million targets.
_FINEST_CELLS, _TARGETS_PER_CELL = 320, 15
# Pool points, at least in all and for each finest cell: more give more exact shares, in more time and memory.
_POOL_POINTS, _POOL_POINTS_PER_CELL = 30_000, 47
# Radii at which expected distances are tabulated, and rings of distance: finer against slower and, for rings, noisier.
_N_RADII = 12
_N_RINGS = 7
# Which rings are counted together within a cell, by the number of bands.
_BANDS = {2: np.array([0, 0, 0, 1, 1, 1, 1]), 3: np.array([0, 1, 1, 1, 2, 2, 2]), 4: np.array([0, 1, 1, 2, 2, 3, 3])}

_known: Remembered[tuple["Surroundings", Centres]] = Remembered()


def prepare(public: Public, T: Array, numbers: Sequence[int], n_bands: int) -> tuple["Surroundings", Centres]:
    """Return the bins of the targets `T`, and the centres that ignore the sources; made once for each `Public`."""

    def make() -> tuple[Surroundings, Centres]:
        return surroundings(T, numbers, n_bands=n_bands), {k: cluster_t(T, k) for k in numbers}

    return _known.get(public, [T, np.array([*numbers, n_bands])], make)


# Cells and rings. The bin of a source is its nearest cell centre and how far it is from the targets: a function of that
# source and of public targets alone.


@dataclass(frozen=True, eq=False)
class Cells:
    """Nested cells, and rings by distance, around public targets.

    Parameters
    ----------
    origin, step : ndarray, float
        The grid that points are rounded to.
    points : ndarray of shape (n_points, n_features)
        Targets on the grid; the first `n_cells` are the centres of the finest cells.
    ancestors : ndarray of shape (n_levels, n_cells)
        The cell of each level, coarsest first, that a finest cell belongs to. The last level holds the finest cells.
    edges : ndarray of shape (n_rings,)
        Outer edges of the rings, in the units of the data. A source further from all points is not counted.
    bands : ndarray of shape (n_rings,)
        Rings that are counted together within a cell have the same band.
    """

    origin: Array
    step: float
    points: Array
    ancestors: NDArray[np.int64]
    edges: Array
    bands: NDArray[np.int64]

    @property
    def n_cells(self) -> int:
        """Number of finest cells."""
        return int(self.ancestors.shape[1])

    @property
    def n_rings(self) -> int:
        """Number of rings."""
        return len(self.edges)

    @property
    def n_bands(self) -> int:
        """Number of bands."""
        return int(self.bands.max()) + 1

    @property
    def n_bins(self) -> int:
        """Number of finest bins."""
        return self.n_cells * self.n_rings

    def codes(self, rows: Array) -> NDArray[np.int32]:
        """Return the finest bin of each row, cell * n_rings + ring; -1 for a row that is out of range or not finite."""
        size = max(1, _CODES_BLOCK_BYTES // (8 * len(self.points)))
        parts = [self._block(rows[start : start + size]) for start in range(0, len(rows), size)]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def _block(self, rows: Array) -> NDArray[np.int32]:
        with np.errstate(all="ignore"):
            grid = np.rint((rows - self.origin) / self.step)
            reach = np.abs(self.points).max() + math.ceil(self.edges[-1] / self.step)
            near = (np.abs(grid) <= reach).all(axis=1)
        codes = np.full(len(rows), -1, np.int32)
        grid = grid[near]
        # |s - c|² less |s|²: sums of products of whole numbers below 2⁵³ in all (see `grid_step`), so none is rounded,
        # in whatever order they are added. A row's bin therefore depends on no other row of its block, and one record
        # is counted in one bin or in none.
        squares = grid @ (-2.0 * self.points.T)
        squares += np.einsum("ij,ij->i", self.points, self.points)
        cell = squares[:, : self.n_cells].argmin(axis=1)
        nearest = squares.min(axis=1) + np.einsum("ij,ij->i", grid, grid)
        ring = np.searchsorted((self.edges / self.step) ** 2, nearest)
        inside = ring < self.n_rings
        codes[np.flatnonzero(near)[inside]] = (cell * self.n_rings + ring)[inside]
        return codes

    def coarse(self) -> NDArray[np.int64]:
        """Return the coarse bin of each finest bin, coarsest cell * n_bands + band; the last entry maps -1 to -1."""
        cell = np.repeat(self.ancestors[0], self.n_rings)
        return np.append(cell * self.n_bands + np.tile(self.bands, self.n_cells), -1)

    def rings(self) -> NDArray[np.int64]:
        """Return the ring of each finest bin; the last entry maps -1 to -1."""
        return np.append(np.tile(np.arange(self.n_rings), self.n_cells), -1)


def make_cells(targets: Array, *, edges: Array, sizes: Sequence[int], bands: Array) -> Cells:
    """Return cells and rings around public `targets`.

    Parameters
    ----------
    targets : ndarray of shape (n_points, n_features)
        Best medoids first: a level of s cells has the first s as its centres.
    edges : ndarray
        Outer edges of the rings.
    sizes : sequence of int
        Cells per level, coarsest first.
    bands : ndarray
        Rings that are counted together within a cell have the same band.
    """
    origin = (targets.max(axis=0) + targets.min(axis=0)) / 2
    reach = float(np.abs(targets - origin).max()) + 2 * float(edges[-1])
    step = grid_step(reach, targets.shape[1])
    points = np.rint((targets - origin) / step)
    # Chained, so that a coarse cell is a union of whole finer ones.
    ancestors = [np.arange(sizes[-1])]
    for size, below in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
        centres = points[:size]
        parents = (np.einsum("ij,ij->i", centres, centres) - 2 * points[:below] @ centres.T).argmin(axis=1)
        ancestors.append(parents[ancestors[-1]])
    return Cells(origin, step, points, np.array(ancestors[::-1]), np.asarray(edges, dtype=float), np.asarray(bands))


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
    """Number of pool points in each finest bin, and how many of them lie within each radius of each target.

    Parameters
    ----------
    radii : ndarray of shape (n_radii,)
        Increasing.
    sizes : ndarray of shape (n_bins,)
        Pool points per finest bin.
    near : sparse array of shape (n_targets * n_radii, n_bins)
        How many of them lie within a radius of a target.
    """

    radii: Array
    sizes: Array
    near: csr_array

    def of(self, part: NDArray[np.int64], n_parts: int, weights: Array) -> csr_array:
        """Return, for every target and radius, which share of each part of a partition lies within that radius.

        The share of a part is that of its pool points, each with the weight of its bin, so no distance is computed
        again.
        """
        n = len(self.sizes)
        join = csr_array((weights.astype(np.float32), part, np.arange(n + 1)), shape=(n, n_parts))
        sizes = np.bincount(part, weights=self.sizes * weights, minlength=n_parts)
        shares = (self.near @ join).tocsr()
        shares.data /= sizes[shares.indices].astype(np.float32)
        return shares


def scatter(targets: Array, cells: Cells, size: int) -> tuple[Array, NDArray[np.int32]]:
    """Return about `size` pool points, scattered in random directions around the targets, and their finest bins."""
    random = np.random.default_rng(_POOL_SEED)
    per_ring = max(1, size // (cells.n_rings * len(targets)))
    if len(targets) * cells.n_rings > size:
        targets = targets[random.choice(len(targets), size // cells.n_rings, replace=False)]
    inner = np.append(0.0, cells.edges[:-1])
    points = []
    for low, high in zip(inner, cells.edges, strict=True):
        around = np.repeat(targets, per_ring, axis=0)
        away = random.standard_normal(around.shape)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        points.append(around + random.uniform(low, high, len(around))[:, None] * away)
    pool = np.vstack(points)
    codes = cells.codes(pool)
    known = codes >= 0
    return pool[known], codes[known]


def make_shares(targets: Array, radii: Array, pool: Array, codes: NDArray[np.int32], n_bins: int) -> Shares:
    """Return how many pool points of each bin lie within each of `radii` of the public `targets`."""
    order = np.argsort(codes, kind="stable")
    pool, codes = pool[order], codes[order].astype(np.int64)
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

    Parameters
    ----------
    rows : ndarray
        Row numbers of the targets whose costs are summed: all of them, or a sample if there are very many.
    cells : Cells
    shares : Shares
        For the targets `rows`.
    """

    rows: NDArray[np.int64]
    cells: Cells
    shares: Shares


def surroundings(T: Array, n_clusters: Sequence[int], *, n_bands: int) -> Surroundings:
    """Return the bins around public targets `T`, scaled for choosing each of `n_clusters` numbers of centres."""
    random = np.random.default_rng(_TARGET_SAMPLE_SEED)
    rows = _sample(len(T), _MOST_SUMMED_TARGETS, random)
    points = rows if len(rows) <= _MOST_RING_TARGETS else rows[_sample(len(rows), _SAMPLED_RING_TARGETS, random)]
    near, far = _medoid_counts(n_clusters, len(points))
    n_cells = min(max(_FINEST_CELLS, len(rows) // _TARGETS_PER_CELL), math.ceil(0.6 * len(points)))
    medoids = _medoids(T, points, max(n_cells, far), random)
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
    edges = np.geomspace(inner, reach, _N_RINGS)
    order = np.concatenate([medoids, np.setdiff1d(points, medoids)])
    cells = make_cells(T[order], edges=edges, sizes=_sizes(n_cells), bands=_BANDS[n_bands])
    pool, codes = scatter(T[rows], cells, max(_POOL_POINTS, _POOL_POINTS_PER_CELL * n_cells))
    radii = np.geomspace(0.25 * usual, reach, _N_RADII)
    return Surroundings(rows, cells, make_shares(T[rows], radii, pool, codes, cells.n_bins))


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


def _sizes(n_cells: int) -> list[int]:
    """Return the number of cells of each level, coarsest first, doubling from level to level."""
    sizes = [_COARSEST_CELLS]
    while 2 * sizes[-1] < n_cells:
        sizes.append(2 * sizes[-1])
    return [size for size in sizes if size < n_cells] + [n_cells]


def _sample(n: int, most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return range(n), or a random sample of it if n exceeds `most`."""
    return np.arange(n) if n <= most else np.sort(random.choice(n, most, replace=False))
