"""A private upper bound on the cost of centres that are already chosen, which holds with a stated probability."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_neighbours import local_neighbour_distance_sum
from dpadapt.mechanisms.noise import Laplace

Array = NDArray[Any]

_MOST_NEIGHBOURS = 4096


def bound_charge(epsilon: float) -> tuple[Laplace, str]:
    """Return the mechanism and the label of one bound."""
    return Laplace(1 / epsilon), "bound on the cost"


def certified_cost(
    S: Array,
    T: Array,
    caps: Array,
    n_neighbours: int,
    *,
    epsilon: float,
    gamma: float,
    ledger: Ledger,
    run: Run | None = None,
) -> float:
    """Release an upper bound on the mean over targets of min(cap, distance to the nearest source).

    The mean of a target's `n_neighbours` nearest capped distances is no less than the least of them, and one source
    moves it by a `n_neighbours`-th of the cap at most, for the targets around it alone. Noise falls short of its tail
    with probability `gamma`.

    Parameters
    ----------
    S : ndarray of shape (n_sources, n_features)
        Private sources.
    T : ndarray of shape (n_targets, n_features)
        Public targets.
    caps : ndarray of shape (n_targets,)
        Distance of each target to the nearest chosen centre.
    n_neighbours : int
        Chosen from released or public values alone.
    epsilon : float
        What the release costs.
    gamma : float
        Probability with which the bound may fail.
    ledger : Ledger
        The sources' ledger.
    run : Run, optional
        Of `bound_charge`, where the ledger was charged for it already.
    """
    most = float(caps.mean())
    if most == 0.0:
        # Every target is at a centre, with or without sources: there is nothing to release, nor noise of scale 0.
        return most
    statistic = local_neighbour_distance_sum(S, T, n_neighbours, caps)
    mechanism, label = bound_charge(epsilon)
    drawn = ledger.release(mechanism, statistic, label=label) if run is None else run.release(statistic)
    noisy = float(drawn[0])
    # Laplace noise is below -scale ln(1 / (2 gamma)) with probability gamma. The scale follows from the caps alone.
    tail = mechanism.scale(statistic, ledger.adjacency) * math.log(1 / (2 * gamma)) * (1 + 1e-6)
    return min(most, (noisy + tail) / (n_neighbours * len(T)))


def most_moved(T: Array, caps: Array) -> float:
    """Return the most that one source moves the mean capped distance of public targets."""
    return float(local_neighbour_distance_sum(T[:0], T, 1, caps).sensitivity("l1", Adjacency.ADD_REMOVE)) / len(T)


def choose_neighbours(expected: Array, radii: Array, caps: Array, *, moved: float, epsilon: float, gamma: float) -> int:
    """Return the number of neighbours with the least bound to expect.

    Parameters
    ----------
    expected : ndarray of shape (n_targets, n_radii)
        How many sources are thought to lie within each radius of each target, by what was released before.
    radii : ndarray of shape (n_radii,)
    caps : ndarray of shape (n_targets,)
    moved : float
        The most that one source moves the mean capped distance, from public targets.
    epsilon, gamma : float
        Of `certified_cost`.
    """
    knots = np.append(0.0, radii)
    upto = np.minimum(knots[1:], caps[:, None]) - np.minimum(knots[:-1], caps[:, None])
    beyond = np.maximum(caps - radii[-1], 0.0)
    tail = moved * (math.log(1 / (2 * gamma)) + 1) / epsilon
    best, least, total, before = 1, math.inf, 0.0, 0
    tried = np.unique(np.rint(np.geomspace(1, _MOST_NEIGHBOURS, 25)).astype(int))
    for t in tried:
        # E min(cap, distance to the t-th nearest) = ∫ P(fewer than t within u) du up to the cap, counts as Poisson's.
        fewer = pdtr(t - 1, expected)
        left = np.column_stack([np.ones(len(fewer)), fewer[:, :-1]])
        last = float(((left + fewer) / 2 * upto).sum(axis=1).mean() + (fewer[:, -1] * beyond).mean())
        total += last * (t - before)
        before = int(t)
        if total / t + tail / t < least:
            best, least = int(t), total / t + tail / t
    return best
