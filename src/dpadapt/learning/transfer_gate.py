"""The gate of the private transfer regressor: how much of a noisy correction is kept, block by block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dpadapt.learning.regret import least_threshold

Vector = NDArray[np.float64]

# Noise variances are computed from estimates of the private curvature; a fifth on top.
_MARGIN = 1.2
# Expected loss against the public model that is allowed while nothing is established, as a share of its error, and the
# noise variance (same unit) up to which all of it may be used.
_FREE_LOSS, _FREE_NOISE = 0.004, 0.003
# Once a shift is established beyond doubt, this share of its energy may be put at risk to gain more.
_RISK = 0.2
# Beyond doubt: noise alone would look like this in one case of ten thousand.
_DOUBT = 1e-4


@dataclass(frozen=True, eq=False)
class Kept:
    """Factors for each coordinate, the energy of the shift that is established beyond doubt, and energies in all.

    `seen` is the energy of the noisy correction before it was judged, `adopted` what is left of it.
    """

    factors: Vector
    established: float
    seen: float = 0.0
    adopted: float = 0.0


def keep(
    change: Vector, variance: Vector, blocks: Sequence[NDArray[np.int64]], *, error: float, established: float = 0.0
) -> Kept:
    """Return how much of `change` to keep.

    Each block is multiplied by (1 - t / S)₊, S its energy over its noise. The threshold t is the least whose worst
    expected loss (`regret`) stays within the block's part of what is allowed. So in the Gaussian model, with variances
    not understated, the expected loss against no change is at most 0.4% of `error` plus a fifth of the energy that
    is established. This is a statement about the model, not about any data.

    Parameters
    ----------
    change, variance : ndarray of shape (k,)
        Noisy correction in coordinates whose squares add up to a change in squared error, and its noise.
    blocks : sequence of ndarray
        Positions that are judged together.
    error : float
        Squared error of the public model on the private population, rather under- than overstated.
    established : float
        Energy established before.
    """
    variance = np.maximum(_MARGIN * variance, 1e-12 * error)
    energies = [float(np.sum(change[block] ** 2)) for block in blocks]
    noisiest = [float(np.max(variance[block])) for block in blocks]
    parts = [e - v * float(chdtri(len(b), _DOUBT)) for e, v, b in zip(energies, noisiest, blocks, strict=True)]
    whole = sum(energies) - max(noisiest) * float(chdtri(len(change), _DOUBT))
    found = max(sum(max(0.0, part) for part in parts), whole, 0.0)
    factors = np.zeros(len(change))
    for block, noise in zip(blocks, noisiest, strict=True):
        free = _FREE_LOSS * min(1.0, _FREE_NOISE * error / noise)
        allowed = (free + _RISK * (found + established) / error) / len(blocks)
        threshold = least_threshold(len(block), noise / error, allowed)
        signal = float(np.sum(change[block] ** 2 / variance[block]))
        if signal > threshold and math.isfinite(threshold):
            factors[block] = 1.0 - threshold / signal
    return Kept(factors, found + established, sum(energies), float(np.sum((factors * change) ** 2)))


def relative_size(values: Vector, unit: float, seen: float, noise: float) -> tuple[float, float]:
    """Return how much larger private residuals are than public ones: a safe lower and a central estimate.

    `seen` is the released mean of min(|residual| / unit, 1) over private rows; the same over public residuals times a
    factor is a known increasing function of the factor. The central estimate is the one nearest to 1 within two
    deviations of the noise.
    """
    factors = np.geomspace(0.05, 20.0, 60)
    sizes = np.abs(values) / unit
    curve = np.array([np.mean(np.minimum(factor * sizes, 1.0)) for factor in factors])
    low, high = (float(np.interp(seen + side * 2 * noise, curve, factors)) for side in (-1, 1))
    return max(low, 0.1), min(max(1.0, low), high)
