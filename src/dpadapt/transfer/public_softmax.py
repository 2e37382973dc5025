"""The public softmax model: whitened public rows, maximum a-posteriori fit, prior variance by cross-validation."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpadapt.learning.losses import SoftmaxLoss
from dpadapt.learning.public_models import best_by_cross_validation
from dpadapt.learning.scaling import WHITENING_FLOOR

# Total variances of the public model's scores that cross-validation tries, its number of folds, and the largest number
# of rows it uses: a prior variance does not depend on the number of rows, so a part of them suffices. Chosen by hand.
SCORE_VARIANCES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_SCORE_VARIANCE_FOLDS = 4
_SCORE_VARIANCE_ROWS = 6000
# Prior variance of the intercepts: a class probability far from uniform is an intercept of about 2 on the logit scale.
_INTERCEPT_VARIANCE = 4.0


def mixed_units(scales: NDArray[np.float64]) -> bool:
    """Guess whether the columns have units of their own, as in a table, or share one, as pixels and embeddings do.

    A table is standardised. Where units are shared, the scales themselves show which directions matter, and dividing by
    them would lose that. Fewer than 50 columns are taken for a table, and so are columns of which one has 30 times the
    median scale.
    """
    if len(scales) < 50:
        return True
    return bool(scales.max() > 30.0 * np.median(scales))


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
        lambda train, total, start: _fit(Z[train], codes[train], _penalty(total, shares, len(train)), start, 1e-6),
        lambda test, coef: SoftmaxLoss().value(Z[test] @ coef, codes[test]) * len(test),
        start,
    )
    coef = _fit(Z, codes, _penalty(total, shares, len(Z)), start, 1e-9)
    return coef - coef.mean(axis=1, keepdims=True), total


def _penalty(total: float, shares: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    variances = np.concatenate([[_INTERCEPT_VARIANCE], np.maximum(total * shares, 1e-9)])
    return np.asarray(1.0 / (n * variances))[:, None]


def _fit(
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
        part = _fit(whitened[train], codes[train], penalty, solution, 1e-6)
        scores[test] = whitened[test] @ (part - part.mean(axis=1, keepdims=True))
    coef = basis @ solution[1:]
    return np.concatenate([coef, (solution[0] - center @ coef)[None]]), scores
