"""Questions to people, and the hypotheses that questions are about.

A `Question` is what one person's device computes from its own record: a number in [-1, 1] that becomes one noisy bit.
A question that is made of plain numbers and arrays can be sent: `message` describes it, and `question_from` rebuilds it
on the device. Only registered classes are rebuilt, so that nobody can send code.

A hypothesis has `predict`, from raw rows to labels. Learners return hypotheses, and `LossQuestion` asks about them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt.checks import positive

Array = NDArray[np.float64]
RowMap = Callable[[NDArray[Any]], NDArray[Any]]

# The class of each kind of question that can be sent; `Question.__init_subclass__` fills it.
_QUESTIONS: dict[str, "type[Question]"] = {}


class Question(ABC):
    """What one person's device computes from its own record: a number in [-1, 1], given public coins.

    A subclass can be sent as it is if it names its `kind` and is a dataclass of numbers, strings, lists and arrays. Any
    other subclass that is to be sent overrides `message` and `from_message` too.

    Attributes
    ----------
    kind : str
        Class attribute: the name under which `question_from` finds the class. Empty: it can't be sent.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        kind = cls.__dict__.get("kind")
        if kind:
            other = _QUESTIONS.setdefault(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"two questions are of the kind {kind!r}: {other.__qualname__}, {cls.__qualname__}.")

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw a public coin, or a row of coins, for each of `n` people, independent of their data. Default: zeros."""
        return np.zeros(n, dtype=np.int64)

    @abstractmethod
    def value(self, X: NDArray[Any], y: NDArray[Any], coins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a number for each person, from that person's row, label and coin alone.

        The device counts a value that is not finite as 0 and clips the others to [-1, 1].
        """

    def message(self) -> dict[str, Any]:
        """Return plain numbers and arrays that describe the question; `question_from` reads them back."""
        if not self.kind or not is_dataclass(self):
            raise TypeError(
                f"{type(self).__name__} can't be sent to a device. Give it a kind and plain fields, or use "
                f"SimulatedAgents."
            )
        return {"kind": self.kind, **{part.name: getattr(self, part.name) for part in fields(self)}}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Return the question that `message` describes."""
        return cls(**{name: value for name, value in message.items() if name != "kind"})


def question_from(message: Mapping[str, Any]) -> Question:
    """Return the question that a message describes; refuse a kind that is not registered.

    Examples
    --------
    >>> question = LossQuestion(LinearHypothesis([1.0, -1.0], 0.5))
    >>> question_from(question.message()).hypothesis.intercept
    array([0.5])
    """
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in _QUESTIONS:
        raise ValueError(f"there is no question of the kind {kind!r}; known are {', '.join(sorted(_QUESTIONS))}.")
    try:
        return _QUESTIONS[kind].from_message(message)
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"this is not a question of the kind {kind!r}: {error}.") from error


class Hypothesis(Protocol):
    """A rule that labels rows: what a learner returns."""

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the label of each row."""
        ...


@dataclass(frozen=True, eq=False)
class LinearHypothesis:
    """A linear classifier: one score for two classes, or one score per class.

    Parameters
    ----------
    coef : array of shape (n_features,) or (n_scores, n_features)
    intercept : float or array of shape (n_scores,), default=0
    classes : sequence, default=(0, 1)
        The label of each class, in order; numbers or strings. A single score above zero means the second.
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    classes: NDArray[Any]

    def __init__(self, coef: ArrayLike, intercept: ArrayLike = 0.0, classes: ArrayLike = (0, 1)) -> None:
        weights = np.atleast_2d(np.asarray(coef, dtype=np.float64))
        shifts = np.ravel(np.asarray(intercept, dtype=np.float64))
        labels = np.asarray(classes)
        if weights.ndim != 2 or shifts.shape != (len(weights),):
            raise ValueError(f"coef must have one row per score, intercept {len(weights)} numbers, got {len(shifts)}.")
        if not (np.isfinite(weights).all() and np.isfinite(shifts).all()):
            raise ValueError("coef and intercept must be finite numbers.")
        if labels.ndim != 1 or len(labels) != max(2, len(weights)):
            raise ValueError(f"classes must have {max(2, len(weights))} labels, got {labels.size}.")
        for name, value in (("coef", weights), ("intercept", shifts), ("classes", labels)):
            object.__setattr__(self, name, value)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row."""
        scores = np.asarray(X, dtype=np.float64) @ self.coef.T + self.intercept
        chosen = scores[:, 0] > 0 if scores.shape[1] == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes[np.asarray(chosen, dtype=np.int64)])


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


@dataclass(frozen=True)
class Squares:
    """The map from each entry of a row to min((entry / scale)², limit) - limit / 4.

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
        # A warning would reveal that there is an extreme row.
        with np.errstate(all="ignore"):
            squares = np.square(X * X.dtype.type(1 / self.scale))
            np.minimum(squares, X.dtype.type(self.limit), out=squares)
            squares -= X.dtype.type(self.limit / 4)
        return np.asarray(squares)


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
        Z = self.row_map(X)
        with np.errstate(all="ignore"):
            above = Z @ self.coef.astype(Z.dtype) + Z.dtype.type(self.intercept) > 0
        return np.asarray(self.classes[above.astype(np.int64)])


@dataclass(frozen=True, eq=False)
class EllipsoidHypothesis:
    """One class inside an ellipsoid around the origin of a few coordinates, the other outside it.

    Parameters
    ----------
    columns : ndarray of int
        The coordinates that are used.
    weights : ndarray
        Weights of the squared coordinates; a ball if all are equal.
    square : float
        A row is inside if the weighted sum of its squares is at most this.
    classes : ndarray of shape (2,)
        The label inside, then the label outside.

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
        """Return the label of each row; a bit is set where the entry is above 1/2."""
        odd = np.count_nonzero(X[:, self.chosen] > 0.5, axis=1) % 2
        return np.asarray(self.classes[odd])


def weighted_squares(part: NDArray[Any], weights: Array) -> Array:
    """Return the weighted sum of each row's squares; no warning where the sum overflows."""
    with np.errstate(all="ignore"):
        return np.asarray(np.square(part, dtype=np.float64) @ weights)


class LossQuestion(Question):
    """How wrong is this hypothesis about you? The value is twice the loss less one.

    Parameters
    ----------
    hypothesis : object with `predict`
        The hypotheses of this module can be sent to devices with the 0/1 loss. A question about any other hypothesis,
        or with another loss, can be put to `SimulatedAgents` only.
    loss : callable, optional
        Takes predictions and labels, returns a loss in [0, 1] for each person. Default: 1 where they differ, else 0.

    Examples
    --------
    >>> question = LossQuestion(LinearHypothesis([1.0]))
    >>> question.value(np.array([[2.0], [2.0]]), np.array([1, 0]), np.zeros(2, dtype=int))
    array([-1.,  1.])
    """

    kind = "loss"

    def __init__(
        self, hypothesis: Any, loss: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]] | None = None
    ) -> None:
        if not callable(getattr(hypothesis, "predict", None)):
            raise TypeError(f"hypothesis must have a method predict, got {type(hypothesis).__name__}.")
        self.hypothesis = hypothesis
        self.loss = loss

    def value(self, X: NDArray[Any], y: NDArray[Any], coins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return 2 * loss - 1."""
        predicted = np.asarray(self.hypothesis.predict(X))
        if self.loss is None:
            return np.where(predicted != y, 1.0, -1.0)
        loss = np.asarray(self.loss(predicted, y), dtype=np.float64)
        if loss.size and not (loss.min() >= 0 and loss.max() <= 1):
            raise ValueError(
                "loss must lie in [0, 1] for everyone. Divide it by its largest possible value, or clip it."
            )
        return 2.0 * loss - 1.0

    def message(self) -> dict[str, Any]:
        """Return the fields of the hypothesis."""
        if self.loss is not None:
            raise TypeError("only the 0/1 loss can be sent to a device. Leave loss out, or use SimulatedAgents.")
        return {"kind": self.kind, "hypothesis": _plain(self.hypothesis)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Return the question about the hypothesis that `message` describes."""
        return cls(_rebuilt(message["hypothesis"]))


# The classes that a message about a hypothesis may name.
_SENDABLE = {
    kind.__name__: kind
    for kind in (
        LinearHypothesis,
        ConstantHypothesis,
        EllipsoidHypothesis,
        MappedHypothesis,
        ParityHypothesis,
        Squares,
    )
}


def _plain(value: Any) -> Any:
    """Return a hypothesis, or a field of one, as numbers, strings, lists and arrays."""
    name = type(value).__name__
    if _SENDABLE.get(name) is type(value):
        return {"class": name, "fields": {part.name: _plain(getattr(value, part.name)) for part in fields(value)}}
    if isinstance(value, np.ndarray | np.generic):
        return value if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else value.tolist()
    if isinstance(value, int | float | str):
        return value
    raise TypeError(
        f"{name} can't be sent to a device. Use one of {', '.join(_SENDABLE)}, a Question of your own with plain "
        f"fields, or SimulatedAgents."
    )


def _rebuilt(value: Any) -> Any:
    """Return what `_plain` described; a class that is not in `_SENDABLE` raises a KeyError."""
    if isinstance(value, Mapping):
        return _SENDABLE[value["class"]](**{name: _rebuilt(part) for name, part in value["fields"].items()})
    return np.asarray(value) if isinstance(value, list) else value
