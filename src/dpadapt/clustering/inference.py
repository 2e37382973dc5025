"""Post-processing: from released counts to centres.

In this order: the gate, an e-value against "no source is in range"; the posterior of the number of sources in each bin;
how sources lie within their bins; the expected distance of a target to its nearest source; the choice of centres.
Nothing here reads a source.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp

from dpadapt.clustering.public_cells import Centres, Surroundings
from dpadapt.clustering.releases import Noise, Plan, Released
from dpadapt.clustering.solver import capped_k_medoids, distances, faster_pam, greedy, nearest

Array = NDArray[Any]

# The tuned constants below were chosen together, on the development draws that docs/clustering.md lists; except where a
# comment says so, what neighbouring values cost was not recorded.

# Alternatives of the e-value: a share of the bins holds the same number of sources, in noise scales. A finer grid has
# more power against some alternatives and less against all others.
_EVIDENCE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_EVIDENCE_HEIGHTS = (0.5, 1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 400, 1000)
# Log likelihood ratios are cut off here: exp(709) is the largest float64. A lower ratio only makes the gate stricter.
_LARGEST_LOG_RATIO = 600.0

# Iterations of EM for the prior, and numbers of sources on its grid: more are slower and more exact.
_PRIOR_ITERATIONS = 150
_PRIOR_GRID_SIZE = 36
# A positive number of sources below this many noise scales can't be distinguished from 0, so the prior excludes it. In
# a prototype 3 instead of 2 did not improve the worst cases.
_LEAST_COUNT_IN_SCALES = 2.0
# Weight of a uniform prior, in bins: numbers that no other bin suggests stay possible.
_UNIFORM_PRIOR_BINS = 1.0
# Groups of fewer bins than this share a prior with others.
_SMALL_GROUP = 8

# Weight of the pool's own distances against the counted distances, in noise scales.
_POOL_PRIOR_SCALES = 0.5
# Share of all pool points that a ring is taken to hold at least, so that a few points don't represent all its sources.
_LEAST_POOL_SHARE = 1e-3
# Clumping, the parameter of Pólya's urn (small: sources are concentrated in few places): the value where counts are
# uninformative, the factor from between parts to within parts (more even), and the range that is allowed.
_USUAL_CLUMPING, _CLUMPING_WITHIN_PARTS, _LEAST_CLUMPING, _MOST_CLUMPING = 8.0, 1.4, 0.5, 32.0
# Pólya's parameter grows by 1 for every this many sources of a part: without that, hundreds of sources would all sit in
# the same few clumps.
_MOST_IN_CLUMP = 100.0

# Shares at which the probability of missing a bin's sources is tabulated; most shares are small.
_SHARE_KNOTS = np.linspace(0, 1, 65) ** 2
# Probabilities below this are raised to it, so that their logarithm is finite.
_LEAST_PROBABILITY = 1e-30
# Distance that stands for having no centre at all, in units of the largest radius.
_FAR_IN_REACHES = 10.0

# The odds of an empty part are multiplied by the first number for the choice, by the second for the pessimistic check;
# the third multiplies the clumping in that check. Larger odds and smaller clumping mean less harm and less gain. In a
# prototype 5 instead of 1 lowered the 95th percentile of the gap from 1.56 to 0.83 (synthetic set 3, epsilon 0.1, no
# gate), and no mean gap rose by more than 0.02. The check with odds 15 and a quarter of the clumping removed the worst
# harm (1.214 times the cost without sources); odds of 5 or half of the clumping did not. Odds of 50 lost the gain on
# Office at epsilon 0.3 and on Reviews at 0.1.
_EMPTY_ODDS, _PESSIMISTIC_EMPTY_ODDS = 5.0, 15.0
_PESSIMISTIC_CLUMPING = 0.25

# Up to this many targets all distances between targets are held at once: less time, more memory.
_MOST_TARGETS_AT_ONCE = 5000
# Most by which the emptiness of one doubtful part may raise the cost, as a share of the cost without sources.
_MOST_RELIED_ON = 0.1
# How often such parts are taken to be empty and the centres chosen again before the sources are ignored.
_RELIANCE_ROUNDS = 4


# The gate: an e-value against "no source is in range".
#
# Under that hypothesis every released count is noise of a known distribution, so the likelihood ratio of any fixed
# alternative has mean 1, and so has any mean of such ratios. By Markov's inequality it reaches 1 / gamma with
# probability at most gamma, for every budget, number of bins and set of targets. Nothing is approximated or spent.


def log_evidence(counts: NDArray[np.int64], noise: Noise) -> float:
    """Return the log of an e-value against "these counts are noise alone"."""
    n = len(counts)
    if n == 0:
        return 0.0
    heights = np.unique(np.maximum(1, np.rint(np.array(_EVIDENCE_HEIGHTS) * noise.scale)))
    shares = np.unique([1 / n, min(1.0, 2 / n), *_EVIDENCE_SHARES])
    # P(count | v more) / P(count | noise alone): exact, as v is a whole number and both laws have one normaliser.
    ratio = noise.log_density(counts[:, None] - heights) - noise.log_density(counts[:, None])
    # A ratio is cut off where it would overflow, which only makes the mean smaller.
    excess = np.expm1(np.minimum(ratio, _LARGEST_LOG_RATIO))
    # Bins are independent: for one share p and height v the ratio of all is the product of 1 + p (ratio - 1).
    with np.errstate(all="ignore"):
        terms = np.log1p(shares[:, None, None] * excess).sum(axis=1)
    return float(logsumexp(terms) - np.log(terms.size))


def pooled_evidence(stages: Sequence[tuple[NDArray[np.int64], Array, Noise]]) -> float:
    """Return the log of one e-value for several histograms, each given by its counts, their groups and their noise.

    The bins of a later histogram may depend on earlier counts. Given those, its noise still has its known distribution,
    so products over histograms are e-values, and so is a mean of e-values.
    """
    whole = [log_evidence(counts, noise) for counts, _, noise in stages]
    groups = [[log_evidence(counts[group == g], noise) for g in np.unique(group)] for counts, group, noise in stages]
    # The number of terms does not depend on the counts: each coarse bin has at least one part, so the last histogram
    # has all groups.
    e_values = [whole[-1], sum(whole), sum(map(sum, groups)), *groups[-1]]
    return float(logsumexp(e_values) - np.log(len(e_values)))


# The posterior of the number of sources in each bin: empirical Bayes with cautious odds of zero.


@dataclass(frozen=True, eq=False)
class CountPosterior:
    """Posterior of the number of sources in each part of the partition.

    Parameters
    ----------
    grid : ndarray of shape (n_grid,)
        Possible numbers; the first is 0.
    probability : ndarray of shape (n_parts, n_grid)
    evidence : ndarray of shape (n_parts,)
        Log likelihood ratio of the best number against none.
    """

    grid: Array
    probability: Array
    evidence: Array

    def cautious(self, odds: float) -> Array:
        """Return the probabilities with the odds of "no source" multiplied by `odds`.

        Relying on sources that don't exist leaves targets uncovered; missing some only wastes a centre.
        """
        moved = self.probability.copy()
        moved[:, 0] *= odds
        return np.asarray(moved / moved.sum(axis=1, keepdims=True))

    def empty(self, parts: NDArray[np.bool_]) -> "CountPosterior":
        """Return the posterior with no source in `parts`."""
        nothing = (self.grid == 0).astype(float)
        return replace(self, probability=np.where(parts[:, None], nothing, self.probability))


def count_posterior(released: Released) -> CountPosterior:
    """Return the posterior of the number of sources in every part, with one prior for each group of similar parts."""
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
    return CountPosterior(grid, probability, evidence)


def _grid(largest: float, scale: float) -> Array:
    """Return the possible numbers of sources: 0, then from two noise scales up."""
    low = max(1.0, np.ceil(_LEAST_COUNT_IN_SCALES * scale))
    high = max(largest + 3 * scale, 2 * low)
    return np.unique(np.concatenate([[0.0], np.rint(np.geomspace(low, high, _PRIOR_GRID_SIZE))]))


def _groups(kind: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the parts of each kind; kinds with few parts are merged."""
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
    others = len(joint) * prior - joint + _UNIFORM_PRIOR_BINS / n_grid
    joint = likelihood * np.maximum(others, 0.0)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


# How sources lie within their bins, by the released counts: how far from the targets, and how clumped.


def pool_weights(released: Released, sizes: Array) -> Array:
    """Return the weight of the pool points of each finest bin that gives the pool the counted distances of the sources.

    Unweighted, the pool has every distance alike, while sources may all lie near the targets or far from them.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_bins,)
        Pool points of each finest bin.
    """
    n_rings = len(released.profile)
    pool = sizes.reshape(-1, n_rings).sum(axis=0)
    wanted = np.maximum(released.profile, 0) + _POOL_PRIOR_SCALES * released.noise[0].scale * pool / pool.sum()
    return np.tile(wanted / np.maximum(pool, _LEAST_POOL_SHARE * pool.sum()), len(sizes) // n_rings)


def clumping(released: Released, sizes: Array) -> float:
    """Return the parameter of Pólya's urn within parts, estimated from how sources fill the parts of coarse bins.

    N sources in parts of shares q have variance q (1 - q) N (1 + (N - 1) / (clumping + 1)) each. The last
    factor is estimated from the squared deviations of all counts minus that of the noise, shrunk towards the usual one.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_parts,)
        Weight of each part's pool.
    """
    whole, in_bin, siblings = (
        np.bincount(released.parent, weights=values)[released.parent]
        for values in (sizes, released.counts, np.ones(len(sizes)))
    )
    used = released.split & (in_bin > 0) & (sizes > 0)
    shares, total = sizes[used] / whole[used], in_bin[used]
    spread = shares * (1 - shares)
    variance = released.noise[-1].variance
    # Noise variance of a count minus its share of the sum, in which that count is included.
    noise = variance * ((1 - shares) ** 2 + shares**2 * (siblings[used] - 1))
    excess = (released.counts[used] - total * shares) ** 2 - noise - total * spread
    # The sum of n squared Laplace noises has standard deviation sqrt(5 n) times their variance; of Gaussian ones, less.
    uncertainty = variance * np.sqrt(5.0 * max(len(shares), 1))
    # The squared noise of the sum is not evidence of many sources.
    pairs = np.maximum(total * (total - 1) - siblings[used] * variance, 0.0)
    together = (excess.sum() + uncertainty) / ((pairs * spread).sum() + uncertainty * (1 + _USUAL_CLUMPING))
    return float(np.clip(_CLUMPING_WITHIN_PARTS * (1 / max(together, 1e-9) - 1), _LEAST_CLUMPING, _MOST_CLUMPING))


# The expected distance of a target to its nearest source.


@dataclass(frozen=True, eq=False)
class ExpectedCost:
    """E min(a, d(x, S)) as a function of the target x and the distance a to its nearest centre.

    It is ∫₀ᵃ P(no source within u) du: concave and increasing in a, so that solvers for distances can use it. Without
    sources it is a itself.

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
        """Return the cost, given the probability that no source is within each radius (columns) of a target (rows)."""
        knots = np.append(0.0, radii)
        heights = np.column_stack([np.ones(len(alive)), alive])
        means = (heights[:, 1:] + heights[:, :-1]) / 2
        integral = np.column_stack([np.zeros(len(alive)), (np.diff(knots) * means).cumsum(axis=1)])
        return cls(knots, integral, np.column_stack([means, alive[:, -1]]))

    @staticmethod
    def weights(radii: Array, distances: Array) -> Array:
        """Return the derivative of the cost of targets at `distances` by each probability that `of` takes."""
        knots = np.append(0.0, radii)
        halves = np.clip(distances[:, None] - knots[:-1], 0.0, np.diff(knots)) / 2
        weights = halves.copy()
        weights[:, :-1] += halves[:, 1:]
        weights[:, -1] += np.maximum(distances - knots[-1], 0.0)
        return np.asarray(weights)

    def __call__(self, targets: NDArray[np.int64], distances: Array) -> Array:
        """Return the expected cost of `targets`, of shape (p,), at `distances`, of shape (p, c), possibly infinite."""
        place = np.searchsorted(self.knots, distances.ravel(), side="right").reshape(distances.shape) - 1
        row = targets[:, None]
        # An infinite distance (no centre at all) costs as much as a centre far away.
        beyond = np.minimum(distances, _FAR_IN_REACHES * self.knots[-1]) - self.knots[place]
        return np.asarray(self.integral[row, place] + beyond * self.slope[row, place])


def log_misses(shares: csr_array, posterior: Array, grid: Array, clumping: float) -> Array:
    """Return the log probability that all sources of a part miss the share of it that is near a target, per entry.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    posterior : ndarray of shape (n_parts, n_grid)
        Probabilities of the numbers of sources `grid` in each part.
    grid : ndarray
    clumping : float
        Of Pólya's urn. Small: sources of one part sit together; infinity: they are spread evenly over it.
    """
    return _interpolated(shares, _log_missed(posterior, grid, clumping))


def log_none_near(shares: csr_array, misses: Array) -> Array:
    """Return the log probability that no source is within a radius of a target, per row of `shares`."""
    # Parts are independent, given the counts: no source is near if each part's sources all miss.
    rows = np.add.reduceat(np.append(misses, 0.0), shares.indptr[:-1])
    rows[np.diff(shares.indptr) == 0] = 0.0
    return np.asarray(rows)


def _log_missed(posterior: Array, grid: Array, clumping: float) -> Array:
    """Return, per part and share of `_SHARE_KNOTS`, the log probability that no source of the part lies in that share.

    Under Pólya's urn v of them all miss a share p with probability Γ(a (1 - p) + v) Γ(a) / (Γ(a (1 - p)) Γ(a + v)).
    With a alone, ever more sources would sit in the same few clumps; so a grows once they number hundreds.
    """
    v = grid[:, None]
    a = clumping + v / _MOST_IN_CLUMP
    rest = np.maximum(a * (1 - _SHARE_KNOTS), 1e-12)
    missed = np.exp(gammaln(rest + v) - gammaln(rest) + gammaln(a) - gammaln(a + v))
    return np.asarray(np.log(np.maximum(posterior @ missed, _LEAST_PROBABILITY)))


def _interpolated(shares: csr_array, table: Array) -> Array:
    """Return the table's entry for each stored share and its part, linear between knots."""
    low = np.minimum((np.sqrt(shares.data) * (len(_SHARE_KNOTS) - 1)).astype(np.int64), len(_SHARE_KNOTS) - 2)
    part = (shares.data - _SHARE_KNOTS[low]) / (_SHARE_KNOTS[low + 1] - _SHARE_KNOTS[low])
    left, right = table[shares.indices, low], table[shares.indices, low + 1]
    return np.asarray(left + part * (right - left))


@dataclass(frozen=True, eq=False)
class SourceModel:
    """Posterior of the sources of each part, and its geometry as seen from each target.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    radii : ndarray
    posterior : CountPosterior
    clumping : float
        Of Pólya's urn, within a part.
    """

    shares: csr_array
    radii: Array
    posterior: CountPosterior
    clumping: float

    @classmethod
    def of(cls, released: Released, around: Surroundings) -> "SourceModel":
        """Return the model that follows from the released counts."""
        n_parts = len(released.parent)
        weights = pool_weights(released, around.shares.sizes)
        sizes = np.bincount(released.part, weights=around.shares.sizes * weights, minlength=n_parts)
        shares = around.shares.of(released.part, n_parts, weights)
        return cls(shares, around.shares.radii, count_posterior(released), clumping(released, sizes))

    @cached_property
    def cost(self) -> ExpectedCost:
        """The expected cost of every target at any distance to a centre."""
        return self._cost(self._misses)

    @cached_property
    def pessimistic_cost(self) -> ExpectedCost:
        """The same for the pessimistic check: fewer sources, more clumped."""
        return self._cost(self._log_misses(_PESSIMISTIC_EMPTY_ODDS, _PESSIMISTIC_CLUMPING * self.clumping))

    @cached_property
    def _misses(self) -> Array:
        return self._log_misses(_EMPTY_ODDS, self.clumping)

    def _log_misses(self, odds: float, clumping: float) -> Array:
        return log_misses(self.shares, self.posterior.cautious(odds), self.posterior.grid, clumping)

    def _cost(self, misses: Array) -> ExpectedCost:
        alive = np.exp(log_none_near(self.shares, misses))
        return ExpectedCost.of(alive.reshape(-1, len(self.radii)), self.radii)

    def near(self) -> Array:
        """Return the expected number of sources within each radius (columns) of each target (rows)."""
        numbers = self.posterior.cautious(_EMPTY_ODDS) @ self.posterior.grid
        return np.asarray((self.shares @ numbers).reshape(-1, len(self.radii)))

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Which parts may be empty: their counts can be explained by noise.

        Of n empty parts, at most about 0.5 on average reach evidence log n by noise alone.
        """
        return np.asarray(self.posterior.evidence < np.log(len(self.posterior.evidence)))

    def reliance(self, away: Array) -> Array:
        """Return by how much the mean cost would rise if each doubtful part were empty; 0 for the other parts.

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
        """Entries of doubtful parts: part, row of `shares`, and the rise of P(no source near) if the part is empty."""
        entry = np.flatnonzero(self.doubtful[self.shares.indices])
        row = np.searchsorted(self.shares.indptr, entry, side="right") - 1
        alive = log_none_near(self.shares, self._misses)[row]
        # An empty part drops out of the product.
        return self.shares.indices[entry], row, np.exp(alive - self._misses[entry]) - np.exp(alive)

    def empty(self, parts: NDArray[np.bool_]) -> "SourceModel":
        """Return the model with `parts` taken to be empty."""
        return replace(self, posterior=self.posterior.empty(parts))


# The choice of centres.


@dataclass(frozen=True, eq=False)
class Choice:
    """Centres for each number of them, with the expected cost of each.

    Parameters
    ----------
    centres : dict
        Row numbers of the targets, by the number of centres.
    costs : dict
        The mean expected distance to the nearest centre or source. An estimate, not a bound.
    expected : ndarray of shape (n_targets, n_radii)
        Expected number of sources within each radius of each target.
    """

    centres: Centres
    costs: dict[int, float]
    expected: Array


def choose(T: Array, plan: Plan, released: Released, *, gate: float) -> Choice:
    """Return centres for each number of the plan; those that ignore the sources where these can't be shown to help.

    Parameters
    ----------
    T : ndarray
        Public targets.
    plan : Plan
    released : Released
    gate : float
        Where no source is in range, the gate opens with at most this probability.
    """
    around, without = plan.around, plan.without
    rows = T[around.rows]
    if log_evidence_of(released) < -np.log(gate):
        costs = {k: _usual_cost(rows, T[centres]) for k, centres in without.items()}
        # Copies, since the originals are kept for the next fit.
        return Choice(
            {k: centres.copy() for k, centres in without.items()},
            costs,
            np.zeros((len(rows), len(around.shares.radii))),
        )
    model = SourceModel.of(released, around)
    centres, costs = {}, {}
    for k, preliminary in _solve(rows, list(without), model.cost).items():
        most = _MOST_RELIED_ON * _usual_cost(rows, T[without[k]])
        chosen = _chosen(T, around, _less_reliant(rows, preliminary, model, most), without[k])
        centres[k], costs[k] = chosen, _mean(model.cost, rows, T[chosen])
    return Choice(centres, costs, model.near())


def log_evidence_of(released: Released) -> float:
    """Return the log of an e-value against "no source is in range"."""
    counts = released.profile, released.coarse, released.counts
    bands = np.arange(len(released.coarse)) % released.n_bands
    groups = np.zeros(len(released.profile), dtype=np.int64), bands, released.band
    return pooled_evidence(list(zip(counts, groups, released.noise, strict=True)))


def _less_reliant(
    rows: Array, centres: NDArray[np.int64], model: SourceModel, most: float
) -> tuple[NDArray[np.int64], SourceModel] | None:
    """Return centres that rely on no doubtful part for more than `most` of the mean cost, with the model they use.

    Most errors cost little; one that leaves a whole cluster of targets without a centre can double the cost. None if
    there are such parts still after several rounds.
    """
    for _ in range(_RELIANCE_ROUNDS):
        risky = model.reliance(nearest(rows, rows[centres])[1]) > most
        if not risky.any():
            return centres, model
        model = model.empty(risky)
        centres = _solve(rows, [len(centres)], model.cost)[len(centres)]
    return None


def _chosen(
    T: Array,
    around: Surroundings,
    proposed: tuple[NDArray[np.int64], SourceModel] | None,
    without: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the proposed centres if they are better than `without` under the pessimistic cost too, else `without`."""
    if proposed is None:
        return without.copy()
    rows, chosen, pessimistic = T[around.rows], around.rows[proposed[0]], proposed[1].pessimistic_cost
    return chosen if _mean(pessimistic, rows, T[chosen]) < _mean(pessimistic, rows, T[without]) else without.copy()


def _mean(cost: ExpectedCost, rows: Array, centres: Array) -> float:
    """Return the mean expected distance of `rows` to the nearest of `centres` or sources."""
    return float(cost(np.arange(len(rows)), nearest(rows, centres)[1][:, None]).mean())


def _usual_cost(rows: Array, centres: Array) -> float:
    """Return the mean distance of `rows` to the nearest of `centres`."""
    return float(nearest(rows, centres)[1].mean())


def _solve(rows: Array, numbers: Sequence[int], cost: ExpectedCost) -> Centres:
    """Return centres among `rows` for each number of them."""
    if len(rows) > _MOST_TARGETS_AT_ONCE:
        return {k: capped_k_medoids(rows, k, transform=cost) for k in numbers}
    middle = rows.mean(axis=0)
    everything = np.arange(len(rows))
    costs = np.asfortranarray(cost(everything, distances(rows - middle, rows - middle)), dtype=np.float32)
    free = np.full(len(rows), np.inf)
    # Every prefix of the greedy order is the greedy answer for fewer centres.
    order = greedy(costs, free, max(numbers))
    return {k: faster_pam(costs, free, order[:k]) for k in numbers}
