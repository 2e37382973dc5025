"""Everything that is computed without a source: bins and the plan from public targets, then centres from counts.

In this order: nested cells around greedy medoids, and rings by distance to the targets, are the bins in which sources
are counted. A public pool of points scattered around the targets tells how much of each bin lies near each target. The
plan says which counts are released, with which noise. From the released counts follow the finer partition, the gate,
the posterior of the number of sources in each part, how sources lie within their parts, the expected distance of a
target to its nearest source, and the choice of centres.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.optimize import bisect
from scipy.sparse import csr_array, eye_array, kron, vstack
from scipy.spatial.distance import cdist
from scipy.special import gammaln, pdtr

from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.clustering.solver import Centres, each_k_medoids, greedy, nearest
from dpadapt.data import Public, Remembered
from dpadapt.learning.base import split_noise
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.events import ConcentratedEvent
from dpadapt.mechanisms.mechanism import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Mechanism
from dpadapt.rows import CACHE_BYTES

Array = NDArray[Any]
Law = Literal["laplace", "gaussian"]
Mechanisms = tuple[DiscreteLaplace | DiscreteGaussian | Laplace | Gaussian, ...]

LABELS = "sources in coarse cells, by distance", "sources in cells split by the coarse counts"

# Constants were chosen by hand, on the development draws in docs/benchmarks/clustering.md. Half and twice those of
# priors, clumping and levels to the parent change costs by 0.4% and less (+- 1%; `tools/constants.py clustering`).

# Whole numbers up to this are exact in float64.
_LARGEST_EXACT = 2.0**53
# Bytes of a block of distances from sources to targets. Distances from targets to pool points that are held at a
# time: memory against passes of a Python loop.
_ASSIGNED_BLOCK_BYTES, _POOL_BLOCK_ENTRIES = CACHE_BYTES, 2**20
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
# Shares of epsilon (or of rho) that the two histograms get, in the order of LABELS. More for the first gives a better
# partition, but noisier counts in it.
HISTOGRAM_BUDGET_SHARES = 0.12, 0.88
# Levels between a part and the parent within which parts are compared. Sources can be spread evenly over large cells
# and be clumped in small ones, so the parent should be small; but one level alone leaves about two parts to compare.
_LEVELS_TO_PARENT = 2
# Values of s times the noise scale at which Chernoff's bound is computed; any value below 1 gives a valid bound.
_CHERNOFF_KNOTS = np.linspace(0.02, 0.98, 49)
# Iterations of EM for the prior, and numbers of sources on its grid: more are slower and more exact.
_PRIOR_ITERATIONS, _PRIOR_GRID_SIZE = 150, 36
# A positive number of sources below this many noise scales can't be distinguished from 0, so the prior excludes it.
# Weight of a uniform prior, in parts: numbers that no other part suggests stay possible.
_LEAST_COUNT_IN_SCALES, _UNIFORM_PRIOR_PARTS = 2.0, 1.0
# Weight of the rings of all cells in one of them, in noise scales per ring: worse where the rings of cells differ.
_RING_PRIOR_IN_SCALES = 0.2
# Clumping, the parameter of Pólya's urn (small: sources are concentrated in few places): the value where counts are
# uninformative, and the range that is allowed.
_USUAL_CLUMPING, _LEAST_CLUMPING, _MOST_CLUMPING = 2.0, 0.5, 32.0
# Pólya's parameter grows by 1 for every this many sources of a part: else hundreds would all sit in a few clumps.
_MOST_IN_CLUMP = 100.0
# Shares at which the probability of missing a part's sources is tabulated; most shares are small. Shares that are
# looked up at a time: memory against passes of a Python loop.
_SHARE_KNOTS, _SHARES_AT_ONCE = np.linspace(0, 1, 65) ** 2, 2**20
# Probabilities below this are raised to it: their logarithm is finite. Distance for having no centre, in largest radii.
_LEAST_PROBABILITY, _FAR_IN_REACHES = 1e-30, 10.0
# The odds of an empty part are multiplied by this: larger odds use fewer sources that exist, and fewer that do not.
_EMPTY_ODDS = 5.0
# Numbers of neighbours that are compared for the bound on the cost: the largest, and how many on a geometric scale.
_MOST_BOUND_NEIGHBOURS, _COMPARED_NEIGHBOUR_NUMBERS = 4096, 25

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


@dataclass(frozen=True)
class Noise:
    """Distribution of the noise on a count: Laplace or Gaussian of a known scale, discrete if counts are `whole`."""

    law: Law
    scale: float
    whole: bool = True

    @property
    def variance(self) -> float:
        """Variance of the continuous distribution of this scale, an upper approximation of the discrete one."""
        return (2.0 if self.law == "laplace" else 1.0) * self.scale**2

    def log_density(self, errors: Array) -> Array:
        """Return the log probability (or density) of each error, up to a constant that cancels in every ratio."""
        scaled = errors / self.scale
        return -np.abs(scaled) if self.law == "laplace" else -0.5 * scaled**2

    def log_moment(self, s: Array) -> Array:
        """Return log E exp(s noise), or an upper bound on it, for 0 < s < 1 / scale."""
        if self.law == "laplace" and self.whole:
            # P(noise = x) is proportional to a^|x| with a = exp(-1 / scale): the mean is a geometric series.
            a = -1 / self.scale
            return np.asarray(2 * np.log(-np.expm1(a)) - np.log(-np.expm1(a + s)) - np.log(-np.expm1(a - s)))
        # E exp(s noise) is 1 / (1 - (s scale)²) for Laplace noise, exp((s scale)² / 2) for Gaussian noise. Neither is
        # larger on a grid of step g: sinh(s g / 2) / sinh(g / (2 scale)) <= s scale takes the place of s scale in the
        # first; for the second see Canonne, Kamath and Steinke 2020, Lemma 9.
        square = (s * self.scale) ** 2
        moment = -np.log1p(-square) if self.law == "laplace" else square / 2
        # `Laplace` and `Gaussian` also round the count or the sum, by less than 2⁻²³ scales.
        return np.asarray(moment if self.whole else moment + 2.0**-23 * s * self.scale)


@dataclass(frozen=True, eq=False)
class Plan:
    """What one fit releases: in which public bins, with which noise, and at which price.

    `group` is the coarse bin of each finest bin. `without` has the centres that ignore the sources (ClusterT), `noise`
    is that of each histogram. `charges` lists every release: the histograms, then one bound for each number of centres.
    """

    around: Surroundings
    group: NDArray[np.int64]
    without: Centres
    noise: tuple[Noise, Noise]
    charges: tuple[tuple[Mechanism, str], ...]


def make_plan(
    public: Public, T: Array, numbers: Sequence[int], mechanisms: Mechanisms, adjacency: Adjacency, bound_epsilon: float
) -> Plan:
    """Return the plan for choosing each of `numbers` centres among the targets `T`; `bound_epsilon` 0: no bounds."""
    law: Law = "laplace" if isinstance(mechanisms[0], DiscreteLaplace | Laplace) else "gaussian"
    whole = isinstance(mechanisms[0], DiscreteLaplace | DiscreteGaussian)
    around, without = prepare(public, T, numbers)
    # The sensitivity of a histogram does not depend on its rows, so that one without rows tells the scale. That of
    # `Laplace` grows a little with the number of bins: no histogram has more than this one.
    finest = histogram([], around.cells.n_bins)
    coarse, fine = (Noise(law, mechanism.scale(finest, adjacency), whole) for mechanism in mechanisms)
    bounds = [(Laplace(1 / bound_epsilon), "bound on the cost")] * len(numbers) if bound_epsilon else []
    return Plan(
        around, around.cells.coarse(), without, (coarse, fine), (*zip(mechanisms, LABELS, strict=True), *bounds)
    )


def stage_mechanisms(noise: str, epsilon: float, delta: float, *, whole: bool = True) -> Mechanisms:
    """Return the mechanisms of both histograms, at `epsilon`, `delta` together; continuous if counts aren't `whole`."""
    if noise == "laplace":
        # Each histogram has l1 sensitivity 1, and pure costs add up over the histograms.
        kind = DiscreteLaplace if whole else Laplace
        return tuple(kind(1 / (share * epsilon)) for share in HISTOGRAM_BUDGET_SHARES)
    if not whole:
        return tuple(map(Gaussian, split_noise(gaussian_mu(epsilon, delta), HISTOGRAM_BUDGET_SHARES)))
    # The largest rho whose zCDP costs at most epsilon. A little less, so that neither the search nor the sum of the
    # histograms' rounded rhos exceeds it.
    log_rho = bisect(lambda log: cost_of(ConcentratedEvent(math.exp(log)), delta) - epsilon, -60.0, 60.0, xtol=1e-9)
    rho = math.exp(log_rho) * (1 - 1e-8)
    return tuple(DiscreteGaussian(1 / np.sqrt(2 * share * rho)) for share in HISTOGRAM_BUDGET_SHARES)


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy counts and the partition that they refer to: post-processing from here on.

    `coarse` are the counts in coarse cells by ring, with `coarse_noise`; `counts` are those in the parts of the finer
    partition, with `noise`. `part` is the part of each finest bin, `parent` the cell and band that each part and its
    neighbours belong to, cell * n_bands + band.
    """

    coarse: Array
    coarse_noise: Noise
    counts: Array
    part: NDArray[np.int64]
    parent: NDArray[np.int64]
    n_bands: int
    noise: Noise


def partition(
    coarse: Array, cells: Cells, n_bands: int, least: float, margin: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the part of each finest bin, and the cell and band, a few levels coarser, that each part belongs to.

    Each coarse cell is split, in each band, at the finest level whose parts hold `least` sources on average, by its
    noisy count minus a margin; `margin` is for a single of the `coarse` counts, whose errors are independent.
    """
    band, top = BANDS[n_bands], cells.ancestors[0]
    n_top = int(top.max()) + 1
    in_band = np.stack([coarse[:, band == b].sum(axis=1) for b in range(n_bands)], axis=1)
    in_band = in_band - margin * np.sqrt(np.bincount(band))
    # How many cells of each level (rows) each coarse cell (columns) has.
    firsts = [np.unique(level, return_index=True)[1] for level in cells.ancestors]
    pieces = np.array([np.bincount(top[first], minlength=n_top) for first in firsts])
    enough = pieces[:, :, None] * least <= in_band
    enough[0] = True
    level = len(enough) - 1 - enough[::-1].argmax(axis=0)
    # For each finest cell and ring: the coarse cell and band, and the cell of the level that this bin is split at.
    parent = top[:, None] * n_bands + band
    cell = cells.ancestors[level[top[:, None], band], np.arange(len(top))[:, None]]
    _, where, part = np.unique((parent * len(top) + cell).ravel(), return_index=True, return_inverse=True)
    # Cells of different levels have different numbers if they lie in different coarse cells: a cell has the number of
    # its centre, whose coarse cell is the same at every level.
    above = np.maximum(level[top[:, None], band] - _LEVELS_TO_PARENT, 0)
    parent = cells.ancestors[above, np.arange(len(top))[:, None]] * n_bands + band
    return part, parent.ravel()[where]


def gate_opens(counts: Array, noise: Noise, probability: float) -> bool:
    """Return whether the largest counts can't be explained by noise and a single source or person.

    With at most one source or person in range, the answer is yes with at most this probability, for any number of parts
    and any noise scale: its counts add up to at most 1, and the sum of the j largest of n counts is the largest sum of
    any j of them. By Chernoff's bound and the union bound it reaches t + 1 with probability at most
    binomial(n, j) min_s exp(j log E exp(s noise) - s t). Several j are tried, each at its share of the probability.
    """
    n = len(counts)
    sizes = np.unique(np.rint(np.geomspace(1, n, 1 + math.ceil(math.log2(n)))).astype(np.int64))
    largest = np.sort(counts)[::-1].cumsum()[sizes - 1]
    s = _CHERNOFF_KNOTS / noise.scale
    choices = gammaln(n + 1) - gammaln(sizes + 1) - gammaln(n - sizes + 1) + math.log(len(sizes) / probability)
    thresholds = ((choices[:, None] + sizes[:, None] * noise.log_moment(s)) / s).min(axis=1)
    return bool((largest > thresholds + 1).any())


def count_posterior(counts: Array, noise: Noise) -> tuple[Array, Array]:
    """Return a grid of numbers of sources, the first of which is 0, and their probabilities (columns) in each part.

    The prior is the nonparametric maximum likelihood estimate (EM) on all parts. Then each part's own weight is taken
    out of it: a large count, which may be noise, would otherwise be its own evidence that such counts occur.
    """
    low = max(1.0, np.ceil(_LEAST_COUNT_IN_SCALES * noise.scale))
    high = max(float(counts.max(initial=0)) + 3 * noise.scale, 2 * low)
    grid = np.unique(np.concatenate([[0.0], np.rint(np.geomspace(low, high, _PRIOR_GRID_SIZE))]))
    likelihood = noise.log_density(counts[:, None] - grid)
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    prior = np.where(grid == 0, 0.5, 0.5 / (len(grid) - 1))
    for _ in range(_PRIOR_ITERATIONS):
        joint = likelihood * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = joint.mean(axis=0)
    others = len(joint) * prior - joint + _UNIFORM_PRIOR_PARTS / len(grid)
    joint = likelihood * np.maximum(others, 0.0)
    return grid, joint / joint.sum(axis=1, keepdims=True)


def pool_weights(released: Released, around: Surroundings) -> Array:
    """Return the weight of a pool point in each finest bin, by the released counts of coarse cells and rings.

    The pool has about as many points in every ring. Sources do not, and most bands and parts have several rings.
    """
    shape, scale, group = (-1, len(around.cells.edges)), released.coarse_noise.scale, around.cells.coarse()
    pool = np.bincount(group, weights=around.sizes, minlength=len(released.coarse)).reshape(shape)
    grid, probability = count_posterior(released.coarse, released.coarse_noise)
    # A cell's prior is how all sources are spread over the rings; that of these sums is the pool, by their own error.
    error, usual = math.sqrt(len(pool) * released.coarse_noise.variance), pool.sum(axis=0)
    rings = np.maximum(released.coarse.reshape(shape).sum(axis=0), 0) + error * usual / usual.mean()
    expected = (probability @ grid).reshape(shape) + _RING_PRIOR_IN_SCALES * scale * rings / rings.mean()
    return np.asarray((expected / np.maximum(pool, 1.0)).ravel()[group])


def clumping(counts: Array, parent: NDArray[np.int64], sizes: Array, noise: Noise) -> float:
    """Return the parameter of Pólya's urn within parts, estimated from how sources fill the parts of each parent.

    N sources in parts of shares q, which follow from the `sizes` of their pools, have variance
    q (1 - q) N (1 + (N - 1) / (clumping + 1)) each. The last factor is estimated from the squared deviations of all
    counts minus that of the noise, shrunk towards the usual one.
    """
    whole, total, siblings = (np.bincount(parent, weights=w)[parent] for w in (sizes, counts, np.ones(len(counts))))
    used = (siblings > 1) & (total > 0) & (sizes > 0)
    shares, total, siblings = sizes[used] / whole[used], total[used], siblings[used]
    spread = shares * (1 - shares)
    # Noise variance of a count minus its share of the sum, in which that count is included.
    own_noise = noise.variance * ((1 - shares) ** 2 + shares**2 * (siblings - 1))
    excess = (counts[used] - total * shares) ** 2 - own_noise - total * spread
    # The sum of n squared Laplace noises has standard deviation sqrt(5 n) times their variance; of Gaussian ones, less.
    uncertainty = noise.variance * np.sqrt(5.0 * max(len(shares), 1))
    # The squared noise of the sum is not evidence of many sources.
    pairs = np.maximum(total * (total - 1) - siblings * noise.variance, 0.0)
    together = (excess.sum() + uncertainty) / ((pairs * spread).sum() + uncertainty * (1 + _USUAL_CLUMPING))
    return float(np.clip(1 / max(together, 1e-9) - 1, _LEAST_CLUMPING, _MOST_CLUMPING))


@dataclass(frozen=True, eq=False)
class ExpectedCost:
    """E min(a, d(x, S)) as a function of the target x and the distance a to its nearest centre.

    It is ∫₀ᵃ P(no source within u) du: concave and increasing in a, so that solvers for distances can use it. Without
    sources it is a itself. `integral` has a row for each target and a column for each of `knots`; `slope` is between.
    """

    knots: Array
    integral: Array
    slope: Array

    @classmethod
    def of(cls, alive: Array, radii: Array) -> "ExpectedCost":
        """Return the cost, given the probability that no source is within each radius (columns) of a target (rows)."""
        knots = np.concatenate([[0.0], radii, [_FAR_IN_REACHES * radii[-1]]])
        heights = np.column_stack([np.ones(len(alive)), alive, alive[:, -1]])
        integral = cumulative_trapezoid(heights, knots, initial=0)
        return cls(knots, integral, np.diff(integral) / np.diff(knots))

    def __call__(self, targets: NDArray[np.int64], distances: Array) -> Array:
        """Return the expected cost of `targets`, of shape (p,), at `distances`, of shape (p, c), possibly infinite."""
        # An infinite distance (no centre at all) costs as much as a centre far away.
        away = np.minimum(distances, self.knots[-1])
        place = np.searchsorted(self.knots[1:-1], away.ravel(), side="right").reshape(away.shape)
        row = targets[:, None]
        return np.asarray(self.integral[row, place] + (away - self.knots[place]) * self.slope[row, place])

    def mean(self, distances: Array) -> float:
        """Return the mean cost over all targets, given the distance of each to its nearest centre."""
        return float(self(np.arange(len(distances)), distances[:, None]).mean())


def none_near(shares: csr_array, posterior: Array, grid: Array, clumping: float) -> Array:
    """Return the probability that no source is within a radius of a target, per row of `shares`.

    `shares` is that of `Surroundings`; `posterior` has the probabilities of the numbers of sources `grid` in each part.
    Small `clumping`: sources of one part sit together; infinity: they are spread evenly over it.
    """
    # Under Pólya's urn v sources all miss a share p with probability Γ(a (1 - p) + v) Γ(a) / (Γ(a (1 - p)) Γ(a + v)).
    v = grid[:, None]
    a = clumping + v / _MOST_IN_CLUMP
    rest = np.maximum(a * (1 - _SHARE_KNOTS), 1e-12)
    missed = posterior @ np.exp(gammaln(rest + v) - gammaln(rest) + gammaln(a) - gammaln(a + v))
    table = np.log(np.maximum(missed, _LEAST_PROBABILITY))
    logs, last = np.empty(shares.nnz), len(_SHARE_KNOTS) - 1
    for block in (slice(start, start + _SHARES_AT_ONCE) for start in range(0, shares.nnz, _SHARES_AT_ONCE)):
        # Linear between the knots of the table.
        share, part = shares.data[block], shares.indices[block]
        low = np.minimum((np.sqrt(share) * last).astype(np.int64), last - 1)
        along = (share - _SHARE_KNOTS[low]) / (_SHARE_KNOTS[low + 1] - _SHARE_KNOTS[low])
        logs[block] = table[part, low] + along * (table[part, low + 1] - table[part, low])
    # Parts are independent, given the counts: no source is near if each part's sources all miss.
    return np.asarray(np.exp(csr_array((logs, shares.indices, shares.indptr), shape=shares.shape).sum(axis=1)))


def cautious(grid: Array, probability: Array, odds: float) -> Array:
    """Return the probabilities of numbers of sources, with the odds of "no source" multiplied by `odds`.

    Relying on sources that don't exist leaves targets uncovered; missing some only wastes a centre.
    """
    moved = probability * np.where(grid == 0, odds, 1.0)
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def model_sources(released: Released, around: Surroundings) -> tuple[ExpectedCost, Array]:
    """Return the expected cost, and the expected number of sources within each radius (columns) of a target (rows)."""
    n_parts, noise, radii = len(released.parent), released.noise, around.radii
    weight = pool_weights(released, around)
    shares = around.shares(released.part, n_parts, weight)
    # Where cells are counted ring by ring there are far more sources than pool points. How sources of the finest parts
    # lie within them can't be told from the counts: the most clumped of the allowed models is assumed.
    clumps = _LEAST_CLUMPING
    if released.n_bands < len(around.cells.edges):
        pool = np.bincount(released.part, weights=weight * around.sizes, minlength=n_parts)
        clumps = clumping(released.counts, released.parent, pool, noise)
    grid, probability = count_posterior(released.counts, noise)
    posterior = cautious(grid, probability, _EMPTY_ODDS)
    alive = none_near(shares, posterior, grid, clumps).reshape(-1, len(radii))
    return ExpectedCost.of(alive, radii), (shares @ (posterior @ grid)).reshape(-1, len(radii))


def choose(T: Array, plan: Plan, released: Released, *, gate: float) -> tuple[Centres, dict[int, float], Array]:
    """Return centres and their mean expected cost for each number of the plan, and the sources near targets.

    Where sources can't be shown to help, the centres are those that ignore them; see `gate_opens` for `gate`.
    """
    rows = plan.around.targets
    centres = {k: alone.copy() for k, alone in plan.without.items()}
    away = {k: nearest(rows, T[alone])[1] for k, alone in centres.items()}
    if not gate_opens(released.counts, released.noise, gate):
        costs = {k: float(distance.mean()) for k, distance in away.items()}
        return centres, costs, np.zeros((len(rows), len(plan.around.radii)))
    cost, near = model_sources(released, plan.around)
    for k, proposed in each_k_medoids(T, list(centres), cost, plan.around.rows).items():
        distance = nearest(rows, T[proposed])[1]
        # The solver need not find the minimum.
        if cost.mean(distance) < cost.mean(away[k]):
            centres[k], away[k] = proposed, distance
    return centres, {k: cost.mean(distance) for k, distance in away.items()}, near


def choose_neighbours(expected: Array, radii: Array, caps: Array, *, moved: float, epsilon: float, gamma: float) -> int:
    """Return the number of neighbours with which `certified_cost` is expected to be the smallest.

    `expected` is from `model_sources`; `caps` are the distances of the targets to their nearest centres; `moved` is
    from `most_moved`. More neighbours mean less noise but a higher mean distance.
    """
    numbers = np.unique(np.rint(np.geomspace(1, _MOST_BOUND_NEIGHBOURS, _COMPARED_NEIGHBOUR_NUMBERS)).astype(int))
    # With Poisson counts P(fewer than t within u) is known, and so is E min(cap, distance to the t-th nearest).
    furthest = [ExpectedCost.of(pdtr(t - 1, expected), radii).mean(caps) for t in numbers]
    totals = np.cumsum(furthest * np.diff(numbers, prepend=0))
    tail = moved * (math.log(1 / (2 * gamma)) + 1) / epsilon
    return int(numbers[np.argmin((totals + tail) / numbers)])
