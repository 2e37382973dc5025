"""`PrivateEstimator`, the base of every private estimator: its parameters, budget, ledger, warnings and receipt.

`_read_regression` and `_read_classification` pass all input of a fit through the gate (`inputs/gate.py`) before
anything is charged. Also here: `LinearClassifier`, the base of classifiers that are linear in the features.
"""

import math
import re
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from inspect import signature
from textwrap import indent
from types import FrameType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.data import Public
from dpadapt.errors import AssumedBoundsWarning, NoLedgerWarning, PrivacyError
from dpadapt.inputs import gate
from dpadapt.inputs.persons import IDS_ASSUMPTION, weights_assumption
from dpadapt.learning.fit_summary import FitSummary
from dpadapt.learning.losses import softmax
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.randomness import random_source
from dpadapt.rows import Blocks, Part, Shares, Unit, products_by_row

# Least n * mu at which anything is released. At 7, a single mean of clipped terms has noise of a seventh of its range:
# below, every correction would be noise. Chosen by hand.
_LEAST_SIGNAL = 7.0
# Libraries whose frames stand between a fit and the line that asked for it.
_BETWEEN = ("sklearn.", "joblib.")
# Fits that these ask for are on public or made-up rows, or inside a fit that has warned already: they get no warnings.
_QUIET_CALLERS = ("dpadapt.", "sklearn.utils.estimator_checks")
# Warnings that were shown, with their places. Python's own record of them is emptied whenever scikit-learn checks an
# array, so that a search over parameters would repeat each warning for each fit.
_SHOWN: set[tuple[str, int, str]] = set()
# Unit: the first fit's epsilon. The cap that is proposed for a new ledger: room for a few more fits, none of them free.
# Chosen by hand.
PROPOSED_FITS = 3.0

# Parameters that many estimators share, documented once. A docstring refers to one by a line of its own: {epsilon}.
_SHARED_PARAMETERS = {
    "epsilon": """epsilon : float, default=1.0
    The most that this fit may spend. Positive; smaller is more private.""",
    "delta": """delta : float, default=1e-6
    Second parameter of the guarantee. Between 0 and 1; choose it well below 1 / number of rows.""",
    "adjacency": """adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
    Which data sets count as neighbours: they differ in one row, which is replaced by a null row, added or removed, or
    replaced by any other row.""",
    "n_rows": """n_rows : int, optional
    Only under "add-remove": a public estimate of the number of rows. The true number is private there.""",
    "random_state": """random_state : int, optional
    For tests only: seeds the noise, which voids the guarantee, and the receipt says so. Default: secure noise.""",
    "classes": """classes : array-like, optional
    All labels that can occur. Default: the labels of the public data; without them, the labels that occur in `y`,
    which the receipt then lists as assumed public.""",
    "class_weight": """class_weight : mapping from class to weight, or "balanced", optional
    How much each class counts in the loss; classes that are not named count 1. "balanced": one over the class
    frequencies of the public rows. The weights are added to the scores after the fit, which has the same optimum as
    weighting rows and no more noise. Probabilities are then those of a population with such weights.""",
    "decision_threshold": """decision_threshold : float, mapping of costs, or metric, optional
    For two classes: the probability from which on `predict` answers the second of `classes_`. A number; or what a miss
    and a false alarm cost, as in ``{"miss": 5, "false alarm": 1}``, from which the threshold follows; or
    "balanced_accuracy" or "f1", for which it is chosen on public rows. Default: the most probable class.""",
    "private X": """X : array-like of shape (n_rows, n_features)
    Private features.""",
    "private labels": """y : array-like of shape (n_rows,)
    Private labels.""",
    "private target": """y : array-like of shape (n_rows,)
    Private target.""",
    "public": """public : Public, optional
    Public data with the same columns, with or without labels. It is not protected.""",
    "persons": """persons : array-like of shape (n_rows,), optional
    The id of each private row's person. All rows of one person together are then protected, and the number of persons
    takes the place of the number of rows. A row without an id (None, NaN, empty) counts nothing. Default: single rows
    are protected.""",
    "sample_weight": """sample_weight : array-like of shape (n_rows,), optional
    How much each private row counts, such as a survey weight. Needs `max_weight`. A weight that is negative or no
    finite number counts as 0. Default: all rows count alike. Public rows always do.""",
    "max_weight": """max_weight : float, optional
    The largest sample weight, known without looking at the private weights; larger ones count as this one. Needed with
    `sample_weight`, and otherwise not used. The noise is that of n rows of this weight: a maximum far above most
    weights costs as much as having fewer rows.""",
    "mean_weight": """mean_weight : float, optional
    The mean sample weight as far as it is publicly known, such as population over sample size. The fit then reckons
    with n * mean_weight / max_weight rows. Default: with n rows, which is careful and adopts less of the private rows
    than they could tell.""",
    "ledger": """ledger : Ledger, optional
    Ledger of the private data set, to which this fit is charged. Without one, nothing adds up what several fits cost
    together, and a `NoLedgerWarning` says so.""",
}


def _with_shared_parameters(doc: str | None) -> str | None:
    """Return a docstring with its marks, such as {epsilon}, replaced by the text of that parameter."""
    if doc is None:  # python -OO
        return None
    return re.sub(
        r"^( *)\{([\w ]+)\}$",
        lambda mark: indent(_SHARED_PARAMETERS.get(mark[2], mark[0].strip()), mark[1]),
        doc,
        flags=re.M,
    )


def no_ledger(call: str, epsilon: float, delta: float, adjacency: str, unit: Unit) -> str:
    """Return the text of a `NoLedgerWarning` about a call, with the line to write."""
    further = "" if adjacency == Adjacency.ZERO_OUT.value else f', adjacency="{adjacency}"'
    further += "" if unit == "row" else f', unit="{unit}"'
    line = f'Ledger.open("private.ledger", epsilon={PROPOSED_FITS * epsilon:.12g}, delta={delta:.12g}{further})'
    return (
        f"no ledger is charged, so nothing adds up what further fits on the same rows cost. Write {call}(..., "
        f"ledger={line}), with the name of your private data set."
    )


def warn_of_no_ledger(call: str, epsilon: float, delta: float, adjacency: str, unit: Unit) -> None:
    """Warn whoever called the function that calls this one, whose name is `call`: it was given no ledger."""
    caller = asked_by(sys._getframe(2))
    if caller is not None:
        warn_once_per_line(no_ledger(call, epsilon, delta, adjacency, unit), NoLedgerWarning, caller)


def asked_by(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the line that asked for a fit, or None if it gets no warnings."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_QUIET_CALLERS):
            return None
        if not name.startswith(_BETWEEN):
            return frame
        frame = frame.f_back
    return None


def warn_once_per_line(text: str, category: type[Warning], caller: FrameType) -> None:
    """Warn as Python's default filter does; where the filters ask for every warning, or for errors, each time."""
    place = (caller.f_code.co_filename, caller.f_lineno, category.__name__)
    matching = (
        action
        for action, message, kind, *_ in warnings.filters
        if issubclass(category, kind) and (message is None or message.match(text))
    )
    if place not in _SHOWN or next(matching, "default") in ("error", "always", "all"):
        warnings.warn_explicit(text, category, place[0], place[1], registry={})
    _SHOWN.add(place)


def _guarded(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fit`, which first warns of what it takes for granted, and then ignores all floating-point errors.

    An error or a warning that only some private rows cause, such as an underflow, would reveal such a row. (Functions
    that private rows pass through also ignore overflow themselves, so that they can be used and tested alone.)
    """

    @wraps(fit)
    def guarded(self: "PrivateEstimator", *args: Any, **kwargs: Any) -> Any:
        self._check_parameters(kwargs.get("public"))
        if not self._streams and any(map(gate.in_chunks, [*args, *kwargs.values()])):
            raise TypeError(
                f"{type(self).__name__} can't read private rows in chunks: it needs all of them at once. Give arrays "
                f"or data frames in memory."
            )
        caller = asked_by(sys._getframe(1))
        if caller is not None:
            for category, text in self._taken_for_granted(kwargs):
                warn_once_per_line(text, category, caller)
        # Claim: a numerical error or warning of NumPy shows no row. All are ignored while a fit runs.
        with np.errstate(all="ignore"):
            return fit(self, *args, **kwargs)

    return guarded


# Methods of estimators that give something for each row.
_PREDICTING = {"predict", "predict_proba", "decision_function", "predict_interval", "predict_set"}


def _lazy_on_dask(method: Any) -> Any:
    """Return a method that gives a lazy result for a collection of Dask."""
    if not callable(method):
        return method

    @wraps(method)
    def lazy(self: "PrivateEstimator", X: Any, *args: Any, **kwargs: Any) -> Any:
        if not gate.is_dask(X):
            return method(self, X, *args, **kwargs)
        check_is_fitted(self)
        model = self.without_seed()
        return gate.lazily(lambda rows: method(model, rows, *args, **kwargs), X, self.n_features_in_)

    return lazy


@dataclass(frozen=True)
class Budget:
    """What a fit may spend, in the units of plans.

    Parameters
    ----------
    mu : float
        The budget in one number; larger is less private. The noise multipliers s_t of all releases must
        satisfy Σ 1 / s_t² <= mu².
    n_rows : float
        A public number of rows to divide sums by; with sample weights, times what a row counts on average.
    factor : float
        How far a sum of bounded terms can move, per bound: 2 under replace-one, else 1. For planning only.
    counted : float, optional
        With sample weights: what a row counts on average, as it is assumed. It is in `n_rows` already.
    """

    mu: float
    n_rows: float
    factor: float
    counted: float | None = None

    @classmethod
    def of(cls, epsilon: float, delta: float, n_rows: float, adjacency: Adjacency | str) -> "Budget":
        """Check the privacy parameters and return the budget of a fit with `n_rows` rows, a public number."""
        epsilon, delta = checks.scale(epsilon, "epsilon"), checks.delta(delta)
        if delta == 0:
            raise ValueError("delta must be positive for this method (Gaussian noise), got 0. A common choice is 1e-6.")
        return cls(gaussian_mu(epsilon, delta), float(n_rows), Adjacency.of(adjacency).factor)

    @property
    def worthwhile(self) -> bool:
        """Whether the budget is enough for this many rows; if not, nothing is released and nothing is spent."""
        return self.n_rows * self.mu / self.factor > _LEAST_SIGNAL

    def noise(self, clip_norm: float) -> float:
        """Return the standard deviation of a mean of terms up to `clip_norm`, if the whole budget goes into it."""
        return self.factor * clip_norm / (self.n_rows * self.mu)


def split_noise(mu: float, shares: Sequence[float]) -> list[float]:
    """Return noise multipliers that spend the given shares of mu²; the shares must add up to at most 1."""
    if math.fsum(shares) > 1 + 1e-12:
        raise ValueError("shares of the budget must not add up to more than 1.")
    return [1.0 / (mu * math.sqrt(share)) for share in shares]


def water_fill(costs: NDArray[np.float64], slopes: NDArray[np.float64] | float = 1.0) -> NDArray[np.float64]:
    """Return shares max(0, level * slope - cost) that add up to 1, for the one level at which they do.

    It shares a budget optimally among directions with independent noise: with slopes of 1 and costs of
    noise / prior variance, the shares maximise Σ log(1 + share * prior / noise). Directions whose cost is too high get
    nothing.

    Examples
    --------
    >>> water_fill(0.5 / np.array([1.0, 0.5, 0.01])).round(2)
    array([0.75, 0.25, 0.  ])
    """
    slopes = np.broadcast_to(np.asarray(slopes, dtype=np.float64), costs.shape)
    with np.errstate(all="ignore"):
        starts = costs / slopes  # the level from which a direction gets a share
    order = np.argsort(starts)
    levels = (1.0 + np.cumsum(costs[order])) / np.maximum(np.cumsum(slopes[order]), 1e-300)
    # The level is that of the largest set of directions that all start below it.
    below = np.flatnonzero(levels > starts[order])
    if len(below) == 0:
        # All costs are so high that rounding hides the 1 that is shared; the cheapest direction gets it.
        return np.asarray(np.arange(len(costs)) == order[0], dtype=np.float64)
    shares: NDArray[np.float64] = np.maximum(0.0, levels[below[-1]] * slopes - costs)
    return shares


class _ShownByPublicPath(ABCMeta):
    """Shows a class by the path that people import it from; `__module__` stays, for pickle, doctest and inspect."""

    def __repr__(cls) -> str:
        package = cls.__module__.rpartition(".")[0]
        if cls.__name__ in import_module("dpadapt").__all__:
            package = "dpadapt"
        elif not hasattr(sys.modules.get(package), cls.__name__):
            return super().__repr__()
        return f"<class '{package}.{cls.__name__}'>"


class PrivateEstimator(BaseEstimator, metaclass=_ShownByPublicPath):  # type: ignore[misc]
    """Base of private estimators; subclasses are plain scikit-learn estimators otherwise."""

    epsilon: float
    delta: float
    adjacency: str
    n_rows: int | None
    random_state: int | None
    max_weight: float | None
    mean_weight: float | None

    # What each parameter may be; `fit` refuses anything else before it reads a row. The annotations of a subclass's
    # `__init__` declare further ones.
    _checks: ClassVar[Mapping[str, checks.Check]] = {
        "adjacency": lambda value, _name: Adjacency.of(value),
        "random_state": lambda value, _name: random_source(value),
        "epsilon": checks.scale,
        "delta": checks.delta,
        "n_rows": checks.optional(checks.count),
        "target_bounds": checks.bounds,
        "max_weight": checks.optional(checks.scale),
        "mean_weight": checks.optional(checks.scale),
    }

    # Whether `fit` takes a `Source`, and data frames of Dask.
    _streams: ClassVar[bool] = False

    # Whether features are taken to lie in about [-1, 1] where no public rows show their ranges.
    _assumes_unit_features: ClassVar[bool] = False

    # With metadata routing, scikit-learn always passes public data and the ledger to `fit`.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"public": True, "ledger": True}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Complete the docstrings with the parameters that many estimators share, and protect `fit`."""
        super().__init_subclass__(**kwargs)
        cls.__doc__ = _with_shared_parameters(cls.__doc__)
        annotations = getattr(cls.__init__, "__annotations__", {})
        declared = {name: checks.declared_by(annotation) for name, annotation in annotations.items()}
        cls._checks = {**cls._checks, **{name: check for name, (_, check) in declared.items() if check is not None}}
        # Help shows plain types.
        annotations.update({name: kind for name, (kind, _) in declared.items()})
        if "fit" in vars(cls):
            cls.fit.__doc__ = _with_shared_parameters(cls.fit.__doc__)
            if "persons" in signature(cls.fit).parameters:
                # As above, for the estimators that have it.
                setattr(cls, f"_{cls.__name__}__metadata_request__fit", {"persons": True})
            cls.fit = _guarded(cls.fit)
        for name in _PREDICTING & vars(cls).keys():
            setattr(cls, name, _lazy_on_dask(vars(cls)[name]))

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        check_is_fitted(self)
        # scikit-learn's names, where a class has them.
        fitted = vars(self)
        return FitSummary(self.privacy_, self.epsilon, fitted.get("classes_", ()), coefficients=fitted.get("coef_"))

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that scores on small data sets are poor."""
        tags = super().__sklearn_tags__()
        for part in (tags.regressor_tags, tags.classifier_tags):
            if part is not None:
                part.poor_score = True
        return tags

    def _check_parameters(self, public: Any) -> None:
        """Refuse parameters that can't be, each by itself and then together with others and with the public data."""
        self._check_each_parameter()
        self._check_combination(public)

    def _check_each_parameter(self) -> None:
        """Refuse parameters that can't be, each by itself."""
        params = self.get_params(deep=False)
        for name, check in self._checks.items():
            if name in params:
                check(params[name], name)

    def _check_combination(self, public: Any) -> None:
        """Refuse parameters that don't go together, or not with the public data."""
        if "n_rows" not in self._get_param_names():
            return
        adjacency = Adjacency.of(self.adjacency)
        if adjacency is not Adjacency.ADD_REMOVE:
            if self.n_rows is not None:
                raise ValueError(f"n_rows is only for add-remove adjacency; under {adjacency.value} leave it out.")
        elif self.n_rows is None:
            raise ValueError(
                "n_rows must be given under add-remove adjacency: the true number of rows is private there. Give a "
                "public estimate of it; with persons, of the number of persons."
            )

    def _budget(self, n_rows: int) -> Budget:
        """Return what may be spent by a fit on `n_rows` rows; a declared number takes the place of the true one."""
        n_rows = n_rows if self.n_rows is None else self.n_rows
        return Budget.of(self.epsilon, self.delta, n_rows, self.adjacency)

    def _ledger(self, ledger: Ledger | None, unit: Unit = "row") -> Ledger:
        """Return a ledger capped at this fit's epsilon and delta, a child of the caller's if there is one."""
        adjacency, seed = Adjacency.of(self.adjacency), self.random_state
        if ledger is None:
            return Ledger.of_one_fit(self.epsilon, self.delta, adjacency=adjacency, unit=unit, random_state=seed)
        if not isinstance(ledger, Ledger):
            raise TypeError(f"ledger must be a dpadapt.Ledger or None, got {type(ledger).__name__}.")
        if ledger.adjacency is not adjacency:
            raise PrivacyError(
                f"the ledger counts neighbours by {ledger.adjacency.value}, this estimator by {adjacency.value}. "
                f"Make them agree."
            )
        name = type(self).__name__
        return ledger.child(self.epsilon, self.delta, label=name, unit=unit, random_state=seed)

    def _taken_for_granted(self, given: Mapping[str, Any]) -> list[tuple[type[Warning], str]]:
        """Return the warnings about a call of `fit` with these keyword arguments; no private row is read."""
        texts: list[tuple[type[Warning], str]] = []
        # A model of tables has no epsilon of its own, and a fit at infinity protects nothing.
        epsilon = getattr(self, "epsilon", math.inf)
        if given.get("ledger") is None and epsilon < math.inf:
            unit: Unit = "row" if given.get("persons") is None else "person"
            adjacency = str(getattr(self, "adjacency", Adjacency.ZERO_OUT.value))
            texts.append((NoLedgerWarning, no_ledger("fit", epsilon, getattr(self, "delta", 0.0), adjacency, unit)))
        public = given.get("public")
        assumed = []
        if getattr(self, "target_bounds", 0) is None and getattr(public, "y", None) is None:
            assumed.append("the target lies between -1 and 1; declare its range with target_bounds=(low, high)")
        if getattr(self, "bounds", 0) is None:
            assumed.append("features lie between -1 and 1; declare their ranges with bounds=(low, high)")
        if self._assumes_unit_features and public is None:
            assumed.append(
                "features lie in about [-1, 1]; scale them by ranges that are known without the private rows, or "
                "give public rows"
            )
        if assumed:
            texts.append((AssumedBoundsWarning, f"it is assumed that {', and that '.join(assumed)}."))
        return texts

    def _receipt(self, ledger: Ledger, budget: Budget, assumed: Sequence[str], *, notes: Sequence[str] = ()) -> Receipt:
        """Return the receipt of this fit, with what is taken to be public and what a reader should know.

        `notes` join the receipt's warnings; they must follow from releases and public data alone.
        """
        rows = f"the number of {ledger.unit}s"
        if self.n_rows is not None:
            rows = "n_rows, which was chosen without the private data"
        # Other rows would have been refused, so that a fit tells this much about them.
        cells = "that all private cells are finite numbers"
        if ledger.unit == "person":
            assumed = [IDS_ASSUMPTION, *assumed]
        if is_classifier(self):
            cells += " and all private labels among the classes"
        if budget.counted is not None and self.max_weight is not None:
            assumed = [weights_assumption(self.max_weight, self.mean_weight), *assumed]
        warnings = []
        if self.delta * budget.n_rows / (budget.counted or 1.0) >= 1:
            warnings.append(
                f"delta = {self.delta:.3g} is not below 1/n: a method that publishes whole rows could satisfy it; "
                f"use a smaller delta"
            )
        if not budget.worthwhile:
            warnings.append(
                "the budget is too small for this many rows: nothing was released and nothing was spent; the model is "
                "what the public data alone gives, if there is any"
            )
        return ledger.receipt(
            assumptions=[rows, "the columns and their order", cells, *assumed], warnings=[*warnings, *notes]
        )

    def _read_regression(
        self,
        X: Any,
        y: Any,
        public: Public | None,
        ledger: Ledger | None,
        *,
        persons: Any = None,
        sample_weight: Any = None,
        needs_y: bool = True,
    ) -> "RegressionInput":
        """Convert and check all input of a regression; without `needs_y`, `y` may be None and the targets are 0."""
        rows, whole, *read = gate.regression_rows(self, X, y, public, persons, sample_weight, needs_y=needs_y)
        spending = self._spending(ledger, rows.n_rows, None if whole is None else whole.shares)
        fixed = spending[1].fixed_rows
        return RegressionInput(rows, whole, *spending, fixed, self.n_features_in_, *read)

    def _read_classification(
        self,
        X: Any,
        y: Any,
        public: Public | None,
        ledger: Ledger | None,
        classes: Any,
        *,
        persons: Any = None,
        sample_weight: Any = None,
    ) -> "ClassificationInput":
        """Convert and check all input of a classification; `classes` are those declared, if any."""
        read = gate.classification_rows(self, X, y, public, classes, persons, sample_weight)
        rows, whole, X_public, codes_public, names, source = read
        spending = self._spending(ledger, rows.n_rows, None if whole is None else whole.shares)
        known = spending[1].fixed_rows, self.n_features_in_
        return ClassificationInput(rows, whole, *spending, *known, X_public, codes_public, names, source)

    def _spending(self, ledger: Ledger | None, n_rows: int, shares: Shares | None) -> tuple[Budget, Ledger]:
        """Return the budget and the ledger of a fit on rows, or on persons."""
        if shares is None:
            return self._budget(n_rows), self._ledger(ledger)
        budget, counted = self._budget(shares.n_units), shares.counted
        if counted is not None:
            budget = replace(budget, n_rows=counted * budget.n_rows, counted=counted)
        return budget, self._ledger(ledger, shares.unit)

    def without_seed(self) -> Self:
        """Return a copy without the seed of the noise, for functions that are sent to other machines."""
        model = copy(self)
        model.random_state = None
        return model

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(products_by_row(X, self.coef_.T) + self.intercept_, dtype=np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class _Input:
    """Checked input of one fit, with its budget and its ledger. It holds private rows and is no release.

    Parameters
    ----------
    rows : Blocks of Part
        All private rows, wherever they are kept.
    whole : Part or None
        All private rows in one part, if they are in memory.
    budget : Budget
    ledger : Ledger
        Capped at this fit's epsilon and delta.
    fixed_rows : bool
        Whether neighbours have equally many rows.
    n_features : int
        Number of columns.
    """

    rows: Blocks[Part]
    whole: Part | None
    budget: Budget
    ledger: Ledger
    fixed_rows: bool
    n_features: int

    @property
    def X(self) -> NDArray[Any]:
        """Private features, in memory."""
        return self._table.X

    @property
    def _table(self) -> Part:
        if self.whole is None:
            raise TypeError("this estimator needs all private rows in memory.")
        return self.whole


@dataclass(frozen=True, eq=False, repr=False)
class RegressionInput(_Input):
    """Checked input of a regression; public features and targets, if there are any."""

    X_public: NDArray[np.float64] | None
    y_public: NDArray[np.float64] | None

    @property
    def y(self) -> NDArray[Any]:
        """Private targets, in memory."""
        return self._table.y

    @property
    def labelled_public(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Public rows and their labels, or None if either is missing."""
        return None if self.X_public is None or self.y_public is None else (self.X_public, self.y_public)


@dataclass(frozen=True, eq=False, repr=False)
class ClassificationInput(_Input):
    """Checked input of a classification: labels are codes, positions in the sorted `classes`.

    `source` says for the receipt where the classes come from.
    """

    X_public: NDArray[np.float64] | None
    codes_public: NDArray[np.int64] | None
    classes: NDArray[Any]
    source: str

    @property
    def codes(self) -> NDArray[np.int64]:
        """Codes of the private labels, in memory."""
        return self._table.y


def features_assumption(X_public: Any) -> list[str]:
    """Return the range of the features that a fit assumed, for its receipt; nothing if public rows show it."""
    return ["the range of the features: about -1 to 1, the default without public rows"] if X_public is None else []


def bounds_assumption(target_bounds: Any) -> str:
    """Return the bounds of the target that a fit assumed, for its receipt."""
    low, high = checks.bounds(target_bounds, "target_bounds")
    return f"the bounds of the target: {low:g} to {high:g}{', the default' if target_bounds is None else ''}"


def class_probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each class, given its scores, or the score of the second of two classes."""
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    return softmax(scores)


class LinearClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A private classifier with one score (two classes) or one score per class, linear in the features."""

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any]
    decision_threshold_: float | None

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of the second class (two classes) or of each class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        return class_probabilities(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, or where there is a threshold, the class that it decides on."""
        codes = self._decided(self.predict_proba(X))
        return np.asarray(self.classes_[codes])

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        threshold = vars(self).get("decision_threshold_")
        rule = None if threshold is None else (threshold, self.get_params(deep=False)["decision_threshold"])
        return replace(super().summary(), threshold=rule)

    def _linear_probabilities(self, X: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """Return the probabilities of rows that were checked before, by the coefficients alone; None without rows."""
        return None if X is None else class_probabilities(X @ self.coef_.T + self.intercept_)

    def _decided(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        # Models of other classes, and models saved by earlier versions, have none.
        threshold = getattr(self, "decision_threshold_", None)
        if threshold is not None:
            return np.asarray(probabilities[:, 1] >= threshold, dtype=np.int64)
        return np.asarray(np.argmax(probabilities, axis=1), dtype=np.int64)
