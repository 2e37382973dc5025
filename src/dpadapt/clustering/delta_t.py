"""Δ^t(S), the mean distance of targets to their t nearest sources: Definition 5.4 of paper 5."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms.bounded_neighbours import neighbour_distance_sum
from dpadapt.mechanisms.laplace import Laplace


def delta_t(S: NDArray[Any], T: NDArray[Any], t: int, *, diameter: float = 1.0) -> float:
    """Return Δ^t(S) without privacy; a missing source is `diameter` away, and none is further.

    Examples
    --------
    >>> round(delta_t(np.array([[0.1], [0.3]]), np.array([[0.0], [0.4]]), 2), 3)
    0.2
    >>> delta_t(np.array([[0.1]]), np.array([[0.0]]), 2)
    0.55
    """
    total = neighbour_distance_sum(S, T, t, np.full(len(T), diameter)).value[0]
    return float(total) / (t * len(T))


def private_delta_t(
    S: NDArray[Any], T: NDArray[Any], t: int, epsilon: float, ledger: Ledger, *, diameter: float = 1.0
) -> float:
    """Release Δ^t(S) with Laplace noise of scale `diameter` / (t epsilon).

    Parameters
    ----------
    S : ndarray of shape (n_sources, n_features)
        Private sources.
    T : ndarray of shape (n_targets, n_features)
        Public targets.
    t : int
        How many neighbours. Chosen without looking at the sources.
    epsilon : float
        What the release costs.
    ledger : Ledger
        The sources' ledger.
    diameter : float, default=1.0
        Distances above it count as `diameter`. From public data.

    Examples
    --------
    >>> from dpadapt import Ledger
    >>> ledger = Ledger(epsilon=1.0, random_state=0)
    >>> T = np.zeros((10, 2))
    >>> 0.0 < private_delta_t(np.full((500, 2), 0.1), T, 100, 1.0, ledger) < 0.3
    True
    """
    caps = np.full(len(T), _validate.positive(diameter, "diameter"))
    statistic = neighbour_distance_sum(S, T, t, caps)
    mechanism = Laplace(1 / _validate.positive(epsilon, "epsilon"))
    noisy = ledger.release(mechanism, statistic, label="mean distance to the nearest sources")
    return float(noisy[0]) / (t * len(T))
