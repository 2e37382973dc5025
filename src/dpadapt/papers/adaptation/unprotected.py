"""Baselines that are **not private**: their base classes, and fixed mixtures of source and target.

They show how well one could do without privacy. They protect nothing, and their receipts say so. Their validation hides
private cells like that of any estimator here, and a ledger with a finite cap refuses them.

The mixtures are the plainest baselines of Bassily, Cortes, Mao and Mohri (2024): `alpha=1` trains on the source alone
("train source" of Tables 2 and 6), `alpha=0` on the target alone.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.data import Public
from dpadapt.learning.estimator import (
    LinearClassifier,
    PrivateEstimator,
    label_codes,
    label_set,
    moderate,
    numeric_labels,
)
from dpadapt.mechanisms.mechanism import NonPrivate
from dpadapt.papers.adaptation.preparation import Array, Standard, standard, weighted_logistic, weighted_ridge
from dpadapt.papers.adaptation.problem import mixture_share, reference_weights

_NOT_PRIVATE = "not private: the model is computed from the rows themselves, without noise; it must not be shared"


@dataclass(frozen=True, eq=False, repr=False)
class TwoSamples:
    """Standardised rows and labels (or class codes) of the public source and of the target.

    Without labelled public data `Z_public` and `y_public` are empty.
    """

    Z_public: Array
    y_public: NDArray[Any]
    Z: Array
    y: NDArray[Any]

    @property
    def rows(self) -> Array:
        """All rows, public rows first."""
        return np.vstack([self.Z_public, self.Z])

    @property
    def labels(self) -> NDArray[Any]:
        """All labels, public labels first."""
        return np.concatenate([self.y_public, self.y])

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of public and of target rows."""
        return len(self.Z_public), len(self.Z)

    def reference(self, alpha: float) -> Array:
        """Return weights: alpha spread over the public rows, the rest (all, without public rows) over the target."""
        return reference_weights(*self.sizes, alpha if len(self.Z_public) else 0.0)


class Unprotected:
    """What the baselines share: everything is charged to the ledger as a leak before anything is computed."""

    # Nothing is protected, so the choice of neighbours does not matter.
    adjacency = "zero-out"
    ridge: float

    def _check_parameters(self) -> None:
        """Refuse bad parameters before any row is read."""
        raise NotImplementedError

    def _weights(self, samples: TwoSamples) -> Array:
        """Return one weight per row, public rows first."""
        raise NotImplementedError

    def _disclose(self, ledger: Ledger | None) -> Receipt:
        """Charge epsilon = inf and return the receipt that says so; a ledger with a finite cap refuses."""
        if ledger is None:
            child = Ledger(math.inf)
        elif isinstance(ledger, Ledger):
            child = ledger.child(math.inf, ledger.delta, label=type(self).__name__, unit="row")
        else:
            raise TypeError(f"ledger must be a dpadapt.Ledger or None, got {type(ledger).__name__}.")
        child.start(NonPrivate(), label="the rows themselves (not private)")
        return child.receipt(warnings=[_NOT_PRIVATE])


class UnprotectedRegressor(Unprotected, RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear regression that protects nothing; subclasses define the weights of the rows."""

    coef_: Array
    intercept_: float

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> Any:
        """Fit on target rows `X`, `y` and labelled public rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Target features.
        y : array-like of shape (n_rows,)
            Target labels.
        public : Public, optional
            Public source with the same columns. Without labels it is not used: the model is that of the target alone.
        ledger : Ledger, optional
            Charged with epsilon = inf; one with a finite cap refuses.
        """
        self._check_parameters()
        rows, targets = self._check_rows(X, y, y_numeric=True)
        rows, targets = moderate(rows, "X"), moderate(targets, "y")
        X_public, y_public = self._check_public(public, X)
        labels = np.empty(0) if y_public is None else numeric_labels(y_public)
        receipt = self._disclose(ledger)
        scaling, samples = _two_samples(rows, targets, X_public, labels)
        coef, intercept = scaling.undo(*self._solve(samples))
        self.privacy_ = receipt
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return self._scores(X)

    def _solve(self, samples: TwoSamples) -> tuple[Array, float]:
        """Return coefficients and intercept for standardised rows."""
        return weighted_ridge(samples.rows, samples.labels, self._weights(samples), self.ridge)


class UnprotectedClassifier(Unprotected, LinearClassifier):
    """A logistic regression that protects nothing; subclasses define the weights of the rows."""

    classes: Any

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> Any:
        """Fit on target rows `X`, `y` and labelled public rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Target features.
        y : array-like of shape (n_rows,)
            Target labels.
        public : Public, optional
            Public source with the same columns. Without labels it is not used: the model is that of the target alone.
        ledger : Ledger, optional
            Charged with epsilon = inf; one with a finite cap refuses.
        """
        self._check_parameters()
        rows, labels = self._check_rows(X, y, y_numeric=False)
        rows = moderate(rows, "X")
        X_public, y_public = self._check_public(public, X)
        known = self.classes
        if known is None and y_public is not None:
            # Nothing is protected here, so the target's own labels may be read.
            known = np.concatenate([y_public, labels])
        classes, _ = label_set(known, None, labels)
        codes = label_codes(labels, classes, "y")
        codes_public = np.empty(0, np.int64) if y_public is None else label_codes(y_public, classes, "public y")
        receipt = self._disclose(ledger)
        scaling, samples = _two_samples(rows, codes, X_public, codes_public)
        coef, intercept = scaling.undo(*self._solve(samples, len(classes)))
        self.privacy_ = receipt
        self.coef_, self.intercept_, self.classes_ = coef, intercept, classes
        return self

    def _solve(self, samples: TwoSamples, n_classes: int) -> tuple[Array, Array]:
        """Return coefficients and intercepts for standardised rows."""
        weights = self._weights(samples)
        return weighted_logistic(samples.rows, samples.labels, weights, self.ridge, n_classes)


def _two_samples(
    X: NDArray[Any], y: NDArray[Any], X_public: Array | None, y_public: NDArray[Any]
) -> tuple[Standard, TwoSamples]:
    """Standardise both samples by their pooled means and spreads; leave unlabelled public rows out."""
    if X_public is None or len(y_public) == 0:
        scaling = standard(X)
        return scaling, TwoSamples(np.empty((0, X.shape[1])), y_public[:0], scaling.apply(X), y)
    scaling = standard(np.vstack([X_public, X]))
    return scaling, TwoSamples(scaling.apply(X_public), y_public, scaling.apply(X), y)


class _MixtureWeights:
    """Parameters and weights of a fixed mixture."""

    alpha: float
    ridge: float

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        checks.scale(self.ridge, "ridge")

    def _weights(self, samples: TwoSamples) -> Array:
        return samples.reference(self.alpha)


class AlphaMixture(_MixtureWeights, UnprotectedRegressor):
    """Ridge regression on alpha parts of the public source and 1 - alpha parts of the target. Not private.

    Minimises alpha times the mean squared error on the source plus 1 - alpha times that on the target.

    **Privacy.** None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses
    it.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the source, from 0 (target only) to 1 (source only). Without labelled public data it is taken as 0.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_features_in_ : int
    privacy_ : Receipt
        States that nothing is protected.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> X, X_public = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0]])
    >>> model = AlphaMixture(alpha=0.0).fit(X, [0.0, 1.0, 2.0], public=Public(X_public, [5.0, 5.0]))
    >>> float(model.predict([[1.0]])[0])
    1.0
    >>> model.privacy_.epsilon
    inf
    """

    def __init__(self, alpha: float = 0.5, *, ridge: float = 1e-3) -> None:
        self.alpha = alpha
        self.ridge = ridge


class AlphaMixtureClassifier(_MixtureWeights, UnprotectedClassifier):
    """Logistic regression on alpha parts of the public source and 1 - alpha parts of the target. Not private.

    **Privacy.** None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses
    it.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the source, from 0 (target only) to 1 (source only). Without labelled public data it is taken as 0.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    classes : array-like, optional
        All labels that can occur. Default: those that do occur.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt
        States that nothing is protected.

    Examples
    --------
    >>> from dpadapt import Public
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> model = AlphaMixtureClassifier(alpha=0.1).fit(X, [0, 0, 1, 1], public=Public([[0.0], [3.0]], [1, 0]))
    >>> model.predict([[0.0], [3.0]])
    array([0, 1])
    """

    def __init__(self, alpha: float = 0.5, *, ridge: float = 1e-3, classes: Any = None) -> None:
        self.alpha = alpha
        self.ridge = ridge
        self.classes = classes
