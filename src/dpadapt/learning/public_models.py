"""Linear models of public rows: ridge regression by leave-one-out, and penalised logistic and softmax regression."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpadapt.learning.losses import SoftmaxLoss, log_loss
from dpadapt.learning.scaling import WHITENING_FLOOR


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """A ridge regression on public rows.

    Parameters
    ----------
    solution : ndarray of shape (n_columns,)
    residuals : ndarray of shape (n_rows,)
        Exact leave-one-out residuals.
    ridge : float
    values, vectors : ndarray
        Eigenvalues (ascending) and eigenvectors of the second moment of the rows.
    """

    solution: NDArray[np.float64]
    residuals: NDArray[np.float64]
    ridge: float
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]


# Ridge strengths that `ridge_by_leave_one_out` tries, in mean eigenvalues of the second moment. The grid only has to
# contain the best strength roughly. Chosen by hand.
_RIDGE_GRID = np.logspace(-4, 1, 11)


def ridge_by_leave_one_out(
    Z: NDArray[np.float64], y: NDArray[np.float64], ridges: NDArray[np.float64] = _RIDGE_GRID
) -> RidgeModel:
    """Fit a ridge regression for each strength (in mean eigenvalues) and keep the one of least leave-one-out error.

    One eigendecomposition serves the whole grid; the leave-one-out residual is r / (1 - h), exactly.
    """
    n = len(y)
    values, vectors = np.linalg.eigh(Z.T @ Z / n)
    values = np.maximum(values, 0.0)
    rotated = Z @ vectors
    target = rotated.T @ y / n
    squares = rotated**2
    best: RidgeModel | None = None
    least = math.inf
    for ridge in values.mean() * ridges:
        shrunk = 1.0 / (values + ridge)
        leverage = np.minimum(squares @ shrunk / n, 1 - 1e-6)
        left_out = (y - rotated @ (shrunk * target)) / (1.0 - leverage)
        error = float(np.mean(left_out**2))
        if error < least:
            best, least = RidgeModel(vectors @ (shrunk * target), left_out, float(ridge), values, vectors), error
    if best is None:
        raise ValueError("the public labels are not finite; remove those rows.")
    return best


# Ridge strengths that the cross-validation of `public_classifier` tries, and its number of folds; more cost time. Half
# and twice change errors by less than 0.05% (`tools/constants.py learning`).
_CLASSIFIER_RIDGES = np.logspace(-4, 0, 5)
_CLASSIFIER_FOLDS = 4

Setting = TypeVar("Setting")


def best_by_cross_validation(
    folds: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    settings: Sequence[Setting],
    fit: Callable[[NDArray[Any], Setting, NDArray[np.float64]], NDArray[np.float64]],
    loss: Callable[[NDArray[Any], NDArray[np.float64]], float],
    start: NDArray[np.float64],
) -> Setting:
    """Return the setting of least held-out loss.

    Parameters
    ----------
    folds : iterable of (train, test)
        Rows, as indices or masks.
    settings : sequence
        Tried in this order within a fold; each fit starts from the one before.
    fit : callable
        (train, setting, start) -> coefficients.
    loss : callable
        (test, coefficients) -> sum of the losses of the test rows.
    start : ndarray
        Where the first fit of a fold starts.
    """
    losses = np.zeros(len(settings))
    for train, test in folds:
        coef = start
        for place, setting in enumerate(settings):
            coef = fit(train, setting, coef)
            losses[place] += loss(test, coef)
    return settings[int(np.argmin(losses))]


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
    folds = np.arange(len(Z)) % min(_CLASSIFIER_FOLDS, len(Z))
    # Rows of a file are often sorted; a fixed shuffle is as good as any and keeps fits reproducible.
    folds = np.random.default_rng(len(Z)).permutation(folds)
    start = np.zeros((Z.shape[1], n_scores))
    ridge = best_by_cross_validation(
        [(folds != fold, folds == fold) for fold in np.unique(folds)],
        [float(ridge) for ridge in _CLASSIFIER_RIDGES[::-1]],
        lambda train, ridge, start: _fit(Z[train], codes[train], ridge, start),
        lambda test, coef: log_loss(n_scores).value(_scores(Z[test], coef), codes[test]) * int(test.sum()),
        start,
    )
    return _fit(Z, codes, ridge, start)


def _scores(Z: NDArray[np.float64], coef: NDArray[np.float64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = Z @ coef
    return scores[:, 0] if coef.shape[1] == 1 else scores


def _fit(
    Z: NDArray[np.float64], codes: NDArray[np.int64], ridge: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    loss, shape = log_loss(start.shape[1]), start.shape

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        coef = flat.reshape(shape)
        scores = _scores(Z, coef)
        value = loss.value(scores, codes) + ridge / 2 * float(flat @ flat)
        gradient = (Z.T @ loss.weights(scores, codes) / len(Z)).reshape(shape) + ridge * coef
        return value, gradient.ravel()

    result = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-10})
    return np.asarray(result.x).reshape(shape)


# Total variances of the public model's scores that cross-validation tries, its number of folds, and the largest number
# of rows it uses: a prior variance does not depend on the number of rows, so a part of them suffices. Chosen by hand.
SCORE_VARIANCES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_SCORE_VARIANCE_FOLDS = 4
_SCORE_VARIANCE_ROWS = 6000
# Prior variance of the intercepts: a class probability far from uniform is an intercept of about 2 on the logit scale.
_INTERCEPT_VARIANCE = 4.0


def public_softmax(
    Z: NDArray[np.float64], codes: NDArray[np.int64], n_classes: int, shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the maximum a-posteriori softmax model and its prior variance of the scores.

    The prior variance of a direction is in proportion to its public variance, which is a plain ridge before whitening.
    Whitened, the fit takes a few dozen iterations.
    """
    # Rows of a file are often sorted; a fixed shuffle is as good as any and keeps fits reproducible.
    order = np.random.default_rng(len(Z)).permutation(len(Z))[:_SCORE_VARIANCE_ROWS]
    folds = np.arange(len(order)) % min(_SCORE_VARIANCE_FOLDS, len(order))
    start = np.zeros((Z.shape[1], n_classes))
    total = best_by_cross_validation(
        [(order[folds != fold], order[folds == fold]) for fold in np.unique(folds)],
        SCORE_VARIANCES,
        lambda train, total, start: _fit_map(Z[train], codes[train], _penalty(total, shares, len(train)), start, 1e-6),
        lambda test, coef: SoftmaxLoss().value(Z[test] @ coef, codes[test]) * len(test),
        start,
    )
    coef = _fit_map(Z, codes, _penalty(total, shares, len(Z)), start, 1e-9)
    return coef - coef.mean(axis=1, keepdims=True), total


def _penalty(total: float, shares: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    variances = np.concatenate([[_INTERCEPT_VARIANCE], np.maximum(total * shares, 1e-9)])
    return np.asarray(1.0 / (n * variances))[:, None]


def _fit_map(
    Z: NDArray[np.float64],
    codes: NDArray[np.int64],
    penalty: NDArray[np.float64],
    start: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    index = np.arange(len(codes))
    # In coordinates where the penalised loss is about round, the search needs few iterations.
    stretch = np.sqrt(1.0 / (1.0 / start.shape[1] + penalty))

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        coef = flat.reshape(start.shape) * stretch
        scores = Z @ coef
        scores -= scores.max(axis=1, keepdims=True)
        own = scores[index, codes]
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1)
        value = float(np.mean(np.log(sums) - own)) + float(np.sum(penalty * coef**2)) / 2
        scores /= sums[:, None]
        scores[index, codes] -= 1.0
        gradient = Z.T @ scores / len(Z) + penalty * coef
        return value, (gradient * stretch).ravel()

    options: Any = {"maxiter": 300, "ftol": tolerance, "gtol": 1e-7}
    result = minimize(objective, (start / stretch).ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(np.asarray(result.x).reshape(start.shape) * stretch)


def whitening(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the map from centred rows to whitened directions by falling variance, and each direction's variance share.

    Directions without variance are left out.
    """
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    order = np.argsort(values)[::-1]
    values, vectors = np.maximum(values[order], 0.0), vectors[:, order]
    kept = values > 1e-7 * max(values[0], 1e-300)
    values, vectors = values[kept], vectors[:, kept]
    if not len(values):
        values, vectors = np.ones(1), np.zeros((rows.shape[1], 1))
    return vectors / np.sqrt(values + WHITENING_FLOOR * values.mean()), values / values.sum()


def cross_fitted_softmax(
    rows: NDArray[np.float64],
    codes: NDArray[np.int64],
    n_classes: int,
    folds: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a softmax model of standardised rows, intercepts last, and scores of rows that it was not fitted to."""
    center = rows.mean(axis=0)
    basis, shares = whitening(rows - center)
    whitened = np.column_stack([np.ones(len(rows)), (rows - center) @ basis])
    solution, total = public_softmax(whitened, codes, n_classes, shares)
    scores = np.empty((len(rows), n_classes))
    for train, test in folds:
        penalty = _penalty(total, shares, len(train))
        # The whole model is close to that of a part of the rows, so the search starts there.
        part = _fit_map(whitened[train], codes[train], penalty, solution, 1e-6)
        scores[test] = whitened[test] @ (part - part.mean(axis=1, keepdims=True))
    coef = basis @ solution[1:]
    return np.concatenate([coef, (solution[0] - center @ coef)[None]]), scores
