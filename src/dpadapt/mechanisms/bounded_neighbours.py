"""`Bounded` statistics of private rows around public points: sums over nearest neighbours and over nearest-point cells.

A row that is not finite, or that lies outside the ball given by public data, counts as null. Such a row is never moved
into the ball: that would put a row where there is none.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from dpadapt import checks
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.rows import norm_bounds

Array = NDArray[np.float64]

# Bytes of one block of distances: trades memory for the number of blocks. Chosen by hand.
_DISTANCE_BLOCK_BYTES = 16 * 2**20
# Targets up to which the bound of `local_neighbour_distance_sum` compares all pairs. Above it the time is this number
# times the number of targets, and the bound is a little looser. Chosen by hand.
_MOST_EXACT_TARGETS = 4096
# Factor on a sensitivity computed from distances: covers the rounding errors of cdist, a few units in the last place.
_DISTANCE_ROUNDING = 1 + 1e-9


def neighbour_sums(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, radius: float) -> Bounded:
    """Sum, for every public target, its `n_neighbours` nearest private rows.

    If there are fewer rows, the target itself stands in for each missing one. Targets must lie in the ball of `radius`
    around 0; rows outside it are null. The value has shape (n_targets, n_features).

    Examples
    --------
    >>> neighbour_sums([[0.1], [0.3], [9.0]], [[0.0], [0.4]], 3, 0.5).value.round(3).tolist()
    [[0.4], [0.8]]
    """
    targets, radius = _targets(targets, radius), checks.positive(radius, "radius")
    value = _neighbour_sums(rows, targets, n_neighbours, radius)
    n, width = targets.shape
    # Claim: |v - v'|_2 <= sqrt(n) 2 radius, |v - v'|_1 <= n sqrt(width) 2 radius. Neighbours are ordered by distance,
    # equal distances by coordinates. In this order a further row takes the place of at most one of a target's
    # neighbours, a row or the stand-in for a missing one. Both lie in the ball, so a target's sum moves by at most 2
    # radius in l2 and sqrt(width) times that in l1. All n sums may move.
    return Bounded(value, l1=n * math.sqrt(width) * 2 * radius, l2=math.sqrt(n) * 2 * radius)


def each_neighbour_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, radius: float) -> list[Bounded]:
    """Return the sums of `neighbour_sums` as one statistic per target, each to be released separately."""
    targets, radius = _targets(targets, radius), checks.positive(radius, "radius")
    value = _neighbour_sums(rows, targets, n_neighbours, radius)
    # Claim: |v - v'|_2 <= 2 radius, |v - v'|_1 <= sqrt(width) 2 radius for each target, as in `neighbour_sums`.
    l1, l2 = math.sqrt(targets.shape[1]) * 2 * radius, 2 * radius
    return [Bounded(one, l1=l1, l2=l2) for one in value]


def cell_sums(rows: ArrayLike, centres: ArrayLike, radius: float) -> Bounded:
    """Count and sum the private rows that are nearest to each public centre.

    Rows further than `radius` from 0 are null. The value has shape (n_centres, 1 + n_features), the count first.

    Examples
    --------
    >>> cell_sums([[0.1], [0.3], [0.4], [9.0]], [[0.0], [0.4]], 0.5).value.round(3).tolist()
    [[1.0, 0.1], [2.0, 0.7]]
    """
    centres, radius = _points(centres, "centres"), checks.positive(radius, "radius")
    inside = _inside(rows, centres.shape[1], radius)
    cell = np.empty(len(inside), dtype=np.int64)
    for part in _blocks(len(inside), len(centres)):
        cell[part] = cdist(inside[part], centres).argmin(axis=1)
    columns = np.column_stack([np.ones(len(inside)), inside]).T
    value = np.stack([np.bincount(cell, weights=column, minlength=len(centres)) for column in columns], axis=1)
    # Claim: |v - v'|_1 <= 1 + sqrt(width) radius, |v - v'|_2 <= sqrt(1 + radius²). The cell of a row depends only on
    # that row and on public centres, so one row adds 1 and itself, of length at most radius, to one cell.
    return Bounded(value, l1=1 + math.sqrt(centres.shape[1]) * radius, l2=math.hypot(1.0, radius))


def neighbour_distance_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, caps: ArrayLike) -> Bounded:
    """Sum, over public targets, the distances to their `n_neighbours` nearest rows, each at most the target's cap.

    A missing row counts with the cap. The value has shape (1,).

    Examples
    --------
    >>> neighbour_distance_sum([[0.1], [9.0]], [[0.0], [0.4]], 2, [0.2, 1.0]).value.round(3)
    array([1.6])
    """
    targets = _points(targets, "targets")
    limits = np.asarray(caps, dtype=np.float64)
    if limits.shape != (len(targets),) or not (np.isfinite(limits) & (limits >= 0)).all():
        raise ValueError("caps must hold one finite number of at least 0 for each target.")
    wanted = checks.count(n_neighbours, "n_neighbours")
    inside = _inside(rows, targets.shape[1], math.inf)
    total = 0.0
    for part in _blocks(len(targets), len(inside)):
        near = np.minimum(cdist(targets[part], inside), limits[part, None])
        n_present = min(wanted, near.shape[1])
        if n_present < near.shape[1]:
            near = np.partition(near, n_present - 1, axis=1)[:, :n_present]
        total += float(near.sum() + (wanted - n_present) * limits[part].sum())
    # Claim: |v - v'| <= sum of caps, zeroed or replaced. A further row takes the place of a target's furthest
    # neighbour, or of a missing one, if it is nearer. So it lowers the target's sum by at least 0 and at most its cap.
    # Replacing a row exchanges one such decrease for another.
    bound = float(limits.sum())
    return Bounded(np.array([total]), l1=bound, replaced={"l1": bound, "l2": bound, "linf": bound})


def local_neighbour_distance_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, caps: ArrayLike) -> Bounded:
    """Return the value of `neighbour_distance_sum` with a tighter bound: a row can be near to some targets only.

    Examples
    --------
    >>> local_neighbour_distance_sum([[0.1]], [[0.0], [9.0]], 1, [1.0, 1.0]).l1.__round__(6)
    1.0
    """
    statistic = neighbour_distance_sum(rows, targets, n_neighbours, caps)
    # Claim: |v - v'| <= max over targets z of Σ_x (cap_x - |x - z| / 2)+, zeroed or replaced. A further row s lowers
    # the sum of target x by at most (cap_x - |x - s|)+. Let z be the target nearest to s. Then |x - z| <= |x - s| + |s
    # - z| <= 2 |x - s|, so the whole sum falls by at most Σ_x (cap_x - |x - z| / 2)+ for that z. Replacing a row
    # exchanges one such decrease for another, so it moves the sum no further.
    covered = _most_covered(np.asarray(targets, float), np.asarray(caps, float))
    bound = min(statistic.l1 or 0.0, covered * _DISTANCE_ROUNDING)
    return Bounded(statistic.value, l1=bound, replaced={"l1": bound, "l2": bound, "linf": bound})


def _most_covered(targets: Array, caps: Array) -> float:
    """Return the largest Σ_x (cap_x - |x - z| / 2)+ over targets z; with very many targets, an upper bound on it."""
    n = len(targets)
    if n <= _MOST_EXACT_TARGETS:
        return _largest_sum(targets, targets, np.zeros(n), caps)
    # Claim: Σ_x (cap_x - |x - z| / 2)+ <= the number returned, for every target z. Let c be a target, and z one that is
    # at most r away from it. Then |x - z| >= |x - c| - r, so the sum for z is at most Σ_x (cap_x - (|x - c| - r) / 2)+.
    # Every target has such a c among some; the targets that are furthest from all of these are their own c, with r = 0.
    centres = targets[np.random.default_rng(0).choice(n, _MOST_EXACT_TARGETS // 2, replace=False)]
    owner, away = np.empty(n, dtype=np.int64), np.empty(n)
    for part in _blocks(n, len(centres)):
        distance = cdist(targets[part], centres)
        owner[part], away[part] = distance.argmin(axis=1), distance.min(axis=1)
    order = np.argsort(away)
    near, far = np.split(order, [n - _MOST_EXACT_TARGETS // 2])
    radius = np.zeros(len(centres))
    np.maximum.at(radius, owner[near], away[near])
    return max(
        _largest_sum(centres, targets, radius, caps), _largest_sum(targets[far], targets, np.zeros(len(far)), caps)
    ) * (1 + 1e-8)


def _largest_sum(centres: Array, targets: Array, radius: Array, caps: Array) -> float:
    """Return the largest Σ_x (cap_x - (|x - c| - radius_c) / 2)+ over the centres c."""
    return max(
        float(np.maximum(caps - (cdist(centres[part], targets) - radius[part, None]) / 2, 0.0).sum(axis=1).max())
        for part in _blocks(len(centres), len(targets))
    )


def _neighbour_sums(rows: ArrayLike, targets: Array, n_neighbours: int, radius: float) -> Array:
    wanted = checks.count(n_neighbours, "n_neighbours")
    inside = _inside(rows, targets.shape[1], radius)
    # Among equal distances the order of the rows decides. The order of two rows must not depend on the other rows.
    inside = inside[np.lexsort(inside.T)]
    total = np.empty_like(targets)
    for part in _blocks(len(targets), len(inside)):
        # Rows are the first argument, so that the distances of a row are computed independently of the other rows. The
        # other way round, the position of a row could decide how its distance is rounded, and so which row is nearer.
        chosen = _nearest(np.ascontiguousarray(cdist(inside, targets[part]).T), wanted)
        total[part] = chosen @ inside + (wanted - chosen.sum(axis=1))[:, None] * targets[part]
    return total


def _nearest(distance: Array, wanted: int) -> NDArray[np.bool_]:
    """Return which entries are the `wanted` smallest of their row, among equal ones the leftmost."""
    if wanted >= distance.shape[1]:
        return np.ones(distance.shape, dtype=bool)
    last = np.partition(distance, wanted - 1, axis=1)[:, wanted - 1, None]
    nearer, tied = distance < last, distance == last
    n_tied = wanted - nearer.sum(axis=1, keepdims=True)
    return np.asarray(nearer | (tied & (np.cumsum(tied, axis=1) <= n_tied)))


def _inside(rows: ArrayLike, width: int, radius: float) -> Array:
    """Return the rows that are finite and no longer than `radius`."""
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"rows must have two axes and the {width} columns of the public points.")
    # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        lengths = norm_bounds(np.einsum("ij,ij->i", array, array), width)
        return np.asarray(array[np.isfinite(lengths) & (lengths <= radius)])


def _points(points: ArrayLike, name: str) -> Array:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a table of finite numbers with at least one row.")
    return array


def _targets(targets: ArrayLike, radius: float) -> Array:
    array = _points(targets, "targets")
    if not (np.linalg.norm(array, axis=1) <= radius).all():
        raise ValueError(f"targets must lie in the ball of radius {radius!r} around 0; scale them first.")
    return array


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Return slices of range(n_rows) such that a table of one slice by `n_columns` fits into a block."""
    # cdist computes 4 distances at a time. The sizes are multiples of 4, so that the position of a point within its
    # group of 4 does not depend on the number of private rows.
    size = max(4, _DISTANCE_BLOCK_BYTES // (8 * max(1, n_columns)) // 4 * 4)
    return (slice(start, start + size) for start in range(0, n_rows, size))
