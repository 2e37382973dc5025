"""The coordinates that mirror descent works in: raw features, or features standardised by public rows, and a 1."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.rows import Rows


@dataclass(frozen=True, eq=False)
class Coordinates:
    """How rows are prepared: centred, divided, and given a constant 1.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,), or None
        None leaves the features as they are. A column that is constant in public has scale infinity: it is left out.
    n_features : int
    intercept : bool
        Whether rows have a further constant feature 1.
    """

    center: NDArray[np.float64] | None
    scale: NDArray[np.float64] | None
    n_features: int
    intercept: bool

    @property
    def n_columns(self) -> int:
        """How many coordinates there are."""
        return self.n_features + self.intercept

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows without their constant, of the same type; a row too long for it comes out not finite."""
        if self.center is None or self.scale is None:
            return X
        with np.errstate(over="ignore", invalid="ignore"):
            moved = X - self.center.astype(X.dtype)
            moved /= self.scale.astype(X.dtype)
        return np.asarray(moved)

    def extend(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows with their constant."""
        moved = self.transform(X)
        return np.column_stack([moved, np.ones(len(moved), moved.dtype)]) if self.intercept else moved

    def rows(self, X: NDArray[Any], y: NDArray[Any], *, basis: NDArray[np.float64] | None = None) -> Rows:
        """Return private rows, turned by `basis` if one is given."""
        if basis is None:
            return Rows(self.transform(X), y, intercept=self.intercept)
        with np.errstate(over="ignore", invalid="ignore"):
            return Rows(self.extend(X) @ basis.astype(X.dtype), y)

    def constant(self, level: float) -> NDArray[np.float64]:
        """Return the solution that is `level` everywhere; zero if there is no constant to hold it."""
        solution = np.zeros(self.n_columns)
        if self.intercept:
            solution[-1] = level
        return solution

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients and intercept for raw rows."""
        coef = solution[: self.n_features]
        intercept = solution[-1] if self.intercept else np.zeros(solution.shape[1:])
        if self.center is None or self.scale is None:
            return coef.copy(), intercept
        coef = (coef.T / self.scale).T
        return coef, intercept - self.center @ coef


def coordinates(
    X_public: NDArray[np.float64] | None, n_features: int, *, standardise: bool, intercept: bool
) -> Coordinates:
    """Return the coordinates that public rows suggest; without them, features stay as they are."""
    if X_public is None or not standardise:
        return Coordinates(None, None, n_features, intercept)
    scale = X_public.std(axis=0)
    if intercept:
        center = X_public.mean(axis=0)
        spread = scale > 1e-12 * np.maximum(1.0, np.abs(center))
    else:
        # Without a constant nothing could make up for centring.
        center, scale = np.zeros(n_features), np.sqrt(np.mean(X_public**2, axis=0))
        spread = scale > 0
    return Coordinates(center, np.where(spread, scale, np.inf), n_features, intercept)
