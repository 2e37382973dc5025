"""From released counts to centres: post-processing alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.inference import ExpectedCost, Outlook, pooled_evidence
from dpadapt.clustering.public_cells import Surroundings
from dpadapt.clustering.releases import Released
from dpadapt.clustering.solver import capped_k_medoids, distances, faster_pam, greedy, nearest

Array = NDArray[Any]
Centres = dict[int, NDArray[np.int64]]

# Up to here all distances between targets are held at once.
_FULL_ROWS = 5000
# No doubtful part may be relied on for more than this share of the cost without sources.
_MOST_RELIED_ON = 0.1
_ROUNDS = 4


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
    rows = T[around.rows]
    if log_evidence_of(released) < -np.log(gate):
        costs = {k: _usual_cost(rows, T[centres]) for k, centres in without.items()}
        # Copies: they are remembered with the targets.
        return Choice(
            {k: centres.copy() for k, centres in without.items()},
            costs,
            np.zeros((len(rows), len(around.shares.radii))),
        )
    outlook = Outlook.of(released, around)
    centres, costs = {}, {}
    for k, found in _solve(rows, list(without), outlook.cost).items():
        most = _MOST_RELIED_ON * _usual_cost(rows, T[without[k]])
        chosen = _chosen(T, around, _less_reliant(rows, found, outlook, most), without[k])
        centres[k], costs[k] = chosen, _mean(outlook.cost, rows, T[chosen])
    return Choice(centres, costs, outlook.near())


def log_evidence_of(released: Released) -> float:
    """Return the log of an e-value against "no source is in range"."""
    counts = released.profile, released.coarse, released.counts
    bands = np.arange(len(released.coarse)) % released.n_bands
    groups = np.zeros(len(released.profile), dtype=np.int64), bands, released.band
    return pooled_evidence(list(zip(counts, groups, released.noise, strict=True)))


def _less_reliant(
    rows: Array, found: NDArray[np.int64], outlook: Outlook, most: float
) -> tuple[NDArray[np.int64], Outlook] | None:
    """Return centres that hang on no doubtful part for more than `most` of the mean cost, and what they go by.

    Most errors cost little; one that leaves a whole cluster of targets without a centre can double the cost.
    """
    for _ in range(_ROUNDS):
        risky = outlook.reliance(nearest(rows, rows[found])[1]) > most
        if not risky.any():
            return found, outlook
        outlook = outlook.empty(risky)
        found = _solve(rows, [len(found)], outlook.cost)[len(found)]
    return None


def _chosen(
    T: Array,
    around: Surroundings,
    found: tuple[NDArray[np.int64], Outlook] | None,
    without: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return what was found, if it is the better choice even for one who believes in fewer sources, more clumped."""
    if found is None:
        return without.copy()
    rows, chosen, doubted = T[around.rows], around.rows[found[0]], found[1].doubted_cost
    return chosen if _mean(doubted, rows, T[chosen]) < _mean(doubted, rows, T[without]) else without.copy()


def _mean(cost: ExpectedCost, rows: Array, centres: Array) -> float:
    """Return the mean expected cost of serving `rows` from `centres`."""
    return float(cost(np.arange(len(rows)), nearest(rows, centres)[1][:, None]).mean())


def _usual_cost(rows: Array, centres: Array) -> float:
    """Return the mean distance of `rows` to the nearest of `centres`."""
    return float(nearest(rows, centres)[1].mean())


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
