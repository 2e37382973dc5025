"""k centres among the targets, with distances capped by the centres that are there already: the solver.

Paper 5 uses Accelerated k-Medoids (`akm.py`); this one is greedy followed by FasterPAM. Public points and released
statistics go in, so nothing here touches the privacy guarantee.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.clustering.distances import blocks, distances, nearest
from dpadapt.clustering.faster_pam import faster_pam
from dpadapt.clustering.greedy import greedy

Transform = Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[Any]]

_FULL_ROWS = 5000  # up to here every target is a candidate
_CANDIDATES = 1000  # above, at least as many are drawn,
_PER_CENTRE = 12  # and this many for each centre
_LOCAL = 8  # then the targets around each centre, and around the middle of what it serves, are tried,
_ROUNDS = 2  # this often
_WEISZFELD_STEPS = 3


def capped_k_medoids(
    T: NDArray[Any],
    k: int,
    cap: NDArray[Any] | None = None,
    *,
    transform: Transform | None = None,
    weights: NDArray[Any] | None = None,
    max_bytes: int = 2**28,
    random_state: int = 0,
) -> NDArray[np.int64]:
    """Return the rows of `T` that lower the mean of min(cap, distance to the nearest of them) the most.

    Few targets: every target is a candidate; greedy, then FasterPAM. Many: greedy and FasterPAM choose among candidates
    drawn with probability proportional to the cap, then FasterPAM among the targets around the centres found. The
    distances held at one time never exceed `max_bytes`; beyond that the points that are summed over are a sample too.

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Targets.
    k : int
        How many centres, at most `n`.
    cap : ndarray of shape (n,), optional
        Distance of each target to the centres that are there already. Default: there are none.
    transform : callable, optional
        `transform(points, distances)` returns what serving the targets numbered `points`, of shape (p,), from
        `distances`, of shape (p, c), costs. It must not fall with the distance. Default: the distance itself. The cap
        is transformed as well.
    weights : ndarray of shape (n,), optional
        How much each target counts.
    max_bytes : int, default=2**28
        Memory for distances.
    random_state : int, default=0
        Seeds the draw of candidates. They are drawn from public rows.

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
    problem = _Problem(T, cap, transform, weights)
    if _validate.count(k, "k") > problem.n:
        raise ValueError(f"k must be at most the number of targets, {problem.n}, got {k!r}.")
    if problem.n <= _FULL_ROWS and 4 * problem.n**2 <= max_bytes:
        everything = np.arange(problem.n)
        return problem.solve(everything, everything, None, k)
    return _solve_in_parts(problem, k, max_bytes, np.random.default_rng(random_state))


def _solve_in_parts(problem: "_Problem", k: int, max_bytes: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return centres among drawn candidates, then among the neighbours of the best of those."""
    size = max(_CANDIDATES, _PER_CENTRE * k)
    size = min(size, max(2 * k, max_bytes // (4 * min(problem.n, 10 * size))), problem.n)
    n_points = min(problem.n, max(size, max_bytes // (4 * max(size, 2 * _LOCAL * k))))
    points = np.sort(random.choice(problem.n, n_points, replace=False))
    centres = problem.solve(points, problem.draw(size, random), None, k)
    for _ in range(_ROUNDS):
        centres = problem.solve(points, problem.around(centres), centres, k)
    return centres


class _Problem:
    """Targets, what they cost, and how much they count."""

    def __init__(
        self,
        T: NDArray[Any],
        cap: NDArray[Any] | None,
        transform: Transform | None,
        weights: NDArray[Any] | None,
    ) -> None:
        T = np.asarray(T, dtype=np.float64)
        if T.ndim != 2 or not len(T):
            raise ValueError(f"T must have two dimensions and at least one row, got shape {T.shape}.")
        if not np.isfinite(T).all():
            raise ValueError("T must be finite; drop or fill the rows that are not.")
        self.n = len(T)
        self.T = T - T.mean(axis=0)
        self.cap = None if cap is None else _per_target(cap, "cap", self.n)
        self.weights = None if weights is None else _per_target(weights, "weights", self.n)
        self.transform = transform

    def costs(self, points: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what serving `points` from `candidates` costs, in Fortran order."""
        out = np.empty((len(candidates), len(points)), dtype=np.float32)
        columns = self.T[candidates]
        for part in blocks(len(points), len(candidates)):
            if self.transform is None:
                out[:, part] = distances(columns, self.T[points[part]])
            else:
                out[:, part] = self.transform(points[part], distances(self.T[points[part]], columns)).T
        return out.T

    def free(self, points: NDArray[np.int64]) -> NDArray[Any]:
        """Return what serving `points` from the centres that are there already costs."""
        cap = np.full(len(points), np.inf) if self.cap is None else self.cap[points]
        return cap if self.transform is None else self.transform(points, cap[:, None])[:, 0]

    def solve(
        self,
        points: NDArray[np.int64],
        candidates: NDArray[np.int64],
        start: NDArray[np.int64] | None,
        k: int,
    ) -> NDArray[np.int64]:
        """Return the best of `candidates` for `points`, from `start` (the first candidates) or from greedy's choice."""
        cost, free = self.costs(points, candidates), self.free(points)
        weights = None if self.weights is None else self.weights[points].astype(np.float32)
        first = greedy(cost, free, k, weights) if start is None else np.arange(k)
        return candidates[faster_pam(cost, free, first, weights)]

    def draw(self, size: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Return distinct targets, drawn with probability proportional to what they would pay without new centres."""
        share = np.where(np.isfinite(free := self.free(np.arange(self.n))), free, 1.0)
        if self.weights is not None:
            share = share * self.weights
        # The smallest of exponential times with these rates are a draw without replacement.
        with np.errstate(divide="ignore"):
            times = random.exponential(size=self.n) / share
        return np.sort(np.argpartition(times, size - 1)[:size])

    def around(self, centres: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the centres, then the targets nearest to them and to the middles of what they serve."""
        places, wanted = np.vstack([self.T[centres], self.middles(centres)]), min(_LOCAL, self.n)
        near = [
            np.argpartition(distances(places[part], self.T), wanted - 1, axis=1)[:, :wanted].ravel()
            for part in blocks(len(places), self.n)
        ]
        return np.concatenate([centres, np.setdiff1d(np.concatenate(near), centres)])

    def middles(self, centres: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the points from which the distances to what each centre serves are least (Weiszfeld's steps)."""
        owner, distance = nearest(self.T, self.T[centres])
        mine = np.flatnonzero(distance < np.inf if self.cap is None else distance < self.cap)
        rows, owner, place = self.T[mine], owner[mine], self.T[centres]
        for _ in range(_WEISZFELD_STEPS):
            pull = 1 / np.maximum(np.linalg.norm(rows - place[owner], axis=1), 1e-3 * distance.mean() + 1e-300)
            if self.weights is not None:
                pull *= self.weights[mine]
            total = np.bincount(owner, weights=pull, minlength=len(centres))
            sums = [np.bincount(owner, weights=pull * column, minlength=len(centres)) for column in rows.T]
            place = np.where(total[:, None] > 0, np.stack(sums, axis=1) / np.maximum(total, 1e-300)[:, None], place)
        return np.asarray(place)


def _per_target(values: NDArray[Any], name: str, n: int) -> NDArray[np.float64]:
    """Return `values` as floats if there is one, not negative, for each target."""
    out = np.asarray(values, dtype=np.float64)
    if out.shape != (n,) or np.isnan(out).any() or (out < 0).any():
        raise ValueError(f"{name} must hold one number of at least 0 for each of the {n} targets.")
    return out
