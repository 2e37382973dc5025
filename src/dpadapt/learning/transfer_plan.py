"""Plans of the private transfer regressor: clip level, step length and coordinates, without a private row."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.base import quantile_between
from dpadapt.learning.transfer_geometry import TransferGeometry
from dpadapt.learning.transfer_stage import Stage
from dpadapt.learning.waterfill import water_fill

Vector = NDArray[np.float64]

# Water-filled shares below this part of the largest are not worth a coordinate.
_LEAST_SHARE = 1e-3
# Clip level that water-filling assumes, in residual deviations: close to what `plan_stage` finds.
_ASSUMED_CLIP = 0.9
# A step is at most this over max_norm²: curvature is about 1 where private rows look like public ones, and would be
# max_norm² if all of them were one row; an eighth of that is still stable.
_STEP_OF_ROWS = 16.0
# With fewer steps the average over their last half is not smooth; more only cost time.
_FEWEST_STEPS, _MOST_STEPS = 150, 300


@dataclass(frozen=True)
class Kind:
    """What tells one kind of stage from another.

    Parameters
    ----------
    quantiles : (float, float)
        Of public gradient lengths: the clip level stays between them.
    divisor, furthest : float
        Divisor of the logarithm that says how long to go, and the longest way.
    longest_step : float
        Upper limit of a step, before that of long rows.
    """

    quantiles: tuple[float, float]
    divisor: float
    furthest: float
    longest_step: float


# Two coordinates have so little noise that clipping, which biases skewed residuals, need not be tight.
CALIBRATION = Kind(quantiles=(0.8, 0.999), divisor=0.6, furthest=20.0, longest_step=0.5)
CORRECTION = Kind(quantiles=(0.5, 0.97), divisor=0.7, furthest=15.0, longest_step=0.1)


def plan_stage(
    geometry: TransferGeometry,
    turn: Vector,
    weights: Vector,
    *,
    noise_per_clip: float,
    n_steps: int,
    size: float,
    kind: Kind,
) -> Stage:
    """Return the plan of a stage.

    Parameters
    ----------
    turn : ndarray of shape (n_columns, k)
        From whitened coordinates to those of the stage, before weighting.
    weights : ndarray of shape (k,)
        Squared scale of each.
    noise_per_clip : float
        Noise of one release of the mean gradient, per unit of clip norm.
    size : float
        Size of the private residuals relative to the public leave-one-out ones, as far as it was released.
    kind : Kind
    """
    k = len(weights)
    variance = geometry.variance * size**2
    turn = turn * np.sqrt(weights)
    turned = geometry.whitened @ turn
    norms = np.linalg.norm(turned, axis=1)
    max_norm = max(float(np.quantile(norms, 0.95)), 1e-12)
    leverage = np.minimum(1.0, max_norm / np.maximum(norms, 1e-300)) ** 2
    residuals = geometry.residuals * size
    lengths = leverage * norms * np.abs(residuals)
    # Noise of the whole stage in 2% of the residual variance, over all coordinates: a larger clip would cost more noise
    # than it saves bias, a smaller one the other way round.
    whole = noise_per_clip / math.sqrt(n_steps)
    clip_norm = max(quantile_between(lengths, math.sqrt(0.02 * variance / (2 * k)) / whole, *kind.quantiles), 1e-150)
    noise = whole * clip_norm
    # Go until what is left of a shift of the size of the residuals is no larger than the noise. Not longer: along
    # directions of little private variance the iterate is a random walk, whose noise grows with the way.
    way = math.log(max(1.2 * variance / (k * noise**2), 1.0001)) / kind.divisor
    limit = n_steps * min(kind.longest_step, _STEP_OF_ROWS / max_norm**2)
    way = min(max(way, 1.0), kind.furthest, limit)
    unclipped = lengths < clip_norm
    held = np.clip(residuals, *(side * clip_norm / np.maximum(leverage * norms, 1e-300) for side in (-1, 1)))
    # Skewed residuals, clipped, have another mean. Linear part removed: what a real slope would do is not bias.
    bias = (leverage[:, None] * turned).T @ (held - np.mean(unclipped) * residuals) / len(residuals)
    return Stage(
        map=geometry.whitening @ turn,
        weights=weights,
        max_norm=max_norm,
        clip_norm=clip_norm,
        noise=noise_per_clip * clip_norm,
        n_steps=n_steps,
        step=way / n_steps,
        unclipped=float(np.mean(unclipped)),
        bias=bias,
        row_weight=float(np.mean(leverage * geometry.rows[:, -1] ** 2)),
    )


def shift_prior(n_columns: int) -> Vector:
    """Return how a shift's energy is expected to be spread: half on calibration, the rest as 1/j over directions.

    On real data each doubling of the number of directions was worth about the same.
    """
    rest = np.arange(1, n_columns - 1)
    return np.concatenate([np.full(min(2, n_columns), 0.25), 0.5 / (rest * math.log(2.0 * max(len(rest), 1) + 2))])


def choose_directions(
    geometry: TransferGeometry, *, n_rows: float, noise_per_clip: float, n_steps: int, size: float
) -> tuple[NDArray[np.int64], Vector]:
    """Return which coordinates to correct and their weights, the largest 1, by water-filling."""
    variance = geometry.variance * size**2
    prior = geometry.sampling + variance * shift_prior(len(geometry.solution))
    # What the private sample itself could tell of this coordinate without noise.
    useful = prior**2 / (prior + variance / n_rows)
    noise = (_ASSUMED_CLIP * noise_per_clip) ** 2 * variance / n_steps
    shares = water_fill(useful, noise)
    chosen = np.flatnonzero(shares > _LEAST_SHARE * shares.max())
    return chosen, shares[chosen] / shares.max()


def correction_steps(geometry: TransferGeometry, chosen: NDArray[np.int64], weights: Vector) -> int:
    """Return how many steps the longest correction takes; the noise depends on the way, not on their number."""
    squares = geometry.whitened[:, chosen] ** 2 @ weights
    longest = min(CORRECTION.longest_step, _STEP_OF_ROWS / max(float(np.quantile(squares, 0.95)), 1e-12))
    return min(max(math.ceil(CORRECTION.furthest / longest), _FEWEST_STEPS), _MOST_STEPS)


def dyadic_blocks(chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return positions in `chosen`: the calibrating coordinates together, then 2, 4, 8, … directions."""
    first = np.flatnonzero(chosen < 2)
    rest = np.flatnonzero(chosen >= 2)
    blocks = [first] if len(first) else []
    before, size = len(blocks), 2
    while len(rest):
        block, rest = rest[:size], rest[size:]
        # A short remainder can't be judged by itself.
        if len(block) < size / 2 and len(blocks) > before:
            blocks[-1] = np.concatenate([blocks[-1], block])
        else:
            blocks.append(block)
        size *= 2
    return blocks
