"""What every mechanism is: a frozen description that draws only when the ledger calls it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import Event, NonPrivateEvent
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
