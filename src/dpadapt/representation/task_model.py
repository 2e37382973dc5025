"""What public tasks say about a task yet unseen: a subspace, and how its coefficients vary inside and outside of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.representation.task_subspaces import (
    Loadings,
    Packed,
    Scale,
    TaskRows,
    fit_loadings,
    label_moment,
    leading,
    log_likelihood,
    orthonormal,
    pack,
    pair_moment,
)

Vector = NDArray[np.float64]

METHODS = ("em", "pairs", "moments")
_FOLDS = 5
# Cross-validation goes on past a worse dimension for as long as this.
_PATIENCE = 2
# Public rows that stand for all of them.
_SAMPLE = 4000


@dataclass(frozen=True, eq=False)
class TaskModel:
    """Public tasks in the coordinates of `scale`.

    Parameters
    ----------
    scale : Scale
    basis : ndarray of shape (n_features, k)
        Orthonormal columns: the subspace, along its principal axes.
    coef : ndarray of shape (n_tasks, k)
        Expected coefficients of each public task along `basis`.
    variance : ndarray of shape (k,)
        Second moment of tasks' coefficients along each column.
    intercepts : ndarray of shape (n_tasks,)
        Level of each task; zero if tasks have none.
    noise : float
        Variance of labels around their task.
    outside : float
        Variance of a task's coefficient along any direction outside `basis`: the error of the subspace, expected from
        the number of rows and the noise. 0 if the subspace was given.
    rows, residuals : ndarray of shape (n, n_features) and (n,)
        Some public rows, and their labels less what their task predicts, with mean square `noise`.
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
    """Return the model of tasks: its subspace by `method`, of `k` dimensions or as many as cross-validation asks for.

    `span`, if given, is the subspace itself.
    """
    if span is not None:
        found = fit_loadings(pack(tasks), orthonormal(span, "basis"), fixed=True)
    else:
        k = choose_dimension(tasks, method) if k is None else k
        found = fit_loadings(pack(tasks), _directions(tasks, method)[:, :k], fixed=method != "em")
    axes, sizes, turn = np.linalg.svd(found.loading, full_matrices=False)
    coef = found.tasks @ turn.T * sizes
    slopes = coef @ axes.T
    levels = tasks.y_mean - np.einsum("td,td->t", tasks.row_mean, slopes)
    some = np.unique(np.linspace(0, len(tasks.y) - 1, _SAMPLE).astype(np.int64))
    codes = tasks.codes[some]
    residuals = tasks.y[some] - np.einsum("nd,nd->n", tasks.rows[some], slopes[codes])
    # A task's own rows fit it better than others would; the noise is free of that.
    residuals = residuals * np.sqrt(found.noise / max(float(np.mean(residuals**2)), 1e-300))
    return TaskModel(
        scale=scale,
        basis=axes,
        coef=coef,
        variance=sizes**2,
        intercepts=levels,
        noise=found.noise,
        outside=0.0 if span is not None else _outside(found),
        rows=tasks.rows[some] + tasks.row_mean[codes],
        residuals=residuals,
    )


def choose_dimension(tasks: TaskRows, method: str) -> int:
    """Return the number of dimensions under which tasks left out of the fit are most likely."""
    n_tasks, d = len(tasks.counts), tasks.rows.shape[1]
    folds = min(_FOLDS, n_tasks)
    # A subspace can't have more dimensions than the tasks that span it.
    most = min(d, n_tasks - -(-n_tasks // folds))
    fold = np.arange(n_tasks) % folds
    parts = []
    for i in range(folds):
        rest, held = tasks.take(fold != i), tasks.take(fold == i)
        parts.append((pack(rest), pack(held), _directions(rest, method)))
    best, chosen = -np.inf, 1
    for k in range(1, max(most, 1) + 1):
        score = sum(_left_out(rest, held, directions[:, :k], fixed=method != "em") for rest, held, directions in parts)
        if score > best:
            best, chosen = score, k
        elif k >= chosen + _PATIENCE:
            break
    return chosen


def _left_out(rest: Packed, held: Packed, start: Vector, *, fixed: bool) -> float:
    """Return how likely the tasks of `held` are given a fit on `rest`."""
    found = fit_loadings(rest, start, fixed=fixed, rough=True)
    d, k = start.shape
    # What a task has outside the subspace looks like noise, as rows have second moment 1.
    return log_likelihood(held, found.loading, found.noise + (d - k) * _outside(found))


def _directions(tasks: TaskRows, method: str) -> Vector:
    """Return all directions, those in which tasks vary most first."""
    moment = label_moment(tasks.rows, tasks.y) if method == "moments" else pair_moment(tasks)
    return leading(moment, len(moment))


def _outside(found: Loadings) -> float:
    """Return the variance that errors of the subspace give a new task's coefficient along a direction outside it.

    Along such a direction the loading is a regression of labels on tasks' hidden coefficients a, so its error has
    covariance noise / Σ a a', the sum over rows; a new task has a ~ N(0, 1).
    """
    values = np.maximum(np.linalg.eigvalsh(found.information), 1e-300)
    # Were the subspace not known at all, tasks' variance would be spread over all directions.
    most = float(np.sum(found.loading**2)) / len(found.loading)
    return min(found.noise * float(np.sum(1.0 / values)), most)


# What a private task is expected to be, coordinate by coordinate, before a private row is read.


# Tasks may differ from each other by more than public ones show: least variance, as a share of the second moment.
_LEAST_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class TaskPrior:
    """Coordinates in which a task's coefficients are independent, with their means and variances.

    Parameters
    ----------
    model : TaskModel
    turn : ndarray of shape (n_features, m)
        From the coordinates of `model.scale` to these: the subspace, then directions outside it. Orthonormal columns.
    intercept : bool
        Whether a last coordinate is the task's level, whose row entry is 1.
    mean, variance : ndarray of shape (m,) or (m + 1,)
        Of a task's coefficients.
    blocks : tuple of slice
        Coordinates that belong together: the subspace, outside, the level.
    """

    model: TaskModel
    turn: Vector
    intercept: bool
    mean: Vector
    variance: Vector
    blocks: tuple[slice, ...]

    def rows(self, X: NDArray[Any]) -> Vector:
        """Return rows in these coordinates."""
        return self._turned(self.model.scale.transform(X))

    def public_rows(self) -> Vector:
        """Return some public rows in these coordinates."""
        return self._turned(self.model.rows)

    def _turned(self, rows: Vector) -> Vector:
        with np.errstate(over="ignore", invalid="ignore"):
            turned = rows @ self.turn
        return np.column_stack([turned, np.ones(len(turned))]) if self.intercept else turned

    def coefficients(self, solution: Vector) -> tuple[Vector, float]:
        """Return coefficients and intercept for raw rows."""
        slopes = solution[: self.turn.shape[1]]
        coef = self.model.scale.raw(self.turn @ slopes)
        level = float(solution[-1]) if self.intercept else 0.0
        return coef, level - float(self.model.scale.center @ coef)


def task_prior(model: TaskModel, *, intercept: bool, soft: bool) -> TaskPrior:
    """Return what public tasks say of a private one; `soft` allows for coefficients outside the subspace."""
    d, k = model.basis.shape
    n_tasks = len(model.coef)
    mean = model.coef.mean(axis=0)
    # Around their mean, which is itself uncertain by one task's variance over their number.
    variance = np.maximum(model.variance - mean**2 * (1 - 1 / n_tasks), _LEAST_SPREAD * model.variance)
    turn, blocks = model.basis, [slice(0, k)]
    if soft and k < d and model.outside > 0:
        complement = np.linalg.qr(model.basis, mode="complete")[0][:, k:]
        turn = np.column_stack([turn, complement])
        mean, variance = np.append(mean, np.zeros(d - k)), np.append(variance, np.full(d - k, model.outside))
        blocks.append(slice(k, d))
    if intercept:
        level = float(np.mean(model.intercepts))
        spread = float(np.var(model.intercepts)) * (1 + 1 / n_tasks)
        mean, variance = np.append(mean, level), np.append(variance, max(spread, _LEAST_SPREAD * model.noise))
        blocks.append(slice(len(mean) - 1, len(mean)))
    return TaskPrior(model, turn, intercept, mean, variance, tuple(blocks))
