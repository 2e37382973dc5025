"""How far apart two subspaces are, and how diverse tasks are.

Definition A.1 and Assumption A.2 of "On the Benefits of Public Representations for Private Transfer Learning under
Distribution Shift", arXiv:2312.15551.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def subspace_distance(first: Any, second: Any) -> float:
    """Return the sine of the largest principal angle between the spans of two sets of columns, 0 to 1.

    Parameters
    ----------
    first, second : array-like of shape (n_features, k)
        Independent columns; they need not be orthonormal. The two may have different k: the distance is then that of
        the smaller span from the larger, 0 if it is contained.

    Examples
    --------
    >>> round(subspace_distance([[1.0], [0.0]], [[1.0], [1.0]]), 3)  # 45 degrees
    0.707
    """
    small, large = sorted(
        (orthonormal(first, "first"), orthonormal(second, "second")), key=lambda basis: basis.shape[1]
    )
    if len(small) != len(large):
        raise ValueError(f"first and second must have as many rows, got {len(small)} and {len(large)}.")
    # Not from cosines: near 1 they say nothing of a small angle.
    return min(1.0, float(np.linalg.norm(small - large @ (large.T @ small), 2)))


def orthonormal(columns: Any, name: str) -> Vector:
    """Return an orthonormal basis of the span of `columns`."""
    basis = np.asarray(columns, dtype=np.float64)
    if basis.ndim != 2 or not 1 <= basis.shape[1] <= basis.shape[0]:
        raise ValueError(f"{name} must have one row per feature and at most as many columns, got shape {basis.shape}.")
    if not np.isfinite(basis).all():
        raise ValueError(f"{name} must be finite.")
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
        ν: the least eigenvalue of the tasks' second moment. 0 if some direction of the subspace has no task.
    average_condition : float
        Trace of that moment over k ν: 1 for tasks spread evenly.
    worst_condition : float
        Its largest eigenvalue over ν.
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
