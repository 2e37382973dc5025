"""What a private task is expected to be, coordinate by coordinate, before a private row is read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.representation.task_model import TaskModel

Vector = NDArray[np.float64]

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
