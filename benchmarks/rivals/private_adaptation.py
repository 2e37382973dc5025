"""Private baselines of paper 1: `NoisySGD`, `PrivateMixture`, `PrivateDiscrepancyMinimization`.

`NoisySGD` is noisy projected gradient descent on the private target alone (Bassily, Feldman, Talwar, Thakurta, 2019),
the private baseline of Figure 2 of Bassily, Cortes, Mao and Mohri (ICML 2024). `PrivateMixture` is the private form of
that paper's fixed mixture. `PrivateDiscrepancyMinimization` (private-DM) is the private form of Cortes and Mohri,
Theoretical Computer Science 2014, after R. Bassily, M. Mohri, A. T. Suresh, "Private Domain Adaptation from a Public
Source", 2022 (arXiv:2208.06135), as far as the paper describes it: its *Notes* say what is our reading.
"""

import math
from functools import partial
from typing import Annotated, Any

import numpy as np

from benchmarks.rivals.adaptation import discrepancy_weights, weighted_ridge
from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, bounds_assumption
from dpadapt.learning.linear import joint_length
from dpadapt.learning.public_models import ridge_by_leave_one_out
from dpadapt.learning.scaling import Geometry, Scaling, declared_geometry, public_geometry
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import Gaussian, Plan, Repeated, Sampled
from dpadapt.papers.adaptation.bounded_losses import (
    LimitedRows,
    Moments,
    gradient_bounds,
    limited_rows,
    squared_loss_gradient,
)
from dpadapt.papers.adaptation.matching import feature_moment, fit_target_alone
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationRegressor,
    Array,
    TargetScale,
    bounded_rows,
    target_scale,
    unit_geometry,
)
from dpadapt.papers.adaptation.private_statistics import kept_share, moment_noise, private_moment, public_moment
from dpadapt.papers.adaptation.problem import mixture_share
from dpadapt.rows import row_products


class NoisySGD(AdaptationRegressor):
    """Linear regression in a ball by noisy gradient steps on the private rows, averaged. No transfer.

    Public data gives scales only: how columns are centred and divided, how long a row may be, where targets lie. The
    model does not learn from public labels.

    **Privacy.** Protects one private row (see `adjacency`; the paper's is "replace-one").
    Releases: clipped gradient sums, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    radius : float, default=2.0
        Largest length of the coefficients, for rows of length at most 1 and targets in [-1, 1].
    n_steps : int, optional
        Default: min(n / 8, epsilon² n² / (32 d log(1 / delta))), of the order that [1]_ proves best in the worst case,
        and at least 1. More steps come closer to the minimum, at no further cost in noise.
    sampling_rate : float, default=1.0
        Probability with which a row takes part in a step. With exact accounting a rate below 1 saves time, never noise.
    target_bounds : (float, float), optional
        Range of the target, known without looking at the private data. Default: where 99% of the public labels lie,
        else (-1, 1). Targets outside are moved to the nearer end.
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
    [1]_ draws batches of fixed size with replacement and sets the noise by an asymptotic formula; [2]_ states none of
    its constants. Here all rows take part by default, or a Poisson sample of them, and the noise is the least that the
    exact cost and the exact sensitivity of a squared loss allow. So this baseline is stronger than the original. The
    step length is that of Algorithm 1 of [2]_; at full batches this is Algorithm 1 without a source.

    References
    ----------
    .. [1] R. Bassily, V. Feldman, K. Talwar, A. Thakurta. Private Stochastic Convex Optimization with Optimal Rates.
       NeurIPS 2019.
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> model = NoisySGD(epsilon=2.0, n_steps=2000, random_state=0).fit(X, X @ [0.5, -0.5])
    >>> model.privacy_.epsilon <= 2.0
    True
    >>> model.score(X, X @ [0.5, -0.5]) > 0.5
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        radius: checks.Scale = 2.0,
        n_steps: checks.Count | None = None,
        sampling_rate: checks.Proportion = 1.0,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.n_steps = n_steps
        self.sampling_rate = sampling_rate
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "NoisySGD":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        public : Public, optional
            Public data with the same columns, used for scales only.
        {ledger}
        """
        radius, rate = float(self.radius), float(self.sampling_rate)
        data = self._read_regression(X, y, public, ledger)
        budget = data.budget
        scale = target_scale(self.target_bounds, data.y_public)
        geometry = unit_geometry(data.X.shape[1], data.X_public)
        solution = np.zeros(data.X.shape[1] + 1)
        if budget.worthwhile:
            steps = self._default_steps(budget, len(solution)) if self.n_steps is None else self.n_steps
            noise = math.sqrt(steps) / budget.mu
            plan: Plan = Repeated(Gaussian(noise), steps)
            if rate < 1:
                adjacency = Adjacency.of(self.adjacency)
                noise = calibrate(self.epsilon, self.delta, steps=steps, rate=rate, adjacency=adjacency)
                plan = Sampled(Gaussian(noise), rate, steps)
            rows = bounded_rows(geometry.transform(data.X), scale.apply(data.y))
            single, replaced = gradient_bounds(MAX_NORM, MAX_TARGET, radius)
            # Planning only: the ledger takes the bound of the statistic itself. A sampled step needs twice `single`.
            bound = single * budget.factor if rate < 1 else replaced if budget.factor == 2.0 else single
            sigma = bound * noise / (rate * budget.n_rows)
            # Λ / sqrt(T (G² + d σ²)): step 4 of Algorithm 1 of [2].
            length = radius / math.sqrt(steps * (single**2 + len(solution) * sigma**2))
            run = data.ledger.start(plan, label="gradient")
            solution = _descent(run, rows, rate * budget.n_rows, length=length, radius=radius)
        public_scale = data.y_public is not None and self.target_bounds is None
        assumed = [] if public_scale else [bounds_assumption(self.target_bounds)]
        self._finish(data, *geometry.coefficients(solution), scale, assumed)
        return self

    def __sklearn_tags__(self) -> Any:
        """Mark for scikit-learn that a few averaged steps from 0 score badly on small data, at any budget."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _default_steps(self, budget: Budget, k: int) -> int:
        """Return the number of steps that is best in the worst case, for k coefficients."""
        n = budget.n_rows
        return max(1, int(min(n / 8, (self.epsilon * n) ** 2 / (32 * k * math.log(1 / self.delta)))))


def _descent(run: Run, rows: LimitedRows, expected: float, *, length: float, radius: float) -> Array:
    """Return the average of projected noisy steps from 0; `expected` is the mean number of rows in a step."""
    width, steps = rows.X.shape[1], run.plan.steps
    current, total = np.zeros(width), np.zeros(width)
    # Without sampling, the moments of all rows serve every step.
    whole = None if isinstance(run.plan, Sampled) else rows.moments()
    for batch in run.batches(len(rows.X)):
        gradient = run.release(batch.of(partial(_gradient, rows, whole, current, radius))) / expected
        current = current - length * gradient
        current *= min(1.0, radius / max(math.sqrt(float(current @ current)), 1e-300))
        total += current
    return total / steps


def _gradient(rows: LimitedRows, whole: Moments | None, at: Array, radius: float, index: Any) -> Bounded:
    """Return the gradient at `at` of the rows at `index`; `whole` holds the moments of all rows, if those are meant."""
    if whole is None:
        batch = limited_rows(rows.X[index], rows.y[index], max_norm=rows.max_norm, max_target=rows.max_target)
        return squared_loss_gradient(batch.moments(), at, radius)
    return squared_loss_gradient(whole, at, radius)


class PrivateMixture(AdaptationRegressor):
    """Linear regression on alpha parts of the public source and 1 - alpha parts of the private target.

    The second moment of the private rows is released once and mixed with the public one. `alpha` is not adapted,
    however wrong the source may be. Without labelled public data alpha is taken as 0, which is AdaSSP.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: the clipped second moment of private rows and targets, once, Gaussian; nothing at alpha = 1.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    alpha : float, default=0.5
        Weight of the source, from 0 (private target only) to 1 (public source only). Choose it without looking at the
        private data.
    target_bounds : (float, float), optional
        Range of the target, known without looking at the private data; used unless public labels are given. Default:
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
    Targets are replaced by their residuals from the public model, which are shorter and need less noise. Where the
    public model is the exact minimiser on the source, the mixture's minimiser does not change.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y, y_public = X @ [1.0, 0.0, -1.0], X_public @ [1.0, 0.4, -1.0]
    >>> model = PrivateMixture(alpha=0.5, random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.coef_.round(1)  # half way between the two
    array([ 1. ,  0.2, -1. ])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: Annotated[float, mixture_share] = 0.5,
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

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "PrivateMixture":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {ledger}
        """
        alpha = float(self.alpha)
        scale = target_scale(self.target_bounds, None)
        data = self._read_regression(X, y, public, ledger)
        n_features = data.X.shape[1]
        geometry = declared_geometry(n_features) if data.X_public is None else public_geometry(data.X_public)
        start = geometry.solution_for(np.append(np.zeros(n_features), scale.middle))
        change, source, clip_norm, kept = np.zeros_like(start), None, joint_length(geometry), 1.0
        # Half the range is two typical residuals: on the scale of a feature, see `joint_length`.
        unit = scale.half
        if data.labelled_public is not None:
            X_public, labels = data.labelled_public
            Z_public = geometry.transform(X_public)
            prior = ridge_by_leave_one_out(Z_public, labels)
            start, unit = prior.solution, _residual_unit(prior.residuals, labels)
            e_public = (labels - Z_public @ start) / unit
            source = public_moment(Z_public, e_public)
            # Clipped rows count less. Dividing by what clipping leaves of public rows keeps alpha what it says.
            kept = kept_share(Z_public, e_public, clip_norm)
        else:
            alpha = 0.0
        if data.budget.worthwhile and alpha < 1:
            Z = geometry.transform(data.X)
            with np.errstate(all="ignore"):
                predicted = row_products(Z, start, fixed_rows=data.fixed_rows)
                e = np.asarray((data.y - predicted) / unit, dtype=np.float64)
            moment = private_moment(data.ledger, data.budget, Z, e, clip_norm).scaled(1.0 / kept)
            change = (moment if source is None else source.mixed(moment, alpha)).solution() * unit
        assumed = [] if data.y_public is not None else [bounds_assumption(self.target_bounds)]
        assumed.append("alpha, which was chosen without the private data")
        self._finish(data, *geometry.coefficients(start + change), TargetScale(0.0, 1.0), assumed)
        return self


def _residual_unit(residuals: Array, labels: Array) -> float:
    """Return twice the typical residual of the public model, but at least half the spread of the labels.

    A target that the public model predicts badly has longer residuals. They must not be clipped, or the source's share
    would be larger than alpha says.
    """
    return max(2 * math.sqrt(float(np.mean(residuals**2))), 0.5 * float(np.std(labels)), 1e-300)


class PrivateDiscrepancyMinimization(AdaptationRegressor):
    """Ridge regression on public source rows weighted to match a private target whose labels are not used.

    For the squared loss and linear models the unlabelled discrepancy of two samples is the spectral norm of the
    difference of their second moments. The private second moment is released once; the weights of the public rows that
    bring theirs closest to it, and the regression on the weighted rows, are post-processing.

    Reweighing helps where source and target differ in their features but not in how labels depend on features. If that
    dependence differs, features alone cannot show it, and this method does not protect against it.

    **Privacy.** Protects the features of one private row (see `adjacency`); labels of private rows are not read.
    Releases: the clipped second moment of the private features, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    tolerance : float, default=0.01
        How far above the least discrepancy to stop, relative to the second moment. If the noise is larger, it takes
        the place of `tolerance`: a closer match would fit noise.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    target_bounds : (float, float), optional
        Range of the target; only used without public labels. Default: (-1, 1).
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
    [2]_ describes [1]_ as follows: a public labelled source, an unlabelled private target, the squared loss, the
    solution of discrepancy minimisation, with a smooth approximation of the discrepancy and private variants of
    Frank-Wolfe and mirror descent on the weights. We differ in one point: those algorithms use the private rows in
    every step, through the gradient of the discrepancy, although it depends on them through their second moment alone.
    Here that moment is released once, with noise of spectral norm about sqrt(2 d) / (n mu), and mirror descent on it
    costs nothing.

    Without labelled public data there are no rows to weight; then `y` is needed, and the model is the ridge regression
    that one private second moment of rows and targets gives (AdaSSP).

    References
    ----------
    .. [1] R. Bassily, M. Mohri, A. T. Suresh. Private Domain Adaptation from a Public Source. 2022. arXiv:2208.06135
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (500, 1)), rng.uniform(1, 2, (1000, 1))
    >>> model = PrivateDiscrepancyMinimization(random_state=0)
    >>> model = model.fit(X, public=Public(X_public, X_public[:, 0] ** 2))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> bool(model.coef_[0] > 1)  # the slope of the parabola where the target is; over the source it is 0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        tolerance: checks.Scale = 0.01,
        ridge: checks.Scale = 1e-3,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.tolerance = tolerance
        self.ridge = ridge
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateDiscrepancyMinimization":
        """Fit on private `X` and a labelled public source.

        Parameters
        ----------
        {private X}
        y : array-like of shape (n_rows,), optional
            Private target; not used if the public data has labels.
        public : Public, optional
            Public data with the same columns, with labels.
        {ledger}
        """
        tolerance, ridge = float(self.tolerance), float(self.ridge)
        scale = target_scale(self.target_bounds, None)
        data = self._read_regression(X, y, public, ledger, needs_y=getattr(public, "y", None) is None)
        if data.labelled_public is None:
            n_features = data.X.shape[1]
            geometry = declared_geometry(n_features) if data.X_public is None else public_geometry(data.X_public)
            coef, intercept = fit_target_alone(data.ledger, data.budget, geometry, data.X, scale.apply(data.y))
            self._finish(data, coef, intercept, scale, [bounds_assumption(self.target_bounds)])
            return self
        X_public, labels = data.labelled_public
        weights = np.full(len(labels), 1.0 / len(labels))
        if data.budget.worthwhile:
            geometry = unit_geometry(data.X.shape[1], X_public)
            moment = feature_moment(data.ledger, data.budget, geometry.transform(data.X))
            # The expected spectral norm of the moment's noise.
            noise = moment_noise(data.budget, MAX_NORM) * math.sqrt(2 * len(moment))
            loose = max(tolerance, noise / max(float(np.linalg.norm(moment, 2)), 1e-300))
            weights = discrepancy_weights(_shortened(geometry, X_public), moment, tolerance=loose).weights
        scaling = Scaling.of(X_public)
        coef, intercept = scaling.raw(*weighted_ridge(scaling.scaled(X_public), labels, weights, ridge))
        self._finish(data, coef, intercept, TargetScale(0.0, 1.0), [])
        return self


def _shortened(geometry: Geometry, X_public: Array) -> Array:
    """Return public rows in the final coordinates, shortened like private rows."""
    Z = geometry.transform(X_public)
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z * np.minimum(1.0, MAX_NORM / np.maximum(lengths, 1e-300)))
