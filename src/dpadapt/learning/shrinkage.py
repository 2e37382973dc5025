"""Shrinkage of noisy changes (James–Stein, with a bound on the harm) and of sample spectra, and water-filling."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, exp1, gammaln

# Thresholds that `least_threshold` tries, in standard deviations of chi-square above James–Stein's k - 2. Finer steps
# would only reduce the shrinkage a little. If none passes, the change is not adopted. Chosen by hand.
_THRESHOLD_STEPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def regret(k: int, threshold: float, energy: float) -> float:
    """Return the expected harm of adopting a change beyond a threshold: its squared error less that of no change.

    For r ~ N(m, I_k) with |m|² = `energy` and X = |r|², the estimator (1 - threshold / X)₊ r of m is compared with 0.
    By Stein's identity the difference of their expected squared errors is

        E[ 1{X > t} (2k - X + t (t - 2 (k - 2)) / X) ],

    with X noncentral chi-square, a Poisson(energy / 2) mixture of central ones. Negative values are gains. This is a
    statement about Gaussian noise of known variance, not about data.

    Examples
    --------
    >>> regret(4, 4.0, 0.0) > 0 > regret(4, 4.0, 30.0)
    True
    """
    return float(_regrets(k, threshold, np.array([energy]))[0])


def _regrets(k: int, threshold: float, energies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `regret` for several energies at once."""
    half = energies[:, None] / 2
    longest = float(half.max())
    j = np.arange(0, math.ceil(longest + 9 * math.sqrt(longest) + 15))
    with np.errstate(all="ignore"):
        weights = np.where(half > 0, np.exp(j * np.log(np.maximum(half, 1e-300)) - half - gammaln(j + 1.0)), j == 0)
    m = k + 2.0 * j
    if threshold <= 0:
        return np.asarray(weights @ (2 * k - m))
    tail = chdtrc(m, threshold)
    inverse = np.empty_like(m)
    plain = m > 2
    # E[1 / X; X > t] of chi-square with m degrees; by parts for m = 1, the exponential integral for m = 2.
    inverse[plain] = chdtrc(m[plain] - 2, threshold) / (m[plain] - 2)
    inverse[m == 2] = exp1(threshold / 2) / 2
    inverse[m == 1] = 2 * math.exp(-threshold / 2) / math.sqrt(2 * math.pi * threshold) - float(chdtrc(1, threshold))
    inside = 2 * k * tail - m * chdtrc(m + 2, threshold) + threshold * (threshold - 2 * (k - 2)) * inverse
    return np.asarray(weights @ inside)


def least_threshold(k: int, variance: float, allowed: float) -> float:
    """Return the least threshold on |r|² / variance whose worst relative regret is at most `allowed`; inf if none is.

    Relative to an error of 1 + energy: with noise `variance` per coordinate (in units of the error that remains when
    nothing can be gained), the worst over the energy of variance * regret / (1 + energy * variance). Both arguments are
    rounded to quarter octaves, to the safe side, so that thresholds are computed once.
    """
    if not allowed > 0 or not variance > 0:
        return math.inf
    return _least_threshold(k, math.ceil(4 * math.log2(variance)), min(40, math.floor(4 * math.log2(allowed))))


@lru_cache(maxsize=4096)
def _least_threshold(k: int, variance_octave: int, allowed_octave: int) -> float:
    variance, allowed = 2.0 ** (variance_octave / 4), 2.0 ** (allowed_octave / 4)
    energies = np.concatenate([[0.0], np.geomspace(0.3, 6.0 * k + 60.0, 16)])
    for step in _THRESHOLD_STEPS:
        threshold = max(k - 2, 0) + step * math.sqrt(2 * k)
        if float(np.max(variance * _regrets(k, threshold, energies) / (1 + energies * variance))) <= allowed:
            return threshold
    return math.inf


def james_stein(change: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a noisy change, shrunk towards zero by as much as its known noise demands.

    Positive-part James–Stein: with k coordinates and noise variances v, the change is multiplied by
    max(0, 1 - (k - 2) / S), S = Σ change² / v. For k > 2 and noise as stated, the expected squared error (in units of
    the variances) is never more than that of the unshrunk change, and small where the true change is 0. A change that
    noise alone would exceed in one case of twenty or more (S below the 95% point of chi-square) is dropped.

    Examples
    --------
    >>> noise = np.random.default_rng(7).standard_normal(1000)
    >>> bool(np.abs(james_stein(noise, np.ones(1000))).max() < 0.3)
    True
    """
    signal = float(np.sum(change**2 / variance))
    if signal <= chdtri(change.size, 0.05):
        return np.zeros_like(change)
    return change * (1.0 - max(0.0, change.size - 2.0) / signal)


def water_fill(costs: NDArray[np.float64], slopes: NDArray[np.float64] | float = 1.0) -> NDArray[np.float64]:
    """Return shares max(0, level * slope - cost) that add up to 1, for the one level at which they do.

    It shares a budget optimally among directions with independent noise: with slopes of 1 and costs of
    noise / prior variance, the shares maximise Σ log(1 + share * prior / noise). Directions whose cost is too high get
    nothing.

    Examples
    --------
    >>> water_fill(0.5 / np.array([1.0, 0.5, 0.01])).round(2)
    array([0.75, 0.25, 0.  ])
    """
    slopes = np.broadcast_to(np.asarray(slopes, dtype=np.float64), costs.shape)
    with np.errstate(all="ignore"):
        starts = costs / slopes  # the level from which a direction gets a share
    order = np.argsort(starts)
    levels = (1.0 + np.cumsum(costs[order])) / np.maximum(np.cumsum(slopes[order]), 1e-300)
    # The level is that of the largest set of directions that all start below it.
    below = np.flatnonzero(levels > starts[order])
    if len(below) == 0:
        # All costs are so high that rounding hides the 1 that is shared; the cheapest direction gets it.
        return np.asarray(np.arange(len(costs)) == order[0], dtype=np.float64)
    return np.asarray(np.maximum(0.0, levels[below[-1]] * slopes - costs))


# Rows per column above which a sample spectrum is not corrected: the correction would be smaller than its own error.
# Chosen by hand.
_ROWS_PER_COLUMN_WITHOUT_CORRECTION = 20


def shrunk_spectrum(values: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Return estimates of the population variances along sample eigenvectors; `values` and the result ascend.

    The analytical nonlinear shrinkage of O. Ledoit and M. Wolf, "Analytical nonlinear shrinkage of large-dimensional
    covariance matrices", Annals of Statistics 48(5), 2020.

    Examples
    --------
    >>> rows = np.random.default_rng(7).standard_normal((150, 100))
    >>> values = np.linalg.eigvalsh(rows.T @ rows / 150)
    >>> bool(np.ptp(shrunk_spectrum(values, 150)) < 0.3 * np.ptp(values))
    True
    """
    n = n_rows - 1
    if n_rows > _ROWS_PER_COLUMN_WITHOUT_CORRECTION * len(values) or n < 2 or not values[-1] > 0:
        return values
    # Columns that depend exactly on others have variance 0 in the population too. Zeros that are only due to fewer rows
    # than columns do not mean that.
    rank = int(np.sum(values > 1e-10 * values[-1]))
    p = rank if rank < min(n, len(values)) else len(values)
    missing = np.zeros(len(values) - p)
    lam = np.maximum(values[-min(p, n) :], 1e-12 * values[-1])
    width = n ** (-1 / 3)
    # x[i, j]: distance of eigenvalue i from eigenvalue j in bandwidths of j (Epanechnikov kernel).
    bandwidth = width * lam[None, :]
    x = (lam[:, None] - lam[None, :]) / bandwidth
    root = math.sqrt(5)
    density = np.mean(3 / (4 * root) * np.maximum(1 - x**2 / 5, 0) / bandwidth, axis=1)
    with np.errstate(all="ignore"):
        logs = np.log(np.maximum(np.abs((root - x) / np.where(x == -root, 1.0, root + x)), 1e-300))
    hilbert = -3 / (10 * math.pi) * x + 3 / (4 * root * math.pi) * (1 - x**2 / 5) * logs
    hilbert = np.where(np.abs(x) == root, -3 / (10 * math.pi) * x, hilbert)
    hilbert = np.mean(hilbert / bandwidth, axis=1)
    if p <= n:
        ratio = p / n
        shrunk = lam / ((math.pi * ratio * lam * density) ** 2 + (1 - ratio - math.pi * ratio * lam * hilbert) ** 2)
    else:
        inner = 3 / 10 / width**2 + 3 / 4 / root / width * (1 - 1 / 5 / width**2) * math.log(
            abs((1 + root * width) / (1 - root * width))
        )
        null = 1 / (math.pi * (p - n) / n * (inner / math.pi * float(np.mean(1 / lam))))
        above = lam / (math.pi**2 * lam**2 * (density**2 + hilbert**2))
        shrunk = np.concatenate([np.full(p - n, null), above])
    return np.concatenate([missing, np.sort(np.maximum(shrunk, 0.0))])
