"""What a transfer classifier takes from public rows, free: coordinates, a public model, and how sure it is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpadapt.data import Public
from dpadapt.learning.losses import SoftmaxLoss, softmax
from dpadapt.learning.remembered import Remembered

# Directions with less than this share of the average public variance are not amplified further (as in geometry.py).
_FLOOR = 1e-2
# No public value lies further than this from its column's mean, in units of the column's scale. An indicator that is
# rare in public data would otherwise stretch the private rows in which it is not.
_REACH = 5.0
# Rows on which curvature, lengths and loss ranges are measured: their error of a few percent is below what matters.
_SAMPLE = 1500
# The total variance of a public model's scores, chosen by cross-validation on at most this many rows: a prior variance
# does not depend on the number of rows, so a part of them can choose it.
_TOTALS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_FOLDS = 4
_CHOOSING_ROWS = 6000
# A start probability far from uniform is a bias of about 2 on the logit scale.
_BIAS_VARIANCE = 4.0


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Constant first, then whitened public directions by falling variance, then directions of the public scores.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features, k)
        Applied to centred and scaled rows.
    shares : ndarray of shape (k,)
        Share of the public variance of each whitened direction; 0 for directions of the public scores.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    basis: NDArray[np.float64]
    shares: NDArray[np.float64]

    def transform(self, X: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[Any]:
        """Return the coordinates with a positive weight, times that weight, in the precision of `X`.

        A row too long for a float comes out not finite, without a warning.
        """
        linear = (np.column_stack([np.zeros(len(self.scale)), self.basis]) * weights)[:, weights > 0]
        linear /= self.scale[:, None]
        shift = -self.center @ linear
        if weights[0] > 0:
            shift[0] = weights[0]
        with np.errstate(over="ignore", invalid="ignore"):
            out: NDArray[Any] = X @ linear.astype(X.dtype)
            out += shift.astype(X.dtype)
        return out

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (n_features, n_classes) coefficients and intercepts for raw rows."""
        coef = (self.basis @ solution[1:]) / self.scale[:, None]
        return coef, solution[0] - self.center @ coef


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything public that a fit needs.

    Parameters
    ----------
    coordinates : Coordinates
    start : ndarray of shape (1 + k, n_classes)
        The public model; zero without public labels.
    coef, intercept : ndarray
        The same for raw rows.
    warm : bool
        Whether there were public labels.
    total : float
        Variance of scores that the public model was allowed; chosen by cross-validation.
    sample : ndarray of shape (at most 1500, 1 + k)
        Public rows in the coordinates.
    sample_scores : ndarray
        Their public scores.
    score_variances : ndarray
        Public variance of the scores along each of the last coordinates, those of the public scores.
    n_rows : int
        How many public rows there are.
    """

    coordinates: Coordinates
    start: NDArray[np.float64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    warm: bool
    total: float
    sample: NDArray[np.float64]
    sample_scores: NDArray[np.float64]
    score_variances: NDArray[np.float64]
    n_rows: int

    @property
    def curvature(self) -> float:
        """Mean second derivative of the loss per direction of the scores, at the public model."""
        p = softmax(self.sample_scores.copy())
        k = p.shape[1]
        found = float(np.mean(1.0 - np.sum(p**2, axis=1))) / (k - 1)
        # A public model that is sure of everything need not be right: at least a fifth of the most there can be.
        return float(max(found, 0.2 / k))

    @property
    def entropy(self) -> float:
        """Mean loss that the public model expects of itself."""
        p = softmax(self.sample_scores.copy())
        return float(-np.mean(np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)))


def prepare(
    X: NDArray[np.float64], codes: NDArray[np.int64] | None, n_classes: int, standardise: bool | None = None
) -> Prepared:
    """Return the public preparation; deterministic, so that it can be cached."""
    center, scale = X.mean(axis=0), X.std(axis=0)
    # A column that is constant in public has no public scale: it is left out, by a scale of infinity.
    constant = scale <= 1e-12 * np.maximum(1.0, np.abs(center))
    if standardise is None:
        standardise = mixed_units(scale[~constant])
    if standardise:
        rare = np.mean(np.median(X, axis=0) != X, axis=0)
        scale = scale * np.maximum(1.0, 1.0 / (_REACH * np.sqrt(np.maximum(rare, 0.5 / len(X)))))
    else:
        scale = np.full_like(scale, np.sqrt(np.mean(scale**2)) or 1.0)
    scale = np.where(constant, np.inf, scale)
    rows = (X - center) / scale
    values, vectors = np.linalg.eigh(rows.T @ rows / len(X))
    order = np.argsort(values)[::-1]
    values, vectors = np.maximum(values[order], 0.0), vectors[:, order]
    kept = values > 1e-7 * max(values[0], 1e-300)
    values, vectors = values[kept], vectors[:, kept]
    if not len(values):
        values, vectors = np.ones(1), np.zeros((X.shape[1], 1))
    basis = vectors / np.sqrt(values + _FLOOR * values.mean())
    coordinates = Coordinates(center, scale, basis, values / values.sum())
    whitened = coordinates.transform(X, np.ones(1 + len(values)))
    start, total, score_variances = np.zeros((1 + len(values), n_classes)), 0.0, np.zeros(0)
    if codes is not None:
        start, total = public_softmax(whitened, codes, n_classes, coordinates.shares)
        coordinates, start, score_variances = _with_scores(coordinates, whitened, start)
    coef, intercept = coordinates.coefficients(start)
    chosen = np.random.default_rng(len(X)).permutation(len(X))[:_SAMPLE]
    sample = coordinates.transform(X[chosen], np.ones(len(start)))
    scores = sample @ start
    return Prepared(
        coordinates, start, coef, intercept, codes is not None, total, sample, scores, score_variances, len(X)
    )


def mixed_units(scales: NDArray[np.float64]) -> bool:
    """Guess whether the columns have units of their own, as in a table, or share one, as pixels and embeddings do.

    A table is standardised; where units are shared the scales themselves say which directions matter, and dividing by
    them would lose that. Few columns are a table; so are columns of which one is 30 times as spread as the median.
    """
    if len(scales) < 50:
        return True
    return bool(scales.max() > 30.0 * np.median(scales))


def public_softmax(
    Z: NDArray[np.float64], codes: NDArray[np.int64], n_classes: int, shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the maximum a-posteriori softmax model and the score variance it was allowed.

    The prior variance of a direction is in proportion to its public variance, which is a plain ridge before whitening.
    Whitened, the fit takes a few dozen iterations.
    """
    # Rows of a file are often sorted; a fixed shuffle is as good as any and keeps fits reproducible.
    order = np.random.default_rng(len(Z)).permutation(len(Z))[:_CHOOSING_ROWS]
    folds = np.arange(len(order)) % min(_FOLDS, len(order))
    losses = np.zeros(len(_TOTALS))
    for fold in np.unique(folds):
        train, test = order[folds != fold], order[folds == fold]
        found = np.zeros((Z.shape[1], n_classes))
        for i, total in enumerate(_TOTALS):
            found = _fit(Z[train], codes[train], _penalty(total, shares, len(train)), found, 1e-6)
            losses[i] += SoftmaxLoss().value(Z[test] @ found, codes[test]) * len(test)
    total = _TOTALS[int(np.argmin(losses))]
    found = _fit(Z, codes, _penalty(total, shares, len(Z)), np.zeros((Z.shape[1], n_classes)), 1e-9)
    return found - found.mean(axis=1, keepdims=True), total


def _penalty(total: float, shares: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    variances = np.concatenate([[_BIAS_VARIANCE], np.maximum(total * shares, 1e-9)])
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
    found = minimize(objective, (start / stretch).ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(np.asarray(found.x).reshape(start.shape) * stretch)


def _with_scores(
    coordinates: Coordinates, whitened: NDArray[np.float64], start: NDArray[np.float64]
) -> tuple[Coordinates, NDArray[np.float64], NDArray[np.float64]]:
    """Append the directions of the public scores, whitened: re-scaling the public model is then a few numbers."""
    scores = (whitened[:, 1:] @ start[1:]).astype(np.float64)
    center = scores.mean(axis=0)
    scores = scores - center
    values, vectors = np.linalg.eigh(scores.T @ scores / len(scores))
    kept = values > 1e-6 * max(values.max(), 1e-300)
    if not kept.any() or values.max() <= 1e-12:
        return coordinates, start, np.zeros(0)
    turned = vectors[:, kept] / np.sqrt(values[kept])
    basis = np.column_stack([coordinates.basis, coordinates.basis @ start[1:] @ turned])
    shares = np.concatenate([coordinates.shares, np.zeros(int(kept.sum()))])
    longer = np.concatenate([start, np.zeros((int(kept.sum()), start.shape[1]))])
    return Coordinates(coordinates.center, coordinates.scale, basis, shares), longer, values[kept]


_PREPARED: Remembered[Prepared] = Remembered()


def prepared_for(
    public: Public, X: NDArray[np.float64], codes: NDArray[np.int64] | None, classes: NDArray[Any]
) -> Prepared:
    """Return the preparation of `public`, made once as long as its content stays the same."""
    return _PREPARED.get(public, [X, codes, classes], lambda: prepare(X, codes, len(classes)))
