"""The vector question: a mean of bounded vectors over people, one bit from each.

Each person is given one variable. For a number the bit is about that number; for a category it is about a public random
row of a Hadamard matrix, so that all levels are learned from the same people. The noise then grows with the number of
variables, not with the number of columns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Answers
from dpadapt.hybrid.public_map import LIMIT, PublicMap
from dpadapt.hybrid.questions import Question

Array = NDArray[np.float64]


class MappedQuestion(Question):
    """A question about the mapped row; subclasses are dataclasses of plain fields, the first of which is the map."""

    where: PublicMap

    def message(self) -> dict[str, Any]:
        """Return plain numbers and arrays that describe the question."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **plain, "where": self.where.message()}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Return the question that `message` describes."""
        plain = {name: value for name, value in message.items() if name != "kind"}
        return cls(**{**plain, "where": PublicMap.from_message(plain["where"])})


@dataclass(frozen=True, eq=False)
class Shape:
    """How the variables of a map are divided among people."""

    where: PublicMap

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each variable; the constant comes last."""
        where = self.where
        return (*((column,) for column in where.numbers), *where.groups, (where.n_columns,))

    @cached_property
    def limits(self) -> Array:
        """The most that each variable's entries can be."""
        where = self.where
        return np.array([LIMIT] * len(where.numbers) + [1.0] * (len(where.groups) + 1))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each variable's Hadamard matrix: 1 for a number."""
        return np.array([1 << (len(columns) - 1).bit_length() for columns in self.columns])

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """The coin of each variable's first Hadamard row; the others follow it."""
        return np.concatenate([[0], np.cumsum(self.sizes)])


@dataclass(frozen=True, eq=False)
class VectorQuestion(MappedQuestion):
    """What is the mean of rho times your row? rho is 1, or the residual of a model, y - p.

    Parameters
    ----------
    where : PublicMap
    coef : ndarray of shape (n_columns + 1,), optional
        The model whose residual is meant, constant last. Default: rho = 1.
    positive : object
        The label that counts as 1.
    """

    where: PublicMap
    coef: Array | None = None
    positive: Any = 1
    kind = "vector"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which variable, and which Hadamard row of it, each person is asked about: no data is involved."""
        shape = Shape(self.where)
        shares = np.cumsum(shape.limits**2 / self.where.reach)
        variables = np.searchsorted(shares[:-1], random.random(n), side="right")
        return np.asarray(shape.first[variables] + random.integers(0, shape.sizes[variables]))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z = self.where.transform(X)
        shape, found = Shape(self.where), np.ones(len(Z))
        for variable, columns in enumerate(shape.columns[:-1]):
            first, end = shape.first[variable], shape.first[variable + 1]
            mine = np.flatnonzero((coins >= first) & (coins < end))
            # One entry of a category is not 0, so its sum with any signs is at most that: 1, or 2 for a number.
            signs = _signs(coins[mine] - first, np.arange(len(columns)))
            found[mine] = np.sum(signs * Z[mine][:, columns], axis=1) / shape.limits[variable]
        if self.coef is not None:
            found *= residual(Z, y, self.coef, self.positive)
        return found

    def estimate(self, answers: Answers) -> Array:
        """Return the mean vector, constant last: unbiased, and with the same noise in every entry."""
        shape = Shape(self.where)
        sums = answers.scale * np.bincount(answers.coins, weights=answers.bits, minlength=shape.first[-1])
        counts = np.bincount(answers.coins, minlength=shape.first[-1])
        found = np.zeros(self.where.n_columns + 1)
        for variable, columns in enumerate(shape.columns):
            mine = slice(shape.first[variable], shape.first[variable + 1])
            # Signs of two different levels cancel over the random rows of the matrix.
            signs = _signs(np.arange(shape.sizes[variable]), np.arange(len(columns)))
            found[list(columns)] = shape.limits[variable] * (sums[mine] @ signs) / max(1, counts[mine].sum())
        return found

    def noise(self, n: int, scale: float) -> float:
        """Return the standard deviation of each entry of the estimate from `n` people, at most."""
        return scale * math.sqrt(self.where.reach / max(1, n))


def residual(Z: Array, y: Any, coef: Array, positive: Any) -> Array:
    """Return 1 or 0 for the label, less the probability of 1."""
    return np.asarray((np.asarray(y) == positive) - probability(scores(Z, coef)))


def scores(Z: Array, coef: Array) -> Array:
    """Return each row times the coefficients, the last of which is the constant's."""
    return np.asarray(Z @ coef[:-1] + coef[-1])


def probability(score: Array) -> Array:
    """Return the logistic function of the scores."""
    return 0.5 + 0.5 * np.tanh(score / 2)


def _signs(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
    """Return entries of Sylvester's Hadamard matrix: (-1) to the number of bits that row and column share."""
    shared = np.bitwise_count(rows[:, None] & columns[None, :])
    return np.asarray(1.0 - 2.0 * (shared % 2))
