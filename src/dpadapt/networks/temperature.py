"""Temperature scaling: one number, fitted on held-out public rows, that makes a network's probabilities honest.

Clipping leaves a network's scores too large or too small; dividing them by a temperature corrects that and changes no
prediction. Guo, Pleiss, Sun and Weinberger (2017, arXiv:1706.04599).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

_LARGEST = math.log(50.0)


def log_loss(scores: NDArray[np.float64], codes: NDArray[np.int64], temperature: float = 1.0) -> float:
    """Return the mean cross-entropy of scores over a temperature."""
    scaled = scores / temperature
    return float(np.mean(logsumexp(scaled, axis=1) - scaled[np.arange(len(codes)), codes]))


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the temperature with the least cross-entropy on these public rows, between 1/50 and 50.

    A few rows that are all classified right would ask for zero, so that one over the rows' number times half the
    squared logarithm is added.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> codes = random.integers(0, 3, 5000)
    >>> scores = np.eye(3)[codes] + random.gumbel(size=(5000, 3))
    >>> round(fit_temperature(5 * scores, codes) / fit_temperature(scores, codes), 1)
    5.0
    """
    found = minimize_scalar(
        lambda power: log_loss(scores, codes, math.exp(power)) + power**2 / (2 * len(codes)),
        bounds=(-_LARGEST, _LARGEST),
        method="bounded",
    )
    return math.exp(float(found.x))
