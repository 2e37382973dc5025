"""Baselines of private domain adaptation that protect nothing: mixtures, reweighing, and best-effort adaptation.

They show how well one could do without privacy. The mixtures are the plainest baselines of Bassily, Cortes, Mao and
Mohri (ICML 2024): `alpha=1` trains on the source alone ("train source" of Tables 2 and 6), `alpha=0` on the target
alone. Reweighing: kernel means (Huang et al., NeurIPS 2006) and second moments (Cortes and Mohri, Theoretical Computer
Science 2014); neither uses a label of the target. `SBest`: P. Awasthi, C. Cortes, M. Mohri, 2024, problems (3) and (5)
of the paper, or the exact minimiser of its convex problem (6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression

from benchmarks.theory.adaptation import discrepancy as exact_discrepancy
from benchmarks.theory.adaptation_problems import FORMS, best_weights, objective, solve
from dpadapt import checks
from dpadapt.data import Public
from dpadapt.learning.scaling import Scaling
from dpadapt.papers.adaptation.matching import second_moment, smoothed_norm
from dpadapt.papers.adaptation.problem import Array, CrossEntropy, Penalties, mixture_share, reference_weights

# Score of a class that does not occur among the rows, below any score that a row can reach: exp(-1000) is 0 in floating
# point.
_IMPOSSIBLE_SCORE = 1e3
# Rows of a kernel that are computed at once. Larger blocks need more memory for the distances, besides the kernel
# itself. Chosen by hand.
_KERNEL_BLOCK_ROWS = 512
# Radius of the ball around the mixture's own coefficients over which the default discrepancy is taken, for standardised
# rows and labels. A larger ball gives a larger discrepancy, so that fewer source rows keep their weight; over the whole
# ball of coefficients the source rows are all in or all out. Chosen by hand.
_LOCAL_DISCREPANCY_RADIUS = 0.5
# Most alternations of logistic fits and weights. Each lowers the objective, and a few are enough; this is a safeguard.
_MOST_ALTERNATIONS = 30


@dataclass(frozen=True, eq=False)
class Matched:
    """Weights that add up to 1, the spectral distance they reach, and a lower bound on any such distance."""

    weights: Array
    distance: float
    at_least: float


def discrepancy_weights(source: Array, moment: Array, *, tolerance: float = 0.01, most_steps: int = 300) -> Matched:
    """Return weights q on the simplex for which Σ q_i x_i x_i' is close to `moment` in spectral norm.

    For the squared loss and linear models in a ball this norm is the unlabelled discrepancy, up to a constant. The norm
    is smoothed to within tolerance / 2 and minimised by accelerated mirror descent. It starts from equal weights, which
    favours even weights among several solutions. It stops when the distance is within `tolerance`, relative to the norm
    of `moment`, of its lower bound, or after `most_steps`. A hundred steps are enough for a dozen columns; with a
    hundred columns the last steps only concentrate the weight on few rows.
    """
    m, d = source.shape
    accuracy = tolerance * max(float(np.linalg.norm(moment, 2)), 1e-300)
    sharpness = 2 * math.log(2 * d) / accuracy
    current = lead = np.full(m, 1.0 / m)
    logs = np.log(lead)
    # Differences of moments are affine in the weights: those of mixed weights are the mixed differences.
    apart = apart_lead = second_moment(source, lead) - moment
    best = Matched(lead, float(np.linalg.norm(apart, 2)), 0.0)
    # Too small at the start on purpose: it is doubled until the step below is safe.
    curvature = 1e-3 * sharpness * float(np.median(np.einsum("ij,ij->i", source, source))) ** 2 + 1e-300
    reach = 0.0
    for _ in range(most_steps):
        while True:
            length = (1 + math.sqrt(1 + 4 * reach * curvature)) / (2 * curvature)
            share = length / (reach + length)
            middle = (1 - share) * current + share * lead
            values, vectors = np.linalg.eigh((1 - share) * apart + share * apart_lead)
            value, signed = smoothed_norm(values, sharpness)
            gradient = (source @ vectors) ** 2 @ signed
            logs_next = logs - length * gradient
            logs_next -= logs_next.max()
            lead_next = np.exp(logs_next)
            lead_next /= lead_next.sum()
            following = (1 - share) * current + share * lead_next
            apart_next = second_moment(source, lead_next) - moment
            apart_following = (1 - share) * apart + share * apart_next
            values_next = np.asarray(np.linalg.eigvalsh(apart_following), dtype=np.float64)
            reached, _ = smoothed_norm(values_next, sharpness)
            # |.|_1 is the norm in which the entropy is strongly convex.
            step = following - middle
            allowed = value + float(gradient @ step) + curvature / 2 * float(np.abs(step).sum()) ** 2
            if reached <= allowed + 1e-12 * abs(value):
                break
            curvature *= 2
        current, lead, logs, apart, apart_lead = following, lead_next, logs_next, apart_following, apart_next
        reach += length
        curvature *= 0.9
        # W = V diag(signed) V' has nuclear norm at most 1, so for every q on the simplex
        # |M(q) - M| >= <W, M(q) - M> >= min_i x_i'W x_i - <W, M>.
        lower = float(gradient.min() - signed @ np.sum(vectors * (moment @ vectors), axis=0))
        lower, distance = max(best.at_least, lower), float(np.abs(values_next).max())
        better = distance < best.distance
        best = Matched(current if better else best.weights, min(distance, best.distance), lower)
        if best.distance - best.at_least <= accuracy:
            break
    return best


def weighted_ridge(Z: Array, y: Array, weights: Array, ridge: float) -> tuple[Array, float]:
    """Return coefficients and intercept that minimise the weighted squared error plus a ridge.

    `ridge` is relative to the average eigenvalue of the weighted second moment; the intercept is not penalised.
    """
    total = float(weights.sum())
    if total <= 0:
        return np.zeros(Z.shape[1]), 0.0
    share = weights / total
    middle, level = share @ Z, float(share @ y)
    centred = Z - middle
    gram = (centred * share[:, None]).T @ centred
    cross = centred.T @ (share * (y - level))
    # Whatever the columns are, the sum of `gram` and this is positive definite.
    strength = ridge * max(float(np.trace(gram)) / len(gram), 1e-12)
    coef = np.asarray(np.linalg.solve(gram + strength * np.eye(len(gram)), cross), dtype=np.float64)
    return coef, level - float(middle @ coef)


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


def _two_samples(X: Any, y: NDArray[Any], public: Public | None, y_public: NDArray[Any]) -> tuple[Scaling, TwoSamples]:
    """Standardise both samples by their pooled means and spreads; leave unlabelled public rows out."""
    rows = np.asarray(X, dtype=np.float64)
    if public is None or len(y_public) == 0:
        scaling = Scaling.of(rows)
        return scaling, TwoSamples(np.empty((0, rows.shape[1])), y_public[:0], scaling.scaled(rows), y)
    above = np.asarray(public.X, dtype=np.float64)
    scaling = Scaling.of(np.vstack([above, rows]))
    return scaling, TwoSamples(scaling.scaled(above), y_public, scaling.scaled(rows), y)


class _Unprotected(BaseEstimator):  # type: ignore[misc]
    """A linear model that protects nothing; subclasses define the weights of the rows."""

    ridge: float

    def _check_parameters(self) -> None:
        """Refuse bad parameters."""
        raise NotImplementedError

    def _weights(self, samples: TwoSamples) -> Array:
        """Return one weight per row, public rows first."""
        raise NotImplementedError


class UnprotectedRegressor(RegressorMixin, _Unprotected):  # type: ignore[misc]
    """A linear regression that protects nothing."""

    coef_: Array
    intercept_: float

    def fit(self, X: Any, y: Any, *, public: Public | None = None) -> Any:
        """Fit on target rows `X`, `y` and labelled public rows; public rows without labels are not used."""
        self._check_parameters()
        labels = np.empty(0) if public is None or public.y is None else np.asarray(public.y, dtype=np.float64)
        scaling, samples = _two_samples(X, np.asarray(y, dtype=np.float64), public, labels)
        coef, intercept = scaling.raw(*self._solve(samples))
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return np.asarray(np.asarray(X, dtype=np.float64) @ self.coef_ + self.intercept_)

    def _solve(self, samples: TwoSamples) -> tuple[Array, float]:
        """Return coefficients and intercept for standardised rows."""
        return weighted_ridge(samples.rows, samples.labels, self._weights(samples), self.ridge)


class UnprotectedClassifier(ClassifierMixin, _Unprotected):  # type: ignore[misc]
    """A logistic regression that protects nothing."""

    classes: Any

    def fit(self, X: Any, y: Any, *, public: Public | None = None) -> Any:
        """Fit on target rows `X`, `y` and labelled public rows; public rows without labels are not used."""
        self._check_parameters()
        above = [] if public is None or public.y is None else [np.asarray(public.y)]
        labels = np.asarray(y)
        classes = np.unique(np.concatenate([*above, labels]) if self.classes is None else self.classes)
        codes_public = np.searchsorted(classes, above[0]) if above else np.empty(0, np.int64)
        scaling, samples = _two_samples(X, np.searchsorted(classes, labels), public, codes_public)
        coef, intercept = self._solve(samples, len(classes))
        coef, intercept = scaling.raw(coef.T, intercept)
        self.coef_, self.intercept_, self.classes_ = coef.T, intercept, classes
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row of `X`."""
        scores = np.asarray(X, dtype=np.float64) @ self.coef_.T + self.intercept_
        codes = (scores[:, 0] > 0).astype(np.int64) if len(self.classes_) == 2 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _solve(self, samples: TwoSamples, n_classes: int) -> tuple[Array, Array]:
        """Return coefficients and intercepts for standardised rows."""
        weights = self._weights(samples)
        return weighted_logistic(samples.rows, samples.labels, weights, self.ridge, n_classes)


def weighted_logistic(
    Z: Array, codes: NDArray[np.int64], weights: Array, ridge: float, n_classes: int
) -> tuple[Array, Array]:
    """Return coefficients and intercepts, one row per score, that minimise the weighted log-loss plus a ridge.

    `ridge` is relative to the average weighted square of a column. A class without weight gets a score so low that it
    is never predicted.
    """
    total = float(weights.sum())
    n_scores = 1 if n_classes == 2 else n_classes
    coef, intercept = np.zeros((n_scores, Z.shape[1])), np.zeros(n_scores)
    used = weights > 0
    present = np.unique(codes[used])
    if len(present) == 0:
        return coef, intercept
    if len(present) == 1:
        # One class only: it is predicted for every row.
        intercept[:] = -_IMPOSSIBLE_SCORE
        if n_scores > 1 or present[0] == 1:
            intercept[0 if n_scores == 1 else present[0]] = _IMPOSSIBLE_SCORE
        return coef, intercept
    share = weights[used] / total
    rows = Z[used]
    strength = ridge * max(float(share @ np.mean(rows**2, axis=1)), 1e-12)
    # scikit-learn minimises C Σ weight loss + |w|²/2; the weights here add up to 1.
    solver = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", max_iter=200, tol=1e-8)
    solver.fit(rows, codes[used], sample_weight=share)
    if n_scores == 1:
        return np.asarray(solver.coef_), np.asarray(solver.intercept_)
    if len(present) == 2:
        # Two of several classes: half the score for one, minus half for the other.
        halves = np.array([[-0.5], [0.5]])
        coef[present], levels = halves * solver.coef_, (halves * solver.intercept_)[:, 0]
    else:
        coef[present], levels = solver.coef_, solver.intercept_
    intercept[:] = -_IMPOSSIBLE_SCORE
    intercept[present] = levels
    return coef, intercept


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

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> X, X_public = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0]])
    >>> model = AlphaMixture(alpha=0.0).fit(X, [0.0, 1.0, 2.0], public=Public(X_public, [5.0, 5.0]))
    >>> float(model.predict([[1.0]])[0])
    1.0
    """

    def __init__(self, alpha: float = 0.5, *, ridge: float = 1e-3) -> None:
        self.alpha = alpha
        self.ridge = ridge


class AlphaMixtureClassifier(_MixtureWeights, UnprotectedClassifier):
    """Logistic regression on alpha parts of the public source and 1 - alpha parts of the target. Not private.

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


def median_distance(rows: Array, most: int = 1000) -> float:
    """Return the median distance between rows, from at most `most` rows evenly spread; 1 if all are equal."""
    some = rows[:: max(1, len(rows) // most)][:most]
    squares = _square_distances(some, some)[np.triu_indices(len(some), 1)]
    median = math.sqrt(float(np.median(squares))) if len(squares) else 0.0
    return median if median > 0 else 1.0


def kernel_mean_weights(
    source: Array,
    target: Array,
    *,
    bandwidth: float,
    largest: float = 1000.0,
    tolerance: float = 1e-3,
    most_steps: int = 1000,
) -> Array:
    """Return weights, about 1 on average, that bring the source's mean in a Gaussian kernel close to the target's.

    Minimises b'Kb / 2 - k'b over 0 <= b <= largest with a sum within m (1 ± (sqrt m - 1) / sqrt m), by accelerated
    projected gradients that restart when the direction turns. Stops when a projected step moves less than `tolerance`,
    relative to the first.
    """
    m = len(source)
    kernel = _gaussian_kernel(source, source, bandwidth)
    mean = np.asarray(_gaussian_kernel(source, target, bandwidth).sum(axis=1, dtype=np.float64)) * (m / len(target))
    slack = (math.sqrt(m) - 1) / math.sqrt(m)
    band = m * (1 - slack), m * (1 + slack)

    def gradient(b: Array) -> Array:
        return np.asarray(kernel @ b.astype(kernel.dtype), dtype=np.float64) - mean

    # The largest eigenvalue of the kernel by power iteration, and 2% more for safety.
    vector = np.ones(m)
    for _ in range(20):
        vector = np.asarray(kernel @ (vector / np.linalg.norm(vector)).astype(kernel.dtype), dtype=np.float64)
    smoothness = 1.02 * float(np.linalg.norm(vector))
    weights = leading = np.ones(m)
    momentum, first = 1.0, 0.0
    for step in range(most_steps):
        following = _project(leading - gradient(leading) / smoothness, largest, *band)
        moved = float(np.linalg.norm(following - leading))
        first = moved if step == 0 else first
        if moved <= tolerance * first:
            return following
        if float((leading - following) @ (following - weights)) > 0:
            momentum = 1.0
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        leading = following + (momentum - 1) / faster * (following - weights)
        weights, momentum = following, faster
    return weights


def _square_distances(left: Array, right: Array) -> Array:
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)[None]
    return np.asarray(np.maximum(squares - 2.0 * left @ right.T, 0.0))


def _gaussian_kernel(left: Array, right: Array, bandwidth: float) -> NDArray[np.float32]:
    # Single precision halves the memory that is read in every step; its error, 1e-6, is far below any tolerance here.
    kernel = np.empty((len(left), len(right)), np.float32)
    for start in range(0, len(left), _KERNEL_BLOCK_ROWS):
        part = slice(start, start + _KERNEL_BLOCK_ROWS)
        np.exp(_square_distances(left[part], right) / (-2.0 * bandwidth**2), out=kernel[part], casting="same_kind")
    return kernel


def _project(point: Array, largest: float, low: float, high: float) -> Array:
    """Return the nearest point with entries in [0, largest] and a sum in [low, high]."""
    inside = np.clip(point, 0.0, largest)
    total = float(inside.sum())
    if low <= total <= high:
        return inside
    goal = low if total < low else high
    # The sum of clip(point - shift) falls in shift; the root lies between these ends.
    below, above = float(point.min()) - largest, float(point.max())
    for _ in range(100):
        shift = (below + above) / 2
        if float(np.clip(point - shift, 0.0, largest).sum()) > goal:
            below = shift
        else:
            above = shift
    return np.clip(point - (below + above) / 2, 0.0, largest)


class _KernelMeanWeights:
    """Parameters and weights of kernel mean matching."""

    bandwidth: float | None
    largest: float
    max_rows: int
    ridge: float

    def _check_parameters(self) -> None:
        if self.bandwidth is not None:
            checks.scale(self.bandwidth, "bandwidth")
        if checks.scale(self.largest, "largest") < 1:
            raise ValueError(f"largest must be at least 1, the average weight, got {self.largest!r}.")
        checks.count(self.max_rows, "max_rows", least=2)
        checks.scale(self.ridge, "ridge")

    def _weights(self, samples: TwoSamples) -> Array:
        m, n = samples.sizes
        if m == 0:
            return reference_weights(0, n, 0.0)
        used = np.arange(m) if m <= self.max_rows else np.linspace(0, m - 1, self.max_rows).astype(np.int64)
        width = median_distance(samples.rows) if self.bandwidth is None else self.bandwidth
        weights = np.zeros(m + n)
        weights[used] = kernel_mean_weights(samples.Z_public[used], samples.Z, bandwidth=width, largest=self.largest)
        return weights / len(used)


class KernelMeanMatching(_KernelMeanWeights, UnprotectedRegressor):
    """Ridge regression on source rows weighted so that their kernel mean is the target's. Not private.

    The target's labels are not used. Without labelled public data the model is that of the target alone.

    Parameters
    ----------
    bandwidth : float, optional
        Width of the Gaussian kernel on standardised rows. Default: the median distance between rows.
    largest : float, default=1000.0
        Largest weight of a source row; the average weight is about 1.
    max_rows : int, default=8000
        From a longer source this many rows are used, evenly spread: the kernel takes 4 max_rows² bytes.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    Notes
    -----
    skada's `KMMReweight` states the same problem. This solver reaches a lower value in a sixth of its time at 6,000
    source rows, and needs no further package; a test compares the two where skada is installed.

    References
    ----------
    .. [1] J. Huang, A. Gretton, K. Borgwardt, B. Schölkopf, A. Smola. Correcting Sample Selection Bias by Unlabeled
       Data. NeurIPS 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (300, 1)), rng.uniform(1, 2, (50, 1))
    >>> model = KernelMeanMatching().fit(X, X[:, 0] ** 2, public=Public(X_public, X_public[:, 0] ** 2))
    >>> bool(model.coef_[0] > 2)  # the slope of the parabola where the target is; over the source it is 0
    True
    """

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        largest: float = 1000.0,
        max_rows: int = 8000,
        ridge: float = 1e-3,
    ) -> None:
        self.bandwidth = bandwidth
        self.largest = largest
        self.max_rows = max_rows
        self.ridge = ridge


class KernelMeanMatchingClassifier(_KernelMeanWeights, UnprotectedClassifier):
    """Logistic regression on source rows weighted so that their kernel mean is the target's. Not private.

    The target's labels are not used. Without labelled public data the model is that of the target alone.

    Parameters
    ----------
    bandwidth : float, optional
        Width of the Gaussian kernel on standardised rows. Default: the median distance between rows.
    largest : float, default=1000.0
        Largest weight of a source row; the average weight is about 1.
    max_rows : int, default=8000
        From a longer source this many rows are used, evenly spread: the kernel takes 4 max_rows² bytes.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    classes : array-like, optional
        All labels that can occur. Default: those that do occur.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)

    References
    ----------
    .. [1] J. Huang, A. Gretton, K. Borgwardt, B. Schölkopf, A. Smola. Correcting Sample Selection Bias by Unlabeled
       Data. NeurIPS 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (300, 1)), rng.uniform(0, 2, (50, 1))
    >>> side = lambda X: np.abs(X[:, 0]) > 1
    >>> model = KernelMeanMatchingClassifier().fit(X, side(X), public=Public(X_public, side(X_public)))
    >>> model.score(X, side(X)) > 0.8  # no linear model separates the sides over the whole source
    True
    """

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        largest: float = 1000.0,
        max_rows: int = 8000,
        ridge: float = 1e-3,
        classes: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.largest = largest
        self.max_rows = max_rows
        self.ridge = ridge
        self.classes = classes


class DiscrepancyMinimization(UnprotectedRegressor):
    """Ridge regression on source rows weighted so that their second moment is the target's. Not private.

    For linear models and the squared loss the unlabelled discrepancy of two samples is the spectral norm of the
    difference of their second moments; the weights minimise it. The constant 1 counts as a feature, so that means are
    matched too. The target's labels are not used. Without labelled public data the model is that of the target alone.
    `benchmarks.rivals.private_adaptation.PrivateDiscrepancyMinimization` is the private form.

    Parameters
    ----------
    tolerance : float, default=0.01
        How far above the least discrepancy to stop, relative to the target's second moment. Moments of a small target
        are not more precise than this, and a closer match leaves fewer source rows with any weight.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    References
    ----------
    .. [1] C. Cortes, M. Mohri. Domain adaptation and sample bias correction theory and algorithm for regression.
       Theoretical Computer Science 519, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (300, 1)), rng.uniform(1, 2, (50, 1))
    >>> model = DiscrepancyMinimization().fit(X, X[:, 0] ** 2, public=Public(X_public, X_public[:, 0] ** 2))
    >>> bool(model.coef_[0] > 1.5)  # the slope of the parabola where the target is; over the source it is 0
    True
    """

    def __init__(self, tolerance: float = 0.01, *, ridge: float = 1e-3) -> None:
        self.tolerance = tolerance
        self.ridge = ridge

    def _check_parameters(self) -> None:
        checks.scale(self.tolerance, "tolerance")
        checks.scale(self.ridge, "ridge")

    def _weights(self, samples: TwoSamples) -> Array:
        m, n = samples.sizes
        if m == 0:
            return reference_weights(0, n, 0.0)
        source, target = (np.column_stack([Z, np.ones(len(Z))]) for Z in (samples.Z_public, samples.Z))
        matched = discrepancy_weights(source, target.T @ target / n, tolerance=self.tolerance)
        return np.concatenate([matched.weights, np.zeros(n)])


class SBest(UnprotectedRegressor):
    """Linear regression with a weight for each source and target row, chosen together with the model. Not private.

    Every row's weight lies between 0 and its share of the mixture. A row is left out if its loss, plus the discrepancy
    for a source row, costs more than the penalty on leaving the mixture.

    Parameters
    ----------
    alpha : float, default=0.5
        The source's share of the reference weights, from 0 (target only) to 1. Without labelled public data 0.
    lambda1, lambda2, lambda_inf : float, default=10.0, 0.0, 0.0
        Penalties on the distance of the weights from the reference, on their length, and on the largest of them, in
        units of the variance of the labels.
    radius : float, default=3.0
        Largest length of the coefficients, for standardised rows and labels.
    discrepancy : float, optional
        Added to the loss of each source row, in units of the variance of the labels. Default: the exact local
        discrepancy, over coefficients within 0.5 of the mixture's own; over the whole ball it is so large that source
        rows are all in or all out.
    form : {"original", "convex"}, default="original"
        Problem (5), by alternation to a point that neither weights nor coefficients alone can improve, or the minimiser
        of problem (6), certified to 1e-10.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    See Also
    --------
    benchmarks.adaptation.nonprivate.best_of : picks among `sbest_grid()` by validation rows.

    References
    ----------
    .. [1] P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. Annals of Mathematics and Artificial Intelligence
       92, 2024.
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (20, 1)), rng.uniform(-1, 1, (200, 1))
    >>> y, y_public = X[:, 0], np.where(np.arange(200) % 4 == 0, 9.0, X_public[:, 0])  # every fourth label is wrong
    >>> SBest(lambda1=1.0, discrepancy=0.0).fit(X, y, public=Public(X_public, y_public)).coef_.round(2)
    array([1.])
    """

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        lambda1: float = 10.0,
        lambda2: float = 0.0,
        lambda_inf: float = 0.0,
        radius: float = 3.0,
        discrepancy: float | None = None,
        form: str = "original",
    ) -> None:
        self.alpha = alpha
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.radius = radius
        self.discrepancy = discrepancy
        self.form = form

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        checks.scale(self.radius, "radius")
        checks.one_of(self.form, FORMS, "form")
        if self.discrepancy is not None:
            checks.penalty(self.discrepancy, "discrepancy")

    def _solve(self, samples: TwoSamples) -> tuple[Array, float]:
        middle, unit = float(samples.labels.mean()), max(float(samples.labels.std()), 1e-300)
        y = (samples.y - middle) / unit
        target = np.column_stack([samples.Z, np.ones(len(samples.Z))])
        source: Array | None = None
        y_source: Array | None = None
        extra = 0.0
        if len(samples.Z_public) and self.alpha > 0:
            source = np.column_stack([samples.Z_public, np.ones(len(samples.Z_public))])
            y_source = (samples.y_public - middle) / unit
            if self.discrepancy is None:
                rows, labels = samples.rows, np.concatenate([y_source, y])
                near = np.append(*weighted_ridge(rows, labels, samples.reference(self.alpha), 1e-6))
                extra = exact_discrepancy(source, y_source, target, y, radius=_LOCAL_DISCREPANCY_RADIUS, center=near)
            else:
                extra = self.discrepancy
        solution = solve(
            source,
            y_source,
            target,
            y,
            alpha=self.alpha,
            radius=self.radius,
            discrepancy=extra,
            penalties=Penalties(self.lambda1, self.lambda2, self.lambda_inf),
            form="convex" if self.form == "convex" else "original",
        )
        return solution.coef[:-1] * unit, float(solution.coef[-1]) * unit + middle


class SBestClassifier(UnprotectedClassifier):
    """Logistic regression with a weight for each source and target row, chosen together with the model. Not private.

    Problem (5) of [2]_ with the logistic loss, by alternation: the best weights for the model, then the best model for
    the weights, until neither improves.

    Parameters
    ----------
    alpha : float, default=0.5
        The source's share of the reference weights, from 0 (target only) to 1. Without labelled public data 0.
    lambda1, lambda2, lambda_inf : float, default=10.0, 0.0, 0.0
        Penalties on the distance of the weights from the reference, on their length, and on the largest of them.
    discrepancy : float, default=0.0
        Added to the loss of each source row.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    classes : array-like, optional
        All labels that can occur. Default: those that do occur.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)

    References
    ----------
    .. [1] P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. Annals of Mathematics and Artificial Intelligence
       92, 2024.
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (200, 2))
    >>> y, y_public = X[:, 0] > 0, X_public[:, 0] > 0
    >>> SBestClassifier().fit(X, y, public=Public(X_public, y_public)).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        lambda1: float = 10.0,
        lambda2: float = 0.0,
        lambda_inf: float = 0.0,
        discrepancy: float = 0.0,
        ridge: float = 1e-3,
        classes: Any = None,
    ) -> None:
        self.alpha = alpha
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.discrepancy = discrepancy
        self.ridge = ridge
        self.classes = classes

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        checks.penalty(self.discrepancy, "discrepancy")
        checks.scale(self.ridge, "ridge")

    def _solve(self, samples: TwoSamples, n_classes: int) -> tuple[Array, Array]:
        penalties = Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        reference, rows, codes = samples.reference(self.alpha), samples.rows, samples.labels
        extra = np.where(np.arange(len(rows)) < len(samples.Z_public), float(self.discrepancy), 0.0)
        weights, best = reference, math.inf
        coef, intercept = weighted_logistic(rows, codes, weights, self.ridge, n_classes)
        for _ in range(_MOST_ALTERNATIONS):
            scores = rows @ coef.T + intercept
            losses = CrossEntropy().losses(scores[:, 0] if n_classes == 2 else scores, codes) + extra
            weights = best_weights(losses, reference, penalties, "original")
            value = objective(losses, weights, reference, penalties, "original")
            if not value < best - 1e-9 * abs(value) or not weights.any():
                break
            best = value
            coef, intercept = weighted_logistic(rows, codes, weights, self.ridge, n_classes)
        return coef, intercept


def sbest_grid(
    *,
    alphas: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    lambdas: Sequence[float] = (0.5, 1.0, 10.0, 100.0),
    form: str = "original",
) -> list[SBest]:
    """Return the settings to choose among by validation rows; alpha = 0 is always one of them.

    Without it a harmful source could not be rejected. The alphas are those of Appendix E of the paper.

    Examples
    --------
    >>> len(sbest_grid(alphas=(0.5,), lambdas=(1.0, 10.0)))
    4
    """
    return [
        SBest(alpha, lambda1=lambda1, form=form) for alpha in sorted({0.0, *map(float, alphas)}) for lambda1 in lambdas
    ]
