"""Scales of rows, from public rows or declared ranges: columns centred and divided, and whitened coordinates."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.rows import row_products

# Smallest variance that whitening divides by, as a share of the mean public variance. Smaller values amplify directions
# in which public rows hardly vary; larger ones whiten less. Half: 0.2% better, twice: 0.4% worse (`tools/constants.py`)
WHITENING_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns are centred and divided.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
        An infinite scale leaves a column out.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> "Scaling":
        """Return the mean and the standard deviation of each public column; a constant column has scale infinity."""
        return Scaling(*centre_and_scale(X))

    def scaled(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return scaled rows in the precision of `X`, every cell by itself; an overflow gives no warning."""
        with np.errstate(all="ignore"):
            rows: NDArray[Any] = X - self.center.astype(X.dtype)
            rows /= self.scale.astype(X.dtype)
        return rows

    def raw(self, coef: NDArray[np.float64], intercept: Any) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients (first axis: features) and intercept for raw rows, from those for scaled rows."""
        raw = (coef.T / self.scale).T
        return raw, intercept - self.center @ raw


@dataclass(frozen=True, eq=False)
class Geometry(Scaling):
    """A linear map of rows to coordinates of a common scale: centre, divide, append 1, and rotate.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features + 1, n_features + 1)
        Whitening map; the identity if nothing is known.
    spectrum : ndarray of shape (n_features + 1,)
        Share of the public variance that each final coordinate had before whitening; adds up to 1.
    typical_norm, max_norm : float
        Median and largest usual length (95% quantile) of a public row in the final coordinates.
    """

    basis: NDArray[np.float64]
    spectrum: NDArray[np.float64]
    typical_norm: float
    max_norm: float

    def extend(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return scaled rows with their constant 1."""
        extended = np.empty((X.shape[0], X.shape[1] + 1))
        np.subtract(X, self.center, out=extended[:, :-1])
        extended[:, :-1] /= self.scale
        extended[:, -1] = 1.0
        return extended

    def transform(self, X: NDArray[Any], *, fixed_rows: bool = True) -> NDArray[np.float64]:
        """Return rows in the final coordinates; a row too long for a float comes out not finite, without a warning.

        `fixed_rows`: as in `row_products`.
        """
        with np.errstate(all="ignore"):
            return row_products(self.extend(X), self.basis, fixed_rows=fixed_rows)

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients and intercept for raw rows from a solution in the final coordinates."""
        extended = self.basis @ solution
        return self.raw(extended[:-1], extended[-1])

    def solution_for(self, extended: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the solution in the final coordinates that equals `extended` on scaled rows with their constant."""
        return np.asarray(np.linalg.solve(self.basis, extended), dtype=np.float64)


def quantile_between(values: NDArray[np.float64], wanted: float, low: float, high: float) -> float:
    """Return `wanted`, clipped to two quantiles of public `values`."""
    bottom, top = np.quantile(values, [low, high])
    return float(min(max(wanted, bottom), top))


def declared_geometry(n_features: int) -> Geometry:
    """Return the geometry of features that are only known to lie in about [-1, 1]."""
    k = n_features + 1
    # A uniform feature on [-1, 1] has mean square 1/3.
    typical = math.sqrt(n_features / 3.0 + 1.0)
    return Geometry(np.zeros(n_features), np.ones(n_features), np.eye(k), np.full(k, 1 / k), typical, math.sqrt(k))


def centre_and_scale(X: NDArray[np.float64], least: float = 1e-12) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation of each public column; a constant column has scale infinity.

    Dividing by infinity leaves a constant column out of the model. `least` is relative to the mean, or to 1.
    """
    center, scale = X.mean(axis=0), X.std(axis=0)
    return center, np.where(scale > least * np.maximum(1.0, np.abs(center)), scale, np.inf)


def label_spread(y: NDArray[np.float64]) -> float:
    """Return the standard deviation of public labels; labels that are all alike have none: then their size, or 1.

    Examples
    --------
    >>> label_spread(np.array([-1.0, 1.0])), label_spread(np.zeros(2)), label_spread(np.full(2, 40.0))
    (1.0, 1.0, 40.0)
    """
    spread, level = float(np.std(y)), abs(float(np.mean(y)))
    return spread if spread > 1e-12 * level else max(1.0, level)


def public_geometry(X: NDArray[np.float64]) -> Geometry:
    """Return the geometry of public rows: standardised and whitened."""
    n, d = X.shape
    center, scale = centre_and_scale(X)
    extended = Geometry(center, scale, np.eye(d + 1), np.ones(d + 1), 1.0, 1.0).extend(X)
    values, vectors = np.linalg.eigh(extended.T @ extended / n)
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + WHITENING_FLOOR * values.mean())
    norms = np.linalg.norm(extended @ basis, axis=1)
    typical, largest = (float(q) for q in np.quantile(norms, [0.5, 0.95]))
    return Geometry(center, scale, basis, values / values.sum(), typical, largest)


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
