"""Errors of several models on public rows. Never on private rows: any score there would be a release of its own."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Public rows below which no comparison is shown, and folds of the cross-validation. Few rows make the errors too
# uncertain to show. Chosen by hand.
_MIN_ROWS_TO_COMPARE = 20
_COMPARISON_FOLDS = 5


def compare_on_public(
    model: Any, X: NDArray[np.float64], y: NDArray[Any], *, task: Literal["regression", "classification"]
) -> dict[str, Any] | None:
    """Return the errors, on public rows, of no model, a public-only model and the private model.

    The public-only model predicts rows that it was not fitted on (five folds).

    Parameters
    ----------
    model : fitted estimator
        The result of a private fit; predicting with it is post-processing.
    X, y : ndarray
        Public rows and labels.
    task : {"regression", "classification"}

    Returns
    -------
    comparison : dict or None
        None if there are too few public rows.

    Examples
    --------
    >>> compare_on_public(None, np.zeros((3, 1)), np.zeros(3), task="regression") is None
    True
    """
    if len(y) < _MIN_ROWS_TO_COMPARE:
        return None
    folds = np.random.default_rng(0).permutation(np.arange(len(y)) % _COMPARISON_FOLDS)
    constant, public = y.copy(), y.copy()
    for fold in range(_COMPARISON_FOLDS):
        train, test = folds != fold, folds == fold
        constant[test] = _best_constant(y[train], task)
        public[test] = public_only(X[train], y[train], task).predict(X[test])
    rows = [
        (f"no model: the {'mean' if task == 'regression' else 'most frequent class'}", constant),
        ("public rows alone", public),
        ("this model: public and private rows", model.predict(X)),
    ]
    return {
        "measure": "root mean squared error" if task == "regression" else "share of wrong classes",
        "rows": [{"name": name, "error": _error(y, predicted, task)} for name, predicted in rows],
        "n_public": len(y),
    }


def public_only(X: NDArray[np.float64], y: NDArray[Any], task: str) -> Any:
    """Return a fitted non-private model: ridge regression (penalty by cross-validation) or logistic regression."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if task == "regression":
        return RidgeCV(np.logspace(-3, 3, 13)).fit(X, y)
    if len(np.unique(y)) < 2:
        return DummyClassifier().fit(X, y)
    with warnings.catch_warnings():
        # As a reference, a fit that stops a few steps before the optimum is good enough.
        warnings.simplefilter("ignore")
        return LogisticRegression(C=10.0, max_iter=500).fit(X, y)


def _best_constant(y: NDArray[Any], task: str) -> Any:
    """Return the mean of numbers, the most frequent of classes."""
    if task == "regression":
        return float(np.mean(y))
    values, counts = np.unique(y, return_counts=True)
    return values[int(np.argmax(counts))]


def _error(y: NDArray[Any], predicted: NDArray[Any], task: str) -> float:
    if task == "regression":
        return float(np.sqrt(np.mean((y - predicted) ** 2)))
    return float(np.mean(np.asarray(predicted) != y))
