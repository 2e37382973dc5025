"""Questions about a model's score on one's own row: how wrong, how curved, which of two models is right."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt.hybrid.agents import Answers
from dpadapt.hybrid.questions import Question

# The public map: raw columns as bounded numbers, the same on the curator's side and on every person's device.
#
# If one side clipped and the other did not, the clipping would look like a shift between the two populations.


Array = NDArray[np.float64]

# A column in its declared range becomes a number up to this: about two standard deviations, if the range is such.
LIMIT = 2.0
# Rows longer than this many typical lengths are scaled down.
_LONGEST = 1.2


@dataclass(frozen=True, eq=False)
class PublicMap:
    """Columns as features: numbers are brought to [-2, 2] by their declared range, categories are groups of 0s and 1s.

    Parameters
    ----------
    low, high : ndarray of shape (n_columns,)
        The declared range of each column; not used for columns of a group.
    groups : tuple of tuple of int
        Columns that belong together as the indicators of one category.
    """

    low: Array
    high: Array
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def n_columns(self) -> int:
        """How many features a row has, the constant 1 at its end not counted."""
        return len(self.low)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The columns that stand alone."""
        grouped = {column for group in self.groups for column in group}
        return tuple(column for column in range(self.n_columns) if column not in grouped)

    @property
    def n_features(self) -> int:
        """How many variables there are; a category counts once, however many columns it has."""
        return len(self.numbers) + len(self.groups)

    @property
    def max_norm(self) -> float:
        """The most a row can be long, its constant 1 included."""
        return _LONGEST * math.sqrt(self.n_features + 1)

    @property
    def reach(self) -> float:
        """The sum of the squared limits of all variables and the constant: what a vector question has to divide."""
        return LIMIT**2 * len(self.numbers) + len(self.groups) + 1

    def transform(self, X: ArrayLike) -> Array:
        """Return the features of each row, without the constant; a row that is not finite becomes nan."""
        X = np.asarray(X, dtype=np.float64)
        with np.errstate(all="ignore"):
            finite = np.isfinite(np.einsum("ij,ij->i", X, X))
            numbers = list(self.numbers)
            half = (self.high[numbers] - self.low[numbers]) / 2
            found = np.zeros_like(X)
            found[:, numbers] = np.clip((X[:, numbers] - self.low[numbers] - half) * (LIMIT / half), -LIMIT, LIMIT)
            for group in self.groups:
                part = X[:, group]
                level = np.argmax(part, axis=1)
                found[np.arange(len(X)), np.asarray(group)[level]] = part[np.arange(len(X)), level] > 0.5
            # |row|² + 1 <= max_norm²: the constant is not scaled, so that sums of rows have means.
            longest = math.sqrt(self.max_norm**2 - 1)
            lengths = np.sqrt(np.einsum("ij,ij->i", found, found))
            found *= np.minimum(1.0, longest / np.maximum(lengths, 1e-300))[:, None]
        found[~finite] = np.nan
        return found

    def highest(self, coef: Array) -> float:
        """Return the most that coef'row can be over all rows there can be (a bound), constant not included."""
        total = LIMIT * float(np.abs(coef[list(self.numbers)]).sum())
        return total + sum(max(0.0, float(coef[list(group)].max())) for group in self.groups)

    def message(self) -> dict[str, Any]:
        """Return what a device needs to apply the map."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "groups": [list(group) for group in self.groups]}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "PublicMap":
        """Return the map that `message` describes."""
        groups = tuple(tuple(int(column) for column in group) for group in message["groups"])
        return cls(np.asarray(message["low"]), np.asarray(message["high"]), groups)


def public_map(n_columns: int, bounds: Any, groups: Sequence[Sequence[int]] | None) -> PublicMap:
    """Return the map that `bounds` and `groups` declare, or refuse them.

    Examples
    --------
    >>> where = public_map(3, (0, 10), [[1, 2]])
    >>> where.transform([[5.0, 0.0, 1.0], [6.0, 1.0, 0.0]])
    array([[0. , 0. , 1. ],
           [0.4, 1. , 0. ]])
    """
    try:
        ranges = np.asarray((-1.0, 1.0) if bounds is None else bounds, dtype=np.float64)
        ranges = np.broadcast_to(ranges, (n_columns, 2))
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be a pair (low, high), or one pair for each of {n_columns} columns.") from None
    low, high = ranges[:, 0].copy(), ranges[:, 1].copy()
    if not (np.isfinite(high - low) & (high > low)).all():
        raise ValueError("bounds must be finite, low below high. Declare the range that most rows lie in.")
    kept = []
    seen: set[int] = set()
    for group in groups or ():
        columns = tuple(int(column) for column in group)
        if len(columns) < 2 or len(set(columns)) < len(columns) or not all(0 <= c < n_columns for c in columns):
            raise ValueError(f"groups must hold lists of two or more of the columns 0 to {n_columns - 1}.")
        if seen & set(columns):
            raise ValueError("groups must not overlap: a column belongs to one category.")
        seen |= set(columns)
        kept.append(columns)
    return PublicMap(low, high, tuple(kept))


# The vector question: a mean of bounded vectors over people, one bit from each.
#
# Each person is given one variable. For a number the bit is about that number; for a category it is about a public
# random row of a Hadamard matrix, so that all levels are learned from the same people. The noise then grows with the
# number of variables, not with the number of columns.


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


def _curvature(score: Array, label: Array, part: Array) -> Array:
    p = probability(score)
    return 4.0 * p * (1.0 - p)


# Each takes scores, labels (0 or 1) and the score's part of its span, in [-1, 1], and returns numbers in [-1, 1].
# Second: what to add and multiply to turn the mean of those into the mean of what the name says.
NUMBERS: dict[str, tuple[Callable[[Array, Array, Array], Array], float, float]] = {
    "curvature": (lambda s, y, q: 2 * _curvature(s, y, q) - 1, 1.0, 0.125),
    "curvature, slope": (lambda s, y, q: _curvature(s, y, q) * q, 0.0, 0.25),
    "curvature, square": (lambda s, y, q: 2 * _curvature(s, y, q) * q**2 - 1, 1.0, 0.125),
    "residual": (lambda s, y, q: y - probability(s), 0.0, 1.0),
    "residual, slope": (lambda s, y, q: (y - probability(s)) * q, 0.0, 1.0),
    "error": (lambda s, y, q: 2.0 * ((s > 0) != (y > 0.5)) - 1, 1.0, 0.5),
}


@dataclass(frozen=True, eq=False)
class ScoreQuestion(MappedQuestion):
    """What is the mean of one of these `numbers` of your score? Which of them, a public coin says.

    Parameters
    ----------
    where : PublicMap
    coef : ndarray of shape (n_columns + 1,)
    numbers : tuple of str
        Keys of `NUMBERS`.
    span : float
        Scores beyond it count as it, in the numbers that are about slopes.
    positive : object
        The label that counts as 1.
    """

    where: PublicMap
    coef: Array
    numbers: tuple[str, ...]
    span: float = 1.0
    positive: Any = 1
    kind = "score"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which number each person is asked for."""
        return np.asarray(random.integers(0, len(self.numbers), n))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        score = scores(self.where.transform(X), self.coef)
        label = (np.asarray(y) == self.positive).astype(np.float64)
        part = np.clip(score / self.span, -1.0, 1.0)
        found = np.choose(coins, [NUMBERS[name][0](score, label, part) for name in self.numbers])
        return np.asarray(found)

    def estimate(self, answers: Answers) -> dict[str, float]:
        """Return the mean of each number."""
        found = {}
        for place, name in enumerate(self.numbers):
            mine = answers.coins == place
            _, add, times = NUMBERS[name]
            mean = answers.scale * float(answers.bits[mine].sum()) / max(1, int(mine.sum()))
            found[name] = times * (mean + add)
        return found

    def noise(self, name: str, n: int, scale: float) -> float:
        """Return the standard deviation of one estimate if `n` people are asked in all, at most."""
        return NUMBERS[name][2] * scale * float(np.sqrt(len(self.numbers) / max(1, n)))


@dataclass(frozen=True, eq=False)
class LeadQuestion(MappedQuestion):
    """Is the first model wrong about you (+1), or the second (-1), or both or neither (0)?"""

    where: PublicMap
    first: Array
    second: Array
    positive: Any = 1
    kind = "lead"

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z, label = self.where.transform(X), np.asarray(y) == self.positive
        # A row that is not finite has no score; both models are wrong about it or neither.
        wrong = [((scores(Z, coef) > 0) != label).astype(np.float64) for coef in (self.first, self.second)]
        return np.asarray(wrong[0] - wrong[1])


@dataclass(frozen=True, eq=False)
class SquareQuestion(MappedQuestion):
    """What is the mean square of each variable that is a number? Which of them, a public coin says."""

    where: PublicMap
    kind = "square"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which number each person is asked about."""
        return np.asarray(random.integers(0, len(self.where.numbers), n))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z = self.where.transform(X)
        mine = Z[np.arange(len(Z)), np.asarray(self.where.numbers)[coins]] / LIMIT
        return np.asarray(2 * mine**2 - 1)

    def estimate(self, answers: Answers) -> Array:
        """Return the mean square of each number."""
        sums = np.bincount(answers.coins, weights=answers.bits, minlength=len(self.where.numbers))
        counts = np.maximum(1, np.bincount(answers.coins, minlength=len(self.where.numbers)))
        return np.asarray(LIMIT**2 * (1 + answers.scale * sums / counts) / 2)

    def noise(self, n: int, scale: float) -> float:
        """Return the standard deviation of each estimate from `n` people in all, at most."""
        return LIMIT**2 / 2 * scale * float(np.sqrt(len(self.where.numbers) / max(1, n)))
