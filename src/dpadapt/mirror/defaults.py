"""Clipping norm and learning rate from public data alone: those of the least predicted loss.

Along its way a descent forgets the public start's error and takes in noise. Both follow from public data in a linear
model of one direction, so a small grid of clipping norms and learning rates is searched at no private cost.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.mirror.public_fit import PublicFit

Vector = NDArray[np.float64]
_RATES = 2.0 ** -np.arange(12)


@dataclass(frozen=True, eq=False)
class Terrain:
    """What a descent will meet, in its own coordinates.

    Parameters
    ----------
    lengths : ndarray
        Lengths of gradients of public rows, each as if left out of the public fit.
    scatter : float
        Loss per unit of squared noise in one step of length 1, all coordinates together.
    curvature : float
        How fast a step of length 1 forgets a typical error of the start.
    fastest : float
        The same for the direction that is forgotten first; steps beyond 1 over it may diverge.
    excess : float
        Loss of the start above that of the best solution.
    """

    lengths: Vector
    scatter: float
    curvature: float
    fastest: float
    excess: float


def plain_terrain(fit: PublicFit, largest: float) -> Terrain:
    """Return what gradient descent meets; `largest` is the top eigenvalue of the Hessian."""
    norms = np.linalg.norm(fit.sample, axis=1)
    scatter = float(np.trace(fit.hessian)) * _scores(fit) / 2
    return Terrain(norms * fit.derivatives, scatter, fit.mean_eigenvalue, largest, fit.excess)


def mirror_terrain(fit: PublicFit, inverse: Vector, unit: float) -> Terrain:
    """Return what exact mirror descent meets.

    `inverse` holds the inverse Hessian times each sampled row, in columns; `unit` normalises it.
    """
    norms = np.linalg.norm(fit.sample, axis=1)
    keep = _kept(fit, inverse)
    # E |H^-1 x|² over new rows x: a row that took part in H is found 1 - h times as long as a new one.
    squares = np.sum(inverse**2, axis=0) / keep**2
    scatter = unit**2 * float(np.mean(fit.curvature * squares)) * _scores(fit) / 2
    # Where the public Hessian is smallest, the population's is nearer its mean.
    return Terrain(norms * fit.derivatives, scatter, unit, max(unit, fit.mean_eigenvalue), fit.excess)


def whitened_terrain(fit: PublicFit, inverse: Vector, unit: float) -> Terrain:
    """Return what gradient descent meets on rows multiplied by the inverse root of the Hessian."""
    keep = _kept(fit, inverse)
    squares = np.einsum("ij,ji->i", fit.sample, inverse) / keep
    scatter = float(np.mean(fit.curvature * squares)) * _scores(fit) / 2
    fastest = max(1.0, fit.mean_eigenvalue / unit)
    return Terrain(np.sqrt(squares) * fit.derivatives, scatter, 1.0, fastest, fit.excess)


def _scores(fit: PublicFit) -> int:
    return 1 if fit.solution.ndim == 1 else int(fit.solution.shape[1])


def _kept(fit: PublicFit, inverse: Vector) -> Vector:
    """Return 1 - h for each sampled row, h its leverage in the Hessian that was inverted."""
    leverage = fit.curvature * np.einsum("ij,ji->i", fit.sample, inverse) / max(fit.n_rows, 1)
    return np.asarray(1.0 - np.minimum(leverage, 0.9))


def choose(
    terrain: Terrain,
    *,
    clip_norm: float | None,
    learning_rate: float | None,
    noise: float,
    steps: int,
    first: int,
    least: float,
) -> tuple[float, float]:
    """Return clipping norm and learning rate; whichever is given is kept.

    Parameters
    ----------
    terrain : Terrain
    clip_norm, learning_rate : float, optional
    noise : float
        Standard deviation of the noise in a mean gradient, per unit of clipping norm.
    steps, first : int
        Number of steps, and the first whose iterate is averaged.
    least : float
        Quantile of the lengths below which clipping is not tried: it biases losses that are not symmetric.
    """
    lengths = terrain.lengths
    quantiles = np.quantile(lengths, [q for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.97) if q >= least])
    clips = np.maximum(quantiles, 1e-300) if clip_norm is None else np.array([clip_norm])
    rates = _RATES / terrain.fastest if learning_rate is None else np.array([learning_rate])
    # A gradient beyond the clip no longer follows the solution.
    inside = np.maximum(np.mean(lengths[None, :] <= clips[:, None], axis=1), 0.05)
    pace = np.minimum(inside[:, None] * terrain.curvature * rates, 1.0)
    bias, gain = _averaged(pace, steps, first)
    variance = (clips[:, None] * noise * rates) ** 2 * gain
    predicted = terrain.excess * bias**2 + terrain.scatter * variance
    i, j = np.unravel_index(int(np.argmin(predicted)), predicted.shape)
    return float(clips[i]), float(rates[j])


def _averaged(pace: Vector, steps: int, first: int) -> tuple[Vector, Vector]:
    """Return what is left of an error in the average iterate of u <- u - pace u + noise, and its variance per noise."""
    left, bias = np.ones_like(pace), np.zeros_like(pace)
    for t in range(steps):
        left = left * (1.0 - pace)
        if t >= first:
            bias += left / (steps - first)
    reach, gain = np.zeros_like(pace), np.zeros_like(pace)
    # Backwards: `reach` is how much the average moves per unit of change of iterate t + 1.
    for t in reversed(range(steps)):
        if t >= first:
            reach = reach + 1.0 / (steps - first)
        gain += reach**2
        reach = reach * (1.0 - pace)
    return bias, gain
