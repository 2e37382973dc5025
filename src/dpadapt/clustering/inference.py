"""Post-processing: from released counts to centres.

In this order: the gate; the posterior of the number of sources in each part; how sources lie within their parts; the
expected distance of a target to its nearest source; the choice of centres.
Nothing here reads a source.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.sparse import csr_array
from scipy.special import gammaln, pdtr

from dpadapt.clustering.public_cells import Surroundings
from dpadapt.clustering.releases import Noise, Plan, Released
from dpadapt.clustering.solver import Centres, each_k_medoids, nearest

Array = NDArray[Any]

# Constants were chosen by hand, on the development draws that docs/benchmarks/clustering.md lists.

# Values of s times the noise scale at which Chernoff's bound is computed; any value gives a valid bound.
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
