"""Weighted ridge and logistic regression on standardised rows: what every reweighing method fits in the end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Standard:
    """How columns are centred and scaled. A constant column has an infinite scale, which leaves it out."""

    center: Vector
    scale: Vector

    def apply(self, X: NDArray[Any]) -> Vector:
        """Return standardised rows."""
        return np.asarray((X - self.center) / self.scale, dtype=np.float64)

    def undo(self, coef: Vector, intercept: Any) -> tuple[Vector, Any]:
        """Return coefficients (last axis: features) and intercept for raw rows."""
        raw = coef / self.scale
        return raw, intercept - raw @ self.center


def standard(X: NDArray[Any]) -> Standard:
    """Return the mean and spread of the columns of `X`."""
    X = np.asarray(X, dtype=np.float64)
    center, scale = X.mean(axis=0), X.std(axis=0)
    return Standard(center, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(center)), scale, np.inf))


def weighted_ridge(Z: Vector, y: Vector, weights: Vector, ridge: float) -> tuple[Vector, float]:
    """Return coefficients and intercept that minimise the weighted squared error plus a ridge.

    `ridge` is relative to the average eigenvalue of the weighted second moment; the intercept is not penalised.
    """
    total = float(weights.sum())
    if total <= 0:
        return np.zeros(Z.shape[1]), 0.0
    share = weights / total
    middle, level = share @ Z, float(share @ y)
    centred = Z - middle
    gram = (centred * share[:, None]).T @ centred
    cross = centred.T @ (share * (y - level))
    # Whatever the columns are, the sum of `gram` and this is positive definite.
    strength = ridge * max(float(np.trace(gram)) / len(gram), 1e-12)
    coef = np.asarray(np.linalg.solve(gram + strength * np.eye(len(gram)), cross), dtype=np.float64)
    return coef, level - float(middle @ coef)


def weighted_logistic(
    Z: Vector, codes: NDArray[np.int64], weights: Vector, ridge: float, n_classes: int
) -> tuple[Vector, Vector]:
    """Return coefficients and intercepts, one row per score, that minimise the weighted log-loss plus a ridge.

    `ridge` is relative to the average weighted square of a column. A class that has no weight gets a score of -inf's
    stand-in: so low that it is never the answer.
    """
    total = float(weights.sum())
    n_scores = 1 if n_classes == 2 else n_classes
    coef, intercept = np.zeros((n_scores, Z.shape[1])), np.zeros(n_scores)
    used = weights > 0
    present = np.unique(codes[used])
    if len(present) == 0:
        return coef, intercept
    if len(present) == 1:
        # One class only: the answer is that class, whatever the row.
        intercept[:] = -_NEVER
        intercept[0 if n_scores == 1 else present[0]] = _NEVER if n_scores > 1 or present[0] == 1 else -_NEVER
        return coef, intercept
    share = weights[used] / total
    rows = Z[used]
    strength = ridge * max(float(share @ np.mean(rows**2, axis=1)), 1e-12)
    # scikit-learn minimises C Σ weight loss + |w|²/2; the weights here add up to 1.
    solver = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", max_iter=200, tol=1e-8)
    solver.fit(rows, codes[used], sample_weight=share)
    if n_scores == 1:
        return np.asarray(solver.coef_), np.asarray(solver.intercept_)
    if len(present) == 2:
        # Two of several classes: half the score for one, minus half for the other.
        halves = np.array([[-0.5], [0.5]])
        coef[present], found = halves * solver.coef_, (halves * solver.intercept_)[:, 0]
    else:
        coef[present], found = solver.coef_, solver.intercept_
    intercept[:] = -_NEVER
    intercept[present] = found
    return coef, intercept


# A score that no row outweighs: exp(-_NEVER) is 0 in floating point.
_NEVER = 1e3
