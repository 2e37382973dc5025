"""Public geometry: scales, whitening and a ridge model, from public rows (or from declared ranges) alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Directions with less than this share of the average public variance are not amplified further.
_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class Geometry:
    """How rows are brought to a common scale: centre, divide, append 1, and turn.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features + 1, n_features + 1)
        Whitening map; the identity if nothing is known.
    spectrum : ndarray of shape (n_features + 1,)
        Share of the public variance that each final coordinate had before whitening; adds up to 1.
    typical_norm, max_norm : float
        Median and largest ordinary length of a row in the final coordinates.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
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

    def transform(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return rows in the final coordinates; a row too long for a float comes out not finite, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.extend(X) @ self.basis

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients and intercept for raw rows from a solution in the final coordinates."""
        extended = self.basis @ solution
        coef = (extended[:-1].T / self.scale).T
        return coef, extended[-1] - self.center @ coef

    def solution_for(self, extended: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the solution in the final coordinates that equals `extended` on scaled rows with their constant."""
        return np.asarray(np.linalg.solve(self.basis, extended), dtype=np.float64)


def declared_geometry(n_features: int) -> Geometry:
    """Return the geometry of features declared to lie in about [-1, 1]: nothing is known but that."""
    k = n_features + 1
    # A uniform feature on [-1, 1] has mean square 1/3.
    typical = math.sqrt(n_features / 3.0 + 1.0)
    return Geometry(np.zeros(n_features), np.ones(n_features), np.eye(k), np.full(k, 1 / k), typical, math.sqrt(k))


def public_geometry(X: NDArray[np.float64]) -> Geometry:
    """Return the geometry of public rows: standardised and whitened."""
    n, d = X.shape
    center, scale = X.mean(axis=0), X.std(axis=0)
    # A column that is constant in public has no public scale: it is left out, by a scale of infinity.
    scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(center)), scale, np.inf)
    extended = Geometry(center, scale, np.eye(d + 1), np.ones(d + 1), 1.0, 1.0).extend(X)
    values, vectors = np.linalg.eigh(extended.T @ extended / n)
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + _FLOOR * values.mean())
    norms = np.linalg.norm(extended @ basis, axis=1)
    typical, largest = (float(q) for q in np.quantile(norms, [0.5, 0.95]))
    return Geometry(center, scale, basis, values / values.sum(), typical, largest)


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """A ridge regression on public rows with its exact leave-one-out residuals."""

    solution: NDArray[np.float64]
    residuals: NDArray[np.float64]
    ridge: float


def ridge_by_leave_one_out(Z: NDArray[np.float64], y: NDArray[np.float64]) -> RidgeModel:
    """Fit ridge regressions on a grid of strengths and keep the one with the least leave-one-out error.

    One eigendecomposition serves the whole grid; the leave-one-out residual is r / (1 - h), exactly.
    """
    n = len(y)
    values, vectors = np.linalg.eigh(Z.T @ Z / n)
    values = np.maximum(values, 0.0)
    rotated = Z @ vectors
    target = rotated.T @ y / n
    best: RidgeModel | None = None
    for ridge in values.mean() * np.logspace(-4, 1, 11):
        shrunk = 1.0 / (values + ridge)
        residual = y - rotated @ (shrunk * target)
        leverage = np.minimum((rotated**2 @ shrunk) / n, 1 - 1e-6)
        left_out = residual / (1.0 - leverage)
        if best is None or np.mean(left_out**2) < np.mean(best.residuals**2):
            best = RidgeModel(vectors @ (shrunk * target), left_out, float(ridge))
    if best is None or not np.all(np.isfinite(best.residuals)):
        raise ValueError("the public labels are not finite; remove those rows.")
    return best
