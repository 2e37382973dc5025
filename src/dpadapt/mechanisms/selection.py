"""Choosing one candidate by its score: the exponential mechanism, and permute-and-flip."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import BoundedRangeEvent, Event, PureEvent
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random


@dataclass(frozen=True)
class _Selection(Mechanism):
    """Chooses an index by noisy score; the noise has scale 2 * sensitivity / epsilon, half that if monotone."""

    epsilon: float
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        self.event()  # validates

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the noise scale of each score."""
        # If one record can only raise scores (or only lower them), the normaliser moves the same way as the score and
        # the factor 2 falls away (McSherry and Talwar 2007, section 3). A replacement does both, so it does not.
        one_way = bounded.monotone and adjacency is not Adjacency.REPLACE_ONE
        return bounded.sensitivity("linf", adjacency, doubled=sampled) * (1.0 if one_way else 2.0) / self.epsilon


@dataclass(frozen=True)
class ExponentialMechanism(_Selection):
    """Choose index j with probability proportional to exp(score_j / scale): (epsilon, 0)-private.

    Its privacy loss has range epsilon, so it is also epsilon²/8-zCDP: many choices compose well.

    Parameters
    ----------
    epsilon : float
        Cost of one choice. Positive.
    """

    def event(self) -> Event:
        """Return what one choice costs."""
        return BoundedRangeEvent(float(self.epsilon))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> int:
        # The largest of score / scale + Gumbel noise has exactly this law.
        return int(np.argmax(bounded.value / scale + random.generator.gumbel(size=bounded.value.shape)))


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """Choose an index at (epsilon, 0): never worse in expected score than the exponential mechanism.

    McKenna and Sheldon, NeurIPS 2020. Drawn as the largest score plus exponential noise, which has the same law (Ding,
    Kifer et al., "The Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with Exponential Noise", 2021).

    Parameters
    ----------
    epsilon : float
        Cost of one choice. Positive.
    """

    def event(self) -> Event:
        """Return what one choice costs."""
        return PureEvent(float(self.epsilon))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> int:
        return int(np.argmax(bounded.value / scale + random.generator.exponential(size=bounded.value.shape)))
