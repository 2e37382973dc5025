"""Deciding by fresh people's bits whether a mean loss is small: a test of fixed size, and a sequential one.

Each bit is +1 with probability 1/2 + (2 * loss - 1) / (2 * scale), independently, so that counts are exactly binomial:
there is no normal approximation in either test, and errors as small as 1e-9 mean what they say.
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

# The share of the error that the sequential test keeps for being cut.
CUT_SHARE = 0.25
# A batch this large in which nobody answers means that nobody can be reached.
_SILENCE = 32


@dataclass(frozen=True)
class Verdict:
    """What a test decided.

    Parameters
    ----------
    accepted : bool
        Whether "loss <= low" was decided, rather than "loss >= high".
    estimate : float
        The mean loss of those who answered. Noise can carry it outside [0, 1]; after a sequential test it leans to the
        side that was decided.
    asked : int
        How many people were asked, whether they answered or not.
    """

    accepted: bool
    estimate: float
    asked: int


def people_needed(low: float, high: float, error: float, epsilon: float) -> int:
    """Return how many answers tell "loss <= low" from "loss >= high", each wrongly with probability `error` at most.

    Parameters
    ----------
    low, high : float
        0 <= low < high <= 1. In between either decision is right.
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
    """Decide whether the mean loss is at most `low` or at least `high`, each wrongly with probability `error` at most.

    Parameters
    ----------
    agents : Agents
        Enough must be left for the test of fixed size, `people_needed`; else nobody is asked.
    question : Question
        Whose value is 2 * loss - 1, such as `LossQuestion`.
    low, high : float
        0 <= low < high <= 1. If the loss lies in between, either may be decided.
    error : float
        In (0, 0.5).
    sequential : bool, default=True
        Stop as soon as the answers suffice: a third or so of the fixed test's people where the loss is `low` or `high`,
        and never more than the fixed test of a quarter of the error takes. Fewer left than that: the fixed test. False:
        always the fixed test, of `people_needed` people.
    batch : int, optional
        How many are asked at a time by the sequential test. Default: a fiftieth of the fixed test, at least 64.

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
            f"telling a loss of {low:.4g} from {high:.4g} with error {error:.3g} needs {size} people who were never "
            f"asked, but {left} are left. Nobody was asked. Bring more people, or allow a larger error or gap."
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
    """The bits of one test, as they come in."""

    def __init__(self, agents: Agents, question: Question) -> None:
        self._agents, self._question, self._before = agents, question, agents.asked
        self.answered = self.plus = 0

    def ask_until(self, answers: int) -> None:
        """Ask until this many have answered; those who don't are replaced by others."""
        while self.answered < answers:
            n = answers - self.answered
            got: Answers = self._agents.ask(self._question, n)
            if not len(got) and n >= _SILENCE:
                raise PrivacyError(f"none of {n} people answered, so the test was stopped. Are they within reach?")
            self.answered += len(got)
            self.plus += int(np.count_nonzero(got.bits == 1))

    def verdict(self, accepted: bool) -> Verdict:
        mean = bit_scale(self._agents.epsilon) * (2 * self.plus / self.answered - 1)
        return Verdict(bool(accepted), (1 + mean) / 2, self._agents.asked - self._before)


def _checked(low: float, high: float, error: float) -> tuple[float, float, float]:
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
    lie = 1.0 / (1.0 + math.exp(min(epsilon, 700.0)))
    return (1.0 - loss) * lie + loss * (1.0 - lie)


@lru_cache(maxsize=256)
def _fixed(low: float, high: float, error: float, epsilon: float) -> tuple[int, int]:
    """Return the size of the smallest fixed test and the most bits of +1 with which it accepts."""
    from scipy.stats import binom

    p, q = _plus(low, epsilon), _plus(high, epsilon)

    def tried(sizes: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        # The fewest bits that may be exceeded under "low" with probability `error` at most. A smaller loss has fewer
        # bits of +1 and a larger one more, so `low` and `high` are the hardest of their sides.
        most = np.asarray(binom.isf(error, sizes, p))
        return np.asarray(binom.cdf(most, sizes, q) <= error), most

    few, enough = 0, 1
    while not tried(np.array([enough]))[0][0]:
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if tried(np.array([middle]))[0][0] else (middle, enough)
    # Counts are whole, so that now and then one person more makes a worse test: look at the sizes just below too.
    sizes = np.arange(max(1, enough - 4 * math.isqrt(enough) - 50), enough + 1)
    fits, most = tried(sizes)
    at = int(np.argmax(fits))
    return int(sizes[at]), int(most[at])


@dataclass(frozen=True)
class _Bounds:
    """The sequential test: what each bit adds to the log-likelihood ratio of high over low, and when to stop."""

    plus: float
    minus: float
    accept: float
    reject: float
    cut: int
    most: int


@lru_cache(maxsize=256)
def _bounds(low: float, high: float, error: float, epsilon: float) -> _Bounds:
    """Return the sequential test whose error is `error` at most, on either side."""
    plus = math.log(_plus(high, epsilon) / _plus(low, epsilon))
    minus = math.log(_plus(1 - high, epsilon) / _plus(1 - low, epsilon))
    # Under "low" the likelihood ratio is a martingale of mean 1 (a supermartingale at a smaller loss). By Ville's
    # inequality it ever reaches 1 / a with probability a at most, however the batches fall; so does its inverse under
    # "high". These are Wald's bounds but for a factor 1 - error, on the safe side. If neither is reached the fixed test
    # of the remaining share decides, and the two errors add up to `error`.
    bound = -math.log((1 - CUT_SHARE) * error)
    return _Bounds(plus, minus, -bound, bound, *_fixed(low, high, CUT_SHARE * error, epsilon))
