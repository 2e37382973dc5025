"""`Reception`: the server's record of questions, people and answers, which refuses what it did not ask for."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.questions import Question


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
