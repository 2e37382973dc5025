"""Euclidean distances in blocks of bounded memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

_BLOCK_BYTES = 2**20


def distances(A: NDArray[Any], B: NDArray[Any]) -> NDArray[np.float64]:
    """Return the distance of every row of `A` to every row of `B`.

    By differences, in float64: exact for equal rows, and in few dimensions quicker than by a matrix product.
    """
    return np.asarray(cdist(A, B))


def nearest(A: NDArray[Any], B: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return, for every row of `A`, which row of `B` is nearest and its distance; infinity if `B` has no rows."""
    index, value = np.zeros(len(A), dtype=np.int64), np.full(len(A), np.inf)
    if len(B):
        for part in blocks(len(A), len(B)):
            block = distances(A[part], B)
            index[part] = block.argmin(axis=1)
            value[part] = block[np.arange(len(block)), index[part]]
    return index, value


def blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Return slices of rows whose distances to `n_columns` others stay in the processor's cache."""
    size = max(1, _BLOCK_BYTES // (8 * max(1, n_columns)))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
