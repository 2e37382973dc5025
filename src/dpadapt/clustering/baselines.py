"""What the algorithms of paper 5 are compared with: without the sources, with all of them, and with other releases.

`cluster_t` ignores the sources, `non_private` uses them as they are. `public_prior` guesses them from the targets.
`PrivateKMeansSource` and `PrivateHistogramSource` release a summary of all sources, without regard to the targets.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.proxies import RADIUS, ProxyClustering, noise
from dpadapt.clustering.solver import capped_k_medoids
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.bounded_neighbours import cell_sums
from dpadapt.mechanisms.plan import Repeated

Array = NDArray[np.float64]


def cluster_t(T: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return centres that ignore the sources: the paper's ClusterT."""
    return capped_k_medoids(T, k)


def non_private(S: NDArray[Any], T: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return centres that use the sources as they are: no privacy."""
    return capped_k_medoids(T, k, nearest(T, S)[1])


def public_prior(T: NDArray[Any], k: int, *, factor: float = 1.0) -> NDArray[np.int64]:
    """Return centres for sources that are everywhere: the cap is `factor` times the mean distance to ClusterT's.

    A gain over ClusterT that this reaches too is no evidence that the private sources were of use.
    """
    cap = factor * nearest(T, np.asarray(T)[cluster_t(T, k)])[1].mean()
    return capped_k_medoids(T, k, np.full(len(T), cap))


class PrivateKMeansSource(ProxyClustering):
    """Centres among public targets, with a private k-means summary of the sources for free.

    Lloyd's steps with noise [1]_: each releases the count and the sum of the sources nearest to each of `n_proxies`
    means. The paper's baseline is another private k-means, without kept code; this one is simple and strong in few
    dimensions.

    Privacy
    -------
    Protects one source (see `adjacency`).
    Releases: counts and sums of the sources nearest to each mean, `n_steps` times.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        How many centres to choose.
    epsilon : float, default=3.0
        Most this fit may spend.
    delta : float, default=0.0
        0: Laplace noise. Positive: Gaussian noise.
    n_proxies : int, default=100
        How many means, as in the paper.
    n_steps : int, default=5
        Lloyd's steps.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets.
    proxies_ : ndarray of shape (at most n_proxies, n_features)
        The noisy means.
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    The means start from public targets drawn at random, which favours this baseline over one that starts blindly. A
    mean whose noisy count is below two noise scales stays where it is, and if it ends so, it is left out.

    References
    ----------
    .. [1] D. Su, J. Cao, N. Li, E. Bertino, H. Jin. Differentially Private k-Means Clustering. 2016.

    Examples
    --------
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 1.0
    >>> PrivateKMeansSource(5, random_state=0).fit(S, public=Public(T)).centers_.shape
    (5,)
    """

    def __init__(
        self,
        n_clusters: int,
        epsilon: float = 3.0,
        delta: float = 0.0,
        *,
        n_proxies: int = 100,
        n_steps: int = 5,
        adjacency: str = "add-remove",
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.n_proxies = n_proxies
        self.n_steps = n_steps
        self.adjacency = adjacency
        self.random_state = random_state

    def _check(self) -> None:
        _validate.positive(self.epsilon, "epsilon")
        _validate.count(self.n_proxies, "n_proxies")
        _validate.count(self.n_steps, "n_steps")

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        # Pure costs add up; Gaussian noise composes by its squares.
        times = self.n_steps if self.delta == 0 else math.sqrt(self.n_steps)
        mechanism = noise(self.epsilon, self.delta, times)
        run = ledger.start(Repeated(mechanism, self.n_steps), label="counts and sums of Lloyd's steps")
        means = np.random.default_rng(self.random_state).choice(T, self.n_proxies)
        for _ in range(self.n_steps):
            statistic = cell_sums(S, means, RADIUS)
            noisy = run.release(statistic)
            full = noisy[:, 0] > 2 * mechanism.scale(statistic, ledger.adjacency)
            moved = noisy[full, 1:] / noisy[full, :1]
            lengths = np.linalg.norm(moved, axis=1, keepdims=True)
            means[full] = moved * np.minimum(1.0, RADIUS / np.maximum(lengths, RADIUS))
        return np.asarray(means[full])


class PrivateHistogramSource(ProxyClustering):
    """Centres among public targets, with points drawn from a private histogram of the sources for free.

    It stands for the paper's DP-GAN. A generator by noisy gradient steps has no pure guarantee, takes a network per
    run, and in the paper's own figures does no better than ClusterT; in eight dimensions or fewer a histogram on boxes
    is the stronger generator, and exact noise protects it.

    Privacy
    -------
    Protects one source (see `adjacency`).
    Releases: how many sources lie in each of 2 ** `n_splits` boxes, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        How many centres to choose.
    epsilon : float, default=3.0
        Most this fit may spend.
    delta : float, default=0.0
        0: Laplace noise. Positive: Gaussian noise.
    n_proxies : int, default=100
        How many points are drawn, as in the paper.
    n_splits : int, default=10
        How often the cube around the targets is halved, coordinate after coordinate.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets.
    proxies_ : ndarray of shape (n_proxies, n_features)
        The points drawn.
    privacy_ : Receipt
        What was released and what it cost.

    Examples
    --------
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 1.0
    >>> PrivateHistogramSource(5, random_state=0).fit(S, public=Public(T)).proxies_.shape
    (100, 2)
    """

    def __init__(
        self,
        n_clusters: int,
        epsilon: float = 3.0,
        delta: float = 0.0,
        *,
        n_proxies: int = 100,
        n_splits: int = 10,
        adjacency: str = "add-remove",
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.n_proxies = n_proxies
        self.n_splits = n_splits
        self.adjacency = adjacency
        self.random_state = random_state

    def _check(self) -> None:
        _validate.positive(self.epsilon, "epsilon")
        _validate.count(self.n_proxies, "n_proxies")
        if _validate.count(self.n_splits, "n_splits") > 20:
            raise ValueError(f"n_splits must be at most 20, a million boxes, got {self.n_splits!r}.")

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        d = T.shape[1]
        # Coordinate j is halved as often as its turn comes.
        parts = 2 ** np.array([len(range(j, self.n_splits, d)) for j in range(d)])
        with np.errstate(all="ignore"):
            place = np.floor((S + RADIUS) / (2 * RADIUS) * parts)
        # A source outside the cube, or not finite, has no box.
        inside = ((place >= 0) & (place < parts)).all(axis=1)
        codes = np.full(len(S), -1, dtype=np.int64)
        codes[inside] = np.ravel_multi_index(tuple(place[inside].astype(np.int64).T), tuple(parts))
        counts = histogram(codes, int(np.prod(parts)))
        noisy = ledger.release(noise(self.epsilon, self.delta), counts, label="sources in each box")
        # Counts that noise alone explains mean none; what is left is drawn from.
        scale = 1 / self.epsilon if self.delta == 0 else 1 / gaussian_mu(self.epsilon, self.delta)
        weight = np.where(noisy > 2 * scale, noisy, 0.0)
        if not weight.any():
            return np.empty((0, d))
        random = np.random.default_rng(self.random_state)
        box = random.choice(len(weight), self.n_proxies, p=weight / weight.sum())
        corner = np.stack(np.unravel_index(box, tuple(parts)), axis=1)
        return np.asarray((corner + random.random((self.n_proxies, d))) / parts * 2 * RADIUS - RADIUS)
