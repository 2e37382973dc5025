"""`PrivateTransferRegressor`: a public model, corrected by private rows as far as the evidence goes."""

import math
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import PrivateEstimator, RegressionInput, bounds_assumption, features_assumption
from dpadapt.learning.fit_summary import FitSummary, held_out_errors
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.rows import Part, products_by_row
from dpadapt.transfer.base import (
    LINEAR_ONLY_NOTE,
    NO_LABELS_NOTE,
    Base,
    LinearModel,
    UsableLabels,
    combined,
    count_plan,
    regression_base,
    shortened_rows,
    tamed_labels,
    without_errors,
)
from dpadapt.transfer.intervals import (
    Calibration,
    CalibrationPlan,
    calibrated,
    interval_plan,
    require_public,
    residual_bounds,
    score_limit,
)
from dpadapt.transfer.preview import Forecast, forecast_regression
from dpadapt.transfer.public_models import OFFSET_ASSUMPTION, require_shifted_labelled
from dpadapt.transfer.regression_fit import (
    CHANGED_PARTS,
    Change,
    same_population_change,
    scored_rows,
    shifted_change,
)
from dpadapt.transfer.regression_plan import (
    TransferGeometry,
    remembered_base_geometry,
    remembered_geometry,
    same_population_plan,
    score_columns,
    shifted_plan,
    worthwhile,
)

_PRIORS = ("shifted", "same-population")
_NOTHING_ADOPTED = (
    "nothing was adopted: no correction exceeded its noise clearly enough, so the model is the public one; the budget "
    "was spent"
)
_NOT_WORTHWHILE = (
    "the budget is too small for this many rows to correct even the level: nothing was released and nothing was spent; "
    "the model is the public one"
)


class PrivateTransferRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Regression that keeps the public model unless private rows show, beyond the noise, that it is wrong.

    Several public models (linear and boosted) are fitted on public rows and blended, or the user gives a model of any
    kind. The private rows then correct the blend in stages, as far as the budget goes: its level; its slope, and the
    mix of its models; then the public directions in which a shift may exceed its noise. Each correction is shrunk by
    thresholds that bound the expected loss against the public model. If the budget is too small, the public model is
    returned and nothing is spent. There is nothing to tune.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: the number of rows with a readable label, clipped sums of rows, of gradients and of a few numbers per row,
    and means of numbers in [0, 1]; with `intervals`, also how many residuals exceed each of some public
    numbers. All Gaussian, charged at once before the first draw.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    prior : {"shifted", "same-population"}, default="shifted"
        Whether public rows may come from another population. "same-population" trusts them more and has no gate; use it
        only if the public rows are a random sample of the private population.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public labels are given. Default: (-1, 1).
    public_model : estimator or "linear", optional
        A model of any kind with `predict`, such as a pipeline or a neural network, instead of the blend. An unfitted
        one is fitted to the public rows. A fitted one is used as it is; mark public rows that it has not seen by
        `Public(X, y, unseen=...)`, or a copy of it is fitted to parts of the public rows to measure its errors. It must
        treat each row by itself. If no correction is adopted, its predictions are returned as they are. "linear" is a
        ridge model: the whole model is then linear, and `coef_` describes it. With fewer than 50 public rows it takes
        the place of the blend, and the receipt says so.
    {max_weight}
    {mean_weight}
    intervals : bool, default=False
        Whether to spend 2 to 10% of the budget on the calibration of prediction intervals; see `predict_interval`.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients of the correction, for rows that are neither clipped nor shortened, without what it changes of the
        public models' predictions; of the whole model if the public model is linear.
    intercept_ : float
        What belongs to `coef_`.
    coef_noise_ : ndarray of shape (n_features,) or None
        Standard deviation that the noise of this fit's releases gives to each of `coef_`, where the whole model is
        linear: for `public_model="linear"` and for the prior "same-population". None otherwise. It is computed from the
        plan and the releases, as if gates decided alike for any noise. It leaves out the sampling errors of private and
        public rows and the biases of clipping and shrinking, so it is no standard error: a coefficient may be further
        from the truth.
    adopted_ : float
        How much of the private correction was adopted, 0 (the public model exactly) to 1: the share of its energy (of
        its squared length) that the gates kept, so that a correction halved as a whole has 0.25. Computed from
        releases. 1 where there is no gate. The classifier's `adopted_` is a factor instead.
    stages_ : dict
        How much was adopted of each part: the factor of the "level", the mean factor of "slope and mix", and the share
        of the energy of the "directions". All 0 where there are no stages.
    estimated_gain_ : tuple of float or None
        By how much the squared error on the private population is less than that of the public model, as a share of
        the latter: an estimate, and the ends of a 90% interval, from a release that measures it at the end. Large
        errors are clipped there, and the rows are those of the fit, so that it is a little too large. None where the
        budget does not pay for it, and where there is no gate.
    usable_share_ : tuple of float or None
        The share of private rows with a readable label: an estimate, and the ends of a 90% interval, as released. If it
        does not exceed its noise, the model is the public one. None without public labels, or if nothing was released.
    own_effect_ : ndarray of shape (n_features,)
        For each column that is constant in public rows, such as the indicator of a category that these lack: how much
        of its own effect was kept, from 0 (predicted at the overall level) to 1. It is shrunk by the noise that it
        carries. NaN for the other columns. Computed from releases and public data.
    public_base_ : Base or None
        The public models, and the weights of their blend. None without public labels, and for the prior
        "same-population".
    score_coef_ : ndarray of shape (n_models,)
        Coefficients of the public models' predictions: the weights of the blend if slope and mix are unchanged.
    level_, correction_ : float, ndarray or None
        What the stages add beside it: a constant, and coefficients of the rows, the mix and the blend, each
        standardised, and of 1. Where directions are corrected, the change of the level is in `correction_`.
    public_center_, public_scale_, public_longest_, public_target_mean_ : ndarray, ndarray, float, float
        Public numbers by which `predict` standardises and shortens rows. None where it does not.
    public_coef_, public_intercept_ : ndarray, float
        The public ridge model of the prior "same-population"; None otherwise. See `public_only`.
    public_errors_ : dict or None
        Errors on public rows, of no model and of the public model, which was not fitted to the rows that it predicts.
        None without public labels, or with few rows.
    calibration_ : Calibration or None
        How large the residuals of private rows are, as released; None without `intervals`.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Public cells and labels far outside the range of the others are clipped, so that a few bad ones hardly matter.
    Cells and rows that lie far outside the public ones are clipped and shortened, in fitting and in `predict`. A column
    that is constant in public rows is kept; a private cell counts up to one unit away from the constant.

    The bound on the expected loss holds in a model: Gaussian noise and sampling error of the stated variance. No bound
    holds for all data; `python -m benchmarks transfer` measures it.

    Without public labels this is `PrivateLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateTransferRegressor, Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y = X @ [1.0, 0.0, -1.0] + 0.2 + 0.1 * rng.standard_normal(2000)
    >>> y_public = X_public @ [1.0, 0.5, -1.0] + 0.1 * rng.standard_normal(200)
    >>> model = PrivateTransferRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.95
    True

    With prediction intervals:

    >>> model = PrivateTransferRegressor(intervals=True, random_state=0)
    >>> model.fit(X, y, public=Public(X_public, y_public)).predict_interval(X[:3], coverage=0.8).shape
    (3, 2)
    """

    public_base_: Base | None
    score_coef_: NDArray[np.float64]
    correction_: NDArray[np.float64] | None
    stages_: dict[str, float]
    estimated_gain_: tuple[float, float, float] | None
    public_center_: NDArray[np.float64] | None
    public_scale_: NDArray[np.float64] | None
    public_longest_: float | None
    public_target_mean_: float | None
    public_coef_: NDArray[np.float64] | None
    public_intercept_: float | None
    public_errors_: dict[str, Any] | None
    calibration_: Calibration | None
    coef_noise_: NDArray[np.float64] | None

    # Without public rows, see `declared_geometry`.
    _assumes_unit_features = True
    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        prior: Annotated[str, checks.choice(*_PRIORS)] = "shifted",
        target_bounds: tuple[float, float] | None = None,
        public_model: Any = None,
        max_weight: float | None = None,
        mean_weight: float | None = None,
        intervals: checks.Flag = False,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.prior = prior
        self.target_bounds = target_bounds
        self.public_model = public_model
        self.max_weight = max_weight
        self.mean_weight = mean_weight
        self.intervals = intervals
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
    ) -> "PrivateTransferRegressor":
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
        prior = self.prior
        data = self._read_regression(X, y, public, ledger, persons=persons, sample_weight=sample_weight)
        if self.public_model is not None:
            require_shifted_labelled(self.public_model, prior, data.labelled_public)
        calibration: CalibrationPlan | None = None
        if self.intervals:
            require_public(data.labelled_public, "public rows with labels")
            calibration = interval_plan(data.budget)
            # Everything else is planned with what the calibration leaves.
            data = replace(data, budget=calibration.budget)
        if public is None or data.labelled_public is None:
            return self._fit_alone(data)
        if prior == "same-population":
            return self._fit_same_population(public, *data.labelled_public, data, calibration)
        # Prepare, from public rows alone.
        budget = data.budget
        public_base = regression_base(public, *data.labelled_public, self.public_model)
        base = public_base.base
        assumed = [OFFSET_ASSUMPTION] if base.given else []
        geometry: TransferGeometry | None = None
        change: Change | None = None
        usable: UsableLabels | None = None
        run: Run | None = None
        count = count_plan(budget)
        budget = count.budget
        if worthwhile(budget):
            # Before anything is charged: a model that the user gave may fail.
            scored = data.rows.map(partial(scored_rows, base=base, fixed_rows=data.fixed_rows))
            geometry = remembered_base_geometry(public, public_base)
            plan = shifted_plan(public_base, geometry, budget)
            charges = [*plan.charges, *([] if calibration is None else calibration.charges)]
            counted, *runs = data.ledger.start_all([*count.charges, *charges])
            run = None if calibration is None else runs.pop()
            usable = count.usable_labels(counted, data.rows)
            if not usable.none:
                change = shifted_change(replace(plan, budget=usable.budget(budget)), runs, scored)
        notes = [LINEAR_ONLY_NOTE] if self.public_model is None and len(base.models) == 1 else []
        if usable is not None and usable.none:
            notes.append(NO_LABELS_NOTE)
        elif change is None and budget.worthwhile:
            notes.append(_NOT_WORTHWHILE)
        elif change is not None and change.adopted == 0.0:
            notes.append(_NOTHING_ADOPTED)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, budget, assumed, notes=notes)
        self.calibration_ = None
        self._forget_linear()
        self._keep(base, geometry, change)
        self.usable_share_ = None if usable is None else usable.interval()
        self.public_errors_ = held_out_errors(public_base.labels, combined(public_base.scores, base.weights))
        if run is not None and calibration is not None and geometry is not None:
            self._calibrate(run, calibration, geometry, data)
        return self

    def _fit_same_population(
        self,
        public: Public,
        X_public: NDArray[np.float64],
        y_public: NDArray[np.float64],
        data: RegressionInput,
        calibration: CalibrationPlan | None,
    ) -> "PrivateTransferRegressor":
        """Fit where the populations are the same: the public ridge model, and no gate."""
        count = count_plan(data.budget)
        budget, adopted, notes = count.budget, 0.0, list[str]()
        usable: UsableLabels | None = None
        geometry = remembered_geometry(public, X_public, y_public)
        change, noise = np.zeros_like(geometry.solution), np.zeros(data.n_features)
        run: Run | None = None
        if budget.worthwhile:
            plan = same_population_plan(geometry, budget)
            charges = [*count.charges, *plan.charges, *([] if calibration is None else calibration.charges)]
            counted, *runs = data.ledger.start_all(charges)
            run = None if calibration is None else runs.pop()
            usable = count.usable_labels(counted, data.rows)
            notes = [NO_LABELS_NOTE] if usable.none else []
            if not usable.none:
                precision = np.float32 if data.fixed_rows else np.float64
                # Divided by the number of all rows: rows without a label then only shrink the change.
                change = same_population_change(plan, runs[0], geometry, data.rows, budget.n_rows, precision=precision)
                spread = geometry.vectors * (plan.kept * np.sqrt(plan.noise_variance))
                noise, adopted = np.linalg.norm(spread[:-1], axis=1) / geometry.scale, 1.0
        self.privacy_ = self._receipt(data.ledger, budget, [], notes=notes)
        self.calibration_ = None
        self._forget_base()
        self.public_center_, self.public_scale_ = geometry.center, geometry.scale
        self.public_longest_, self.public_target_mean_ = geometry.longest, geometry.target_center
        self.public_coef_, self.public_intercept_ = geometry.coefficients(geometry.solution)
        labels = tamed_labels(without_errors(X_public, y_public, numeric=True)[1])
        self.public_errors_ = held_out_errors(labels, labels - geometry.residuals)
        self.coef_, self.intercept_ = geometry.coefficients(geometry.solution + change)
        self.coef_noise_, self.adopted_ = noise, adopted
        self.usable_share_ = None if usable is None else usable.interval()
        if run is not None and calibration is not None:
            self._calibrate(run, calibration, geometry, data)
        return self

    def _calibrate(self, run: Run, plan: CalibrationPlan, geometry: TransferGeometry, data: RegressionInput) -> None:
        """Release how large the residuals of the private rows are."""
        base, fixed, model = self.public_base_, data.fixed_rows, self.without_seed()

        def sizes(part: Part) -> NDArray[np.float64]:
            with np.errstate(all="ignore"):
                if base is None:
                    return np.abs(part.y - model._linear(part.X))
                return np.abs(part.y - model._corrected(base, part.X, base.private_scores(part.X, fixed_rows=fixed)))

        bounds, relation = residual_bounds(geometry.residuals), data.ledger.adjacency
        self.calibration_ = calibrated(run, bounds, sizes, data.rows, plan=plan, adjacency=relation)

    def _keep(self, base: Base, geometry: TransferGeometry | None, change: Change | None) -> None:
        """Keep the base and its change."""
        self.public_base_, self.score_coef_, self.level_ = base, base.weights.copy(), 0.0
        self.correction_, self.stages_, self.adopted_ = None, dict.fromkeys(CHANGED_PARTS, 0.0), 0.0
        self.estimated_gain_ = (0.0, 0.0, 0.0)
        self.own_effect_ = np.where(base.columns.constant, 0.0, np.nan)
        if change is not None:
            self.estimated_gain_ = change.gain
            self.score_coef_, self.level_ = change.score_coef, change.level
            self.stages_, self.adopted_ = change.stages, change.adopted
            self.own_effect_[base.columns.constant] = change.own_effect
            if geometry is not None and change.solution is not None:
                self.public_center_, self.public_scale_ = geometry.center, geometry.scale
                self.public_longest_, self.correction_ = geometry.longest, change.solution
        self.coef_, self.intercept_ = self._raw_coefficients(base)
        self.coef_noise_ = None if base.linear is None else self._noise_of_coefficients(base.linear, base, change)

    def _raw_coefficients(self, base: Base) -> tuple[NDArray[np.float64], float]:
        """Return coefficients and intercept for raw rows that need no clipping: of the linear parts of the model."""
        columns, d = base.columns, len(base.columns.center)
        coef, intercept, own = np.zeros(d), self.level_, float(self.score_coef_[0])
        if self.correction_ is not None and self.public_center_ is not None and self.public_scale_ is not None:
            scaled = self.correction_[:-1] / self.public_scale_
            coef = scaled[:d] / columns.scale
            intercept += float(self.correction_[-1] - scaled @ self.public_center_ - coef @ columns.center)
            own += float(scaled[-1])  # the last column is the prediction of the public model
        if base.linear is not None:
            linear = own * base.linear.coef[:-1] / base.linear.columns.scale
            coef = coef + linear
            intercept += float(own * (base.linear.center + base.linear.coef[-1]) - linear @ base.linear.columns.center)
        return coef, intercept

    def _noise_of_coefficients(self, linear: LinearModel, base: Base, change: Change | None) -> NDArray[np.float64]:
        """Return the standard deviation of `coef_` that the noise of the releases causes; `coef_` is linear in it."""
        d = len(base.columns.center)
        if change is None:
            return np.zeros(d)
        spread, own = np.zeros((d, change.score_noise.shape[1])), change.score_noise[0]
        if change.solution_noise is not None and self.public_scale_ is not None:
            scaled = change.solution_noise[:-1] / self.public_scale_[:, None]
            spread, own = scaled[:d] / base.columns.scale[:, None], own + scaled[-1]
        spread = spread + np.outer(linear.coef[:-1] / linear.columns.scale, own)
        return np.asarray(np.linalg.norm(spread, axis=1))

    def _forget_base(self) -> None:
        self.public_base_, self.correction_, self.stages_ = None, None, dict.fromkeys(CHANGED_PARTS, 0.0)
        self.score_coef_, self.level_, self.estimated_gain_ = np.zeros(0), 0.0, None
        self.own_effect_ = np.full(self.n_features_in_, np.nan)
        self.usable_share_, self.public_errors_ = None, None

    def _forget_linear(self) -> None:
        self.public_center_, self.public_scale_, self.public_longest_ = None, None, None
        self.public_target_mean_, self.public_coef_, self.public_intercept_ = None, None, None

    def public_only(self) -> "PrivateTransferRegressor | None":
        """Return the model that the public rows alone gave, as a fitted copy; None without public labels.

        The copy keeps the receipt of the fit, though the public model itself costs nothing.
        """
        check_is_fitted(self)
        model = copy(self)
        model.calibration_ = None  # it belongs to the corrected model
        # Models saved by earlier versions have no base.
        base = getattr(self, "public_base_", None)
        if base is not None:
            model._keep(base, None, None)
            return model
        coef, intercept = getattr(self, "public_coef_", None), getattr(self, "public_intercept_", None)
        if coef is None or intercept is None:
            return None
        model.coef_, model.intercept_, model.adopted_ = coef.copy(), intercept, 0.0
        model.coef_noise_ = np.zeros(len(coef))
        return model

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        base, public_model = self.public_base_, self.public_only()
        return replace(
            super().summary(),
            adopted=None if base is None else self.adopted_,
            gain=self.estimated_gain_,
            readable_labels=self.usable_share_,
            public_model=public_model,
            public_errors=self.public_errors_,
            coefficient_noise=self.coef_noise_,
            own_effect=self.own_effect_,
            beside_public_model=base is not None and base.linear is None,
            has_intervals=self.calibration_ is not None,
        )

    def forecast(self, public: Public, n_private: int) -> Forecast:
        """Return what public data says about a fit on `n_private` rows; nothing private is read, nothing spent.

        Parameters
        ----------
        public : Public
            Labelled.
        n_private : int
            Number of private rows; under "add-remove" a public estimate of it.
        """
        self._check_parameters(public)
        if self.prior != "shifted":
            raise ValueError("prior must be 'shifted' for a forecast: 'same-population' has no gate. Use rehearse.")
        return forecast_regression(
            public,
            n_private,
            self.epsilon,
            self.delta,
            adjacency=self.adjacency,
            public_model=self.public_model,
            intervals=self.intervals,
        )

    def _fit_alone(self, data: RegressionInput) -> "PrivateTransferRegressor":
        """Fit without a public model."""
        plain = PrivateLinearRegression(
            self.epsilon,
            self.delta,
            target_bounds=self.target_bounds,
            max_weight=self.max_weight,
            mean_weight=self.mean_weight,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        plain.fit_to(replace(data, y_public=None, ledger=plain._ledger(data.ledger, data.ledger.unit)))
        assumed = [bounds_assumption(self.target_bounds), *features_assumption(data.X_public)]
        self.privacy_ = self._receipt(data.ledger, data.budget, assumed)
        self.calibration_ = None
        self._forget_base()
        self._forget_linear()
        self.coef_, self.intercept_, self.coef_noise_ = plain.coef_, plain.intercept_, None
        self.adopted_ = float(data.budget.worthwhile)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`; cells and rows outside the public range are clipped as in `fit`."""
        check_is_fitted(self)
        # Models saved by earlier versions have no base.
        base = getattr(self, "public_base_", None)
        if base is not None:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
            return self._corrected(base, X, base.scores(X))
        if self.public_center_ is None or self.public_scale_ is None:
            return self._scores(X)
        return self._linear(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    def _linear(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the predictions of the linear model of the prior "same-population"."""
        # Columns without a public scale have coefficient 0.
        center, scale = np.asarray(self.public_center_), np.asarray(self.public_scale_)
        rows = shortened_rows(X, center, scale, self.public_longest_ or math.inf)
        scaled = self.coef_ * np.where(np.isfinite(scale), scale, 0.0)
        level = self.intercept_ + center @ self.coef_ - (self.public_target_mean_ or 0.0)
        return np.asarray((self.public_target_mean_ or 0.0) + products_by_row(rows, np.append(scaled, level)))

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> NDArray[np.float64]:
        """Return an interval around the prediction for each row of `X`: its lower and its upper end.

        All intervals have the same width. About the share `coverage` of new rows lie inside, on average, if they come
        from the population of the private rows. Any coverage may be asked for, at no further cost. Where the budget is
        too small for a coverage, intervals are wide or infinite, with a `CalibrationWarning`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows, 2)
        """
        check_is_fitted(self)
        # Models saved by earlier versions have no calibration.
        limit = score_limit(getattr(self, "calibration_", None), coverage, asked=self.intervals)
        predicted = self.predict(X)
        return np.column_stack([predicted - limit, predicted + limit])

    def _corrected(self, base: Base, X: NDArray[Any], scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions of the base after the changes of all stages; `scores` are those of its models."""
        predicted = self.level_ + combined(scores, self.score_coef_)
        if self.correction_ is None or self.public_center_ is None or self.public_scale_ is None:
            return np.asarray(predicted)
        columns = np.column_stack([base.columns.standardise(X), score_columns(scores, base.weights)])
        longest = self.public_longest_ or math.inf
        rows = shortened_rows(columns, self.public_center_, self.public_scale_, longest)
        return np.asarray(predicted + products_by_row(rows, self.correction_))
