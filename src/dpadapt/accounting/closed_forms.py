"""Costs in closed form: Gaussian noise exactly, and any rho-zCDP release by Rényi orders.

T releases with noise multipliers s_1 … s_T are together exactly as private as one release with multiplier 1 / mu,
mu² = Σ 1 / s_t². Such a release is called mu-Gaussian. Its privacy profile is that of Balle and Wang, "Improving the
Gaussian Mechanism for Differential Privacy", ICML 2018:

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon Φ(-mu/2 - epsilon/mu).
"""

import math
from collections.abc import Callable

import numpy as np

from dpadapt import checks

# Relative and absolute step from a computed root to the safe side. Roots are accurate to about 1e-12, so the result is
# a valid bound; larger steps would waste budget.
_ROOT_MARGIN = 1e-10
_ABSOLUTE_ROOT_MARGIN = 2e-14


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta at `epsilon` of a mu-Gaussian release.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    from scipy.special import log_ndtr

    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = float(log_ndtr(-mu / 2 - epsilon / mu))
    # exp(upper) - exp(epsilon + lower), without cancellation.
    return max(0.0, -math.exp(upper) * math.expm1(min(0.0, epsilon + lower - upper)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact epsilon at `delta` of a mu-Gaussian release, rounded up.

    Examples
    --------
    >>> round(gaussian_epsilon(0.2680, 1e-5), 3)
    1.0
    """
    delta = checks.delta(delta)
    if mu == 0 or (delta > 0 and gaussian_delta(mu, 0.0) <= delta):
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    # delta(epsilon) <= exp(-(epsilon/mu - mu/2)² / 2) bounds the root from above.
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) + 1
    root = _decreasing_root(lambda e: math.log(max(gaussian_delta(mu, e), 5e-324)) - math.log(delta), 0.0, high)
    return root * (1 + _ROOT_MARGIN) + _ABSOLUTE_ROOT_MARGIN


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (`epsilon`, `delta`)-private, rounded down.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 4)
    3.7306
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    if delta == 0:
        return 0.0
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    log_delta = math.log(delta)
    root = _decreasing_root(lambda mu: log_delta - math.log(max(gaussian_delta(mu, epsilon), 5e-324)), 1e-12, high)
    # Twice the margins: then `gaussian_epsilon` of the answer, which is rounded up, is still at most `epsilon`.
    return max(0.0, root * (1 - 2 * _ROOT_MARGIN) - 2 * _ABSOLUTE_ROOT_MARGIN)


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
    orders = 1 + np.geomspace(1e-3, 1e6, 20001)
    epsilons = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(epsilons.min()))


def _decreasing_root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(f, low, high, xtol=1e-14, rtol=1e-13, maxiter=200))
