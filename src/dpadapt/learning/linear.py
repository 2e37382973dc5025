"""`PrivateLinearRegression`: linear regression by private descent or private sufficient statistics.

The statistics follow Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive
prediction & estimation in unbounded domain", UAI 2018 (AdaSSP), with one joint release instead of three.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator, RegressionInput, bounds_assumption, features_assumption
from dpadapt.learning.descent import constant, james_stein, private_descent, steps_for, tail_noise
from dpadapt.learning.losses import SquaredLoss
from dpadapt.learning.public_models import ridge_by_leave_one_out
from dpadapt.learning.ranges import ROWS_RANGE, TARGET_RANGE, plan_ranges, shrunk_geometry, target_range
from dpadapt.learning.scaling import Geometry, declared_geometry, label_spread, public_geometry, quantile_between
from dpadapt.mechanisms.bounded import Bounded, added, clipped_gram
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Blocks, Part, Rows, row_products

_SOLVERS = ("auto", "descent", "statistics")
# Statistics are used from this n * mu / k^1.5 on. The noise in a released second moment has spectral norm about
# sqrt(2 k) max_norm² / mu; it should be below a tenth of n times the average eigenvalue, max_norm² / (3 k). Solving for
# n mu gives 42 k^1.5.
_STATISTICS_FROM = 42.0


class PrivateLinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression on private rows, started from and standardised by public ones.

    With labelled public data a ridge model is fitted there, and the budget pays only for its correction: clipped
    full-batch gradient steps in publicly whitened coordinates, averaged, then shrunk (James–Stein) by as much as their
    known noise demands. With unlabelled public data only the scales and the whitening come from it. Without public data
    the features are assumed to lie in about [-1, 1] and the target in `target_bounds`; if the budget allows, a small
    part of it finds out how much narrower their ranges really are.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, Gaussian (descent), or one clipped second moment, Gaussian (statistics). Without
    public data and with enough rows also, Gaussian: the clipped sum of the targets with the number of rows, a histogram
    of the targets' distances from their noisy mean, and a histogram of the lengths of rows.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    solver : {"auto", "descent", "statistics"}, default="auto"
        "descent" releases clipped gradients; "statistics" releases the clipped second moment once, which wins for few
        features and many rows without public data. "auto" decides from the number of rows and columns, the budget, and
        whether there is public data.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public labels are given. Default: (-1, 1).
        Targets outside still count, with less weight. Bounds that are too wide cost little (without public data and
        with enough rows), bounds that are too narrow cost much.
    {max_weight}
    {mean_weight}
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

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateLinearRegression, Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y, y_public = X @ [1.0, 0.0, -1.0] + 0.2, X_public @ [1.0, 0.5, -1.0]
    >>> model = PrivateLinearRegression(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.95
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
        solver: Annotated[str, checks.choice(*_SOLVERS)] = "auto",
        target_bounds: tuple[float, float] | None = None,
        max_weight: float | None = None,
        mean_weight: float | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.solver = solver
        self.target_bounds = target_bounds
        self.max_weight = max_weight
        self.mean_weight = mean_weight
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        public: Public | None = None,
        persons: Any = None,
        sample_weight: Any = None,
        ledger: Ledger | None = None,
    ) -> "PrivateLinearRegression":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {persons}
        {sample_weight}
        {ledger}
        """
        return self.fit_to(self._read_regression(X, y, public, ledger, persons=persons, sample_weight=sample_weight))

    def fit_to(self, data: RegressionInput) -> "PrivateLinearRegression":
        """Fit to rows that were read before; for estimators that fall back on this one."""
        solver, (low, high) = self.solver, checks.bounds(self.target_bounds, "target_bounds")
        budget, warm, public = data.budget, data.labelled_public is not None, data.X_public
        self.n_features_in_ = data.n_features
        geometry = declared_geometry(data.n_features) if data.X_public is None else public_geometry(data.X_public)
        if data.labelled_public is not None:
            X_public, labels = data.labelled_public
            Z_public = geometry.transform(X_public)
            prior = ridge_by_leave_one_out(Z_public, labels)
            # A public fit without error must not clip away the shift of the private rows: residuals are assumed to be
            # at least a twentieth of the target's standard deviation.
            residuals = np.maximum(np.abs(prior.residuals), 0.05 * label_spread(labels))
            start, products = prior.solution, np.linalg.norm(Z_public, axis=1) * residuals
            variance = float(np.mean(residuals**2))
        else:
            # Only the bounds of the target are known: start from their middle, and take a quarter of the range for a
            # typical residual.
            start = geometry.solution_for(np.append(np.zeros(data.n_features), (low + high) / 2))
            variance = ((high - low) / 4) ** 2
            products = np.array([geometry.typical_norm * math.sqrt(variance)])
        change = np.zeros_like(start)
        if budget.worthwhile:
            if solver == "auto":
                many = budget.n_rows * budget.mu / budget.factor > _STATISTICS_FROM * len(start) ** 1.5
                solver = "statistics" if public is None and many else "descent"
            ranges = plan_ranges(budget, ROWS_RANGE | TARGET_RANGE if public is None else {})
            plan: _Statistics | _Descent = _plan_statistics(ranges.rest, geometry, variance)
            if solver == "descent":
                facts = (geometry, products, variance)
                plan = _plan_descent(ranges.rest, *facts, whitened=public is not None, warm=warm)
            *range_runs, run = data.ledger.start_all([*ranges.charges, plan.charge])
            # The plan is for rows and targets that fill their bounds: they are stretched by the factors that were
            # released, and the change of the model is shrunk back.
            shrinkage = 1.0
            if range_runs:
                rows_run, mean_run, range_run = range_runs
                geometry = shrunk_geometry(rows_run, geometry, data.rows, ranges)
                mean, shrinkage = target_range(mean_run, range_run, data.rows, (low, high), ranges)
                start = geometry.solution_for(np.append(np.zeros(data.n_features), mean))
            fixed = data.fixed_rows
            rows = data.rows.map(
                partial(_residual_rows, geometry=geometry, start=start, shrinkage=shrinkage, fixed_rows=fixed)
            )
            change = shrinkage * plan.change(run, rows)
        assumed = [] if warm else [bounds_assumption(self.target_bounds), *features_assumption(data.X_public)]
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, budget, assumed)
        coef, intercept = geometry.coefficients(start + change)
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _residual_rows(
    part: Part, *, geometry: Geometry, start: NDArray[np.float64], shrinkage: float, fixed_rows: bool
) -> Rows:
    """Return rows in the coordinates of the geometry, with the residuals that `start` leaves, stretched."""
    Z = geometry.transform(part.X, fixed_rows=fixed_rows)
    with np.errstate(all="ignore"):
        predicted = row_products(Z, start, fixed_rows=fixed_rows)
        errors = np.asarray((part.y - predicted) / shrinkage, dtype=np.float64)
    return Rows(Z, errors, max_norm=geometry.max_norm, shares=part.shares, fixed_rows=fixed_rows)


@dataclass(frozen=True, eq=False)
class _Descent:
    """A correction by clipped full-batch gradient steps, planned from public facts.

    Parameters
    ----------
    budget : Budget
    n_columns : int
        Number of coordinates.
    steps : int
    length : float
        Of one step.
    clip_norm : float
    metric, ridge : float or ndarray
        As in `private_descent`.
    curvature : float
        Of the clipped loss, to expect.
    warm : bool
        Whether a public model is corrected, so that the correction is shrunk towards it.
    """

    budget: Budget
    n_columns: int
    steps: int
    length: float
    clip_norm: float
    metric: Any
    ridge: Any
    curvature: float
    warm: bool

    @property
    def charge(self) -> tuple[Repeated, str]:
        """What is charged, with its label."""
        return Repeated(Gaussian(math.sqrt(self.steps) / self.budget.mu), self.steps), "gradient"

    def change(self, run: Run, rows: Blocks[Rows]) -> NDArray[np.float64]:
        """Release the gradients and return the correction."""
        k, rule = self.n_columns, constant(self.length)
        change = private_descent(
            run,
            rows,
            SquaredLoss(),
            np.zeros(k),
            clip_norm=self.clip_norm,
            n_rows=self.budget.n_rows,
            step=rule,
            metric=self.metric,
            ridge=self.ridge,
        )
        if not self.warm:
            return change
        # A little less than the curvature, so that the noise is overstated rather than understated.
        noise = self.budget.noise(self.clip_norm)
        scatter = tail_noise(self.steps, rule, np.full(k, 0.7 * self.curvature)) * noise**2 * self.steps
        return james_stein(change, scatter)


def _plan_descent(
    budget: Budget,
    geometry: Geometry,
    products: NDArray[np.float64],
    variance: float,
    *,
    whitened: bool,
    warm: bool,
) -> _Descent:
    """Return the plan of a descent.

    `products` are the lengths of public gradients, `variance` is the variance of public residuals.
    """
    k = len(geometry.spectrum)
    variance = max(variance, 1e-300)
    # The clipping norm at which the noise is 2% of the residual variance, between two quantiles of public gradients.
    wanted = budget.n_rows * budget.mu * math.sqrt(0.02 * variance / (2 * k)) / budget.factor
    clip_norm = max(quantile_between(products, wanted, 0.5, 0.97), 1e-300)
    noise = budget.noise(clip_norm)
    metric: Any = 1.0
    ridge: Any = 0.0
    if whitened:
        longest = min(0.05, 8.0 / geometry.max_norm**2)
        curvature = float(np.clip(np.mean(products < clip_norm), 0.3, 1.0))
        progress = float(np.clip(math.log(max(1.2 * variance / (k * noise**2), math.e)) / (2 * 0.3), 1.0, 20.0))
    else:
        # Uniform features have curvature 1/3; without whitening one direction may hold most of a row's length.
        longest = 1.0 / geometry.typical_norm**2
        curvature, progress = 1.0 / 3.0, 30.0
    if not warm:
        # The linear least-mean-squares ridge: noise over the signal to expect, spread as the rows' variance is.
        signal = 4 * variance * geometry.spectrum
        ridge = np.minimum(noise**2 / (curvature * signal + 1e-300), 1e6)
        metric = curvature / (curvature + ridge)
    steps = min(1000, steps_for(progress, longest))
    return _Descent(budget, k, steps, progress / steps, clip_norm, metric, ridge, curvature, warm)


@dataclass(frozen=True)
class _Statistics:
    """A correction by ridge regression on one private second moment of rows and residuals, planned from public facts.

    Parameters
    ----------
    budget : Budget
    unit : float
        Residuals are divided by it.
    clip_norm : float
        The length that a row with its residual is clipped to.
    """

    budget: Budget
    unit: float
    clip_norm: float

    @property
    def charge(self) -> tuple[Gaussian, str]:
        """What is charged, with its label."""
        return Gaussian(1.0 / self.budget.mu), "second moment"

    def change(self, run: Run, rows: Blocks[Rows]) -> NDArray[np.float64]:
        """Release the second moment and return the correction."""
        unit, clip_norm = self.unit, self.clip_norm

        def joint_moment(some: Rows) -> Bounded:
            with np.errstate(all="ignore"):
                joint = np.column_stack([some.X, some.y / unit]).astype(np.float64, copy=False)
                return clipped_gram(Rows(joint, np.zeros(len(joint)), shares=some.shares), clip_norm)

        moment = run.release(added(rows.results(joint_moment)))
        k = len(moment) - 1
        moment = (moment + moment.T) / (2 * self.budget.n_rows)
        noise = self.budget.noise(clip_norm**2)
        return np.asarray(ridge_by_noise(moment[:k, :k], moment[:k, k], noise, least=1e-9) * self.unit)


def _plan_statistics(budget: Budget, geometry: Geometry, variance: float) -> _Statistics:
    """Return the plan of a second moment; `variance` is the variance of public residuals."""
    # Residuals on the scale of a feature, so that neither dominates the joint row.
    unit = max(2 * math.sqrt(variance), 1e-300)
    return _Statistics(budget, unit, joint_length(geometry))


def joint_length(geometry: Geometry) -> float:
    """Return the clipping norm of joint rows of features and target, for targets on the scale of a feature."""
    # Shortening a joint row keeps its linear relation: it acts as a least-squares weight and adds no bias. Once most
    # rows are shortened, noise and signal shrink alike.
    return 0.8 * math.hypot(geometry.typical_norm, 1.0)


def ridge_by_noise(gram: Any, cross: Any, noise: float, *, least: float, floor: float = 0.0) -> NDArray[np.float64]:
    """Return ridge coefficients from private moments whose entries have this noise, with the ridge of AdaSSP.

    The ridge is the most that the noise can take from the smallest eigenvalue, plus `least` and `floor` times the mean
    eigenvalue. It follows from the releases alone. `cross` has one column for each target, or is a vector.
    """
    values, vectors = np.linalg.eigh(gram)
    spectral = noise * math.sqrt(2 * len(values))
    ridge = max(0.0, spectral - float(values[0])) + (floor * max(float(values.mean()), 0.0) + least)
    return np.asarray(vectors @ ((vectors.T @ cross).T / (values + ridge)).T)
