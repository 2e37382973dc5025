"""James–Stein shrinkage with known noise variance."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri


def james_stein(change: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shrink a noisy change towards zero, as far as its known noise explains it.

    Positive-part James–Stein: with k coordinates and noise variances v, the change is multiplied by
    max(0, 1 - (k - 2) / S), S = Σ change² / v. For k > 2 and noise as stated, the expected squared error (in units of
    the variances) is never more than that of the unshrunk change, and small where there is nothing to find. A change
    that noise alone would exceed in one case of twenty (S below the 95% point of chi-square) is dropped altogether.

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
