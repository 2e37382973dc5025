"""`PDADPMDClassifier`: logistic regression by public data-assisted mirror descent.

Algorithm 1 and Equation (1) of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.label_set import label_codes, label_set
from dpadapt.learning.linear_classifier import LinearClassifier
from dpadapt.learning.losses import LogisticLoss, Loss, SoftmaxLoss
from dpadapt.mirror.base import MirrorEstimator, largest_eigenvalue
from dpadapt.mirror.coordinates import Coordinates, coordinates
from dpadapt.mirror.defaults import mirror_terrain, plain_terrain
from dpadapt.mirror.logistic_map import LogisticMap
from dpadapt.mirror.maps import EuclideanMap, MirrorMap, QuadraticMap
from dpadapt.mirror.public_fit import PublicFit, declared_fit, logistic_fit, unlabelled_fit
from dpadapt.mirror.regression import checked_ridge

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
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
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
    classes : array-like, optional
        All labels there can be. Default: those of the public labels; without them, those that occur in `y`, which the
        receipt then lists as assumed public.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours; see the Notes of `PDADPMDRegressor`.
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows, used in place of the true one.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

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
    >>> from dpadapt.mirror import PDADPMDClassifier
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
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private labels.
        public : Public, optional
            Public data with the same columns, with or without labels.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
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
        descent = self._descent(budget, terrain, mirror, _public_gradient(loss, Z_public, codes_public), least=0.9)
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


def _public_gradient(
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
