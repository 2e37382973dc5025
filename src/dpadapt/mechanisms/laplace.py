"""Laplace noise: exact, for integers and for reals on a fine grid."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import Event, LaplaceEvent, PureEvent
from dpadapt.mechanisms.gaussian import addable, require_integers
from dpadapt.mechanisms.mechanism import NoiseMechanism
from dpadapt.mechanisms.randomness import Random

_GRID_BITS = 36


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
    return math.ldexp(1.0, math.frexp(scale)[1] - _GRID_BITS)
