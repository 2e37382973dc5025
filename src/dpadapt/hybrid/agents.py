"""`Agents`: people who trust only their own device, and answer one question each with one noisy bit."""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.device import noisy_bits
from dpadapt.hybrid.questions import Question
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.randomness import random_source

# `Reception`: the server's record of questions, people and answers, which refuses what it did not ask for.


@dataclass(frozen=True, eq=False)
class Asked:
    """One question, whom it went to, and what came back.

    Parameters
    ----------
    ticket : int
        The number of the question.
    question : Question
    people : range
        Those asked. People are numbered in the order in which they are asked.
    answered : ndarray of int64
        Positions in `people` of those whose answer was accepted.
    bits : ndarray of int8
        Their answers.
    """

    ticket: int
    question: Question = field(repr=False)
    people: range
    answered: NDArray[np.int64] = field(repr=False)
    bits: NDArray[np.int8] = field(repr=False)


class Reception:
    """Who was asked what, and what was answered: at most one answer per person, while the question is open.

    Attributes
    ----------
    refused : Counter
        How many answers were refused, by reason: from a stranger (somebody not asked this), late (the question was
        closed), malformed (not a bit), duplicate (a second answer).
    """

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self._record: list[Asked] = []
        self._asked = 0
        self._open: dict[int, tuple[Question, range, NDArray[np.int8]]] = {}
        self._tickets: list[range] = []

    @property
    def asked(self) -> int:
        """How many people were asked so far."""
        return self._asked

    @property
    def record(self) -> tuple[Asked, ...]:
        """The questions that are closed, oldest first."""
        return tuple(self._record)

    def open(self, question: Question, n: int) -> int:
        """Mark the next `n` people as asked and return the ticket under which they may answer."""
        people = range(self._asked, self._asked + n)
        self._asked = people.stop
        self._tickets.append(people)
        ticket = len(self._tickets) - 1
        self._open[ticket] = question, people, np.zeros(n, dtype=np.int8)
        return ticket

    def people(self, ticket: int) -> range:
        """Return who was asked under `ticket`."""
        return self._tickets[ticket]

    def receive(self, ticket: int, people: NDArray[np.int64], bits: NDArray[Any]) -> None:
        """Accept each first answer of -1 or +1 by somebody asked, while the question is open; count the others."""
        if not 0 <= ticket < len(self._tickets):
            self.refused["stranger"] += len(people)
            return
        asked = self._tickets[ticket]
        known = (people >= asked.start) & (people < asked.stop)
        self._refuse("stranger", ~known)
        if ticket not in self._open:
            self._refuse("late", known)
            return
        received = self._open[ticket][2]
        well_formed = (bits == 1) | (bits == -1)
        self._refuse("malformed", known & ~well_formed)
        at = np.flatnonzero(known & well_formed)
        position = people[at] - asked.start
        # Of several answers by one person in this batch the first counts: assigned backwards, it is written last.
        first = np.zeros(len(asked), dtype=np.int64)
        first[position[::-1]] = np.arange(len(at))[::-1]
        fresh = (received[position] == 0) & (first[position] == np.arange(len(at)))
        self._refuse("duplicate", ~fresh)
        received[position[fresh]] = bits[at[fresh]]

    def close(self, ticket: int) -> Asked:
        """Close a question and return what came back."""
        question, people, received = self._open.pop(ticket)
        answered = np.flatnonzero(received)
        closed = Asked(ticket, question, people, answered, received[answered])
        self._record.append(closed)
        return closed

    def _refuse(self, reason: str, which: NDArray[np.bool_]) -> None:
        if count := int(np.count_nonzero(which)):
            self.refused[reason] += count


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
        self.epsilon = checks.positive(epsilon, "epsilon")
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
        n = checks.count(n, "n")
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


# `SimulatedAgents`: millions of people in one process, each row of a table a person's own record.


_BLOCK = 1 << 14


class SimulatedAgents(Agents):
    """People simulated from rows: each computes its value, rounds it at random, and sends one noisy bit.

    Privacy
    -------
    Protects one person's record (replace-one) with epsilon, delta = 0, against everybody: the bit is randomized before
    it leaves the person. Each person answers one question, whatever the questions are. Simulated people are only as
    protected as the table they come from: whoever runs this holds all rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,), optional
        Labels. Default: zeros, for questions that don't look at them.
    epsilon : float
        What an answer costs the person who gives it.
    n_people : int, optional
        Default: each row is a person, in random order. Another number: that many people, each drawn from the rows
        with replacement; the rows are then the whole population.
    response_rate : float, default=1.0
        Share of the people asked who answer, at random.
    random_state : int, optional
        For tests only: seeds everything, so that there is no guarantee; receipts of what is fitted with them say so.

    Examples
    --------
    >>> from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
    >>> X = np.linspace(-1, 1, 5000).reshape(-1, 1)
    >>> agents = SimulatedAgents(X, (X[:, 0] > 0.2).astype(int), 1.0, random_state=0)
    >>> answers = agents.ask(LossQuestion(LinearHypothesis([1.0])), 4000)
    >>> bool(abs((1 + answers.mean()) / 2 - 0.1) < 0.06)  # a tenth of the people lie between 0 and 0.2
    True
    >>> agents.asked, agents.available
    (4000, 1000)
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        epsilon: float,
        *,
        n_people: int | None = None,
        response_rate: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        super().__init__(epsilon)
        self._X = np.asarray(X)
        if self._X.ndim != 2 or not len(self._X):
            raise ValueError(f"X must have one row per person, at least one; got {self._X.ndim} axes, {self._X.size}.")
        self._y = np.zeros(len(self._X)) if y is None else np.asarray(y)
        if self._y.shape != (len(self._X),):
            raise ValueError(f"y must have one label per row of X, {len(self._X)} in all, got shape {self._y.shape}.")
        self._drawn = n_people is not None
        self._n_people = len(self._X) if n_people is None else checks.count(n_people, "n_people")
        self._response_rate = checks.unit(response_rate, "response_rate")
        self._random = random_source(random_state)
        self._order: NDArray[np.int64] | None = None

    @property
    def seeded(self) -> bool:
        """Whether a `random_state` was given."""
        return self._random.seeded

    @property
    def n_features(self) -> int:
        """How many columns the rows have."""
        return int(self._X.shape[1])

    def _coin_source(self) -> np.random.Generator:
        return self._random.generator

    def _people_known(self) -> int:
        return self._n_people

    def _prepare(self, question: Question) -> None:
        """Any question can be asked here."""

    def _rows(self, people: range) -> NDArray[np.int64]:
        generator = self._random.generator
        if self._drawn:
            return generator.integers(len(self._X), size=len(people))
        if self._order is None:
            self._order = generator.permutation(len(self._X))
        return self._order[people.start : people.stop]

    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        people = self.reception.people(ticket)
        rows = self._rows(people)
        values = np.empty(len(people))
        # In blocks, so that the rows of a million people are never copied at once.
        for start in range(0, len(people), _BLOCK):
            some = rows[start : start + _BLOCK]
            # A warning would tell of an extreme row.
            with np.errstate(all="ignore"):
                found = np.asarray(question.value(self._X[some], self._y[some], coins[start : start + _BLOCK]))
            if found.shape != some.shape:
                raise ValueError(f"value must give one number per person, {len(some)}, got shape {found.shape}.")
            values[start : start + _BLOCK] = found
        generator = self._random.generator
        seed = int(generator.integers(2**63)) if self._random.seeded else None
        # These people's own ledgers, which are alike: one answer fills them. The next question goes to other people.
        ledger = Ledger(self.epsilon, adjacency=Adjacency.REPLACE_ONE, random_state=seed)
        bits = noisy_bits(values, self.epsilon, ledger, generator)
        numbers = np.arange(people.start, people.stop)
        if self._response_rate < 1.0:
            answering = generator.random(len(people)) < self._response_rate
            numbers, bits = numbers[answering], bits[answering]
        self.reception.receive(ticket, numbers, bits)
