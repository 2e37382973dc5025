"""`NAS`: Noisy Average Set, Algorithm 1 of paper 5, "Differentially Private Source-Target Clustering"."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.coresets import coreset
from dpadapt.clustering.proxies import CONSTANTS, RADIUS, ProxyClustering, noise
from dpadapt.mechanisms.bounded_neighbours import each_neighbour_sum, neighbour_sums
from dpadapt.mechanisms.laplace import Laplace
from dpadapt.mechanisms.plan import Repeated


class NAS(ProxyClustering):
    """Centres among public targets, with noisy averages of each target's nearest sources for free.

    Algorithm 1 of [1]_. For every target of a coreset, the average of its `n_neighbours` nearest sources is released.
    Those averages then count as centres that are there already.

    Privacy
    -------
    Protects one source (see `adjacency`).
    Releases: the average of the nearest sources of each target, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        How many centres to choose.
    epsilon : float, default=3.0
        Most this fit may spend. Infinity: no privacy.
    delta : float, default=0.0
        0: Laplace noise, Theorem 5.9. Positive: see `constants`.
    n_neighbours : int, default=150
        How many sources are averaged. Choose it without looking at them, not even at how many there are.
    constants : {"tight", "paper"}, default="tight"
        With positive `delta`: "tight" adds Gaussian noise once, calibrated exactly, which is also Theorem 5.11;
        "paper" adds Laplace noise for each target and composes as the proof of Theorem 5.3 does. With `delta` 0 they
        agree: the printed noise is what is needed.
    coreset_distance : float, optional, default=0.05
        Average around a coreset of the targets only, this close to all of them where the longest target is 1/2.
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
        The noisy averages.
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Where there are fewer sources than `n_neighbours`, the paper's average over those there are moves further than its
    proof says. Here a missing source counts as the target itself, which keeps the bound for any number of sources.
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
        n_clusters: int,
        epsilon: float = 3.0,
        delta: float = 0.0,
        *,
        n_neighbours: int = 150,
        constants: str = "tight",
        coreset_distance: float | None = 0.05,
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

    def _check(self) -> None:
        _validate.count(self.n_neighbours, "n_neighbours")
        _validate.one_of(self.constants, CONSTANTS, "constants")
        if self.coreset_distance is not None:
            _validate.positive(self.coreset_distance, "coreset_distance")

    def _proxies(self, S: NDArray[np.float64], T: NDArray[np.float64], ledger: Ledger) -> NDArray[np.float64]:
        around = T if self.coreset_distance is None else T[coreset(T, self.coreset_distance)]
        what, label = (S, around, self.n_neighbours, RADIUS), "averages of the nearest sources"
        if self.constants == "paper" and self.delta > 0 and math.isfinite(self.epsilon):
            once = advanced_composition(self.epsilon, self.delta, len(around))
            run = ledger.start(Repeated(Laplace(1 / once), len(around)), label=label)
            sums = np.stack([run.release(one) for one in each_neighbour_sum(*what)])
        else:
            sums = ledger.release(noise(self.epsilon, self.delta), neighbour_sums(*what), label=label)
        return np.asarray(sums / self.n_neighbours)


def advanced_composition(epsilon: float, delta: float, times: int) -> float:
    """Return the epsilon of each of `times` releases that advanced composition adds up to `epsilon` at `delta`.

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
