"""Swaps of one centre for another that lower the cost: FasterPAM, with free centres that can't be swapped away.

E. Schubert, P. J. Rousseeuw. Fast and eager k-medoids clustering. 2021. arXiv:2008.05171
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.greedy import bounded_free

# Costs looked at together: few, since each swap looks at its block again, but at least so many candidates.
_BLOCK, _LEAST_ROWS = 2**16, 12
_LEAST_GAIN = 1e-7  # of the cost: below it rounding decides


def faster_pam(
    cost: NDArray[Any],
    free: NDArray[Any],
    start: NDArray[np.int64],
    weights: NDArray[Any] | None = None,
    max_sweeps: int = 50,
) -> NDArray[np.int64]:
    """Return centres from which no single swap lowers Σ_i w_i min(free_i, min_j cost_ij) any more.

    All swaps of one candidate with every centre are priced together, from each point's nearest and second nearest
    centre; a swap is made as soon as a block of candidates offers one that pays.

    Parameters
    ----------
    cost : ndarray of shape (n_points, n_candidates)
        What it costs to serve a point from a candidate. Quickest in Fortran order: a candidate's costs lie together.
    free : ndarray of shape (n_points,)
        What it costs to serve a point from the centres that are there already; infinity where there is none.
    start : ndarray of shape (k,)
        The candidates to start from, distinct.
    weights : ndarray of shape (n_points,), optional
        How much each point counts.
    max_sweeps : int, default=50
        Most passes over all candidates.

    Returns
    -------
    ndarray of shape (k,)
        Candidates; the cost is never more than that of `start`.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    >>> cost = np.abs(points[:, None] - points)
    >>> np.sort(faster_pam(cost, np.full(6, np.inf), np.array([0, 1])))
    array([1, 4])
    """
    state = _State(cost.T, bounded_free(cost, free), np.array(start, dtype=np.int64), weights)
    n_points, n_candidates = cost.shape
    size = max(_LEAST_ROWS, _BLOCK // max(1, n_points))
    blocks = range(0, n_candidates, size)
    quiet, position = 0, 0
    while quiet < len(blocks) and position < max_sweeps * len(blocks):
        first = blocks[position % len(blocks)]
        block = np.ascontiguousarray(state.candidates[first : first + size])
        quiet += 1
        while (swap := state.best_swap(block)) is not None:
            state.swap(first + swap[0], swap[1])
            quiet = 1
        position += 1
    return state.chosen


class _State:
    """The chosen centres, and for every point the nearest and the second nearest of them.

    The free centres bear the number k. They may be nearest or second nearest like any other.
    """

    def __init__(
        self, candidates: NDArray[Any], free: NDArray[Any], chosen: NDArray[np.int64], weights: NDArray[Any] | None
    ) -> None:
        n = candidates.shape[1]
        self.candidates, self.free, self.chosen = candidates, free, chosen
        self.weights = np.ones(n, dtype=candidates.dtype) if weights is None else weights
        self.nearest, self.runner = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        self.first, self.second = np.empty_like(free), np.empty_like(free)
        self._look_up(np.arange(n))

    def _look_up(self, points: NDArray[np.int64]) -> None:
        """Find the two nearest centres of `points` among all, and what giving up each centre would cost."""
        costs = np.vstack([self.candidates[np.ix_(self.chosen, points)], self.free[points]])
        column = np.arange(len(points))
        for number, value in ((self.nearest, self.first), (self.runner, self.second)):
            place = costs.argmin(axis=0)
            number[points], value[points] = place, costs[place, column]
            costs[place, column] = np.inf
        k = len(self.chosen)
        extra = self.weights * (self.second - self.first)
        self.loss = np.bincount(self.nearest, weights=extra, minlength=k + 1)[:k]
        self.total = float(self.weights @ self.first)

    def best_swap(self, block: NDArray[Any]) -> tuple[int, int] | None:
        """Return (row of `block`, centre to give up) for the swap that lowers the cost most, or None if none does."""
        k, n = len(self.chosen), block.shape[1]
        # A candidate no nearer than a point's second nearest centre changes nothing there, whatever is given up. That
        # leaves few (candidate, point) pairs.
        closer = block < self.second
        pairs = np.flatnonzero(closer)
        row = np.repeat(np.arange(len(block)), np.count_nonzero(closer, axis=1))
        point = pairs - n * row
        value, first, weight = block.reshape(-1)[pairs], self.first[point], self.weights[point]
        gain = np.bincount(row, weights=weight * np.minimum(value - first, 0), minlength=len(block))
        # `loss` sends the points of a centre that is given up to their second nearest. Those that the candidate serves
        # better pay max(value, first) instead; below first, `gain` has counted the rest.
        better = weight * (np.maximum(value, first) - self.second[point])
        served = np.bincount(row * (k + 1) + self.nearest[point], weights=better, minlength=len(block) * (k + 1))
        change = gain[:, None] + served.reshape(-1, k + 1)[:, :k] + self.loss
        best = int(change.argmin())
        if not change.flat[best] < -_LEAST_GAIN * self.total:
            return None
        return best // k, best % k

    def swap(self, candidate: int, out: int) -> None:
        """Put `candidate` in the place of the centre numbered `out`."""
        touched = (self.nearest == out) | (self.runner == out)
        self.chosen[out] = candidate
        costs = self.candidates[candidate]
        nearer = np.flatnonzero((costs < self.first) & ~touched)
        between = np.flatnonzero((costs < self.second) & (costs >= self.first) & ~touched)
        self.second[nearer], self.runner[nearer] = self.first[nearer], self.nearest[nearer]
        self.first[nearer], self.nearest[nearer] = costs[nearer], out
        self.second[between], self.runner[between] = costs[between], out
        self._look_up(np.flatnonzero(touched))
