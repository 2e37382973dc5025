"""`PrivateTransferRegressor`: a public model, corrected by private rows as far as the evidence goes."""

import math
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.estimator import Budget, PrivateEstimator, RegressionInput, bounds_assumption
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.transfer.forecast import TransferForecast, forecast_regression
from dpadapt.transfer.public_models import OFFSET_ASSUMPTION, Offset, require_shifted_labelled
from dpadapt.transfer.regression_fit import same_population_change, shifted_change
from dpadapt.transfer.regression_plan import (
    TransferGeometry,
    prepared_with,
    same_population_plan,
    shifted_plan,
    shortened_rows,
)

_PRIORS = ("shifted", "same-population")
_NOTHING_ADOPTED = (
    "nothing was adopted: no correction exceeded its noise clearly enough, so the model is the public one; the budget "
    "was spent"
)


class PrivateTransferRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Regression that keeps the public model unless private rows show, beyond the noise, that it is wrong.

    A ridge model is fitted on public rows, or the user gives a model of any kind. The private rows then correct it:
    first its level and slope (two coordinates, which have little noise), then the public directions in which a shift
    may exceed its noise. Each correction is shrunk block by block by thresholds that bound the expected loss against
    the public model. If the budget is too small, the public model is returned and nothing is spent. There is nothing
    to tune.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped sums of rows and of gradients, a clipped second moment of two coordinates, and means of numbers
    in [0, 1]; all Gaussian, charged at once before the first draw.
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
    public_model : estimator, optional
        A model of any kind with `predict`, such as boosting or a pipeline, instead of the ridge model. An unfitted one
        is fitted to the public rows. A fitted one is used as it is; mark public rows that it has not seen by
        `Public(X, y, unseen=...)`, or a copy of it is fitted to parts of the public rows to measure its errors. It must
        treat each row by itself. If no correction is adopted, its predictions are returned as they are.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        With a `public_model`: coefficients of the correction.
    intercept_ : float
    public_offset_ : Offset or None
        The fitted `public_model` (its `model`), and its predictions for public rows.
    score_coef_ : float
        Coefficient of the prediction of the `public_model` in the correction: 0 changes nothing.
    adopted_ : float
        How much of the private correction was adopted, 0 (the public model exactly) to 1. Computed from releases: the
        share of the correction's energy that the gate kept; 1 where there is no gate.
    public_center_, public_scale_, public_longest_, public_target_mean_ : ndarray, ndarray, float, float
        Public numbers by which `predict` shortens long rows. None without public labels.
    public_coef_, public_intercept_ : ndarray, float
        The public linear model; see `public_only`. None without public labels, 0 with a `public_model`.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    With public labels, long rows are shortened, in fitting and in `predict`. Let L be the 95% quantile of the lengths
    of the standardised public rows. Rows longer than 2 L are shortened to 2 L; with at most 20 public rows per column,
    rows longer than L are shortened to L. The prediction of a shortened row is pulled towards the mean of the public
    labels. `coef_` and `intercept_` describe all other rows.

    The bound on the expected loss holds in a model: Gaussian noise and sampling error of the stated variance. No bound
    holds for all data; the benchmark `benchmarks.transfer.regression` measures it.

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
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        prior: str = "shifted",
        target_bounds: tuple[float, float] | None = None,
        public_model: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.prior = prior
        self.target_bounds = target_bounds
        self.public_model = public_model
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateTransferRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {ledger}
        """
        prior = checks.one_of(self.prior, _PRIORS, "prior")
        checks.bounds(self.target_bounds, "target_bounds")
        data = self._read_regression(X, y, public, ledger)
        budget = data.budget
        require_shifted_labelled(self.public_model, prior, data.labelled_public)
        if public is None or data.labelled_public is None:
            return self._fit_alone(data)
        # Prepare, from public rows alone.
        geometry, offset = prepared_with(self.public_model, public, *data.labelled_public)
        change, adopted = np.zeros_like(geometry.solution), 0.0
        if budget.worthwhile:
            rows, targets = data.X, data.y
            if offset is not None:
                # Before anything is charged: the model may fail.
                rows = offset.beside_private(data.X, data.ledger.adjacency)
                targets = data.y - rows[:, -1]
            change, adopted = _private_change(geometry, budget, prior, data.ledger, rows, targets)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        notes = [_NOTHING_ADOPTED] if budget.worthwhile and adopted == 0 else []
        self.privacy_ = self._receipt(data.ledger, budget, [] if offset is None else [OFFSET_ASSUMPTION], notes=notes)
        self.public_center_: NDArray[np.float64] | None = geometry.center
        self.public_scale_: NDArray[np.float64] | None = geometry.scale
        self.public_longest_: float | None = geometry.longest
        self.public_target_mean_: float | None = geometry.target_center
        self.public_coef_: NDArray[np.float64] | None
        self.public_intercept_: float | None
        self.public_offset_: Offset | None = offset
        # The last column of an offset's geometry holds its predictions.
        d = data.n_features
        public_coef, self.public_intercept_ = geometry.coefficients(geometry.solution)
        coef, self.intercept_ = geometry.coefficients(geometry.solution + change)
        self.public_coef_, self.coef_ = public_coef[:d], coef[:d]
        self.score_coef_ = float(coef[d]) if offset is not None else 0.0
        self.adopted_ = adopted
        return self

    def public_only(self) -> "PrivateTransferRegressor | None":
        """Return the model that the public rows alone gave, as a fitted copy; None without public labels.

        The copy keeps the receipt of the fit, though the public model itself costs nothing.
        """
        check_is_fitted(self)
        # Models saved by version 0.1 have no public model.
        coef, intercept = getattr(self, "public_coef_", None), getattr(self, "public_intercept_", None)
        if coef is None or intercept is None:
            return None
        model = copy(self)
        model.coef_, model.intercept_, model.score_coef_, model.adopted_ = coef.copy(), intercept, 0.0, 0.0
        return model

    def forecast(self, public: Public, n_private: int) -> TransferForecast:
        """Return what public data says about a fit on `n_private` rows; nothing private is read, nothing spent.

        Parameters
        ----------
        public : Public
            Labelled.
        n_private : int
            Number of private rows; under "add-remove" a public estimate of it.
        """
        if checks.one_of(self.prior, _PRIORS, "prior") != "shifted":
            raise ValueError("prior must be 'shifted' for a forecast: 'same-population' has no gate. Use rehearse.")
        return forecast_regression(
            public, n_private, self.epsilon, self.delta, adjacency=self.adjacency, public_model=self.public_model
        )

    def _fit_alone(self, data: RegressionInput) -> "PrivateTransferRegressor":
        """Fit without a public model."""
        plain = PrivateLinearRegression(
            self.epsilon,
            self.delta,
            target_bounds=self.target_bounds,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        unlabelled = None if data.X_public is None else Public(data.X_public)
        plain.fit(data.X, data.y, public=unlabelled, ledger=data.ledger)
        self.privacy_ = self._receipt(data.ledger, data.budget, [bounds_assumption(self.target_bounds)])
        self.public_center_, self.public_scale_ = None, None
        self.public_longest_, self.public_target_mean_ = None, None
        self.public_coef_, self.public_intercept_ = None, None
        self.public_offset_, self.score_coef_ = None, 0.0
        self.coef_, self.intercept_ = plain.coef_, plain.intercept_
        self.adopted_ = float(data.budget.worthwhile)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`; long rows are shortened as in `fit`."""
        check_is_fitted(self)
        if self.public_center_ is None or self.public_scale_ is None:
            return self._scores(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        coef: NDArray[np.float64] = self.coef_
        base: Any = self.public_target_mean_ or 0.0
        # Models saved by version 0.1 have no offset.
        offset = getattr(self, "public_offset_", None)
        if offset is not None:
            X, coef = offset.beside(X), np.append(coef, self.score_coef_)
            base = X[:, -1]
        rows = shortened_rows(X, self.public_center_, self.public_scale_, self.public_longest_ or math.inf)
        # Columns without a public scale have coefficient 0.
        scaled = coef * np.where(np.isfinite(self.public_scale_), self.public_scale_, 0.0)
        level = self.intercept_ + self.public_center_ @ coef - (self.public_target_mean_ or 0.0)
        return np.asarray(base + rows @ np.append(scaled, level))


def _private_change(
    geometry: TransferGeometry, budget: Budget, prior: str, ledger: Ledger, X: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[np.float64], float]:
    """Plan, charge and release; return the change of the public solution and how much of it was adopted."""
    rows = geometry.standardise(X)
    with np.errstate(all="ignore"):
        residuals = np.asarray(y - geometry.target_center - rows @ geometry.solution, dtype=np.float64)
    if prior == "shifted":
        plan = shifted_plan(geometry, budget)
        return shifted_change(plan, ledger.start_all(plan.charges), rows, residuals)
    filtered = same_population_plan(geometry, budget)
    (run,) = ledger.start_all(filtered.charges)
    precision = np.float64 if ledger.adjacency is Adjacency.ADD_REMOVE else np.float32
    return same_population_change(filtered, run, geometry, rows, residuals, budget.n_rows, precision=precision), 1.0
