"""Private gradient descent, cold or warm, plain or whitened: the baselines of the mirror-descent paper.

Cold and warm DP-SGD of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193, Section 3.
DP-SGD is due to Abadi et al., "Deep Learning with Differential Privacy", 2016.
"""

from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, LinearClassifier
from dpadapt.learning.descent import constant, private_descent
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Gaussian, Plan, Repeated, Sampled
from dpadapt.papers.mirror.base import Descended, DescentEstimator, Problem
from dpadapt.papers.mirror.maps import QuadraticMap
from dpadapt.papers.mirror.public_fit import (
    Coordinates,
    DescentModel,
    PublicFit,
    choose_clip_and_rate,
    gradient_descent_model,
    one_minus_leverage,
)
from dpadapt.rows import Part, Rows, row_products

_STARTS = ("warm", "cold")


class _GradientDescent(DescentEstimator):
    """Parameters, plan and descent of both baselines."""

    start: str
    whiten: bool
    batch_size: int | None

    @property
    def _uses_public_labels(self) -> bool:
        """Whether the start is warm; a cold start ignores public labels."""
        return self.start == "warm"

    def _check_combination(self, public: Any) -> None:
        super()._check_combination(public)
        if self.whiten and public is None:
            raise ValueError("whiten=True needs public rows to whiten by. Give public=, or leave it out.")

    def _plan(self, budget: Budget) -> tuple[Plan, float]:
        """Return the steps with the least noise that the budget allows, and that noise over the sum's sensitivity."""
        adjacency = Adjacency.of(self.adjacency)
        rate = 1.0 if self.batch_size is None else min(1.0, self.batch_size / budget.n_rows)
        noise = calibrate(self.epsilon, self.delta, steps=self.n_steps, rate=rate, adjacency=adjacency)
        if rate == 1.0:
            return Repeated(Gaussian(noise), self.n_steps), noise
        return Sampled(Gaussian(noise), rate, self.n_steps), noise / rate

    def _descend(self, ledger: Ledger, problem: Problem, budget: Budget) -> Descended:
        """Plan from public facts and, if the budget is worthwhile, charge and take all steps."""
        fit, basis = problem.public_fit, None
        if self.whiten:
            curved = QuadraticMap(fit.ridged(fit.ridge(self.ridge)))
            model = _whitened_descent_model(fit, curved.inverse(fit.sample.T), curved.unit)
            lower = np.tril(curved.factor[0])
            # H = L L'; rows times L'^-1 have second moment 1.
            basis = solve_triangular(lower, np.eye(len(lower)), lower=True).T
        else:
            model = gradient_descent_model(fit)
        plan, noise = self._plan(budget)
        clip_norm, rate = choose_clip_and_rate(
            model,
            clip_norm=self.clip_norm,
            learning_rate=self.learning_rate,
            noise=budget.factor * noise / budget.n_rows,
            steps=self.n_steps,
            first=self.n_steps // 2,
            least_quantile=problem.least_clip_quantile,
        )
        if not budget.worthwhile:
            return Descended(fit.solution, clip_norm, rate)
        rows = partial(problem.coordinates.rows, fixed_rows=ledger.fixed_rows)
        if basis is not None:
            rows = partial(_whitened_rows, problem.coordinates, basis, fixed_rows=ledger.fixed_rows)
        solution = private_descent(
            ledger.start(plan, label="gradient"),
            problem.rows.map(rows),
            problem.loss,
            fit.solution if basis is None else lower.T @ fit.solution,
            clip_norm=clip_norm,
            n_rows=budget.n_rows,
            step=constant(rate),
        )
        return Descended(solution if basis is None else basis @ solution, clip_norm, rate)


def _whitened_descent_model(fit: PublicFit, inverse: NDArray[np.float64], unit: float) -> DescentModel:
    """Return the model of gradient descent on rows multiplied by the inverse root of the Hessian."""
    squares = np.einsum("ij,ji->i", fit.sample, inverse) / one_minus_leverage(fit, inverse)
    noise_loss = float(np.mean(fit.curvature * squares)) * fit.n_scores / 2
    fastest = max(1.0, fit.mean_eigenvalue / unit)
    return DescentModel(np.sqrt(squares) * fit.derivatives, noise_loss, 1.0, fastest, fit.excess)


def _whitened_rows(coordinates: Coordinates, basis: NDArray[np.float64], part: Part, *, fixed_rows: bool) -> Rows:
    """Return private rows in the coordinates, multiplied by `basis`."""
    with np.errstate(all="ignore"):
        Z = row_products(coordinates.extend(part.X), basis.astype(part.X.dtype), fixed_rows=fixed_rows)
    return Rows(Z, part.y, intercept=False, shares=part.shares, fixed_rows=fixed_rows)


class PrivateGradientDescentRegressor(RegressorMixin, _GradientDescent):  # type: ignore[misc]
    """Linear regression by private gradient descent: cold or warm, plain or whitened, full batch or Poisson batches.

    The baselines of [1]_: DP-SGD from zero ("cold"), from the public model ("warm"), and with rows whitened by public
    data before clipping. The last half of the iterates is averaged.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    start : {"warm", "cold"}, default="warm"
        Whether to start from the public model. "cold" does not use public labels.
    whiten : bool, default=False
        Whether rows are whitened by the public Hessian before gradients are clipped. Needs public rows.
    n_steps : int, default=100
        Number of private steps.
    batch_size : int, optional
        Expected size of a Poisson batch. Default: all rows in every step.
    learning_rate, clip_norm : float, optional
        Default: those of least predicted loss, from public data alone, as in `PDADPMDRegressor`.
    ridge : float, optional
        Added to the Hessian before whitening, in its mean eigenvalues. Default: half the columns over the public rows.
    standardise, fit_intercept : bool, default=True
        Whether features are standardised by public rows first, and whether the model has an intercept.
    target_bounds : (float, float), optional
        Range of the target, known without looking at the private data; used unless the start is warm and there are
        public labels. Default: (-1, 1).
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    clip_norm_, learning_rate_ : float
    n_features_in_ : int
    privacy_ : Receipt

    References
    ----------
    .. [1] Public Data-Assisted Mirror Descent for Private Model Training. 2021. arXiv:2112.00193

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from benchmarks.rivals.gradient_descent import PrivateGradientDescentRegressor
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (100, 3))
    >>> y, y_public = X @ [1.0, 0.5, -1.0], X_public @ [1.0, 0.5, -1.0]
    >>> model = PrivateGradientDescentRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        start: Annotated[str, checks.choice(*_STARTS)] = "warm",
        whiten: checks.Flag = False,
        n_steps: checks.Count = 100,
        batch_size: checks.Count | None = None,
        learning_rate: checks.Scale | None = None,
        clip_norm: checks.Scale | None = None,
        ridge: checks.Penalty | None = None,
        standardise: checks.Flag = True,
        fit_intercept: checks.Flag = True,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.start = start
        self.whiten = whiten
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateGradientDescentRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {ledger}
        """
        self.coef_, self.intercept_ = self._fit_regression(X, y, public, ledger, self.target_bounds)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`."""
        return self._scores(X)


class PrivateGradientDescentClassifier(LinearClassifier, _GradientDescent):
    """Logistic or softmax regression by private gradient descent; see `PrivateGradientDescentRegressor`.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon, delta, start, whiten, n_steps, batch_size, learning_rate, clip_norm, ridge, standardise, fit_intercept
        As in `PrivateGradientDescentRegressor`.
    {classes}
    adjacency, n_rows, random_state
        As in `PrivateGradientDescentRegressor`.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    clip_norm_, learning_rate_ : float
    n_features_in_ : int
    privacy_ : Receipt

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from benchmarks.rivals.gradient_descent import PrivateGradientDescentClassifier
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (100, 3))
    >>> y, y_public = X[:, 0] > 0.2, X_public[:, 0] > 0.2
    >>> model = PrivateGradientDescentClassifier(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        start: Annotated[str, checks.choice(*_STARTS)] = "warm",
        whiten: checks.Flag = False,
        n_steps: checks.Count = 100,
        batch_size: checks.Count | None = None,
        learning_rate: checks.Scale | None = None,
        clip_norm: checks.Scale | None = None,
        ridge: checks.Penalty | None = None,
        standardise: checks.Flag = True,
        fit_intercept: checks.Flag = True,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.start = start
        self.whiten = whiten
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateGradientDescentClassifier":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        {public}
        {ledger}
        """
        self.coef_, self.intercept_, self.classes_ = self._fit_classification(X, y, public, ledger, self.classes)
        return self
