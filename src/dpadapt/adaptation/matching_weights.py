"""Weights for source rows that make them look like target rows: kernel means (Huang et al., 2006), second moments
(Cortes and Mohri, 2014). Neither looks at a label.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Kernels are made in blocks of this many rows, so that the distances need little memory beside the kernel itself.
_BLOCK = 512


def median_distance(rows: Vector, most: int = 1000) -> float:
    """Return the median distance between rows, of at most `most` of them evenly spread."""
    some = rows[:: max(1, len(rows) // most)][:most]
    squares = _square_distances(some, some)
    apart = squares[np.triu_indices(len(some), 1)]
    found = math.sqrt(float(np.median(apart))) if len(apart) else 0.0
    return found if found > 0 else 1.0


def kernel_mean_weights(
    source: Vector,
    target: Vector,
    *,
    bandwidth: float,
    largest: float = 1000.0,
    tolerance: float = 1e-3,
    most_steps: int = 1000,
) -> Vector:
    """Return weights, about 1 on average, under which the source has nearly the target's mean in a Gaussian kernel.

    Minimises b'Kb / 2 - k'b over 0 <= b <= largest with a sum within m (1 ± (sqrt m - 1) / sqrt m), by accelerated
    projected gradients that restart when they turn. Stops when a projected step moves less than `tolerance`, relative
    to the first.
    """
    m = len(source)
    kernel = _gaussian_kernel(source, source, bandwidth)
    mean = np.asarray(_gaussian_kernel(source, target, bandwidth).sum(axis=1, dtype=np.float64)) * (m / len(target))
    slack = (math.sqrt(m) - 1) / math.sqrt(m)
    band = m * (1 - slack), m * (1 + slack)

    def gradient(b: Vector) -> Vector:
        return np.asarray(kernel @ b.astype(kernel.dtype), dtype=np.float64) - mean

    # The largest eigenvalue of a kernel with entries in [0, 1]: a few products, and a little more for safety.
    vector = np.ones(m)
    for _ in range(20):
        vector = np.asarray(kernel @ (vector / np.linalg.norm(vector)).astype(kernel.dtype), dtype=np.float64)
    smoothness = 1.02 * float(np.linalg.norm(vector))
    weights = leading = np.ones(m)
    momentum, first = 1.0, 0.0
    for step in range(most_steps):
        following = _project(leading - gradient(leading) / smoothness, largest, *band)
        moved = float(np.linalg.norm(following - leading))
        first = moved if step == 0 else first
        if moved <= tolerance * first:
            return following
        if float((leading - following) @ (following - weights)) > 0:
            momentum = 1.0
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        leading = following + (momentum - 1) / faster * (following - weights)
        weights, momentum = following, faster
    return weights


def _square_distances(left: Vector, right: Vector) -> Vector:
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)[None]
    return np.asarray(np.maximum(squares - 2.0 * left @ right.T, 0.0))


def _gaussian_kernel(left: Vector, right: Vector, bandwidth: float) -> NDArray[np.float32]:
    # Single precision: half the memory of what is read in every step, and 1e-6 is far below any tolerance here.
    kernel = np.empty((len(left), len(right)), np.float32)
    for start in range(0, len(left), _BLOCK):
        part = slice(start, start + _BLOCK)
        np.exp(_square_distances(left[part], right) / (-2.0 * bandwidth**2), out=kernel[part], casting="same_kind")
    return kernel


def _project(point: Vector, largest: float, low: float, high: float) -> Vector:
    """Return the nearest point with entries in [0, largest] and a sum in [low, high]."""
    inside = np.clip(point, 0.0, largest)
    total = float(inside.sum())
    if low <= total <= high:
        return inside
    goal = low if total < low else high
    # The sum of clip(point - shift) falls in shift; both ends are beyond the root.
    below, above = float(point.min()) - largest, float(point.max())
    for _ in range(100):
        shift = (below + above) / 2
        if float(np.clip(point - shift, 0.0, largest).sum()) > goal:
            below = shift
        else:
            above = shift
    return np.clip(point - (below + above) / 2, 0.0, largest)


@dataclass(frozen=True, eq=False)
class Matched:
    """Weights that add up to 1, the spectral distance they reach, and a lower bound on any such distance."""

    weights: Vector
    distance: float
    at_least: float


def discrepancy_weights(source: Vector, moment: Vector, *, tolerance: float = 0.01, most_steps: int = 300) -> Matched:
    """Return weights q on the simplex for which Σ q_i x_i x_i' is close to `moment` in spectral norm.

    For the squared loss and linear models in a ball that norm is the unlabelled discrepancy, up to a constant. The norm
    is smoothed to within tolerance / 2 and minimised by accelerated mirror descent from equal weights, so that of
    several solutions an even one is found. Stops when the distance is within `tolerance`, relative to the norm of
    `moment`, of its lower bound, or after `most_steps`: a hundred do for a dozen columns, while with a hundred columns
    the last steps only gather weight on few rows.
    """
    m, d = source.shape
    accuracy = tolerance * max(float(np.linalg.norm(moment, 2)), 1e-300)
    sharpness = 2 * math.log(2 * d) / accuracy
    current = lead = np.full(m, 1.0 / m)
    logs = np.log(lead)
    # Differences of moments are affine in the weights, so those of mixed weights are mixed too.
    apart = apart_lead = _second_moment(source, lead) - moment
    best = Matched(lead, float(np.linalg.norm(apart, 2)), 0.0)
    # Far too small to begin with: it is doubled until the step below is safe.
    curvature = 1e-3 * sharpness * float(np.median(np.einsum("ij,ij->i", source, source))) ** 2 + 1e-300
    reach = 0.0
    for _ in range(most_steps):
        while True:
            length = (1 + math.sqrt(1 + 4 * reach * curvature)) / (2 * curvature)
            share = length / (reach + length)
            middle = (1 - share) * current + share * lead
            values, vectors = np.linalg.eigh((1 - share) * apart + share * apart_lead)
            value, signed = _smoothed(values, sharpness)
            gradient = (source @ vectors) ** 2 @ signed
            logs_next = logs - length * gradient
            logs_next -= logs_next.max()
            lead_next = np.exp(logs_next)
            lead_next /= lead_next.sum()
            following = (1 - share) * current + share * lead_next
            apart_next = _second_moment(source, lead_next) - moment
            apart_following = (1 - share) * apart + share * apart_next
            values_next = np.asarray(np.linalg.eigvalsh(apart_following), dtype=np.float64)
            reached, _ = _smoothed(values_next, sharpness)
            # |.|_1 is the norm in which the entropy is strongly convex.
            step = following - middle
            allowed = value + float(gradient @ step) + curvature / 2 * float(np.abs(step).sum()) ** 2
            if reached <= allowed + 1e-12 * abs(value):
                break
            curvature *= 2
        current, lead, logs, apart, apart_lead = following, lead_next, logs_next, apart_following, apart_next
        reach += length
        curvature *= 0.9
        # W = V diag(signed) V' has nuclear norm at most 1, so for every q on the simplex
        # |M(q) - M| >= <W, M(q) - M> >= min_i x_i'W x_i - <W, M>.
        lower = float(gradient.min() - signed @ np.sum(vectors * (moment @ vectors), axis=0))
        lower, distance = max(best.at_least, lower), float(np.abs(values_next).max())
        better = distance < best.distance
        best = Matched(current if better else best.weights, min(distance, best.distance), lower)
        if best.distance - best.at_least <= accuracy:
            break
    return best


def _second_moment(source: Vector, weights: Vector) -> Vector:
    return np.asarray((source * weights[:, None]).T @ source)


def _smoothed(values: Vector, sharpness: float) -> tuple[float, Vector]:
    """Return the smoothed largest absolute value, log Σ exp(± sharpness v) / sharpness, and its gradient."""
    both = sharpness * np.concatenate([values, -values])
    top = float(both.max())
    mass = np.exp(both - top)
    total = float(mass.sum())
    return (top + math.log(total)) / sharpness, (mass[: len(values)] - mass[len(values) :]) / total
