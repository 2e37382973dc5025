"""Fixed mixtures of source and target, the plainest baselines of Bassily, Cortes, Mao and Mohri (2024). Not private.

`alpha=1` trains on the source alone ("train source" of Tables 2 and 6), `alpha=0` on the target alone.
"""

from typing import Any

from dpadapt import _validate
from dpadapt.adaptation.problem import mixture_share
from dpadapt.adaptation.unprotected import TwoSamples, UnprotectedClassifier, UnprotectedRegressor
from dpadapt.adaptation.weighted import Vector


class AlphaMixture(UnprotectedRegressor):
    """Ridge regression on alpha parts of the public source and 1 - alpha parts of the target. Not private.

    Minimises alpha times the mean squared error on the source plus 1 - alpha times that on the target.

    Privacy
    -------
    None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses it.

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
        Says that nothing is protected.

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

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        _validate.positive(self.ridge, "ridge")

    def _weights(self, samples: TwoSamples) -> Vector:
        return samples.reference(self.alpha)


class AlphaMixtureClassifier(UnprotectedClassifier):
    """Logistic regression on alpha parts of the public source and 1 - alpha parts of the target. Not private.

    Privacy
    -------
    None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses it.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the source, from 0 (target only) to 1 (source only). Without labelled public data it is taken as 0.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    classes : array-like, optional
        All labels there can be. Default: those that occur.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt
        Says that nothing is protected.

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

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        _validate.positive(self.ridge, "ridge")

    def _weights(self, samples: TwoSamples) -> Vector:
        return samples.reference(self.alpha)
