"""A classifier fitted on public rows: where the private one starts."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss

_RIDGES = np.logspace(-4, 0, 5)
_FOLDS = 4


def public_classifier(Z: NDArray[np.float64], codes: NDArray[np.int64], n_scores: int) -> NDArray[np.float64]:
    """Return the ridge-penalised maximum-likelihood coefficients, the ridge chosen by cross-validation.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_columns)
        Public rows with their constant.
    codes : ndarray of int
        Class codes.
    n_scores : int
        1 for two classes coded 0 and 1, else the number of classes. A class without public rows is allowed.

    Returns
    -------
    ndarray of shape (n_columns, n_scores)
    """
    folds = np.arange(len(Z)) % min(_FOLDS, len(Z))
    # Rows of a file are often sorted; a fixed shuffle is as good as any and keeps fits reproducible.
    folds = np.random.default_rng(len(Z)).permutation(folds)
    losses = np.zeros(len(_RIDGES))
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        start = np.zeros((Z.shape[1], n_scores))
        for i, ridge in reversed(list(enumerate(_RIDGES))):
            start = _fit(Z[train], codes[train], float(ridge), start)
            losses[i] += _loss(n_scores).value(_scores(Z[test], start), codes[test]) * test.sum()
    return _fit(Z, codes, float(_RIDGES[int(np.argmin(losses))]), np.zeros((Z.shape[1], n_scores)))


def _loss(n_scores: int) -> LogisticLoss | SoftmaxLoss:
    return LogisticLoss() if n_scores == 1 else SoftmaxLoss()


def _scores(Z: NDArray[np.float64], coef: NDArray[np.float64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = Z @ coef
    return scores[:, 0] if coef.shape[1] == 1 else scores


def _fit(
    Z: NDArray[np.float64], codes: NDArray[np.int64], ridge: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    loss, shape = _loss(start.shape[1]), start.shape

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        coef = flat.reshape(shape)
        scores = _scores(Z, coef)
        value = loss.value(scores, codes) + ridge / 2 * float(flat @ flat)
        gradient = (Z.T @ loss.weights(scores, codes) / len(Z)).reshape(shape) + ridge * coef
        return value, gradient.ravel()

    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-10})
    return np.asarray(found.x).reshape(shape)
