"""`Agents`: people who trust only their own device, and answer one question each with one noisy bit."""

import math
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.questions import Question
from dpadapt.hybrid.reception import Asked, Reception


def bit_scale(epsilon: float) -> float:
    """Return (e^epsilon + 1) / (e^epsilon - 1): what a noisy bit is multiplied by to be unbiased."""
    # The same number, without overflow.
    return 1.0 / math.tanh(epsilon / 2.0)


@dataclass(frozen=True, eq=False)
class Answers:
    """The bits that came back.

    Parameters
    ----------
    bits : ndarray of int8
        -1 or +1, of those who answered. They may be fewer than were asked.
    coins : ndarray of int64
        Their public coins, one number or row each.
    epsilon : float
        What an answer costs the person who gives it; delta is 0.
    """

    bits: NDArray[np.int8] = field(repr=False)
    coins: NDArray[np.int64] = field(repr=False)
    epsilon: float

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def scale(self) -> float:
        """`scale * bits` is unbiased for the value, with a variance of `scale`² at most."""
        return bit_scale(self.epsilon)

    def mean(self) -> float:
        """Return an unbiased estimate of the mean value."""
        if not len(self.bits):
            raise ValueError("nobody answered, so there is no mean. Ask more people.")
        return self.scale * float(np.mean(self.bits, dtype=np.float64))


class Agents(ABC):
    """People who have never been asked, until they are: each answers one question, once.

    Subclasses reach the people: `_people_known`, `_coin_source`, `_prepare` and `_collect`.

    Parameters
    ----------
    epsilon : float
        What an answer costs the person who gives it. Pure: delta is 0, whatever the question.

    Attributes
    ----------
    reception : Reception
        The server's record: each question, whom it went to, the answers, and how many were refused and why.
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = _validate.positive(epsilon, "epsilon")
        self.reception = Reception()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def asked(self) -> int:
        """How many people were asked so far, whether they answered or not."""
        return self.reception.asked

    @property
    def available(self) -> int:
        """How many people are left who have never been asked. A public number."""
        return self._people_known() - self.asked

    @property
    def seeded(self) -> bool:
        """Whether noise comes from a seed, in which case there is no guarantee."""
        return False

    @property
    def n_features(self) -> int | None:
        """How many columns people's records have, where that is known before they are asked."""
        return None

    @property
    def assumption(self) -> str:
        """What a receipt that rests on their answers takes for granted."""
        return (
            f"people's answers, which each randomizes alone (epsilon = {self.epsilon:g} for each); costs add up for "
            f"whoever is a row too, or is asked elsewhere"
        )

    @property
    def warnings(self) -> list[str]:
        """What a reader of such a receipt should know."""
        return ["people's noise came from a seed: their answers have no privacy guarantee"] if self.seeded else []

    def check_columns(self, n_features: int) -> None:
        """Refuse people whose records are known to have other columns, before anything is spent."""
        if self.n_features not in (None, n_features):
            raise ValueError(f"agents must have the private rows' {n_features} columns, got {self.n_features}.")

    @property
    def record(self) -> tuple[Asked, ...]:
        """What was asked so far, oldest first."""
        return self.reception.record

    def ask(self, question: Question, n: int) -> Answers:
        """Ask `n` people who have never been asked.

        Parameters
        ----------
        question : Question
        n : int
            How many. If fewer are left nobody is asked.

        Returns
        -------
        Answers
            Of those who answered; people who don't are not asked again.
        """
        if not isinstance(question, Question):
            raise TypeError(f"question must be a Question, got {type(question).__name__}.")
        n = _validate.count(n, "n")
        if self._pid != os.getpid():
            raise PrivacyError(
                "agents can't be shared by processes: each would ask the same people. Ask in one process."
            )
        with self._lock:
            left = self.available
            if n > left:
                raise PrivacyError(
                    f"n={n} people were to be asked, but {left} are left who have never been. Nobody was asked. Ask "
                    f"fewer, or bring more people: each answers once."
                )
            coins = np.asarray(question.coins(n, self._coin_source()), dtype=np.int64)
            if coins.ndim not in (1, 2) or len(coins) != n:
                raise ValueError(f"coins must give a coin, or row of coins, per person: {n}; got shape {coins.shape}.")
            self._prepare(question)
            # From here on they count as asked, whatever happens: a crash must not lead to a second answer.
            ticket = self.reception.open(question, n)
            try:
                self._collect(question, ticket, coins)
            finally:
                closed = self.reception.close(ticket)
        return Answers(closed.bits, coins[closed.answered], self.epsilon)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: the copy would ask the same people again."""
        raise PrivacyError(
            "agents can't be copied or sent to another process: the copy would ask the same people again. Pass the "
            "agents themselves, with n_jobs=1."
        )

    @abstractmethod
    def _prepare(self, question: Question) -> None:
        """Refuse a question that can't be asked, before anybody counts as asked."""

    @abstractmethod
    def _coin_source(self) -> np.random.Generator:
        """Return the generator of public coins."""

    @abstractmethod
    def _people_known(self) -> int:
        """Return how many people there are, asked or not."""

    @abstractmethod
    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        """Put the question to the people of `ticket` and hand what comes back to `reception.receive`."""
