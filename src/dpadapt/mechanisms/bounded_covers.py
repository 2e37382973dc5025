"""Distances of public targets to their nearest private rows, bounded by how many targets one row can be near to."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.bounded_neighbours import neighbour_distance_sum

_BLOCK_BYTES = 16 * 2**20
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
