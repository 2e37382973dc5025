"""Public preparation: everything that is learned from public rows before a private row is read.

Scales and whitened coordinates (`Geometry`), public models (`ridge_by_leave_one_out`, `public_classifier`), a spectrum
corrected for sampling (`shrunk_spectrum`), and a cache (`Remembered`), so that each `Public` is prepared once.
"""

import hashlib
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpadapt.data import Public
from dpadapt.learning.descent import LogisticLoss, SoftmaxLoss
from dpadapt.rows import row_products

# Smallest variance that whitening divides by, as a share of the mean public variance. Smaller values would amplify
# directions in which public rows hardly vary; larger ones would leave directions unwhitened. Chosen by hand.
WHITENING_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class Geometry:
    """A linear map of rows to coordinates of a common scale: centre, divide, append 1, and rotate.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features + 1, n_features + 1)
        Whitening map; the identity if nothing is known.
    spectrum : ndarray of shape (n_features + 1,)
        Share of the public variance that each final coordinate had before whitening; adds up to 1.
    typical_norm, max_norm : float
        Median and largest usual length (95% quantile) of a public row in the final coordinates.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    basis: NDArray[np.float64]
    spectrum: NDArray[np.float64]
    typical_norm: float
    max_norm: float

    def extend(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return scaled rows with their constant 1."""
        extended = np.empty((X.shape[0], X.shape[1] + 1))
        np.subtract(X, self.center, out=extended[:, :-1])
        extended[:, :-1] /= self.scale
        extended[:, -1] = 1.0
        return extended

    def transform(self, X: NDArray[Any], *, fixed_rows: bool = True) -> NDArray[np.float64]:
        """Return rows in the final coordinates; a row too long for a float comes out not finite, without a warning.

        `fixed_rows`: as in `row_products`.
        """
        with np.errstate(all="ignore"):
            return row_products(self.extend(X), self.basis, fixed_rows=fixed_rows)

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients and intercept for raw rows from a solution in the final coordinates."""
        extended = self.basis @ solution
        coef = (extended[:-1].T / self.scale).T
        return coef, extended[-1] - self.center @ coef

    def solution_for(self, extended: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the solution in the final coordinates that equals `extended` on scaled rows with their constant."""
        return np.asarray(np.linalg.solve(self.basis, extended), dtype=np.float64)


def quantile_between(values: NDArray[np.float64], wanted: float, low: float, high: float) -> float:
    """Return `wanted`, clipped to two quantiles of public `values`."""
    bottom, top = np.quantile(values, [low, high])
    return float(min(max(wanted, bottom), top))


def declared_geometry(n_features: int) -> Geometry:
    """Return the geometry of features that are only known to lie in about [-1, 1]."""
    k = n_features + 1
    # A uniform feature on [-1, 1] has mean square 1/3.
    typical = math.sqrt(n_features / 3.0 + 1.0)
    return Geometry(np.zeros(n_features), np.ones(n_features), np.eye(k), np.full(k, 1 / k), typical, math.sqrt(k))


def centre_and_scale(X: NDArray[np.float64], least: float = 1e-12) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation of each public column; a constant column has scale infinity.

    Dividing by infinity leaves a constant column out of the model. `least` is relative to the mean, or to 1.
    """
    center, scale = X.mean(axis=0), X.std(axis=0)
    return center, np.where(scale > least * np.maximum(1.0, np.abs(center)), scale, np.inf)


def label_spread(y: NDArray[np.float64]) -> float:
    """Return the standard deviation of public labels; labels that are all alike have none: then their size, or 1.

    Examples
    --------
    >>> label_spread(np.array([-1.0, 1.0])), label_spread(np.zeros(2)), label_spread(np.full(2, 40.0))
    (1.0, 1.0, 40.0)
    """
    spread, level = float(np.std(y)), abs(float(np.mean(y)))
    return spread if spread > 1e-12 * level else max(1.0, level)


def public_geometry(X: NDArray[np.float64]) -> Geometry:
    """Return the geometry of public rows: standardised and whitened."""
    n, d = X.shape
    center, scale = centre_and_scale(X)
    extended = Geometry(center, scale, np.eye(d + 1), np.ones(d + 1), 1.0, 1.0).extend(X)
    values, vectors = np.linalg.eigh(extended.T @ extended / n)
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + WHITENING_FLOOR * values.mean())
    norms = np.linalg.norm(extended @ basis, axis=1)
    typical, largest = (float(q) for q in np.quantile(norms, [0.5, 0.95]))
    return Geometry(center, scale, basis, values / values.sum(), typical, largest)


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


# Ridge strengths that the cross-validation of `public_classifier` tries, and its number of folds; more cost time.
# Chosen by hand.
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
        lambda test, coef: _loss(n_scores).value(_scores(Z[test], coef), codes[test]) * int(test.sum()),
        start,
    )
    return _fit(Z, codes, ridge, start)


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

    result = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-10})
    return np.asarray(result.x).reshape(shape)


T = TypeVar("T")


class Remembered(Generic[T]):
    """One preparation for each `Public`, kept while the object lives and its content stays the same; thread-safe.

    Examples
    --------
    >>> memory, made = Remembered(), []
    >>> X = np.zeros((3, 2))
    >>> public = Public(X)
    >>> _ = [memory.get(public, [X], lambda: made.append(1)) for _ in range(3)]
    >>> X[0, 0] = 1.0
    >>> memory.get(public, [X], lambda: made.append(1))
    >>> len(made)
    2
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Public, tuple[bytes, T]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, public: Public, parts: Iterable[NDArray[Any] | None], make: Callable[[], T]) -> T:
        """Return the result of `make` for these parts of `public`: the stored one if they have not changed."""
        digest = _digest(parts)
        with self._lock:
            known = self._known.get(public)
        if known is not None and known[0] == digest:
            return known[1]
        made = make()
        with self._lock:
            self._known[public] = digest, made
        return made


def _digest(parts: Iterable[NDArray[Any] | None]) -> bytes:
    """Return a fingerprint of arrays of numbers or text, with their shapes and types."""
    digest = hashlib.blake2b()
    for part in parts:
        if part is None:
            digest.update(b"none")
            continue
        # The bytes of an object array are addresses; the text of its values is used instead.
        array = np.ascontiguousarray(part.astype(str) if part.dtype == object else part)
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(array.tobytes())
    return digest.digest()


# Rows per column above which a sample spectrum is not corrected: the correction would be smaller than its own error.
# Chosen by hand.
_ROWS_PER_COLUMN_WITHOUT_CORRECTION = 20


def shrunk_spectrum(values: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Return estimates of the population variances along sample eigenvectors; `values` and the result ascend.

    The analytical nonlinear shrinkage of O. Ledoit and M. Wolf, "Analytical nonlinear shrinkage of large-dimensional
    covariance matrices", Annals of Statistics 48(5), 2020.

    Examples
    --------
    >>> rows = np.random.default_rng(7).standard_normal((150, 100))
    >>> values = np.linalg.eigvalsh(rows.T @ rows / 150)
    >>> bool(np.ptp(shrunk_spectrum(values, 150)) < 0.3 * np.ptp(values))
    True
    """
    n = n_rows - 1
    if n_rows > _ROWS_PER_COLUMN_WITHOUT_CORRECTION * len(values) or n < 2 or not values[-1] > 0:
        return values
    # Columns that depend exactly on others have variance 0 in the population too. Zeros that are only due to fewer rows
    # than columns do not mean that.
    rank = int(np.sum(values > 1e-10 * values[-1]))
    p = rank if rank < min(n, len(values)) else len(values)
    missing = np.zeros(len(values) - p)
    lam = np.maximum(values[-min(p, n) :], 1e-12 * values[-1])
    width = n ** (-1 / 3)
    # x[i, j]: distance of eigenvalue i from eigenvalue j in bandwidths of j (Epanechnikov kernel).
    bandwidth = width * lam[None, :]
    x = (lam[:, None] - lam[None, :]) / bandwidth
    root = math.sqrt(5)
    density = np.mean(3 / (4 * root) * np.maximum(1 - x**2 / 5, 0) / bandwidth, axis=1)
    with np.errstate(all="ignore"):
        logs = np.log(np.maximum(np.abs((root - x) / np.where(x == -root, 1.0, root + x)), 1e-300))
    hilbert = -3 / (10 * math.pi) * x + 3 / (4 * root * math.pi) * (1 - x**2 / 5) * logs
    hilbert = np.where(np.abs(x) == root, -3 / (10 * math.pi) * x, hilbert)
    hilbert = np.mean(hilbert / bandwidth, axis=1)
    if p <= n:
        ratio = p / n
        shrunk = lam / ((math.pi * ratio * lam * density) ** 2 + (1 - ratio - math.pi * ratio * lam * hilbert) ** 2)
    else:
        inner = 3 / 10 / width**2 + 3 / 4 / root / width * (1 - 1 / 5 / width**2) * math.log(
            abs((1 + root * width) / (1 - root * width))
        )
        null = 1 / (math.pi * (p - n) / n * (inner / math.pi * float(np.mean(1 / lam))))
        above = lam / (math.pi**2 * lam**2 * (density**2 + hilbert**2))
        shrunk = np.concatenate([np.full(p - n, null), above])
    return np.concatenate([missing, np.sort(np.maximum(shrunk, 0.0))])
