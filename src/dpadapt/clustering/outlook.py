"""What is expected of the sources after the release: costs to the targets, and what they hang on."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dpadapt.clustering.posterior import Belief, belief
from dpadapt.clustering.spread import clumping, pool_weights
from dpadapt.clustering.stages import Released
from dpadapt.clustering.surroundings import Surroundings
from dpadapt.clustering.survival import ExpectedCost, log_misses, log_none_near

Array = NDArray[Any]

# Odds of an empty part are multiplied by these, for the choice and for one who doubts it.
_ODDS, _DOUBTED_ODDS = 5.0, 15.0
# The doubter's sources are more clumped.
_DOUBTED_CLUMPING = 0.25


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is believed of the sources of each part, seen from each target.

    Parameters
    ----------
    shares : sparse array of shape (n_targets * n_radii, n_parts)
        How much of each part lies within a radius of a target.
    radii : ndarray
    believed : Belief
    clumping : float
        Of Pólya's urn, within a part.
    """

    shares: csr_array
    radii: Array
    believed: Belief
    clumping: float

    @classmethod
    def of(cls, released: Released, around: Surroundings) -> "Outlook":
        """Return what follows from the released counts."""
        n_parts = len(released.parent)
        weights = pool_weights(released, around.shares.sizes)
        sizes = np.bincount(released.part, weights=around.shares.sizes * weights, minlength=n_parts)
        shares = around.shares.of(released.part, n_parts, weights)
        return cls(shares, around.shares.radii, belief(released), clumping(released, sizes))

    @cached_property
    def cost(self) -> ExpectedCost:
        """The expected cost of every target at any distance to a centre."""
        return self._cost(self._misses)

    @cached_property
    def doubted_cost(self) -> ExpectedCost:
        """The same for one who believes in fewer sources, more clumped."""
        return self._cost(self._log_misses(_DOUBTED_ODDS, _DOUBTED_CLUMPING * self.clumping))

    @cached_property
    def _misses(self) -> Array:
        return self._log_misses(_ODDS, self.clumping)

    def _log_misses(self, odds: float, clumping: float) -> Array:
        return log_misses(self.shares, self.believed.cautious(odds), self.believed.grid, clumping)

    def _cost(self, misses: Array) -> ExpectedCost:
        alive = np.exp(log_none_near(self.shares, misses))
        return ExpectedCost.of(alive.reshape(-1, len(self.radii)), self.radii)

    def near(self) -> Array:
        """Return how many sources are thought to lie within each radius (columns) of each target (rows)."""
        numbers = self.believed.cautious(_ODDS) @ self.believed.grid
        return np.asarray((self.shares @ numbers).reshape(-1, len(self.radii)))

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Which parts may look as they do by noise alone.

        Of n parts that are empty, at most about half a one shows as many sources as give evidence log n.
        """
        return np.asarray(self.believed.evidence < np.log(len(self.believed.evidence)))

    def reliance(self, away: Array) -> Array:
        """Return by how much the mean cost would rise, for each doubtful part, if it were empty; 0 for the others.

        Parameters
        ----------
        away : ndarray of shape (n_targets,)
            Distances to the nearest centre.
        """
        part, row, rise = self._rises
        # The cost is linear in the probabilities at the radii.
        weighted = rise * ExpectedCost.weights(self.radii, away).ravel()[row]
        return np.bincount(part, weights=weighted, minlength=self.shares.shape[1]) / len(away)

    @cached_property
    def _rises(self) -> tuple[Array, Array, Array]:
        """Entries of doubtful parts: part, row of `shares`, and how much likelier no source is near without it."""
        entry = np.flatnonzero(self.doubtful[self.shares.indices])
        row = np.searchsorted(self.shares.indptr, entry, side="right") - 1
        alive = log_none_near(self.shares, self._misses)[row]
        # A part that is empty drops out of the product.
        return self.shares.indices[entry], row, np.exp(alive - self._misses[entry]) - np.exp(alive)

    def empty(self, parts: NDArray[np.bool_]) -> "Outlook":
        """Return what is expected if those parts are empty."""
        return replace(self, believed=self.believed.empty(parts))
