"""`Agents`: people who trust only their own device and answer one question each, once, with one noisy bit.

`noisy_bits` turns values into bits by randomized response, and `Answers` turns bits back into unbiased means.
`Reception` is the server's record: it accepts at most one answer per person. `Agents` is the interface through which
people are asked; `SimulatedAgents` implements it in one process, `FlowerAgents` (`flower.py`) over a network.
"""

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
from dpadapt.hybrid.questions import Question
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import responses
from dpadapt.mechanisms.choices import RandomizedResponse
from dpadapt.mechanisms.randomness import random_source

# People whose values are computed at once. Larger blocks copy more rows at a time; smaller ones loop more often.
# Chosen by hand.
_PEOPLE_PER_BLOCK = 1 << 14


def noisy_bits(values: ArrayLike, epsilon: float, ledger: Ledger, random: np.random.Generator) -> NDArray[np.int8]:
    """Round each person's value to a sign at random, then release the signs by randomized response.

    The mean of a bit is the value divided by `bit_scale(epsilon)`. The ledger is each person's own: one may stand for
    many people who have not answered yet, because all are charged the same.
    """
    numbers = np.asarray(values, dtype=np.float64)
    numbers = np.clip(np.where(np.isfinite(numbers), numbers, 0.0), -1.0, 1.0)
    # P(up) = (1 + value) / 2: never at -1 and always at 1, because random() lies in [0, 1).
    up = random.random(numbers.shape) < (1.0 + numbers) / 2.0
    # Claim: P(bit) / P'(bit) <= e^epsilon for each person. A person's record decides that person's entry alone, and an
    # entry is one of two answers of `RandomizedResponse`.
    released = ledger.release(
        RandomizedResponse(epsilon), responses(up, 2), label="one bit about the person's own record"
    )
    return np.asarray(2 * released - 1, dtype=np.int8)


def bit_scale(epsilon: float) -> float:
    """Return (e^epsilon + 1) / (e^epsilon - 1): what a noisy bit is multiplied by to be unbiased."""
    # coth(epsilon / 2) is the same number and does not overflow.
    return 1.0 / math.tanh(epsilon / 2.0)


@dataclass(frozen=True, eq=False)
class Answers:
    """The bits of the people who answered; they may be fewer than were asked.

    Parameters
    ----------
    bits : ndarray of int8
        Each -1 or +1.
    coins : ndarray of int64
        The public coin, or row of coins, of each person who answered.
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
        """`scale * bits` is an unbiased estimate of the value, with a variance of at most ``scale²``."""
        return bit_scale(self.epsilon)

    def mean(self) -> float:
        """Return an unbiased estimate of the mean value."""
        if not len(self.bits):
            raise ValueError("nobody answered, so there is no mean. Ask more people.")
        return self.scale * float(np.mean(self.bits, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Asked:
    """One closed question: who was asked, and which answers were accepted.

    Parameters
    ----------
    ticket : int
        The number of the question.
    question : Question
    people : range
        The people who were asked. People are numbered in the order in which they are asked.
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
    """The server's record of questions, people and answers: at most one answer per person, while a question is open.

    Attributes
    ----------
    refused : Counter
        How many answers were refused, by reason: "stranger" (from somebody who was not asked this question), "late"
        (the question was closed), "malformed" (not a bit), "duplicate" (a second answer), "unreadable" (the transport
        could not read the reply).
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
        """Return the people who were asked under `ticket`."""
        return self._tickets[ticket]

    def receive(self, ticket: int, people: NDArray[np.int64], bits: NDArray[Any]) -> None:
        """Accept each first answer of -1 or +1 by somebody asked, while the question is open; count the others."""
        if not 0 <= ticket < len(self._tickets):
            self.refuse("stranger", len(people))
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
        # Of several answers by one person in this batch the first counts: in a backward assignment it is written last.
        first = np.zeros(len(asked), dtype=np.int64)
        first[position[::-1]] = np.arange(len(at))[::-1]
        fresh = (received[position] == 0) & (first[position] == np.arange(len(at)))
        self._refuse("duplicate", ~fresh)
        received[position[fresh]] = bits[at[fresh]]

    def close(self, ticket: int) -> Asked:
        """Close a question and return its record."""
        question, people, received = self._open.pop(ticket)
        answered = np.flatnonzero(received)
        closed = Asked(ticket, question, people, answered, received[answered])
        self._record.append(closed)
        return closed

    def refuse(self, reason: str, n: int = 1) -> None:
        """Count `n` answers that were refused for this reason."""
        if n:
            self.refused[reason] += n

    def _refuse(self, reason: str, which: NDArray[np.bool_]) -> None:
        self.refuse(reason, int(np.count_nonzero(which)))


class Agents(ABC):
    """The people of a population, each of whom answers one question, once.

    Subclasses say how people are reached, by `_people_known`, `_coin_source`, `_prepare` and `_collect`.

    Parameters
    ----------
    epsilon : float
        What an answer costs the person who gives it. Pure: delta is 0, whatever the question.

    Attributes
    ----------
    reception : Reception
        The server's record: each question, who was asked, the answers, and how many answers were refused and why.
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
        """How many people have not been asked yet. A public number."""
        return self._people_known() - self.asked

    @property
    def seeded(self) -> bool:
        """Whether noise comes from a seed, in which case there is no guarantee."""
        return False

    @property
    def n_features(self) -> int | None:
        """How many columns people's records have, if that is known before they are asked."""
        return None

    @property
    def assumption(self) -> str:
        """What a receipt of a fit that used these people's answers assumes."""
        return (
            f"people's answers, each randomized on the person's device (epsilon = {self.epsilon:g} for each); costs "
            f"add up for a person who is also a private row or is asked elsewhere"
        )

    @property
    def warnings(self) -> list[str]:
        """What a reader of such a receipt must be warned of."""
        return ["people's noise came from a seed: their answers have no privacy guarantee"] if self.seeded else []

    def check_columns(self, n_features: int) -> None:
        """Raise an error if people's records are known to have another number of columns; nothing is spent."""
        if self.n_features not in (None, n_features):
            raise ValueError(f"agents must have the private rows' {n_features} columns, got {self.n_features}.")

    @property
    def record(self) -> tuple[Asked, ...]:
        """The questions that are closed, oldest first."""
        return self.reception.record

    def ask(self, question: Question, n: int) -> Answers:
        """Ask `n` people who have not been asked before.

        Parameters
        ----------
        question : Question
        n : int
            How many. If fewer are left, nobody is asked and a `PrivacyError` is raised.

        Returns
        -------
        Answers
            The answers of those who replied; people who don't reply are not asked again.
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
                    f"n={n} people were to be asked, but only {left} have not been asked before. Nobody was asked. "
                    f"Ask fewer, or bring more people: each answers once."
                )
            coins = np.asarray(question.coins(n, self._coin_source()), dtype=np.int64)
            if coins.ndim not in (1, 2) or len(coins) != n:
                raise ValueError(f"coins must have a coin, or row of coins, per person: {n}; got shape {coins.shape}.")
            self._prepare(question)
            # From here on these people count as asked, whatever happens: a crash must not lead to a second answer.
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
        """Raise an error if the question can't be asked, before anybody counts as asked."""

    @abstractmethod
    def _coin_source(self) -> np.random.Generator:
        """Return the generator of public coins."""

    @abstractmethod
    def _people_known(self) -> int:
        """Return how many people there are, asked or not."""

    @abstractmethod
    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        """Put the question to the people of `ticket` and pass their answers to `reception.receive`."""


class SimulatedAgents(Agents):
    """People simulated from the rows of a table: each computes a value, rounds it at random, and sends one noisy bit.

    **Privacy.** Protects one person's record (replace-one) with epsilon, delta = 0, against everybody: the bit is
    randomized before it leaves the person. Each person answers one question, whatever the questions are. Simulated
    people are only as protected as the table that they come from: whoever runs the simulation holds all rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,), optional
        Labels. Default: zeros, for questions that don't use labels.
    epsilon : float
        What an answer costs the person who gives it.
    n_people : int, optional
        Default: each row is a person, in random order. With a number: that many people, each drawn from the rows with
        replacement; the rows are then the whole population.
    response_rate : float, default=1.0
        The probability that a person who is asked answers, independent of the record.
    random_state : int, optional
        For tests only: seeds everything, which voids the guarantee; receipts of fits that use these people say so.

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
        try:
            self._X = np.asarray(checks.cells(X))
            if self._X.ndim == 2 and self._X.dtype.kind == "O":
                self._X = self._X.astype(np.float64)  # each cell by itself
        except (ValueError, TypeError, OverflowError):
            raise ValueError("X must have one row per person, all of them equally long.") from None
        if self._X.ndim != 2 or not len(self._X):
            raise ValueError(f"X must have one row per person, at least one; got an array of shape {self._X.shape}.")
        self._y = np.zeros(len(self._X)) if y is None else np.asarray(checks.cells(y))
        if self._y.shape != (len(self._X),):
            raise ValueError(f"y must have one label per row of X, {len(self._X)} in all, got shape {self._y.shape}.")
        self._with_replacement = n_people is not None
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

    def check_columns(self, n_features: int) -> None:
        """Raise an error if the rows have another number of columns, or hold something else than numbers."""
        super().check_columns(n_features)
        if self._X.dtype.kind not in "biuf":
            raise ValueError(f"agents must hold numbers in X, got {self._X.dtype}: no question could be computed.")

    def _coin_source(self) -> np.random.Generator:
        return self._random.generator

    def _people_known(self) -> int:
        return self._n_people

    def _prepare(self, question: Question) -> None:
        """Accept every question: nothing is sent."""

    def _rows(self, people: range) -> NDArray[np.int64]:
        """Return which row of the table is the record of each of `people`."""
        generator = self._random.generator
        if self._with_replacement:
            return generator.integers(len(self._X), size=len(people))
        if self._order is None:
            self._order = generator.permutation(len(self._X))
        return self._order[people.start : people.stop]

    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        people = self.reception.people(ticket)
        rows = self._rows(people)
        values = np.empty(len(people))
        # In blocks, so that the rows of a million people are never copied at once.
        for start in range(0, len(people), _PEOPLE_PER_BLOCK):
            block = slice(start, start + _PEOPLE_PER_BLOCK)
            some = rows[block]
            part = _values(question, self._X[some], self._y[some], coins[block])
            if part.shape != some.shape:
                raise ValueError(f"value must return one number per person, {len(some)}, got shape {part.shape}.")
            values[block] = part
        generator = self._random.generator
        seed = int(generator.integers(2**63)) if self._random.seeded else None
        # One ledger stands for each of these people's own: one answer fills it. The next question goes to others.
        ledger = Ledger(self.epsilon, adjacency=Adjacency.REPLACE_ONE, random_state=seed)
        bits = noisy_bits(values, self.epsilon, ledger, generator)
        numbers = np.arange(people.start, people.stop)
        if self._response_rate < 1.0:
            answering = generator.random(len(people)) < self._response_rate
            numbers, bits = numbers[answering], bits[answering]
        self.reception.receive(ticket, numbers, bits)


def _values(question: Question, X: NDArray[Any], y: NDArray[Any], coins: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values of some people, or raise an error that shows nothing of their records."""
    try:
        # A warning would reveal that there is an extreme row.
        with np.errstate(all="ignore"):
            return np.asarray(question.value(X, y, coins))
    except Exception as error:
        refusal = PrivacyError(
            f"{type(question).__name__} fails on people's records ({type(error).__name__}). Its own message is not "
            f"shown, as it may quote a record. Real devices would answer at random. Try it on made-up records."
        )
    # Raised outside the handler: the original error may quote a record, and would be kept as the context of this one.
    raise refusal
