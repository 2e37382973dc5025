"""Private summaries of all sources, without regard to the targets: what paper 5 compares its algorithms with."""

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.bounded_neighbours import cell_sums
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.papers.source_target.proxies import RADIUS, ProxyClustering, noise

Array = NDArray[np.float64]


class PrivateKMeansSource(ProxyClustering):
    """Choose centres among public targets, with noisy k-means centres of the sources as centres that exist.

    Lloyd's algorithm with noise [1]_: each step releases the count and the sum of the sources nearest to each of
    `n_proxies` means. The paper's baseline is another private k-means, whose code is not maintained; this one is simple
    and strong in few dimensions.

    **Privacy.** Protects one source (see `adjacency`).
    Releases: counts and sums of the sources nearest to each mean, `n_steps` times.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        Number of centres to choose.
    epsilon : float, default=3.0
        The most that this fit may spend.
    delta : float, default=0.0
        0: Laplace noise. Positive: Gaussian noise.
    n_proxies : int, default=100
        Number of means, as in the paper.
    n_steps : int, default=5
        Number of Lloyd's steps.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

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
    The means start from public targets drawn at random, which favours this baseline over one with arbitrary starts. A
    mean whose noisy count is below two noise scales is not moved; after the last step it is left out.

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
        n_clusters: checks.Count,
        epsilon: checks.Positive = 3.0,
        delta: float = 0.0,
        *,
        n_proxies: checks.Count = 100,
        n_steps: checks.Count = 5,
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

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        # Pure costs add up over the steps; the squares of Gaussian costs mu do.
        times = self.n_steps if self.delta == 0 else math.sqrt(self.n_steps)
        mechanism = noise(self.epsilon, self.delta, times)
        means = np.random.default_rng(self.random_state).choice(T, self.n_proxies)
        mechanism.scale(cell_sums(S[:0], means, RADIUS), ledger.adjacency)  # refuses too large a noise, not yet charged
        run = ledger.start(Repeated(mechanism, self.n_steps), label="counts and sums of Lloyd's steps")
        for _ in range(self.n_steps):
            statistic = cell_sums(S, means, RADIUS)
            noisy = run.release(statistic)
            full = noisy[:, 0] > 2 * mechanism.scale(statistic, ledger.adjacency)
            moved = noisy[full, 1:] / noisy[full, :1]
            lengths = np.linalg.norm(moved, axis=1, keepdims=True)
            means[full] = moved * np.minimum(1.0, RADIUS / np.maximum(lengths, RADIUS))
        return np.asarray(means[full])


def _number_of_splits(value: int, name: str) -> int:
    if checks.count(value, name) > 20:
        raise ValueError(f"{name} must be at most 20, a million boxes, got {value!r}.")
    return int(value)


class PrivateHistogramSource(ProxyClustering):
    """Choose centres among public targets, with points drawn from a private histogram of the sources for free.

    It takes the place of the paper's DP-GAN. A generator that is trained by noisy gradient steps has no pure guarantee,
    needs a network per run, and in the paper's own figures is no better than ClusterT. In eight dimensions or fewer a
    histogram on boxes is the stronger generator.

    **Privacy.** Protects one source (see `adjacency`).
    Releases: how many sources lie in each of 2 ** `n_splits` boxes, once.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected.

    Parameters
    ----------
    n_clusters : int
        Number of centres to choose.
    epsilon : float, default=3.0
        The most that this fit may spend.
    delta : float, default=0.0
        0: Laplace noise. Positive: Gaussian noise.
    n_proxies : int, default=100
        Number of points drawn, as in the paper.
    n_splits : int, default=10
        How often the cube around the targets is halved, one coordinate after another.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

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
        n_clusters: checks.Count,
        epsilon: checks.Positive = 3.0,
        delta: float = 0.0,
        *,
        n_proxies: checks.Count = 100,
        n_splits: Annotated[int, _number_of_splits] = 10,
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

    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        d = T.shape[1]
        # The coordinates take turns: j is halved in splits j, j + d, j + 2 d, ...
        parts = 2 ** np.array([len(range(j, self.n_splits, d)) for j in range(d)])
        with np.errstate(all="ignore"):
            place = np.floor((S + RADIUS) / (2 * RADIUS) * parts)
        # A source outside the cube, or not finite, has no box.
        inside = ((place >= 0) & (place < parts)).all(axis=1)
        codes = np.full(len(S), -1, dtype=np.int64)
        codes[inside] = np.ravel_multi_index(tuple(place[inside].astype(np.int64).T), tuple(parts))
        counts = histogram(codes, int(np.prod(parts)))
        noisy = ledger.release(noise(self.epsilon, self.delta), counts, label="sources in each box")
        # Counts within two noise scales count as 0; points are drawn from the others.
        scale = 1 / self.epsilon if self.delta == 0 else 1 / gaussian_mu(self.epsilon, self.delta)
        weight = np.where(noisy > 2 * scale, noisy, 0.0)
        if not weight.any():
            return np.empty((0, d))
        random = np.random.default_rng(self.random_state)
        box = random.choice(len(weight), self.n_proxies, p=weight / weight.sum())
        corner = np.stack(np.unravel_index(box, tuple(parts)), axis=1)
        return np.asarray((corner + random.random((self.n_proxies, d))) / parts * 2 * RADIUS - RADIUS)
