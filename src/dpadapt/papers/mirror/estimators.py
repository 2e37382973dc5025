"""`PDADPMDRegressor` and `PDADPMDClassifier`: linear models by public data-assisted mirror descent.

Algorithm 1 and Equation (1) of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import LinearClassifier
from dpadapt.papers.mirror.base import MirrorAverage, MirrorEstimator, MirrorNoise, MirrorStep, Problem
from dpadapt.papers.mirror.maps import Ball, LogisticMap, MirrorMap, QuadraticMap
from dpadapt.papers.mirror.public_fit import DescentModel, PublicFit, mirror_descent_model

Vector = NDArray[np.float64]


class PDADPMDRegressor(RegressorMixin, MirrorEstimator):  # type: ignore[misc]
    """Linear regression by private mirror descent, with the public squared loss as mirror map.

    Algorithm 1 of [1]_. Public rows give the start (their least-squares solution) and, once, the factor of their
    Hessian H; each private step is θ - η H⁻¹ (g + noise), with g the mean of clipped private gradients. Iterates are
    averaged. Without public labels the start is a constant and H still comes from public rows; without public data
    this is private gradient descent.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    step : {"exact", "first-order"}, default="exact"
        "exact" is line 4 of Algorithm 1. "first-order" is Equation (1): a gradient step on α g + (1 - α) times the
        public gradient, α falling as a cosine; it needs public labels.
    noise : {"exact", "paper"}, default="exact"
        "exact" adds the least Gaussian noise that the budget allows. "paper" adds what is printed, sqrt(8 T ln(1/δ))/ε
        clipping norms per step; the receipt then shows the true cost, which is less than claimed.
    n_steps : int, default=100
        Number of private steps.
    learning_rate : float, optional
        Step length η, for H normalised so that its inverse has largest eigenvalue 1. Default: see Notes.
    clip_norm : float, optional
        Each row's gradient is scaled down to this length. Choose it without looking at the private data. Default: see
        Notes.
    ridge : float, optional
        Added to the diagonal of H, in mean eigenvalues of H. Default: half the columns over the public rows. 0 is
        refused if H is singular.
    radius : float, optional
        Keeps solutions within this distance of the start (the constraint set of the paper), in the coordinates of
        the standardised features. Default: no constraint.
    schedule_steps : int, optional
        K of the cosine of step="first-order"; from K on only the public gradient counts. Default: 2 `n_steps`.
    average : {"all", "tail", "last"}, default="all"
        Which iterates to average: all as in the paper, the last half, or only the last.
    standardise : bool, default=True
        Whether features are standardised by public rows first; the paper does not.
    fit_intercept : bool, default=True
        Whether the model has an intercept; the paper's experiment has none.
    target_bounds : (float, float), optional
        Range of the target, known without looking at the private data; used unless public labels are given. Default:
        (-1, 1).
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours; see Notes.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    clip_norm_, learning_rate_ : float
        The values that were used; from public data if not given.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    The paper tunes learning rate, clipping norm and number of steps on the private data. Here the first two default
    to those with the least predicted loss. Leave-one-out residuals of some public rows give the lengths of gradients
    and the error of the start; the Hessian gives how fast steps remove that error and how noise adds up
    (`dpadapt.papers.mirror.public_fit`).

    The paper's neighbours differ by one record added or removed, yet it divides by the true number of rows, which that
    relation protects. "zero-out" has the same sensitivity and the same noise, and the number of rows is public there;
    "add-remove" divides by a public `n_rows`.

    The start is fitted with a ridge of its own, chosen by leave-one-out error: mirror descent does not depend on where
    the regulariser of its map is centred.

    References
    ----------
    .. [1] Public Data-Assisted Mirror Descent for Private Model Training. 2021. arXiv:2112.00193

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.mirror import PDADPMDRegressor
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (100, 3))
    >>> y, y_public = (part @ [1.0, 0.5, -1.0] + 0.3 * rng.standard_normal(len(part)) for part in (X, X_public))
    >>> model = PDADPMDRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public))
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
        step: MirrorStep = "exact",
        noise: MirrorNoise = "exact",
        n_steps: checks.Count = 100,
        learning_rate: checks.Scale | None = None,
        clip_norm: checks.Scale | None = None,
        ridge: checks.Penalty | None = None,
        radius: checks.Scale | None = None,
        schedule_steps: checks.Count | None = None,
        average: MirrorAverage = "all",
        standardise: checks.Flag = True,
        fit_intercept: checks.Flag = True,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.step = step
        self.noise = noise
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.radius = radius
        self.schedule_steps = schedule_steps
        self.average = average
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PDADPMDRegressor":
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

    def _mirror_map(self, fit: PublicFit, Z_public: Vector, ball: Ball | None) -> tuple[MirrorMap, DescentModel]:
        """Return the public squared loss as a mirror map and the model of mirror descent with it."""
        mirror = QuadraticMap(fit.ridged(fit.ridge(self.ridge)), ball, scratch=True)
        return mirror, mirror_descent_model(fit, mirror.inverse(fit.sample.T), mirror.unit)

    def _public_gradient(self, problem: Problem) -> Callable[[Vector], Vector] | None:
        """Return the gradient of the public squared loss, or None without public labels."""
        if problem.Z_public is None or problem.y_public is None:
            return None
        hessian, cross = problem.public_fit.hessian, problem.Z_public.T @ problem.y_public / len(problem.y_public)
        return lambda solution: hessian @ solution - cross


class PDADPMDClassifier(LinearClassifier, MirrorEstimator):
    """Logistic or softmax regression by private mirror descent, with the public log-loss as mirror map.

    Algorithm 1 of [1]_. Public rows give the start (the public model) and the mirror map. Each private step solves for
    the point where the map's gradient is that of the iterate less η (g + noise), with g the mean of clipped private
    gradients. Labels cancel in it, so the map needs public features only. Without public labels the start is zero;
    without public data this is private gradient descent.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    step : {"exact", "first-order"}, default="exact"
        "exact" is line 4 of Algorithm 1, by damped Newton steps on public rows. "first-order" is Equation (1): a
        gradient step on α g + (1 - α) times the public gradient, α = cos(π t / 2K) until K and 0 after it; it needs
        public labels.
    noise : {"exact", "paper"}, default="exact"
        "exact" adds the least Gaussian noise that the budget allows. "paper" adds what is printed, sqrt(8 T ln(1/δ))/ε
        clipping norms per step; the receipt then shows the true cost, which is less than claimed.
    n_steps : int, default=50
        Number of private steps.
    learning_rate : float, optional
        Step length η, for a map normalised so that its inverse Hessian at the start has largest eigenvalue 1. Default:
        see Notes.
    clip_norm : float, optional
        Each row's gradient is scaled down to this length. Choose it without looking at the private data. Default: see
        Notes.
    ridge : float, optional
        Strength of the map's l2 term, in mean eigenvalues of its Hessian at the start; positive. Without it a noisy
        step may have no solution. Default: half the columns over the public rows.
    radius : float, optional
        Keeps solutions within this distance of the start (the constraint set of the paper), in the coordinates of
        the standardised features. Default: no constraint.
    schedule_steps : int, optional
        K of the cosine of step="first-order"; from K on only the public gradient counts. Default: 2 `n_steps`.
    average : {"all", "tail", "last"}, default="all"
        Which iterates to average: all as in the paper, the last half, or only the last.
    standardise : bool, default=True
        Whether features are standardised by public rows first.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    {classes}
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours; see the Notes of `PDADPMDRegressor`.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    clip_norm_, learning_rate_ : float
        The values that were used; from public data if not given.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Clipping norm and learning rate default to those of least predicted loss, from public data alone; see
    `PDADPMDRegressor`. Equation (1) prints the cosine without an end: beyond K it is negative and would climb the
    private loss, so it is held at 0 there. An exact step factors a Hessian of n_classes times n_features columns about
    three times; with many classes and many features, use step="first-order".

    References
    ----------
    .. [1] Public Data-Assisted Mirror Descent for Private Model Training. 2021. arXiv:2112.00193

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.mirror import PDADPMDClassifier
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (100, 3))
    >>> y, y_public = X[:, 0] > 0.2, X_public[:, 0] > 0.2
    >>> model = PDADPMDClassifier(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        step: MirrorStep = "exact",
        noise: MirrorNoise = "exact",
        n_steps: checks.Count = 50,
        learning_rate: checks.Scale | None = None,
        clip_norm: checks.Scale | None = None,
        ridge: checks.Penalty | None = None,
        radius: checks.Scale | None = None,
        schedule_steps: checks.Count | None = None,
        average: MirrorAverage = "all",
        standardise: checks.Flag = True,
        fit_intercept: checks.Flag = True,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.step = step
        self.noise = noise
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.radius = radius
        self.schedule_steps = schedule_steps
        self.average = average
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PDADPMDClassifier":
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

    def _mirror_map(self, fit: PublicFit, Z_public: Vector, ball: Ball | None) -> tuple[MirrorMap, DescentModel]:
        """Return the public log-loss as a mirror map and the model of mirror descent with it."""
        if self.ridge == 0:
            raise ValueError("ridge must be positive for a classifier: without it a noisy mirror step may not exist.")
        ridge = fit.ridge(self.ridge)
        mirror = LogisticMap(Z_public, ridge, fit.solution, ball)
        # Near the start the map is quadratic.
        near = QuadraticMap(fit.ridged(ridge))
        return mirror, mirror_descent_model(fit, near.inverse(fit.sample.T), mirror.unit)

    def _public_gradient(self, problem: Problem) -> Callable[[Vector], Vector] | None:
        """Return the gradient of the public log-loss, or None without public labels."""
        Z, codes, loss = problem.Z_public, problem.y_public, problem.loss
        if Z is None or codes is None:
            return None
        return lambda solution: Z.T @ loss.weights(Z @ solution, codes) / len(Z)
