"""The certificate: a private upper bound on the cost of chosen centres, which holds with a stated probability."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from dpadapt.accounting.ledger import Run
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_neighbours import local_neighbour_distance_sum
from dpadapt.mechanisms.noise import Laplace

Array = NDArray[Any]

# Numbers of neighbours that `choose_neighbours` compares: the largest, and how many on a geometric scale up to it. More
# neighbours mean less noise but a higher mean distance. Chosen by hand.
_MOST_BOUND_NEIGHBOURS = 4096
_COMPARED_NEIGHBOUR_NUMBERS = 25


def bound_charge(epsilon: float) -> tuple[Laplace, str]:
    """Return the mechanism and the label of one bound."""
    return Laplace(1 / epsilon), "bound on the cost"


def certified_cost(
    S: Array, T: Array, caps: Array, n_neighbours: int, *, epsilon: float, gamma: float, adjacency: Adjacency, run: Run
) -> float:
    """Release an upper bound on the mean over targets `T` of min(cap, distance to the nearest private source).

    The mean of a target's `n_neighbours` nearest capped distances is at least the smallest of them, and one source
    moves it by at most cap / `n_neighbours`, only for the targets around that source. The noise is below minus its tail
    with probability `gamma`. `n_neighbours` must follow from released or public values alone; `run` is that of
    `bound_charge(epsilon)`, already charged.
    """
    without_sources = float(caps.mean())
    if without_sources == 0.0:
        # Every target is at a centre, with or without sources: nothing is released, and noise of scale 0 is avoided.
        return without_sources
    statistic = local_neighbour_distance_sum(S, T, n_neighbours, caps)
    noisy = float(run.release(statistic)[0])
    # Laplace noise is below -scale ln(1 / (2 gamma)) with probability gamma. The scale follows from the caps alone.
    scale = bound_charge(epsilon)[0].scale(statistic, adjacency)
    tail = scale * math.log(1 / (2 * gamma)) * (1 + 1e-6)
    return min(without_sources, (noisy + tail) / (n_neighbours * len(T)))


def choose_neighbours(expected: Array, radii: Array, caps: Array, *, moved: float, epsilon: float, gamma: float) -> int:
    """Return the number of neighbours whose bound is expected to be the smallest.

    `expected` has the expected number of sources within each of `radii` (columns) of each target (rows), from counts
    that were released before; `caps` the distance of each target to its nearest centre; `moved` is from `most_moved`.
    """
    knots = np.append(0.0, radii)
    widths = np.minimum(knots[1:], caps[:, None]) - np.minimum(knots[:-1], caps[:, None])
    beyond = np.maximum(caps - radii[-1], 0.0)
    tail = moved * (math.log(1 / (2 * gamma)) + 1) / epsilon
    best, least, total, before = 1, math.inf, 0.0, 0
    for t in np.unique(np.rint(np.geomspace(1, _MOST_BOUND_NEIGHBOURS, _COMPARED_NEIGHBOUR_NUMBERS)).astype(int)):
        # E min(cap, distance to the t-th nearest) = ∫ P(fewer than t within u) du up to the cap, with Poisson counts.
        fewer = pdtr(t - 1, expected)
        left = np.column_stack([np.ones(len(fewer)), fewer[:, :-1]])
        last = float(((left + fewer) / 2 * widths).sum(axis=1).mean() + (fewer[:, -1] * beyond).mean())
        total += last * (t - before)
        before = int(t)
        if total / t + tail / t < least:
            best, least = int(t), total / t + tail / t
    return best


def most_moved(T: Array, caps: Array) -> float:
    """Return the most that one source can move the mean capped distance to the nearest source; from public targets."""
    return float(local_neighbour_distance_sum(T[:0], T, 1, caps).sensitivity("l1", Adjacency.ADD_REMOVE)) / len(T)
