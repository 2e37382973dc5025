"""Reweighing a labelled source to a private target whose labels are not used.

`PrivateBestDA` chooses weights and model together, as section 7 of Bassily, Cortes, Mao and Mohri (ICML 2024) proposes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, bounds_assumption
from dpadapt.learning.linear import joint_length
from dpadapt.learning.scaling import Geometry, declared_geometry, public_geometry
from dpadapt.mechanisms.bounded import clipped_gram
from dpadapt.mechanisms.mechanism import Gaussian
from dpadapt.papers.adaptation.bounded_losses import minimise_in_ball
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    AdaptationRegressor,
    Array,
    bounded_rows,
    target_scale,
    unit_geometry,
)
from dpadapt.papers.adaptation.private_statistics import private_moment
from dpadapt.papers.adaptation.problem import Penalties


def second_moment(source: Array, weights: Array) -> Array:
    """Return Σ q x x' over weighted rows."""
    return np.asarray((source * weights[:, None]).T @ source)


def smoothed_norm(values: Array, sharpness: float) -> tuple[float, Array]:
    """Return the smoothed largest absolute value, log Σ exp(± sharpness v) / sharpness, and its gradient."""
    both = sharpness * np.concatenate([values, -values])
    top = float(both.max())
    mass = np.exp(both - top)
    total = float(mass.sum())
    return (top + math.log(total)) / sharpness, (mass[: len(values)] - mass[len(values) :]) / total


@dataclass(frozen=True, eq=False)
class BestDASolution:
    """Coefficients and source weights of `solve_best_da`, the objective there, and its discrepancy."""

    coef: Array
    weights: Array
    objective: float
    discrepancy: float
    rounds: int


def best_da_objective(
    coef: Array, weights: Array, source: Array, labels: Array, moment: Array, penalties: Penalties, reach: float
) -> float:
    """Return Σ q (w'x - y)² + reach² |Σ q x x' - M|_2 + one |q - p|_1 + two |q|_2 + infinity |q|_inf; p is 1 / m."""
    losses = (source @ coef - labels) ** 2
    apart = float(np.linalg.norm(second_moment(source, weights) - moment, 2))
    spread = penalties.two * float(np.linalg.norm(weights)) + penalties.infinity * float(np.abs(weights).max())
    distance = float(np.abs(weights - 1 / len(labels)).sum())
    return float(losses @ weights) + reach**2 * apart + penalties.one * distance + spread


def solve_best_da(
    source: Array,
    labels: Array,
    moment: Array,
    *,
    radius: float,
    penalties: Penalties,
    local_radius: float | None = None,
    tolerance: float = 1e-3,
    most_rounds: int = 20,
) -> BestDASolution:
    """Minimise `best_da_objective` over coefficients in a ball and weights in [0, 1]. Not private.

    The unlabelled discrepancy of two samples is sup |E (w'x - v'x)² - E' (w'x - v'x)²| over pairs of hypotheses w, v.
    The difference w - v runs over the ball of radius `reach` = 2 `radius`, so the supremum is reach² times the spectral
    norm of the difference of second moments. With `local_radius`, only pairs within that distance count: the local
    discrepancy.

    Weights for given coefficients are a convex problem, coefficients for given weights another. They alternate, from
    equal weights, until a round lowers the objective by less than `tolerance` of it.

    Parameters
    ----------
    source, labels : ndarray
        Labelled source rows.
    moment : ndarray of shape (n_features, n_features)
        Second moment of the target's rows.
    radius : float
    penalties : Penalties
    local_radius : float, optional
    tolerance : float, default=1e-3
        Also: how closely the norms are smoothed, relative to the norm of `moment`.
    most_rounds : int, default=20
    """
    reach = 2 * radius if local_radius is None else min(2 * radius, local_radius)
    given = source, labels, moment, penalties, reach
    weights = np.full(len(labels), 1 / len(labels))
    coef = _weighted_coef(source, labels, weights, radius)
    value, rounds = best_da_objective(coef, weights, *given), 0
    for _ in range(most_rounds):
        chosen = _best_da_weights((source @ coef - labels) ** 2, weights, *given, tolerance)
        moved = _weighted_coef(source, labels, chosen, radius)
        reached = best_da_objective(moved, chosen, *given)
        # Smoothing may let a round end a little higher; then the one before is kept.
        if not reached < value - tolerance * abs(value):
            if reached < value:
                coef, weights, value = moved, chosen, reached
            break
        coef, weights, value, rounds = moved, chosen, reached, rounds + 1
    apart = reach**2 * float(np.linalg.norm(second_moment(source, weights) - moment, 2))
    return BestDASolution(coef, weights, value, apart, rounds)


def _weighted_coef(source: Array, labels: Array, weights: Array, radius: float) -> Array:
    scaled = source * weights[:, None]
    return minimise_in_ball(scaled.T @ source, scaled.T @ labels, radius)


def _best_da_weights(
    losses: Array,
    start: Array,
    source: Array,
    labels: Array,
    moment: Array,
    penalties: Penalties,
    reach: float,
    tolerance: float,
) -> Array:
    """Return the best weights for given losses: a smoothed convex problem with bounds, by L-BFGS-B."""
    from scipy.optimize import minimize

    m, d = source.shape
    accuracy = tolerance * max(float(np.linalg.norm(moment, 2)), 1e-300)
    sharpness = math.log(2 * d) / accuracy
    # In units of the reference weight 1 / m: |q - p| and |q|_inf are smoothed to within `tolerance` of that.
    soft, top_sharpness = tolerance, math.log(m + 1) / tolerance

    def smooth(b: Array) -> tuple[float, Array]:
        values, vectors = np.linalg.eigh(second_moment(source, b / m) - moment)
        apart, signed = smoothed_norm(values, sharpness)
        gradient = losses + reach**2 * ((source @ vectors) ** 2 @ signed)
        distance = np.sqrt((b - 1) ** 2 + soft**2)
        length = max(float(np.linalg.norm(b)), 1e-300)
        mass = np.exp(top_sharpness * (b - b.max()))
        top = float(b.max()) + math.log(float(mass.sum())) / top_sharpness
        total = (
            float(losses @ b) / m
            + reach**2 * apart
            + (penalties.one * float(distance.sum()) + penalties.two * length + penalties.infinity * top) / m
        )
        gradient = gradient + penalties.one * (b - 1) / distance
        gradient += penalties.two * b / length + penalties.infinity * mass / mass.sum()
        return total, gradient / m

    solved = minimize(
        smooth,
        m * start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, float(m))] * m,
        options={"maxiter": 200, "maxfun": 400, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-9},
    )
    return np.asarray(np.clip(solved.x / m, 0.0, 1.0), dtype=np.float64)


class PrivateBestDA(AdaptationRegressor):
    """Linear regression on public source rows, whose weights are chosen with the model, for an unlabelled target.

    The unsupervised case of section 7 of [1]_, a private counterpart of BEST-DA [2]_. The weighted loss of the source
    rows, the unlabelled discrepancy between the weighted source and the target, and penalties on the weights are
    minimised together. The target enters by its second moment alone, which is released once; the rest is
    post-processing.

    Reweighing helps where source and target differ in their features but not in how labels depend on features. If that
    dependence differs, features alone cannot show it, and this method does not protect against it.

    **Privacy.** Protects the features of one private row (see `adjacency`); labels of private rows are not read.
    Releases: the clipped second moment of the private features, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    radius : float, default=3.0
        Largest length of the coefficients, for rows of length at most 1 and targets in [-1, 1].
    lambda1, lambda2, lambda_inf : float, default=0.1, 0.0, 0.0
        Penalties on the weights: their distance from equal weights, their length, the largest of them. Choose them
        without the private rows.
    local_radius : float, optional
        Count pairs of hypotheses within this distance only: the local discrepancy. Default: all pairs in the ball.
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
    [1]_ says that its results, integrated with Theorem 6 and Corollary 7 of [2]_, give such an algorithm, and leaves
    the rest to future work: it prints neither the objective nor steps. What is ours: the objective
    (`best_da_objective`), which is problem (3) with the loss on source rows alone, since target rows have no labels,
    and with the unlabelled discrepancy of the *weighted* source in place of the labelled one; one release of the second
    moment instead of noisy steps; alternation instead of the reparameterisation 1 / q, in which the discrepancy of
    weighted rows is not convex. The difference in how labels depend on features, which the bounds of [2]_ add to the
    discrepancy, can't be computed without labels and is left out.

    Without labelled public data there are no rows to weight; then `y` is needed, and the model is the ridge regression
    that one private second moment of rows and targets gives.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. arXiv:2306.08838
    .. [2] P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. Annals of Mathematics and Artificial Intelligence
       92, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (300, 1)), rng.uniform(1, 2, (1000, 1))
    >>> model = PrivateBestDA(random_state=0).fit(X, public=Public(X_public, X_public[:, 0] ** 2))
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
        radius: checks.Scale = 3.0,
        lambda1: checks.Penalty = 0.1,
        lambda2: checks.Penalty = 0.0,
        lambda_inf: checks.Penalty = 0.0,
        local_radius: checks.Scale | None = None,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.local_radius = local_radius
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateBestDA":
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
        radius, penalties = float(self.radius), Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        local = None if self.local_radius is None else float(self.local_radius)
        scale = target_scale(self.target_bounds, None)
        data = self._read_regression(X, y, public, ledger, needs_y=getattr(public, "y", None) is None)
        if data.labelled_public is None:
            n_features = data.X.shape[1]
            geometry = declared_geometry(n_features) if data.X_public is None else public_geometry(data.X_public)
            coef, intercept = fit_target_alone(data.ledger, data.budget, geometry, data.X, scale.apply(data.y))
            self._finish(data, coef, intercept, scale, [bounds_assumption(self.target_bounds)])
            return self
        X_public, labels = data.labelled_public
        geometry, scale = unit_geometry(data.X.shape[1], X_public), target_scale(None, labels)
        rows = bounded_rows(geometry.transform(X_public), scale.apply(labels))
        solution = _weighted_coef(rows.X, rows.y, np.full(len(labels), 1 / len(labels)), radius)
        if data.budget.worthwhile:
            moment = feature_moment(data.ledger, data.budget, geometry.transform(data.X))
            solution = solve_best_da(
                rows.X, rows.y, moment, radius=radius, penalties=penalties, local_radius=local
            ).coef
        self._finish(data, *geometry.coefficients(solution), scale, [])
        return self


def feature_moment(ledger: Ledger, budget: Budget, Z: Array) -> Array:
    """Release the average outer product of private rows."""
    # Claim: |Σ zz' - that of a neighbour|_F <= MAX_NORM² = 1, replaced: sqrt 2, by `clipped_gram`.
    gram = clipped_gram(Z, MAX_NORM)
    released = ledger.release(Gaussian(1.0 / budget.mu), gram, label="second moment of the features")
    values, vectors = np.linalg.eigh((released + released.T) / (2 * budget.n_rows))
    # A second moment has no negative eigenvalue; setting those to 0 brings the release closer to the true moment.
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def fit_target_alone(ledger: Ledger, budget: Budget, geometry: Geometry, X: Any, e: Array) -> tuple[Array, float]:
    """Return coefficients and intercept from one private second moment of rows and targets."""
    solution = np.zeros(X.shape[1] + 1)
    if budget.worthwhile:
        solution = private_moment(ledger, budget, geometry.transform(X), e, joint_length(geometry)).solution()
    coef, intercept = geometry.coefficients(solution)
    return coef, float(intercept)
