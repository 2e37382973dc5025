"""The k-medoids solver: k centres among the targets, with distances capped by the centres that already exist.

`capped_k_medoids` is greedy followed by FasterPAM. Paper 5 uses Accelerated k-Medoids instead, which is in
`dpadapt.papers.source_target.baselines`. Only public points and released statistics come in, so nothing here affects
the privacy guarantee.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dpadapt import checks

Array = NDArray[Any]
Rows = NDArray[np.int64]
Transform = Callable[[Rows, Array], Array]

# Constants of speed and memory. Unless a comment says so, they were chosen by hand, and neighbouring values were not
# compared.

# Bytes of a block of distances, so that it stays in the processor's cache.
_NEAREST_BLOCK_BYTES = 2**20
# Candidates whose gain greedy computes together: fewer take more passes of Python, more compute needless sums.
_GREEDY_BATCH = 16
# Entries of the cost matrix that FasterPAM searches together, and the least number of candidates among them. A larger
# block finds better swaps, but every swap searches its block again.
_SWAP_BLOCK_ENTRIES, _SWAP_BLOCK_CANDIDATES = 2**16, 12
# FasterPAM stops after this many passes over all candidates, even if a swap still lowers the cost.
_MOST_SWEEPS = 50
# A swap must lower the cost by this share of it: below, rounding decides.
_LEAST_SWAP_GAIN = 1e-7
# Up to this many targets every target is a candidate. It trades time and memory against cost.
_MOST_TARGETS_AS_CANDIDATES = 5000
# Above it, the number of candidates drawn: at least the first number, and the second for each centre. In a prototype
# 1,000 of 20,000 targets, with a refinement, gave costs 0.3% to 2.6% below those of Accelerated k-Medoids.
_DRAWN_CANDIDATES, _DRAWN_CANDIDATES_PER_CENTRE = 1000, 12
# Rounds of refinement. The candidates of a round are the targets nearest to each centre, and nearest to the geometric
# median of the targets that it serves: this many each. The median takes this many steps of Weiszfeld's algorithm.
_REFINEMENT_ROUNDS = 2
_REFINEMENT_NEIGHBOURS = 8
_WEISZFELD_STEPS = 3
# Slopes of the cost are measured over this share of the distance.
_SLOPE_STEP = 0.1


def distances(A: Array, B: Array) -> NDArray[np.float64]:
    """Return the distance of every row of `A` to every row of `B`: exactly 0 for equal rows."""
    return np.asarray(cdist(A, B))


def nearest(A: Array, B: Array) -> tuple[Rows, NDArray[np.float64]]:
    """Return, for every row of `A`, the nearest row of `B` and its distance; infinity if `B` has no rows."""
    index, value = np.zeros(len(A), dtype=np.int64), np.full(len(A), np.inf)
    if len(B):
        for part in blocks(len(A), len(B)):
            block = distances(A[part], B)
            index[part] = block.argmin(axis=1)
            value[part] = block[np.arange(len(block)), index[part]]
    return index, value


def blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Return slices of rows whose distances to `n_columns` others stay in the processor's cache."""
    size = max(1, _NEAREST_BLOCK_BYTES // (8 * max(1, n_columns)))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def greedy(cost: Array, free: Array, k: int) -> Rows:
    """Return `k` candidates, in the order in which they lower Σ_i min(free_i, min_j cost_ij) the most.

    `cost` has a row for each point and a column for each candidate; it is fastest in Fortran order. `free` is the cost
    of serving a point from the centres that already exist, infinity where there are none. The reduction is submodular,
    so an earlier gain of a candidate is an upper bound on its gain now. Only the gains of the candidates with the
    largest bounds are computed again, and the choice is that of plain greedy; ties go to the earliest. Every prefix of
    the answer is the greedy answer for a smaller `k`.

    Examples
    --------
    >>> cost = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 8.0], [9.0, 8.0, 0.0]])
    >>> greedy(cost, np.array([0.5, 5.0, 5.0]), 2)
    array([1, 2])
    """
    candidates = cost.T
    served = _bounded_free(cost, free)
    gains = np.empty(len(candidates))
    for start in range(0, len(candidates), _GREEDY_BATCH):
        part = slice(start, start + _GREEDY_BATCH)
        gains[part] = np.maximum(served - candidates[part], 0).sum(axis=1)
    order = np.empty(k, dtype=np.int64)
    for step in range(k):
        fresh = np.zeros(len(gains), dtype=bool) if step else np.ones(len(gains), dtype=bool)
        while not fresh[best := int(gains.argmax())]:
            stale = np.where(fresh, -np.inf, gains)
            size = min(_GREEDY_BATCH, len(gains))
            top = np.sort(np.argpartition(-stale, size - 1)[:size])
            top = top[stale[top] > -np.inf]
            gains[top] = np.maximum(served - candidates[top], 0).sum(axis=1)
            fresh[top] = True
        order[step] = best
        gains[best] = -np.inf
        np.minimum(served, candidates[best], out=served)
    return order


def _bounded_free(cost: Array, free: Array) -> Array:
    """Return `free` in the type of `cost`, at most the largest cost of the point: with one centre no more is ever paid.

    Without that limit a huge or infinite cost would round away the digits of all others in a sum.
    """
    return np.asarray(np.minimum(free, cost.max(axis=1)), dtype=cost.dtype)


def faster_pam(cost: Array, free: Array, start: Rows) -> Rows:
    """Return centres such that no single swap lowers Σ_i min(free_i, min_j cost_ij) further, from `start` [1]_.

    The changes of cost of all swaps of one candidate with every centre are computed together, from each point's nearest
    and second nearest centre; the best swap of a block of candidates is made if it lowers the cost. The centres that
    `free` stands for can't be swapped.

    References
    ----------
    .. [1] E. Schubert, P. J. Rousseeuw. Fast and eager k-medoids clustering. 2021. arXiv:2008.05171

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    >>> cost = np.abs(points[:, None] - points)
    >>> np.sort(faster_pam(cost, np.full(6, np.inf), np.array([0, 1])))
    array([1, 4])
    """
    state = _State(cost.T, _bounded_free(cost, free), np.array(start, dtype=np.int64))
    n_points, n_candidates = cost.shape
    size = max(_SWAP_BLOCK_CANDIDATES, _SWAP_BLOCK_ENTRIES // max(1, n_points))
    starts = range(0, n_candidates, size)
    quiet, position = 0, 0
    while quiet < len(starts) and position < _MOST_SWEEPS * len(starts):
        first = starts[position % len(starts)]
        block = np.ascontiguousarray(state.candidates[first : first + size])
        quiet += 1
        while (swap := state.best_swap(block)) is not None:
            state.swap(first + swap[0], swap[1])
            quiet = 1
        position += 1
    return state.chosen


class _State:
    """The chosen centres, and for every point the nearest and the second nearest of them.

    The free centres have the number k. They may be nearest or second nearest like any other.
    """

    def __init__(self, candidates: Array, free: Array, chosen: Rows) -> None:
        n = candidates.shape[1]
        self.candidates, self.free, self.chosen = candidates, free, chosen
        self.nearest, self.runner = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        self.first, self.second = np.empty_like(free), np.empty_like(free)
        self._look_up(np.arange(n))

    def _look_up(self, points: Rows) -> None:
        """Update the two nearest centres of `points`, and the cost of giving up each centre."""
        costs = np.vstack([self.candidates[np.ix_(self.chosen, points)], self.free[points]])
        column = np.arange(len(points))
        for number, value in ((self.nearest, self.first), (self.runner, self.second)):
            place = costs.argmin(axis=0)
            number[points], value[points] = place, costs[place, column]
            costs[place, column] = np.inf
        k = len(self.chosen)
        self.loss = np.bincount(self.nearest, weights=self.second - self.first, minlength=k + 1)[:k]
        self.total = float(self.first.sum())

    def best_swap(self, block: Array) -> tuple[int, int] | None:
        """Return (row of `block`, centre to give up) for the swap that lowers the cost most, or None if none does."""
        k, n = len(self.chosen), block.shape[1]
        # A candidate that is no nearer to a point than its second nearest centre changes nothing for that point,
        # whichever centre is given up. That leaves few (candidate, point) pairs.
        closer = block < self.second
        pairs = np.flatnonzero(closer)
        row = np.repeat(np.arange(len(block)), np.count_nonzero(closer, axis=1))
        point = pairs - n * row
        value, first = block.reshape(-1)[pairs], self.first[point]
        gain = np.bincount(row, weights=np.minimum(value - first, 0), minlength=len(block))
        # `loss` moves the points of a centre that is given up to their second nearest centre. Points that the candidate
        # serves better pay max(value, first) instead; what they pay below `first` is already in `gain`.
        better = np.maximum(value, first) - self.second[point]
        served = np.bincount(row * (k + 1) + self.nearest[point], weights=better, minlength=len(block) * (k + 1))
        change = gain[:, None] + served.reshape(-1, k + 1)[:, :k] + self.loss
        best = int(change.argmin())
        if not change.flat[best] < -_LEAST_SWAP_GAIN * self.total:
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

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Targets.
    k : int
        Number of centres, at most the number of targets that are served.
    cap : ndarray of shape (n_served,), optional
        Distance of each served target to the centres that already exist. Default: there are none.
    transform : callable, optional
        `transform(places, distances)` returns the cost of serving the targets `rows[places]`, of shape (p,), from
        `distances`, of shape (p, c). It must be concave and not decrease with the distance. Default: the distance
        itself. The cap is transformed as well.
    rows : ndarray of shape (n_served,), optional
        Numbers of the targets that are served, whose cost is the mean. Any target may be a centre. Default: all.
    max_bytes : int, default=2**28
        Memory for distances.
    random_state : int, default=0
        Seeds the draw of candidates from public rows.

    Returns
    -------
    ndarray of shape (k,)
        Distinct row numbers.

    Examples
    --------
    >>> T = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0], [30.0]])
    >>> capped_k_medoids(T, 2, cap=np.array([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.1])).tolist()
    [1, 4]
    """
    problem = _Problem(T, cap, transform, rows)
    n = len(problem.rows)
    if checks.count(k, "k") > n:
        raise ValueError(f"k must be at most the number of targets, {n}, got {k!r}.")
    if len(problem.T) <= _MOST_TARGETS_AS_CANDIDATES and 4 * n * len(problem.T) <= max_bytes:
        return problem.solve(np.arange(n), np.arange(len(problem.T)), None, k)
    random = np.random.default_rng(random_state)
    size = max(_DRAWN_CANDIDATES, _DRAWN_CANDIDATES_PER_CENTRE * k)
    size = min(size, max(2 * k, max_bytes // (4 * min(n, 10 * size))), n)
    n_points = min(n, max(size, max_bytes // (4 * max(size, 2 * _REFINEMENT_NEIGHBOURS * k))))
    points = np.sort(random.choice(n, n_points, replace=False))
    centres = problem.solve(points, problem.draw(size, random), None, k)
    for _ in range(_REFINEMENT_ROUNDS):
        centres = problem.solve(points, problem.around(centres), centres, k)
    return centres


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
        self.served = self.T if rows is None else self.T[self.rows]
        self.cap = np.full(len(self.rows), np.inf) if cap is None else np.asarray(cap, dtype=np.float64)
        if self.cap.shape != self.rows.shape or not (self.cap >= 0).all():
            raise ValueError(f"cap must hold one number of at least 0 for each of the {len(self.rows)} targets.")
        self.transform = transform

    def costs(self, points: Rows, candidates: Rows) -> NDArray[np.float32]:
        """Return the cost of serving the served targets `points` from the targets `candidates`, in Fortran order."""
        out = np.empty((len(candidates), len(points)), dtype=np.float32)
        columns = self.T[candidates]
        for part in blocks(len(points), len(candidates)):
            if self.transform is None:
                out[:, part] = distances(columns, self.served[points[part]])
            else:
                out[:, part] = self.transform(points[part], distances(self.served[points[part]], columns)).T
        return out.T

    def free(self, points: Rows) -> Array:
        """Return the cost of serving `points` from the centres that already exist."""
        cap = self.cap[points]
        return cap if self.transform is None else self.transform(points, cap[:, None])[:, 0]

    def solve(self, points: Rows, candidates: Rows, start: Rows | None, k: int) -> Rows:
        """Return the best of `candidates` for `points`, from `start` (the first candidates) or from greedy's choice."""
        cost, free = self.costs(points, candidates), self.free(points)
        first = greedy(cost, free, k) if start is None else np.arange(k)
        return candidates[faster_pam(cost, free, first)]

    def draw(self, size: int, random: np.random.Generator) -> Rows:
        """Return distinct served targets, drawn with probability proportional to their cost without new centres."""
        n = len(self.rows)
        share = np.where(np.isfinite(free := self.free(np.arange(n))), free, 1.0)
        # The smallest of exponential variables with these rates are a draw without replacement.
        with np.errstate(all="ignore"):
            times = random.exponential(size=n) / share
        return self.rows[np.sort(np.argpartition(times, size - 1)[:size])]

    def around(self, centres: Rows) -> Rows:
        """Return the centres, then the targets nearest to them and to the medians of the targets that they serve."""
        n = len(self.T)
        places, wanted = np.vstack([self.T[centres], self.medians(centres)]), min(_REFINEMENT_NEIGHBOURS, n)
        near = [
            np.argpartition(distances(places[part], self.T), wanted - 1, axis=1)[:, :wanted].ravel()
            for part in blocks(len(places), n)
        ]
        return np.concatenate([centres, np.setdiff1d(np.concatenate(near), centres)])

    def medians(self, centres: Rows) -> NDArray[np.float64]:
        """Return the geometric median of the targets that each centre serves (Weiszfeld's algorithm).

        Each target has the slope of its cost as weight: the tangent is an upper bound on a concave cost.
        """
        owner, distance = nearest(self.served, self.T[centres])
        slope = (distance < self.cap).astype(float)
        if self.transform is not None:
            every, both = np.arange(len(owner)), distance[:, None] * (1 - _SLOPE_STEP, 1)
            slope *= np.diff(self.transform(every, both))[:, 0] / np.maximum(_SLOPE_STEP * distance, 1e-300)
        place = self.T[centres]
        for _ in range(_WEISZFELD_STEPS):
            away = np.linalg.norm(self.served - place[owner], axis=1)
            pull = slope / np.maximum(away, 1e-3 * distance.mean() + 1e-300)
            total = np.bincount(owner, weights=pull, minlength=len(centres))
            sums = [np.bincount(owner, weights=pull * column, minlength=len(centres)) for column in self.served.T]
            place = np.where(total[:, None] > 0, np.stack(sums, axis=1) / np.maximum(total, 1e-300)[:, None], place)
        return np.asarray(place)


def cluster_t(T: Array, k: int) -> Rows:
    """Return centres that ignore the sources: ClusterT of paper 5."""
    return capped_k_medoids(T, k)


def non_private(S: Array, T: Array, k: int) -> Rows:
    """Return centres that use the exact sources, without privacy."""
    return capped_k_medoids(T, k, nearest(T, S)[1])
