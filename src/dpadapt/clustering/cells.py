"""Public cells and rings around the targets: the bin that a source falls in, as a function of that source alone.

All of it comes from public targets. A source's bin is its nearest cell centre and how far it is from the targets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Sums of products of grid coordinates stay below this, so that float64 holds every one of them exactly.
_EXACT = 2.0**53
_BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class Cells:
    """Nested cells and rings, from public targets.

    Parameters
    ----------
    origin, step : ndarray, float
        The grid that points are rounded to.
    points : ndarray of shape (n_points, n_features)
        Targets on the grid; the first `n_cells` are the centres of the finest cells.
    ancestors : ndarray of shape (n_levels, n_cells)
        Which cell of each level, coarsest first, a finest cell belongs to. The last level is the finest cells.
    edges : ndarray of shape (n_rings,)
        Outer edges of the rings, in the units of the data. A source further from all points counts nowhere.
    bands : ndarray of shape (n_rings,)
        Rings that are counted together within a cell have the same band.
    """

    origin: Array
    step: float
    points: Array
    ancestors: NDArray[np.int64]
    edges: Array
    bands: NDArray[np.int64]

    @property
    def n_cells(self) -> int:
        """How many finest cells there are."""
        return int(self.ancestors.shape[1])

    @property
    def n_rings(self) -> int:
        """How many rings there are."""
        return len(self.edges)

    @property
    def n_bands(self) -> int:
        """How many bands there are."""
        return int(self.bands.max()) + 1

    @property
    def n_bins(self) -> int:
        """How many finest bins there are."""
        return self.n_cells * self.n_rings

    def codes(self, rows: Array) -> NDArray[np.int32]:
        """Return the finest bin of each row, cell times rings plus ring; -1 for a row out of range."""
        size = max(1, _BLOCK_BYTES // (8 * len(self.points)))
        parts = [self._block(rows[start : start + size]) for start in range(0, len(rows), size)]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def _block(self, rows: Array) -> NDArray[np.int32]:
        with np.errstate(all="ignore"):
            grid = np.rint((rows - self.origin) / self.step)
            reach = np.abs(self.points).max() + math.ceil(self.edges[-1] / self.step)
            near = (np.abs(grid) <= reach).all(axis=1)
        found = np.full(len(rows), -1, np.int32)
        grid = grid[near]
        # |s - c|² less |s|²: sums of products of whole numbers below 2⁵³ in all (see `grid_step`), so none is rounded,
        # in whatever order they are added. A row's bin therefore depends on no other row of its block, and one record
        # counts in one bin or nowhere.
        squares = grid @ (-2.0 * self.points.T)
        squares += np.einsum("ij,ij->i", self.points, self.points)
        cell = squares[:, : self.n_cells].argmin(axis=1)
        nearest = squares.min(axis=1) + np.einsum("ij,ij->i", grid, grid)
        ring = np.searchsorted((self.edges / self.step) ** 2, nearest)
        inside = ring < self.n_rings
        found[np.flatnonzero(near)[inside]] = (cell * self.n_rings + ring)[inside]
        return found

    def coarse(self) -> NDArray[np.int64]:
        """Return the coarsest cell and the band of each finest bin; a further last entry sends -1 to -1."""
        cell = np.repeat(self.ancestors[0], self.n_rings)
        return np.append(cell * self.n_bands + np.tile(self.bands, self.n_cells), -1)

    def rings(self) -> NDArray[np.int64]:
        """Return the ring of each finest bin; a further last entry sends -1 to -1."""
        return np.append(np.tile(np.arange(self.n_rings), self.n_cells), -1)


def make_cells(targets: Array, *, edges: Array, sizes: Sequence[int], bands: Array) -> Cells:
    """Return the cells of public `targets`.

    Parameters
    ----------
    targets : ndarray of shape (n_points, n_features)
        Best medoids first: a level of s cells has the first s as its centres.
    edges : ndarray
        Outer edges of the rings.
    sizes : sequence of int
        Cells per level, coarsest first.
    bands : ndarray
        Rings that are counted together within a cell have the same one.
    """
    origin = (targets.max(axis=0) + targets.min(axis=0)) / 2
    reach = float(np.abs(targets - origin).max()) + 2 * float(edges[-1])
    step = grid_step(reach, targets.shape[1])
    points = np.rint((targets - origin) / step)
    # Chained, so that a coarse cell is a union of whole finer ones.
    ancestors = [np.arange(sizes[-1])]
    for size, below in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
        centres = points[:size]
        parents = (np.einsum("ij,ij->i", centres, centres) - 2 * points[:below] @ centres.T).argmin(axis=1)
        ancestors.append(parents[ancestors[-1]])
    return Cells(origin, step, points, np.array(ancestors[::-1]), np.asarray(edges, dtype=float), np.asarray(bands))


def grid_step(reach: float, n_features: int) -> float:
    """Return the step of a grid on which squared distances within `reach` are exact in float64."""
    # |s|² + 2 |s'c| + |c|² <= 4 n_features q², q the largest coordinate: below 2⁵³ for q = 2²⁵ / sqrt(n_features).
    most = math.sqrt(_EXACT / (8 * n_features))
    step = 2 * reach / most
    # A power of two: dividing by it does not round.
    return math.ldexp(1.0, math.ceil(math.log2(step))) if step > 0 else 1.0
