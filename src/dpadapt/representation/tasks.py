"""Public rows of several tasks: brought to a common scale, sorted by task, and packed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Directions with less than this share of the average public variance are not amplified further.
_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class Scale:
    """How features are centred, divided and turned.

    Parameters
    ----------
    center : ndarray of shape (n_features,)
    turn : ndarray of shape (n_features, n_features)
        Centred rows times this have second moment about 1. Zero rows for features that are constant in public.
    """

    center: Vector
    turn: Vector

    def transform(self, X: NDArray[Any]) -> Vector:
        """Return rows in the new coordinates; a row too long for a float comes out not finite, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((X - self.center) @ self.turn)

    def raw(self, solution: Vector) -> Vector:
        """Return coefficients of raw features that do what `solution` does in the new coordinates."""
        return np.asarray(self.turn @ solution)


def plain_scale(n_features: int) -> Scale:
    """Return features as they are."""
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
    # Symmetric, so that coordinates stay those of the features as far as they can.
    root = vectors / np.sqrt(values + _FLOOR * values.sum() / varies.sum())
    return Scale(center, inverse[:, None] * (root @ vectors.T))


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows sorted by task.

    Parameters
    ----------
    rows, y : ndarray of shape (n_rows, n_features) and (n_rows,)
        Less each task's own means, if so asked.
    codes : ndarray of shape (n_rows,)
        Which task each row belongs to, 0, 1, …; ascending.
    counts : ndarray of shape (n_tasks,)
    row_mean, y_mean : ndarray of shape (n_tasks, n_features) and (n_tasks,)
        What was subtracted from each task; zero where nothing was.
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
        """Where each task begins."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def take(self, chosen: NDArray[np.bool_]) -> "TaskRows":
        """Return those tasks that `chosen`, one entry per task, keeps."""
        kept = chosen[self.codes]
        codes = (np.cumsum(chosen) - 1)[self.codes[kept]]
        means = self.row_mean[chosen], self.y_mean[chosen]
        return TaskRows(self.rows[kept], self.y[kept], codes, self.counts[chosen], *means, self.centred)


def by_task(Z: Vector, y: Vector, tasks: NDArray[Any], *, centred: bool) -> TaskRows:
    """Return rows by task; `centred` takes each task's own means out, so that a task of one row says nothing."""
    _, codes, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    Z, y, codes = Z[order], y[order], codes[order]
    means = np.zeros((len(counts), Z.shape[1])), np.zeros(len(counts))
    found = TaskRows(Z, y, codes, counts, *means, centred)
    if not centred:
        return found
    row_mean = np.add.reduceat(Z, found.starts) / counts[:, None]
    y_mean = np.add.reduceat(y, found.starts) / counts
    return TaskRows(Z - row_mean[codes], y - y_mean[codes], codes, counts, row_mean, y_mean, centred)


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows of several tasks, padded with zeros to equal numbers, so that each step on them is one product.

    A task with more rows than features + 1 is represented by that many with the same second moments.

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
    """Return rows by task with the second moments of `tasks`."""
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
