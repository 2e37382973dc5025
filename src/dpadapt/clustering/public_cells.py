"""Everything that is prepared from the public targets before any source is read.

Nested cells around greedy medoids and rings by distance to the targets are the bins in which sources are counted.
A public pool of points scattered around the targets tells how much of each bin lies near each target.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, kron, vstack
from scipy.spatial.distance import cdist

from dpadapt.clustering.solver import Centres, each_k_medoids, greedy, nearest
from dpadapt.data import Public, Remembered

Array = NDArray[Any]

# Constants were chosen by hand, on the development draws that docs/benchmarks/clustering.md lists.

# Whole numbers up to this are exact in float64.
_LARGEST_EXACT = 2.0**53
# Bytes of a block of distances from sources to targets, so that it stays in the processor's cache. Distances from
# targets to pool points that are held at a time: memory against passes of a Python loop.
_ASSIGNED_BLOCK_BYTES, _POOL_BLOCK_ENTRIES = 2**20, 2**20
# Fixed seeds of public samples: the same targets give the same bins.
_POOL_SEED, _TARGET_SAMPLE_SEED = 5, 7
# Targets whose costs are summed: above it, a sample of this size. Time and memory grow with it.
_MOST_SUMMED_TARGETS = 5000
# Distances of sources are measured to all targets up to the first number, to a sample of the second size above it: the
# time to read the sources is proportional to it.
_MOST_RING_TARGETS, _SAMPLED_RING_TARGETS = 4096, 2048
# Targets among which the centres of cells are chosen. Time and memory grow with it.
_MOST_CELL_CANDIDATES = 2500
# Cells of each level, coarsest first: few coarsest cells mix covered and uncovered targets, many leave too few sources
# in each. No level has more than this share of the targets as centres.
_LEVELS, _MOST_CELLS_PER_TARGET = (10, 20, 40, 80, 160, 320, 640), 0.6
# Pool points: more give more exact shares, in more time and memory.
_POOL_POINTS = 40_000
# Radii at which expected distances are tabulated, and rings of distance: finer against slower and, for rings, noisier.
_N_RADII, _N_RINGS = 14, 7
# Which rings are counted together within a cell, by the number of bands.
BANDS = {2: np.array([0, 0, 0, 1, 1, 1, 1]), _N_RINGS: np.arange(_N_RINGS)}

_known: Remembered[tuple["Surroundings", Centres]] = Remembered()


def prepare(public: Public, T: Array, numbers: Sequence[int]) -> tuple["Surroundings", Centres]:
    """Return the bins of the targets `T`, and the centres that ignore the sources; made once for each `Public`."""
    return _known.get(public, [T, np.array(numbers)], lambda: (surroundings(T, numbers), each_k_medoids(T, numbers)))


@dataclass(frozen=True, eq=False)
class Cells:
    """Nested cells, and rings by distance, around public targets.

    The bin of a source is its nearest cell centre and how far it is from the targets: a function of that source and of
    public targets alone. `origin` and `step` are those of the grid that points are rounded to. `points` are targets on
    the grid; the first are the centres of the finest cells. Row l of `ancestors` has the cell of level l, coarsest
    first, that each finest cell belongs to. `edges` are the outer edges of the rings, in the units of the data. A
    source further from all points is not counted.
    """

    origin: Array
    step: float
    points: Array
    ancestors: NDArray[np.int64]
    edges: Array

    @property
    def n_bins(self) -> int:
        """Number of finest bins: every ring of every finest cell."""
        return int(self.ancestors.shape[1]) * len(self.edges)

    def codes(self, rows: Array) -> NDArray[np.int64]:
        """Return the finest bin of each row, cell * rings + ring; -1 for a row that is out of range or not finite."""
        n_cells, n_rings, codes = self.ancestors.shape[1], len(self.edges), np.full(len(rows), -1)
        with np.errstate(all="ignore"):
            grid = np.rint((rows - self.origin) / self.step)
            reach = np.abs(self.points).max() + math.ceil(self.edges[-1] / self.step)
            near = np.flatnonzero((np.abs(grid) <= reach).all(axis=1))
        products = np.vstack([-2.0 * self.points.T, np.einsum("ij,ij->i", self.points, self.points)])
        size = max(1, _ASSIGNED_BLOCK_BYTES // (8 * len(self.points)))
        for part in (near[start : start + size] for start in range(0, len(near), size)):
            # |s - c|² less |s|²: sums of products of whole numbers below 2⁵³ in all (see `make_cells`), so none is
            # rounded, in whatever order they are added. The bin of a row therefore depends on no other row of its
            # block, and one record is counted in one bin or in none.
            squares = np.column_stack([grid[part], np.ones(len(part))]) @ products
            nearest_square = squares.min(axis=1) + np.einsum("ij,ij->i", grid[part], grid[part])
            ring = np.searchsorted((self.edges / self.step) ** 2, nearest_square)
            codes[part] = np.where(ring < n_rings, squares[:, :n_cells].argmin(axis=1) * n_rings + ring, -1)
        return codes

    def coarse(self) -> NDArray[np.int64]:
        """Return the coarse bin of each finest bin, coarsest cell * rings + ring."""
        n_rings = len(self.edges)
        return np.asarray((self.ancestors[0][:, None] * n_rings + np.arange(n_rings)).ravel())


def make_cells(targets: Array, *, edges: Array, sizes: Sequence[int]) -> Cells:
    """Return cells and rings around public `targets`, best medoids first: a level of s cells has the first s."""
    origin = (targets.max(axis=0) + targets.min(axis=0)) / 2
    reach = float(np.abs(targets - origin).max()) + 2 * float(edges[-1])
    # Claim: the nearest centre of a source depends on that source alone. Distances are exact whole numbers: |s|² + 2
    # |s'c| + |c|² <= 4 n_features q², q the largest coordinate in steps: below 2⁵³ for q² = 2⁵⁰ / n_features. The step
    # is a power of two, so that dividing by it does not round.
    step = 2 * reach / math.sqrt(_LARGEST_EXACT / (8 * targets.shape[1]))
    step = math.ldexp(1.0, math.ceil(math.log2(step))) if step > 0 else 1.0
    points = np.rint((targets - origin) / step)
    # Chained, so that a coarse cell is a union of whole finer ones.
    ancestors = [np.arange(sizes[-1])]
    for size, below in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
        parents = nearest(points[:below], points[:size])[0]
        ancestors.append(parents[ancestors[-1]])
    return Cells(origin, step, points, np.array(ancestors[::-1]), np.asarray(edges, dtype=float))


def scatter(targets: Array, cells: Cells, size: int) -> tuple[Array, NDArray[np.int64]]:
    """Return about `size` pool points, scattered in random directions around the targets, and their finest bins."""
    random = np.random.default_rng(_POOL_SEED)
    n_rings = len(cells.edges)
    if len(targets) * n_rings > size:
        targets = targets[random.choice(len(targets), size // n_rings, replace=False)]
    around = np.repeat(targets, size // (n_rings * len(targets)), axis=0)
    points = []
    for low, high in zip(np.append(0.0, cells.edges[:-1]), cells.edges, strict=True):
        away = random.standard_normal(around.shape)
        away *= random.uniform(low, high, (len(around), 1)) / np.linalg.norm(away, axis=1, keepdims=True)
        points.append(around + away)
    pool = np.vstack(points)
    codes = cells.codes(pool)
    # Sorted by bin: looking the points up takes half the time if similar distances follow each other.
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    return pool[order], codes[order]


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Bins around public targets, and how near the pool points in them are to each target.

    `rows` are the numbers of the targets whose costs are summed: all, or a sample if there are very many. `targets` are
    these targets. `sizes` has the number of pool points in each finest bin (columns of `near`). `near` has a row for
    each target and radius, target * n_radii + radius: pool points within that radius, and beyond the one before it.
    """

    rows: NDArray[np.int64]
    targets: Array
    cells: Cells
    radii: Array
    sizes: Array
    near: csr_array

    def shares(self, part: NDArray[np.int64], n_parts: int, weight: Array) -> csr_array:
        """Return, for every target and radius, which share of each part's pool points lies within that radius.

        Pool points count by the `weight` of their finest bin.
        """
        n, n_radii = len(self.sizes), len(self.radii)
        join = csr_array((weight.astype(np.float32), part, np.arange(n + 1)), shape=(n, n_parts))
        add_up = np.tril(np.ones((n_radii, n_radii), dtype=np.float32))
        every = eye_array(len(self.targets), dtype=np.float32)
        shares = csr_array(kron(every, add_up, format="csr") @ (self.near @ join))
        whole = np.bincount(part, weights=weight * self.sizes, minlength=n_parts)
        shares.data /= whole[shares.indices].astype(np.float32)
        return shares


def surroundings(T: Array, n_clusters: Sequence[int]) -> Surroundings:
    """Return the bins around public targets `T`, scaled for choosing each of `n_clusters` numbers of centres."""
    random = np.random.default_rng(_TARGET_SAMPLE_SEED)
    rows = _sample(np.arange(len(T)), _MOST_SUMMED_TARGETS, random)
    points = rows if len(rows) <= _MOST_RING_TARGETS else _sample(rows, _SAMPLED_RING_TARGETS, random)
    candidates = _sample(points, _MOST_CELL_CANDIDATES, random)
    # A small and a large number of centres, from which the scales of the problem are computed.
    low, high = min(n_clusters), max(n_clusters)
    if low == high:
        low, high = max(1, round(low / 5)), round(1.4 * high)
    most_cells = math.ceil(_MOST_CELLS_PER_TARGET * len(candidates))
    sizes = [size for size in _LEVELS if size <= most_cells] or [most_cells]
    middle = T[points].mean(axis=0)
    cost = cdist(T[candidates] - middle, T[points] - middle).T
    count = min(max(sizes[-1], high), len(candidates))
    medoids = candidates[greedy(cost, np.full(len(points), np.inf), count)]
    # Beyond `reach` a source hardly serves a target better than a few centres do.
    reach = float(np.quantile(nearest(T[rows], T[medoids[:low]])[1], 0.95))
    # The usual distance is that to many centres.
    usual = float(nearest(T[rows], T[medoids[:high]])[1].mean())
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
    near = _near(T[rows], radii, pool, codes, cells.n_bins)
    return Surroundings(rows, T[rows], cells, radii, np.bincount(codes, minlength=cells.n_bins), near)


def _near(targets: Array, radii: Array, pool: Array, codes: NDArray[np.int64], n_bins: int) -> csr_array:
    """Return `Surroundings.near`."""
    size, parts = max(1, _POOL_BLOCK_ENTRIES // max(1, len(pool))), []
    for start in range(0, len(targets), size):
        block = targets[start : start + size]
        within = np.searchsorted(radii, cdist(block, pool))
        target, point = np.nonzero(within < len(radii))
        row = target * len(radii) + within[target, point]
        # Pool points of one bin that are equally far from a target are entries of the same place, and are added up.
        entries = np.ones(len(row), dtype=np.float32), (row, codes[point])
        parts.append(csr_array(entries, shape=(len(block) * len(radii), n_bins)))
    return csr_array(vstack(parts))


def _sample(rows: NDArray[np.int64], most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows, or a sorted random sample of them if there are more than `most`."""
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))
