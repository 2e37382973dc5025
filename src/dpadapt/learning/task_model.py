"""The model of public tasks, and the prior that it gives for the coefficients of a private task.

The model holds the subspace, the variance of tasks' coefficients inside and outside of it, and the residuals. It is
fitted to public rows only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.task_subspaces import (
    Loadings,
    Packed,
    Scale,
    TaskRows,
    fit_loadings,
    label_moment,
    leading_eigenvectors,
    log_likelihood,
    orthonormal,
    pack,
    pair_moment,
)
from dpadapt.rows import row_products

Vector = NDArray[np.float64]

SUBSPACE_METHODS = ("em", "pairs", "moments")

# Folds of tasks in the cross-validation of the dimension. More folds leave more tasks to each fit and cost time.
# Chosen by hand.
_DIMENSION_FOLDS = 5
# Cross-validation stops this many dimensions after the best one so far. A larger value finds a maximum behind a local
# one and costs time. Chosen by hand.
_DIMENSION_PATIENCE = 2
# Number of public rows from which the plan of the private descent is computed, evenly spaced over all rows. More rows
# make it more exact and cost time. Chosen by hand.
_PLANNING_ROWS = 4000
# Least prior variance of a private task's coefficient, as a share of the public tasks' second moment along it (for
# the intercept: of the noise). It allows for tasks that differ from each other by more than the public ones show.
# Chosen by hand.
_LEAST_TASK_SPREAD = 0.05


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
