"""`SimulatedAgents`: millions of people in one process, each row of a table a person's own record."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.device import noisy_bits
from dpadapt.hybrid.questions import Question
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.randomness import random_source

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
        self._n_people = len(self._X) if n_people is None else _validate.count(n_people, "n_people")
        self._response_rate = _validate.unit(response_rate, "response_rate")
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
