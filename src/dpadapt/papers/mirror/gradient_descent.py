"""Private gradient descent, cold or warm, plain or whitened: the baselines of the mirror-descent paper.

Cold and warm DP-SGD of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193, Section 3.
Abadi et al., "Deep Learning with Differential Privacy", 2016, is where DP-SGD comes from.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.descent import Loss, SquaredLoss, constant, private_descent
from dpadapt.learning.estimator import (
    Budget,
    LinearClassifier,
    PrivateEstimator,
    label_codes,
    label_set,
    numeric_labels,
)
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Plan, Repeated, Sampled
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.papers.mirror.base import largest_eigenvalue
from dpadapt.papers.mirror.estimators import (
    checked_bounds,
    class_coefficients,
    class_loss,
    classification_fit,
    regression_fit,
)
from dpadapt.papers.mirror.maps import QuadraticMap
from dpadapt.papers.mirror.public_fit import (
    Coordinates,
    PublicFit,
    checked_ridge,
    choose,
    coordinates,
    plain_terrain,
    whitened_terrain,
)

Vector = NDArray[np.float64]
_STARTS = ("warm", "cold")


class _GradientDescent(PrivateEstimator):
    """What both baselines share."""

    start: str
    whiten: bool
    n_steps: int
    batch_size: int | None
    learning_rate: float | None
    clip_norm: float | None
    ridge: float | None
    standardise: bool
    fit_intercept: bool

    def _check_parameters(self, public: Public | None) -> bool:
        """Check what can be checked before data is read; return whether the start is warm."""
        warm = checks.one_of(self.start, _STARTS, "start") == "warm"
        checks.count(self.n_steps, "n_steps")
        if self.batch_size is not None:
            checks.count(self.batch_size, "batch_size")
        for name in ("learning_rate", "clip_norm"):
            if getattr(self, name) is not None:
                checks.positive(getattr(self, name), name)
        if self.whiten and public is None:
            raise ValueError("whiten=True needs public rows to whiten by. Give public=, or leave it out.")
        return warm

    def _plan(self, budget: Budget) -> tuple[Plan, float]:
        """Return the steps with the least noise that the budget allows, and that noise over the sum's sensitivity."""
        adjacency = Adjacency.of(self.adjacency)
        rate = 1.0 if self.batch_size is None else min(1.0, self.batch_size / budget.n_rows)
        noise = calibrate(self.epsilon, self.delta, steps=self.n_steps, rate=rate, adjacency=adjacency)
        if rate == 1.0:
            return Repeated(Gaussian(noise), self.n_steps), noise
        return Sampled(Gaussian(noise), rate, self.n_steps), noise / rate

    def _descend(
        self,
        ledger: Ledger,
        X: NDArray[Any],
        y: NDArray[Any],
        place: Coordinates,
        fit: PublicFit,
        loss: Loss,
        budget: Budget,
        *,
        least: float,
    ) -> tuple[Vector, float, float]:
        """Return the solution, clipping norm and learning rate."""
        basis = None
        if self.whiten:
            curved = QuadraticMap(fit.ridged(fit.ridge(checked_ridge(self.ridge))))
            terrain = whitened_terrain(fit, curved.inverse(fit.sample.T), curved.unit)
            lower = np.tril(curved.factor[0])
            # H = L L'; rows times L'^-1 have second moment 1.
            basis = solve_triangular(lower, np.eye(len(lower)), lower=True).T
        else:
            terrain = plain_terrain(fit, fit.largest or largest_eigenvalue(fit.hessian))
        plan, noise = self._plan(budget)
        clip_norm, length = choose(
            terrain,
            clip_norm=self.clip_norm,
            learning_rate=self.learning_rate,
            noise=budget.factor * noise / budget.n_rows,
            steps=self.n_steps,
            first=self.n_steps // 2,
            least=least,
        )
        if not budget.worthwhile:
            return fit.solution, clip_norm, length
        run = ledger.start(plan, label="gradient")
        start = fit.solution if basis is None else lower.T @ fit.solution
        rows = place.rows(X, y, basis=basis)
        steps = constant(length)
        solution = private_descent(run, rows, loss, start, clip_norm=clip_norm, n_rows=budget.n_rows, step=steps)
        return solution if basis is None else basis @ solution, clip_norm, length


class PrivateGradientDescentRegressor(RegressorMixin, _GradientDescent):  # type: ignore[misc]
    """Linear regression by private gradient descent: cold or warm, plain or whitened, full batch or Poisson batches.

    The baselines of [1]_: DP-SGD from zero ("cold"), from the public model ("warm"), and with rows whitened by public
    data before clipping. The last half of the iterates is averaged.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    start : {"warm", "cold"}, default="warm"
        Whether to start from the public model. "cold" uses public labels for nothing.
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
        Whether features are brought to the public rows' scale first, and whether there is a constant.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless the start is warm. Default: (-1, 1).
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
    >>> from dpadapt.papers.mirror import PrivateGradientDescentRegressor
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
        start: str = "warm",
        whiten: bool = False,
        n_steps: int = 100,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        clip_norm: float | None = None,
        ridge: float | None = None,
        standardise: bool = True,
        fit_intercept: bool = True,
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
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateGradientDescentRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {ledger}
        """
        warm = self._check_parameters(public)
        bounds = checked_bounds(self.target_bounds)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        place = coordinates(X_public, X.shape[1], standardise=self.standardise, intercept=self.fit_intercept)
        labels = numeric_labels(y_public) if warm and y_public is not None else None
        fit = regression_fit(place, None if X_public is None else place.extend(X_public), labels, bounds)
        target = np.asarray(y, dtype=np.float64)
        found = self._descend(child, X, target, place, fit, SquaredLoss(), budget, least=0.25)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = [] if labels is not None else ["the bounds of the target"]
        self.privacy_ = self._receipt(child, budget, assumed)
        solution, self.clip_norm_, self.learning_rate_ = found
        coef, intercept = place.coefficients(solution)
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`."""
        return self._scores(X)


class PrivateGradientDescentClassifier(LinearClassifier, _GradientDescent):
    """Logistic or softmax regression by private gradient descent; see `PrivateGradientDescentRegressor`.

    Privacy
    -------
    Protects one private row (see `adjacency`).
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
    >>> from dpadapt.papers.mirror import PrivateGradientDescentClassifier
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
        start: str = "warm",
        whiten: bool = False,
        n_steps: int = 100,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        clip_norm: float | None = None,
        ridge: float | None = None,
        standardise: bool = True,
        fit_intercept: bool = True,
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
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateGradientDescentClassifier":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        {public}
        {ledger}
        """
        warm = self._check_parameters(public)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=False)
        X_public, y_public = self._check_public(public, frame)
        classes, source = label_set(self.classes, y_public, y)
        codes = label_codes(y, classes, "y")
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        place = coordinates(X_public, X.shape[1], standardise=self.standardise, intercept=self.fit_intercept)
        known = label_codes(y_public, classes, "public y") if warm and y_public is not None else None
        fit = classification_fit(place, None if X_public is None else place.extend(X_public), known, len(classes))
        found = self._descend(child, X, codes, place, fit, class_loss(fit.solution), budget, least=0.9)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, [source])
        solution, self.clip_norm_, self.learning_rate_ = found
        self.coef_, self.intercept_ = class_coefficients(place, solution)
        self.classes_ = classes
        return self
