"""`CnvxAdap`: Algorithm 1 of private domain adaptation, noisy projected descent on problem (6).

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.adaptation import noise as calibration
from dpadapt.adaptation.cnvx_descent import Schedule, descend, schedule
from dpadapt.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationEstimator,
    bounded_rows,
    refuse_add_remove,
    target_scale,
    unit_geometry,
)
from dpadapt.adaptation.problem import Penalties, mixture_share
from dpadapt.data import Public
from dpadapt.learning.base import Budget, numeric_labels
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_losses import (
    LimitedRows,
    gradient_bounds,
    loss_bound,
    squared_loss_discrepancy,
)
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.laplace import Laplace
from dpadapt.mechanisms.mechanism import Mechanism, NonPrivate
from dpadapt.mechanisms.plan import Plan, Repeated
from dpadapt.mechanisms.trust_region import minimise_in_ball

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
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
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
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows, used in place of the true one.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

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
    >>> from dpadapt.adaptation import CnvxAdap
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
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private target.
        public : Public, optional
            The public source, with the same columns. Without labels only the scales come from it.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        _validate.one_of(self.average, _AVERAGES, "average")
        _validate.one_of(self.noise, calibration.NOISES, "noise")
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
        radius, steps = _validate.positive(self.radius, "radius"), _validate.count(self.n_steps, "n_steps")
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
