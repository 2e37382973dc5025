"""What clipping does to the gradients of a squared loss, told from public residuals: slope, size and bias."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.transfer_geometry import TransferGeometry

Vector = NDArray[np.float64]
# Most numbers looked at: with more, some public rows stand for all.
_NUMBERS, _LEAST_ROWS = 12_000_000, 500
# A clip that leaves fewer residuals as they are has a slope that public rows don't tell well.
_LEAST_SLOPE = 0.05
# Steps to the level where clipped residuals have mean zero; they converge in a few.
_STEPS = 20
# Coordinates that share one guess of how large biases are: so many, then twice as many, and so on.
_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Clipped:
    """Gradients clipped at one length.

    Parameters
    ----------
    slope : float
        How fast the clipped gradient follows the solution, 1 without clipping.
    square : float
        Mean square of a clipped residual.
    shift, doubt : ndarray
        How far from the least-squares solution clipped gradients vanish, in eigencoordinates, and the variance of that
        guess.
    """

    slope: float
    square: float
    shift: Vector
    doubt: Vector


class ClipBias:
    """Public rows and leave-one-out residuals as they look to a clipped gradient.

    The gradient of a row is its residual times its weighted coordinates. Clipping it at length c clips the residual at
    c over the length of the coordinates. Where residuals are skewed, or wider for some rows than for others, clipped
    gradients don't vanish where the squared loss is least; the private rows then point to the wrong place, however
    many they are. Public rows tell that place up to their own sampling error.
    """

    def __init__(self, geometry: TransferGeometry) -> None:
        n, k = geometry.rows.shape
        chosen = np.unique(np.linspace(0, n - 1, min(n, max(_NUMBERS // k, _LEAST_ROWS))).astype(np.int64))
        self._geometry = geometry
        self._residuals = geometry.residuals[chosen] / math.sqrt(geometry.variance)
        rows = geometry.rows[chosen]
        self._constant = rows[:, -1]
        self._turned = rows @ geometry.vectors
        self._squares = self._turned**2
        # Along its own eigenvectors a sample is longer or shorter than new rows are.
        seen = geometry.values > 1e-10 * geometry.values[0]
        self._ratio = np.where(seen, geometry.spectrum, 0.0) / np.where(seen, geometry.values, 1.0)
        self._unseen = np.where(seen, 0.0, geometry.spectrum)

    def measure(self, weights: Vector, clip: float, variance: float) -> Clipped:
        """Return what a clip of `clip` residual deviations does.

        Parameters
        ----------
        weights : ndarray
            Weights of the squared eigencoordinates.
        clip : float
        variance : float
            Mean square that residuals are expected to have.
        """
        squares = self._squares @ (weights * self._ratio) + float(weights @ self._unseen)
        limit = clip * math.sqrt(variance) / np.sqrt(np.maximum(squares, 1e-300))
        residuals, constant = self._residuals * math.sqrt(variance), self._constant
        n = len(residuals)
        level = 0.0
        for _ in range(_STEPS):
            away = residuals - level * constant
            slope = float(constant**2 @ (np.abs(away) < limit))
            level += float(constant @ np.clip(away, -limit, limit)) / max(slope, _LEAST_SLOPE * n)
        level -= float(constant @ residuals) / max(float(constant @ constant), 1e-300)
        away = residuals - level * constant
        clipped = np.clip(away, -limit, limit)
        total = max(float(squares.sum()), 1e-300)
        slope = max(float(squares @ (np.abs(away) < limit)) / total, _LEAST_SLOPE)
        # The level explains a common skew. What a least-squares and a clipped fit of public rows differ by beyond it:
        differs = clipped / slope - residuals
        moment = self._geometry.values + self._geometry.ridge
        bias = self._turned.T @ differs / (n * moment)
        error = self._squares.T @ differs**2 / (n * moment) ** 2
        ratio = self._believed(bias, error)
        along = self._geometry.vectors[-1]
        shift = level * along + bias * ratio / (1.0 + ratio)
        doubt = error * np.maximum(ratio / (1.0 + ratio), along**2)
        return Clipped(slope, float(squares @ clipped**2) / total, shift, doubt)

    def _believed(self, bias: Vector, error: Vector) -> Vector:
        """Return prior variances of biases over variances of their sampling error, told from blocks of coordinates."""
        ratio = np.zeros_like(bias)
        low, size = 0, _BLOCK
        while low < len(bias):
            high = low + size if low + 2 * size <= len(bias) else len(bias)
            block = slice(low, high)
            moment = self._geometry.spectrum[block]
            found = float(moment @ bias[block] ** 2) / max(float(moment @ error[block]), 1e-300)
            # Sampling error alone makes this 1. In a small block it may hide a bias of its own size, so less is taken.
            ratio[block] = max(0.0, found - 1.0 + min(1.0, _BLOCK / (high - low)))
            low, size = high, 2 * size
        return ratio
