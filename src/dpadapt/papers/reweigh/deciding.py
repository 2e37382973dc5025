"""Tests by people's bits whether a mean loss is small: one of fixed size, and a sequential one.

Each bit is +1 with probability 1/2 + (2 * loss - 1) / (2 * scale), independently, so that counts are exactly binomial.
Neither test uses a normal approximation, so that error probabilities as small as 1e-9 are exact bounds.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import Agents, Answers, bit_scale
from dpadapt.hybrid.questions import Question

# The share of the error probability that the sequential test reserves for the case that it is cut off undecided. A
# larger share cuts it off earlier and moves its bounds apart. Chosen by hand.
CUT_SHARE = 0.25
# If nobody of this many people answers, the test stops: nobody can be reached. Chosen by hand.
_SILENT_BATCH = 32


@dataclass(frozen=True)
class Verdict:
    """The result of a test.

    Parameters
    ----------
    accepted : bool
        Whether the test decided for "loss <= low", rather than "loss >= high".
    estimate : float
        The estimated mean loss of those who answered. Noise can move it outside [0, 1]. After a sequential test it is
        biased towards the side that was decided.
    asked : int
        How many people were asked, whether they answered or not.
    """

    accepted: bool
    estimate: float
    asked: int


def people_needed(low: float, high: float, error: float, epsilon: float) -> int:
    """Return how many answers a test of "loss <= low" against "loss >= high" needs for errors of at most `error`.

    Parameters
    ----------
    low, high : float
        0 <= low < high <= 1. In between, either decision is right.
    error : float
        In (0, 0.5).
    epsilon : float
        What an answer costs the person who gives it.

    Examples
    --------
    >>> people_needed(0.16, 0.32, 1e-9, epsilon=0.5)
    23029
    """
    return _fixed(*_checked(low, high, error), checks.positive(epsilon, "epsilon"))[0]


def decide(
    agents: Agents,
    question: Question,
    low: float,
    high: float,
    *,
    error: float,
    sequential: bool = True,
    batch: int | None = None,
) -> Verdict:
    """Decide whether the mean loss is at most `low` or at least `high`; each error has probability `error` at most.

    Parameters
    ----------
    agents : Agents
        If fewer are left than the test of fixed size needs (`people_needed`), nobody is asked and a `PrivacyError` is
        raised.
    question : Question
        With value 2 * loss - 1, such as `LossQuestion`.
    low, high : float
        0 <= low < high <= 1. If the loss lies in between, either decision is right.
    error : float
        In (0, 0.5).
    sequential : bool, default=True
        Stop as soon as the answers suffice. This takes about a third of the fixed test's people if the loss is `low` or
        `high`, and never more than the fixed test at a quarter of the error. If fewer people than that are left, or if
        False, the fixed test with `people_needed` people is used.
    batch : int, optional
        How many people the sequential test asks at a time. Default: a fiftieth of the fixed test, at least 64.

    Examples
    --------
    >>> from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
    >>> from dpadapt.hybrid.agents import SimulatedAgents
    >>> X = np.linspace(-1, 1, 5000).reshape(-1, 1)
    >>> agents = SimulatedAgents(X, (X[:, 0] > 0.2).astype(int), 1.0, random_state=0)
    >>> decide(agents, LossQuestion(LinearHypothesis([1.0])), 0.16, 0.32, error=1e-3).accepted
    True
    """
    low, high, error = _checked(low, high, error)
    size, most = _fixed(low, high, error, agents.epsilon)
    left = agents.available
    if left < size:
        raise PrivacyError(
            f"a test of a loss of {low:.4g} against {high:.4g} with error {error:.3g} needs {size} people who have not "
            f"been asked before, but {left} are left. Nobody was asked. Bring more people, or allow a larger error or "
            f"gap."
        )
    tally = _Tally(agents, question)
    bounds = _bounds(low, high, error, agents.epsilon)
    if not sequential or left < bounds.cut:
        tally.ask_until(size)
        return tally.verdict(tally.plus <= most)
    step = max(64, size // 50) if batch is None else checks.count(batch, "batch")
    while tally.answered < bounds.cut:
        tally.ask_until(min(tally.answered + step, bounds.cut))
        ratio = tally.plus * bounds.plus + (tally.answered - tally.plus) * bounds.minus
        if not bounds.accept < ratio < bounds.reject:
            return tally.verdict(ratio <= bounds.accept)
    return tally.verdict(tally.plus <= bounds.most)


class _Tally:
    """The counts of one test so far."""

    def __init__(self, agents: Agents, question: Question) -> None:
        self._agents, self._question, self._before = agents, question, agents.asked
        self.answered = self.plus = 0

    def ask_until(self, answers: int) -> None:
        """Ask until this many have answered; people who don't answer are replaced by others."""
        while self.answered < answers:
            n = answers - self.answered
            new: Answers = self._agents.ask(self._question, n)
            if not len(new) and n >= _SILENT_BATCH:
                raise PrivacyError(f"none of {n} people answered, so the test was stopped. Can they be reached?")
            self.answered += len(new)
            self.plus += int(np.count_nonzero(new.bits == 1))

    def verdict(self, accepted: bool) -> Verdict:
        """Return the result, with the mean loss of all answers."""
        mean = bit_scale(self._agents.epsilon) * (2 * self.plus / self.answered - 1)
        return Verdict(bool(accepted), (1 + mean) / 2, self._agents.asked - self._before)


def _checked(low: float, high: float, error: float) -> tuple[float, float, float]:
    """Return the terms of a test as floats, or raise a ValueError."""
    for name, value in (("low", low), ("high", high)):
        if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be a loss in [0, 1], got {value!r}.")
    if not low < high:
        raise ValueError(f"low must be less than high, got {low!r} and {high!r}.")
    if not isinstance(error, float | np.number) or not 0 < error < 0.5:
        raise ValueError(f"error must lie in (0, 0.5), got {error!r}.")
    return float(low), float(high), float(error)


def _plus(loss: float, epsilon: float) -> float:
    """Return the probability of a bit of +1; that of -1 is `_plus(1 - loss)`."""
    flipped = 1.0 / (1.0 + math.exp(min(epsilon, 700.0)))
    return (1.0 - loss) * flipped + loss * (1.0 - flipped)


@lru_cache(maxsize=256)
def _fixed(low: float, high: float, error: float, epsilon: float) -> tuple[int, int]:
    """Return the size of the smallest fixed test, and the largest number of +1 bits with which it accepts."""
    from scipy.stats import binom

    p, q = _plus(low, epsilon), _plus(high, epsilon)

    def test_of(sizes: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return whether a test of each size keeps both errors, and the most +1 bits with which it accepts."""
        # The smallest count that is exceeded under "low" with probability `error` at most. The probability of +1 grows
        # with the loss, so that `low` and `high` are the worst cases of their sides.
        most = np.asarray(binom.isf(error, sizes, p))
        return np.asarray(binom.cdf(most, sizes, q) <= error), most

    few, enough = 0, 1
    while not test_of(np.array([enough]))[0][0]:
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if test_of(np.array([middle]))[0][0] else (middle, enough)
    # Counts are whole numbers, so that one person more can make a worse test: try the sizes just below, too.
    sizes = np.arange(max(1, enough - 4 * math.isqrt(enough) - 50), enough + 1)
    good, most = test_of(sizes)
    smallest = int(np.argmax(good))
    return int(sizes[smallest]), int(most[smallest])


@dataclass(frozen=True)
class _Bounds:
    """A sequential test.

    `plus` and `minus` are what a bit of +1 or -1 adds to the log-likelihood ratio of `high` over `low`. The test stops
    where the ratio leaves (`accept`, `reject`), or after `cut` answers, when it accepts up to `most` bits of +1.
    """

    plus: float
    minus: float
    accept: float
    reject: float
    cut: int
    most: int


@lru_cache(maxsize=256)
def _bounds(low: float, high: float, error: float, epsilon: float) -> _Bounds:
    """Return the sequential test whose two errors are at most `error` each."""
    plus = math.log(_plus(high, epsilon) / _plus(low, epsilon))
    minus = math.log(_plus(1 - high, epsilon) / _plus(1 - low, epsilon))
    # Under "low" the likelihood ratio is a martingale of mean 1 (a supermartingale at a smaller loss). By Ville's
    # inequality it ever reaches 1 / a with probability a at most, whatever the batches are; so does its inverse under
    # "high". These are Wald's bounds except for a factor 1 - error, on the safe side. If neither is reached, the fixed
    # test with the remaining share of the error decides, and the two shares add up to `error`.
    bound = -math.log((1 - CUT_SHARE) * error)
    return _Bounds(plus, minus, -bound, bound, *_fixed(low, high, CUT_SHARE * error, epsilon))
