"""The least and the greatest value of a quadratic in a ball, exactly: one eigendecomposition and a scalar root."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def extremes_in_ball(matrix: Array, vector: Array, radius: float) -> tuple[float, float]:
    """Return the least and the greatest value of w'Aw - 2b'w over |w| <= radius; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    turned = vectors.T @ vector
    lowest = _value(values, turned, _solve(values, turned, radius))
    # The maximum is minus the minimum of the negated quadratic, whose eigenvectors are the same.
    backwards = -values[::-1], -turned[::-1]
    return lowest, -_value(*backwards, _solve(*backwards, radius))


def minimise_in_ball(matrix: Array, vector: Array, radius: float) -> Array:
    """Return the w with |w| <= radius that minimises w'Aw - 2b'w; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ _solve(values, vectors.T @ vector, radius))


def _value(values: Array, turned: Array, at: Array) -> float:
    return float(values @ at**2 - 2 * turned @ at)


def _solve(values: Array, turned: Array, radius: float) -> Array:
    """Return the minimiser in the coordinates of the eigenvectors; `values` ascend.

    At the minimum (A + nu I) w = b for some nu >= max(0, -least eigenvalue), with |w| = radius unless nu = 0. In terms
    of gaps = values - least and s = nu + least eigenvalue nothing cancels where the matrix is nearly singular.
    """
    if not len(values):
        return turned.copy()
    size = float(np.abs(values).max())
    least = float(values[0])
    if abs(least) <= 1e-15 * size:
        least = 0.0
    gaps = values - values[0]
    # Zero multiplier if the matrix is definite: s can't be below the least eigenvalue.
    floor = max(least, 0.0)
    at = _point(gaps, turned, floor)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(at))
    if length <= radius:
        if least >= 0:
            return at
        # Hard case: no multiplier gives the full length. Any least eigenvector makes up for it.
        at[0] += math.copysign(math.sqrt((radius - length) * (radius + length)), at[0] if at[0] else 1.0)
        return at
    at = _point(gaps, turned, _root(gaps, turned, radius, floor))
    return at * (radius / max(float(np.linalg.norm(at)), 1e-300))


def _point(gaps: Array, turned: Array, shift: float) -> Array:
    """Return turned / (gaps + shift), where 0 / 0 counts as 0."""
    below = gaps + shift
    noise = 1e-15 * float(np.abs(turned).max())
    with np.errstate(divide="ignore", over="ignore"):
        return np.where((below > 0) | (np.abs(turned) > noise), turned / np.where(below > 0, below, 1e-300), 0.0)


def _root(gaps: Array, turned: Array, radius: float, floor: float) -> float:
    """Return the shift s > floor with |turned / (gaps + s)| = radius, by Newton's method inside a bracket."""
    low = max(floor, abs(float(turned[0])) / radius)
    high = max(low, float(np.linalg.norm(turned)) / radius)
    at = low if low > 0 else high * 1e-8
    for _ in range(100):
        below = gaps + at
        part = turned / below
        length = math.sqrt(float(part @ part))
        if length > radius:
            low = at
        else:
            high = at
        if not length or abs(length - radius) <= 1e-15 * radius:
            break
        # 1 / |w(s)| is nearly linear in s, so Newton's method on 1 / radius - 1 / |w(s)| takes few steps.
        slope = float(part @ (part / below)) / length**3
        following = at + (1 / radius - 1 / length) / slope
        if not low < following < high:
            following = math.sqrt(low * high) if low > 0 else (low + high) / 2
        if following == at:
            break
        at = following
    return at
