"""A subspace by maximum likelihood: tasks' coefficients are hidden Gaussian vectors, found by EM.

Model: the labels of task j are rows @ loading @ a_j + noise, with a_j ~ N(0, 1) of k coordinates. Their covariance
ties all rows of a task together, so tasks with fewer rows than k count too, each by what it tells.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.representation.tasks import Packed

Vector = NDArray[np.float64]

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
