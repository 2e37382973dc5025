"""Gaussian noise, continuous (on a grid) and discrete (exact)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import ConcentratedEvent, Event, GaussianEvent
from dpadapt.mechanisms.mechanism import NoiseMechanism
from dpadapt.mechanisms.randomness import Random

_GRID_BITS = 24


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
        grid = math.ldexp(1.0, math.frexp(scale)[1] - _GRID_BITS)
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
