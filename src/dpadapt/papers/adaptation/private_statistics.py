"""`ReverseAdaptation`, `ReverseAdaptationClassifier`: ridge fits from one private second moment.

The statistics follow Y.-X. Wang, "Revisiting differentially private linear regression", UAI 2018 (AdaSSP), in one joint
release. Everything after the release is post-processing, so it may be solved any number of times.

They are for the reverse scenario of section 7 of Bassily, Cortes, Mao and Mohri (ICML 2024), a private labelled source
and a public target with some labels or none; the paper names it and gives no algorithm.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, ClassificationInput, LinearClassifier, RegressionInput, bounds_assumption
from dpadapt.learning.linear import joint_length, ridge_by_noise
from dpadapt.learning.scaling import Geometry, declared_geometry, public_geometry
from dpadapt.mechanisms.bounded import clipped_gram
from dpadapt.mechanisms.mechanism import Gaussian
from dpadapt.papers.adaptation.preparation import AdaptationRegressor, Array, TargetScale, target_scale
from dpadapt.papers.adaptation.problem import mixture_share

# Ridge of every solution, in average eigenvalues of the second moment: it keeps directions that no row has shown from
# blowing up. A stronger ridge shrinks the coefficients. Chosen by hand.
_MOMENT_RIDGE_FLOOR = 1e-4
# Weights of the private source that `ReverseAdaptation` tries by cross-validation, and the number of folds. More of
# either cost time alone, because they are post-processing. Chosen by hand.
_SOURCE_SHARE_GRID = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
_SOURCE_SHARE_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Moment:
    """The average outer product of rows (z, e), z a row in the final coordinates and e its targets, and its noise.

    Parameters
    ----------
    value : ndarray of shape (k + n_targets, k + n_targets)
    noise : float
        Standard deviation of the noise in each entry before it was made symmetric; 0 for public rows.
    n_targets : int
    """

    value: Array
    noise: float = 0.0
    n_targets: int = 1

    def scaled(self, factor: float) -> "Moment":
        """Return `factor` times this moment."""
        return Moment(factor * self.value, factor * self.noise, self.n_targets)

    def mixed(self, other: "Moment", share: float) -> "Moment":
        """Return `share` parts of this moment and 1 - share parts of another."""
        return Moment(
            share * self.value + (1 - share) * other.value,
            math.hypot(share * self.noise, (1 - share) * other.noise),
            self.n_targets,
        )

    def solution(self) -> Array:
        """Return the ridge coefficients, with AdaSSP's ridge: as much as noise can lower the smallest eigenvalue.

        One column for each target; a vector if there is one target.
        """
        k = len(self.value) - self.n_targets
        gram, cross = self.value[:k, :k], self.value[:k, k:]
        coef = ridge_by_noise(gram, cross, self.noise, floor=_MOMENT_RIDGE_FLOOR, least=1e-12)
        return coef[:, 0] if self.n_targets == 1 else coef


def public_moment(Z: Array, e: Array) -> Moment:
    """Return the moment of public rows, without clipping."""
    joint = np.column_stack([Z, e])
    return Moment(joint.T @ joint / len(Z), n_targets=joint.shape[1] - Z.shape[1])


def kept_share(Z: Array, e: Array, clip_norm: float) -> float:
    """Return the share of the squared length of public rows that clipping them like private rows leaves."""
    joint = np.column_stack([Z, e])
    squares = np.einsum("ij,ij->i", joint, joint)
    return float(np.minimum(squares, clip_norm**2).sum() / max(float(squares.sum()), 1e-300))


def private_moment(ledger: Ledger, budget: Budget, Z: Array, e: Array, clip_norm: float) -> Moment:
    """Release the moment of private rows, with the whole budget."""
    # Claim: |Σ rr' - that of a neighbour|_F <= clip_norm², replaced: sqrt 2 times that, by `clipped_gram`.
    joint = clipped_gram(np.column_stack([Z, e]), clip_norm)
    released = ledger.release(Gaussian(1.0 / budget.mu), joint, label="second moment")
    n_targets = joint.value.shape[0] - Z.shape[1]
    return Moment((released + released.T) / (2 * budget.n_rows), moment_noise(budget, clip_norm), n_targets)


def moment_noise(budget: Budget, clip_norm: float) -> float:
    """Return the noise in each entry of an average of outer products, if the whole budget is spent on it."""
    # Under replace-one the bound is sqrt 2 clip_norm², where `Budget.noise` counts twice.
    return budget.noise(clip_norm**2) / (math.sqrt(2) if budget.factor == 2.0 else 1.0)


class ReverseAdaptation(AdaptationRegressor):
    """Linear regression for a public target from a private labelled source and the public labels, if there are any.

    Minimises alpha times the mean squared error on the private source plus 1 - alpha times that on the labelled public
    target. The source is used through its second moment, released once, so that everything else is post-processing. In
    particular alpha may be chosen by cross-validation on the public target at no cost.

    **Privacy.** Protects one row of the private *source* `X`, `y` (see `adjacency`).
    Releases: the clipped second moment of private rows and labels, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. The public target is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    alpha : float, optional
        Weight of the private source, from 0 to 1. Default: chosen by five-fold cross-validation on the public target;
        1 if that has fewer than ten labelled rows.
    target_bounds : (float, float), optional
        Range of the labels, known without looking at the private data; used unless public labels are given. Default:
        (-1, 1).
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    With an unlabelled target only its scales and directions are used: rows of the source count less the farther they
    lie from the target's rows. If labels depend on features differently in source and target, an unlabelled target
    cannot show it, and this method does not protect against it.

    Weights of single source rows that are fitted to both samples, as in kernel mean matching and discrepancy
    minimisation, are not offered, because they would not be sound: each weight depends on every private row, so that a
    bound on one row's term does not bound what that row changes. The weights of problem (6) of [1]_ depend on their own
    row and on released coefficients only. So `CnvxAdap` with the target as its public data is sound, but it adds the
    discrepancy to the losses of the public rows, which here are the target's.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. Section 7.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X_source, X_target = rng.uniform(-1, 1, (3000, 3)), rng.uniform(-1, 1, (30, 3))
    >>> y_source, y_target = X_source @ [1.0, 0.1, -1.0], X_target @ [1.0, 0.0, -1.0]
    >>> model = ReverseAdaptation(random_state=0).fit(X_source, y_source, public=Public(X_target, y_target))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X_target, y_target) > 0.95
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: Annotated[float, mixture_share] | None = None,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "ReverseAdaptation":
        """Fit on the private source `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features of the source.
        y : array-like of shape (n_rows,)
            Private labels of the source.
        public : Public, optional
            The public target, with the same columns, with or without labels.
        {ledger}
        """
        alpha = None if self.alpha is None else float(self.alpha)
        scale = target_scale(self.target_bounds, None)
        data = self._read_regression(X, y, public, ledger)
        n_features = data.X.shape[1]
        geometry = declared_geometry(n_features) if data.X_public is None else public_geometry(data.X_public)
        Z_public, e_public = None, None
        if data.labelled_public is not None:
            X_public, labels = data.labelled_public
            Z_public = geometry.transform(X_public)
            scale = TargetScale(float(labels.mean()), max(2 * float(labels.std()), 1e-300))
            e_public = (labels - scale.middle) / scale.half
        target = None if Z_public is None or e_public is None else (Z_public, e_public)
        solution = _reverse_solution(data, geometry, scale.apply(data.y), target, alpha)
        assumed = [] if target is not None else [bounds_assumption(self.target_bounds)]
        if alpha is not None:
            assumed.append("alpha, which was chosen without the private data")
        self._finish(data, *geometry.coefficients(solution), scale, assumed)
        return self


class ReverseAdaptationClassifier(LinearClassifier):
    """Classification of a public target from a private labelled source and the public labels, if there are any.

    `ReverseAdaptation` with class indicators as targets: least squares on alpha parts of the private source and
    1 - alpha parts of the labelled public target. The source is used through one released second moment, so that alpha
    may be chosen by cross-validation on the public target at no cost.

    **Privacy.** Protects one row of the private *source* `X`, `y` (see `adjacency`).
    Releases: the clipped second moment of private rows and class indicators, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. The public target is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    alpha : float, optional
        Weight of the private source, from 0 to 1. Default: chosen by five-fold cross-validation on the public target;
        1 if that has fewer than ten labelled rows.
    classes : array-like, optional
        The label set. Default: that of the public labels.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_scores, n_features)
    intercept_ : ndarray of shape (n_scores,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Scores are those of least squares, stretched so that probabilities near the middle are right; far from it they are
    too moderate.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. Section 7.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X_source, X_target = rng.uniform(-1, 1, (3000, 3)), rng.uniform(-1, 1, (30, 3))
    >>> y_source, y_target = X_source @ [1.0, 0.1, -1.0] > 0, X_target @ [1.0, 0.0, -1.0] > 0
    >>> model = ReverseAdaptationClassifier(random_state=0).fit(X_source, y_source, public=Public(X_target, y_target))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X_target, y_target) > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: Annotated[float, mixture_share] | None = None,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "ReverseAdaptationClassifier":
        """Fit on the private source `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features of the source.
        y : array-like of shape (n_rows,)
            Private labels of the source.
        public : Public, optional
            The public target, with the same columns, with or without labels.
        {ledger}
        """
        alpha = None if self.alpha is None else float(self.alpha)
        data = self._read_classification(X, y, public, ledger, self.classes)
        geometry = declared_geometry(data.n_features) if data.X_public is None else public_geometry(data.X_public)
        n_classes, target = len(data.classes), None
        if data.X_public is not None and data.codes_public is not None:
            target = geometry.transform(data.X_public), _indicators(data.codes_public, n_classes)
        coef = _reverse_solution(data, geometry, _indicators(data.codes, n_classes), target, alpha)
        assumed = [data.source]
        if alpha is not None:
            assumed.append("alpha, which was chosen without the private data")
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, data.budget, assumed)
        # Where all K classes are equally probable, a score moves the probability by (K - 1) / K² of its own size and
        # the indicator by (K - 1) / K of that: K times the indicator.
        raw, level = geometry.coefficients(n_classes * coef.reshape(len(coef), -1))
        self.coef_, self.intercept_, self.classes_ = raw.T, np.atleast_1d(level), data.classes
        return self


def _indicators(codes: NDArray[np.int64], n_classes: int) -> Array:
    """Return -1 and 1 for two classes; for more, each class's indicator minus its mean over classes."""
    if n_classes == 2:
        return np.asarray(2.0 * codes - 1.0)
    return np.asarray(np.eye(n_classes)[codes] - 1.0 / n_classes)


def _reverse_solution(
    data: RegressionInput | ClassificationInput,
    geometry: Geometry,
    e: Array,
    target: tuple[Array, Array] | None,
    alpha: float | None,
) -> Array:
    """Release the private source's moment with the whole budget, and return the mixture's coefficients.

    `e` are the private rows' targets, `target` the public rows and their targets, if they have labels.
    """
    solution = np.zeros((data.X.shape[1] + 1, *e.shape[1:]))
    if data.budget.worthwhile and (alpha is None or alpha > 0 or target is None):
        clip_norm = joint_length(geometry)
        source = private_moment(data.ledger, data.budget, geometry.transform(data.X), e, clip_norm)
        solution = source.solution()
        if target is not None:
            # Clipped rows count less. Dividing by what clipping leaves of public rows keeps alpha what it says.
            source = source.scaled(1.0 / kept_share(*target, clip_norm))
            solution = _mixed_solution(source, *target, alpha)
    elif target is not None:
        solution = public_moment(*target).solution()
    return solution


def _mixed_solution(source: Moment, Z: Array, e: Array, alpha: float | None) -> Array:
    """Return the mixture's coefficients; without `alpha`, at the share that predicts left-out public rows best."""
    if alpha is None:
        alpha = 1.0 if len(e) < 2 * _SOURCE_SHARE_FOLDS else _best_share(source, Z, e)
    return source.mixed(public_moment(Z, e), alpha).solution()


def _best_share(source: Moment, Z: Array, e: Array) -> float:
    """Return the share of the source with the least error on public rows that were left out."""
    fold = np.arange(len(e)) % _SOURCE_SHARE_FOLDS
    errors = np.zeros(len(_SOURCE_SHARE_GRID))
    for left_out in range(_SOURCE_SHARE_FOLDS):
        kept, tested = fold != left_out, fold == left_out
        target = public_moment(Z[kept], e[kept])
        solutions = [source.mixed(target, share).solution() for share in _SOURCE_SHARE_GRID]
        errors += [float(np.sum((Z[tested] @ solution - e[tested]) ** 2)) for solution in solutions]
    return _SOURCE_SHARE_GRID[int(np.argmin(errors))]
