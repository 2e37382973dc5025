"""`PDADPMDRegressor`: linear regression by public data-assisted mirror descent.

Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpadapt.learning.descent import LogisticLoss, Loss, SoftmaxLoss, softmax
from dpadapt.learning.preparation import public_classifier
from dpadapt.rows import Rows

# The coordinates that mirror descent works in: raw features, or features standardised by public rows, and a 1.


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


# What public rows say before a private one is read: a start, a Hessian, and how far off the start must be.


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


# Clipping norm and learning rate from public data alone: those of the least predicted loss.
#
# Along its way a descent forgets the public start's error and takes in noise. Both follow from public data in a
# linear model of one direction, so a small grid of clipping norms and learning rates is searched at no private cost.


_RATES = 2.0 ** -np.arange(12)


@dataclass(frozen=True, eq=False)
class Terrain:
    """What a descent will meet, in its own coordinates.

    Parameters
    ----------
    lengths : ndarray
        Lengths of gradients of public rows, each as if left out of the public fit.
    scatter : float
        Loss per unit of squared noise in one step of length 1, all coordinates together.
    curvature : float
        How fast a step of length 1 forgets a typical error of the start.
    fastest : float
        The same for the direction that is forgotten first; steps beyond 1 over it may diverge.
    excess : float
        Loss of the start above that of the best solution.
    """

    lengths: Vector
    scatter: float
    curvature: float
    fastest: float
    excess: float


def plain_terrain(fit: PublicFit, largest: float) -> Terrain:
    """Return what gradient descent meets; `largest` is the top eigenvalue of the Hessian."""
    norms = np.linalg.norm(fit.sample, axis=1)
    scatter = float(np.trace(fit.hessian)) * _scores(fit) / 2
    return Terrain(norms * fit.derivatives, scatter, fit.mean_eigenvalue, largest, fit.excess)


def mirror_terrain(fit: PublicFit, inverse: Vector, unit: float) -> Terrain:
    """Return what exact mirror descent meets.

    `inverse` holds the inverse Hessian times each sampled row, in columns; `unit` normalises it.
    """
    norms = np.linalg.norm(fit.sample, axis=1)
    keep = _kept(fit, inverse)
    # E |H^-1 x|² over new rows x: a row that took part in H is found 1 - h times as long as a new one.
    squares = np.sum(inverse**2, axis=0) / keep**2
    scatter = unit**2 * float(np.mean(fit.curvature * squares)) * _scores(fit) / 2
    # Where the public Hessian is smallest, the population's is nearer its mean.
    return Terrain(norms * fit.derivatives, scatter, unit, max(unit, fit.mean_eigenvalue), fit.excess)


def whitened_terrain(fit: PublicFit, inverse: Vector, unit: float) -> Terrain:
    """Return what gradient descent meets on rows multiplied by the inverse root of the Hessian."""
    keep = _kept(fit, inverse)
    squares = np.einsum("ij,ji->i", fit.sample, inverse) / keep
    scatter = float(np.mean(fit.curvature * squares)) * _scores(fit) / 2
    fastest = max(1.0, fit.mean_eigenvalue / unit)
    return Terrain(np.sqrt(squares) * fit.derivatives, scatter, 1.0, fastest, fit.excess)


def _scores(fit: PublicFit) -> int:
    return 1 if fit.solution.ndim == 1 else int(fit.solution.shape[1])


def _kept(fit: PublicFit, inverse: Vector) -> Vector:
    """Return 1 - h for each sampled row, h its leverage in the Hessian that was inverted."""
    leverage = fit.curvature * np.einsum("ij,ji->i", fit.sample, inverse) / max(fit.n_rows, 1)
    return np.asarray(1.0 - np.minimum(leverage, 0.9))


def choose(
    terrain: Terrain,
    *,
    clip_norm: float | None,
    learning_rate: float | None,
    noise: float,
    steps: int,
    first: int,
    least: float,
) -> tuple[float, float]:
    """Return clipping norm and learning rate; whichever is given is kept.

    Parameters
    ----------
    terrain : Terrain
    clip_norm, learning_rate : float, optional
    noise : float
        Standard deviation of the noise in a mean gradient, per unit of clipping norm.
    steps, first : int
        Number of steps, and the first whose iterate is averaged.
    least : float
        Quantile of the lengths below which clipping is not tried: it biases losses that are not symmetric.
    """
    lengths = terrain.lengths
    quantiles = np.quantile(lengths, [q for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.97) if q >= least])
    clips = np.maximum(quantiles, 1e-300) if clip_norm is None else np.array([clip_norm])
    rates = _RATES / terrain.fastest if learning_rate is None else np.array([learning_rate])
    # A gradient beyond the clip no longer follows the solution.
    inside = np.maximum(np.mean(lengths[None, :] <= clips[:, None], axis=1), 0.05)
    pace = np.minimum(inside[:, None] * terrain.curvature * rates, 1.0)
    bias, gain = _averaged(pace, steps, first)
    variance = (clips[:, None] * noise * rates) ** 2 * gain
    predicted = terrain.excess * bias**2 + terrain.scatter * variance
    i, j = np.unravel_index(int(np.argmin(predicted)), predicted.shape)
    return float(clips[i]), float(rates[j])


def _averaged(pace: Vector, steps: int, first: int) -> tuple[Vector, Vector]:
    """Return what is left of an error in the average iterate of u <- u - pace u + noise, and its variance per noise."""
    left, bias = np.ones_like(pace), np.zeros_like(pace)
    for t in range(steps):
        left = left * (1.0 - pace)
        if t >= first:
            bias += left / (steps - first)
    reach, gain = np.zeros_like(pace), np.zeros_like(pace)
    # Backwards: `reach` is how much the average moves per unit of change of iterate t + 1.
    for t in reversed(range(steps)):
        if t >= first:
            reach = reach + 1.0 / (steps - first)
        gain += reach**2
        reach = reach * (1.0 - pace)
    return bias, gain


def checked_ridge(ridge: Any) -> float | None:
    """Return a ridge that is not negative, or None."""
    if ridge is None:
        return None
    if isinstance(ridge, bool) or not isinstance(ridge, int | float) or not 0 <= ridge < math.inf:
        raise ValueError(f"ridge must be a number of at least 0, got {ridge!r}.")
    return float(ridge)
