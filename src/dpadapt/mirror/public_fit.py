"""What public rows say before a private one is read: a start, a Hessian, and how far off the start must be."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpadapt.learning.losses import LogisticLoss, Loss, SoftmaxLoss, softmax
from dpadapt.learning.public_model import public_classifier

Vector = NDArray[np.float64]
# Rows that stand for all public ones where every row would cost a solve.
_SAMPLE = 500
# Public ridges tried for the start, in mean eigenvalues: the first is the paper's, for numerical stability only.
_RIDGES = (1e-6, 1e-2, 1.0)
# A public fit without error must not clip the private rows' shift away: the least residual to expect, in deviations.
_LEAST = 0.05


@dataclass(frozen=True, eq=False)
class PublicFit:
    """A start and what is known about it.

    Parameters
    ----------
    solution : ndarray of shape (n_columns,) or (n_columns, n_scores)
        The public minimiser, or what stands for it.
    hessian : ndarray of shape (n_columns, n_columns)
        Mean over public rows of curvature times row times row; per score, without a ridge.
    n_rows : int
        How many public rows there are; 0 if none.
    sample : ndarray of shape (n_sample, n_columns)
        Some public rows.
    curvature : ndarray of shape (n_sample,)
        Second derivative of the loss in a score, at those rows.
    derivatives : ndarray of shape (n_sample,)
        Length of the loss's derivative in the scores at those rows, each as if left out of the fit.
    excess : float
        Expected loss of the start above that of the best solution.
    largest : float, optional
        An upper bound on the curvature of any direction, where the Hessian is only assumed.
    """

    solution: Vector
    hessian: Vector
    n_rows: int
    sample: Vector
    curvature: Vector
    derivatives: Vector
    excess: float
    largest: float | None = None

    @property
    def mean_eigenvalue(self) -> float:
        """The mean eigenvalue of the Hessian, never 0."""
        return max(float(np.trace(self.hessian)) / len(self.hessian), 1e-300)

    def ridge(self, wanted: float | None) -> float:
        """Return a ridge given in mean eigenvalues; by default half of them times columns over rows.

        Sampling spreads the eigenvalues by about the root of columns over rows; small ones are too small.
        """
        share = 0.5 * len(self.hessian) / max(self.n_rows, 1) if wanted is None else wanted
        return share * self.mean_eigenvalue

    def ridged(self, ridge: float) -> Vector:
        """Return the Hessian with `ridge` added to its diagonal."""
        hessian = self.hessian.copy()
        hessian[np.diag_indices_from(hessian)] += ridge
        return hessian


def declared_fit(start: Vector, *, intercept: bool, curvature: float, derivative: float, excess: float) -> PublicFit:
    """Return what can be assumed without public rows: features lie in about [-1, 1]."""
    k = len(start)
    # A uniform feature on [-1, 1] has mean square 1/3; one direction may hold most of a row's length.
    squares = np.full(k, 1.0 / 3.0)
    if intercept:
        squares[-1] = 1.0
    typical = math.sqrt(float(squares.sum()))
    row = np.full((1, k), typical / math.sqrt(k))
    ones = np.ones(1)
    return PublicFit(
        start, np.diag(curvature * squares), 0, row, curvature * ones, derivative * ones, excess, curvature * typical**2
    )


def unlabelled_fit(Z: Vector, start: Vector, *, curvature: float, derivative: float, excess: float) -> PublicFit:
    """Return what public rows without labels say."""
    sample = Z[_sample(len(Z))]
    ones = np.ones(len(sample))
    hessian = curvature * (Z.T @ Z) / len(Z)
    return PublicFit(start, hessian, len(Z), sample, curvature * ones, derivative * ones, excess)


def squared_fit(Z: Vector, y: Vector) -> PublicFit:
    """Fit least squares on public rows, with the ridge of least leave-one-out error on some of them."""
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, k = Z.shape
    chosen = _sample(n)
    sample, target = Z[chosen], y[chosen]
    hessian, cross = Z.T @ Z / n, Z.T @ y / n
    unit = max(float(np.trace(hessian)) / k, 1e-300)
    best: tuple[float, Vector, Vector, float, float] | None = None
    for ridge in _RIDGES:
        ridged = hessian.copy()
        ridged[np.diag_indices_from(ridged)] += ridge * unit
        factor = cho_factor(ridged, lower=True, overwrite_a=True)
        solution = cho_solve(factor, cross)
        leverage = np.minimum(np.einsum("ij,ji->i", sample, cho_solve(factor, sample.T)) / n, 1 - 1e-6)
        residual = target - sample @ solution
        # The residual of a row left out of the fit is r / (1 - h), exactly.
        left_out = residual / (1.0 - leverage)
        error = float(np.mean(left_out**2))
        if best is None or error < best[0]:
            best = error, solution, left_out, float(np.mean(residual**2)), float(np.mean(leverage))
    if best is None or not math.isfinite(best[0]):
        raise ValueError("the public rows or labels are too large to fit a model. Rescale them.")
    error, solution, left_out, inside, freedom = best
    least = _LEAST * max(float(np.std(y)), 1e-300)
    # Left-out and own loss differ by (2 - freedom) times what the start loses, for least squares exactly.
    excess = max((error - inside) / (2.0 - freedom), least**2) / 2
    ones = np.ones(len(sample))
    return PublicFit(solution, hessian, n, sample, ones, np.maximum(np.abs(left_out), least), excess)


def logistic_fit(Z: Vector, codes: NDArray[np.int64], n_scores: int) -> PublicFit:
    """Fit a logistic (one score) or softmax model on public rows."""
    n = len(Z)
    solution = public_classifier(Z, codes, n_scores)
    if n_scores == 1:
        solution = solution[:, 0]
    chosen = _sample(n)
    sample, target = Z[chosen], codes[chosen]
    scores = Z @ solution
    curvature = class_curvature(scores)
    loss: Loss = LogisticLoss() if n_scores == 1 else SoftmaxLoss()
    hessian = Z.T @ (Z * curvature[:, None]) / n
    fit = PublicFit(solution, hessian, n, sample, curvature[chosen], np.ones(len(sample)), 1.0)
    # At the solution the gradient is minus the ridge times it: so the ridge that was chosen can be read off.
    gradient = Z.T @ loss.weights(scores.copy(), codes) / n
    ridge = -float(np.sum(gradient * solution)) / max(float(np.sum(solution**2)), 1e-300)
    factor = cho_factor(fit.ridged(max(ridge, 1e-6 * fit.mean_eigenvalue)), lower=True, overwrite_a=True)
    reach = np.einsum("ij,ji->i", sample, cho_solve(factor, sample.T)) / n
    derivative = loss.weights(scores[chosen].copy(), target)
    # One Newton step for each row left out of the fit.
    shift = reach / (1.0 - np.minimum(fit.curvature * reach, 0.9))
    left_out = scores[chosen] + (shift * derivative.T).T
    gap = loss.value(left_out, target) - loss.value(scores[chosen], target)
    derivatives = loss.weights(left_out, target).reshape(len(sample), -1)
    lengths = np.maximum(np.linalg.norm(derivatives, axis=1), _LEAST)
    return PublicFit(solution, hessian, n, sample, fit.curvature, lengths, max(gap / 2, 1e-6))


def class_curvature(scores: Vector) -> Vector:
    """Return the second derivative of the log-loss in a score, averaged over directions for several classes."""
    if scores.ndim == 1:
        p = 0.5 + 0.5 * np.tanh(scores / 2)
        return np.asarray(p * (1 - p))
    p = softmax(scores.copy())
    return np.asarray((1 - np.sum(p**2, axis=1)) / (scores.shape[1] - 1))


def _sample(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
