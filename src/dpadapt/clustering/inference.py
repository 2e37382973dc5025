"""What is expected of the sources after the release: costs to the targets, and what they hang on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp

from dpadapt.clustering.public_cells import Surroundings
from dpadapt.clustering.releases import Noise, Released

# An e-value against "no source is near": how sure the released counts make us that there are sources at all.
#
# Under that hypothesis every released count is noise of a known law, so the likelihood ratio of any fixed alternative
# has mean 1, and so has any mean of such ratios. By Markov's inequality it reaches 1 / gamma with probability at most
# gamma, for every budget, number of bins and set of targets; nothing is approximated and nothing is spent.


Array = NDArray[Any]

# Alternatives: a share of the bins holds the same number of sources, in noise scales.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_HEIGHTS = (0.5, 1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 400, 1000)

_MOST = 600.0


def log_evidence(counts: NDArray[np.int64], noise: Noise) -> float:
    """Return the log of an e-value against "these counts are noise alone"."""
    n = len(counts)
    if n == 0:
        return 0.0
    heights = np.unique(np.maximum(1, np.rint(np.array(_HEIGHTS) * noise.scale)))
    shares = np.unique([1 / n, min(1.0, 2 / n), *_SHARES])
    # P(count | v more) / P(count | noise alone): exact, as v is a whole number and both laws have one normaliser.
    ratio = noise.log_density(counts[:, None] - heights) - noise.log_density(counts[:, None])
    # A ratio is cut off where it would overflow, which only makes the mean smaller.
    excess = np.expm1(np.minimum(ratio, _MOST))
    # Bins are independent: for one share p and height v the ratio of all is the product of 1 + p (ratio - 1).
    with np.errstate(divide="ignore"):
        terms = np.log1p(shares[:, None, None] * excess).sum(axis=1)
    return float(logsumexp(terms) - np.log(terms.size))


def pooled_evidence(stages: Sequence[tuple[NDArray[np.int64], Array, Noise]]) -> float:
    """Return the log of one e-value for several stages, each counts, their group and their noise.

    A later stage's bins may depend on earlier counts: given those its noise is still of its known law, so products over
    stages are e-values, and the mean of e-values is one.
    """
    whole = [log_evidence(counts, noise) for counts, _, noise in stages]
    groups = [[log_evidence(counts[group == g], noise) for g in np.unique(group)] for counts, group, noise in stages]
    # As many terms whatever was released: each coarse bin keeps a part at least, so that the last stage has all groups.
    found = [whole[-1], sum(whole), sum(map(sum, groups)), *groups[-1]]
    return float(logsumexp(found) - np.log(len(found)))


# What is believed of each bin's number of sources after its noisy count: empirical Bayes with a cautious zero.


_ROUNDS = 150
_STEPS = 36
# A number of sources below this many noise scales can't be told from none, so it counts as none.
_LEAST_COUNT_IN_SCALES = 2.0
# A prior's weight on all numbers alike, in parts: what was not seen may still be.
_UNSEEN = 1.0
# Fewer bins than this share a prior with others.
_SMALL_GROUP = 8


@dataclass(frozen=True, eq=False)
class Belief:
    """What is believed of the number of sources in each part of the partition.

    Parameters
    ----------
    grid : ndarray of shape (n_grid,)
        Numbers that are thought possible; the first is 0.
    probability : ndarray of shape (n_parts, n_grid)
    evidence : ndarray of shape (n_parts,)
        How much likelier a part's counts are under the best number than under none, as a logarithm.
    """

    grid: Array
    probability: Array
    evidence: Array

    def cautious(self, odds: float) -> Array:
        """Return the probabilities with the odds of "none" multiplied by `odds`.

        Believing in sources that are not there leaves targets uncovered; missing some only wastes a centre.
        """
        moved = self.probability.copy()
        moved[:, 0] *= odds
        return np.asarray(moved / moved.sum(axis=1, keepdims=True))

    def empty(self, parts: NDArray[np.bool_]) -> "Belief":
        """Return the same with no source in `parts`."""
        nothing = (self.grid == 0).astype(float)
        return replace(self, probability=np.where(parts[:, None], nothing, self.probability))


def belief(released: Released) -> Belief:
    """Return the posterior of every part's number of sources, with priors fitted to like parts."""
    _, coarse, fine = released.noise
    grid = _grid(float(released.counts.max(initial=0)), fine.scale)
    likelihood = fine.log_density(released.counts[:, None] - grid)
    # A coarse bin that was not split was counted twice, with independent noise.
    whole = ~released.split
    likelihood[whole] += coarse.log_density(released.coarse[released.parent[whole]][:, None] - grid)
    evidence = likelihood.max(axis=1) - likelihood[:, 0]
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    probability = np.empty_like(likelihood)
    for group in _groups(2 * released.band + released.split):
        probability[group] = _fitted(likelihood[group])
    return Belief(grid, probability, evidence)


def _grid(largest: float, scale: float) -> Array:
    """Return the numbers of sources that are thought possible: 0, then from two noise scales up."""
    low = max(1.0, np.ceil(_LEAST_COUNT_IN_SCALES * scale))
    high = max(largest + 3 * scale, 2 * low)
    return np.unique(np.concatenate([[0.0], np.rint(np.geomspace(low, high, _STEPS))]))


def _groups(kind: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the parts of each kind; kinds of few parts are put together."""
    groups = [np.flatnonzero(kind == one) for one in np.unique(kind)]
    large = [group for group in groups if len(group) >= _SMALL_GROUP]
    small = [group for group in groups if len(group) < _SMALL_GROUP]
    if small:
        rest = np.concatenate(small)
        if large and len(rest) < _SMALL_GROUP:
            rest = np.concatenate([large.pop(), rest])
        large.append(rest)
    return large


def _fitted(likelihood: Array) -> Array:
    """Return posteriors, each under the prior that the other parts make most likely.

    The prior is found by nonparametric maximum likelihood (EM) on all parts. Then each part's own weight is taken
    out of it: a count far out, which may be noise, would otherwise be its own evidence that such counts occur.
    """
    n_grid = likelihood.shape[1]
    prior = np.full(n_grid, 0.5 / (n_grid - 1))
    prior[0] = 0.5
    joint = likelihood
    for _ in range(_ROUNDS):
        joint = likelihood * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = joint.mean(axis=0)
    others = len(joint) * prior - joint + _UNSEEN / n_grid
    joint = likelihood * np.maximum(others, 0.0)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


# How sources lie within their bins, by the released counts: how far from the targets, and how clumped.


# Weight of the pool's own distances against the counted ones, in noise scales.
_POOL = 0.5
# Clumping over parts where the counts can't tell; sources are spread more evenly within parts than over them; the least
# and the most that is believed.
_USUAL_CLUMPING, _WITHIN, _LEAST_CLUMPING, _MOST_CLUMPING = 8.0, 1.4, 0.5, 32.0
_LEAST_POOL = 1e-3  # of all, in a ring: a few points must not stand for all sources there


def pool_weights(released: Released, sizes: Array) -> Array:
    """Return the weight of a pool point of each finest bin, such that the pool is as far from the targets as sources.

    Directions from the targets are known to the pool, not distances: sources may all lie near, or far out.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_bins,)
        Pool points of each finest bin.
    """
    n_rings = len(released.profile)
    pool = sizes.reshape(-1, n_rings).sum(axis=0)
    found = np.maximum(released.profile, 0) + _POOL * released.noise[0].scale * pool / pool.sum()
    return np.tile(found / np.maximum(pool, _LEAST_POOL * pool.sum()), len(sizes) // n_rings)


def clumping(released: Released, sizes: Array) -> float:
    """Return the parameter of Pólya's urn with which sources fill the parts of coarse bins, taken to hold within parts.

    N sources in parts of shares q have variance q (1 - q) N (1 + (N - 1) / (clumping + 1)) each. The squared deviations
    of all counts, less the noise's, give the last factor; as much of the usual one is mixed in as they are uncertain.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_parts,)
        Weight of each part's pool.
    """
    whole, found, siblings = (
        np.bincount(released.parent, weights=values)[released.parent]
        for values in (sizes, released.counts, np.ones(len(sizes)))
    )
    used = released.split & (found > 0) & (sizes > 0)
    shares, total = sizes[used] / whole[used], found[used]
    spread = shares * (1 - shares)
    variance = released.noise[-1].variance
    # Of a count less its share of the sum, of which it is one.
    noise = variance * ((1 - shares) ** 2 + shares**2 * (siblings[used] - 1))
    excess = (released.counts[used] - total * shares) ** 2 - noise - total * spread
    # The squared noise of n counts sums to n variances, give or take sqrt(5 n) of Laplace noise, fewer of Gaussian.
    doubt = variance * np.sqrt(5.0 * max(len(shares), 1))
    # The sum's own noise squared is no sign of many sources.
    pairs = np.maximum(total * (total - 1) - siblings[used] * variance, 0.0)
    together = (excess.sum() + doubt) / ((pairs * spread).sum() + doubt * (1 + _USUAL_CLUMPING))
    return float(np.clip(_WITHIN * (1 / max(together, 1e-9) - 1), _LEAST_CLUMPING, _MOST_CLUMPING))


# How far a target probably is from its nearest source, given what is believed of every bin.


# Shares at which a bin's probability of missing is tabulated; most shares are small.
_KNOTS = np.linspace(0, 1, 65) ** 2
_LEAST_PROBABILITY = 1e-30
_MOST_IN_CLUMP = 100.0
_FAR = 10.0


@dataclass(frozen=True, eq=False)
class ExpectedCost:
    """E min(a, d(x, S)) as a function of the target x and the distance a to its nearest centre.

    It is ∫₀ᵃ P(no source within u) du: it rises with a, ever more slowly, so that solvers for distances take it too.
    Where nothing is known of sources it is a itself.

    Parameters
    ----------
    knots : ndarray of shape (n_radii + 1,)
        0, then radii.
    integral : ndarray of shape (n_targets, n_radii + 1)
        At the knots.
    slope : ndarray of shape (n_targets, n_radii + 1)
        After each knot; beyond the last the probability stays as it is there.
    """

    knots: Array
    integral: Array
    slope: Array

    @classmethod
    def of(cls, alive: Array, radii: Array) -> "ExpectedCost":
        """Return it for the probabilities that no source is within each radius (columns) of each target (rows)."""
        knots = np.append(0.0, radii)
        heights = np.column_stack([np.ones(len(alive)), alive])
        means = (heights[:, 1:] + heights[:, :-1]) / 2
        integral = np.column_stack([np.zeros(len(alive)), (np.diff(knots) * means).cumsum(axis=1)])
        return cls(knots, integral, np.column_stack([means, alive[:, -1]]))

    @staticmethod
    def weights(radii: Array, distances: Array) -> Array:
        """Return how much the cost of targets at `distances` rises with each probability that `of` takes."""
        knots = np.append(0.0, radii)
        halves = np.clip(distances[:, None] - knots[:-1], 0.0, np.diff(knots)) / 2
        weights = halves.copy()
        weights[:, :-1] += halves[:, 1:]
        weights[:, -1] += np.maximum(distances - knots[-1], 0.0)
        return np.asarray(weights)

    def __call__(self, targets: NDArray[np.int64], distances: Array) -> Array:
        """Return the expected cost of `targets`, of shape (p,), at `distances`, of shape (p, c); infinite ones too."""
        place = np.searchsorted(self.knots, distances.ravel(), side="right").reshape(distances.shape) - 1
        row = targets[:, None]
        # Solvers ask what it costs to have no centre at all: as much as one far out.
        beyond = np.minimum(distances, _FAR * self.knots[-1]) - self.knots[place]
        return np.asarray(self.integral[row, place] + beyond * self.slope[row, place])


def log_misses(shares: csr_array, believed: Array, grid: Array, clumping: float) -> Array:
    """Return the log probability that all sources of a part miss the share of it that is near a target, per entry.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    believed : ndarray of shape (n_parts, n_grid)
        Probabilities of the numbers of sources `grid` in each part.
    grid : ndarray
    clumping : float
        Of Pólya's urn. Small: sources of one part sit together; infinity: they are spread evenly over it.
    """
    return _interpolated(shares, _log_missed(believed, grid, clumping))


def log_none_near(shares: csr_array, misses: Array) -> Array:
    """Return the log probability that no source is within a radius of a target, per row of `shares`."""
    # Parts are independent, given the counts: no source is near if each part's sources all miss.
    rows = np.add.reduceat(np.append(misses, 0.0), shares.indptr[:-1])
    rows[np.diff(shares.indptr) == 0] = 0.0
    return np.asarray(rows)


def _log_missed(believed: Array, grid: Array, clumping: float) -> Array:
    """Return, per part and share of `_KNOTS`, the log probability that none of the part's sources lies in the share.

    Under Pólya's urn v of them all miss a share p with probability Γ(a (1 - p) + v) Γ(a) / (Γ(a (1 - p)) Γ(a + v)).
    With a alone, ever more sources would sit in the same few clumps; so a grows once they number hundreds.
    """
    v = grid[:, None]
    a = clumping + v / _MOST_IN_CLUMP
    rest = np.maximum(a * (1 - _KNOTS), 1e-12)
    missed = np.exp(gammaln(rest + v) - gammaln(rest) + gammaln(a) - gammaln(a + v))
    return np.asarray(np.log(np.maximum(believed @ missed, _LEAST_PROBABILITY)))


def _interpolated(shares: csr_array, table: Array) -> Array:
    """Return the table's entry for each stored share and its part, linear between knots."""
    low = np.minimum((np.sqrt(shares.data) * (len(_KNOTS) - 1)).astype(np.int64), len(_KNOTS) - 2)
    part = (shares.data - _KNOTS[low]) / (_KNOTS[low + 1] - _KNOTS[low])
    left, right = table[shares.indices, low], table[shares.indices, low + 1]
    return np.asarray(left + part * (right - left))


# Odds of an empty part are multiplied by these, for the choice and for one who doubts it.
_ODDS, _DOUBTED_ODDS = 5.0, 15.0
# The doubter's sources are more clumped.
_DOUBTED_CLUMPING = 0.25


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is believed of the sources of each part, seen from each target.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    radii : ndarray
    believed : Belief
    clumping : float
        Of Pólya's urn, within a part.
    """

    shares: csr_array
    radii: Array
    believed: Belief
    clumping: float

    @classmethod
    def of(cls, released: Released, around: Surroundings) -> "Outlook":
        """Return what follows from the released counts."""
        n_parts = len(released.parent)
        weights = pool_weights(released, around.shares.sizes)
        sizes = np.bincount(released.part, weights=around.shares.sizes * weights, minlength=n_parts)
        shares = around.shares.of(released.part, n_parts, weights)
        return cls(shares, around.shares.radii, belief(released), clumping(released, sizes))

    @cached_property
    def cost(self) -> ExpectedCost:
        """The expected cost of every target at any distance to a centre."""
        return self._cost(self._misses)

    @cached_property
    def doubted_cost(self) -> ExpectedCost:
        """The same for one who believes in fewer sources, more clumped."""
        return self._cost(self._log_misses(_DOUBTED_ODDS, _DOUBTED_CLUMPING * self.clumping))

    @cached_property
    def _misses(self) -> Array:
        return self._log_misses(_ODDS, self.clumping)

    def _log_misses(self, odds: float, clumping: float) -> Array:
        return log_misses(self.shares, self.believed.cautious(odds), self.believed.grid, clumping)

    def _cost(self, misses: Array) -> ExpectedCost:
        alive = np.exp(log_none_near(self.shares, misses))
        return ExpectedCost.of(alive.reshape(-1, len(self.radii)), self.radii)

    def near(self) -> Array:
        """Return how many sources are thought to lie within each radius (columns) of each target (rows)."""
        numbers = self.believed.cautious(_ODDS) @ self.believed.grid
        return np.asarray((self.shares @ numbers).reshape(-1, len(self.radii)))

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Which parts may look as they do by noise alone.

        Of n parts that are empty, at most about half a one shows as many sources as give evidence log n.
        """
        return np.asarray(self.believed.evidence < np.log(len(self.believed.evidence)))

    def reliance(self, away: Array) -> Array:
        """Return by how much the mean cost would rise, for each doubtful part, if it were empty; 0 for the others.

        Parameters
        ----------
        away : ndarray of shape (n_targets,)
            Distances to the nearest centre.
        """
        part, row, rise = self._rises
        # The cost is linear in the probabilities at the radii.
        weighted = rise * ExpectedCost.weights(self.radii, away).ravel()[row]
        return np.bincount(part, weights=weighted, minlength=self.shares.shape[1]) / len(away)

    @cached_property
    def _rises(self) -> tuple[Array, Array, Array]:
        """Entries of doubtful parts: part, row of `shares`, and how much likelier no source is near without it."""
        entry = np.flatnonzero(self.doubtful[self.shares.indices])
        row = np.searchsorted(self.shares.indptr, entry, side="right") - 1
        alive = log_none_near(self.shares, self._misses)[row]
        # A part that is empty drops out of the product.
        return self.shares.indices[entry], row, np.exp(alive - self._misses[entry]) - np.exp(alive)

    def empty(self, parts: NDArray[np.bool_]) -> "Outlook":
        """Return what is expected if those parts are empty."""
        return replace(self, believed=self.believed.empty(parts))
