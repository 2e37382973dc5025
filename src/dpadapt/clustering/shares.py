"""How much of each bin lies near each target: from a public pool of points scattered around the targets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from dpadapt.clustering.cells import Cells
from dpadapt.clustering.distances import distances

Array = NDArray[Any]

_SEED = 5  # the pool is public; a fixed seed makes the same of the same targets
_BLOCK_ENTRIES = 4 * 2**20


@dataclass(frozen=True, eq=False)
class Shares:
    """Pool points of each finest bin, and how many of them lie within each radius of each target.

    Parameters
    ----------
    radii : ndarray of shape (n_radii,)
        Rising.
    sizes : ndarray of shape (n_bins,)
        Pool points per finest bin.
    near : sparse array of shape (n_targets * n_radii, n_bins)
        How many of them lie within a radius of a target.
    """

    radii: Array
    sizes: Array
    near: csr_array

    def of(self, part: NDArray[np.int64], n_parts: int, weights: Array) -> csr_array:
        """Return the share of each part of a partition of the bins, for every target and radius.

        A part's share is that of its pool, whose points have the `weights` of their bins: no partition needs the
        distances again.
        """
        n = len(self.sizes)
        join = csr_array((weights.astype(np.float32), part, np.arange(n + 1)), shape=(n, n_parts))
        sizes = np.bincount(part, weights=self.sizes * weights, minlength=n_parts)
        shares = (self.near @ join).tocsr()
        shares.data /= sizes[shares.indices].astype(np.float32)
        return shares


def scatter(targets: Array, cells: Cells, size: int) -> tuple[Array, NDArray[np.int32]]:
    """Return about `size` pool points, in random directions from the targets, and their finest bins."""
    random = np.random.default_rng(_SEED)
    per_ring = max(1, size // (cells.n_rings * len(targets)))
    if len(targets) * cells.n_rings > size:
        targets = targets[random.choice(len(targets), size // cells.n_rings, replace=False)]
    inner = np.append(0.0, cells.edges[:-1])
    points = []
    for low, high in zip(inner, cells.edges, strict=True):
        around = np.repeat(targets, per_ring, axis=0)
        away = random.standard_normal(around.shape)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        points.append(around + random.uniform(low, high, len(around))[:, None] * away)
    pool = np.vstack(points)
    codes = cells.codes(pool)
    known = codes >= 0
    return pool[known], codes[known]


def make_shares(targets: Array, radii: Array, pool: Array, codes: NDArray[np.int32], n_bins: int) -> Shares:
    """Return the shares of a pool for public `targets`."""
    order = np.argsort(codes, kind="stable")
    pool, codes = pool[order], codes[order].astype(np.int64)
    n_radii = len(radii)
    size = max(1, _BLOCK_ENTRIES // max(n_bins * n_radii, len(pool)))
    parts = []
    for start in range(0, len(targets), size):
        block = distances(targets[start : start + size], pool)
        within = np.searchsorted(radii, block.ravel()).reshape(block.shape)
        key = (within * len(block) + np.arange(len(block))[:, None]) * n_bins + codes
        counts = np.bincount(key[within < n_radii], minlength=n_radii * len(block) * n_bins)
        counts = counts.reshape(n_radii, len(block), n_bins).cumsum(axis=0).transpose(1, 0, 2)
        parts.append(csr_array(counts.reshape(-1, n_bins).astype(np.float32)))
    return Shares(radii, np.bincount(codes, minlength=n_bins).astype(float), csr_array(vstack(parts)))
