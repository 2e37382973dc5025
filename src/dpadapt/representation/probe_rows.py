"""Rows as the baselines of linear probing take them: centred on public rows, then of unit length or whitened."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = ("unit", "whitened")
# Directions with less than this share of the average public variance are not amplified further (as in geometry.py).
_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class ProbeRows:
    """How rows are brought into form, each by itself, from public rows alone.

    Parameters
    ----------
    center : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features, k) or None
        Whitening map; None for rows of unit length.
    typical_norm : float
        Median length of a public row in this form, its constant 1 included.
    """

    center: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    typical_norm: float

    def transform(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return rows in this form; one that is too long for a float comes out not finite, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.asarray(X, dtype=np.float64) - self.center
            if self.basis is not None:
                return np.asarray(rows @ self.basis)
            return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))


def probe_rows(X_public: NDArray[np.float64] | None, n_features: int, rows: str) -> ProbeRows:
    """Return the form of rows; without public ones they are taken to be centred, and can't be whitened."""
    if X_public is None:
        if rows == "whitened":
            raise ValueError("rows='whitened' needs public rows to whiten by. Give public=, or rows='unit'.")
        return ProbeRows(np.zeros(n_features), None, np.sqrt(2.0))
    center = X_public.mean(axis=0)
    if rows == "unit":
        return ProbeRows(center, None, np.sqrt(2.0))
    values, vectors = np.linalg.eigh((X_public - center).T @ (X_public - center) / len(X_public))
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + _FLOOR * max(float(values.mean()), 1e-300))
    lengths = np.linalg.norm((X_public - center) @ basis, axis=1)
    return ProbeRows(center, basis, float(np.sqrt(np.median(lengths) ** 2 + 1.0)))
