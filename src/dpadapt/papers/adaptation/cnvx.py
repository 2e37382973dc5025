"""`CnvxAdap`: Algorithm 1 of private domain adaptation, noisy projected descent on problem (6).

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.estimator import Budget, numeric_labels
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_losses import (
    LimitedRows,
    Moments,
    gradient_bounds,
    loss_bound,
    own_losses,
    squared_loss_discrepancy,
    squared_loss_gradient,
)
from dpadapt.mechanisms.mechanism import Mechanism, NonPrivate, Plan, Repeated
from dpadapt.mechanisms.noise import Gaussian, Laplace
from dpadapt.mechanisms.trust_region import minimise_in_ball
from dpadapt.papers.adaptation import noise as calibration
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationEstimator,
    bounded_rows,
    refuse_add_remove,
    target_scale,
    unit_geometry,
)
from dpadapt.papers.adaptation.problem import Array, Penalties, mixture_share, weight_gradient

# The descent of Algorithm 1 of private domain adaptation in d² operations a step.
#
# R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
# 2024. A gradient in the coefficients is a matrix times a vector once the weighted sums of products of rows are
# known. They change with the weights only, which move by at most `_DRIFT` between two renewals.


# How far weights may move, relative to themselves, before sums are renewed.
_DRIFT = 2e-4


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
    gradient_noise : float
        Noise multiplier of a gradient sum.
    weight_noise : float or None
        Noise multiplier of the losses that move the private weights; None: those weights stay.
    discrepancy_epsilon : float
    source_moves : bool
        Whether the public weights move.
    block, source_blocks : int
        Steps between two renewals of the private sums, and how many such blocks between two of the public ones.
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
    gradient_noise: float
    weight_noise: float | None
    discrepancy_epsilon: float
    source_moves: bool
    block: int
    source_blocks: int
    coef_step: float
    source_step: float
    target_step: float
    first: int


def schedule(
    *,
    width: int,
    n_source: int,
    n_rows: float,
    alpha: float,
    radius: float,
    n_steps: int,
    penalties: Penalties,
    lipschitz: float,
    loss_bound: float,
    gradient_noise: float,
    gradient_reach: float,
    weight_noise: float | None,
    discrepancy_epsilon: float,
    source_moves: bool,
    tail: bool,
) -> Schedule:
    """Return the step lengths of line 4 of Algorithm 1, and how often sums are renewed."""
    rest, m, n, T = 1 - alpha, n_source, n_rows, n_steps
    most = loss_bound + penalties.total
    # sigma 1 and sigma 2 of the algorithm, from the noise multipliers of the sums that are released.
    gradient_sigma = rest / n * gradient_noise * gradient_reach
    weight_sigma = (rest / n) ** 2 * loss_bound * (weight_noise or 0.0)
    source_moves = source_moves and alpha > 0
    target_moves = weight_noise is not None and rest > 0
    # Such steps move 1 / weight by at most 1 / sqrt(m T) and 1 / sqrt(n T), of at least m / alpha and n / (1 - alpha).
    source_block = _steps_between(alpha / (m**1.5 * math.sqrt(T)) if source_moves else 0.0, T)
    target_block = _steps_between(rest / (n**1.5 * math.sqrt(T)) if target_moves else 0.0, T)
    block = min(source_block, target_block)
    return Schedule(
        n_source=n_source,
        n_rows=n_rows,
        alpha=alpha,
        radius=radius,
        n_steps=n_steps,
        penalties=penalties,
        loss_bound=loss_bound,
        gradient_noise=gradient_noise,
        weight_noise=weight_noise if target_moves else None,
        discrepancy_epsilon=discrepancy_epsilon,
        source_moves=source_moves,
        block=block,
        source_blocks=source_block // block,
        coef_step=radius / math.sqrt(T * (lipschitz**2 + width * gradient_sigma**2)),
        source_step=m**1.5 / (math.sqrt(T) * alpha**2 * (loss_bound + most)) if source_moves else 0.0,
        target_step=n**1.5 / math.sqrt(T * (rest**4 * most**2 + n**4 * weight_sigma**2)) if target_moves else 0.0,
        first=T // 2 if tail else 0,
    )


def _steps_between(drift: float, n_steps: int) -> int:
    """Return how many steps of relative `drift` come to `_DRIFT`; at least 1, at most all."""
    return max(1, int(_DRIFT / drift)) if drift * n_steps > _DRIFT else n_steps


def descend(
    run: Run | None,
    weight_runs: Sequence[Run],
    rows: LimitedRows,
    source: LimitedRows | None,
    work: Schedule,
    discrepancy: float,
) -> Array:
    """Return the average iterate.

    Parameters
    ----------
    run : Run or None
        Pays for the gradients; None if the target has no weight.
    weight_runs : sequence of Run
        Pay for the losses that move the private weights: whole blocks, then what is left.
    rows, source : LimitedRows
        Private target and public source.
    work : Schedule
    discrepancy : float
        Released before; added to the source's losses.
    """
    width = rows.X.shape[1]
    weights = _Weights(rows, source, work, discrepancy)
    coef, total = np.zeros(width), np.zeros(width)
    pending = [pays for pays in weight_runs for _ in range(pays.left)]
    pull, offset = weights.source_sums()
    unit = weights.p_target if run is not None else 1.0
    length_of_step, limit, first = work.coef_step * unit, work.radius**2, work.first
    for start in range(0, work.n_steps, work.block):
        steps = min(work.block, work.n_steps - start)
        # The source's part of the gradient, in units of the target's weights, is public: it joins the sum for free.
        moments = weights.target_moments().plus(pull / unit, offset / unit)
        visited = np.empty((steps if weights.moves else 0, width))
        for step in range(steps):
            if weights.moves:
                visited[step] = coef
            if run is not None:
                gradient = run.release(squared_loss_gradient(moments, coef, work.radius))
            else:
                gradient = 2 * (pull @ coef - offset)
            gradient *= length_of_step
            coef = coef - gradient
            square = coef.dot(coef)
            if square > limit:
                coef *= math.sqrt(limit / square)
            if start + step >= first:
                total += coef
        if weights.moves and weights.move(visited, pending.pop(0) if pending else None):
            pull, offset = weights.source_sums()
    return total / (work.n_steps - work.first)


class _Weights:
    """The inverse weights u of both samples, and the sums over rows that follow from them."""

    def __init__(self, rows: LimitedRows, source: LimitedRows | None, work: Schedule, discrepancy: float) -> None:
        self._rows, self._source, self._work, self._discrepancy = rows, source, work, discrepancy
        self.p_source = work.alpha / work.n_source if source is not None else 0.0
        self.p_target = (1 - work.alpha) / work.n_rows
        self._inverse_source = np.full(work.n_source if self.p_source else 0, 1 / max(self.p_source, 1e-300))
        # Private weights that stay still count in the length of all weights, by their public number.
        self._moving = work.weight_noise is not None
        self.moves = self._moving or work.source_moves
        size = len(rows.y) if self._moving else round(work.n_rows)
        self._inverse_target = np.full(size if self.p_target else 0, 1 / max(self.p_target, 1e-300))
        self._blocks = self._steps = 0
        self._second: Any = 0.0
        self._first: Any = 0.0

    def source_sums(self) -> tuple[Array, Array]:
        """Return the weighted sums of x x' and x y over the source."""
        width = self._rows.X.shape[1]
        if self._source is None or not self.p_source:
            return np.zeros((width, width)), np.zeros(width)
        sums = self._source.moments(1 / (self.p_source * self._inverse_source))
        return self.p_source * sums.gram, self.p_source * sums.cross

    def target_moments(self) -> Moments:
        """Return the weighted sums over private rows."""
        return self._rows.moments(1 / (self.p_target * self._inverse_target) if self._moving else None)

    def move(self, visited: Array, run: Run | None) -> bool:
        """Take lines 8 to 11 for all steps at `visited` at once; tell whether the source's weights moved."""
        work, steps = self._work, len(visited)
        if run is not None:
            # The paper adds noise to losses over u² with u >= 1 / p. Once they are released, dividing is free.
            factors = (self.p_target * self._inverse_target) ** -2.0
            losses = _mean_losses(self._rows, visited.T @ visited / steps, visited.mean(axis=0))
            noisy = run.release(own_losses(losses, work.loss_bound, factors)) / factors
            slope = self._slope(np.zeros(len(self._inverse_source)), noisy)[len(self._inverse_source) :]
            moved = self._inverse_target - steps * work.target_step * slope
            self._inverse_target = np.maximum(moved, 1 / self.p_target)
        if self._source is None or not work.source_moves:
            return False
        self._blocks, self._steps = self._blocks + 1, self._steps + steps
        self._second, self._first = self._second + visited.T @ visited, self._first + visited.sum(axis=0)
        if self._blocks < work.source_blocks:
            return False
        losses = _mean_losses(self._source, self._second / self._steps, self._first / self._steps) + self._discrepancy
        slope = self._slope(losses, np.zeros(len(self._inverse_target)))[: len(losses)]
        moved = self._inverse_source - self._steps * work.source_step * slope
        self._inverse_source = np.maximum(moved, 1 / self.p_source)
        self._blocks, self._steps, self._second, self._first = 0, 0, 0.0, 0.0
        return True

    def _slope(self, losses_source: Array, losses_target: Array) -> Array:
        """Return the derivative of problem (6) in all inverse weights."""
        inverse = np.concatenate([self._inverse_source, self._inverse_target])
        reference = np.repeat([self.p_source, self.p_target], [len(losses_source), len(losses_target)])
        losses = np.concatenate([losses_source, losses_target])
        return weight_gradient(losses, inverse, reference, self._work.penalties, 0.0)


def _mean_losses(rows: LimitedRows, second: Array, first: Array) -> Array:
    """Return each row's mean squared loss over coefficients whose mean is `first` and mean square `second`."""
    squares = np.einsum("ij,ij->i", rows.X @ second, rows.X)
    return np.asarray(squares - 2 * rows.y * (rows.X @ first) + rows.y**2)


_AVERAGES = ("paper", "tail")


class CnvxAdap(RegressorMixin, AdaptationEstimator):  # type: ignore[misc]
    """Linear regression on a private target and a public source, by the paper's noisy projected descent.

    Algorithm 1 of [1]_ on its problem (6): squared loss, coefficients in a ball, a weight for each sample. It is here
    to be compared with; `PrivateTransferRegressor` is what to use.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: gradient sums, Gaussian; under ``noise="paper"`` also the gradients in the private weights, Gaussian; the
    discrepancy, Laplace, if it has a share.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive; inf for the paper's form without privacy.
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
        "exact" counts the noise exactly and spends it all on the coefficients; see Notes. "paper" adds what is printed,
        and refuses an epsilon at which that does not keep its claim.
    discrepancy_share : float, optional
        The part of epsilon that the discrepancy gets. Default: one half under "paper", 0 under "exact".
    average : {"paper", "tail"}, default="paper"
        All iterates, as in the paper, or the last half.
    target_bounds : (float, float), optional
        Where the target lies; values outside are held to it. Default: where 99% of the public labels lie, else
        (-1, 1).
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
    In the paper's algorithm the sample weights hardly move: a step changes 1 / weight by at most 1 / sqrt(m T) of about
    m, so all T together by sqrt(T / m). Half of the Gaussian budget and the discrepancy's half of epsilon go into them.
    Under "exact" the private weights stay at their reference and cost nothing; the public ones move, for free, if the
    discrepancy has a share. "paper" and epsilon = inf move both. A step costs d² operations: gradients come from sums
    of products of rows, which are renewed as the weights move.

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
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: float = 0.5,
        radius: float = 3.0,
        kappa1: float = 1.0,
        kappa2: float = 0.0,
        kappa_inf: float = 0.0,
        n_steps: int = 1000,
        noise: str = "exact",
        discrepancy_share: float | None = None,
        average: str = "paper",
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
        checks.one_of(self.average, _AVERAGES, "average")
        checks.one_of(self.noise, calibration.NOISES, "noise")
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        labels = None if y_public is None else numeric_labels(y_public)
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        geometry, scale = unit_geometry(X.shape[1], X_public), target_scale(self.target_bounds, labels)
        source = None
        if X_public is not None and labels is not None:
            if not np.isfinite(labels).all():
                raise ValueError("public y must be finite; remove the rows where it is not.")
            source = bounded_rows(geometry.transform(X_public), scale.apply(labels))
        # Everything above is public or has only been validated; what follows goes through the ledger.
        work = self._schedule(budget, source, X.shape[1] + 1)
        claim, coef, discrepancy = None, _source_alone(source, X.shape[1] + 1, work.radius), None
        if budget.worthwhile:
            rows = bounded_rows(geometry.transform(X), scale.apply(y))
            if self.noise == "paper" and self._protects:
                claim = calibration.require_valid_claim(self.epsilon, self.delta, share=self._share(source))
            coef, discrepancy = self._private_fit(child, rows, source, work)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = ["the range of the target"] if labels is None or self.target_bounds is not None else []
        self.privacy_ = self._receipt(child, budget, assumed, notes=self._notes(claim))
        raw, level = geometry.coefficients(coef)
        self.coef_, self.intercept_ = raw * scale.half, float(level) * scale.half + scale.middle
        self.discrepancy_ = discrepancy
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions for rows of `X`."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that the paper's short steps from 0 score badly on small data, at any budget."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _share(self, source: LimitedRows | None) -> float:
        """Return the discrepancy's part of epsilon; without a source there is none to measure."""
        share = calibration.discrepancy_share(self.discrepancy_share, self.noise)
        return share if source is not None else 0.0

    def _schedule(self, budget: Budget, source: LimitedRows | None, width: int) -> Schedule:
        """Return noise and step lengths; everything here is public."""
        adjacency = Adjacency.of(self.adjacency)
        alpha = mixture_share(self.alpha) if source is not None else 0.0
        radius, steps = checks.positive(self.radius, "radius"), checks.count(self.n_steps, "n_steps")
        penalties = Penalties(self.kappa1, self.kappa2, self.kappa_inf)
        share = self._share(source)
        single, replaced = gradient_bounds(MAX_NORM, MAX_TARGET, radius)
        reach = replaced if adjacency is Adjacency.REPLACE_ONE else single
        gradient_noise, weight_noise, part = 0.0, None, 0.0
        if not self._protects:
            weight_noise = 0.0
        elif self.noise == "paper":
            refuse_add_remove(self.adjacency)
            # Algorithm 1 runs at what the discrepancy leaves; its noise is 2 G (here `single` = G) times this.
            printed = calibration.paper_multiplier((1 - share) * self.epsilon, self.delta, steps)
            gradient_noise, weight_noise, part = printed * 2 * single / reach, printed, share * self.epsilon
        else:
            spending = calibration.exact_spending(self.epsilon, self.delta, share, adjacency)
            gradient_noise, part = math.sqrt(steps) / spending.mu, spending.discrepancy_epsilon
        return schedule(
            width=width,
            n_source=0 if source is None else len(source.y),
            n_rows=budget.n_rows,
            alpha=alpha,
            radius=radius,
            n_steps=steps,
            penalties=penalties,
            lipschitz=single,
            loss_bound=loss_bound(MAX_NORM, MAX_TARGET, radius),
            gradient_noise=gradient_noise,
            gradient_reach=reach,
            weight_noise=weight_noise,
            discrepancy_epsilon=part,
            source_moves=source is not None and (bool(share) or weight_noise is not None),
            tail=self.average == "tail",
        )

    def _private_fit(
        self, ledger: Ledger, rows: LimitedRows, source: LimitedRows | None, work: Schedule
    ) -> tuple[NDArray[np.float64], float | None]:
        """Charge everything, release the discrepancy if it has a share, and descend."""
        plans = _plans(work, protects=self._protects)
        runs = dict(zip(plans, ledger.start_all([(plan, label) for label, plan in plans.items()]), strict=True))
        discrepancy = None
        if "discrepancy" in runs and source is not None:
            total = source.moments()
            mean = total.divided(len(source.y))
            noisy = runs["discrepancy"].release(
                squared_loss_discrepancy(rows.moments(), mean, work.radius, work.n_rows)
            )
            discrepancy = float(np.clip(float(noisy) / work.n_rows, 0.0, work.loss_bound))
        weight_runs = [runs[label] for label in ("private weights", "private weights, last") if label in runs]
        return descend(runs.get("gradient"), weight_runs, rows, source, work, discrepancy or 0.0), discrepancy


def _plans(work: Schedule, *, protects: bool) -> dict[str, Plan]:
    """Return what will be released, by label."""
    plans: dict[str, Plan] = {}

    def plan(multiplier: float, times: int) -> Repeated:
        mechanism: Mechanism = Gaussian(multiplier) if protects else NonPrivate()
        return Repeated(mechanism, times)

    if work.discrepancy_epsilon:
        plans["discrepancy"] = Repeated(Laplace(1 / work.discrepancy_epsilon))
    elif not protects and work.n_source:
        plans["discrepancy"] = Repeated(NonPrivate())
    if work.alpha < 1:
        plans["gradient"] = plan(work.gradient_noise, work.n_steps)
        if work.weight_noise is not None:
            # The sum of the gradients of k steps, with the noise of k releases: the same cost as k releases.
            whole, rest = divmod(work.n_steps, work.block)
            if whole:
                plans["private weights"] = plan(work.weight_noise / math.sqrt(work.block), whole)
            if rest:
                plans["private weights, last"] = plan(work.weight_noise / math.sqrt(rest), 1)
    return plans


def _source_alone(source: LimitedRows | None, width: int, radius: float) -> NDArray[np.float64]:
    """Return what the public source alone gives."""
    if source is None:
        return np.zeros(width)
    moments = source.moments()
    return minimise_in_ball(moments.gram, moments.cross, radius)
