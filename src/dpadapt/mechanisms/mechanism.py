"""Mechanisms that add noise, and plans: how noise is added, and how often.

A mechanism describes how noise is added: Gaussian and Laplace for reals (on a grid), discrete forms for integers
(exact); those that return a choice are in `choices.py`. It names its event (`events.py`), and it draws only when the
ledger calls it. A plan says how often, and on which samples, a mechanism will be used.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import (
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
)
from dpadapt.mechanisms.randomness import Random
from dpadapt.rows import UNITS, Unit

# Bits: results are rounded to a grid of 2^-bits noise scales (within a factor 2). Fewer bits hide more of the low bits
# of the sum, more bits round less. Chosen by hand.
_GAUSSIAN_GRID_BITS = 24
# Bits, as above. Here fewer bits also make the noise wider (`Laplace.scale`). Chosen by hand.
_LAPLACE_GRID_BITS = 36
# Largest scale of integer noise, see `_integer_scale`.
_LARGEST_INTEGER_SCALE = 2.0**50


@dataclass(frozen=True)
class Mechanism(ABC):
    """A way to release a `Bounded`; only the ledger calls `_apply`."""

    norm: ClassVar[Norm]

    @abstractmethod
    def event(self) -> Event:
        """Return what one release costs."""

    @abstractmethod
    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the noise scale that `bounded` needs, in its own units.

        `sampled` says that the release is made on a Poisson sample, which needs `Bounded.sensitivity(doubled=True)`.
        """

    @abstractmethod
    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        """Draw the release. Only the ledger calls this, after it has recorded the event."""


@dataclass(frozen=True)
class NoiseMechanism(Mechanism):
    """Add noise of scale `noise_multiplier` times the sensitivity.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale divided by the sensitivity under the ledger's adjacency.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", checks.positive(self.noise_multiplier, "noise_multiplier"))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity."""
        # Claim: scale >= noise_multiplier times |v - v'| under the ledger's adjacency. So equal events cost the same
        # whatever is released, and no accountant converts between adjacencies again. On Poisson samples the sensitivity
        # under replace-one is the doubled one, which their analysis needs.
        return self.noise_multiplier * bounded.sensitivity(self.norm, adjacency, doubled=sampled)


@dataclass(frozen=True)
class NonPrivate(Mechanism):
    """Release the value itself: a deliberate leak, recorded with epsilon = inf."""

    norm: ClassVar[Norm] = "linf"

    def event(self) -> Event:
        """Return what one release costs: epsilon = inf."""
        return NonPrivateEvent()

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return 0: no noise is added."""
        return 0.0

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        return bounded.value.copy()


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
        value, (finer, grid) = bounded.value, _gaussian_grid(scale)
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


@dataclass(frozen=True)
class Repeated:
    """Plan: `mechanism` on all rows, `steps` times. `Ledger.start` charges all steps at once.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Repeated(Gaussian(2.0), steps=10).event())
    Gaussian(noise_multiplier=2)
    """

    mechanism: Mechanism
    steps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checks.count(self.steps, "steps"))

    def event(self) -> Event:
        """Return what one step costs."""
        return self.mechanism.event()


@dataclass(frozen=True)
class Sampled:
    """Plan: `mechanism` on `steps` Poisson samples, each row or person taking part with probability `rate`.

    `Ledger.start` charges all steps at once. The run draws the samples itself (`Run.batches`), so that the sampling is
    the one that was charged. It draws what `unit` says, which must be what the ledger protects.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Sampled(Gaussian(2.0), rate=0.01, steps=10).event())
    Sampled(event=Gaussian(noise_multiplier=2), rate=0.01)
    """

    mechanism: Mechanism
    rate: float
    steps: int = 1
    unit: Unit = "row"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checks.count(self.steps, "steps"))
        object.__setattr__(self, "rate", checks.unit(self.rate, "rate"))
        checks.one_of(self.unit, UNITS, "unit")
        self.event()  # validates

    def event(self) -> Event:
        """Return what one step costs."""
        inner = self.mechanism.event()
        if not isinstance(inner, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {inner}.")
        return SampledEvent(inner, float(self.rate))


Plan = Repeated | Sampled


def as_plan(plan: Plan | Mechanism) -> Plan:
    """Return `plan`; a mechanism becomes the plan to use it once."""
    if isinstance(plan, Mechanism):
        return Repeated(plan)
    if isinstance(plan, Repeated | Sampled):
        return plan
    raise TypeError(f"expected a mechanism, Repeated or Sampled, got {type(plan).__name__}.")
