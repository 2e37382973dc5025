"""Models side by side on public rows. Never on private ones: any score there would be a release of its own."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Fewer public rows than this say nothing.
_LEAST = 20
_FOLDS = 5


def compare_on_public(
    model: Any, X: NDArray[np.float64], y: NDArray[Any], *, task: Literal["regression", "classification"]
) -> dict[str, Any] | None:
    """Return the errors, on public rows, of no model, a public-only model and the private one.

    The public-only model predicts rows it was not fitted on (five folds).

    Parameters
    ----------
    model : fitted estimator
        What leaves a private fit; predicting with it is post-processing.
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
    if len(y) < _LEAST:
        return None
    folds = np.random.default_rng(0).permutation(np.arange(len(y)) % _FOLDS)
    constant, public = y.copy(), y.copy()
    for fold in range(_FOLDS):
        train, test = folds != fold, folds == fold
        constant[test] = usual(y[train], task)
        public[test] = public_only(X[train], y[train], task).predict(X[test])
    rows = [("no model: always the usual value", constant), ("public rows alone", public)]
    rows.append(("this model: private rows with public ones", model.predict(X)))
    return {
        "measure": "root mean squared error" if task == "regression" else "share of wrong classes",
        "rows": [{"name": name, "error": _error(y, guess, task)} for name, guess in rows],
        "n_public": len(y),
    }


def public_only(X: NDArray[np.float64], y: NDArray[Any], task: str) -> Any:
    """Return a non-private model with a penalty chosen by cross-validation."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if task == "regression":
        return RidgeCV(np.logspace(-3, 3, 13)).fit(X, y)
    if len(np.unique(y)) < 2:
        return DummyClassifier().fit(X, y)
    with warnings.catch_warnings():
        # A few steps short of the optimum is as good a reference.
        warnings.simplefilter("ignore")
        return LogisticRegression(C=10.0, max_iter=500).fit(X, y)


def usual(y: NDArray[Any], task: str) -> Any:
    """Return the mean of numbers, the most frequent of classes."""
    if task == "regression":
        return float(np.mean(y))
    values, counts = np.unique(y, return_counts=True)
    return values[int(np.argmax(counts))]


def _error(y: NDArray[Any], guess: NDArray[Any], task: str) -> float:
    if task == "regression":
        return float(np.sqrt(np.mean((y - guess) ** 2)))
    return float(np.mean(np.asarray(guess) != y))
