"""Subspaces from second moments: the paper's estimator, and one that uses which task a row came from.

The first is Algorithm 1 of N. Tripuraneni, C. Jin, M. I. Jordan, "Provable Meta-Learning of Linear Representations",
2021, used in "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551.
"""

import numpy as np
from numpy.typing import NDArray

from dpadapt.representation.tasks import TaskRows

Vector = NDArray[np.float64]


def label_moment(rows: Vector, y: Vector) -> Vector:
    """Return the mean of y² x x'.

    For rows with second moment 1 it is a multiple of 1 plus twice the mean of β β' over tasks. Its noise is that of
    fourth moments: a row counts alike whichever task it came from.
    """
    return np.asarray((rows * (y**2)[:, None]).T @ rows / len(rows))


def pair_moment(tasks: TaskRows) -> Vector:
    """Return the mean of y_i y_j x_i x_j' over pairs i, j of different rows of one task.

    Two rows of a task have independent noise, so for rows with second moment 1 this is the mean of β β' over tasks,
    each counted by its pairs, without bias.
    """
    weighted = tasks.rows * tasks.y[:, None]
    sums = np.add.reduceat(weighted, tasks.starts)
    pairs = max(float(tasks.counts @ (tasks.counts - 1)), 1.0)
    return np.asarray((sums.T @ sums - weighted.T @ weighted) / pairs)


def leading(moment: Vector, k: int) -> Vector:
    """Return the eigenvectors of the `k` largest eigenvalues, as columns."""
    _, vectors = np.linalg.eigh(moment)
    return np.asarray(vectors[:, ::-1][:, :k])
