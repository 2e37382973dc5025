"""`NAS` and `NNA`, the algorithms of paper 5, "Differentially Private Source-Target Clustering", and what they share.

Both release points that stand in for the private sources, the proxies, and then choose centres among the public targets
with the proxies as centres that already exist. They differ in the proxies.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from dpadapt import checks
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.estimator import assumed_public
from dpadapt.clustering.solver import capped_k_medoids, nearest
from dpadapt.data import Public
from dpadapt.inputs.gate import sources_and_targets
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms.bounded_neighbours import cell_sums, each_neighbour_sum, neighbour_sums
from dpadapt.mechanisms.mechanism import Gaussian, Laplace, Mechanism, NonPrivate, Repeated

Array = NDArray[np.float64]

# The paper's points have length 1/2 at most, so that any two are within distance 1.
RADIUS = 0.5
CONSTANTS = ("paper", "tight")
THRESHOLDS = ("corrected", "paper")


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball around the targets' mean that holds them all, mapped to radius 1/2.

    The paper scales by the longest of all points. If that is a source, removing it changes all scaled points, but the
    noise covers only one changed point. Here the ball comes from public targets alone.
    """

    centre: Array
    scale: float

    @classmethod
    def of(cls, T: Array) -> "Ball":
        """Return the ball of public targets."""
        centre = T.mean(axis=0)
        longest = float(np.linalg.norm(T - centre, axis=1).max())
        # A little less than 1/2, so that rounding leaves every target inside.
        return cls(centre, RADIUS * (1 - 1e-9) / longest if longest > 0 else 1.0)

    def scaled(self, points: Array) -> Array:
        """Return points in the units of the ball."""
        # Far and infinite points become null rows later; a numerical warning would reveal them.
        with np.errstate(all="ignore"):
            return np.asarray((points - self.centre) * self.scale)

    def back(self, points: Array) -> Array:
        """Return points in the units of the data."""
        return points / self.scale + self.centre


class ProxyClustering(PrivateEstimator):
    """Base class: release proxies of the sources, then choose centres among the targets, with the proxies for free."""

    n_clusters: int

    def fit(
        self, S: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "ProxyClustering":
        """Choose centres among the public targets, given that the private sources `S` already serve as centres.

        Parameters
        ----------
        S : array-like of shape (n_sources, n_features)
            Private sources. There may be none. A source that is not finite counts as absent.
        y : None
            Ignored.
        public : Public
            The targets.
        {ledger}
        """
        k = self.n_clusters
        public, sources, T = sources_and_targets(S, public)
        if k > len(T):
            raise ValueError(f"n_clusters must be at most the number of targets, {len(T)}, got {k!r}.")
        ball = Ball.of(T)
        child = self._ledger(ledger)
        proxies = ball.back(self._proxies(ball.scaled(sources), ball.scaled(T), child))
        # The receipt is set first: an interrupted second fit must not leave new centres with an old receipt.
        self.privacy_ = child.receipt(assumptions=assumed_public(self.adjacency))
        self.n_features_in_ = T.shape[1]
        self.proxies_ = proxies
        self.centers_ = capped_k_medoids(T, k, nearest(T, proxies)[1] if len(proxies) else None)
        return self

    @abstractmethod
    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        """Release points that stand in for the sources; all points are in the units of the ball."""


def noise(epsilon: float, delta: float, enlarged: float = 1.0) -> Mechanism:
    """Return Laplace noise, or Gaussian noise if `delta` is positive, that costs the budget, times `enlarged`.

    Gaussian noise of parameter mu is rho-zCDP with rho = mu² / 2. For noise of a given rho, set epsilon to
    `accounting.gaussian_epsilon(sqrt(2 rho), delta)`.
    """
    if np.isinf(epsilon):
        return NonPrivate()
    return Laplace(enlarged / epsilon) if delta == 0 else Gaussian(enlarged / gaussian_mu(epsilon, delta))


def coreset(T: NDArray[Any], distance: float) -> NDArray[np.int64]:
    """Return rows of `T` such that every row is within `distance` of one of them.

    Section 6 and Appendix B of paper 5. A k-d tree [1]_ halves the rows at the median of their widest coordinate, until
    the row nearest to the middle of a leaf is within `distance` of all rows of the leaf. That row represents the leaf.

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Public rows.
    distance : float
        Largest distance of a row to its representative; the paper takes 0.05 where the longest row is 1/2.

    Returns
    -------
    ndarray of int
        Row numbers, ascending.

    References
    ----------
    .. [1] J. L. Bentley, J. H. Friedman. Data structures for range searching. 1979.

    Examples
    --------
    >>> coreset(np.array([[0.0], [0.01], [0.3], [0.31]]), 0.05).tolist()
    [0, 2]
    """
    distance = checks.positive(distance, "distance")
    chosen, waiting = [], [np.arange(len(T))]
    while waiting:
        rows = waiting.pop()
        points = T[rows]
        low, high = points.min(axis=0), points.max(axis=0)
        representative = rows[int(np.linalg.norm(points - (low + high) / 2, axis=1).argmin())]
        if np.linalg.norm(points - T[representative], axis=1).max() <= distance:
            chosen.append(int(representative))
            continue
        order = np.argsort(points[:, int((high - low).argmax())], kind="stable")
        waiting += [rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]]
    return np.sort(np.asarray(chosen, dtype=np.int64))


class NAS(ProxyClustering):
    """Noisy Average Set: centres among public targets, with noisy averages of nearest sources as centres that exist.

    Algorithm 1 of [1]_. For every target of a coreset, the average of its `n_neighbours` nearest sources is released.
    These averages then count as centres that already exist.

    **Privacy.** Protects one source (see `adjacency`).
    Releases: the average of the nearest sources of each target, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centres to choose.
    epsilon : float, default=3.0
        The most that this fit may spend. Infinity: no privacy.
    delta : float, default=0.0
        0: Laplace noise, Theorem 5.9. Positive: see `constants`.
    n_neighbours : int, default=150
        Number of sources that are averaged. Choose it without looking at the sources, or at how many there are.
    constants : {"tight", "paper"}, default="tight"
        With positive `delta`: "tight" adds exactly calibrated Gaussian noise once, as Theorem 5.11 does; "paper" adds
        Laplace noise for each target and composes as in the proof of Theorem 5.3. With `delta` 0 both agree: the
        printed noise is the noise that is needed.
    coreset_distance : float, optional, default=0.05
        Average around a coreset of the targets only. Every target is this close to the coreset, where the longest
        target is 1/2. None: around all targets.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets.
    proxies_ : ndarray of shape (n_proxies, n_features)
        The noisy averages.
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    With fewer sources than `n_neighbours`, the paper averages over the existing sources, and one source can move that
    average further than the proof says. Here a missing source counts as the target itself, which keeps the bound for
    any number of sources.
    Points are scaled by the targets alone, and sources outside their ball are left out.

    References
    ----------
    .. [1] Differentially Private Source-Target Clustering.

    Examples
    --------
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 1.0
    >>> model = NAS(5, epsilon=8.0, delta=1e-6, random_state=0).fit(S, public=Public(T))
    >>> model.centers_.shape, bool(model.privacy_.epsilon <= 8.0)
    ((5,), True)
    """

    def __init__(
        self,
        n_clusters: checks.Count = 8,
        epsilon: Annotated[float, checks.or_infinite] = 3.0,
        delta: float = 0.0,
        *,
        n_neighbours: checks.Count = 150,
        constants: Annotated[str, checks.choice(*CONSTANTS)] = "tight",
        coreset_distance: checks.Positive | None = 0.05,
        adjacency: str = "add-remove",
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.n_neighbours = n_neighbours
        self.constants = constants
        self.coreset_distance = coreset_distance
        self.adjacency = adjacency
        self.random_state = random_state

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        around = T if self.coreset_distance is None else T[coreset(T, self.coreset_distance)]
        arguments, label = (S, around, self.n_neighbours, RADIUS), "averages of the nearest sources"
        if self.constants == "paper" and self.delta > 0 and math.isfinite(self.epsilon):
            once = advanced_composition(self.epsilon, self.delta, len(around))
            mechanism, statistics = Laplace(1 / once), each_neighbour_sum(*arguments)
            mechanism.scale(statistics[0], ledger.adjacency)  # refuses too large a noise before it is charged
            run = ledger.start(Repeated(mechanism, len(around)), label=label)
            sums = np.stack([run.release(one) for one in statistics])
        else:
            sums = ledger.release(noise(self.epsilon, self.delta), neighbour_sums(*arguments), label=label)
        return np.asarray(sums / self.n_neighbours)


def advanced_composition(epsilon: float, delta: float, times: int) -> float:
    """Return the epsilon of each of `times` releases that together cost `epsilon` at `delta` by advanced composition.

    Solves e sqrt(2 L ln(1/delta)) + L e (exp(e) - 1) / (exp(e) + 1) = epsilon, as the proof of Theorem 5.3 quotes it.

    Examples
    --------
    >>> round(advanced_composition(1.0, 1e-6, 100), 4)
    0.0187
    """

    def excess(once: float) -> float:
        spread = once * math.sqrt(2 * times * math.log(1 / delta))
        return spread + times * once * math.tanh(once / 2) - epsilon

    return float(brentq(excess, 0.0, epsilon, xtol=1e-15)) * (1 - 1e-9)


class NNA(ProxyClustering):
    """Neighbour Noisy Averages: centres among public targets, with noisy averages of sources as centres that exist.

    Algorithm 2 of [1]_. Every source belongs to its nearest target. Each target's count and sum of sources are
    released. Where the noisy count passes a threshold, their quotient counts as a centre that already exists.

    **Privacy.** Protects one source (see `adjacency`).
    Releases: the count and the sum of the sources nearest to each target, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centres to choose.
    epsilon : float, default=3.0
        The most that this fit may spend. Infinity: no privacy.
    delta : float, default=0.0
        0: Laplace noise, Theorem 5.10. Positive: Gaussian noise, Theorem 5.12.
    constants : {"tight", "paper"}, default="tight"
        The paper bounds what one source contributes to count and sum by sqrt(d) + 1 in l1 and 2 in l2. Sources are no
        longer than 1/2, so sqrt(d) / 2 + 1 and sqrt(1.25) are enough: "tight". With "paper" the noise is larger than
        needed, and the receipt shows the smaller cost.
    threshold : {"corrected", "paper"}, default="corrected"
        "paper" is 1 + log((sqrt(d) + 1) / gamma) / epsilon, which lacks the factor sqrt(d) + 1 of the noise scale:
        too many empty cells pass. With "corrected", some empty cell passes with probability at most `gamma`, over all
        cells together.
    gamma : float, default=0.1
        Between 0 and 1. The paper does not say what it used.
    coreset_distance : float, optional, default=0.05
        Cells around a coreset of the targets only. Every target is this close to the coreset, where the longest target
        is 1/2. None: around all targets.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets.
    proxies_ : ndarray of shape (n_proxies, n_features)
        The noisy averages that passed the threshold.
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Points are scaled by the targets alone, and sources outside their ball are left out. The paper prints no threshold
    for Gaussian noise; "paper" then takes the paper's tail bound, sqrt(2) sigma log(2 (d + 1) / gamma), with 1 / mu for
    sigma: it lacks the sensitivity, as the printed threshold for Laplace noise does.

    References
    ----------
    .. [1] Differentially Private Source-Target Clustering.

    Examples
    --------
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 1.0
    >>> model = NNA(5, random_state=0).fit(S, public=Public(T))
    >>> model.centers_.shape, bool(model.privacy_.epsilon <= 3.0)
    ((5,), True)
    """

    def __init__(
        self,
        n_clusters: checks.Count = 8,
        epsilon: Annotated[float, checks.or_infinite] = 3.0,
        delta: float = 0.0,
        *,
        constants: Annotated[str, checks.choice(*CONSTANTS)] = "tight",
        threshold: Annotated[str, checks.choice(*THRESHOLDS)] = "corrected",
        gamma: checks.Proportion = 0.1,
        coreset_distance: checks.Positive | None = 0.05,
        adjacency: str = "add-remove",
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.constants = constants
        self.threshold = threshold
        self.gamma = gamma
        self.coreset_distance = coreset_distance
        self.adjacency = adjacency
        self.random_state = random_state

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        around = T if self.coreset_distance is None else T[coreset(T, self.coreset_distance)]
        statistic = cell_sums(S, around, RADIUS)
        mechanism = noise(self.epsilon, self.delta, self._enlarged(T.shape[1]))
        # The sensitivity, and with it the scale, is public: it follows from the number of columns.
        scale = 0.0 if math.isinf(self.epsilon) else mechanism.scale(statistic, ledger.adjacency)
        noisy = ledger.release(mechanism, statistic, label="count and sum of each target's sources")
        passed = noisy[:, 0] >= self._least_count(scale, len(around), T.shape[1])
        return np.asarray(noisy[passed, 1:] / noisy[passed, :1])

    def _enlarged(self, width: int) -> float:
        """Return the factor by which the paper's noise exceeds the noise that is needed."""
        if self.constants == "tight":
            return 1.0
        if self.delta == 0:
            return (math.sqrt(width) + 1) / (math.sqrt(width) * RADIUS + 1)
        return 2 / math.hypot(1.0, RADIUS)

    def _least_count(self, scale: float, n_cells: int, width: int) -> float:
        """Return the noisy count from which on a cell is taken to have sources."""
        if not scale:
            return 1.0
        if self.threshold == "corrected":
            # The largest of n independent noises exceeds this with probability at most gamma.
            if self.delta > 0:
                return max(1.0, float(scale * norm.isf(self.gamma / n_cells)))
            return max(1.0, scale * math.log(n_cells / (2 * self.gamma)))
        if self.delta > 0:
            return 1 + math.sqrt(2) * math.log(2 * (width + 1) / self.gamma) / gaussian_mu(self.epsilon, self.delta)
        return 1 + math.log((math.sqrt(width) + 1) / self.gamma) / self.epsilon
