"""A public spectrum, corrected for the spread that a finite sample adds to it.

The analytical nonlinear shrinkage of O. Ledoit and M. Wolf, "Analytical nonlinear shrinkage of large-dimensional
covariance matrices", Annals of Statistics 48(5), 2020.
"""

import math

import numpy as np
from numpy.typing import NDArray

# With this many rows per column the correction is below the noise of the kernel it uses.
_MANY = 20


def shrunk_spectrum(values: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Return estimates of the population variances along sample eigenvectors; `values` ascend, and so do they.

    Examples
    --------
    >>> rows = np.random.default_rng(7).standard_normal((150, 100))
    >>> values = np.linalg.eigvalsh(rows.T @ rows / 150)
    >>> bool(np.ptp(shrunk_spectrum(values, 150)) < 0.3 * np.ptp(values))
    True
    """
    n = n_rows - 1
    if n_rows > _MANY * len(values) or n < 2 or not values[-1] > 0:
        return values
    # Columns that depend on others exactly have variance 0 in the population too; fewer rows than columns don't say so.
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
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(np.abs((root - x) / np.where(x == -root, 1.0, root + x)), 1e-300))
    hilbert = -3 / (10 * math.pi) * x + 3 / (4 * root * math.pi) * (1 - x**2 / 5) * logs
    hilbert = np.where(np.abs(x) == root, -3 / (10 * math.pi) * x, hilbert)
    hilbert = np.mean(hilbert / bandwidth, axis=1)
    if p <= n:
        ratio = p / n
        found = lam / ((math.pi * ratio * lam * density) ** 2 + (1 - ratio - math.pi * ratio * lam * hilbert) ** 2)
    else:
        inner = 3 / 10 / width**2 + 3 / 4 / root / width * (1 - 1 / 5 / width**2) * math.log(
            abs((1 + root * width) / (1 - root * width))
        )
        null = 1 / (math.pi * (p - n) / n * (inner / math.pi * float(np.mean(1 / lam))))
        above = lam / (math.pi**2 * lam**2 * (density**2 + hilbert**2))
        found = np.concatenate([np.full(p - n, null), above])
    return np.concatenate([missing, np.sort(np.maximum(found, 0.0))])
