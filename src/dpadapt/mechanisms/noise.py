"""Mechanisms that add noise: Gaussian and Laplace for reals (on a grid), discrete forms for integers (exact)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.mechanism import (
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NoiseMechanism,
    PureEvent,
)
from dpadapt.mechanisms.randomness import Random

# Bits: results are rounded to a grid of 2^-bits noise scales (within a factor 2). Fewer bits hide more of the low bits
# of the sum, more bits round less. Chosen by hand.
_GAUSSIAN_GRID_BITS = 24
# Bits, as above. Here fewer bits also make the noise wider (`Laplace.scale`). Chosen by hand.
_LAPLACE_GRID_BITS = 36
# Largest scale of integer noise, see `_integer_scale`.
_LARGEST_INTEGER_SCALE = 2.0**50


@dataclass(frozen=True)
class Gaussian(NoiseMechanism):
    """Add normal noise of standard deviation `noise_multiplier` times the l2 sensitivity.

    Composes exactly: T releases at multiplier s cost what one release at s / sqrt(T) costs. Results are rounded to a
    grid of about 2⁻²⁴ noise scales, so that their low bits reveal nothing about the sum; SECURITY.md says what that
    covers.
    """

    norm: ClassVar[Norm] = "l2"

    def event(self) -> Event:
        """Return what one release costs."""
        return GaussianEvent(float(self.noise_multiplier))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.float64]:
        value = bounded.value
        if value.flags.f_contiguous and not random.seeded:
            # Drawn in the order of the value in memory, where adding takes a twentieth of the time. Normal variates are
            # independent, so any order has the same distribution. A seed gives the same noise in any order of memory.
            noisy = random.normal(scale, value.shape[::-1]).T
        else:
            noisy = random.normal(scale, value.shape)
        noisy += value
        # Claim: T releases of noise multiplier s are mu-Gaussian with mu² = T / s². The noise is independent of the
        # value and normal with standard deviation `scale`; rounding to a public grid is post-processing (Balle and Wang
        # 2018).
        # Not proved: that a double from the generator is exactly normal. The grid of 2⁻²⁴ scales removes the low bits
        # by which Mironov's attack (2012) tells neighbours apart.
        finer, grid = _gaussian_grid(scale)
        noisy *= finer  # a power of two: exact
        np.rint(noisy, noisy)
        noisy *= grid
        return noisy


@lru_cache(maxsize=64)
def _gaussian_grid(scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the steps per unit and the step of the Gaussian grid: a power of two, about 2⁻²⁴ times `scale`."""
    # As arrays: NumPy multiplies by these in half the time that it takes for a Python float.
    grid = math.ldexp(1.0, math.frexp(scale)[1] - _GAUSSIAN_GRID_BITS)
    return np.array(1.0 / grid), np.array(grid)


@dataclass(frozen=True)
class DiscreteGaussian(NoiseMechanism):
    """Add exact discrete Gaussian noise to integers.

    Satisfies 1 / (2 noise_multiplier²)-zCDP for any integer vector (Canonne, Kamath and Steinke, "The Discrete
    Gaussian for Differential Privacy", 2020, Theorem 4).
    """

    norm: ClassVar[Norm] = "l2"

    def event(self) -> Event:
        """Return what one release costs."""
        # GaussianEvent checks the multiplier.
        # Claim: rho <= 1 / (2 noise_multiplier²), for any integer vector. Canonne, Kamath and Steinke 2020, Theorem 4.
        return ConcentratedEvent(0.5 / GaussianEvent(float(self.noise_multiplier)).noise_multiplier ** 2)

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity; refuse reals."""
        _require_integers(bounded, "DiscreteGaussian")
        return _integer_scale(super().scale(bounded, adjacency, sampled=sampled))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        return bounded.value + random.discrete_gaussian(scale, bounded.value.size).reshape(bounded.value.shape)


@dataclass(frozen=True)
class DiscreteLaplace(NoiseMechanism):
    """Add exact discrete Laplace noise to integers: (1 / noise_multiplier, 0)-private.

    A histogram to which each record adds 1 has l1 sensitivity 1, so the cost does not depend on the number of bins.
    """

    norm: ClassVar[Norm] = "l1"

    def event(self) -> Event:
        """Return what one release costs.

        At sensitivity 1 the privacy loss takes only the values +-1 / noise_multiplier, as in randomized response.
        Composing it as continuous Laplace noise would understate the cost.
        """
        # Claim: epsilon = 1 / noise_multiplier, delta = 0. P(k) / P(k + d) = e^(±|d| / scale), and |d|_1 <=
        # sensitivity.
        return PureEvent(1 / LaplaceEvent(float(self.noise_multiplier)).noise_multiplier)

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity; refuse reals."""
        _require_integers(bounded, "DiscreteLaplace")
        return _integer_scale(super().scale(bounded, adjacency, sampled=sampled))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        return bounded.value + random.discrete_laplace(scale, bounded.value.size).reshape(bounded.value.shape)


@dataclass(frozen=True)
class Laplace(NoiseMechanism):
    """Add Laplace noise to reals: (1 / noise_multiplier, 0)-private, also in floating-point arithmetic.

    The value is rounded to a grid of about 2⁻³⁶ noise scales, and exact discrete Laplace noise is added on that grid.
    The noise is enlarged by the amount that rounding can add to the sensitivity.
    """

    norm: ClassVar[Norm] = "l1"

    def event(self) -> Event:
        """Return what one release costs."""
        return LaplaceEvent(float(self.noise_multiplier))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity after rounding to the grid."""
        exact = super().scale(bounded, adjacency, sampled=sampled)
        # Claim: epsilon <= 1 / noise_multiplier, delta = 0, in floating-point arithmetic too. Rounding moves each
        # coordinate of each neighbour by at most half a step, so the l1 distance grows by at most one step per
        # coordinate. The discrete distribution on the grid is within 2^-36 of the continuous one in total variation;
        # the further 2^-20 of noise more than makes up for that in the accountant's Laplace curve.
        widening = self.noise_multiplier * bounded.value.size * _grid(exact)
        if widening > exact / 2:
            # `_apply` uses the grid of the widened noise, which must not be coarser than the grid assumed here.
            raise ValueError("noise_multiplier is too large for this many coordinates. Use Gaussian noise.")
        return (exact + widening) * (1 + 2.0**-20)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.float64]:
        # The grid of the enlarged scale is at most twice as coarse as that of the exact one. Half of it is no coarser.
        grid = _grid(scale) / 2
        noise = random.discrete_laplace(scale / grid, bounded.value.size).reshape(bounded.value.shape)
        return np.asarray((np.rint(bounded.value / grid) + noise) * grid, dtype=np.float64)


def _grid(scale: float) -> float:
    """Return the step of the Laplace grid: the power of two about 2⁻³⁶ times `scale`."""
    return math.ldexp(1.0, math.frexp(scale)[1] - _LAPLACE_GRID_BITS)


def _require_integers(bounded: Bounded, mechanism: str) -> None:
    """Refuse a statistic that does not hold integers. Its type is public, so it may be checked."""
    if bounded.value.dtype.kind != "i":
        raise TypeError(f"{mechanism} needs an integer statistic such as a histogram, got {bounded.value.dtype}.")


def _integer_scale(scale: float) -> float:
    """Return `scale`; refuse it if discrete noise of this scale could leave the range of 64-bit integers.

    At 2⁵⁰ the noise leaves the range with probability below exp(-2¹²). The sampler would then return the end of the
    range, and adding the count to it would reveal the count.
    """
    if scale > _LARGEST_INTEGER_SCALE:
        raise ValueError("noise_multiplier is too large for integers. Use a larger epsilon.")
    return scale
