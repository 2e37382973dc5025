"""Mechanisms that return a choice: randomized response, the exponential mechanism, permute-and-flip."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import BoundedRangeEvent, Event, PureEvent
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Each record keeps its answer with probability e^epsilon / (e^epsilon + k - 1), else gives one of the others.

    This needs no trusted curator: every answer is (epsilon, 0)-private by itself, and a record has one answer.

    Parameters
    ----------
    epsilon : float
        Cost to each record. Positive.
    """

    epsilon: float
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.positive(self.epsilon, "epsilon"))

    def event(self) -> Event:
        """Return what one answer costs."""
        return PureEvent(float(self.epsilon))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the probability that a record gives an answer other than its own."""
        if bounded.n_categories is None:
            raise TypeError("RandomizedResponse needs one answer per record; make it with `responses`.")
        if adjacency is Adjacency.ADD_REMOVE:
            raise PrivacyError("randomized response shows how many records there are. Use zero-out or replace-one.")
        # Claim: P(answer | own) / P(answer | another) <= e^epsilon, with 1 - scale = e^epsilon / (e^epsilon + k - 1).
        # Each other answer has probability 1 / (e^epsilon + k - 1). Warner 1965; the k-ary form is Kairouz et al. 2016.
        # Not proved: the last bits of the uniform double that decides.
        others = bounded.n_categories - 1
        return others / (math.exp(min(self.epsilon, 700.0)) + others)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int64]:
        k = bounded.n_categories or 2
        answers = bounded.value
        changed = random.generator.random(answers.shape) < scale
        # Adding 1..k-1 modulo k gives each of the other answers with equal probability, whatever the true answer is.
        shift = random.generator.integers(1, k, answers.shape)
        return np.where(changed, (answers + shift) % k, answers).astype(np.int64)


@dataclass(frozen=True)
class _Selection(Mechanism):
    """Choose the index of the largest noisy score; the noise has scale 2 * sensitivity / epsilon, half if monotone."""

    epsilon: float
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.positive(self.epsilon, "epsilon"))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the noise scale of each score."""
        # Claim: P(j) / P'(j) <= e^epsilon for noise of scale 2 sensitivity / epsilon, half of it if monotone. If one
        # record can only raise scores (or only lower them), the normaliser moves in the same direction as the score and
        # the factor 2 is not needed (McSherry and Talwar 2007, section 3). A replacement can raise some scores and
        # lower others, so it needs the factor. Permute-and-flip: McKenna and Sheldon 2020.
        # Not proved: that rounding of scores plus noise, in double precision, is harmless.
        one_direction = bounded.monotone and adjacency is not Adjacency.REPLACE_ONE
        return bounded.sensitivity("linf", adjacency, doubled=sampled) * (1.0 if one_direction else 2.0) / self.epsilon


@dataclass(frozen=True)
class ExponentialMechanism(_Selection):
    """Choose index j with probability proportional to exp(score_j / scale): (epsilon, 0)-private.

    Its privacy loss has range epsilon, so it is also epsilon²/8-zCDP: many choices together cost less than the sum of
    their epsilons.

    Parameters
    ----------
    epsilon : float
        Cost of one choice. Positive.
    """

    def event(self) -> Event:
        """Return what one choice costs."""
        return BoundedRangeEvent(float(self.epsilon))

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> int:
        # The index of the largest score / scale + Gumbel noise has exactly this distribution.
        return int(np.argmax(bounded.value / scale + random.generator.gumbel(size=bounded.value.shape)))


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """Choose an index, (epsilon, 0)-private: the expected score is never below that of the exponential mechanism.

    McKenna and Sheldon, NeurIPS 2020. Drawn as the index of the largest score plus exponential noise, which has the
    same distribution (Ding, Kifer et al., "The Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with
    Exponential Noise", 2021).

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
