"""`PrivateSubspaceRegressor`: private linear regression in the subspace that public tasks share.

Algorithm 1 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551, with a closer subspace and a better private solver.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.descent import SquaredLoss, gradient_weights
from dpadapt.learning.estimator import Budget, PrivateEstimator
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.shrinkage import water_fill
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.representation.subspace import assumed_of, checked_basis, task_model
from dpadapt.representation.task_model import METHODS, TaskPrior, task_prior
from dpadapt.rows import Rows

# Private descent towards a task that public tasks foretell: water-filled coordinates, averaged steps, shrinkage.


Vector = NDArray[np.float64]

# Clipping norms tried, in root mean squares of a public gradient.
_CLIPS = np.array([0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
_STEPS = 60
# Of a Newton step. Curvature may be this many times higher on private rows before steps diverge: 2 / 0.25 = 8.
_STEP = 0.25
# The least residual to expect, as a part of the variance that tasks explain.
_LEAST = 0.05
# The first fifth of the steps brings gradients from where most are clipped to where few are.
_SKIPPED = _STEPS // 5
# A sum of squares is believed beyond this many standard deviations of its noise.
_DOUBT = 2.0


@dataclass(frozen=True, eq=False)
class Plan:
    """How the descent runs; everything from public data, the number of rows and the budget.

    Parameters
    ----------
    used : ndarray of int
        Which coordinates of the prior take part; the others stay at their mean.
    weights : ndarray of shape (n_used,)
        Squared scale of each, adding up to 1.
    clip_norm, max_norm : float
        Most that one row's gradient may be; longer rows count less.
    unclipped : float
        How fast the clipped gradient follows the solution, 1 without clipping.
    variance : ndarray of shape (n_used,)
        Expected squared error of each coordinate after the descent: noise and sampling.
    predicted : float
        Expected squared error of all coordinates after shrinkage.
    """

    used: NDArray[np.int64]
    weights: Vector
    clip_norm: float
    max_norm: float
    unclipped: float
    variance: Vector
    predicted: float


def plan_descent(prior: TaskPrior, budget: Budget) -> Plan:
    """Return the plan of least predicted error; no private row is read."""
    rows = prior.public_rows()
    plans = [_planned(prior.variance, rows, prior.model.residuals, budget, clip) for clip in _CLIPS]
    return min(plans, key=lambda plan: plan.predicted)


def _planned(prior: Vector, rows: Vector, residuals: Vector, budget: Budget, clip: float) -> Plan:
    """Return the plan with one clipping norm."""
    sizes = np.maximum(np.mean(rows**2, axis=0), 1e-12)
    square, least = float(np.mean(residuals**2)), _LEAST * float(prior @ sizes)
    if square < least:
        # Public tasks without noise must not clip the way to the private one away.
        square, residuals = least, np.full(len(residuals), math.sqrt(least))
    # Steps skipped are lost to the average.
    waste = _STEPS / (_STEPS - _SKIPPED)
    # Weights add up to 1, so rows have mean square length 1 and gradients that of residuals.
    per_weight = waste * budget.noise(clip * math.sqrt(square)) ** 2
    # What the private sample itself could tell of a coordinate bounds what a release can.
    useful = prior * sizes / (1 + square / (budget.n_rows * sizes * prior))
    shares = water_fill(useful, per_weight)
    used = np.flatnonzero(shares > 1e-3 * shares.max())
    shares = shares[used] / shares[used].sum()
    weights = shares / sizes[used]
    lengths = np.sqrt(rows[:, used] ** 2 @ weights)
    max_norm = max(float(np.quantile(lengths, 0.99)), 1e-12)
    lengths = lengths * np.minimum(1.0, max_norm / np.maximum(lengths, 1e-300))
    clip_norm = max(clip * math.sqrt(square), 1e-150)
    gradients = lengths * np.abs(residuals)
    total = max(float(np.mean(lengths**2)), 1e-300)
    unclipped = max(float(np.mean(lengths**2 * (gradients < clip_norm))) / total, 0.02)
    clipped = float(np.mean(np.minimum(gradients, clip_norm) ** 2)) / total
    noise = waste * budget.noise(clip_norm) ** 2
    variance = (noise / (shares * sizes[used]) + clipped / (budget.n_rows * sizes[used])) / unclipped**2
    left = prior * sizes
    mine = left[used]
    predicted = float(left.sum() - np.sum(mine**2 / (mine + variance * sizes[used])))
    return Plan(used, weights, clip_norm, max_norm, unclipped, variance, predicted)


def descend(ledger: Ledger, prior: TaskPrior, plan: Plan, X: NDArray[Any], y: NDArray[Any], budget: Budget) -> Vector:
    """Return the private task's coefficients in the prior's coordinates."""
    run = ledger.start(Repeated(Gaussian(math.sqrt(_STEPS) / budget.mu), _STEPS), label="gradient")
    scale = np.sqrt(plan.weights)
    rows = prior.rows(X)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.asarray(y - rows @ prior.mean, dtype=np.float64)
        private = Rows(rows[:, plan.used] * scale, errors, max_norm=plan.max_norm)
    # Curvature along a coordinate is its weight times the share that is not clipped.
    newton = 1.0 / (plan.weights * plan.unclipped)
    # Iterates are shrunk as the solution will be. Otherwise, along coordinates with more noise than signal, they would
    # wander to where all gradients are clipped and no longer tell the way back.
    shrinkage = prior.variance[plan.used] / (prior.variance[plan.used] + plan.variance)
    current, total = np.zeros(len(scale)), np.zeros(len(scale))
    for t in range(_STEPS):
        weights = gradient_weights(SquaredLoss(), current)
        gradient = run.release(clipped_outer_sum(private, weights, plan.clip_norm)) / budget.n_rows
        # Where a whole Newton step from here leads. On average over steps it has no memory of where they began.
        ahead = current - newton * gradient
        if t >= _SKIPPED:
            total += ahead
        current = (1 - _STEP) * current + _STEP * shrinkage * ahead
    found = scale * total / (_STEPS - _SKIPPED)
    solution = prior.mean.copy()
    solution[plan.used] += found * _shrinkage(prior, plan, found)
    return solution


def _shrinkage(prior: TaskPrior, plan: Plan, found: Vector) -> Vector:
    """Return the factors of least expected squared error, prior variance over itself plus that of the error."""
    variance = prior.variance[plan.used]
    grown = variance.copy()
    for block in prior.blocks:
        mine = (plan.used >= block.start) & (plan.used < block.stop)
        if mine.any():
            # A private task that lies further out than public ones do says so in its release.
            noise = plan.variance[mine]
            signal = float(np.sum(found[mine] ** 2 - noise)) - _DOUBT * math.sqrt(2 * float(np.sum(noise**2)))
            grown[mine] *= max(1.0, signal / float(variance[mine].sum()))
    return np.asarray(grown / (grown + plan.variance))


_PROJECTIONS = ("soft", "hard")


class PrivateSubspaceRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression on private rows, in the subspace that many public tasks share.

    Public rows belong to tasks, each a linear regression of its own (`Public(X, y, tasks=...)`). None of them need
    predict the private labels; what is carried over is where tasks' coefficients lie. Public tasks give a subspace, how
    far tasks lie along and outside of it, and the sizes of residuals; the private rows then pay for the coefficients of
    one more task: clipped full-batch gradient steps in those coordinates, averaged, and shrunk by what the known noise
    explains. Nothing is to be tuned.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    n_components : int, optional
        Dimension of the subspace. Default: by cross-validation over public tasks.
    method : {"em", "pairs", "moments"}, default="em"
        How the subspace is estimated; see `PublicSubspace`.
    projection : {"soft", "hard"}, default="soft"
        "hard" stays within the subspace, as Algorithm 1 does. "soft" also leaves it, as far as its expected error and
        the budget make that worthwhile: with few private rows it is "hard", with many it is regression on all features.
    basis : array-like of shape (n_features, k), optional
        The subspace itself, where it is known without looking at the private data; public tasks then only tell sizes.
    fit_intercept : bool, default=True
        Whether tasks have levels of their own; the paper's have none. Without public tasks there always is one.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public tasks are given. Default: (-1, 1).
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_components_ : int
        Dimension of the subspace; the number of features where there is none.
    predicted_excess_ : float
        Mean squared error above that of the best linear model that public data foretells: noise, sampling, and what
        the subspace misses. NaN without public tasks.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Differences from the paper: tasks are told apart when the subspace is estimated; rows are whitened by public ones;
    full-batch steps with exact accounting take the place of DP-AMBSSGD (`DPAMBSSGD` is that); coefficients are shrunk;
    and the solution may leave the subspace. Theorem 5.5 bounds from below what is possible inside a given subspace, so
    "soft" can be better than it. See `dpadapt.papers.subspace.bounds.upper_bound` for planning.

    The paper's neighbours replace one row; its experiment accounts for adding or removing one. Set `adjacency`.

    Without public labels this is `PrivateLinearRegression` on all features (or along `basis`). Labels without tasks are
    refused: one task tells nothing about what tasks share.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import PrivateSubspaceRegressor
    >>> rng = np.random.default_rng(7)
    >>> shared = rng.standard_normal((2, 10)) / 2
    >>> X_public, tasks = rng.standard_normal((2000, 10)), np.arange(2000) % 40
    >>> coef = rng.standard_normal((40, 2)) @ shared
    >>> y_public = np.sum(X_public * coef[tasks], axis=1) + 0.5 * rng.standard_normal(2000)
    >>> X = rng.standard_normal((1000, 10))
    >>> y = X @ ([1.0, -1.0] @ shared) + 0.5 * rng.standard_normal(1000)
    >>> model = PrivateSubspaceRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public, tasks=tasks))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.7
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        n_components: int | None = None,
        method: str = "em",
        projection: str = "soft",
        basis: Any = None,
        fit_intercept: bool = True,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_components = n_components
        self.method = method
        self.projection = projection
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateSubspaceRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        public : Public, optional
            Public data with the same columns, with labels and tasks.
        {ledger}
        """
        checks.one_of(self.method, METHODS, "method")
        soft = checks.one_of(self.projection, _PROJECTIONS, "projection") == "soft"
        if self.n_components is not None:
            checks.count(self.n_components, "n_components")
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        basis = None if self.basis is None else checked_basis(self.basis, X.shape[1])
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        if public is None or X_public is None or y_public is None:
            return self._fit_plain(X, y, X_public, basis, budget, child)
        model = task_model(
            X_public, public, method=self.method, k=self.n_components, intercept=self.fit_intercept, basis=basis
        )
        prior = task_prior(model, intercept=self.fit_intercept, soft=soft)
        solution, predicted = prior.mean, float(prior.variance.sum())
        if budget.worthwhile:
            plan = plan_descent(prior, budget)
            solution, predicted = descend(child, prior, plan, X, y, budget), plan.predicted
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed_of(self.basis))
        self.n_components_ = model.basis.shape[1]
        self.predicted_excess_ = predicted + _missed(prior)
        self.coef_, self.intercept_ = prior.coefficients(solution)
        return self

    def _fit_plain(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        X_public: Vector | None,
        basis: Vector | None,
        budget: Budget,
        child: Ledger,
    ) -> "PrivateSubspaceRegressor":
        """Fit without public tasks: on all features, or along a subspace that is known."""
        plain = PrivateLinearRegression(
            self.epsilon,
            self.delta,
            target_bounds=self.target_bounds,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            rows = X if basis is None else np.nan_to_num(X @ basis, nan=0.0)
        geometry = X_public if X_public is None or basis is None else X_public @ basis
        plain.fit(rows, y, public=None if geometry is None else Public(geometry), ledger=child)
        self.privacy_ = self._receipt(child, budget, ["the bounds of the target", *assumed_of(self.basis)])
        self.n_components_ = rows.shape[1]
        self.predicted_excess_ = float("nan")
        self.coef_ = plain.coef_ if basis is None else basis @ plain.coef_
        self.intercept_ = plain.intercept_
        return self

    def predict(self, X: Any) -> Vector:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _missed(prior: TaskPrior) -> float:
    """Return the expected squared length of coefficients in directions that the prior has not got."""
    d, m = prior.turn.shape
    return float(prior.model.outside * (d - m))
