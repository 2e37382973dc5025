"""`best_of`: the candidate that predicts validation rows best. Not private."""

from collections.abc import Iterable
from typing import Any

from sklearn.base import clone

from dpadapt.data import Public


def best_of(
    candidates: Iterable[Any],
    X: Any,
    y: Any,
    *,
    X_validation: Any,
    y_validation: Any,
    public: Public | None = None,
) -> Any:
    """Fit every candidate and return the one with the best score on validation rows; the first of equals.

    Not private: which candidate wins is a function of the validation rows, so those must be public or the whole
    comparison without privacy, as in the tables of Bassily, Cortes, Mao and Mohri (ICML 2024). For private estimators
    use `rehearse`.

    Parameters
    ----------
    candidates : iterable of estimators
        Regressors are scored by R², classifiers by accuracy. They are cloned.
    X, y : array-like
        Target rows to fit on.
    X_validation, y_validation : array-like
        Target rows to choose by.
    public : Public, optional
        The source.

    Returns
    -------
    estimator
        The winner, fitted.

    Examples
    --------
    >>> from dpadapt import Public
    >>> from dpadapt.adaptation.mixtures import AlphaMixture
    >>> X, public = [[0.0], [1.0], [2.0]], Public([[0.0], [1.0]], [9.0, 9.0])
    >>> pair = [AlphaMixture(alpha) for alpha in (0.0, 1.0)]
    >>> best_of(pair, X, [0.0, 1.0, 2.0], X_validation=X, y_validation=[0.0, 1.0, 2.0], public=public).alpha
    0.0
    """
    best, best_score = None, float("-inf")
    for candidate in candidates:
        model = clone(candidate).fit(X, y, public=public)
        score = float(model.score(X_validation, y_validation))
        if best is None or score > best_score:
            best, best_score = model, score
    if best is None:
        raise ValueError("candidates must hold at least one estimator.")
    return best
