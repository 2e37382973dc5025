"""What public rows determine before a private row is read: coordinates, start, Hessian, clipping norm, learning rate.

For the estimators of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. Everything
here is computed from public rows, or from declared ranges, and costs nothing.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array
from scipy.sparse.linalg import LinearOperator, cg

from dpadapt.learning.losses import log_loss, softmax
from dpadapt.learning.public_models import public_classifier
from dpadapt.learning.scaling import Scaling
from dpadapt.papers.mirror.maps import solve_factored
from dpadapt.rows import Part, Rows

Vector = NDArray[np.float64]

# Most public rows for which leverages and gradient lengths are computed. More rows make the quantiles of the lengths
# more precise; each row costs a linear solve. Chosen by hand.
_SAMPLED_PUBLIC_ROWS = 500
# Ridges tried for the public start, in mean eigenvalues of the public Hessian; leave-one-out error chooses. A stronger
# ridge lowers the variance of the start and raises its bias. The first is the paper's, for numerical stability only.
# The others were chosen by hand; neighbouring values were not compared. The search begins with the middle one.
_START_RIDGES = (1e-6, 1e-2, 1.0)
# Most conjugate-gradient steps before the strongest ridge is factored. Each takes about 1/100 of a factorisation at
# 6,000 columns. Chosen by hand.
_RIDGE_SOLVES = 40
# Largest share of public cells that are not zero at which products of columns skip the zeros. A product of two cells
# takes some hundred times as long in a sparse array, and there are fewer of them by the square of the share. Measured
# on the paper's public rows: 0.3 of the time at 3%, 0.45 at 4%, 0.6 at 5%; larger shares were not compared.
_SPARSE_PUBLIC_SHARE = 0.05
# Columns of a block of such products. Half of the products are mirrored, except within a block. Measured at 4,000 and
# 6,000 columns: 1,000 and 2,000 take up to twice the time.
_SPARSE_BLOCK = 500
# Shortest residual to expect of a private row: in standard deviations of the public labels for a regression, as a
# length of the derivative in the scores for a classification. A public fit without error must not clip the private
# rows' shift away; a larger value adds noise. Chosen by hand.
_LEAST_EXPECTED_RESIDUAL = 0.05
# Learning rates tried, times the largest stable one. Longer steps forget the error of the start sooner and add more
# noise. The predicted loss chooses among them; the grid was chosen by hand.
_LEARNING_RATE_GRID = 2.0 ** -np.arange(12)
# Clipping norms tried, as quantiles of the lengths of public gradients. A smaller norm needs less noise and biases the
# steps more. The predicted loss chooses among them; the grid was chosen by hand.
_CLIP_QUANTILE_GRID = (0.1, 0.25, 0.5, 0.75, 0.9, 0.97)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of a descent: raw features, or features standardised by public rows, and a constant 1.

    Parameters
    ----------
    scaling : Scaling or None
        None leaves the features as they are.
    n_features : int
    intercept : bool
        Whether rows have a further constant feature 1.
    """

    scaling: Scaling | None
    n_features: int
    intercept: bool

    @property
    def n_columns(self) -> int:
        """The number of coordinates."""
        return self.n_features + self.intercept

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows without their constant, of the same type; an overflow gives values that are not finite."""
        return X if self.scaling is None else self.scaling.scaled(X)

    def extend(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows with their constant."""
        moved = self.transform(X)
        return np.column_stack([moved, np.ones(len(moved), moved.dtype)]) if self.intercept else moved

    def rows(self, part: Part, *, fixed_rows: bool) -> Rows:
        """Return private rows."""
        Z = self.transform(part.X)
        return Rows(Z, part.y, intercept=self.intercept, shares=part.shares, fixed_rows=fixed_rows)

    def constant(self, level: float) -> Vector:
        """Return the solution that predicts `level` everywhere; zero if there is no constant feature."""
        solution = np.zeros(self.n_columns)
        if self.intercept:
            solution[-1] = level
        return solution

    def coefficients(self, solution: Vector) -> tuple[Vector, Any]:
        """Return coefficients and intercept for raw rows."""
        coef = solution[: self.n_features]
        intercept = solution[-1] if self.intercept else np.zeros(solution.shape[1:])
        return (coef.copy(), intercept) if self.scaling is None else self.scaling.raw(coef, intercept)


def public_coordinates(X_public: Vector | None, n_features: int, *, standardise: bool, intercept: bool) -> Coordinates:
    """Return coordinates standardised by public rows; without public rows the features stay as they are."""
    if X_public is None or not standardise:
        return Coordinates(None, n_features, intercept)
    if intercept:
        return Coordinates(Scaling.of(X_public), n_features, intercept)
    # Without a constant feature the model could not undo a shift, so features are scaled but not centred.
    scale = np.sqrt(np.mean(X_public**2, axis=0))
    return Coordinates(Scaling(np.zeros(n_features), np.where(scale > 0, scale, np.inf)), n_features, intercept)


@dataclass(frozen=True, eq=False)
class PublicFit:
    """The public start of a descent, and the public facts that the descent is planned from.

    Parameters
    ----------
    solution : ndarray of shape (n_columns,) or (n_columns, n_scores)
        The public minimiser; without public labels, a constant or zero.
    hessian : ndarray of shape (n_columns, n_columns)
        Mean over public rows of curvature times row times row; per score, without a ridge.
    n_rows : int
        Number of public rows; 0 if there are none.
    sample : ndarray of shape (n_sample, n_columns)
        A sample of the public rows.
    curvature : ndarray of shape (n_sample,)
        Second derivative of the loss in a score, at the sampled rows.
    derivatives : ndarray of shape (n_sample,)
        Length of the loss's derivative in the scores at the sampled rows, each as if left out of the fit.
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

    @property
    def n_scores(self) -> int:
        """The number of scores that the model gives to a row."""
        return 1 if self.solution.ndim == 1 else int(self.solution.shape[1])

    def ridge(self, wanted: float | None) -> float:
        """Return the ridge for a strength in mean eigenvalues; by default half the columns over the public rows.

        Sampling spreads the eigenvalues by about the root of columns over rows: the smallest are estimated too small.
        """
        share = 0.5 * len(self.hessian) / max(self.n_rows, 1) if wanted is None else wanted
        return share * self.mean_eigenvalue

    def ridged(self, ridge: float) -> Vector:
        """Return the Hessian with `ridge` added to its diagonal."""
        hessian = self.hessian.copy()
        hessian[np.diag_indices_from(hessian)] += ridge
        return hessian


def regression_fit(
    coordinates: Coordinates, Z_public: Vector | None, labels: Vector | None, bounds: tuple[float, float]
) -> PublicFit:
    """Return the public fit of a regression; public rows or labels that are missing are replaced by assumptions."""
    if Z_public is not None and labels is not None:
        return squared_fit(Z_public, labels)
    low, high = bounds
    # A quarter of the range for a typical residual.
    spread = (high - low) / 4
    start = coordinates.constant((low + high) / 2)
    assumed = {"curvature": 1.0, "derivative": spread, "excess": spread**2 / 2}
    if Z_public is None:
        return declared_fit(start, intercept=coordinates.intercept, **assumed)
    return unlabelled_fit(Z_public, start, **assumed)


def classification_fit(
    coordinates: Coordinates, Z_public: Vector | None, codes: NDArray[np.int64] | None, n_classes: int
) -> PublicFit:
    """Return the public fit of a classification; public rows or labels that are missing are replaced by assumptions."""
    n_scores = 1 if n_classes == 2 else n_classes
    if Z_public is not None and codes is not None:
        return logistic_fit(Z_public, codes, n_scores)
    start = np.zeros(coordinates.n_columns) if n_scores == 1 else np.zeros((coordinates.n_columns, n_scores))
    # At equal probabilities: p (1 - p), |p - e_y|, and half of the log-loss of guessing.
    assumed = {
        "curvature": 0.25 if n_scores == 1 else 1.0 / n_classes,
        "derivative": 0.5 if n_scores == 1 else math.sqrt(1 - 1 / n_classes),
        "excess": math.log(n_classes) / 2,
    }
    if Z_public is None:
        return declared_fit(start, intercept=coordinates.intercept, **assumed)
    return unlabelled_fit(Z_public, start, **assumed)


def declared_fit(start: Vector, *, intercept: bool, curvature: float, derivative: float, excess: float) -> PublicFit:
    """Return the fit that is assumed without public rows: features lie in about [-1, 1]."""
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
    """Return the fit of public rows without labels: their Hessian at an assumed start."""
    sample = Z[_sampled(len(Z))]
    ones = np.ones(len(sample))
    hessian = column_products(Z)
    hessian *= curvature / len(Z)
    return PublicFit(start, hessian, len(Z), sample, curvature * ones, derivative * ones, excess)


def squared_fit(Z: Vector, y: Vector) -> PublicFit:
    """Fit least squares on public rows, with the ridge of least leave-one-out error on the sampled rows."""
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, k = Z.shape
    chosen = _sampled(n)
    sample, target = Z[chosen], y[chosen]
    hessian, cross = column_products(Z), Z.T @ y / n
    hessian /= n
    unit = max(float(np.trace(hessian)) / k, 1e-300)
    weak, middle, strong = (ridge * unit for ridge in _START_RIDGES)
    best = ridge_trial(hessian, cross, sample, target, middle, n)
    # Towards the side where the left-out error falls. A factorisation is what costs most here.
    other = weak if best.slope > 0 else strong
    if other == weak or _stronger_may_be_better(hessian, cross, sample, target, strong, best):
        tried = ridge_trial(hessian, cross, sample, target, other, n)
        best = tried if tried.error < best.error else best
    if not math.isfinite(best.error):
        raise ValueError("the public rows or labels are too large to fit a model. Rescale them.")
    least = _LEAST_EXPECTED_RESIDUAL * max(float(np.std(y)), 1e-300)
    # Left-out and own loss differ by (2 - freedom) times what the start loses, for least squares exactly.
    excess = max((best.error - best.inside) / (2.0 - best.freedom), least**2) / 2
    ones = np.ones(len(sample))
    return PublicFit(best.solution, hessian, n, sample, ones, np.maximum(np.abs(best.left_out), least), excess)


def column_products(Z: Vector) -> Vector:
    """Return Z' Z; where most cells are zero, as of indicators of many categories, zeros are skipped.

    Examples
    --------
    >>> column_products(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([[ 1.,  2.],
           [ 2., 13.]])
    """
    n, k = Z.shape
    if np.count_nonzero(Z) > _SPARSE_PUBLIC_SHARE * n * k:
        return np.asarray(Z.T @ Z)
    columns = csc_array(Z)
    products = np.empty((k, k))
    for first in range(0, k, _SPARSE_BLOCK):
        last = min(first + _SPARSE_BLOCK, k)
        block = (columns[:, first:last].T @ columns[:, first:].tocsr()).toarray()
        products[first:last, first:] = block
        products[first:, first:last] = block.T
    return products


@dataclass(frozen=True, eq=False)
class RidgeTrial:
    """A ridge fit of public rows.

    Parameters
    ----------
    error : float
        Mean squared left-out residual of the sampled rows.
    slope : float
        Its derivative in the logarithm of the ridge.
    solution : ndarray
    left_out : ndarray
        The residual of each sampled row, left out of the fit.
    inside, freedom : float
        Mean squared residual in the fit, and mean leverage.
    """

    error: float
    slope: float
    solution: Vector
    left_out: Vector
    inside: float
    freedom: float


def ridge_trial(hessian: Vector, cross: Vector, sample: Vector, target: Vector, ridge: float, n: int) -> RidgeTrial:
    """Return the ridge fit with this Hessian and these mean products, and its left-out error on sampled rows."""
    ridged = hessian.copy()
    ridged[np.diag_indices_from(ridged)] += ridge
    # Symmetric: its transpose has the order that LAPACK wants, so that nothing is copied again.
    factor = cho_factor(ridged.T, lower=True, overwrite_a=True)
    solution = solve_factored(factor, cross)
    inverse = solve_factored(factor, sample.T)
    leverage = np.minimum(np.einsum("ij,ji->i", sample, inverse) / n, 1 - 1e-6)
    residual = target - sample @ solution
    # The residual of a row left out of the fit is r / (1 - h), exactly.
    left_out = residual / (1.0 - leverage)
    # (H + ridge)^-1 has the derivative -(H + ridge)^-2, in the solution as in the leverages.
    moved = sample @ solve_factored(factor, solution)
    fallen = np.sum(inverse**2, axis=0) / n
    slope = 2 * ridge * float(np.mean(left_out * (moved - left_out * fallen) / (1.0 - leverage)))
    means = float(np.mean(residual**2)), float(np.mean(leverage))
    return RidgeTrial(float(np.mean(left_out**2)), slope, solution, left_out, *means)


def _stronger_may_be_better(
    hessian: Vector, cross: Vector, sample: Vector, target: Vector, ridge: float, best: RidgeTrial
) -> bool:
    """Return whether a stronger ridge can have a smaller left-out error: not if its error in the fit is larger already.

    A left-out residual is never shorter than the residual in the fit. The latter needs no factor.
    """
    k = len(hessian)
    ridged = LinearOperator((k, k), matvec=lambda v: hessian @ v + ridge * v, dtype=np.float64)
    solution, failed = cg(ridged, cross, rtol=1e-5, maxiter=_RIDGE_SOLVES)
    return bool(failed) or float(np.mean((target - sample @ solution) ** 2)) * (1 - 1e-3) < best.error


def logistic_fit(Z: Vector, codes: NDArray[np.int64], n_scores: int) -> PublicFit:
    """Fit a logistic (one score) or softmax model on public rows."""
    n = len(Z)
    solution = public_classifier(Z, codes, n_scores)
    if n_scores == 1:
        solution = solution[:, 0]
    chosen = _sampled(n)
    sample, target = Z[chosen], codes[chosen]
    scores = Z @ solution
    curvature = _class_curvature(scores)
    loss = log_loss(n_scores)
    hessian = Z.T @ (Z * curvature[:, None]) / n
    fit = PublicFit(solution, hessian, n, sample, curvature[chosen], np.ones(len(sample)), 1.0)
    # At the solution the gradient is minus the ridge times the solution, which gives the ridge that was chosen.
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
    lengths = np.maximum(np.linalg.norm(derivatives, axis=1), _LEAST_EXPECTED_RESIDUAL)
    return PublicFit(solution, hessian, n, sample, fit.curvature, lengths, max(gap / 2, 1e-6))


def _class_curvature(scores: Vector) -> Vector:
    """Return the second derivative of the log-loss in a score, averaged over directions for several classes."""
    if scores.ndim == 1:
        p = 0.5 + 0.5 * np.tanh(scores / 2)
        return np.asarray(p * (1 - p))
    p = softmax(scores)
    return np.asarray((1 - np.sum(p**2, axis=1)) / (scores.shape[1] - 1))


def _sampled(n: int) -> NDArray[np.int64]:
    """Return the indices of at most `_SAMPLED_PUBLIC_ROWS` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, _SAMPLED_PUBLIC_ROWS)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class DescentModel:
    """A linear model of a descent, from which the loss at a clipping norm and a learning rate is predicted.

    The error of the start decays at one typical rate, while every step adds noise.

    Parameters
    ----------
    lengths : ndarray
        Lengths of gradients of public rows, each as if left out of the public fit.
    noise_loss : float
        Loss per unit of squared noise in one step of length 1, all coordinates together.
    decay : float
        Share of a typical error of the start that a step of length 1 removes.
    fastest : float
        The same for the direction that decays fastest; steps longer than 1 over it may diverge.
    excess : float
        Loss of the start above that of the best solution.
    """

    lengths: Vector
    noise_loss: float
    decay: float
    fastest: float
    excess: float


def gradient_descent_model(fit: PublicFit) -> DescentModel:
    """Return the model of plain gradient descent."""
    norms = np.linalg.norm(fit.sample, axis=1)
    noise_loss = float(np.trace(fit.hessian)) * fit.n_scores / 2
    fastest = fit.largest or _largest_eigenvalue(fit.hessian)
    return DescentModel(norms * fit.derivatives, noise_loss, fit.mean_eigenvalue, fastest, fit.excess)


def mirror_descent_model(fit: PublicFit, inverse: Vector, unit: float) -> DescentModel:
    """Return the model of exact mirror descent.

    `inverse` holds the inverse Hessian times each sampled row, in columns; `unit` normalises it.
    """
    norms = np.linalg.norm(fit.sample, axis=1)
    # E |H^-1 x|² over new rows x: for a row that is part of H, H^-1 x is 1 - h times as long as for a new row.
    squares = np.sum(inverse**2, axis=0) / one_minus_leverage(fit, inverse) ** 2
    noise_loss = unit**2 * float(np.mean(fit.curvature * squares)) * fit.n_scores / 2
    # Where the public Hessian is smallest, the population's is nearer its mean.
    return DescentModel(norms * fit.derivatives, noise_loss, unit, max(unit, fit.mean_eigenvalue), fit.excess)


def _largest_eigenvalue(matrix: Vector) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix to about a thousandth, rather too large."""
    # Power iteration from a fixed start, so that a fit repeats to the bit.
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    value = 0.0
    for _ in range(200):
        image = matrix @ vector
        length = float(np.linalg.norm(image))
        if length == 0.0:
            return 1e-300
        vector, before, value = image / length, value, length / float(np.linalg.norm(vector))
        if math.isclose(before, value, rel_tol=1e-6) and before > 0:
            break
    return 1.001 * value


def one_minus_leverage(fit: PublicFit, inverse: Vector) -> Vector:
    """Return 1 - h for each sampled row, h its leverage in the Hessian that was inverted."""
    leverage = fit.curvature * np.einsum("ij,ji->i", fit.sample, inverse) / max(fit.n_rows, 1)
    return np.asarray(1.0 - np.minimum(leverage, 0.9))


def choose_clip_and_rate(
    model: DescentModel,
    *,
    clip_norm: float | None,
    learning_rate: float | None,
    noise: float,
    steps: int,
    first: int,
    least_quantile: float,
) -> tuple[float, float]:
    """Return the clipping norm and learning rate of least predicted loss; whichever is given is kept.

    Parameters
    ----------
    model : DescentModel
    clip_norm, learning_rate : float, optional
    noise : float
        Standard deviation of the noise in a mean gradient, per unit of clipping norm.
    steps, first : int
        Number of steps, and the first whose iterate is averaged.
    least_quantile : float
        Smallest quantile of the gradient lengths that is tried as clipping norm: clipping biases losses that are not
        symmetric.
    """
    lengths = model.lengths
    quantiles = np.quantile(lengths, [q for q in _CLIP_QUANTILE_GRID if q >= least_quantile])
    clips = np.maximum(quantiles, 1e-300) if clip_norm is None else np.array([clip_norm])
    rates = _LEARNING_RATE_GRID / model.fastest if learning_rate is None else np.array([learning_rate])
    # A gradient longer than the clipping norm no longer follows the solution.
    unclipped = np.maximum(np.mean(lengths[None, :] <= clips[:, None], axis=1), 0.05)
    decay = np.minimum(unclipped[:, None] * model.decay * rates, 1.0)
    bias, gain = _averaged(decay, steps, first)
    variance = (clips[:, None] * noise * rates) ** 2 * gain
    predicted = model.excess * bias**2 + model.noise_loss * variance
    i, j = np.unravel_index(int(np.argmin(predicted)), predicted.shape)
    return float(clips[i]), float(rates[j])


def _averaged(decay: Vector, steps: int, first: int) -> tuple[Vector, Vector]:
    """Return bias and variance of the average iterate of u <- u - decay u + noise, per unit of error and of noise."""
    left, bias = np.ones_like(decay), np.zeros_like(decay)
    for t in range(steps):
        left = left * (1.0 - decay)
        if t >= first:
            bias += left / (steps - first)
    reach, gain = np.zeros_like(decay), np.zeros_like(decay)
    # Backwards: `reach` is how much the average moves per unit of change of iterate t + 1.
    for t in reversed(range(steps)):
        if t >= first:
            reach = reach + 1.0 / (steps - first)
        gain += reach**2
        reach = reach * (1.0 - decay)
    return bias, gain
