"""What every mechanism is: a frozen description that draws only when the ledger calls it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import Event, GaussianEvent, LaplaceEvent, NonPrivateEvent, SampledEvent
from dpadapt.mechanisms.randomness import Random


@dataclass(frozen=True)
class Mechanism(ABC):
    """A way to release a `Bounded`; `Ledger.release` is the only caller of `_apply`."""

    norm: ClassVar[Norm]

    @abstractmethod
    def event(self) -> Event:
        """Return what one release costs."""

    @abstractmethod
    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return how much noise `bounded` needs, in its own units."""

    @abstractmethod
    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        """Draw. Only the ledger calls this, after it has recorded the event."""


@dataclass(frozen=True)
class NoiseMechanism(Mechanism):
    """Adds noise of `noise_multiplier` times the sensitivity.

    Parameters
    ----------
    noise_multiplier : float
        Noise relative to what one record can move the statistic by, under the ledger's adjacency.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        self.event()  # validates

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity."""
        return self.noise_multiplier * bounded.sensitivity(self.norm, adjacency, doubled=sampled)


@dataclass(frozen=True)
class NonPrivate(Mechanism):
    """Releases the value itself: a deliberate leak, recorded with epsilon = inf."""

    norm: ClassVar[Norm] = "linf"

    def event(self) -> Event:
        """Return what one release costs: everything."""
        return NonPrivateEvent()

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return 0."""
        return 0.0

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        return bounded.value.copy()


# Plans: a mechanism used several times, charged at once when `Ledger.start` opens the run.


@dataclass(frozen=True)
class Repeated:
    """`mechanism` on all rows, `steps` times.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Repeated(Gaussian(2.0), steps=10).event())
    Gaussian(noise_multiplier=2)
    """

    mechanism: Mechanism
    steps: int = 1

    def __post_init__(self) -> None:
        checks.count(self.steps, "steps")

    def event(self) -> Event:
        """Return what one step costs."""
        return self.mechanism.event()


@dataclass(frozen=True)
class Sampled:
    """`mechanism` on `steps` Poisson samples, each record taking part with probability `rate`.

    The run draws the samples itself (`Run.batches`), so what is charged is what happens.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Sampled(Gaussian(2.0), rate=0.01, steps=10).event())
    Sampled(event=Gaussian(noise_multiplier=2), rate=0.01)
    """

    mechanism: Mechanism
    rate: float
    steps: int = 1

    def __post_init__(self) -> None:
        checks.count(self.steps, "steps")
        self.event()  # validates

    def event(self) -> Event:
        """Return what one step costs."""
        inner = self.mechanism.event()
        if not isinstance(inner, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {inner}.")
        return SampledEvent(inner, float(self.rate))


Plan = Repeated | Sampled


def as_plan(plan: Plan | Mechanism) -> Plan:
    """Return `plan`, or one use of it if it is a mechanism."""
    if isinstance(plan, Mechanism):
        return Repeated(plan)
    if isinstance(plan, Repeated | Sampled):
        return plan
    raise TypeError(f"expected a mechanism, Repeated or Sampled, got {type(plan).__name__}.")
