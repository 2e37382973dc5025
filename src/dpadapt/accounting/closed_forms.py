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
# Least mu that is searched for: below it the absolute margin would take a noticeable part of the answer.
_LEAST_MU = 1e-12


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
    # Claim: delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon Φ(-mu/2 - epsilon/mu). Balle and Wang 2018, Theorem 8.
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
    # Claim: gaussian_delta(mu, answer) <= delta. The profile decreases in epsilon, and the root is rounded up;
    # delta(epsilon) <= exp(-(epsilon/mu - mu/2)² / 2) bounds it from above.
    # Not proved: that the root is accurate to 1e-12; tests compare it with high precision.
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) + 1
    root = _decreasing_root(lambda e: math.log(max(gaussian_delta(mu, e), 5e-324)) - math.log(delta), 0.0, high)
    return root * (1 + _ROOT_MARGIN) + _ABSOLUTE_ROOT_MARGIN


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (`epsilon`, `delta`)-private, rounded down.

    Raises
    ------
    ValueError
        If that is below 1e-12, where floats can't tell it from 0.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 4)
    3.7306
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    if delta == 0:
        return 0.0
    if gaussian_delta(_LEAST_MU, epsilon) >= delta:
        raise ValueError("epsilon and delta are too small: no float holds noise of that size. Raise either.")
    # Claim: gaussian_epsilon(answer, delta) <= epsilon. The profile increases in mu, and the root is rounded down.
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    log_delta = math.log(delta)
    root = _decreasing_root(lambda mu: log_delta - math.log(max(gaussian_delta(mu, epsilon), 5e-324)), _LEAST_MU, high)
    # Twice the margins: then `gaussian_epsilon` of the answer, which is rounded up, is still at most `epsilon`.
    return root * (1 - 2 * _ROOT_MARGIN) - 2 * _ABSOLUTE_ROOT_MARGIN


# Any other release is at least as private as a mu-Gaussian one if each point of its trade-off function (false positive
# rate q, power p) has z(p) - z(q) <= mu, where z is the inverse of Φ. If that function is piecewise linear, its
# vertices suffice, because the Gaussian one is convex (Dong, Roth and Su, "Gaussian Differential Privacy", 2022).


def pure_mu(epsilon: float) -> float:
    """Return the least mu such that every pure release of `epsilon` is at least as private as a mu-Gaussian one.

    The least private of them is randomized response, whose only vertex has p = 1 - q = e^epsilon q.

    Examples
    --------
    >>> round(pure_mu(0.1), 4)
    0.1253
    """
    from scipy.special import ndtri_exp

    # Claim: f_epsilon >= G_mu for mu = -2 z(1 / (1 + e^epsilon)), as trade-off functions. z(p) - z(1 - p) = -2 z(q) at
    # the only vertex, q = 1 / (1 + e^epsilon); Dong, Roth and Su 2022 as above.
    return -2 * float(ndtri_exp(-float(np.logaddexp(0.0, epsilon))))


def laplace_mu(epsilon: float) -> float:
    """Return the mu of Laplace noise of scale 1 / `epsilon`, as in `pure_mu`.

    In the middle part of its trade-off function q (1 - p) = e^-epsilon / 4, and -z(q) - z(1 - p) is largest where
    q = 1 - p: the function -z(e^x) is concave for e^x <= 1/2, because its derivative is minus Mills' ratio at -z(e^x),
    and Mills' ratio decreases. Outside the middle part the trade-off function is linear and the Gaussian one convex.

    Examples
    --------
    >>> round(laplace_mu(0.1), 4)
    0.1223
    """
    from scipy.special import ndtri_exp

    # Claim: the trade-off function of Laplace noise >= G_mu for mu = -2 z(e^(-epsilon/2) / 2). The docstring proves it.
    return -2 * float(ndtri_exp(-epsilon / 2 - math.log(2)))


def choice_mu(epsilon: float) -> float:
    """Return the mu of a choice whose privacy loss has range `epsilon`, as in `pure_mu`: half the epsilon counts.

    The least private choices have one vertex, with logit(p) - logit(q) = epsilon (Dong, Durfee and Rogers, "Optimal
    Differential Privacy Composition for Exponential Mechanisms", 2020). Among them z(p) - z(q) is largest where
    p = 1 - q, as in a pure release of epsilon / 2, because h(u) = z(1 / (1 + e^-u)) is odd and concave for u > 0. It is
    concave there if g(z) = (2 Φ - 1) φ - z Φ (1 - Φ) >= 0 for z > 0. Now g is 0 at 0 and at infinity, and its
    derivative 2 φ² - Φ (1 - Φ) is first positive, then negative: with the hazard λ = φ / (1 - Φ), the logarithm of
    Φ (1 - Φ) / φ² has the derivative 2 z - (λ(z) - λ(-z)), which is positive because λ' < 1 (Sampford, 1953).
    """
    # Claim: the trade-off function of a choice of range epsilon >= G_mu for mu = pure_mu(epsilon / 2). The docstring
    # proves it.
    return pure_mu(epsilon / 2)


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
    # Claim: epsilon <= rho a + log(1 - 1/a) - log(delta a) / (a - 1) for every order a > 1. Canonne, Kamath and Steinke
    # 2020, Proposition 12; any grid of orders gives a valid bound.
    orders = 1 + np.geomspace(1e-3, 1e6, 20001)
    epsilons = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(epsilons.min()))


def _decreasing_root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(f, low, high, xtol=1e-14, rtol=1e-13, maxiter=200))
