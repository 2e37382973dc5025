"""The guarantees of paper 5 as functions: how far the proxies of `NAS` can be from the sources, and lower bounds.

The theorems bound `diff`: the largest difference, over all choices of k targets, between the cost with the proxies and
the cost with the sources. They use Δ^t(S), the mean distance of targets to their t nearest sources (Definition 5.4).
Points lie within distance 1 of each other.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.clustering.solver import nearest
from dpadapt.mechanisms.bounded_neighbours import neighbour_distance_sum
from dpadapt.papers.source_target.proxies import advanced_composition


def delta_t(S: NDArray[Any], T: NDArray[Any], t: int, *, diameter: float = 1.0) -> float:
    """Return Δ^t(S) without privacy; a missing source is at distance `diameter`, and no distance is larger.

    Examples
    --------
    >>> round(delta_t(np.array([[0.1], [0.3]]), np.array([[0.0], [0.4]]), 2), 3)
    0.2
    >>> delta_t(np.array([[0.1]]), np.array([[0.0]]), 2)
    0.55
    """
    total = neighbour_distance_sum(S, T, t, np.full(len(T), diameter)).value[0]
    return float(total) / (t * len(T))


def pure_bound(delta_t: float, *, n: int, d: int, t: int, epsilon: float, gamma: float) -> float:
    """Return the bound of Theorem 5.9: `NAS` with Laplace noise is this close with probability 1 - gamma, at delta = 0.

    Examples
    --------
    >>> round(pure_bound(0.1, n=50, d=2, t=150, epsilon=3.0, gamma=0.1), 3)
    1.635
    """
    _check(n, d, t, gamma)
    return delta_t + n * d / (t * checks.positive(epsilon, "epsilon")) * math.log(n * d / gamma)


def approximate_bound(
    delta_t: float, *, n: int, d: int, t: int, epsilon: float, delta: float, gamma: float, distance: float = 0.0
) -> float:
    """Return the bound of Theorem 5.5, with the constant of its proof; `distance` is the C of Corollary B.1.

    The last line of the proof lacks a factor sqrt(d) that the statement has; this is the statement.

    Examples
    --------
    >>> round(approximate_bound(0.1, n=50, d=2, t=150, epsilon=3.0, delta=1e-6, gamma=0.1), 3)
    1.3
    """
    _check(n, d, t, gamma)
    # Noise of scale b = sqrt(d) / (t e) in each coordinate, where e is the epsilon of one of n releases.
    once = advanced_composition(checks.positive(epsilon, "epsilon"), checks.delta(delta), n)
    return delta_t + d / (t * once) * math.log(n * d / gamma) + distance


def concentrated_bound(delta_t: float, *, n: int, d: int, t: int, rho: float, gamma: float) -> float:
    """Return the bound of Theorem 5.11: `NAS` with Gaussian noise, rho-zCDP, is this close with probability 1 - gamma.

    Examples
    --------
    >>> round(concentrated_bound(0.1, n=50, d=2, t=150, rho=3.0, gamma=0.1), 3)
    0.393
    """
    _check(n, d, t, gamma)
    return delta_t + math.sqrt(n * d / checks.positive(rho, "rho")) / t * math.log(2 * n * d / gamma)


def unavoidable_error(k: int, *, spread: float = 0.5) -> float:
    """Return how much more than the best k centres any private method costs on some data (Observations 4.2 and 5.8).

    That holds with probability at least `unavoidable_chance`. `spread` is 1/2, or Δ^t(S) for the bound that depends on
    the data.
    """
    return spread / (checks.count(k, "k") + 2)


def unavoidable_chance(epsilon: float, delta: float = 0.0) -> float:
    """Return the least probability of `unavoidable_error`: (1 - 2 delta) / (2 e^epsilon)."""
    return (1 - 2 * checks.delta(delta)) / (2 * math.exp(checks.positive(epsilon, "epsilon")))


def diff_bound(S: NDArray[Any], proxies: NDArray[Any], T: NDArray[Any]) -> float:
    """Return mean_x |d(x, S) - d(x, proxies)|, which is at least the difference in cost for any choice of centres.

    |min(a, c) - min(b, c)| <= |a - b| for every distance c to the chosen centres. Not private: only for checks on
    synthetic sources.
    """
    return float(np.abs(nearest(T, S)[1] - nearest(T, proxies)[1]).mean())


def _check(n: int, d: int, t: int, gamma: float) -> None:
    for value, name in ((n, "n"), (d, "d"), (t, "t")):
        checks.count(value, name)
    checks.unit(gamma, "gamma")


def rho_to_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at `delta` of any rho-zCDP release, by optimising over Rényi orders.

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, Proposition 12.

    Examples
    --------
    >>> rho_to_epsilon(0.1, 1e-6) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))  # the textbook conversion
    True
    """
    delta = checks.delta(delta)
    if delta == 0 or not math.isfinite(rho):
        return math.inf
    # epsilon <= rho a + log(1 - 1/a) - log(delta a) / (a - 1) for every order a > 1. Canonne, Kamath and Steinke
    # 2020, Proposition 12; any grid of orders gives a valid bound.
    orders = 1 + np.geomspace(1e-3, 1e6, 20001)
    epsilons = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(epsilons.min()))
