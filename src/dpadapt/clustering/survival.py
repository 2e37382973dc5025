"""How far a target probably is from its nearest source, given what is believed of every bin."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

Array = NDArray[Any]

# Shares at which a bin's probability of missing is tabulated; most shares are small.
_KNOTS = np.linspace(0, 1, 65) ** 2
_LEAST = 1e-30
_MOST_IN_CLUMP = 100.0
_FAR = 10.0


@dataclass(frozen=True, eq=False)
class ExpectedCost:
    """E min(a, d(x, S)) as a function of the target x and the distance a to its nearest centre.

    It is ∫₀ᵃ P(no source within u) du: it rises with a, ever more slowly, so that solvers for distances take it too.
    Where nothing is known of sources it is a itself.

    Parameters
    ----------
    knots : ndarray of shape (n_radii + 1,)
        0, then radii.
    integral : ndarray of shape (n_targets, n_radii + 1)
        At the knots.
    slope : ndarray of shape (n_targets, n_radii + 1)
        After each knot; beyond the last the probability stays as it is there.
    """

    knots: Array
    integral: Array
    slope: Array

    @classmethod
    def of(cls, alive: Array, radii: Array) -> "ExpectedCost":
        """Return it for the probabilities that no source is within each radius (columns) of each target (rows)."""
        knots = np.append(0.0, radii)
        heights = np.column_stack([np.ones(len(alive)), alive])
        means = (heights[:, 1:] + heights[:, :-1]) / 2
        integral = np.column_stack([np.zeros(len(alive)), (np.diff(knots) * means).cumsum(axis=1)])
        return cls(knots, integral, np.column_stack([means, alive[:, -1]]))

    @staticmethod
    def weights(radii: Array, distances: Array) -> Array:
        """Return how much the cost of targets at `distances` rises with each probability that `of` takes."""
        knots = np.append(0.0, radii)
        halves = np.clip(distances[:, None] - knots[:-1], 0.0, np.diff(knots)) / 2
        weights = halves.copy()
        weights[:, :-1] += halves[:, 1:]
        weights[:, -1] += np.maximum(distances - knots[-1], 0.0)
        return np.asarray(weights)

    def __call__(self, targets: NDArray[np.int64], distances: Array) -> Array:
        """Return the expected cost of `targets`, of shape (p,), at `distances`, of shape (p, c); infinite ones too."""
        place = np.searchsorted(self.knots, distances.ravel(), side="right").reshape(distances.shape) - 1
        row = targets[:, None]
        # Solvers ask what it costs to have no centre at all: as much as one far out.
        beyond = np.minimum(distances, _FAR * self.knots[-1]) - self.knots[place]
        return np.asarray(self.integral[row, place] + beyond * self.slope[row, place])


def log_misses(shares: csr_array, believed: Array, grid: Array, clumping: float) -> Array:
    """Return the log probability that all sources of a part miss the share of it that is near a target, per entry.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    believed : ndarray of shape (n_parts, n_grid)
        Probabilities of the numbers of sources `grid` in each part.
    grid : ndarray
    clumping : float
        Of Pólya's urn. Small: sources of one part sit together; infinity: they are spread evenly over it.
    """
    return _interpolated(shares, _log_missed(believed, grid, clumping))


def log_none_near(shares: csr_array, misses: Array) -> Array:
    """Return the log probability that no source is within a radius of a target, per row of `shares`."""
    # Parts are independent, given the counts: no source is near if each part's sources all miss.
    rows = np.add.reduceat(np.append(misses, 0.0), shares.indptr[:-1])
    rows[np.diff(shares.indptr) == 0] = 0.0
    return np.asarray(rows)


def _log_missed(believed: Array, grid: Array, clumping: float) -> Array:
    """Return, per part and share of `_KNOTS`, the log probability that none of the part's sources lies in the share.

    Under Pólya's urn v of them all miss a share p with probability Γ(a (1 - p) + v) Γ(a) / (Γ(a (1 - p)) Γ(a + v)).
    With a alone, ever more sources would sit in the same few clumps; so a grows once they number hundreds.
    """
    v = grid[:, None]
    a = clumping + v / _MOST_IN_CLUMP
    rest = np.maximum(a * (1 - _KNOTS), 1e-12)
    missed = np.exp(gammaln(rest + v) - gammaln(rest) + gammaln(a) - gammaln(a + v))
    return np.asarray(np.log(np.maximum(believed @ missed, _LEAST)))


def _interpolated(shares: csr_array, table: Array) -> Array:
    """Return the table's entry for each stored share and its part, linear between knots."""
    low = np.minimum((np.sqrt(shares.data) * (len(_KNOTS) - 1)).astype(np.int64), len(_KNOTS) - 2)
    part = (shares.data - _KNOTS[low]) / (_KNOTS[low + 1] - _KNOTS[low])
    left, right = table[shares.indices, low], table[shares.indices, low + 1]
    return np.asarray(left + part * (right - left))
