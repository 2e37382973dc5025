"""The public map of the hybrid classifier, and its questions about mapped rows.

`PublicMap` turns raw columns into bounded features, on the curator's side and on every device alike. `VectorQuestion`
asks for means of the features or of residuals times features, `ResidualQuestion` for residuals alone, `ErrorQuestion`
whether a model is wrong, and `LabelQuestion` whether there is a label.

A person whose label is neither of the two classes answers every question about labels at random: the value is NaN,
which devices count as 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.hybrid.agents import Answers
from dpadapt.hybrid.questions import Question

Array = NDArray[np.float64]

# Both constants were set on the populations of docs/benchmarks/hybrid.md, with other seeds; neighbouring
# values were not compared.
#
# The largest absolute value of a numeric feature, in standard deviations if the declared range is two of them each way.
# A larger limit clips less and adds more noise to every mean that people are asked for.
FEATURE_LIMIT = 2.0
# The largest length of a mapped row, in lengths sqrt(number of variables + 1) of a typical row. Longer rows are scaled
# down; a larger limit scales fewer rows and adds more noise to every sum of rows.
_LONGEST_ROW = 1.2


@dataclass(frozen=True, eq=False)
class PublicMap:
    """The map from columns to features: numbers are scaled to [-2, 2], categories are groups of indicators.

    Curator and people use the same map: if only one side clipped, the clipping would look like a shift between the two
    populations.

    Parameters
    ----------
    low, high : ndarray of shape (n_columns,)
        The declared range of each column; not used for columns of a group.
    groups : tuple of tuple of int
        Columns that are the indicators of one category.
    """

    low: Array
    high: Array
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def n_columns(self) -> int:
        """How many features a row has, without the constant 1 at its end."""
        return len(self.low)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The numeric columns: those that are in no group."""
        grouped = {column for group in self.groups for column in group}
        return tuple(column for column in range(self.n_columns) if column not in grouped)

    @property
    def n_features(self) -> int:
        """How many variables there are; a category counts once, however many columns it has."""
        return len(self.numbers) + len(self.groups)

    @property
    def max_norm(self) -> float:
        """The largest length of a mapped row, its constant 1 included."""
        return _LONGEST_ROW * math.sqrt(self.n_features + 1)

    @property
    def reach(self) -> float:
        """The sum of the squared limits of all variables and the constant; the noise of a mean grows with its root."""
        return FEATURE_LIMIT**2 * len(self.numbers) + len(self.groups) + 1

    def transform(self, X: ArrayLike) -> Array:
        """Return the features of each row, without the constant; all are nan in a row that is not finite."""
        X = np.asarray(X, dtype=np.float64)
        with np.errstate(all="ignore"):
            finite = np.isfinite(np.einsum("ij,ij->i", X, X))
            numbers = list(self.numbers)
            half = (self.high[numbers] - self.low[numbers]) / 2
            Z = np.zeros_like(X)
            scaled = (X[:, numbers] - self.low[numbers] - half) * (FEATURE_LIMIT / half)
            Z[:, numbers] = np.clip(scaled, -FEATURE_LIMIT, FEATURE_LIMIT)
            for group in self.groups:
                part = X[:, group]
                level = np.argmax(part, axis=1)
                Z[np.arange(len(X)), np.asarray(group)[level]] = part[np.arange(len(X)), level] > 0.5
            # Claim: |row|² + 1 <= max_norm² for each person's own row. The constant 1 is not scaled, so that the sum of
            # the constants counts rows.
            longest = math.sqrt(self.max_norm**2 - 1)
            lengths = np.sqrt(np.einsum("ij,ij->i", Z, Z))
            Z *= np.minimum(1.0, longest / np.maximum(lengths, 1e-300))[:, None]
        Z[~finite] = np.nan
        return Z

    def highest(self, coef: Array) -> float:
        """Return an upper bound on coef'row over all possible rows, without the constant."""
        total = FEATURE_LIMIT * float(np.abs(coef[list(self.numbers)]).sum())
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
    """Return the map that `bounds` and `groups` declare; raise a ValueError if they can't be used.

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
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"bounds must be a pair (low, high), or one pair for each of {n_columns} columns.") from None
    low, high = ranges[:, 0].copy(), ranges[:, 1].copy()
    if not (np.isfinite(high - low) & (high > low)).all():
        raise ValueError("bounds must be finite, low below high. Declare the range that most rows lie in.")
    categories = []
    seen: set[int] = set()
    try:
        listed = [tuple(group) for group in (() if groups is None else groups)]
    except TypeError:
        raise ValueError("groups must be a list of lists of columns, one for each category.") from None
    for group in listed:
        columns = tuple(checks.count(column, "each column of groups", least=0) for column in group)
        if len(columns) < 2 or len(set(columns)) < len(columns) or not all(0 <= c < n_columns for c in columns):
            raise ValueError(f"groups must hold lists of two or more of the columns 0 to {n_columns - 1}.")
        if seen & set(columns):
            raise ValueError("groups must not overlap: a column belongs to one category.")
        seen |= set(columns)
        categories.append(columns)
    return PublicMap(low, high, tuple(categories))


def scores(Z: Array, coef: Array) -> Array:
    """Return each row times the coefficients, the last of which is the constant's."""
    return np.asarray(Z @ coef[:-1] + coef[-1])


def probability(score: Array) -> Array:
    """Return the logistic function of the scores."""
    return 0.5 + 0.5 * np.tanh(score / 2)


def labels(y: Any, classes: Sequence[Any]) -> Array:
    """Return 1 for the second class, 0 for the first, and NaN for any other label: it can't be read."""
    first, second = (_equal(np.asarray(y), label) for label in classes)
    return np.where(second, 1.0, np.where(first, 0.0, np.nan))


def _equal(y: NDArray[Any], label: Any) -> NDArray[np.bool_]:
    if y.dtype.kind != "O":
        return np.asarray(y == label)
    return np.array([_same(cell, label) for cell in y], dtype=bool)


def _same(cell: Any, label: Any) -> bool:
    """Return whether a cell is a label; one that can't be compared is none."""
    try:
        return bool(cell == label)
    except Exception:
        return False


class MappedQuestion(Question):
    """A question about the mapped row. Subclasses are dataclasses of plain fields, one of which is the map `where`."""

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
class VectorQuestion(MappedQuestion):
    """What is the mean of rho times your row, its constant included? rho is 1, or the residual y - p of a model.

    Each person is asked about one variable. For a number the value is that feature; for a category it is the entry of a
    public random row of a Hadamard matrix at the person's level, so that all levels are learned from the same people.
    The noise then grows with the number of variables, not with the number of columns.

    Parameters
    ----------
    where : PublicMap
    coef : ndarray of shape (n_columns + 1,), optional
        The model whose residual is rho, constant last. Default: rho = 1.
    classes : sequence of two
        The labels that count as 0 and as 1.
    """

    where: PublicMap
    coef: Array | None = None
    classes: Sequence[Any] = (0, 1)
    kind = "vector"

    @cached_property
    def _columns(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each variable; the constant comes last."""
        where = self.where
        return (*((column,) for column in where.numbers), *where.groups, (where.n_columns,))

    @cached_property
    def _limits(self) -> Array:
        """The largest absolute value of each variable's features."""
        where = self.where
        return np.array([FEATURE_LIMIT] * len(where.numbers) + [1.0] * (len(where.groups) + 1))

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        """The number of rows of each variable's Hadamard matrix: 1 for a number."""
        return np.array([1 << (len(columns) - 1).bit_length() for columns in self._columns])

    @cached_property
    def _first_coins(self) -> NDArray[np.int64]:
        """The coin of each variable's first Hadamard row, then the number of coins in all."""
        return np.concatenate([[0], np.cumsum(self._sizes)])

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which variable, and which of its Hadamard rows, each person is asked about, independent of data."""
        # Variables are drawn in proportion to their squared limits, which makes the noise of all entries equal.
        shares = np.cumsum(self._limits**2 / self.where.reach)
        variables = np.searchsorted(shares[:-1], random.random(n), side="right")
        return np.asarray(self._first_coins[variables] + random.integers(0, self._sizes[variables]))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z = self.where.transform(X)
        values = np.ones(len(Z))
        for variable, columns in enumerate(self._columns[:-1]):
            first, end = self._first_coins[variable], self._first_coins[variable + 1]
            asked = np.flatnonzero((coins >= first) & (coins < end))
            # At most one entry of a category is not 0, so that its sum with any signs is at most the limit: 1, or 2 for
            # a number.
            signs = _signs(coins[asked] - first, np.arange(len(columns)))
            values[asked] = np.sum(signs * Z[asked][:, columns], axis=1) / self._limits[variable]
        if self.coef is not None:
            values *= labels(y, self.classes) - probability(scores(Z, self.coef))
        return values

    def estimate(self, answers: Answers) -> Array:
        """Return the mean vector, constant last: unbiased, and with the same noise in every entry."""
        n_coins = self._first_coins[-1]
        sums = answers.scale * np.bincount(answers.coins, weights=answers.bits, minlength=n_coins)
        counts = np.bincount(answers.coins, minlength=n_coins)
        mean = np.zeros(self.where.n_columns + 1)
        for variable, columns in enumerate(self._columns):
            of_variable = slice(self._first_coins[variable], self._first_coins[variable + 1])
            # The signs of two different levels cancel over the random rows of the matrix.
            signs = _signs(np.arange(self._sizes[variable]), np.arange(len(columns)))
            total = self._limits[variable] * (sums[of_variable] @ signs)
            mean[list(columns)] = total / max(1, counts[of_variable].sum())
        return mean

    def noise(self, n: int, scale: float) -> float:
        """Return an upper bound on the standard deviation of each entry of the estimate from `n` people."""
        return scale * math.sqrt(self.where.reach / max(1, n))


def _signs(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
    """Return entries of Sylvester's Hadamard matrix: (-1) to the number of bits that row and column share."""
    shared = np.bitwise_count(rows[:, None] & columns[None, :])
    return np.asarray(1.0 - 2.0 * (shared % 2))


@dataclass(frozen=True, eq=False)
class ResidualQuestion(MappedQuestion):
    """What is y - p, your label less the probability that a model gives it? All people are asked for this one number.

    Parameters
    ----------
    where : PublicMap
    coef : ndarray of shape (n_columns + 1,)
        The model, constant last.
    classes : sequence of two
        The labels that count as 0 and as 1.
    """

    where: PublicMap
    coef: Array
    classes: Sequence[Any] = (0, 1)
    kind = "residual"

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        # Claim: |y - p| <= 1. y is 0 or 1 and p lies in [0, 1]; without a label the value is NaN, which counts as 0.
        return np.asarray(labels(y, self.classes) - probability(scores(self.where.transform(X), self.coef)))


@dataclass(frozen=True, eq=False)
class ErrorQuestion(MappedQuestion):
    """Is one of these models wrong about you? A public coin says which.

    Parameters
    ----------
    where : PublicMap
    models : ndarray of shape (n_models, n_columns + 1)
        Coefficients, constants last. A score above 0 means the second class.
    classes : sequence of two
        The labels that count as 0 and as 1.
    """

    where: PublicMap
    models: Array
    classes: Sequence[Any] = (0, 1)
    kind = "error"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which model each person is asked about, independent of data."""
        return np.asarray(random.integers(0, len(self.models), n))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return 1 for each person about whom the model is wrong, -1 where it is right, NaN without a label."""
        Z, label = self.where.transform(X), labels(y, self.classes)
        score = np.einsum("ij,ij->i", Z, self.models[coins, :-1]) + self.models[coins, -1]
        # The score of a row that is not finite is nan, which is not above 0: a model says "no" about it.
        return np.where(np.isnan(label), np.nan, np.where((score > 0) != label, 1.0, -1.0))

    def estimate(self, answers: Answers) -> Array:
        """Return the error of each model: unbiased, so that noise can move it outside [0, 1]; nan without answers.

        A person without a label counts as half an error, whatever the model is.
        """
        n_models = len(self.models)
        counts = np.bincount(answers.coins, minlength=n_models)
        sums = answers.scale * np.bincount(answers.coins, weights=answers.bits, minlength=n_models)
        return np.where(counts > 0, (1 + sums / np.maximum(counts, 1)) / 2, np.nan)

    def noise(self, n: int, scale: float) -> float:
        """Return an upper bound on the standard deviation of each estimate from `n` people in all."""
        return scale / 2 * math.sqrt(len(self.models) / max(1, n))


@dataclass(frozen=True, eq=False)
class LabelQuestion(Question):
    """Is your label one of the two classes?

    Parameters
    ----------
    classes : sequence of two
    """

    classes: Sequence[Any] = (0, 1)
    kind = "label"

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return 1 for each person with such a label, else -1."""
        return np.where(np.isnan(labels(y, self.classes)), -1.0, 1.0)

    def estimate(self, answers: Answers) -> float:
        """Return the share of people with such a label: unbiased, so that noise can move it outside [0, 1]."""
        return (1.0 + answers.mean()) / 2.0

    def noise(self, n: int, scale: float) -> float:
        """Return an upper bound on the standard deviation of the estimate from `n` people."""
        return scale / 2.0 / math.sqrt(max(1, n))
