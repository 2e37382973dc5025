"""Post-processing: from released counts to centres.

In this order: the gate; the posterior of the number of sources in each part; how sources lie within their parts; the
expected distance of a target to its nearest source; the choice of centres, and its test under a strict model.
Nothing here reads a source.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

from dpadapt.clustering.public_cells import Centres, Surroundings
from dpadapt.clustering.releases import Counts, Noise, Plan, Released
from dpadapt.clustering.solver import capped_k_medoids, distances, faster_pam, greedy, nearest

Array = NDArray[Any]

# The tuned constants below were chosen on the development draws that docs/clustering.md lists; where a comment gives no
# figure, what neighbouring values cost was not recorded.

# Values of s times the noise scale at which Chernoff's bound is computed; any value gives a valid bound.
_CHERNOFF_KNOTS = np.linspace(0.02, 0.98, 49)
# Iterations of EM for the prior, and numbers of sources on its grid: more are slower and more exact.
_PRIOR_ITERATIONS, _PRIOR_GRID_SIZE = 150, 36
# A positive number of sources below this many noise scales can't be distinguished from 0, so the prior excludes it.
_LEAST_COUNT_IN_SCALES = 2.0
# Weight of a uniform prior, in parts: numbers that no other part suggests stay possible.
_UNIFORM_PRIOR_PARTS = 1.0
# Clumping, the parameter of Pólya's urn (small: sources are concentrated in few places): the value where counts are
# uninformative, and the range that is allowed. A usual value of 8 changed no gap by more than .002.
_USUAL_CLUMPING, _LEAST_CLUMPING, _MOST_CLUMPING = 2.0, 0.5, 32.0
# Pólya's parameter grows by 1 for every this many sources of a part: without that, hundreds of sources would all sit in
# the same few clumps, and the gap at epsilon .1 rose from .59 to .67 (real) and from .32 to .52 (synthetic).
_MOST_IN_CLUMP = 100.0
# Shares at which the probability of missing a part's sources is tabulated; most shares are small.
_SHARE_KNOTS = np.linspace(0, 1, 65) ** 2
# Probabilities below this are raised to it, so that their logarithm is finite.
_LEAST_PROBABILITY = 1e-30
# Distance that stands for having no centre at all, in units of the largest radius.
_FAR_IN_REACHES = 10.0
# The odds of an empty part are multiplied by the first number for the choice, by the second in the strict model; the
# third multiplies the clumping there. With 1 instead of 5, the gap at epsilon .3 rose from .58 to .64 (real) and from
# .21 to .25 (synthetic), on 8 development draws with 4 runs each that were picked because they are prone to harm.
_EMPTY_ODDS, _STRICT_EMPTY_ODDS, _STRICT_CLUMPING = 5.0, 15.0, 0.25
# Probability that some empty part is taken to hold sources in the strict model, and the most by which the cost may rise
# under that model, as a share. On the same draws at epsilon .3 and .1, 3 of 192 answers cost over 1.01 times those
# without sources with .05, 1 with .02 and 3 with 0; the gap on the real ones was .02 to .05 lower with .05.
_STRICT_FALSE_ALARM, _MOST_STRICT_RISE = 0.1, 0.02
# Up to this many targets all distances between targets are held at once: less time, more memory.
_MOST_TARGETS_AT_ONCE = 5000


def gate_opens(counts: Counts, noise: Noise, probability: float) -> bool:
    """Return whether the largest counts can't be explained by noise and a single source.

    With at most one source in range, the answer is yes with at most this probability, for any number of parts and any
    noise scale: the sum of the j largest of n counts is the largest sum of any j of them. By Chernoff's bound and the
    union bound it reaches t + 1 with probability at most binomial(n, j) min_s exp(j log E exp(s noise) - s t). Several
    j are tried, each at its share of the probability.
    """
    n = len(counts)
    sizes = np.unique(np.rint(np.geomspace(1, n, 1 + math.ceil(math.log2(n)))).astype(np.int64))
    largest = np.sort(counts)[::-1].cumsum()[sizes - 1]
    s = _CHERNOFF_KNOTS / noise.scale
    choices = gammaln(n + 1) - gammaln(sizes + 1) - gammaln(n - sizes + 1) + math.log(len(sizes) / probability)
    thresholds = ((choices[:, None] + sizes[:, None] * noise.log_moment(s)) / s).min(axis=1)
    return bool((largest > thresholds + 1).any())


@dataclass(frozen=True, eq=False)
class CountPosterior:
    """Probabilities of the numbers of sources `grid`, the first of which is 0 (columns), in each part (rows)."""

    grid: Array
    probability: Array

    def cautious(self, odds: float, confirmed: NDArray[np.bool_] | None = None) -> Array:
        """Return the probabilities with the odds of "no source" multiplied by `odds`; no source if not `confirmed`.

        Relying on sources that don't exist leaves targets uncovered; missing some only wastes a centre.
        """
        moved = self.probability.copy()
        moved[:, 0] *= odds
        if confirmed is not None:
            moved[~confirmed] = self.grid == 0
        return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def count_posterior(counts: Counts, kind: NDArray[np.int64], noise: Noise) -> CountPosterior:
    """Return the posterior of the number of sources in every part, with one prior for each kind of part."""
    low = max(1.0, np.ceil(_LEAST_COUNT_IN_SCALES * noise.scale))
    high = max(float(counts.max(initial=0)) + 3 * noise.scale, 2 * low)
    grid = np.unique(np.concatenate([[0.0], np.rint(np.geomspace(low, high, _PRIOR_GRID_SIZE))]))
    likelihood = noise.log_density(counts[:, None] - grid)
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    probability = np.empty_like(likelihood)
    for one in np.unique(kind):
        probability[kind == one] = _fitted(likelihood[kind == one])
    return CountPosterior(grid, probability)


def _fitted(likelihood: Array) -> Array:
    """Return posteriors, each under the prior that is most likely given the other parts.

    The prior is the nonparametric maximum likelihood estimate (EM) on all parts. Then each part's own weight is taken
    out of it: a large count, which may be noise, would otherwise be its own evidence that such counts occur.
    """
    n_grid = likelihood.shape[1]
    prior = np.full(n_grid, 0.5 / (n_grid - 1))
    prior[0] = 0.5
    joint = likelihood
    for _ in range(_PRIOR_ITERATIONS):
        joint = likelihood * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = joint.mean(axis=0)
    others = len(joint) * prior - joint + _UNIFORM_PRIOR_PARTS / n_grid
    joint = likelihood * np.maximum(others, 0.0)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def clumping(counts: Counts, parent: NDArray[np.int64], sizes: Array, noise: Noise) -> float:
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
    sources it is a itself. `integral` and `slope` have a row for each target and a column for each of `knots`.
    """

    knots: Array
    integral: Array
    slope: Array

    @classmethod
    def of(cls, alive: Array, radii: Array) -> "ExpectedCost":
        """Return the cost, given the probability that no source is within each radius (columns) of a target (rows)."""
        knots = np.append(0.0, radii)
        heights = np.column_stack([np.ones(len(alive)), alive])
        means = (heights[:, 1:] + heights[:, :-1]) / 2
        integral = np.column_stack([np.zeros(len(alive)), (np.diff(knots) * means).cumsum(axis=1)])
        return cls(knots, integral, np.column_stack([means, alive[:, -1]]))

    def __call__(self, targets: NDArray[np.int64], distances: Array) -> Array:
        """Return the expected cost of `targets`, of shape (p,), at `distances`, of shape (p, c), possibly infinite."""
        place = np.searchsorted(self.knots, distances.ravel(), side="right").reshape(distances.shape) - 1
        row = targets[:, None]
        # An infinite distance (no centre at all) costs as much as a centre far away.
        beyond = np.minimum(distances, _FAR_IN_REACHES * self.knots[-1]) - self.knots[place]
        return np.asarray(self.integral[row, place] + beyond * self.slope[row, place])

    def mean(self, distances: Array) -> float:
        """Return the mean cost over all targets, given the distance of each to its nearest centre."""
        return float(self(np.arange(len(distances)), distances[:, None]).mean())


def none_near(shares: csr_array, posterior: Array, grid: Array, clumping: float) -> Array:
    """Return the probability that no source is within a radius of a target, per row of `shares` (see `Shares.of`).

    `posterior` has the probabilities of the numbers of sources `grid` in each part. Small `clumping`: sources of one
    part sit together; infinity: they are spread evenly over it.
    """
    # Under Pólya's urn v sources all miss a share p with probability Γ(a (1 - p) + v) Γ(a) / (Γ(a (1 - p)) Γ(a + v)).
    # With a alone, ever more sources would sit in the same few clumps; so a grows once they number hundreds.
    v = grid[:, None]
    a = clumping + v / _MOST_IN_CLUMP
    rest = np.maximum(a * (1 - _SHARE_KNOTS), 1e-12)
    missed = posterior @ np.exp(gammaln(rest + v) - gammaln(rest) + gammaln(a) - gammaln(a + v))
    table = np.log(np.maximum(missed, _LEAST_PROBABILITY))
    # Linear between the knots of the table.
    low = np.minimum((np.sqrt(shares.data) * (len(_SHARE_KNOTS) - 1)).astype(np.int64), len(_SHARE_KNOTS) - 2)
    along = (shares.data - _SHARE_KNOTS[low]) / (_SHARE_KNOTS[low + 1] - _SHARE_KNOTS[low])
    left, right = table[shares.indices, low], table[shares.indices, low + 1]
    # Parts are independent, given the counts: no source is near if each part's sources all miss.
    logs = np.add.reduceat(np.append(left + along * (right - left), 0.0), shares.indptr[:-1])
    return np.asarray(np.exp(np.where(np.diff(shares.indptr) == 0, 0.0, logs)))


@dataclass(frozen=True, eq=False)
class SourceModel:
    """What the released counts tell about the sources, as seen from each target.

    `shares` and `radii` are those of `Shares`, `clumping` is that of Pólya's urn. A part is `confirmed` if no empty
    part has such a large count, with probability 1 - _STRICT_FALSE_ALARM.
    """

    shares: csr_array
    radii: Array
    posterior: CountPosterior
    clumping: float
    confirmed: NDArray[np.bool_]

    @classmethod
    def of(cls, released: Released, around: Surroundings) -> "SourceModel":
        """Return the model that follows from the released counts."""
        sizes, n_parts, noise = around.shares.sizes, len(released.parent), released.noise[1]
        pool = np.bincount(released.part, weights=sizes, minlength=n_parts)
        split = np.bincount(released.parent)[released.parent] > 1
        kind = released.parent % released.n_bands * 2 + split
        # Where cells are counted ring by ring there are far more sources than pool points. How sources of the finest
        # parts lie within them can't be told from the counts: the most clumped of the allowed models is assumed. With
        # the estimate, the gap was .19 instead of .07 with a million sources and .53 instead of .24 with ten million
        # (epsilon 1, one draw and run each).
        by_ring = released.n_bands == around.cells.n_rings
        return cls(
            around.shares.of(released.part, n_parts),
            around.shares.radii,
            count_posterior(released.counts, kind, noise),
            _LEAST_CLUMPING if by_ring else clumping(released.counts, released.parent, pool, noise),
            released.counts >= noise.exceeded(_STRICT_FALSE_ALARM / n_parts),
        )

    @cached_property
    def cost(self) -> ExpectedCost:
        """The expected cost of every target at any distance to a centre."""
        return self._cost(self.posterior.cautious(_EMPTY_ODDS), self.clumping)

    @cached_property
    def strict_cost(self) -> ExpectedCost:
        """The same with fewer and more clumped sources, in confirmed parts alone."""
        posterior = self.posterior.cautious(_STRICT_EMPTY_ODDS, self.confirmed)
        return self._cost(posterior, _STRICT_CLUMPING * self.clumping)

    def _cost(self, posterior: Array, clumping: float) -> ExpectedCost:
        alive = none_near(self.shares, posterior, self.posterior.grid, clumping)
        return ExpectedCost.of(alive.reshape(-1, len(self.radii)), self.radii)

    def near(self) -> Array:
        """Return the expected number of sources within each radius (columns) of each target (rows)."""
        numbers = self.posterior.cautious(_EMPTY_ODDS) @ self.posterior.grid
        return np.asarray((self.shares @ numbers).reshape(-1, len(self.radii)))

    def better(self, proposed: Array, without: Array) -> bool:
        """Return whether centres at distances `proposed` of the targets are safely better than those at `without`.

        They must cost less under the model. Under the strict model the cost may hardly rise.
        """
        if self.cost.mean(proposed) >= self.cost.mean(without):
            return False
        return self.strict_cost.mean(proposed) <= (1 + _MOST_STRICT_RISE) * self.strict_cost.mean(without)


@dataclass(frozen=True, eq=False)
class Choice:
    """Centres and their mean expected cost, by the number of centres, and `SourceModel.near`."""

    centres: Centres
    costs: dict[int, float]
    expected: Array


def choose(T: Array, plan: Plan, released: Released, *, gate: float) -> Choice:
    """Return centres for each number of the plan; those that ignore the sources where these can't be shown to help.

    With at most one source in range, the gate opens with probability at most `gate`.
    """
    rows = plan.around.targets
    centres = {k: alone.copy() for k, alone in plan.without.items()}
    away = {k: nearest(rows, T[alone])[1] for k, alone in centres.items()}
    if not gate_opens(released.counts, released.noise[1], gate):
        costs = {k: float(distance.mean()) for k, distance in away.items()}
        return Choice(centres, costs, np.zeros((len(rows), len(plan.around.shares.radii))))
    model = SourceModel.of(released, plan.around)
    refused = list(centres)
    # Where the centres of the expected cost are refused, those of the strict cost are tried.
    for name in ("cost", "strict_cost"):
        proposals = _solve(T, plan.around.rows, refused, getattr(model, name)) if refused else {}
        for k, proposed in proposals.items():
            distance = nearest(rows, T[proposed])[1]
            if model.better(distance, away[k]):
                centres[k], away[k] = proposed, distance
                refused.remove(k)
    return Choice(centres, {k: model.cost.mean(distance) for k, distance in away.items()}, model.near())


def _solve(T: Array, rows: NDArray[np.int64], numbers: list[int], cost: ExpectedCost) -> Centres:
    """Return centres among `T` for each number of them, which minimise the costs of the targets `rows`."""
    if len(T) > _MOST_TARGETS_AT_ONCE:
        return {k: capped_k_medoids(T, k, transform=cost, rows=rows) for k in numbers}
    middle = T.mean(axis=0)
    costs = cost(np.arange(len(T)), distances(T - middle, T - middle))
    costs, free = np.asfortranarray(costs, dtype=np.float32), np.full(len(T), np.inf)
    # Every prefix of the greedy order is the greedy answer for fewer centres.
    order = greedy(costs, free, max(numbers))
    return {k: faster_pam(costs, free, order[:k]) for k in numbers}
