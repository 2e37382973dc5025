"""`NoisySGD`: noisy projected gradient descent on the private target alone (Bassily, Feldman, Talwar, Thakurta, 2019).

The private baseline of Figure 2 of Bassily, Cortes, Mao and Mohri (ICML 2024). It does not learn from public labels.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, bounds_assumption
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
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationRegressor,
    Array,
    bounded_rows,
    target_scale,
    unit_geometry,
)


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
