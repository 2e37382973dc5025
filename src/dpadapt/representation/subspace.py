"""`PublicSubspace`: the subspace that the coefficients of public tasks share, and the prior of a private task in it.

Step 1 of Algorithm 1 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution
Shift", arXiv:2312.15551. Beside the paper's estimator, a second moment, stand pairs of rows and maximum likelihood by
EM, which are more accurate. Also the distance between subspaces and the diversity of tasks, Definition A.1 and
Assumption A.2. Everything here uses public data only.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.inputs.gate import numeric_labels, public_labels, public_table
from dpadapt.learning.scaling import WHITENING_FLOOR
from dpadapt.rows import row_products

Vector = NDArray[np.float64]

SUBSPACE_METHODS = ("em", "pairs", "moments")

# Folds of tasks in the cross-validation of the dimension. More folds leave more tasks to each fit and cost time.
# Here and below: `tools/constants.py subspace` compares the neighbours. Half and twice: 2% better (+- 6% and 4%).
_DIMENSION_FOLDS = 5
# Cross-validation stops this many dimensions after the best one so far. A larger value finds a maximum behind a local
# one and costs time. Half and twice: 4% and 1% better (+- 3% and 1%).
_DIMENSION_PATIENCE = 2
# Number of public rows from which the plan of the private descent is computed, evenly spaced over all rows. More rows
# make it more exact and cost time. Half and twice: within 0.1%.
_PLANNING_ROWS = 4000
# Least prior variance of a private task's coefficient, as a share of the public tasks' second moment along it (for
# the intercept: of the noise). It allows for tasks that differ from each other by more than the public ones show.
# Half and twice: no difference.
_LEAST_TASK_SPREAD = 0.05
# EM stops when a step changes the log-likelihood by less than this many nats, or after this many steps. A smaller gain
# or more steps cost time. Half and twice: within 0.2%.
_EM_LEAST_GAIN = 1e-2
_EM_MOST_STEPS = 300
# The same for a fit that only serves to compare dimensions in cross-validation: faster and less exact.
# Half and twice the gain: 1% worse and 3% better (+- 1% and 3%); the steps: no difference.
_EM_ROUGH_GAIN = 0.5
_EM_ROUGH_STEPS = 40
# Conjugate-gradient steps in each M step: EM climbs with any improvement, so the M step need not be solved exactly.
# Half and twice: within 0.05%.
_EM_INNER_STEPS = 3


# Subspaces and diversity.


def subspace_distance(first: Any, second: Any) -> float:
    """Return the sine of the largest principal angle between the spans of two sets of columns, 0 to 1.

    Parameters
    ----------
    first, second : array-like of shape (n_features, k)
        Independent columns; they need not be orthonormal. If k differs, the distance is that of the smaller span from
        the larger: 0 if it is contained.

    Examples
    --------
    >>> round(subspace_distance([[1.0], [0.0]], [[1.0], [1.0]]), 3)  # 45 degrees
    0.707
    """
    small, large = sorted(
        (orthonormal(first, "first"), orthonormal(second, "second")), key=lambda basis: basis.shape[1]
    )
    if len(small) != len(large):
        raise ValueError(f"first and second must have the same number of rows, got {len(small)} and {len(large)}.")
    # From the sine, not the cosine: near 1 a cosine does not resolve small angles.
    return min(1.0, float(np.linalg.norm(small - large @ (large.T @ small), 2)))


def orthonormal(columns: Any, name: str) -> Vector:
    """Return an orthonormal basis of the span of `columns`."""
    try:
        basis = np.asarray(columns, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a table of numbers, one row per feature.") from None
    if basis.ndim != 2 or not 1 <= basis.shape[1] <= basis.shape[0]:
        raise ValueError(f"{name} must have one row per feature and at most as many columns, got shape {basis.shape}.")
    if not (np.abs(basis) <= checks.LARGEST).all():
        raise ValueError(f"{name} must be finite, with numbers up to {checks.LARGEST:g}.")
    left, values, _ = np.linalg.svd(basis, full_matrices=False)
    if values[-1] <= 1e-10 * values[0]:
        raise ValueError(f"{name} must have independent columns; some are combinations of others. Leave them out.")
    return np.asarray(left)


@dataclass(frozen=True)
class Diversity:
    """How well tasks span their subspace.

    Parameters
    ----------
    weakest : float
        ν: the smallest eigenvalue of the tasks' second moment. 0 if no task has a component along some direction.
    average_condition : float
        Trace of the second moment over k ν: 1 for tasks spread evenly.
    worst_condition : float
        Largest eigenvalue of the second moment over ν.
    """

    weakest: float
    average_condition: float
    worst_condition: float


def task_diversity(coefficients: Any) -> Diversity:
    """Return how well tasks span their subspace.

    Parameters
    ----------
    coefficients : array-like of shape (n_tasks, k)
        Each task's coefficients inside the subspace, for instance `PublicSubspace.task_coef_`.

    Examples
    --------
    >>> task_diversity([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    Diversity(weakest=0.5, average_condition=1.0, worst_condition=1.0)
    """
    tasks = np.asarray(coefficients, dtype=np.float64)
    if tasks.ndim != 2 or min(tasks.shape) < 1:
        raise ValueError(f"coefficients must have one row per task, got shape {tasks.shape}.")
    values = np.linalg.eigvalsh(tasks.T @ tasks / len(tasks))
    weakest = max(float(values[0]), 0.0)
    if weakest <= 1e-12 * values[-1]:
        return Diversity(0.0, np.inf, np.inf)
    return Diversity(weakest, float(values.mean()) / weakest, float(values[-1]) / weakest)


# Public rows of several tasks: whitened, sorted by task, and packed.


@dataclass(frozen=True, eq=False)
class Scale:
    """How features are centred and whitened.

    Parameters
    ----------
    center : ndarray of shape (n_features,)
    turn : ndarray of shape (n_features, n_features)
        Centred rows times `turn` have second moment about 1. Its rows are zero for features that are constant in
        public.
    """

    center: Vector
    turn: Vector

    def transform(self, X: NDArray[Any], *, fixed_rows: bool = True) -> Vector:
        """Return rows in the new coordinates; `fixed_rows` as in `row_products`.

        A row that overflows becomes non-finite, without a warning.
        """
        with np.errstate(all="ignore"):
            return row_products(X - self.center, self.turn, fixed_rows=fixed_rows)

    def raw(self, solution: Vector) -> Vector:
        """Return the coefficients of raw features that are equivalent to `solution` in the new coordinates."""
        return np.asarray(self.turn @ solution)


def identity_scale(n_features: int) -> Scale:
    """Return the scale that leaves features unchanged."""
    return Scale(np.zeros(n_features), np.eye(n_features))


def whitened_scale(X: Vector, *, centred: bool) -> Scale:
    """Return the coordinates in which public rows have second moment about 1."""
    n, d = X.shape
    center = X.mean(axis=0) if centred else np.zeros(d)
    spread = np.sqrt(np.mean((X - center) ** 2, axis=0))
    varies = spread > 1e-12 * np.maximum(1.0, np.abs(X.mean(axis=0)))
    if not varies.any():
        raise ValueError("all features are constant in public, so no subspace can be learned. Give other public rows.")
    inverse = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0)
    standard = (X - center) * inverse
    values, vectors = np.linalg.eigh(standard.T @ standard / n)
    values = np.maximum(values, 0.0)
    # The symmetric square root, so that coordinates stay as close to the features as possible.
    root = vectors / np.sqrt(values + WHITENING_FLOOR * values.sum() / varies.sum())
    return Scale(center, inverse[:, None] * (root @ vectors.T))


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows sorted by task.

    Parameters
    ----------
    rows, y : ndarray of shape (n_rows, n_features) and (n_rows,)
        Minus the means of their task if `centred`.
    codes : ndarray of shape (n_rows,)
        Number of each row's task: 0, 1, …, ascending.
    counts : ndarray of shape (n_tasks,)
        Number of rows of each task.
    row_mean, y_mean : ndarray of shape (n_tasks, n_features) and (n_tasks,)
        Means that were subtracted from the rows of each task; zero if not `centred`.
    centred : bool
    """

    rows: Vector
    y: Vector
    codes: NDArray[np.int64]
    counts: NDArray[np.int64]
    row_mean: Vector
    y_mean: Vector
    centred: bool

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of each task's first row."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def take(self, chosen: NDArray[np.bool_]) -> "TaskRows":
        """Return the chosen tasks; `chosen` has one entry per task."""
        in_task = chosen[self.codes]
        codes = (np.cumsum(chosen) - 1)[self.codes[in_task]]
        means = self.row_mean[chosen], self.y_mean[chosen]
        return TaskRows(self.rows[in_task], self.y[in_task], codes, self.counts[chosen], *means, self.centred)


def by_task(Z: Vector, y: Vector, tasks: NDArray[Any], *, centred: bool) -> TaskRows:
    """Return rows sorted by task; `centred` subtracts each task's means, so that a task of one row carries nothing."""
    _, codes, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    Z, y, codes = Z[order], y[order], codes[order]
    zeros = np.zeros((len(counts), Z.shape[1])), np.zeros(len(counts))
    uncentred = TaskRows(Z, y, codes, counts, *zeros, centred)
    if not centred:
        return uncentred
    row_mean = np.add.reduceat(Z, uncentred.starts) / counts[:, None]
    y_mean = np.add.reduceat(y, uncentred.starts) / counts
    return TaskRows(Z - row_mean[codes], y - y_mean[codes], codes, counts, row_mean, y_mean, centred)


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows of several tasks, padded with zero rows to equal numbers, so that each EM step is one tensor product.

    A task with more than n_features + 1 rows is represented by n_features + 1 rows with the same second moments.

    Parameters
    ----------
    rows : ndarray of shape (n_tasks, n, n_features)
    y : ndarray of shape (n_tasks, n)
    counts : ndarray of shape (n_tasks,)
        Number of independent observations of each task.
    """

    rows: Vector
    y: Vector
    counts: Vector


def pack(tasks: TaskRows) -> Packed:
    """Return packed rows with the second moments of `tasks`."""
    d = tasks.rows.shape[1]
    joint = np.column_stack([tasks.rows, tasks.y])
    packed = np.zeros((len(tasks.counts), int(min(tasks.counts.max(), d + 1)), d + 1))
    for task, (start, count) in enumerate(zip(tasks.starts, tasks.counts, strict=True)):
        part = joint[start : start + count]
        packed[task, : min(count, d + 1)] = part if count <= d + 1 else _condensed(part)
    return Packed(packed[:, :, :d], packed[:, :, d], (tasks.counts - tasks.centred).astype(np.float64))


def _condensed(rows: Vector) -> Vector:
    """Return as many rows as there are columns, with the same second moment."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


# Subspaces from second moments.


def label_moment(rows: Vector, y: Vector) -> Vector:
    """Return the mean of y² x x', the paper's estimator; it does not use which task a row came from.

    Its expectation for rows with second moment 1 is a multiple of the identity plus twice the mean of β β' over tasks.
    Its noise is that of fourth moments. Algorithm 1 of N. Tripuraneni, C. Jin, M. I. Jordan, "Provable Meta-Learning of
    Linear Representations", 2021.
    """
    return np.asarray((rows * (y**2)[:, None]).T @ rows / len(rows))


def pair_moment(tasks: TaskRows) -> Vector:
    """Return the mean of y_i y_j x_i x_j' over pairs i, j of different rows of one task.

    Two rows of a task have independent noise, so for rows with second moment 1 this is an unbiased estimate of the mean
    of β β' over tasks, each weighted by its number of pairs.
    """
    weighted = tasks.rows * tasks.y[:, None]
    sums = np.add.reduceat(weighted, tasks.starts)
    pairs = max(float(tasks.counts @ (tasks.counts - 1)), 1.0)
    return np.asarray((sums.T @ sums - weighted.T @ weighted) / pairs)


def leading_eigenvectors(moment: Vector, k: int) -> Vector:
    """Return the eigenvectors of the `k` largest eigenvalues, as columns."""
    _, vectors = np.linalg.eigh(moment)
    return np.asarray(vectors[:, ::-1][:, :k])


# The maximum-likelihood subspace, by EM.
#
# Model: the labels of task j are rows @ loading @ a_j + noise, with hidden coefficients a_j ~ N(0, 1) of k coordinates.
# The labels of one task are correlated through a_j, so tasks with fewer rows than k contribute too.


@dataclass(frozen=True, eq=False)
class Loadings:
    """A fitted model of tasks.

    Parameters
    ----------
    loading : ndarray of shape (n_features, k)
        Its columns span the subspace; loading @ loading' is the covariance of tasks' coefficients.
    noise : float
        Variance of the labels around their task's regression.
    tasks : ndarray of shape (n_tasks, k)
        Posterior mean of each task's hidden coefficients.
    information : ndarray of shape (k, k)
        Sum over observations of a a', with a the posterior mean of their task: how precisely a row of `loading` is
        determined.
    log_likelihood : float
    """

    loading: Vector
    noise: float
    tasks: Vector
    information: Vector
    log_likelihood: float


def fit_loadings(packed: Packed, start: Vector, *, fixed: bool = False, rough: bool = False) -> Loadings:
    """Return the maximum-likelihood loadings.

    Parameters
    ----------
    packed : Packed
        Public rows by task.
    start : ndarray of shape (n_features, k)
        Orthonormal columns: the starting subspace.
    fixed : bool, default=False
        Whether to keep the span of `start`; then only the covariance inside it is fitted.
    rough : bool, default=False
        Whether to stop early, which is exact enough to compare dimensions.
    """
    k = start.shape[1]
    spread = max(float(np.sum(packed.y**2)) / max(float(packed.counts.sum()), 1.0), 1e-300)
    # Start with half of the labels' variance explained by the tasks; a few steps correct it.
    loading, noise = start * math.sqrt(0.5 * spread / k), 0.5 * spread
    before = -math.inf
    gain, steps = (_EM_ROUGH_GAIN, _EM_ROUGH_STEPS) if rough else (_EM_LEAST_GAIN, _EM_MOST_STEPS)
    for _ in range(steps):
        scores, hidden = _expect(packed, loading, noise)
        if abs(hidden.log_likelihood - before) < gain:
            break
        before = hidden.log_likelihood
        if not fixed:
            loading = _improve(packed, loading, scores, hidden)
        noise = max(_noise(packed, loading, hidden, fixed=fixed), 1e-12 * spread)
        # Parameter expansion: rescaling hidden coefficients to unit second moment needs far fewer steps.
        loading = loading @ np.linalg.cholesky(hidden.moments.mean(axis=0))
    _, hidden = _expect(packed, loading, noise)
    information = np.einsum("t,tk,tl->kl", packed.counts, hidden.means, hidden.means)
    return Loadings(loading, noise, hidden.means, information, hidden.log_likelihood)


def log_likelihood(packed: Packed, loading: Vector, noise: float) -> float:
    """Return the log-likelihood of tasks under a fitted model."""
    return _expect(packed, loading, noise)[1].log_likelihood


@dataclass(frozen=True, eq=False)
class _Hidden:
    """Posterior means and second moments of the hidden coefficients, and the log-likelihood of the labels."""

    means: Vector
    moments: Vector
    log_likelihood: float


def _expect(packed: Packed, loading: Vector, noise: float) -> tuple[Vector, _Hidden]:
    """Take the E step: return rows @ loading and the posterior of the hidden coefficients."""
    k = loading.shape[1]
    scores = packed.rows @ loading
    precision = np.eye(k) + scores.transpose(0, 2, 1) @ scores / noise
    cross = np.einsum("tnk,tn->tk", scores, packed.y) / noise
    covariance = np.linalg.inv(precision)
    means = np.einsum("tkl,tl->tk", covariance, cross)
    moments = covariance + means[:, :, None] * means[:, None, :]
    total = float(packed.counts.sum())
    fit = float(np.sum(packed.y**2)) / noise - float(np.sum(cross * means))
    determinants = float(np.linalg.slogdet(precision)[1].sum())
    return scores, _Hidden(means, moments, -0.5 * (total * math.log(2 * math.pi * noise) + determinants + fit))


def _improve(packed: Packed, loading: Vector, scores: Vector, hidden: _Hidden) -> Vector:
    """Take the M step for the loading V, by conjugate gradients from its current value: Σ Z'Z V E = Σ Z'y m'."""
    rows = packed.rows.reshape(-1, packed.rows.shape[2])

    def apply_operator(products: Vector) -> Vector:
        """Return Σ Z'(Z V) E from the products Z V."""
        return np.asarray(rows.T @ (products @ hidden.moments).reshape(len(rows), -1))

    target = packed.y[:, :, None] * hidden.means[:, None, :]
    residual = rows.T @ target.reshape(len(rows), -1) - apply_operator(scores)
    # Preconditioner: rows have second moment about 1, so the operator is about Σ counts E.
    inverse = np.linalg.inv(np.einsum("t,tkl->kl", packed.counts, hidden.moments))
    solution, direction = loading, residual @ inverse
    size = float(np.sum(residual * direction))
    for _ in range(_EM_INNER_STEPS):
        if size <= 0.0:
            break
        change = apply_operator(packed.rows @ direction)
        length = size / max(float(np.sum(direction * change)), 1e-300)
        solution = solution + length * direction
        residual = residual - length * change
        preconditioned = residual @ inverse
        size, before = float(np.sum(residual * preconditioned)), size
        direction = preconditioned + size / before * direction
    return solution


def _noise(packed: Packed, loading: Vector, hidden: _Hidden, *, fixed: bool) -> float:
    """Take the M step for the noise: return the mean squared distance of the labels from their expected scores."""
    scores = packed.rows @ loading
    gram = scores.transpose(0, 2, 1) @ scores
    fitted = np.einsum("tnk,tn,tk->", scores, packed.y, hidden.means, optimize=True)
    total = float(np.sum(packed.y**2)) - 2 * float(fitted) + float(np.sum(gram * hidden.moments))
    d, k = loading.shape
    # Degrees of freedom of the loading, which fit noise. A rotation of the hidden coefficients changes nothing.
    n_free = k * (k + 1) / 2 if fixed else k * d - k * (k - 1) / 2
    observations = float(packed.counts.sum())
    return float(total / max(observations - n_free, observations / 4, 1.0))


# The model of tasks, and the prior of a private one.


@dataclass(frozen=True, eq=False)
class TaskModel:
    """Public tasks in the coordinates of `scale`.

    Parameters
    ----------
    scale : Scale
    basis : ndarray of shape (n_features, k)
        Orthonormal columns that span the subspace, along its principal axes.
    coef : ndarray of shape (n_tasks, k)
        Posterior mean of each public task's coefficients along `basis`.
    variance : ndarray of shape (k,)
        Second moment of tasks' coefficients along each column.
    intercepts : ndarray of shape (n_tasks,)
        Intercept of each task; zero if tasks have none.
    noise : float
        Variance of the labels around their task's regression.
    outside : float
        Variance of a task's coefficient along any direction outside `basis`, because the estimated subspace has an
        error (computed from the number of rows and the noise). 0 if the subspace was given.
    rows, residuals : ndarray of shape (n, n_features) and (n,)
        Some public rows, and their labels minus the predictions of their task, scaled to mean square `noise`.
    """

    scale: Scale
    basis: Vector
    coef: Vector
    variance: Vector
    intercepts: Vector
    noise: float
    outside: float
    rows: Vector
    residuals: Vector


def learn_tasks(tasks: TaskRows, scale: Scale, *, method: str, k: int | None, span: Vector | None = None) -> TaskModel:
    """Return the model of tasks, with a subspace estimated by `method`, or with the given subspace `span`.

    The dimension is `k`, or chosen by cross-validation if `k` is None.
    """
    if span is not None:
        fitted = fit_loadings(pack(tasks), orthonormal(span, "basis"), fixed=True)
    else:
        k = choose_dimension(tasks, method) if k is None else k
        fitted = fit_loadings(pack(tasks), _directions(tasks, method)[:, :k], fixed=method != "em")
    axes, singular_values, right = np.linalg.svd(fitted.loading, full_matrices=False)
    coef = fitted.tasks @ right.T * singular_values
    slopes = coef @ axes.T
    intercepts = tasks.y_mean - np.einsum("td,td->t", tasks.row_mean, slopes)
    some = np.unique(np.linspace(0, len(tasks.y) - 1, _PLANNING_ROWS).astype(np.int64))
    codes = tasks.codes[some]
    residuals = tasks.y[some] - np.einsum("nd,nd->n", tasks.rows[some], slopes[codes])
    # In-sample residuals are too small; the estimate of the noise is corrected for degrees of freedom.
    residuals = residuals * np.sqrt(fitted.noise / max(float(np.mean(residuals**2)), 1e-300))
    return TaskModel(
        scale=scale,
        basis=axes,
        coef=coef,
        variance=singular_values**2,
        intercepts=intercepts,
        noise=fitted.noise,
        outside=0.0 if span is not None else _outside_variance(fitted),
        rows=tasks.rows[some] + tasks.row_mean[codes],
        residuals=residuals,
    )


def choose_dimension(tasks: TaskRows, method: str) -> int:
    """Return the dimension with the largest likelihood of held-out tasks, by cross-validation over tasks."""
    n_tasks, d = len(tasks.counts), tasks.rows.shape[1]
    folds = min(_DIMENSION_FOLDS, n_tasks)
    # A subspace can't have more dimensions than the tasks that span it.
    most = min(d, n_tasks - -(-n_tasks // folds))
    fold = np.arange(n_tasks) % folds
    parts = []
    for i in range(folds):
        rest, held_out = tasks.take(fold != i), tasks.take(fold == i)
        parts.append((pack(rest), pack(held_out), _directions(rest, method)))
    best, chosen = -np.inf, 1
    for k in range(1, max(most, 1) + 1):
        score = sum(
            _held_out_likelihood(rest, held_out, directions[:, :k], fixed=method != "em")
            for rest, held_out, directions in parts
        )
        if score > best:
            best, chosen = score, k
        elif k >= chosen + _DIMENSION_PATIENCE:
            break
    return chosen


def _held_out_likelihood(rest: Packed, held_out: Packed, start: Vector, *, fixed: bool) -> float:
    """Return the log-likelihood of the tasks of `held_out` under a fit to `rest`."""
    fitted = fit_loadings(rest, start, fixed=fixed, rough=True)
    d, k = start.shape
    # The part of a task's coefficients outside the subspace acts like noise, as rows have second moment 1.
    return log_likelihood(held_out, fitted.loading, fitted.noise + (d - k) * _outside_variance(fitted))


def _directions(tasks: TaskRows, method: str) -> Vector:
    """Return orthonormal directions, sorted by falling variance of the tasks along them."""
    moment = label_moment(tasks.rows, tasks.y) if method == "moments" else pair_moment(tasks)
    return leading_eigenvectors(moment, len(moment))


def _outside_variance(fitted: Loadings) -> float:
    """Return the variance of a new task's coefficient along a direction outside the subspace, due to its error.

    Along such a direction the loading is a regression of labels on tasks' hidden coefficients a, so its error has
    covariance noise / Σ a a', the sum over rows; a new task has a ~ N(0, 1).
    """
    values = np.maximum(np.linalg.eigvalsh(fitted.information), 1e-300)
    # Upper bound: with an unknown subspace, the tasks' variance would be spread over all directions.
    most = float(np.sum(fitted.loading**2)) / len(fitted.loading)
    return min(fitted.noise * float(np.sum(1.0 / values)), most)


@dataclass(frozen=True, eq=False)
class TaskPrior:
    """The prior of a private task: coordinates in which its coefficients are independent, their means and variances.

    Parameters
    ----------
    model : TaskModel
    turn : ndarray of shape (n_features, m)
        Maps the coordinates of `model.scale` to these: the subspace, then directions outside it. Orthonormal columns.
    intercept : bool
        Whether the last coordinate is the task's intercept, whose row entry is 1.
    mean, variance : ndarray of shape (m,) or (m + 1,)
        Prior mean and variance of the coefficients.
    blocks : tuple of slice
        Groups of coordinates: inside the subspace, outside of it, the intercept.
    """

    model: TaskModel
    turn: Vector
    intercept: bool
    mean: Vector
    variance: Vector
    blocks: tuple[slice, ...]

    def rows(self, X: NDArray[Any], *, fixed_rows: bool = True) -> Vector:
        """Return rows in these coordinates; `fixed_rows` as in `row_products`."""
        return self._turned(self.model.scale.transform(X, fixed_rows=fixed_rows), fixed_rows=fixed_rows)

    def public_rows(self) -> Vector:
        """Return some public rows in these coordinates."""
        return self._turned(self.model.rows)

    def _turned(self, rows: Vector, *, fixed_rows: bool = True) -> Vector:
        with np.errstate(all="ignore"):
            turned = row_products(rows, self.turn, fixed_rows=fixed_rows)
        return np.column_stack([turned, np.ones(len(turned))]) if self.intercept else turned

    def coefficients(self, solution: Vector) -> tuple[Vector, float]:
        """Return coefficients and intercept for raw rows."""
        slopes = solution[: self.turn.shape[1]]
        coef = self.model.scale.raw(self.turn @ slopes)
        intercept = float(solution[-1]) if self.intercept else 0.0
        return coef, intercept - float(self.model.scale.center @ coef)


def task_prior(model: TaskModel, *, intercept: bool, soft: bool) -> TaskPrior:
    """Return the prior of a private task; `soft` allows for coefficients outside the subspace."""
    d, k = model.basis.shape
    n_tasks = len(model.coef)
    mean = model.coef.mean(axis=0)
    # Variance around the tasks' mean. The mean itself is uncertain by one task's variance over the number of tasks.
    variance = np.maximum(model.variance - mean**2 * (1 - 1 / n_tasks), _LEAST_TASK_SPREAD * model.variance)
    turn, blocks = model.basis, [slice(0, k)]
    if soft and k < d and model.outside > 0:
        complement = np.linalg.qr(model.basis, mode="complete")[0][:, k:]
        turn = np.column_stack([turn, complement])
        mean, variance = np.append(mean, np.zeros(d - k)), np.append(variance, np.full(d - k, model.outside))
        blocks.append(slice(k, d))
    if intercept:
        spread = float(np.var(model.intercepts)) * (1 + 1 / n_tasks)
        mean = np.append(mean, float(np.mean(model.intercepts)))
        variance = np.append(variance, max(spread, _LEAST_TASK_SPREAD * model.noise))
        blocks.append(slice(len(mean) - 1, len(mean)))
    return TaskPrior(model, turn, intercept, mean, variance, tuple(blocks))


# The estimator, and what it checks.


class PublicSubspace(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The subspace that the regression coefficients of public tasks share.

    Public rows belong to tasks. Each task is a linear regression, and the coefficients of all tasks lie in or near a
    subspace of few dimensions. Only public data is used: freeze the fitted transformer in a pipeline, or use
    `PrivateSubspaceRegressor`, which fits one itself.

    Parameters
    ----------
    n_components : int, optional
        Dimension k of the subspace. Default: the dimension with the largest likelihood of held-out public tasks
        (five-fold cross-validation).
    method : {"em", "pairs", "moments"}, default="em"
        "moments" is the paper's estimator: the leading eigenvectors of the mean of y² x x'. "pairs" uses the mean of
        y_i y_j x_i x_j' over pairs of rows of one task, which is unbiased and has far less noise. "em" is the
        maximum-likelihood subspace, started from "pairs"; it is the most accurate.
    whiten : bool, default=True
        Whether rows are first whitened to second moment 1. "pairs" and "moments" assume second moment 1, which the
        paper's rows have.
    fit_intercept : bool, default=True
        Whether each task has its own intercept. Then rows and labels are centred within tasks.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows that span the subspace, in the units of the features.
    n_components_ : int
    task_coef_ : ndarray of shape (n_tasks, n_components)
        Posterior mean of each task's coefficients along `components_`; tasks in sorted order of their names.
    diversity_ : Diversity
        ν and condition numbers of `task_coef_`: how well tasks span the subspace.
    noise_ : float
        Variance of the labels around their task's regression.
    outside_ : float
        Expected squared length of a new task's coefficients outside the estimated subspace, because the estimate has an
        error; in the coordinates in which rows have second moment 1.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import PublicSubspace, subspace_distance
    >>> rng = np.random.default_rng(7)
    >>> X, tasks = rng.standard_normal((2000, 6)), np.arange(2000) % 40
    >>> coef = rng.standard_normal((40, 2)) @ [[1.0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0]]
    >>> y = np.sum(X * coef[tasks], axis=1) + 0.5 * rng.standard_normal(2000)
    >>> subspace = PublicSubspace().fit(Public(X, y, tasks=tasks))
    >>> subspace.n_components_
    2
    >>> subspace_distance(subspace.components_.T, np.eye(6)[:, :2]) < 0.1
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str = "em",
        whiten: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.whiten = whiten
        self.fit_intercept = fit_intercept

    @np.errstate(all="ignore")
    def fit(self, public: Public, y: None = None) -> "PublicSubspace":
        """Learn the subspace from labelled public rows with tasks: `Public(X, y, tasks=...)`."""
        if not isinstance(public, Public):
            raise TypeError(f"public must be wrapped: Public(X, y, tasks=tasks), got {type(public).__name__}.")
        checks.one_of(self.method, SUBSPACE_METHODS, "method")
        for name in ("whiten", "fit_intercept"):
            checks.flag(getattr(self, name), name)
        X = public_table(public.X, ensure_min_samples=2)
        model = task_model(
            X, public, method=self.method, k=self.n_components, whiten=self.whiten, intercept=self.fit_intercept
        )
        left, singular_values, right = np.linalg.svd(model.scale.raw(model.basis), full_matrices=False)
        self.n_features_in_ = X.shape[1]
        self.components_: Vector = left.T
        self.n_components_ = left.shape[1]
        self.task_coef_: Vector = model.coef @ right.T * singular_values
        self.diversity_: Diversity = task_diversity(self.task_coef_)
        self.noise_ = model.noise
        self.outside_ = model.outside * (X.shape[1] - self.n_components_)
        return self

    def transform(self, X: Any) -> Vector:
        """Return rows projected on the subspace: shape (n_rows, n_components)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(X @ self.components_.T)


def task_model(
    X: Vector,
    public: Public,
    *,
    method: str,
    k: int | None,
    whiten: bool = True,
    intercept: bool = True,
    basis: Vector | None = None,
) -> TaskModel:
    """Return the model of the tasks of `public`, whose checked rows are `X`.

    `basis` is the subspace in raw features, if it is known; otherwise it is estimated.
    """
    scale = whitened_scale(X, centred=intercept) if whiten else identity_scale(X.shape[1])
    tasks = _rows_by_task(scale, X, public, intercept=intercept)
    span = None if basis is None else np.asarray(np.linalg.lstsq(scale.turn, basis, rcond=None)[0], dtype=np.float64)
    if basis is None and k is not None:
        _check_dimension(k, X.shape[1], len(tasks.counts))
    try:
        model = learn_tasks(tasks, scale, method=method, k=k, span=span)
    except np.linalg.LinAlgError:
        model = None
    if model is None or not (np.isfinite(model.coef).all() and np.isfinite(model.residuals).all()):
        raise ValueError("public columns differ so much in size that no subspace can be computed. Scale them first.")
    return model


def _rows_by_task(scale: Scale, X: Vector, public: Public, *, intercept: bool) -> TaskRows:
    """Check labels and tasks; return rows sorted by task, without tasks that carry no information."""
    if public.y is None or public.tasks is None:
        lacking = " and ".join(name for name in ("y", "tasks") if getattr(public, name) is None)
        raise ValueError(
            f"public must have labels and tasks to learn a subspace from, but has no {lacking}: "
            f"Public(X, y, tasks=tasks). With one task only, use PrivateTransferRegressor."
        )
    names = np.asarray(public.tasks)
    if names.ndim != 1:
        raise ValueError(f"public tasks must be one name or number per row, got {names.ndim} axes.")
    try:
        missing = bool(pd.isna(names).any()) or (names.dtype.kind == "f" and not np.isfinite(names).all())
    except ArithmeticError:  # a signalling NaN among decimals
        missing = True
    if missing:
        raise ValueError("public tasks must be known for every row; remove rows without one.")
    if names.dtype.kind == "O":
        names = names.astype(str)
    tasks = by_task(scale.transform(X), numeric_labels(public_labels(public.y, len(X))), names, centred=intercept)
    if len(tasks.counts) < 2:
        raise ValueError(
            "public must have at least 2 tasks to learn what they share, got 1. With one task, use "
            "PrivateTransferRegressor."
        )
    informative = tasks.counts > intercept
    if informative.sum() < 2:
        raise ValueError(
            "all public tasks but one have a single row, and a task with its own intercept learns nothing from a "
            "single row. Give more rows per task, or fit_intercept=False."
        )
    tasks = tasks.take(informative)
    if not np.any(tasks.y):
        raise ValueError("public labels do not vary within any task, so no subspace can be learned from them.")
    return tasks


def _check_dimension(k: Any, n_features: int, n_tasks: int) -> None:
    """Refuse a dimension above the number of features or of tasks."""
    if checks.count(k, "n_components") > n_features:
        raise ValueError(f"n_components must be at most the number of features, {n_features}, got {k}.")
    if k > n_tasks:
        raise ValueError(
            f"n_components must be at most the number of public tasks with enough rows, {n_tasks}, got {k}: fewer "
            f"tasks can't span the subspace. Lower it, or leave it out."
        )


def checked_basis(basis: Any, n_features: int) -> Vector:
    """Return an orthonormal basis of a given subspace, or refuse one without a row per feature."""
    columns = orthonormal(basis, "basis")
    if len(columns) != n_features:
        raise ValueError(f"basis must have one row per feature, {n_features}, got {len(columns)}.")
    return columns


def basis_assumptions(basis: Any) -> list[str]:
    """Return the assumptions about a given subspace, for the receipt."""
    return [] if basis is None else ["the basis: it was made without the private rows"]
