"""`PrivateSubspaceRegressor`: private linear regression in the subspace that public tasks share.

Algorithm 1 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551, with a more accurate subspace and another private solver: clipped full-batch gradient steps, planned
from public data, then averaged and shrunk.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import (
    Budget,
    PrivateEstimator,
    RegressionInput,
    bounds_assumption,
    features_assumption,
    water_fill,
)
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.representation.subspace import (
    SUBSPACE_METHODS,
    TaskPrior,
    basis_assumptions,
    checked_basis,
    task_model,
    task_prior,
)
from dpadapt.rows import Blocks, Part, Rows, row_products

Vector = NDArray[np.float64]

_PROJECTIONS = ("soft", "hard")

# Clipping norms from which the plan takes the one of least predicted error, in units of the root mean square of a
# public gradient. A small norm needs little noise but clips more of the signal. Here and below: `tools/constants.py
# subspace` compares the neighbours by the distance to the true coefficients. Half: 0.5% (+- 0.3%) better, twice: equal.
_TASK_CLIPS = np.array([0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
# Number of private gradient steps. More steps bring the iterate closer to where few gradients are clipped and take
# time; averaging makes up for the larger noise of each step. Half and twice: 5% and 6% worse (+- 6% and 4%).
_TASK_STEPS = 60
# Length of a step, as a share of a Newton step. A shorter step is slower, but steps diverge only where the curvature on
# private rows is more than 2 / 0.25 = 8 times that on public rows. Half: 29% worse, twice: 0.1% (+- 0.4%).
_NEWTON_SHARE = 0.25
# Steps left out of the average: the first fifth moves the iterate from where most gradients are clipped to where few
# are. Half: 7% (+- 2%) worse, twice: 1% (+- 2%) better.
_SKIPPED_STEPS = _TASK_STEPS // 5
# Least mean squared residual that the plan assumes, as a share of the variance that tasks explain. Without it, public
# tasks without noise would lead to a clipping norm that clips the whole private gradient. Half: equal, twice: 1% worse.
_LEAST_RESIDUAL_SHARE = 0.05
# The prior variance of a group of coordinates is raised only by the released energy beyond this many standard
# deviations of its noise. Larger values shrink a private task far from the public ones more; smaller values follow
# noise. Half: 3% (+- 2%) worse, twice: 2% (+- 1%) better.
_ENERGY_DEVIATIONS = 2.0


@dataclass(frozen=True, eq=False)
class DescentPlan:
    """How the descent runs; computed from public data, the number of rows and the budget only.

    Parameters
    ----------
    used : ndarray of int
        Coordinates of the prior that take part; the others stay at their prior mean.
    weights : ndarray of shape (n_used,)
        Squared scale of each used coordinate. In scaled coordinates public rows have mean squared length 1.
    clip_norm : float
        Clipping norm of a row's gradient.
    max_norm : float
        A row longer than this, in scaled coordinates, gets the weight (max_norm / length)².
    unclipped : float
        Share of the curvature that comes from unclipped rows; 1 without clipping.
    variance : ndarray of shape (n_used,)
        Expected squared error of each coordinate after the descent, from noise and sampling.
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


def plan_descent(prior: TaskPrior, budget: Budget) -> DescentPlan:
    """Return the plan of least predicted error; no private row is read."""
    rows = prior.public_rows()
    plans = [_plan_with_clip(prior.variance, rows, prior.model.residuals, budget, clip) for clip in _TASK_CLIPS]
    return min(plans, key=lambda plan: plan.predicted)


def _plan_with_clip(prior: Vector, rows: Vector, residuals: Vector, budget: Budget, clip: float) -> DescentPlan:
    """Return the plan for one clipping norm; `prior` holds the variance of each coordinate."""
    sizes = np.maximum(np.mean(rows**2, axis=0), 1e-12)
    square, least = float(np.mean(residuals**2)), _LEAST_RESIDUAL_SHARE * float(prior @ sizes)
    if square < least:
        square, residuals = least, np.full(len(residuals), math.sqrt(least))
    # Skipped steps use budget but do not enter the average.
    waste = _TASK_STEPS / (_TASK_STEPS - _SKIPPED_STEPS)
    # Scaled rows have mean squared length 1, so gradients have the mean square of the residuals.
    per_weight = waste * budget.noise(clip * math.sqrt(square)) ** 2
    # A release can't tell more about a coordinate than the private sample itself does.
    useful = prior * sizes / (1 + square / (budget.n_rows * sizes * prior))
    shares = water_fill(per_weight / np.maximum(useful, 1e-300))
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
    energy = prior * sizes
    used_energy = energy[used]
    predicted = float(energy.sum() - np.sum(used_energy**2 / (used_energy + variance * sizes[used])))
    return DescentPlan(used, weights, clip_norm, max_norm, unclipped, variance, predicted)


def descend(ledger: Ledger, prior: TaskPrior, plan: DescentPlan, rows: Blocks[Part], budget: Budget) -> Vector:
    """Return the private task's coefficients in the prior's coordinates."""
    run = ledger.start(Repeated(Gaussian(math.sqrt(_TASK_STEPS) / budget.mu), _TASK_STEPS), label="gradient")
    scale = np.sqrt(plan.weights)
    private = rows.map(partial(_task_rows, prior=prior, plan=plan, fixed_rows=ledger.fixed_rows))
    # The curvature along a coordinate is its weight times the unclipped share.
    newton = 1.0 / (plan.weights * plan.unclipped)
    # Iterates are shrunk like the solution. Otherwise, along coordinates with more noise than signal, they would drift
    # to where all gradients are clipped and carry no information on the way back.
    shrinkage = prior.variance[plan.used] / (prior.variance[plan.used] + plan.variance)
    current, total = np.zeros(len(scale)), np.zeros(len(scale))
    for t in range(_TASK_STEPS):
        gradient = released_gradient(run, private, SquaredLoss(), current, plan.clip_norm, budget.n_rows)
        # The end point of a whole Newton step. Its average over steps does not depend on the start.
        newton_point = current - newton * gradient
        if t >= _SKIPPED_STEPS:
            total += newton_point
        current = (1 - _NEWTON_SHARE) * current + _NEWTON_SHARE * shrinkage * newton_point
    estimate = scale * total / (_TASK_STEPS - _SKIPPED_STEPS)
    solution = prior.mean.copy()
    solution[plan.used] += estimate * _shrinkage(prior, plan, estimate)
    return solution


def _task_rows(part: Part, *, prior: TaskPrior, plan: DescentPlan, fixed_rows: bool) -> Rows:
    """Return rows in the coordinates that are used, and their errors by the prior's mean."""
    rows = prior.rows(part.X, fixed_rows=fixed_rows)
    with np.errstate(all="ignore"):
        errors = np.asarray(part.y - row_products(rows, prior.mean, fixed_rows=fixed_rows), dtype=np.float64)
        used = rows[:, plan.used] * np.sqrt(plan.weights)
    return Rows(used, errors, max_norm=plan.max_norm, shares=part.shares, fixed_rows=fixed_rows)


def _inside(part: Part, *, basis: Vector, fixed_rows: bool) -> Part:
    """Return rows in the coordinates of a subspace."""
    with np.errstate(all="ignore"):
        rows = row_products(part.X, basis, fixed_rows=fixed_rows)
        return Part(np.nan_to_num(rows, nan=0.0), part.y, part.shares)


def _shrinkage(prior: TaskPrior, plan: DescentPlan, estimate: Vector) -> Vector:
    """Return the factors of least expected squared error: prior variance / (prior variance + error variance)."""
    prior_variance = prior.variance[plan.used]
    variance = prior_variance.copy()
    for block in prior.blocks:
        inside = (plan.used >= block.start) & (plan.used < block.stop)
        if inside.any():
            # If the private task lies further from the mean than public tasks do, its release has more energy than the
            # prior and the noise explain. The variance is raised accordingly.
            noise = plan.variance[inside]
            deviation = math.sqrt(2 * float(np.sum(noise**2)))
            signal = float(np.sum(estimate[inside] ** 2 - noise)) - _ENERGY_DEVIATIONS * deviation
            variance[inside] *= max(1.0, signal / float(prior_variance[inside].sum()))
    return np.asarray(variance / (variance + plan.variance))


class PrivateSubspaceRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression on private rows, in the subspace that many public tasks share.

    Public rows belong to tasks, each a linear regression (`Public(X, y, tasks=...)`). None of them needs to predict the
    private labels; what is transferred is where the tasks' coefficients lie. Public tasks give a subspace, the variance
    of coefficients along and outside of it, and the sizes of residuals. The private rows give the coefficients of one
    more task: clipped full-batch gradient steps in these coordinates, averaged, and shrunk according to their known
    noise. Nothing needs tuning.

    **Privacy.** Protects one private row (see `adjacency`).
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
        "hard" stays within the subspace, as Algorithm 1 does. "soft" also uses directions outside of it, as far as the
        expected error of the subspace and the budget make that worthwhile: with few private rows it is "hard", with
        many it is regression on all features.
    basis : array-like of shape (n_features, k), optional
        The subspace, if it is known without looking at the private data. Public tasks then give only the variances of
        coefficients and residuals.
    fit_intercept : bool, default=True
        Whether tasks have their own intercepts; the paper's tasks have none. Without public tasks an intercept is
        always fitted.
    target_bounds : (float, float), optional
        Range of the target, known without looking at it; used only without public tasks. Default: (-1, 1).
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_components_ : int
        Dimension of the subspace; the number of features if there is none.
    predicted_excess_ : float or None
        Mean squared error above that of the best linear model, predicted from public data: noise, sampling, and the
        part of the coefficients that the subspace misses. None without public tasks.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Differences from the paper: the estimate of the subspace uses which task a row belongs to; rows are whitened by
    public ones; full-batch steps with exact accounting replace DP-AMBSSGD (available as `DPAMBSSGD`); coefficients are
    shrunk; and the solution may leave the subspace. Theorem 5.5 is a lower bound for methods that stay inside a given
    subspace, so "soft" can be better than it. Theorem 5.4 of [1]_ bounds the error of "hard".

    The paper's neighbours replace one row; its experiment accounts for adding or removing one. Set `adjacency`.

    Without public labels this is `PrivateLinearRegression` on all features (or along `basis`). Labels without tasks are
    refused: a single task does not show what tasks share.

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

    # Without public rows, see `declared_geometry`.
    _assumes_unit_features = True

    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        n_components: checks.Count | None = None,
        method: Annotated[str, checks.choice(*SUBSPACE_METHODS)] = "em",
        projection: Annotated[str, checks.choice(*_PROJECTIONS)] = "soft",
        basis: Any = None,
        fit_intercept: checks.Flag = True,
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
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
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
        data = self._read_regression(X, y, public, ledger)
        basis = None if self.basis is None else checked_basis(self.basis, data.n_features)
        budget = data.budget
        if public is None or data.labelled_public is None:
            return self._fit_plain(data, basis)
        model = task_model(
            data.labelled_public[0],
            public,
            method=self.method,
            k=self.n_components,
            intercept=self.fit_intercept,
            basis=basis,
        )
        prior = task_prior(model, intercept=self.fit_intercept, soft=self.projection == "soft")
        solution, predicted = prior.mean, float(prior.variance.sum())
        if budget.worthwhile:
            plan = plan_descent(prior, budget)
            solution, predicted = descend(data.ledger, prior, plan, data.rows, budget), plan.predicted
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, budget, basis_assumptions(self.basis))
        self.n_components_ = model.basis.shape[1]
        # Coefficients in directions that the prior leaves out count in full.
        d, m = prior.turn.shape
        self.predicted_excess_: float | None = predicted + float(model.outside * (d - m))
        self.coef_, self.intercept_ = prior.coefficients(solution)
        return self

    def _fit_plain(self, data: RegressionInput, basis: Vector | None) -> "PrivateSubspaceRegressor":
        """Fit without public tasks: on all features, or within the given subspace."""
        plain = PrivateLinearRegression(
            self.epsilon,
            self.delta,
            target_bounds=self.target_bounds,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        width = data.n_features
        if basis is not None:
            width = basis.shape[1]
            inside = data.rows.map(partial(_inside, basis=basis, fixed_rows=data.fixed_rows))
            geometry = None if data.X_public is None else data.X_public @ basis
            data = replace(data, rows=inside, whole=None, X_public=geometry, n_features=width)
        plain.fit_to(data)
        assumed = [bounds_assumption(self.target_bounds), *features_assumption(data.X_public)]
        assumed += basis_assumptions(self.basis)
        self.privacy_ = self._receipt(data.ledger, data.budget, assumed)
        self.n_components_ = width
        self.predicted_excess_ = None
        self.coef_ = plain.coef_ if basis is None else basis @ plain.coef_
        self.intercept_ = plain.intercept_
        return self

    def predict(self, X: Any) -> Vector:
        """Return predictions for rows of `X`."""
        return self._scores(X)
