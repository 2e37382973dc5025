"""Coresets of public targets by a k-d tree, Section 6 and Appendix B of paper 5."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate


def coreset(T: NDArray[Any], distance: float) -> NDArray[np.int64]:
    """Return rows of `T` such that every row is within `distance` of one of them.

    A k-d tree [1]_ halves the rows at the median of their widest coordinate, until the row nearest to the middle of a
    leaf is within `distance` of all its rows; that row stands for the leaf.

    Parameters
    ----------
    T : ndarray of shape (n, n_features)
        Public rows.
    distance : float
        How far a row may be from the one that stands for it; the paper takes 0.05 where the longest row is 1/2.

    Returns
    -------
    ndarray of int
        Row numbers, ascending.

    References
    ----------
    .. [1] J. L. Bentley, J. H. Friedman. Data structures for range searching. 1979.

    Examples
    --------
    >>> coreset(np.array([[0.0], [0.01], [0.3], [0.31]]), 0.05).tolist()
    [0, 2]
    """
    distance = _validate.positive(distance, "distance")
    chosen, waiting = [], [np.arange(len(T))]
    while waiting:
        rows = waiting.pop()
        points = T[rows]
        low, high = points.min(axis=0), points.max(axis=0)
        stand_in = rows[int(np.linalg.norm(points - (low + high) / 2, axis=1).argmin())]
        if np.linalg.norm(points - T[stand_in], axis=1).max() <= distance:
            chosen.append(int(stand_in))
            continue
        order = np.argsort(points[:, int((high - low).argmax())], kind="stable")
        waiting += [rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]]
    return np.sort(np.asarray(chosen, dtype=np.int64))
