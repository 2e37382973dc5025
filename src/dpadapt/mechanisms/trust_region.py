"""The trust-region problem: least and greatest value of a quadratic in a ball, by eigenvalues and a scalar root."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def extremes_in_ball(matrix: Array, vector: Array, radius: float) -> tuple[float, float]:
    """Return the minimum and the maximum of w'Aw - 2b'w over |w| <= radius; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    rotated = vectors.T @ vector
    lowest = _value(values, rotated, _solve(values, rotated, radius))
    # The maximum is minus the minimum of the negated quadratic, which has the same eigenvectors in reverse order.
    negated = -values[::-1], -rotated[::-1]
    return lowest, -_value(*negated, _solve(*negated, radius))


def minimise_in_ball(matrix: Array, vector: Array, radius: float) -> Array:
    """Return the w with |w| <= radius that minimises w'Aw - 2b'w; A need not be definite."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ _solve(values, vectors.T @ vector, radius))


def _value(values: Array, rotated: Array, at: Array) -> float:
    return float(values @ at**2 - 2 * rotated @ at)


def _solve(values: Array, rotated: Array, radius: float) -> Array:
    """Return the minimiser in the coordinates of the eigenvectors; eigenvalues `values` ascend, `rotated` is b there.

    At the minimum (A + nu I) w = b for some nu >= max(0, -least eigenvalue), with |w| = radius unless nu = 0. With
    gaps = values - least eigenvalue and s = nu + least eigenvalue, w = b / (gaps + s), and nothing cancels where the
    matrix is nearly singular.
    """
    if not len(values):
        return rotated.copy()
    size = float(np.abs(values).max())
    least = float(values[0])
    if abs(least) <= 1e-15 * size:
        least = 0.0
    gaps = values - values[0]
    # nu >= 0 means s >= least eigenvalue, nu >= -least eigenvalue means s >= 0.
    floor = max(least, 0.0)
    at = _point(gaps, rotated, floor)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(at))
    if length <= radius:
        if least >= 0:
            return at
        # Hard case: no nu gives length `radius`. Moving along an eigenvector of the least eigenvalue does.
        at[0] += math.copysign(math.sqrt((radius - length) * (radius + length)), at[0] if at[0] else 1.0)
        return at
    at = _point(gaps, rotated, _root(gaps, rotated, radius, floor))
    return at * (radius / max(float(np.linalg.norm(at)), 1e-300))


def _point(gaps: Array, rotated: Array, shift: float) -> Array:
    """Return rotated / (gaps + shift), where 0 / 0, up to rounding errors, counts as 0."""
    divisor = gaps + shift
    rounding = 1e-15 * float(np.abs(rotated).max())
    with np.errstate(divide="ignore", over="ignore"):
        quotient = rotated / np.where(divisor > 0, divisor, 1e-300)
        return np.where((divisor > 0) | (np.abs(rotated) > rounding), quotient, 0.0)


def _root(gaps: Array, rotated: Array, radius: float, floor: float) -> float:
    """Return the shift s > floor with |rotated / (gaps + s)| = radius, by Newton's method inside a bracket."""
    low = max(floor, abs(float(rotated[0])) / radius)
    high = max(low, float(np.linalg.norm(rotated)) / radius)
    at = low if low > 0 else high * 1e-8
    for _ in range(100):
        divisor = gaps + at
        part = rotated / divisor
        length = math.sqrt(float(part @ part))
        if length > radius:
            low = at
        else:
            high = at
        if not length or abs(length - radius) <= 1e-15 * radius:
            break
        # 1 / |w(s)| is nearly linear in s, so Newton's method on 1 / radius - 1 / |w(s)| takes few steps.
        slope = float(part @ (part / divisor)) / length**3
        following = at + (1 / radius - 1 / length) / slope
        if not low < following < high:
            following = math.sqrt(low * high) if low > 0 else (low + high) / 2
        if following == at:
            break
        at = following
    return at
