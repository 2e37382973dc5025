"""`CnvxAdap`: Algorithm 1 of private domain adaptation, noisy projected descent on problem (6).

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024.

A step costs d² operations. A gradient in the coefficients is a matrix times a vector once the weighted sums of products
of rows are known. These sums change with the sample weights only, so they are renewed only when the weights have moved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, bounds_assumption
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.papers.adaptation.bounded_losses import (
    LimitedRows,
    Moments,
    SquaredLossGradients,
    gradient_bounds,
    loss_bound,
    minimise_in_ball,
    own_losses,
    shorten,
    squared_loss_discrepancy,
)
from dpadapt.papers.adaptation.noise import AdaptationNoise, discrepancy_share
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationEstimator,
    AdaptationRegressor,
    NoisePlan,
    bounded_rows,
    target_scale,
    unit_geometry,
    unit_rows,
)
from dpadapt.papers.adaptation.problem import Array, Penalties, mixture_share, weight_gradient

_CNVX_AVERAGES = ("paper", "tail")
# Relative change of the weights after which the sums over rows are renewed. A larger change renews less often and
# follows the printed steps less closely. Measured in the test against a loop over the printed lines, whose bar is 1e-4
# of the coefficients: 2e-4 is at most 1.3e-6 away, 1e-3 1.3e-5, 4e-3 5.4e-5.
_WEIGHT_DRIFT = 1e-3
# Steps whose coefficients are kept in memory at once. Chosen by hand.
_STEPS_KEPT = 1000


class CnvxAdap(AdaptationRegressor, AdaptationEstimator):
    """Linear regression on a private target and a public source, by the paper's noisy projected descent.

    Algorithm 1 of [1]_ on its problem (6): squared loss, coefficients in a ball, a weight for each sample. It is a
    baseline for comparison; use `PrivateTransferRegressor`.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: gradient sums, Gaussian; under ``noise="paper"`` also the gradients in the private weights, Gaussian; the
    discrepancy, Laplace, if it has a share.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        The most that this fit may spend. Positive; inf for the paper's form without privacy.
    {delta}
    alpha : float, default=0.5
        The public source's share of the reference weights, from 0 (target alone) to 1 (source alone).
    radius : float, default=3.0
        Largest length of the coefficients, for rows of length at most 1 and targets in [-1, 1].
    kappa1, kappa2, kappa_inf : float, default=1.0, 0.0, 0.0
        Penalties on the weights: their distance from the reference, their length, the largest of them.
    n_steps : int, default=1000
        The paper's experiments take 15000.
    noise : {"exact", "paper"}, default="exact"
        "exact" adds the least noise that the budget allows and spends the budget on the coefficients; see Notes.
        "paper" adds the printed noise, and refuses an epsilon at which that noise does not satisfy its claim.
    discrepancy_share : float, optional
        The part of epsilon that the discrepancy gets. Default: one half under "paper", 0 under "exact".
    average : {"paper", "tail"}, default="paper"
        All iterates, as in the paper, or the last half.
    target_bounds : (float, float), optional
        Range of the target; values outside are moved to the nearer end. Default: where 99% of the public labels lie,
        else (-1, 1).
    adjacency : {"replace-one", "zero-out", "add-remove"}, default="replace-one"
        Which data sets count as neighbours.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    discrepancy_ : float or None
        The released discrepancy, on the scale of squared scaled targets, if it had a share.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    In the paper's algorithm the sample weights hardly move: a step changes 1 / weight, which is about m, by at most
    1 / sqrt(m T), so all T steps together by sqrt(T / m). Half of the Gaussian budget and the discrepancy's half of
    epsilon are spent on them. Under "exact" the private weights stay at their reference and cost nothing; the public
    ones move, at no cost, if the discrepancy has a share. "paper" and epsilon = inf move both.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. arXiv:2306.08838

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.adaptation import CnvxAdap
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (800, 2)), rng.uniform(-1, 1, (300, 2))
    >>> y, y_public = X @ [1.0, 0.5], X_public @ [1.0, 0.3]
    >>> model = CnvxAdap(epsilon=4.0, random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 4.0
    True
    >>> model.score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: Annotated[float, checks.or_infinite] = 1.0,
        delta: float = 1e-6,
        *,
        alpha: Annotated[float, mixture_share] = 0.5,
        radius: checks.Scale = 3.0,
        kappa1: checks.Penalty = 1.0,
        kappa2: checks.Penalty = 0.0,
        kappa_inf: checks.Penalty = 0.0,
        n_steps: checks.Count = 1000,
        noise: AdaptationNoise = "exact",
        discrepancy_share: checks.Share | None = None,
        average: Annotated[str, checks.choice(*_CNVX_AVERAGES)] = "paper",
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "replace-one",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.radius = radius
        self.kappa1 = kappa1
        self.kappa2 = kappa2
        self.kappa_inf = kappa_inf
        self.n_steps = n_steps
        self.noise = noise
        self.discrepancy_share = discrepancy_share
        self.average = average
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "CnvxAdap":
        """Fit on the private target `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        public : Public, optional
            The public source, with the same columns. Without labels only the scales come from it.
        {ledger}
        """
        data = self._read_regression(X, y, public, ledger)
        width = data.X.shape[1] + 1
        geometry, scale = unit_geometry(width - 1, data.X_public), target_scale(self.target_bounds, data.y_public)
        source = None
        if data.labelled_public is not None:
            X_public, labels = data.labelled_public
            source = bounded_rows(unit_rows(geometry, X_public), scale.apply(labels))
        # Everything above is public or has only been validated; what follows goes through the ledger.
        schedule = self._schedule(data.budget, source, width)
        claim, discrepancy = None, None
        if not data.budget.worthwhile:
            coef = _source_alone(source, width, schedule.radius)
        else:
            rows = bounded_rows(unit_rows(geometry, data.X), scale.apply(data.y))
            claim = self._require_valid_claim(self._share(source))
            coef, discrepancy = self._private_fit(data.ledger, rows, source, schedule)
        public_scale = data.y_public is not None and self.target_bounds is None
        assumed = [] if public_scale else [bounds_assumption(self.target_bounds)]
        self._finish(data, *geometry.coefficients(coef), scale, assumed, self._notes(claim))
        self.discrepancy_ = discrepancy
        return self

    def __sklearn_tags__(self) -> Any:
        """Mark for scikit-learn that the paper's short steps from 0 score badly on small data, at any budget."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _share(self, source: LimitedRows | None) -> float:
        """Return the discrepancy's part of epsilon; without a source there is no discrepancy."""
        share = discrepancy_share(self.discrepancy_share, self.noise)
        return share if source is not None else 0.0

    def _schedule(self, budget: Budget, source: LimitedRows | None, width: int) -> "Schedule":
        """Return noise, step lengths (line 4 of Algorithm 1) and renewals; everything here is public."""
        alpha = float(self.alpha) if source is not None else 0.0
        radius, T = float(self.radius), int(self.n_steps)
        penalties = Penalties(self.kappa1, self.kappa2, self.kappa_inf)
        share = self._share(source)
        single, replaced = gradient_bounds(MAX_NORM, MAX_TARGET, radius)
        bound = replaced if Adjacency.of(self.adjacency) is Adjacency.REPLACE_ONE else single
        # The printed noise is over 2 G; here `single` is G.
        noise = self._noise_plan(share, T, 2 * single, bound)
        rest, m, n = 1 - alpha, 0 if source is None else len(source.y), budget.n_rows
        B = loss_bound(MAX_NORM, MAX_TARGET, radius)
        B_bar = B + penalties.total
        # sigma 1 and sigma 2 of the algorithm, from the noise multipliers of the sums that are released.
        sigma_1 = rest / n * noise.gradient * bound
        sigma_2 = (rest / n) ** 2 * B * (noise.weights or 0.0)
        source_moves = source is not None and (bool(share) or noise.weights is not None) and alpha > 0
        target_moves = noise.weights is not None and rest > 0
        # These steps move 1 / weight by at most 1 / sqrt(m T) and 1 / sqrt(n T); it is at least m / alpha and
        # n / (1 - alpha).
        source_block = _steps_between(alpha / (m**1.5 * math.sqrt(T)) if source_moves else 0.0, T)
        target_block = _steps_between(rest / (n**1.5 * math.sqrt(T)) if target_moves else 0.0, T)
        block = min(source_block, target_block)
        return Schedule(
            n_source=m,
            n_rows=n,
            alpha=alpha,
            radius=radius,
            n_steps=T,
            penalties=penalties,
            loss_bound=B,
            noise=noise,
            source_moves=source_moves,
            target_moves=target_moves,
            block=block,
            # Weights that move too little to matter are never renewed.
            source_blocks=source_block // block if source_block < T else T,
            coef_step=radius / math.sqrt(T * (single**2 + width * sigma_1**2)),
            source_step=m**1.5 / (math.sqrt(T) * alpha**2 * (B + B_bar)) if source_moves else 0.0,
            target_step=n**1.5 / math.sqrt(T * (rest**4 * B_bar**2 + n**4 * sigma_2**2)) if target_moves else 0.0,
            first=T // 2 if self.average == "tail" else 0,
        )

    def _private_fit(
        self, ledger: Ledger, rows: LimitedRows, source: LimitedRows | None, schedule: "Schedule"
    ) -> tuple[Array, float | None]:
        """Charge everything, release the discrepancy if it has a share, and descend."""
        gaussian = {}
        if schedule.alpha < 1:
            gaussian["gradient"] = schedule.noise.gradient, schedule.n_steps
        if schedule.target_moves and schedule.noise.weights is not None:
            # The sum of the gradients of k steps, with the noise of k releases: the same cost as k releases.
            whole, rest = divmod(schedule.n_steps, schedule.block)
            if whole:
                gaussian["private weights"] = schedule.noise.weights / math.sqrt(schedule.block), whole
            if rest:
                gaussian["private weights, last"] = schedule.noise.weights / math.sqrt(rest), 1
        runs = self._start(ledger, schedule.noise, gaussian, has_source=source is not None)
        discrepancy = None
        if "discrepancy" in runs and source is not None:
            mean = source.moments().divided(len(source.y))
            bounded = squared_loss_discrepancy(rows.moments(), mean, schedule.radius, schedule.n_rows)
            noisy = float(runs["discrepancy"].release(bounded))
            discrepancy = float(np.clip(noisy / schedule.n_rows, 0.0, schedule.loss_bound))
        weight_runs = [runs[label] for label in ("private weights", "private weights, last") if label in runs]
        return _descend(runs.get("gradient"), weight_runs, rows, source, schedule, discrepancy or 0.0), discrepancy


@dataclass(frozen=True)
class Schedule:
    """Noise, step lengths and renewals of one fit; all public.

    Parameters
    ----------
    n_source : int
    n_rows : float
        A public number of private rows.
    alpha, radius, n_steps, penalties
        As in `CnvxAdap`.
    loss_bound : float
        B: the most that a loss can be.
    noise : NoisePlan
    source_moves, target_moves : bool
        Whether the public and the private weights move.
    block, source_blocks : int
        Number of steps between two renewals of the private sums, and number of such blocks between two renewals of the
        public sums.
    coef_step, source_step, target_step : float
        Step lengths in the coefficients and in the inverse weights.
    first : int
        Iterates from this one on are averaged.
    """

    n_source: int
    n_rows: float
    alpha: float
    radius: float
    n_steps: int
    penalties: Penalties
    loss_bound: float
    noise: NoisePlan
    source_moves: bool
    target_moves: bool
    block: int
    source_blocks: int
    coef_step: float
    source_step: float
    target_step: float
    first: int


def _steps_between(drift: float, n_steps: int) -> int:
    """Return how many steps of relative `drift` add up to `_WEIGHT_DRIFT`; at least 1, at most all."""
    return max(1, int(_WEIGHT_DRIFT / drift)) if drift * n_steps > _WEIGHT_DRIFT else n_steps


def _source_alone(source: LimitedRows | None, width: int, radius: float) -> Array:
    """Return the least-squares coefficients of the public source alone, in the ball."""
    if source is None:
        return np.zeros(width)
    moments = source.moments()
    return minimise_in_ball(moments.gram, moments.cross, radius)


def _descend(
    run: Run | None,
    weight_runs: Sequence[Run],
    rows: LimitedRows,
    source: LimitedRows | None,
    schedule: Schedule,
    discrepancy: float,
) -> Array:
    """Return the average iterate.

    Parameters
    ----------
    run : Run or None
        Releases the gradients; None if the target has no weight.
    weight_runs : sequence of Run
        Release the losses that move the private weights: whole blocks, then the remaining steps.
    rows, source : LimitedRows
        Private target and public source.
    schedule : Schedule
    discrepancy : float
        Released before; added to the source's losses.
    """
    weights = _Weights(rows, source, schedule, discrepancy)
    pending = [weight_run for weight_run in weight_runs for _ in range(weight_run.left)]
    source_gram, source_cross = weights.source_sums()
    unit = weights.p_target if run is not None else 1.0
    # As an array: NumPy multiplies by it in half the time that it takes for a Python float.
    step_length = np.array(schedule.coef_step * unit)
    coef, total = np.zeros(len(source_cross)), np.zeros(len(source_cross))
    for start in range(0, schedule.n_steps, schedule.block):
        end = min(start + schedule.block, schedule.n_steps)
        # The source's part of the gradient, in units of the target's weights, is public: adding it costs nothing.
        moments = weights.target_moments().plus(source_gram / unit, source_cross / unit)
        with SquaredLossGradients(moments, schedule.radius) as at:
            for step in range(start, end, _STEPS_KEPT):
                points = np.empty((min(_STEPS_KEPT, end - step) + 1, len(coef)))
                points[0] = coef
                path = list(points)
                if run is not None:
                    # The points are read one by one: each is computed from the release at the point before.
                    gradients = run.release_each(map(at, path[:-1]), len(path) - 1)
                else:
                    # The target has no weight: the gradients are those of the public source alone.
                    gradients = (2 * (source_gram @ shorten(now, schedule.radius) - source_cross) for now in path[:-1])
                for gradient, now, after in zip(gradients, path, path[1:], strict=False):
                    gradient *= step_length
                    np.subtract(now, gradient, after)
                # All others were shortened before the gradient at them was computed.
                coef = shorten(path[-1], schedule.radius)
                total += points[1 + max(0, schedule.first - step) :].sum(axis=0)
                weights.note(points[:-1])
        if weights.move(pending.pop(0) if pending else None, last=end == schedule.n_steps):
            source_gram, source_cross = weights.source_sums()
    return total / (schedule.n_steps - schedule.first)


class _Weights:
    """The inverse weights u of both samples, and the weighted sums over rows."""

    def __init__(self, rows: LimitedRows, source: LimitedRows | None, schedule: Schedule, discrepancy: float) -> None:
        self._rows, self._source, self._schedule, self._discrepancy = rows, source, schedule, discrepancy
        self.p_source = schedule.alpha / schedule.n_source if source is not None else 0.0
        self.p_target = (1 - schedule.alpha) / schedule.n_rows
        self.move_at_all = schedule.target_moves or schedule.source_moves
        self._inverse_source = np.full(schedule.n_source if self.p_source else 0, 1 / max(self.p_source, 1e-300))
        # Private weights that do not move still count in the length of all weights, by their public number.
        size = len(rows.y) if schedule.target_moves else round(schedule.n_rows)
        self._inverse_target = np.full(size if self.p_target else 0, 1 / max(self.p_target, 1e-300))
        self._source_moved = False
        # In this block: number of steps, and sums over the coefficients visited.
        self._block: tuple[int, Any, Any] = 0, 0.0, 0.0
        # Since the public weights last moved: number of blocks and steps, and sums over the coefficients visited.
        self._blocks = self._steps = 0
        self._second: Any = 0.0
        self._first: Any = 0.0

    def source_sums(self) -> tuple[Array, Array]:
        """Return the weighted sums of x x' and x y over the source."""
        width = self._rows.X.shape[1]
        if self._source is None or not self.p_source:
            return np.zeros((width, width)), np.zeros(width)
        # Weights at their reference have factors of 1; these sums are computed once for all that need them.
        sums = self._source.moments(1 / (self.p_source * self._inverse_source) if self._source_moved else None)
        return self.p_source * sums.gram, self.p_source * sums.cross

    def target_moments(self) -> Moments:
        """Return the weighted sums over private rows."""
        moving = self._schedule.target_moves
        return self._rows.moments(1 / (self.p_target * self._inverse_target) if moving else None)

    def note(self, visited: Array) -> None:
        """Keep what the next move depends on: sums over the coefficients at which the steps of a block were taken."""
        if self.move_at_all:
            steps, second, first = self._block
            self._block = steps + len(visited), second + visited.T @ visited, first + visited.sum(axis=0)

    def move(self, run: Run | None, *, last: bool) -> bool:
        """Take lines 8 to 11 for all steps of a block at once; return whether the source's weights moved.

        After the `last` steps no coefficient depends on the source's weights, so they are left.
        """
        if not self.move_at_all:
            return False
        schedule, (steps, second, first) = self._schedule, self._block
        self._block = 0, 0.0, 0.0
        if run is not None:
            # The paper adds noise to losses over u² with u >= 1 / p. Dividing after the release is post-processing.
            factors = (self.p_target * self._inverse_target) ** -2.0
            losses = _mean_losses(self._rows, second / steps, first / steps)
            noisy = run.release(own_losses(losses, schedule.loss_bound, factors)) / factors
            slope = self._slope(np.zeros(len(self._inverse_source)), noisy)[len(self._inverse_source) :]
            moved = self._inverse_target - steps * schedule.target_step * slope
            self._inverse_target = np.maximum(moved, 1 / self.p_target)
        if self._source is None or not schedule.source_moves or last:
            return False
        self._blocks, self._steps = self._blocks + 1, self._steps + steps
        self._second, self._first = self._second + second, self._first + first
        if self._blocks < schedule.source_blocks:
            return False
        losses = _mean_losses(self._source, self._second / self._steps, self._first / self._steps) + self._discrepancy
        slope = self._slope(losses, np.zeros(len(self._inverse_target)))[: len(losses)]
        moved = self._inverse_source - self._steps * schedule.source_step * slope
        self._inverse_source, self._source_moved = np.maximum(moved, 1 / self.p_source), True
        self._blocks, self._steps, self._second, self._first = 0, 0, 0.0, 0.0
        return True

    def _slope(self, losses_source: Array, losses_target: Array) -> Array:
        """Return the derivative of problem (6) in all inverse weights."""
        inverse = np.concatenate([self._inverse_source, self._inverse_target])
        reference = np.repeat([self.p_source, self.p_target], [len(losses_source), len(losses_target)])
        losses = np.concatenate([losses_source, losses_target])
        return weight_gradient(losses, inverse, reference, self._schedule.penalties, 0.0)


def _mean_losses(rows: LimitedRows, second: Array, first: Array) -> Array:
    """Return each row's mean squared loss over coefficients whose mean is `first` and mean square `second`."""
    squares = np.einsum("ij,ij->i", rows.X @ second, rows.X)
    return np.asarray(squares - 2 * rows.y * (rows.X @ first) + rows.y**2)
