"""The guarantees of paper 5 as functions: how far proxies can be from the sources, and what no method can beat.

`diff` is what the theorems bound: the most, over all choices of k targets, that the cost with the proxies differs from
the cost with the sources. Points lie within distance 1 of each other.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.nas import advanced_composition


def pure_bound(delta_t: float, *, n: int, d: int, t: int, epsilon: float, gamma: float) -> float:
    """Return Theorem 5.9: `NAS` with Laplace noise is this close with probability 1 - gamma, at delta = 0.

    Examples
    --------
    >>> round(pure_bound(0.1, n=50, d=2, t=150, epsilon=3.0, gamma=0.1), 3)
    1.635
    """
    _check(n, d, t, gamma)
    return delta_t + n * d / (t * _validate.positive(epsilon, "epsilon")) * math.log(n * d / gamma)


def approximate_bound(
    delta_t: float, *, n: int, d: int, t: int, epsilon: float, delta: float, gamma: float, distance: float = 0.0
) -> float:
    """Return Theorem 5.5, with the constant that its proof's composition gives; `distance` adds Corollary B.1's C.

    The last line of the theorem's proof has lost a factor sqrt(d), which its statement has; this is the statement.

    Examples
    --------
    >>> round(approximate_bound(0.1, n=50, d=2, t=150, epsilon=3.0, delta=1e-6, gamma=0.1), 3)
    1.3
    """
    _check(n, d, t, gamma)
    # Noise of scale b = sqrt(d) / (t e) in each coordinate, e what one of n releases may cost.
    once = advanced_composition(_validate.positive(epsilon, "epsilon"), _validate.delta(delta), n)
    return delta_t + d / (t * once) * math.log(n * d / gamma) + distance


def concentrated_bound(delta_t: float, *, n: int, d: int, t: int, rho: float, gamma: float) -> float:
    """Return Theorem 5.11: `NAS` with Gaussian noise under rho-zCDP is this close with probability 1 - gamma.

    Examples
    --------
    >>> round(concentrated_bound(0.1, n=50, d=2, t=150, rho=3.0, gamma=0.1), 3)
    0.393
    """
    _check(n, d, t, gamma)
    return delta_t + math.sqrt(n * d / _validate.positive(rho, "rho")) / t * math.log(2 * n * d / gamma)


def unavoidable_error(k: int, *, spread: float = 0.5) -> float:
    """Return Observations 4.2 and 5.8: some data cost any private method this much more than the best k centres.

    With probability at least `unavoidable_chance`. `spread` is 1/2, or Δ^t(S) for the bound that depends on the data.
    """
    return spread / (_validate.count(k, "k") + 2)


def unavoidable_chance(epsilon: float, delta: float = 0.0) -> float:
    """Return with which probability, at least, `unavoidable_error` is incurred: (1 - 2 delta) / (2 e^epsilon)."""
    return (1 - 2 * _validate.delta(delta)) / (2 * math.exp(_validate.positive(epsilon, "epsilon")))


def diff_bound(S: NDArray[Any], proxies: NDArray[Any], T: NDArray[Any]) -> float:
    """Return mean_x |d(x, S) - d(x, proxies)|, which is at least the difference in cost for any choice of centres.

    |min(a, c) - min(b, c)| <= |a - b| for every distance c to the chosen centres. It has no privacy: a check on made-up
    sources, never a release.
    """
    return float(np.abs(nearest(T, S)[1] - nearest(T, proxies)[1]).mean())


def _check(n: int, d: int, t: int, gamma: float) -> None:
    for value, name in ((n, "n"), (d, "d"), (t, "t")):
        _validate.count(value, name)
    _validate.unit(gamma, "gamma")
