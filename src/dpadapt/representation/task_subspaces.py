"""Subspaces from second moments: the paper's estimator, and one that uses which task a row came from.

The first is Algorithm 1 of N. Tripuraneni, C. Jin, M. I. Jordan, "Provable Meta-Learning of Linear Representations",
2021, used in "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How far apart two subspaces are, and how diverse tasks are.
#
# Definition A.1 and Assumption A.2 of "On the Benefits of Public Representations for Private Transfer Learning under
# Distribution Shift", arXiv:2312.15551.


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


# Public rows of several tasks: brought to a common scale, sorted by task, and packed.


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


# A subspace by maximum likelihood: tasks' coefficients are hidden Gaussian vectors, found by EM.
#
# Model: the labels of task j are rows @ loading @ a_j + noise, with a_j ~ N(0, 1) of k coordinates. Their covariance
# ties all rows of a task together, so tasks with fewer rows than k count too, each by what it tells.


# EM stops when a step changes the likelihood by less than this many nats.
_LEAST_GAIN = 1e-2
_MOST_STEPS = 300
_ROUGH_GAIN, _ROUGH_STEPS = 0.5, 40
# Conjugate-gradient steps inside a step of EM: any improvement is enough for it to climb.
_INNER_STEPS = 3


@dataclass(frozen=True, eq=False)
class Loadings:
    """A fitted model of tasks.

    Parameters
    ----------
    loading : ndarray of shape (n_features, k)
        Its columns span the subspace; its square is the covariance of tasks' coefficients.
    noise : float
        Variance of labels around their task.
    tasks : ndarray of shape (n_tasks, k)
        Expected hidden coefficients of each task.
    information : ndarray of shape (k, k)
        Sum over rows of tasks' hidden second moments: what tells of a row of `loading`.
    log_likelihood : float
    """

    loading: Vector
    noise: float
    tasks: Vector
    information: Vector
    log_likelihood: float


def fit_loadings(packed: Packed, start: Vector, *, fixed: bool = False, rough: bool = False) -> Loadings:
    """Return the most likely loadings.

    Parameters
    ----------
    packed : Packed
        Public rows by task.
    start : ndarray of shape (n_features, k)
        Orthonormal columns, where to start from.
    fixed : bool, default=False
        Whether to keep the span of `start`: then only sizes inside it are fitted.
    rough : bool, default=False
        Whether to stop early, as is good enough to tell dimensions apart.
    """
    k = start.shape[1]
    spread = max(float(np.sum(packed.y**2)) / max(float(packed.counts.sum()), 1.0), 1e-300)
    # Half of the labels' variance to the tasks; a few steps settle it.
    loading, noise = start * math.sqrt(0.5 * spread / k), 0.5 * spread
    before = -math.inf
    gain, steps = (_ROUGH_GAIN, _ROUGH_STEPS) if rough else (_LEAST_GAIN, _MOST_STEPS)
    for _ in range(steps):
        scores, hidden = _expect(packed, loading, noise)
        if abs(hidden.log_likelihood - before) < gain:
            break
        before = hidden.log_likelihood
        if not fixed:
            loading = _improve(packed, loading, scores, hidden)
        noise = max(_noise(packed, loading, hidden, fixed=fixed), 1e-12 * spread)
        # Parameter expansion: hidden coefficients are rescaled to unit second moment, which takes far fewer steps.
        loading = loading @ np.linalg.cholesky(hidden.moments.mean(axis=0))
    _, hidden = _expect(packed, loading, noise)
    information = np.einsum("t,tk,tl->kl", packed.counts, hidden.means, hidden.means)
    return Loadings(loading, noise, hidden.means, information, hidden.log_likelihood)


def log_likelihood(packed: Packed, loading: Vector, noise: float) -> float:
    """Return how likely other tasks are."""
    return _expect(packed, loading, noise)[1].log_likelihood


@dataclass(frozen=True, eq=False)
class _Hidden:
    """Hidden coefficients given the rows: means, second moments, and how likely the labels are."""

    means: Vector
    moments: Vector
    log_likelihood: float


def _expect(packed: Packed, loading: Vector, noise: float) -> tuple[Vector, _Hidden]:
    """The E step: return rows @ loading, and the hidden coefficients."""
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
    """The M step for the loading, by conjugate gradients from where it is: Σ Z'Z V E = Σ Z'y m'."""
    rows = packed.rows.reshape(-1, packed.rows.shape[2])

    def image(products: Vector) -> Vector:
        return np.asarray(rows.T @ (products @ hidden.moments).reshape(len(rows), -1))

    target = packed.y[:, :, None] * hidden.means[:, None, :]
    residual = rows.T @ target.reshape(len(rows), -1) - image(scores)
    # Rows have second moment about 1, so Σ counts E is nearly the operator.
    weight = np.linalg.inv(np.einsum("t,tkl->kl", packed.counts, hidden.moments))
    solution, direction = loading, residual @ weight
    size = float(np.sum(residual * direction))
    for _ in range(_INNER_STEPS):
        if size <= 0.0:
            break
        turned = image(packed.rows @ direction)
        length = size / max(float(np.sum(direction * turned)), 1e-300)
        solution = solution + length * direction
        residual = residual - length * turned
        ahead = residual @ weight
        size, before = float(np.sum(residual * ahead)), size
        direction = ahead + size / before * direction
    return solution


def _noise(packed: Packed, loading: Vector, hidden: _Hidden, *, fixed: bool) -> float:
    """The M step for the noise: mean squared distance of labels from their expected scores."""
    scores = packed.rows @ loading
    gram = scores.transpose(0, 2, 1) @ scores
    fitted = np.einsum("tnk,tn,tk->", scores, packed.y, hidden.means, optimize=True)
    total = float(np.sum(packed.y**2)) - 2 * float(fitted) + float(np.sum(gram * hidden.moments))
    d, k = loading.shape
    # The loading has this many free numbers (a rotation of hidden coefficients changes nothing), and they fit noise.
    free = k * (k + 1) / 2 if fixed else k * d - k * (k - 1) / 2
    observations = float(packed.counts.sum())
    return float(total / max(observations - free, observations / 4, 1.0))


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
