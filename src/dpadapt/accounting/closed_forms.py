"""Exact closed forms for Gaussian noise.

T releases with noise multipliers s_1 … s_T are together exactly as private as one release with multiplier 1 / mu,
mu² = Σ 1 / s_t². The curve is Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018:

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon Φ(-mu/2 - epsilon/mu).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpadapt import checks

# Conversions between privacy notions: pure, zCDP, GDP, RDP and (epsilon, delta).


def pure_to_rho(epsilon: float) -> float:
    """Return the zCDP parameter of an (epsilon, 0)-private release (Bun and Steinke 2016, Proposition 1.4)."""
    return checks.positive(epsilon, "epsilon") ** 2 / 2


def mu_to_rho(mu: float) -> float:
    """Return the zCDP parameter of a mu-Gaussian release."""
    return mu**2 / 2


def rho_to_mu(rho: float) -> float:
    """Return the mu of the Gaussian noise that is exactly rho-zCDP.

    For calibrating Gaussian noise only: zCDP in general does *not* imply GDP.
    """
    return math.sqrt(2 * rho)


def rho_to_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at `delta` of anything rho-zCDP, by optimising over Rényi orders.

    Examples
    --------
    >>> rho_to_epsilon(0.1, 1e-6) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))  # the textbook conversion
    True
    """
    orders = 1 + np.geomspace(1e-3, 1e6, 20001)
    return rdp_to_epsilon(orders.tolist(), (rho * orders).tolist(), delta)


def rdp_to_epsilon(orders: Sequence[float], divergences: Sequence[float], delta: float) -> float:
    """Return the epsilon at `delta` of a Rényi curve.

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, Proposition 12.
    """
    delta = checks.delta(delta)
    if delta == 0:
        return math.inf
    a, r = np.asarray(orders, dtype=float), np.asarray(divergences, dtype=float)
    usable = (a > 1) & np.isfinite(r)
    if not usable.any():
        return math.inf
    a, r = a[usable], r[usable]
    epsilons = r + np.log1p(-1 / a) - np.log(delta * a) / (a - 1)
    return max(0.0, float(epsilons.min()))


# Roots are found to about 1e-12; stepping this much to the safe side keeps the answer valid.
_SAFETY = 1e-10
_ABSOLUTE = 2e-14


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
    # exp(upper) - exp(epsilon + lower), without losing the small difference.
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
    return root * (1 + _SAFETY) + _ABSOLUTE


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
    # Twice, so that the epsilon of the answer, itself rounded up, is still within the target.
    return max(0.0, root * (1 - 2 * _SAFETY) - 2 * _ABSOLUTE)


def _decreasing_root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(f, low, high, xtol=1e-14, rtol=1e-13, maxiter=200))
