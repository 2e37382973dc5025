"""Randomized response: each record answers for itself."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import Event, PureEvent
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Each record keeps its answer with probability e^epsilon / (e^epsilon + k - 1), else gives one of the others.

    Needs no trusted curator: every answer is (epsilon, 0)-private by itself, and a record has one answer.

    Parameters
    ----------
    epsilon : float
        Cost to each record. Positive.
    """

    epsilon: float
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        self.event()  # validates

    def event(self) -> Event:
        """Return what one answer costs."""
        return PureEvent(float(self.epsilon))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the probability of giving another answer than one's own."""
        if bounded.n_categories is None:
            raise TypeError("RandomizedResponse needs one answer per record; make it with `responses`.")
        if adjacency is Adjacency.ADD_REMOVE:
            raise PrivacyError("randomized response shows how many records there are; use zero-out or replace-one.")
        others = bounded.n_categories - 1
        return others / (math.exp(min(self.epsilon, 700.0)) + others)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        k = bounded.n_categories or 2
        answers = bounded.value
        lie = random.generator.random(answers.shape) < scale
        # Adding 1..k-1 modulo k reaches each other answer with equal probability, whatever one's own is.
        shift = random.generator.integers(1, k, answers.shape)
        return np.where(lie, (answers + shift) % k, answers).astype(np.int64)
