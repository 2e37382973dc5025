"""Conversions between privacy notions: pure, zCDP, GDP, RDP and (epsilon, delta)."""

import math
from collections.abc import Sequence

import numpy as np

from dpadapt import _validate


def pure_to_rho(epsilon: float) -> float:
    """Return the zCDP parameter of an (epsilon, 0)-private release (Bun and Steinke 2016, Proposition 1.4)."""
    return _validate.positive(epsilon, "epsilon") ** 2 / 2


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
    delta = _validate.delta(delta)
    if delta == 0:
        return math.inf
    a, r = np.asarray(orders, dtype=float), np.asarray(divergences, dtype=float)
    usable = (a > 1) & np.isfinite(r)
    if not usable.any():
        return math.inf
    a, r = a[usable], r[usable]
    epsilons = r + np.log1p(-1 / a) - np.log(delta * a) / (a - 1)
    return max(0.0, float(epsilons.min()))
