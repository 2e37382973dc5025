"""What the private transfer regressor knows before it sees a private row: public model, coordinates, residuals."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public
from dpadapt.learning.remembered import Remembered
from dpadapt.learning.spectrum import shrunk_spectrum

# Public ridge strengths tried, in mean eigenvalues. The floor keeps a public model that is perfect on its own
# population from amplifying directions it has hardly seen, which a shifted population may use.
_RIDGES = np.logspace(-2, 1, 7)
# No direction of the whitening is amplified beyond this share of the mean eigenvalue.
_FLOOR = 1e-2
# Rows longer than 95% of the public ones are shortened to that length, private and new rows alike. With many public
# rows per column, `_MANY`, only those twice as long: a population that has shifted has many rows that are somewhat
# longer, and a model that is well known predicts them better as they are.
_MANY, _LONGEST = 20, 2.0
# Most that the optimism of leave-one-out residuals may explain when the label noise is told from them.
_MOST_OPTIMISM = 20.0


@dataclass(frozen=True, eq=False)
class TransferGeometry:
    """Public preparation. Coordinates 0 and 1 calibrate (constant, slope of the public model), the rest are directions.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
        Standardisation; a column that is constant in public has scale infinity and is left out.
    target_center : float
        Mean of the public labels.
    longest : float
        Length to which longer standardised rows (with their 1) are shortened.
    solution : ndarray of shape (n_features + 1,)
        The public ridge model, for standardised rows and the target less its centre.
    residuals : ndarray
        Its exact leave-one-out residuals on the public rows.
    variance : float
        Their mean square.
    values, spectrum, vectors, ridge : ndarray, ndarray, ndarray, float
        Eigenvalues (descending) of the public second moment, the same corrected for sampling, eigenvectors, ridge.
    rows : ndarray
        Standardised, shortened public rows.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    target_center: float
    longest: float
    solution: NDArray[np.float64]
    residuals: NDArray[np.float64]
    variance: float
    values: NDArray[np.float64]
    spectrum: NDArray[np.float64]
    vectors: NDArray[np.float64]
    ridge: float
    rows: NDArray[np.float64]

    @property
    def noise_variance(self) -> float:
        """Variance of the labels about the best public model: leave-one-out error less its own optimism."""
        excess = float(np.sum(self.spectrum / (len(self.residuals) * (self.values + self.ridge))))
        return self.variance / (1.0 + min(_MOST_OPTIMISM, excess))

    @cached_property
    def _floored(self) -> NDArray[np.float64]:
        # Not the corrected spectrum: shifts of few-row public sets lie in directions whose variance it raises.
        return self.values + min(self.ridge, _FLOOR * float(self.values.mean()))

    @cached_property
    def _turn(self) -> NDArray[np.float64]:
        """Orthonormal: first the constant, then the public model's slope, then eigenvectors by falling variance."""
        root = np.sqrt(self._floored)
        first = np.column_stack([self.vectors[-1] * root, self.vectors.T @ self.solution * root])
        full, _ = np.linalg.qr(np.column_stack([first, np.eye(len(root))]))
        return np.asarray(full[:, : len(root)])

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """The map from standardised rows to corrected coordinates."""
        return np.asarray((self.vectors / np.sqrt(self._floored)) @ self._turn)

    @cached_property
    def whitened(self) -> NDArray[np.float64]:
        """The public rows in corrected coordinates."""
        return np.asarray(self.rows @ self.whitening)

    @cached_property
    def sampling(self) -> NDArray[np.float64]:
        """Expected squares of the public sampling error in corrected coordinates."""
        relative = self._floored / (len(self.residuals) * (self.values + self.ridge))
        return np.asarray(self.noise_variance * ((self._turn**2).T @ relative))

    def standardise(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised rows with their 1, shortened where they are longer than public rows are."""
        return shortened_rows(X, self.center, self.scale, self.longest)

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Return coefficients and intercept for raw rows that need no shortening."""
        coef = solution[:-1] / self.scale
        return coef, float(self.target_center + solution[-1] - self.center @ coef)


def shortened_rows(
    X: NDArray[Any], center: NDArray[np.float64], scale: NDArray[np.float64], longest: float
) -> NDArray[np.float64]:
    """Return standardised rows with their 1, none longer than `longest`.

    Each row is a function of itself alone. A row too long for a float comes out not finite or zero, silently.
    """
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(X, center, out=rows[:, :-1])
        rows[:, :-1] /= scale
        rows[:, -1] = 1.0
        rows *= np.minimum(1.0, longest / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
    return rows


_PREPARED: Remembered[TransferGeometry] = Remembered()


def remembered_geometry(public: Public, X: NDArray[np.float64], y: NDArray[np.float64]) -> TransferGeometry:
    """Return `transfer_geometry(X, y)`, made once for each `public` as long as its content stays the same."""
    return _PREPARED.get(public, [X, y], lambda: transfer_geometry(X, y))


def transfer_geometry(X: NDArray[np.float64], y: NDArray[np.float64]) -> TransferGeometry:
    """Prepare public rows and labels: standardise, fit the ridge of least leave-one-out error, find coordinates."""
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, d = X.shape
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 1e-10 * np.maximum(1.0, np.abs(center)), scale, np.inf)
    raw = np.column_stack([(X - center) / scale, np.ones(n)])
    norms = np.linalg.norm(raw, axis=1)
    longest = (_LONGEST if n > _MANY * d else 1.0) * float(np.quantile(norms, 0.95))
    rows = raw * np.minimum(1.0, longest / norms)[:, None]
    target_center = float(y.mean())
    y = y - target_center
    values, vectors = np.linalg.eigh(rows.T @ rows / n)
    values = np.maximum(values, 0.0)
    turned = rows @ vectors
    cross = turned.T @ y / n
    squares = turned**2
    mean = float(values.mean())
    best = (math.inf, mean, np.zeros(d + 1), y)
    for ridge in mean * _RIDGES:
        inner = 1.0 / (values + ridge)
        leverage = np.minimum(squares @ inner / n, 1 - 1e-6)
        left_out = (y - turned @ (inner * cross)) / (1.0 - leverage)
        error = float(np.mean(left_out**2))
        if error < best[0]:
            best = error, float(ridge), vectors @ (inner * cross), left_out
    # Labels that a linear model explains to rounding leave no scale; a millionth of their variance is one.
    variance = max(best[0], 1e-12 * float(y @ y) / n, 1e-300)
    spectrum = shrunk_spectrum(values, n)
    # Descending by corrected variance; the correction keeps the order.
    order = slice(None, None, -1)
    return TransferGeometry(
        center,
        scale,
        target_center,
        longest,
        best[2],
        best[3],
        variance,
        values[order],
        spectrum[order],
        vectors[:, order],
        best[1],
        rows,
    )
