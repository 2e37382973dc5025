"""Hypotheses: what a learner returns and people are asked about. All have `predict`, from raw rows to labels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt._validate import positive

Array = NDArray[np.float64]
RowMap = Callable[[NDArray[Any]], NDArray[Any]]


class Hypothesis(Protocol):
    """A rule that labels rows."""

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label of each row."""
        ...


@dataclass(frozen=True)
class Squares:
    """The map from a row to its squared entries in squares of `scale`, at most `limit`, less a quarter of that.

    A hyperplane in these features is an ellipsoid around the origin. The map is public and treats each row by itself.

    Parameters
    ----------
    scale : float, default=1.0
        The size of a typical entry. Choose it without looking at private rows.
    limit : float, default=2.0

    Examples
    --------
    >>> Squares(0.1)(np.array([[0.1, 5.0]]))
    array([[0.5, 1.5]])
    """

    scale: float = 1.0
    limit: float = 2.0

    def __post_init__(self) -> None:
        positive(self.scale, "scale")
        positive(self.limit, "limit")

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the features of each row."""
        # A warning would tell of an extreme row.
        with np.errstate(all="ignore"):
            squares = np.square(X * X.dtype.type(1 / self.scale))
            np.minimum(squares, X.dtype.type(self.limit), out=squares)
            squares -= X.dtype.type(self.limit / 4)
        return np.asarray(squares)


@dataclass(frozen=True)
class ConstantHypothesis:
    """The same label for every row: the baseline that needs no data.

    Examples
    --------
    >>> ConstantHypothesis("no").predict(np.zeros((2, 3)))
    array(['no', 'no'], dtype='<U2')
    """

    label: Any

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label, once per row."""
        return np.full(len(X), self.label)


@dataclass(frozen=True, eq=False)
class MappedHypothesis:
    """A hyperplane in the features that `row_map` makes of each row.

    Parameters
    ----------
    row_map : callable
    coef : ndarray of shape (n_features,)
    intercept : float
    classes : ndarray of shape (2,)
        A score above 0 means the second.
    """

    row_map: RowMap
    coef: Array = field(repr=False)
    intercept: float
    classes: NDArray[Any]

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label of each row."""
        return labels_of(self.row_map(X), self.coef, self.intercept, self.classes)


@dataclass(frozen=True, eq=False)
class EllipsoidHypothesis:
    """One class inside an ellipsoid around the origin of a few coordinates, the other outside it.

    Parameters
    ----------
    columns : ndarray of int
        The coordinates that count.
    weights : ndarray
        Of the squared coordinates; all equal: a ball.
    square : float
        A row is inside if its weighted squares add up to this at most.
    classes : ndarray of shape (2,)
        The label inside, then that outside.

    Examples
    --------
    >>> ball = EllipsoidHypothesis(np.array([0, 2]), np.ones(2), 1.0, np.array(["in", "out"]))
    >>> ball.predict(np.array([[0.5, 9.0, 0.5], [2.0, 0.0, 0.0]]))
    array(['in', 'out'], dtype='<U3')
    """

    columns: NDArray[np.int64]
    weights: Array
    square: float
    classes: NDArray[Any]

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label of each row."""
        outside = ~(weighted_squares(X[:, self.columns], self.weights) <= self.square)
        return np.asarray(self.classes[outside.astype(np.int64)])


@dataclass(frozen=True, eq=False)
class ParityHypothesis:
    """The second class where an odd number of the chosen bits are set.

    Parameters
    ----------
    chosen : ndarray of bool, shape (n_features,)
    classes : ndarray of shape (2,)
    """

    chosen: NDArray[np.bool_] = field(repr=False)
    classes: NDArray[Any]

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label of each row; an entry above 1/2 is a bit that is set."""
        odd = np.count_nonzero(X[:, self.chosen] > 0.5, axis=1) % 2
        return np.asarray(self.classes[odd])


def weighted_squares(part: NDArray[Any], weights: Array) -> Array:
    """Return the weighted sum of each row's squares; without a warning if a row is too long for a float."""
    with np.errstate(all="ignore"):
        return np.asarray(np.square(part, dtype=np.float64) @ weights)


def labels_of(Z: NDArray[Any], coef: Array, intercept: float, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the second class where the score is above 0, else the first."""
    with np.errstate(all="ignore"):
        above = Z @ coef.astype(Z.dtype) + Z.dtype.type(intercept) > 0
    return np.asarray(classes[above.astype(np.int64)])
