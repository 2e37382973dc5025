"""What the algorithms of paper 5 are compared with: private summaries of the sources, and the paper's solver.

`PrivateKMeansSource` and `PrivateHistogramSource` release a summary of all sources, without regard to the targets.
`public_prior` uses no sources. `accelerated_k_medoids` is the solver that paper 5 uses. The other baselines without a
release (`cluster_t`, `non_private`) are in `dpadapt.clustering.solver`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, greedy, nearest
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
        checks.positive(self.epsilon, "epsilon")
        checks.count(self.n_proxies, "n_proxies")
        checks.count(self.n_steps, "n_steps")

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
        checks.positive(self.epsilon, "epsilon")
        checks.count(self.n_proxies, "n_proxies")
        if checks.count(self.n_splits, "n_splits") > 20:
            raise ValueError(f"n_splits must be at most 20, a million boxes, got {self.n_splits!r}.")

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


def accelerated_k_medoids(
    T: NDArray[Any],
    k: int,
    cap: NDArray[Any] | None = None,
    *,
    batch_size_init: int = 3000,
    batch_size: int = 100,
    max_iter: int = 10,
    tol: float = 1e-4,
    random_state: int = 0,
) -> NDArray[np.int64]:
    """Return `k` rows of `T` by Accelerated k-Medoids [1]_, the solver of paper 5.

    Greedy on a random batch, then alternation between clusters and their medoids. The medoid of a cluster is found by
    successive elimination: the mean distance of every member to a growing random part of the cluster, with its standard
    error, rules out members until few are left.

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Targets.
    k : int
        Number of centres.
    cap : ndarray of shape (n,), optional
        Distance of each target to the centres that already exist.
    batch_size_init : int, default=3000
        Number of targets that greedy uses.
    batch_size : int, default=100
        Number of members by which the part of a cluster grows.
    max_iter : int, default=10
        Largest number of rounds.
    tol : float, default=1e-4
        A round that lowers the mean distance by less than this is the last.
    random_state : int, default=0
        Seeds the batches.

    Returns
    -------
    ndarray of shape (k,)
        Row numbers.

    Notes
    -----
    The settings are those of the authors' public code; distances are Euclidean, as in paper 5. That code returns the
    last round, whose cost can be above that of an earlier one; so does this function.

    References
    ----------
    .. [1] A. de Mathelin, F. Deheeger, M. Mougeot, N. Vayatis. Discrepancy-Based Active Learning for Domain
       Adaptation. 2022.

    Examples
    --------
    >>> T = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> sorted(accelerated_k_medoids(T, 2).tolist())
    [1, 4]
    """
    random = np.random.default_rng(random_state)
    T = np.asarray(T, dtype=np.float64)
    T, n = T - T.mean(axis=0), len(T)
    free = np.full(n, np.inf) if cap is None else np.asarray(cap, dtype=np.float64)
    batch = random.choice(n, min(n, max(batch_size_init, k)), replace=False)
    centres = batch[greedy(cdist(T[batch], T[batch]).astype(np.float32).T, free[batch], k)]
    cluster, distance = _assign(T, centres, free)
    before = np.inf
    for _ in range(max_iter):
        if not before - distance.mean() > tol:
            break
        before = distance.mean()
        order = np.argsort(cluster, kind="stable")
        ends = np.searchsorted(cluster[order], np.arange(k + 1))
        for number in range(k):
            members = order[ends[number] : ends[number + 1]]
            if len(members):
                best = _medoid(T[members], float(distance[members].mean()), batch_size, random)
                centres[number] = centres[number] if best is None else members[best]
        cluster, distance = _assign(T, centres, free)
    return np.asarray(centres)


def _assign(
    T: NDArray[Any], centres: NDArray[np.int64], free: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each target's nearest centre, or -1 where a free centre is at least as near, and the distance to it."""
    cluster, distance = nearest(T, T[centres])
    return np.where(free <= distance, -1, cluster), np.minimum(free, distance)


def _medoid(rows: NDArray[Any], now: float, batch_size: int, random: np.random.Generator) -> int | None:
    """Return the row with the least mean distance to the others, by elimination; None if it is not below `now`."""
    order = random.permutation(len(rows))
    kept, sums, squares, seen, bound = np.arange(len(rows)), 0.0, 0.0, 0, now
    mean = np.full(len(rows), np.inf)
    while seen < len(rows):
        # Once few candidates are left, all remaining rows are used at once.
        part = order[seen:] if len(kept) <= batch_size else order[seen : seen + batch_size]
        block = cdist(rows[kept], rows[part])
        if not seen:
            bound = min(bound, float(block.mean(axis=0).min()))
        seen += len(part)
        sums, squares = sums + block.sum(axis=1), squares + (block**2).sum(axis=1)
        mean = sums / seen
        if seen == len(rows):
            break
        error = 2 * np.sqrt(np.maximum(squares / seen - mean**2, 0.0) / seen)
        best = int(mean.argmin())
        stay = mean - error <= min(bound, float(mean[best] + error[best]))
        if not stay.any():
            return None
        kept, sums, squares, mean = kept[stay], sums[stay], squares[stay], mean[stay]
    best = int(mean.argmin())
    return int(kept[best]) if mean[best] < now else None


def public_prior(T: Array, k: int, *, factor: float = 1.0) -> NDArray[np.int64]:
    """Return centres as if sources were everywhere: the cap is `factor` times the mean distance to ClusterT's centres.

    A gain over ClusterT that this reaches as well is no evidence that the private sources were useful.
    """
    cap = factor * nearest(T, np.asarray(T)[cluster_t(T, k)])[1].mean()
    return capped_k_medoids(T, k, np.full(len(T), cap))
