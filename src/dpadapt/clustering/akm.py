"""Accelerated k-Medoids, the solver that paper 5 uses (de Mathelin et al. 2022): the baseline for `solver.py`.

A. de Mathelin, F. Deheeger, M. Mougeot, N. Vayatis. Discrepancy-Based Active Learning for Domain Adaptation. 2022.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.distances import distances, nearest
from dpadapt.clustering.greedy import greedy


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
    """Return `k` rows of `T`: greedy on a random batch, then alternate between clusters and their medoids.

    In each cluster the medoid is found by successive elimination: the mean distance of every member to a growing random
    part of the cluster, and its standard error, rule out members until few are left.

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Targets.
    k : int
        How many centres.
    cap : ndarray of shape (n,), optional
        Distance of each target to the centres that are there already.
    batch_size_init : int, default=3000
        How many targets greedy sees.
    batch_size : int, default=100
        By how much the part of a cluster grows.
    max_iter : int, default=10
        Most rounds.
    tol : float, default=1e-4
        A round that lowers the mean distance by less is the last.
    random_state : int, default=0
        Seeds the batches.

    Returns
    -------
    ndarray of shape (k,)
        Row numbers.

    Notes
    -----
    The settings are those of the authors' public code; distances are Euclidean, as in paper 5. That code returns the
    last round, whose cost can be above an earlier one; so does this.

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
    centres = batch[greedy(distances(T[batch], T[batch]).astype(np.float32).T, free[batch], k)]
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
    """Return the number of each target's nearest centre, -1 where a free one is as near, and its distance."""
    cluster, distance = nearest(T, T[centres])
    return np.where(free <= distance, -1, cluster), np.minimum(free, distance)


def _medoid(rows: NDArray[Any], now: float, batch_size: int, random: np.random.Generator) -> int | None:
    """Return the row with the least mean distance to the others, found by elimination; None if `now` is no worse."""
    order = random.permutation(len(rows))
    kept, sums, squares, seen, bound = np.arange(len(rows)), 0.0, 0.0, 0, now
    mean = np.full(len(rows), np.inf)
    while seen < len(rows):
        # Once few are left, all that is missing is seen at once.
        part = order[seen:] if len(kept) <= batch_size else order[seen : seen + batch_size]
        block = distances(rows[kept], rows[part])
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
