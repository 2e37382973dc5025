"""Baselines of source-target clustering that release nothing: the paper's solver, sources taken to be everywhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dpadapt.clustering.solver import capped_k_medoids, cluster_t, greedy, nearest

Array = NDArray[np.float64]


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
