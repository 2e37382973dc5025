"""`PDADPMDRegressor`: linear regression by public data-assisted mirror descent.

Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.descent import LogisticLoss, Loss, SoftmaxLoss, SquaredLoss
from dpadapt.learning.estimator import LinearClassifier, label_codes, label_set, numeric_labels
from dpadapt.papers.mirror.base import MirrorEstimator, largest_eigenvalue
from dpadapt.papers.mirror.maps import EuclideanMap, LogisticMap, MirrorMap, QuadraticMap
from dpadapt.papers.mirror.public_fit import (
    Coordinates,
    PublicFit,
    checked_ridge,
    coordinates,
    declared_fit,
    logistic_fit,
    mirror_terrain,
    plain_terrain,
    squared_fit,
    unlabelled_fit,
)

# `PDADPMDClassifier`: logistic regression by public data-assisted mirror descent.
#
# Algorithm 1 and Equation (1) of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.


Vector = NDArray[np.float64]


class PDADPMDClassifier(LinearClassifier, MirrorEstimator):
    """Logistic or softmax regression by private mirror descent, the public log-loss being the mirror map.

    Algorithm 1 of [1]_. Public rows give the start (their own model) and the mirror map. Each private step finds the
    solution where the map's gradient is that of the iterate less η (g + noise), g the mean of clipped private
    gradients; labels cancel there, so only public features matter. Without public labels the start is zero; without
    public data this is private gradient descent.

    Privacy
    -------
    Protects one private row (see `adjacency`).
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
        clipping norms per step; the receipt then shows what that truly costs, which is less than claimed.
    n_steps : int, default=50
        Number of private steps.
    learning_rate : float, optional
        Step length η, for a map normalised so that its inverse Hessian at the start has largest eigenvalue 1. Default:
        see Notes.
    clip_norm : float, optional
        Each row's gradient is scaled down to this length. Choose it without looking at the private data. Default: see
        Notes.
    ridge : float, optional
        Strength of the map's l2 term, in mean eigenvalues of its Hessian at the start; positive. Without it noise
        could ask for a step that does not exist. Default: half the columns over the public rows.
    radius : float, optional
        Keeps solutions within this distance of the start (the constraint set of the paper), in the coordinates of
        the standardised features. Default: no constraint.
    schedule_steps : int, optional
        K of the cosine of step="first-order"; from K on only the public gradient counts. Default: 2 `n_steps`.
    average : {"all", "tail", "last"}, default="all"
        Which iterates to average: all as in the paper, the last half, or only the last.
    standardise : bool, default=True
        Whether features are brought to the public rows' scale first.
    fit_intercept : bool, default=True
        Whether there is a constant.
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
        What was used; from public data if not given.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Clipping norm and learning rate default to those of least predicted loss, from public data alone; see
    `PDADPMDRegressor`. The cosine of Equation (1) is printed without an end: beyond K it is negative and would climb
    the private loss, so it is held at 0 there. An exact step factors a Hessian of n_classes times n_features columns
    about three times; many classes with many features are better served by step="first-order".

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
        step: str = "exact",
        noise: str = "exact",
        n_steps: int = 50,
        learning_rate: float | None = None,
        clip_norm: float | None = None,
        ridge: float | None = None,
        radius: float | None = None,
        schedule_steps: int | None = None,
        average: str = "all",
        standardise: bool = True,
        fit_intercept: bool = True,
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

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "PDADPMDClassifier":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        {public}
        {ledger}
        """
        self._check_parameters(labelled=public is not None and getattr(public, "y", None) is not None)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=False)
        X_public, y_public = self._check_public(public, frame)
        classes, source = label_set(self.classes, y_public, y)
        codes = label_codes(y, classes, "y")
        budget = self._budget(len(X))
        child = self._ledger(ledger)

        place = coordinates(X_public, X.shape[1], standardise=self.standardise, intercept=self.fit_intercept)
        Z_public = None if X_public is None else place.extend(X_public)
        codes_public = None if y_public is None else label_codes(y_public, classes, "public y")
        fit = classification_fit(place, Z_public, codes_public, len(classes))
        loss = class_loss(fit.solution)
        solution = fit.solution
        mirror: MirrorMap = EuclideanMap(self._ball(solution))
        if Z_public is not None and self.step == "exact":
            ridge = fit.ridge(_positive_ridge(self.ridge))
            mirror = LogisticMap(Z_public, ridge, solution, self._ball(solution))
            # Near the start the map is quadratic.
            near = QuadraticMap(fit.ridged(ridge))
            terrain = mirror_terrain(fit, near.inverse(fit.sample.T), mirror.unit)
        else:
            terrain = plain_terrain(fit, fit.largest or largest_eigenvalue(fit.hessian))
        # Clipping the surprising labels alone biases probabilities, so only the longest tenth of gradients is clipped.
        descent = self._descent(
            budget, terrain, mirror, _classification_gradient(loss, Z_public, codes_public), least=0.9
        )
        if budget.worthwhile:
            solution = self._run(child, place.rows(X, codes), loss, solution, descent, budget)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, [source], notes=self._notes(child, budget))
        self.clip_norm_, self.learning_rate_ = descent.clip_norm, descent.learning_rate
        self.coef_, self.intercept_ = class_coefficients(place, solution)
        self.classes_ = classes
        return self


def classification_fit(
    place: Coordinates, Z_public: Vector | None, codes: NDArray[np.int64] | None, n_classes: int
) -> PublicFit:
    """Return what public data, or its absence, says about a classification."""
    n_scores = 1 if n_classes == 2 else n_classes
    if Z_public is not None and codes is not None:
        return logistic_fit(Z_public, codes, n_scores)
    start = np.zeros(place.n_columns) if n_scores == 1 else np.zeros((place.n_columns, n_scores))
    # At equal probabilities: p (1 - p), |p - e_y|, and half of what there is to learn.
    curvature = 0.25 if n_scores == 1 else 1.0 / n_classes
    derivative = 0.5 if n_scores == 1 else math.sqrt(1 - 1 / n_classes)
    excess = math.log(n_classes) / 2
    if Z_public is None:
        return declared_fit(start, intercept=place.intercept, curvature=curvature, derivative=derivative, excess=excess)
    return unlabelled_fit(Z_public, start, curvature=curvature, derivative=derivative, excess=excess)


def _classification_gradient(
    loss: Loss, Z: Vector | None, codes: NDArray[np.int64] | None
) -> Callable[[Vector], Vector] | None:
    """Return the gradient of the public loss, if there are public labels."""
    if Z is None or codes is None:
        return None
    return lambda solution: Z.T @ loss.weights(Z @ solution, codes) / len(Z)


def class_loss(solution: Vector) -> Loss:
    """Return the log-loss for one score (two classes) or one score per class."""
    return LogisticLoss() if solution.ndim == 1 else SoftmaxLoss()


def class_coefficients(place: Coordinates, solution: Vector) -> tuple[Vector, Vector]:
    """Return `coef_` and `intercept_` as scikit-learn shapes them."""
    coef, intercept = place.coefficients(solution)
    return np.atleast_2d(coef.T).copy(), np.atleast_1d(np.asarray(intercept, dtype=np.float64))


def _positive_ridge(ridge: Any) -> float | None:
    if checked_ridge(ridge) == 0:
        raise ValueError("ridge must be positive for a classifier: without it a noisy mirror step may not exist.")
    return checked_ridge(ridge)


class PDADPMDRegressor(RegressorMixin, MirrorEstimator):  # type: ignore[misc]
    """Linear regression by private mirror descent, the public squared loss being the mirror map.

    Algorithm 1 of [1]_. Public rows give the start (their least-squares solution) and, once, the factor of their
    Hessian H; each private step is θ - η H⁻¹ (g + noise), with g the mean of clipped private gradients. Iterates are
    averaged. Without public labels the start is a constant and H still comes from public rows; without public data
    this is private gradient descent.

    Privacy
    -------
    Protects one private row (see `adjacency`).
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
        clipping norms per step; the receipt then shows what that truly costs, which is less than claimed.
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
        Whether features are brought to the public rows' scale first; the paper does not.
    fit_intercept : bool, default=True
        Whether there is a constant; the paper's experiment has none.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public labels are given. Default: (-1, 1).
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours; see Notes.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    clip_norm_, learning_rate_ : float
        What was used; from public data if not given.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    The paper tunes learning rate, clipping norm and number of steps on the private data. Here the first two default
    to those with the least predicted loss: leave-one-out residuals of some public rows give the lengths of gradients
    and the error of the start, the Hessian how fast steps remove it and how noise adds up
    (`dpadapt.papers.mirror.public_fit`).

    The paper's neighbours differ by one record added or removed, yet it divides by the true number of rows, which that
    relation protects. "zero-out" has the same sensitivity and the same noise and makes the division right;
    "add-remove" takes a public `n_rows` to divide by.

    The start is fitted with a ridge of its own, chosen by leave-one-out error: mirror descent does not see where the
    regulariser of its map is centred.

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
        step: str = "exact",
        noise: str = "exact",
        n_steps: int = 100,
        learning_rate: float | None = None,
        clip_norm: float | None = None,
        ridge: float | None = None,
        radius: float | None = None,
        schedule_steps: int | None = None,
        average: str = "all",
        standardise: bool = True,
        fit_intercept: bool = True,
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

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "PDADPMDRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        {public}
        {ledger}
        """
        self._check_parameters(labelled=public is not None and getattr(public, "y", None) is not None)
        bounds = checked_bounds(self.target_bounds)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        labels = None if y_public is None else numeric_labels(y_public)
        budget = self._budget(len(X))
        child = self._ledger(ledger)

        place = coordinates(X_public, X.shape[1], standardise=self.standardise, intercept=self.fit_intercept)
        Z_public = None if X_public is None else place.extend(X_public)
        fit = regression_fit(place, Z_public, labels, bounds)
        solution = fit.solution
        mirror: MirrorMap = EuclideanMap(self._ball(solution))
        if Z_public is not None and self.step == "exact":
            mirror = QuadraticMap(fit.ridged(fit.ridge(checked_ridge(self.ridge))), self._ball(solution))
            terrain = mirror_terrain(fit, mirror.inverse(fit.sample.T), mirror.unit)
        else:
            terrain = plain_terrain(fit, fit.largest or largest_eigenvalue(fit.hessian))
        # More than half may be clipped: residuals are taken to be symmetric, so clipping only shortens steps.
        descent = self._descent(budget, terrain, mirror, _regression_gradient(fit, Z_public, labels), least=0.25)
        if budget.worthwhile:
            rows = place.rows(X, np.asarray(y, dtype=np.float64))
            solution = self._run(child, rows, SquaredLoss(), solution, descent, budget)
        assumed = [] if labels is not None else ["the bounds of the target"]
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed, notes=self._notes(child, budget))
        self.clip_norm_, self.learning_rate_ = descent.clip_norm, descent.learning_rate
        coef, intercept = place.coefficients(solution)
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def regression_fit(
    place: Coordinates, Z_public: Vector | None, labels: Vector | None, bounds: tuple[float, float]
) -> PublicFit:
    """Return what public data, or its absence, says about a regression."""
    if Z_public is not None and labels is not None:
        return squared_fit(Z_public, labels)
    low, high = bounds
    # A quarter of the range for a typical residual.
    spread = (high - low) / 4
    start = place.constant((low + high) / 2)
    if Z_public is None:
        return declared_fit(start, intercept=place.intercept, curvature=1.0, derivative=spread, excess=spread**2 / 2)
    return unlabelled_fit(Z_public, start, curvature=1.0, derivative=spread, excess=spread**2 / 2)


def _regression_gradient(fit: PublicFit, Z: Vector | None, labels: Vector | None) -> Callable[[Vector], Vector] | None:
    """Return the gradient of the public loss, if there are public labels."""
    if Z is None or labels is None:
        return None
    cross = Z.T @ labels / len(labels)
    return lambda solution: fit.hessian @ solution - cross


def checked_bounds(bounds: Any) -> tuple[float, float]:
    """Return target bounds as a pair; (-1, 1) if none are given."""
    if bounds is None:
        return -1.0, 1.0
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"target_bounds must be a pair (low, high) of finite numbers with low < high, got {bounds!r}.")
    return low, high
