"""Bounded statistics of private points around public ones: nearest neighbours and nearest-point cells.

Each says how far one private point, or one that becomes null, can move it. A point that is not finite, or outside the
ball that public data gives, is null: it counts nowhere. Points are never moved into the ball, which would put one where
none is.
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

_BLOCK_BYTES = 16 * 2**20


def neighbour_sums(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, radius: float) -> Bounded:
    """Sum, for every public target, its `n_neighbours` nearest private rows; each missing row counts as the target.

    Rows and targets are points of the ball of `radius` around 0. The value has shape (n_targets, n_features).

    Examples
    --------
    >>> neighbour_sums([[0.1], [0.3], [9.0]], [[0.0], [0.4]], 3, 0.5).value.round(3).tolist()
    [[0.4], [0.8]]
    """
    targets, radius = _targets(targets, radius), checks.positive(radius, "radius")
    value = _neighbour_sums(rows, targets, n_neighbours, radius)
    n, width = targets.shape
    # In the order of distances, and of coordinates where these are equal, a further row takes the place of at most one
    # of a target's neighbours, a real one or a missing one. Both lie in the ball, so a target's sum moves by at most
    # 2 radius in l2 and sqrt(width) times that in l1, and all n of them may move.
    return Bounded(value, l1=n * math.sqrt(width) * 2 * radius, l2=math.sqrt(n) * 2 * radius)


def each_neighbour_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, radius: float) -> list[Bounded]:
    """Return what `neighbour_sums` gives, one statistic per target, each to be released on its own."""
    targets, radius = _targets(targets, radius), checks.positive(radius, "radius")
    value = _neighbour_sums(rows, targets, n_neighbours, radius)
    # As above, for one target.
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
    # Which cell a row is in depends on that row and on public centres alone, so one row adds 1 and itself to one cell.
    # Its length is at most radius: 1 + sqrt(width) radius in l1, sqrt(1 + radius²) in l2.
    return Bounded(value, l1=1 + math.sqrt(centres.shape[1]) * radius, l2=math.hypot(1.0, radius))


def neighbour_distance_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, caps: ArrayLike) -> Bounded:
    """Sum, over public targets, the distances to their `n_neighbours` nearest rows, none above the target's cap.

    A missing row is at the cap. The value has shape (1,).

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
        found = min(wanted, near.shape[1])
        if found < near.shape[1]:
            near = np.partition(near, found - 1, axis=1)[:, :found]
        total += float(near.sum() + (wanted - found) * limits[part].sum())
    # A further row takes the place of a target's furthest neighbour, or of a missing one, if it is nearer: the target's
    # sum falls by 0 to its cap. Replacing a row is one such fall against another, so no further apart.
    most = float(limits.sum())
    return Bounded(np.array([total]), l1=most, replaced={"l1": most, "l2": most, "linf": most})


def _neighbour_sums(rows: ArrayLike, targets: Array, n_neighbours: int, radius: float) -> Array:
    wanted = checks.count(n_neighbours, "n_neighbours")
    inside = _inside(rows, targets.shape[1], radius)
    # Where distances are equal the order of the rows decides. It must not depend on what other rows there are.
    inside = inside[np.lexsort(inside.T)]
    total = np.empty_like(targets)
    for part in _blocks(len(targets), len(inside)):
        # Rows first: a row's distances are then computed without regard to the other rows. The other way round, where a
        # row stands could decide how its distance is rounded, and so who is nearer.
        chosen = _nearest(np.ascontiguousarray(cdist(inside, targets[part]).T), wanted)
        total[part] = chosen @ inside + (wanted - chosen.sum(axis=1))[:, None] * targets[part]
    return total


def _nearest(distance: Array, wanted: int) -> Array:
    """Return 1 for the `wanted` least entries of each row, the leftmost of equal ones first, and 0 for the others."""
    if wanted >= distance.shape[1]:
        return np.ones_like(distance)
    last = np.partition(distance, wanted - 1, axis=1)[:, wanted - 1, None]
    nearer, level = distance < last, distance == last
    room = wanted - nearer.sum(axis=1, keepdims=True)
    return np.asarray(nearer | (level & (np.cumsum(level, axis=1) <= room)), dtype=np.float64)


def _inside(rows: ArrayLike, width: int, radius: float) -> Array:
    """Return the rows that are finite and no longer than `radius`."""
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"rows must have two axes and the {width} columns of the public points.")
    # A numerical warning would tell of an extreme row.
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
    # Multiples of 4, which distances are computed by: a point's place among those 4 must not depend on how many private
    # rows there are.
    size = max(4, _BLOCK_BYTES // (8 * max(1, n_columns)) // 4 * 4)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


# Distances of public targets to their nearest private rows, bounded by how many targets one row can be near to.


# cdist is right to a few rounding errors; this leaves them a margin.
_MARGIN = 1 + 1e-9


def local_neighbour_distance_sum(rows: ArrayLike, targets: ArrayLike, n_neighbours: int, caps: ArrayLike) -> Bounded:
    """Sum, over public targets, the distances to their `n_neighbours` nearest rows, none above the target's cap.

    The value is that of `neighbour_distance_sum`, the bound is tighter: a row can be near to some targets only.

    Examples
    --------
    >>> local_neighbour_distance_sum([[0.1]], [[0.0], [9.0]], 1, [1.0, 1.0]).l1.__round__(6)
    1.0
    """
    statistic = neighbour_distance_sum(rows, targets, n_neighbours, caps)
    # A further row s lowers the sum of target x by at most (cap_x - |x - s|)+. Let z be the target nearest to s. Then
    # |x - z| <= |x - s| + |s - z| <= 2 |x - s|, so the whole sum falls by at most Σ_x (cap_x - |x - z| / 2)+ for that
    # z. Replacing a row is one such fall against another, so no further apart.
    most = min(statistic.l1 or 0.0, _most_covered(np.asarray(targets, float), np.asarray(caps, float)) * _MARGIN)
    return Bounded(statistic.value, l1=most, replaced={"l1": most, "l2": most, "linf": most})


def _most_covered(targets: NDArray[np.float64], caps: NDArray[np.float64]) -> float:
    """Return the largest Σ_x (cap_x - |x - z| / 2)+ over targets z."""
    size = max(1, _BLOCK_BYTES // (8 * len(targets)))
    return max(
        float(np.maximum(caps - cdist(targets[start : start + size], targets) / 2, 0.0).sum(axis=1).max())
        for start in range(0, len(targets), size)
    )
