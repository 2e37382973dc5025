"""Lazy greedy choice of centres when some centres are already there for free."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUND = 16  # candidates looked at again together: fewer cost more passes of Python, more cost needless sums


def greedy(cost: NDArray[Any], free: NDArray[Any], k: int, weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return `k` candidates, in the order in which they lower Σ_i w_i min(free_i, min_j cost_ij) the most.

    The reduction is submodular, so what a candidate gained before is an upper bound on what it gains now. Only the
    candidates with the largest bounds are looked at again, and the choice is that of plain greedy. Every prefix of the
    answer is the greedy answer for a smaller `k`.

    Parameters
    ----------
    cost : ndarray of shape (n_points, n_candidates)
        What it costs to serve a point from a candidate. Quickest in Fortran order: a candidate's costs lie together.
    free : ndarray of shape (n_points,)
        What it costs to serve a point from the centres that are there already; infinity where there is none.
    k : int
        How many to choose, at most `n_candidates`.
    weights : ndarray of shape (n_points,), optional
        How much each point counts.

    Returns
    -------
    ndarray of shape (k,)
        Distinct candidates. Ties go to the earliest.

    Examples
    --------
    >>> cost = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 8.0], [9.0, 8.0, 0.0]])
    >>> greedy(cost, np.array([0.5, 5.0, 5.0]), 2)
    array([1, 2])
    """
    candidates = cost.T
    served = bounded_free(cost, free)
    gains = np.empty(len(candidates))
    for start in range(0, len(candidates), _ROUND):
        part = slice(start, start + _ROUND)
        gains[part] = _gains(candidates[part], served, weights)
    order = np.empty(k, dtype=np.int64)
    for step in range(k):
        fresh = np.zeros(len(gains), dtype=bool) if step else np.ones(len(gains), dtype=bool)
        while not fresh[best := int(gains.argmax())]:
            stale = np.where(fresh, -np.inf, gains)
            size = min(_ROUND, len(gains))
            top = np.sort(np.argpartition(-stale, size - 1)[:size])
            top = top[stale[top] > -np.inf]
            gains[top] = _gains(candidates[top], served, weights)
            fresh[top] = True
        order[step] = best
        gains[best] = -np.inf
        np.minimum(served, candidates[best], out=served)
    return order


def bounded_free(cost: NDArray[Any], free: NDArray[Any]) -> NDArray[Any]:
    """Return `free` in the type of `cost`, no more than the dearest candidate: with one chosen, more is never paid.

    Without that limit a huge or infinite price would swallow the digits of all others in a sum.
    """
    return np.asarray(np.minimum(free, cost.max(axis=1)), dtype=cost.dtype)


def _gains(rows: NDArray[Any], served: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
    """Return by how much each candidate, a row of costs, lowers what the points pay now."""
    saved = np.maximum(served - rows, 0)
    return np.asarray(saved.sum(axis=1) if weights is None else saved @ weights)
