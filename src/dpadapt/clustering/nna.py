"""`NNA`: Neighbour Noisy Averages, Algorithm 2 of paper 5, "Differentially Private Source-Target Clustering"."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dpadapt import _validate
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.coresets import coreset
from dpadapt.clustering.proxies import CONSTANTS, RADIUS, ProxyClustering, noise
from dpadapt.mechanisms.bounded_neighbours import cell_sums

THRESHOLDS = ("corrected", "paper")


class NNA(ProxyClustering):
    """Centres among public targets, with noisy averages of the sources nearest to each target for free.

    Algorithm 2 of [1]_. Every source belongs to its nearest target. Each target's count and sum of sources are
    released; where the noisy count passes a threshold, their quotient counts as a centre that is there already.

    Privacy
    -------
    Protects one source (see `adjacency`).
    Releases: the count and the sum of the sources nearest to each target, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        How many centres to choose.
    epsilon : float, default=3.0
        Most this fit may spend. Infinity: no privacy.
    delta : float, default=0.0
        0: Laplace noise, Theorem 5.10. Positive: Gaussian noise, Theorem 5.12.
    constants : {"tight", "paper"}, default="tight"
        The paper bounds a source's share of count and sum by sqrt(d) + 1 in l1 and 2 in l2. Sources are no longer than
        1/2, so it is sqrt(d) / 2 + 1 and sqrt(1.25): "tight". With "paper" the receipt shows that less was spent.
    threshold : {"corrected", "paper"}, default="corrected"
        "paper" is 1 + log((sqrt(d) + 1) / gamma) / epsilon, which lacks the noise's scale: too many empty cells pass.
        "corrected" lets any empty cell pass with probability at most `gamma`, over all cells together.
    gamma : float, default=0.1
        Between 0 and 1. The paper does not say what it used.
    coreset_distance : float, optional, default=0.05
        Cells around a coreset of the targets only, this close to all of them where the longest target is 1/2.
        None: around all targets.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

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
    for Gaussian noise; "paper" then takes its tail bound, sqrt(2) sigma log(2 (d + 1) / gamma), without the sigma, as
    it does for Laplace noise.

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
        n_clusters: int,
        epsilon: float = 3.0,
        delta: float = 0.0,
        *,
        constants: str = "tight",
        threshold: str = "corrected",
        gamma: float = 0.1,
        coreset_distance: float | None = 0.05,
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

    def _check(self) -> None:
        _validate.one_of(self.constants, CONSTANTS, "constants")
        _validate.one_of(self.threshold, THRESHOLDS, "threshold")
        _validate.unit(self.gamma, "gamma")
        if self.coreset_distance is not None:
            _validate.positive(self.coreset_distance, "coreset_distance")

    def _proxies(self, S: NDArray[np.float64], T: NDArray[np.float64], ledger: Ledger) -> NDArray[np.float64]:
        around = T if self.coreset_distance is None else T[coreset(T, self.coreset_distance)]
        statistic = cell_sums(S, around, RADIUS)
        mechanism = noise(self.epsilon, self.delta, self._enlarged(T.shape[1]))
        # The bounds are public: they follow from the number of columns.
        scale = 0.0 if math.isinf(self.epsilon) else mechanism.scale(statistic, ledger.adjacency)
        noisy = ledger.release(mechanism, statistic, label="count and sum of each target's sources")
        passed = noisy[:, 0] >= self._least_count(scale, len(around), T.shape[1])
        return np.asarray(noisy[passed, 1:] / noisy[passed, :1])

    def _enlarged(self, width: int) -> float:
        """Return by how much the paper's noise exceeds what is needed."""
        if self.constants == "tight":
            return 1.0
        if self.delta == 0:
            return (math.sqrt(width) + 1) / (math.sqrt(width) * RADIUS + 1)
        return 2 / math.hypot(1.0, RADIUS)

    def _least_count(self, scale: float, n_cells: int, width: int) -> float:
        """Return the noisy count from which a cell is taken to have sources."""
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
