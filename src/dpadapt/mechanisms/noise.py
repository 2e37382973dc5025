"""Laplace noise: exact, for integers and for reals on a fine grid."""

import math
from dataclasses import dataclass
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

# Gaussian noise, continuous (on a grid) and discrete (exact).


_GAUSSIAN_GRID_BITS = 24


@dataclass(frozen=True)
class Gaussian(NoiseMechanism):
    """Add normal noise of standard deviation `noise_multiplier` times the l2 sensitivity.

    Composes exactly: T releases at multiplier s cost what one release at s / sqrt(T) costs. Results are rounded to a
    grid of about 2⁻²⁴ noise scales, so that their low bits tell nothing about the sum; SECURITY.md says what that
    covers.
    """

    norm: ClassVar[Norm] = "l2"

    def event(self) -> Event:
        """Return what one release costs."""
        return GaussianEvent(float(self.noise_multiplier))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.float64]:
        noisy = random.normal(scale, bounded.value.shape)
        noisy += bounded.value
        grid = math.ldexp(1.0, math.frexp(scale)[1] - _GAUSSIAN_GRID_BITS)
        noisy *= 1.0 / grid  # a power of two: exact
        np.rint(noisy, out=noisy)
        noisy *= grid
        return noisy


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
        return ConcentratedEvent(0.5 / GaussianEvent(float(self.noise_multiplier)).noise_multiplier ** 2)

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity; refuse reals."""
        require_integers(bounded, "DiscreteGaussian")
        return addable(super().scale(bounded, adjacency, sampled=sampled))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        return bounded.value + random.discrete_gaussian(scale, bounded.value.size).reshape(bounded.value.shape)


def addable(scale: float) -> float:
    """Return the scale of discrete noise, refused where noise could leave the range of 64-bit integers.

    At 2⁵⁰ it does with probability below exp(-2¹²); there the sampler stays at the end of the range, and a count added
    to that would show.
    """
    if scale > 2.0**50:
        raise ValueError("noise_multiplier is too large for integers: give more epsilon.")
    return scale


def require_integers(bounded: Bounded, mechanism: str) -> None:
    """Refuse a statistic that does not hold integers; its type is public, so this may be checked."""
    if bounded.value.dtype.kind != "i":
        raise TypeError(f"{mechanism} needs an integer statistic such as a histogram, got {bounded.value.dtype}.")


_LAPLACE_GRID_BITS = 36


@dataclass(frozen=True)
class DiscreteLaplace(NoiseMechanism):
    """Add exact discrete Laplace noise to integers: (1 / noise_multiplier, 0)-private.

    A histogram whose records each count once has l1 sensitivity 1, so it costs the same in any number of bins.
    """

    norm: ClassVar[Norm] = "l1"

    def event(self) -> Event:
        """Return what one release costs.

        At sensitivity 1 the privacy loss takes only the values +-1 / noise_multiplier, as randomized response does:
        composing it as continuous Laplace noise would understate it.
        """
        return PureEvent(1 / LaplaceEvent(float(self.noise_multiplier)).noise_multiplier)

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity; refuse reals."""
        require_integers(bounded, "DiscreteLaplace")
        return addable(super().scale(bounded, adjacency, sampled=sampled))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        return bounded.value + random.discrete_laplace(scale, bounded.value.size).reshape(bounded.value.shape)


@dataclass(frozen=True)
class Laplace(NoiseMechanism):
    """Add Laplace noise to reals: (1 / noise_multiplier, 0)-private, with no floating-point gap.

    The value is rounded to a grid of about 2⁻³⁶ noise scales and exact discrete Laplace noise is added there; the
    noise is enlarged by what the rounding can add to the sensitivity.
    """

    norm: ClassVar[Norm] = "l1"

    def event(self) -> Event:
        """Return what one release costs."""
        return LaplaceEvent(float(self.noise_multiplier))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity after rounding to the grid."""
        exact = super().scale(bounded, adjacency, sampled=sampled)
        # Rounding moves each coordinate by at most half a step in either world, so the l1 distance grows by at most
        # one step per coordinate. The discrete law on the grid is within 2^-36 of the continuous one in total
        # variation; the further 2^-20 of noise more than makes up for that in the accountant's Laplace curve.
        widening = self.noise_multiplier * bounded.value.size * _grid(exact)
        if widening > exact / 2:
            # The grid drawn on is that of the widened noise; it must not be coarser than the one widened for.
            raise ValueError("noise_multiplier is too large for this many coordinates; use Gaussian noise.")
        return (exact + widening) * (1 + 2.0**-20)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.float64]:
        # The grid of the enlarged scale is never coarser than twice that of the exact one; halve it to be safe.
        grid = _grid(scale) / 2
        noise = random.discrete_laplace(scale / grid, bounded.value.size).reshape(bounded.value.shape)
        return np.asarray((np.rint(bounded.value / grid) + noise) * grid, dtype=np.float64)


def _grid(scale: float) -> float:
    """Return the power of two about 2⁻³⁶ times `scale`."""
    return math.ldexp(1.0, math.frexp(scale)[1] - _LAPLACE_GRID_BITS)
