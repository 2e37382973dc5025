"""Cumulative counts from one release: the square root of the matrix of prefix sums.

The matrix of prefix sums P (ones on and below the diagonal) is S S, where S is a lower triangular Toeplitz matrix whose
first column has the coefficients of (1 - x)^(-1/2). With |S| the length of the longest column, a release r of S h / |S|
gives the cumulative counts P h as |S| S r, with noise that grows only with the logarithm of their number [1].

References
----------
.. [1] H. Fichtenberger, M. Henzinger, J. Upadhyay, "Constant matters: Fine-grained error bound on differentially
   private continual observation", ICML 2023.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def times_root(counts: Vector) -> Vector:
    """Return S times a vector."""
    return np.convolve(_first_column(len(counts)), counts)[: len(counts)]


def root_length(n: int) -> float:
    """Return |S|, the length of the longest column of S: the first."""
    column = _first_column(n)
    return math.sqrt(float(column @ column))


def cumulative(released: Vector) -> tuple[Vector, Vector]:
    """Return the cumulative counts, given a release of `square_root_histogram`.

    Also returned is the standard deviation of each count, per unit of the noise in `released`.
    """
    n = len(released)
    length = root_length(n)
    return times_root(released) * length, np.sqrt(np.cumsum(_first_column(n) ** 2)) * length


@lru_cache(maxsize=16)
def furthest_columns(n: int) -> float:
    """Return the largest distance between two columns of S / |S|, or between one of them and 0.

    Examples
    --------
    >>> round(furthest_columns(100), 3)
    1.248
    """
    column = _first_column(n)
    # Claim: |s_j - s_k| / |S| <= the number returned, for all columns s_j and s_k of S, and |s_j| / |S| <= 1. All pairs
    # are compared: |s_j - s_k|² = |s_j|² + |s_k|² - 2 s_j's_k, and the first column is the longest.
    furthest = 0.0
    for lag in range(n):
        # Columns j and j + lag share the rows from j + lag on.
        products = np.cumsum(column[lag:] * column[: n - lag])[::-1]
        squares = np.cumsum(column**2)[::-1]
        furthest = max(furthest, float(np.max(squares[: n - lag] + squares[lag:] - 2.0 * products)))
    return max(1.0, math.sqrt(furthest) / root_length(n) * (1.0 + n * float(np.finfo(np.float64).eps)))


def _first_column(n: int) -> Vector:
    k = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
