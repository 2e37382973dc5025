"""From released counts to centres: post-processing alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.distances import distances, nearest
from dpadapt.clustering.evidence import pooled_evidence
from dpadapt.clustering.faster_pam import faster_pam
from dpadapt.clustering.greedy import greedy
from dpadapt.clustering.posterior import Belief, belief
from dpadapt.clustering.solver import capped_k_medoids
from dpadapt.clustering.stages import Released
from dpadapt.clustering.surroundings import Surroundings
from dpadapt.clustering.survival import ExpectedCost, expected_cost

Array = NDArray[Any]
Centres = dict[int, NDArray[np.int64]]

# Up to here all distances between targets are held at once.
_FULL_ROWS = 5000
# Posterior odds of an empty bin are multiplied by the first; the second is Pólya's urn for sources within a bin.
_USUAL = 5.0, 8.0
_PESSIMISTIC = 15.0, 2.0


@dataclass(frozen=True, eq=False)
class Choice:
    """Centres for each number of them, with the expected cost of each.

    Parameters
    ----------
    centres : dict
        Rows of the targets, by their number.
    costs : dict
        The mean expected distance to the nearest centre or source. An estimate, not a bound.
    expected : ndarray of shape (n_targets, n_radii)
        How many sources are thought to lie within each radius of each target.
    """

    centres: Centres
    costs: dict[int, float]
    expected: Array


def choose(T: Array, around: Surroundings, released: Released, without: Centres, *, gate: float) -> Choice:
    """Return centres for the numbers that `without` has; its own (ClusterT's) where sources can't be shown to help.

    Parameters
    ----------
    T : ndarray
        Public targets.
    around : Surroundings
    released : Released
    without : dict
        The centres of each number that ignore the sources.
    gate : float
        Most probability of going by noise alone where no source is in range.
    """
    rows, radii = T[around.rows], around.shares.radii
    first, second = released.noise
    rings = np.arange(len(released.coarse)) % released.n_rings
    evidence = pooled_evidence([(released.coarse, rings, first), (released.counts, released.ring, second)])
    if evidence < -np.log(gate):
        costs = {k: float(nearest(rows, T[centres])[1].mean()) for k, centres in without.items()}
        return Choice(without, costs, np.zeros((len(rows), len(radii))))
    believed = belief(released)
    shares = around.shares.of(released.part, len(released.parent))
    usual, cautious = (_expected_cost(shares, radii, believed, *how) for how in (_USUAL, _PESSIMISTIC))
    centres, costs = {}, {}
    for k, found in _solve(rows, list(without), usual).items():
        chosen = around.rows[found]
        # Kept only if it is the better choice even for one who believes in fewer sources, more clumped.
        if _mean(cautious, rows, T[chosen]) >= _mean(cautious, rows, T[without[k]]):
            chosen = without[k]
        centres[k], costs[k] = chosen, _mean(usual, rows, T[chosen])
    numbers = believed.cautious(_USUAL[0]) @ believed.grid
    return Choice(centres, costs, (shares @ numbers).reshape(len(rows), -1))


def _expected_cost(shares: Any, radii: Array, believed: Belief, odds: float, clumping: float) -> ExpectedCost:
    return expected_cost(shares, radii, believed.cautious(odds), believed.grid, clumping)


def _mean(cost: ExpectedCost, rows: Array, centres: Array) -> float:
    """Return the mean expected cost of serving `rows` from `centres`."""
    return float(cost(np.arange(len(rows)), nearest(rows, centres)[1][:, None]).mean())


def _solve(rows: Array, numbers: Sequence[int], cost: ExpectedCost) -> Centres:
    """Return centres among `rows` for each number of them."""
    if len(rows) > _FULL_ROWS:
        return {k: capped_k_medoids(rows, k, transform=cost) for k in numbers}
    middle = rows.mean(axis=0)
    everything = np.arange(len(rows))
    costs = np.asfortranarray(cost(everything, distances(rows - middle, rows - middle)), dtype=np.float32)
    free = np.full(len(rows), np.inf)
    # Every prefix of the greedy order is the greedy answer for fewer centres.
    order = greedy(costs, free, max(numbers))
    return {k: faster_pam(costs, free, order[:k]) for k in numbers}
