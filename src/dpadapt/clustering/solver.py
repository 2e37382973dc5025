"""The k-medoids solver: k centres among the targets, with distances capped by the centres that already exist.

Greedy is followed by FasterPAM. (Paper 5 uses Accelerated k-Medoids: `benchmarks.rivals.clustering`.) Only public
points and released statistics come in, so nothing here affects the privacy guarantee.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from dpadapt import checks
from dpadapt.rows import CACHE_BYTES

Array = NDArray[Any]
Rows = NDArray[np.int64]
Centres = dict[int, Rows]  # rows of the targets, by the number of centres
Transform = Callable[[Rows, Array], Array]

# Constants of speed and memory, chosen by hand.

# Bytes of a block of distances.
_NEAREST_BLOCK_BYTES = CACHE_BYTES
# Entries of the cost matrix that FasterPAM searches together, and the least number of candidates among them. A larger
# block finds better swaps, but every swap searches its block again.
_SWAP_BLOCK_ENTRIES, _SWAP_BLOCK_CANDIDATES = 2**16, 12
# FasterPAM stops after this many passes over all candidates. A swap must lower the cost by this share of it: below,
# rounding decides.
_MOST_SWEEPS, _LEAST_SWAP_GAIN = 50, 1e-7
# Up to this many targets every target is a candidate. Above it candidates are drawn: at least the second number, and
# the third for each centre.
_MOST_TARGETS_AS_CANDIDATES, _DRAWN_CANDIDATES, _DRAWN_CANDIDATES_PER_CENTRE = 5000, 1000, 12
# Rounds of refinement. The candidates of a round are the targets nearest to each centre, and nearest to the geometric
# median of the targets that it serves: this many each. Slopes of the cost are measured over this share of a distance.
_REFINEMENT_ROUNDS, _REFINEMENT_NEIGHBOURS, _SLOPE_STEP = 2, 8, 0.1


def nearest(A: Array, B: Array) -> tuple[Rows, NDArray[np.float64]]:
    """Return, for every row of `A`, the nearest row of `B` and its distance; infinity if `B` has no rows."""
    index, value = np.zeros(len(A), dtype=np.int64), np.full(len(A), np.inf)
    if len(B):
        for part in blocks(len(A), len(B)):
            block = cdist(A[part], B)
            index[part], value[part] = block.argmin(axis=1), block.min(axis=1)
    return index, value


def blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Return slices of rows whose distances to `n_columns` others stay in the processor's cache."""
    size = max(1, _NEAREST_BLOCK_BYTES // (8 * max(1, n_columns)))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def greedy(cost: Array, free: Array, k: int) -> Rows:
    """Return `k` candidates, in the order in which they lower Σ_i min(free_i, min_j cost_ij) the most.

    `cost` has a row for each point and a column for each candidate; it is fastest in Fortran order. `free` is the cost
    of serving a point from the centres that already exist, infinity where there are none. The reduction is submodular,
    so an earlier gain of a candidate is an upper bound on its gain now, and only the candidates with the largest bounds
    are looked at again. Ties go to the earliest. Every prefix of the answer is the greedy answer for a smaller `k`.
    """
    candidates, served = cost.T, _bounded_free(cost, free)

    def bound(candidate: int) -> tuple[float, int]:
        return -float(np.maximum(served - candidates[candidate], 0).sum()), candidate

    bounds = [bound(candidate) for candidate in range(len(candidates))]
    heapq.heapify(bounds)
    order = np.empty(k, dtype=np.int64)
    for step in range(k):
        best = bound(heapq.heappop(bounds)[1])
        while bounds and best > bounds[0]:
            best = bound(heapq.heappushpop(bounds, best)[1])
        order[step] = best[1]
        np.minimum(served, candidates[best[1]], out=served)
    return order


def _bounded_free(cost: Array, free: Array) -> Array:
    """Return `free` in the type of `cost`, at most the largest cost of the point: no more is paid with one centre."""
    # Without that limit a huge or infinite cost would round away the digits of all others in a sum.
    return np.asarray(np.minimum(free, cost.max(axis=1)), dtype=cost.dtype)


def faster_pam(cost: Array, free: Array, start: Rows) -> Rows:
    """Return centres such that no single swap lowers Σ_i min(free_i, min_j cost_ij) further, from `start`.

    The algorithm is that of E. Schubert and P. J. Rousseeuw, Fast and eager k-medoids clustering, 2021
    (arXiv:2008.05171), in blocks: the best swap of a block of candidates is made if it lowers the cost. The centres
    that `free` stands for can't be swapped.
    """
    candidates, chosen = cost.T, np.array(start, dtype=np.int64)
    n, n_candidates = cost.shape
    # What each centre would charge each point; the free centres are the last.
    charges = np.vstack([candidates[chosen], _bounded_free(cost, free)])
    near, changed = np.empty((2, n), dtype=np.int64), np.arange(n)
    size = max(_SWAP_BLOCK_CANDIDATES, _SWAP_BLOCK_ENTRIES // n)
    parts = [slice(first, first + size) for first in range(0, n_candidates, size)]
    quiet = 0
    for part in islice(cycle(parts), _MOST_SWEEPS * len(parts)):
        block = np.ascontiguousarray(candidates[part])
        while True:
            if len(changed):
                # The two nearest centres of each point, and what they charge.
                near[:, changed] = np.argpartition(charges[:, changed], 1, axis=0)[:2]
                first, second = np.take_along_axis(charges, near, axis=0)
            change = _swap_changes(block, near[0], first, second, len(chosen))
            place, out = np.unravel_index(int(change.argmin()), change.shape)
            if not change[place, out] < -_LEAST_SWAP_GAIN * float(first.sum()):
                changed = changed[:0]
                break
            chosen[out], charges[out], quiet = part.start + place, block[place], 0
            changed = np.flatnonzero((near == out).any(axis=0) | (block[place] < second))
        quiet += 1
        if quiet == len(parts):
            break
    return chosen


def _swap_changes(block: Array, owner: Rows, first: Array, second: Array, k: int) -> NDArray[np.float64]:
    """Return by how much the cost changes if a candidate (row of `block`) takes the place of a centre (column)."""
    # A candidate that charges a point no less than its second nearest centre changes nothing for that point, whichever
    # centre is given up. That leaves few (candidate, point) pairs.
    closer = block < second
    pairs = np.flatnonzero(closer)
    row = np.repeat(np.arange(len(block)), np.count_nonzero(closer, axis=1))
    point = pairs - block.shape[1] * row
    value, now = block.reshape(-1)[pairs], first[point]
    gain = np.bincount(row, weights=np.minimum(value - now, 0), minlength=len(block))
    # The points of a centre that is given up move to their second nearest centre. Those that the candidate serves
    # better pay max(value, now) instead; what they pay below `now` is already in `gain`.
    loss = np.bincount(owner, weights=second - first, minlength=k + 1)
    saved = np.maximum(value, now) - second[point]
    served = np.bincount(row * (k + 1) + owner[point], weights=saved, minlength=len(block) * (k + 1))
    return np.asarray((gain[:, None] + served.reshape(-1, k + 1) + loss)[:, :k])


def capped_k_medoids(
    T: Array,
    k: int,
    cap: Array | None = None,
    *,
    transform: Transform | None = None,
    rows: Rows | None = None,
    max_bytes: int = 2**28,
    random_state: int = 0,
) -> Rows:
    """Return the rows of `T` that lower the mean of min(cap, distance to the nearest of them) the most.

    With few targets every target is a candidate, and greedy is followed by FasterPAM. With many, both choose among
    candidates drawn with probability proportional to the cap, then FasterPAM among the targets around the chosen
    centres. The distances held at one time never exceed `max_bytes`; if they would, the cost is summed over a sample.

    `rows` are the numbers of the targets that are served, whose cost is the mean (default: all); any target may be a
    centre. `cap` has the distance of each served target to the centres that already exist (default: there are none).
    `transform(places, distances)` is the cost of serving the targets `rows[places]`, of shape (p,), from `distances`,
    of shape (p, c): concave and increasing (default: the distance). The cap is transformed as well. `random_state`
    seeds the draw of candidates from public rows.

    Examples
    --------
    >>> T = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0], [30.0]])
    >>> capped_k_medoids(T, 2, cap=np.array([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.1])).tolist()
    [1, 4]
    """
    problem = _Problem(T, cap, transform, rows)
    if checks.count(k, "k") > len(problem.rows):
        raise ValueError(f"k must be at most the number of targets, {len(problem.rows)}, got {k!r}.")
    return problem.solve_each([k], max_bytes, random_state)[k]


def each_k_medoids(
    T: Array, numbers: Sequence[int], transform: Transform | None = None, rows: Rows | None = None
) -> Centres:
    """Return the answers of `capped_k_medoids` for several numbers of centres, with distances computed once."""
    return _Problem(T, None, transform, rows).solve_each(numbers)


class _Problem:
    """The targets `T`, the numbers `rows` of those that are served, and the caps and the cost function of these."""

    def __init__(self, T: Array, cap: Array | None, transform: Transform | None, rows: Rows | None) -> None:
        T = np.asarray(T, dtype=np.float64)
        if T.ndim != 2 or not len(T):
            raise ValueError(f"T must have two dimensions and at least one row, got shape {T.shape}.")
        if not np.isfinite(T).all():
            raise ValueError("T must be finite; drop or fill the rows that are not.")
        self.T = T - T.mean(axis=0)
        self.rows = np.arange(len(T)) if rows is None else np.asarray(rows)
        self.cap = np.full(len(self.rows), np.inf) if cap is None else np.asarray(cap, dtype=np.float64)
        if self.cap.shape != self.rows.shape or not (self.cap >= 0).all():
            raise ValueError(f"cap must hold one number of at least 0 for each of the {len(self.rows)} targets.")
        self.transform = (lambda points, distances: distances) if transform is None else transform

    def solve_each(self, numbers: Sequence[int], max_bytes: int = 2**28, seed: int = 0) -> Centres:
        """Return centres for each of these numbers of them."""
        n, every = len(self.rows), np.arange(len(self.T))
        if len(every) <= _MOST_TARGETS_AS_CANDIDATES and 4 * n * len(every) <= max_bytes:
            cost, free = self.costs(np.arange(n), every), self.free(np.arange(n))
            order = greedy(cost, free, max(numbers))
            return {k: faster_pam(cost, free, order[:k]) for k in numbers}
        return {k: self._solve_sampled(k, max_bytes, np.random.default_rng(seed)) for k in numbers}

    def _solve_sampled(self, k: int, max_bytes: int, random: np.random.Generator) -> Rows:
        n = len(self.rows)
        size = max(_DRAWN_CANDIDATES, _DRAWN_CANDIDATES_PER_CENTRE * k)
        size = min(size, max(2 * k, max_bytes // (4 * min(n, 10 * size))), n)
        n_points = min(n, max(size, max_bytes // (4 * max(size, 2 * _REFINEMENT_NEIGHBOURS * k))))
        points = np.sort(random.choice(n, n_points, replace=False))
        free, without = self.free(points), self.free(np.arange(n))
        # Candidates are drawn by their cost without new centres; 0 is raised a little, so that there are enough.
        share = np.where(np.isfinite(without), without, 1.0)
        share += 1e-9 * share.mean() + 1e-300
        candidates = self.rows[np.sort(random.choice(n, size, replace=False, p=share / share.sum()))]
        cost = self.costs(points, candidates)
        centres = candidates[faster_pam(cost, free, greedy(cost, free, k))]
        for _ in range(_REFINEMENT_ROUNDS):
            candidates = self._around(centres)
            centres = candidates[faster_pam(self.costs(points, candidates), free, np.arange(k))]
        return centres

    def costs(self, points: Rows, candidates: Rows) -> NDArray[np.float32]:
        """Return the cost of serving the served targets `points` from the targets `candidates`, in Fortran order."""
        out = np.empty((len(candidates), len(points)), dtype=np.float32)
        for part in blocks(len(points), len(candidates)):
            distances = cdist(self.T[self.rows[points[part]]], self.T[candidates])
            out[:, part] = self.transform(points[part], distances).T
        return out.T

    def free(self, points: Rows) -> Array:
        """Return the cost of serving `points` from the centres that already exist."""
        return self.transform(points, self.cap[points, None])[:, 0]

    def _around(self, centres: Rows) -> Rows:
        """Return the centres, then the targets nearest to them and to the medians of the targets that they serve.

        The medians are geometric, after one step of Weiszfeld's algorithm from the centres. Each target has the slope
        of its cost as weight: the tangent is an upper bound on a concave cost.
        """
        served, wanted = self.T[self.rows], min(_REFINEMENT_NEIGHBOURS, len(self.T))
        owner, distance = nearest(served, self.T[centres])
        both = np.minimum(distance[:, None] * (1 - _SLOPE_STEP, 1), self.cap[:, None])
        pull = np.diff(self.transform(np.arange(len(owner)), both))[:, 0]
        pull /= np.maximum(distance, 1e-9 * distance.max() + 1e-150) ** 2
        members = csr_array((pull, (owner, np.arange(len(owner)))), shape=(len(centres), len(owner)))
        total = members.sum(axis=1)[:, None]
        medians = np.where(total > 0, members @ served / np.maximum(total, 1e-300), self.T[centres])
        tree = cKDTree(self.T, compact_nodes=False, balanced_tree=False)
        near = tree.query(np.vstack([self.T[centres], medians]), wanted)[1]
        return np.concatenate([centres, np.setdiff1d(near, centres)])


def cluster_t(T: Array, k: int) -> Rows:
    """Return centres that ignore the sources: ClusterT of paper 5."""
    return capped_k_medoids(T, k)


def non_private(S: Array, T: Array, k: int) -> Rows:
    """Return centres that use the exact sources, without privacy."""
    return capped_k_medoids(T, k, nearest(T, S)[1])
