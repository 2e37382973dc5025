"""`NCnvxAdap`: Algorithm 2 of private domain adaptation, noisy projected descent on problem (7) for smooth losses.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Section 5 and Appendix D. The descent follows the printed lines step by step.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, LinearClassifier
from dpadapt.learning.descent import gradient_weights
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.papers.adaptation.bounded_losses import limited_rows, listed_discrepancy, own_losses
from dpadapt.papers.adaptation.noise import AdaptationNoise, discrepancy_share
from dpadapt.papers.adaptation.preparation import MAX_NORM, AdaptationEstimator, NoisePlan, unit_geometry
from dpadapt.papers.adaptation.problem import (
    Array,
    CrossEntropy,
    Penalties,
    SmoothLoss,
    checked_loss,
    mixture_share,
    weight_gradient,
)
from dpadapt.rows import Rows

if TYPE_CHECKING:
    from dpadapt.networks import PrivateNetwork

_NCNVX_AVERAGES = ("mean", "paper", "tail")
# Number of public predictors over which the discrepancy is taken. More of them come closer to the supremum over the
# ball, at a cost in time alone: the sensitivity does not depend on it. Chosen by hand.
_LISTED_PREDICTORS = 64


class NCnvxAdap(AdaptationEstimator, LinearClassifier):
    """Classification on a private target and a public source, by the paper's noisy projected descent.

    Algorithm 2 of [1]_ on its problem (7): any smooth loss of linear scores, coefficients in a ball, a weight for each
    sample. It is a baseline for comparison; use `PrivateTransferClassifier`.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, Gaussian; under ``noise="paper"`` also the gradients in the private weights,
    Gaussian; the discrepancy over a public list of predictors, Laplace, if it has a share.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        The most that this fit may spend. Positive; inf for the paper's form without privacy.
    {delta}
    loss : SmoothLoss, optional
        Default: CrossEntropy(), which is logistic for two classes and softmax for more. SquaredError() is another.
    alpha : float, default=0.5
        The public source's share of the reference weights, from 0 (target alone) to 1 (source alone).
    radius : float, default=20.0
        Largest length of the coefficients, for rows of length at most 1.
    lambda1, lambda2, lambda_inf : float, default=1.0, 0.0, 0.0
        Penalties on the weights: their distance from the reference, their length, the largest of them.
    sharpness : float, optional
        Sharpness of the smooth maximum (mu in the paper). Default: the root of the number of all rows.
    n_steps : int, default=1000
        The paper's experiments take 15000.
    noise : {"exact", "paper"}, default="exact"
        "exact" adds the least noise that the budget allows and spends the budget on the coefficients; the private
        weights stay at their reference. "paper" adds the printed noise, and refuses an epsilon at which that noise does
        not satisfy its claim.
    discrepancy_share : float, optional
        The part of epsilon that the discrepancy gets. Default: one half under "paper", 0 under "exact".
    average : {"mean", "paper", "tail"}, default="mean"
        Which iterates to average: all; one at random, as in the paper; or the last half.
    classes : array-like, optional
        The label set. Default: that of the public labels.
    adjacency : {"replace-one", "zero-out", "add-remove"}, default="replace-one"
        Which data sets count as neighbours.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_scores, n_features)
    intercept_ : ndarray of shape (n_scores,)
    classes_ : ndarray of shape (n_classes,)
    discrepancy_ : float or None
        The released discrepancy, if it had a share.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    The paper gives no way to compute the discrepancy of a general loss, and a local search has no bounded sensitivity.
    Here the supremum is over a public list of predictors: a local discrepancy. One row moves it by at most B / n.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. arXiv:2306.08838

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.adaptation import NCnvxAdap
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (900, 2)), rng.uniform(-1, 1, (300, 2))
    >>> y, y_public = X @ [1.0, 0.5] > 0, X_public @ [1.0, 0.0] > 0
    >>> model = NCnvxAdap(epsilon=4.0, random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 4.0
    True
    >>> model.score(X, y) > 0.85
    True
    """

    def __init__(
        self,
        epsilon: Annotated[float, checks.or_infinite] = 1.0,
        delta: float = 1e-6,
        *,
        loss: SmoothLoss | None = None,
        alpha: Annotated[float, mixture_share] = 0.5,
        radius: checks.Scale = 20.0,
        lambda1: checks.Penalty = 1.0,
        lambda2: checks.Penalty = 0.0,
        lambda_inf: checks.Penalty = 0.0,
        sharpness: checks.Scale | None = None,
        n_steps: checks.Count = 1000,
        noise: AdaptationNoise = "exact",
        discrepancy_share: checks.Share | None = None,
        average: Annotated[str, checks.choice(*_NCNVX_AVERAGES)] = "mean",
        classes: Any = None,
        adjacency: str = "replace-one",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.alpha = alpha
        self.radius = radius
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.sharpness = sharpness
        self.n_steps = n_steps
        self.noise = noise
        self.discrepancy_share = discrepancy_share
        self.average = average
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "NCnvxAdap":
        """Fit on the private target `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        public : Public, optional
            The public source, with the same columns. Without labels only the scales come from it.
        {ledger}
        """
        data = self._read_classification(X, y, public, ledger, self.classes)
        geometry, width = unit_geometry(data.n_features, data.X_public), data.n_features + 1
        shape = (width,) if len(data.classes) == 2 else (width, len(data.classes))
        source = None
        if data.X_public is not None and data.codes_public is not None:
            source = Labelled(_shortened(geometry.transform(data.X_public)), data.codes_public)
        # Everything above is public or has only been validated; what follows goes through the ledger.
        share = discrepancy_share(self.discrepancy_share, self.noise) if source is not None else 0.0
        settings = self._settings(data.budget, source, shape, share)
        claim, discrepancy = None, None
        if data.budget.worthwhile:
            rows = Labelled(_shortened(geometry.transform(data.X)), data.codes)
            claim = self._require_valid_claim(share)
            coef, discrepancy = self._private_fit(data.ledger, rows, source, settings)
        else:
            coef = _descend(None, None, None, source, settings, 0.0)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, data.budget, [data.source], notes=self._notes(claim))
        raw, level = geometry.coefficients(coef.reshape(len(coef), -1))
        self.coef_, self.intercept_ = raw.T, np.atleast_1d(level)
        self.classes_, self.discrepancy_ = data.classes, discrepancy
        return self

    def _settings(self, budget: Budget, source: "Labelled | None", shape: tuple[int, ...], share: float) -> "Settings":
        """Return noise and settings of the descent; everything here is public."""
        alpha = float(self.alpha) if source is not None else 0.0
        radius, steps = float(self.radius), int(self.n_steps)
        penalties = Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        n_scores = 1 if len(shape) == 1 else shape[1]
        loss = CrossEntropy() if self.loss is None else checked_loss(self.loss, n_scores, radius)
        m = 0 if source is None else len(source.codes)
        sharpness = math.sqrt(m + budget.n_rows) if self.sharpness is None else float(self.sharpness)
        # In units of G: the printed noise is over 2 G; under zero-out and add-remove a gradient sum moves by G.
        bound = 2.0 if Adjacency.of(self.adjacency) is Adjacency.REPLACE_ONE else 1.0
        noise = self._noise_plan(share, steps, 2.0, bound)
        return Settings(
            shape=shape,
            loss=loss,
            n_source=m,
            n_rows=budget.n_rows,
            alpha=alpha,
            radius=radius,
            n_steps=steps,
            penalties=penalties,
            sharpness=sharpness,
            lipschitz=loss.lipschitz(n_scores, radius),
            loss_bound=loss.bound(n_scores, radius),
            noise=noise,
            source_moves=source is not None and (bool(share) or noise.weights is not None),
            average=self.average,
            random_state=self.random_state,
        )

    def _private_fit(
        self, ledger: Ledger, rows: "Labelled", source: "Labelled | None", settings: "Settings"
    ) -> tuple[Array, float | None]:
        """Charge everything, release the discrepancy if it has a share, and descend."""
        gaussian = {}
        if settings.alpha < 1:
            gaussian["gradient"] = settings.noise.gradient, settings.n_steps
            if settings.noise.weights is not None:
                gaussian["private weights"] = settings.noise.weights, settings.n_steps
        runs = self._start(ledger, settings.noise, gaussian, has_source=source is not None)
        discrepancy = None
        if "discrepancy" in runs and source is not None:
            predictors = _public_predictors(source, settings)
            losses = rows.losses(settings.loss, predictors)
            means = source.losses(settings.loss, predictors).mean(axis=0)
            bounded = listed_discrepancy(losses, means, settings.loss_bound, settings.n_rows)
            noisy = float(runs["discrepancy"].release(bounded))
            discrepancy = float(np.clip(noisy / settings.n_rows, 0.0, settings.loss_bound))
        weight_run = runs.get("private weights")
        return _descend(runs.get("gradient"), weight_run, rows, source, settings, discrepancy or 0.0), discrepancy


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of length at most 1 and their class codes."""

    Z: Array = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)

    def losses(self, loss: SmoothLoss, predictors: Array) -> Array:
        """Return each row's loss under each of the `predictors`, one column for each."""
        return np.column_stack([loss.losses(self.Z @ coef, self.codes) for coef in predictors])


def _shortened(Z: NDArray[Any]) -> Array:
    """Return rows scaled down to length 1."""
    return limited_rows(Z, np.zeros(len(Z)), max_norm=MAX_NORM, max_target=1.0).X


@dataclass(frozen=True, eq=False)
class Settings:
    """Everything that the descent of Algorithm 2 depends on besides the rows; all public."""

    shape: tuple[int, ...]
    loss: SmoothLoss
    n_source: int
    n_rows: float
    alpha: float
    radius: float
    n_steps: int
    penalties: Penalties
    sharpness: float
    lipschitz: float
    loss_bound: float
    noise: NoisePlan
    source_moves: bool
    average: str
    random_state: int | None

    @property
    def step(self) -> float:
        """One over the smoothness of the objective."""
        n_scores = 1 if len(self.shape) == 1 else self.shape[1]
        return 1 / smoothness_of(
            self.loss.smoothness(n_scores),
            self.lipschitz,
            self.loss_bound,
            max(self.n_source, 1),
            self.n_rows,
            self.alpha,
            self.penalties,
            self.sharpness,
        )


def smoothness_of(
    curvature: float,
    lipschitz: float,
    loss_bound: float,
    m: int,
    n: float,
    alpha: float,
    penalties: Penalties,
    sharpness: float,
) -> float:
    """Return the smoothness of problem (7): equations (19), (20) and (21) of the paper."""
    rest, one, two, top = 1 - alpha, penalties.one, penalties.two, penalties.infinity
    in_weights = (
        two * alpha**3 / m**2
        + 2 * alpha**3 * (abs(2 * loss_bound - one) + two * math.sqrt(n) + top) / m**2.5
        + top * sharpness * alpha**4 * (m**-3.0 + m**-3.5)
        + two * rest**3 / n**2
        + 2 * rest**3 * (abs(loss_bound - one) + two * math.sqrt(m) + top) / n**2.5
        + top * sharpness * rest**4 * (n**-3.0 + n**-3.5)
        + 2 * top * sharpness * alpha**2 * rest**2 / (m**1.5 * n**1.5)
    )
    return float(curvature + in_weights + lipschitz * (alpha**2 / m**1.5 + rest**2 / n**1.5))


def _descend(
    run: Run | None,
    weight_run: Run | None,
    rows: Labelled | None,
    source: Labelled | None,
    settings: Settings,
    discrepancy: float,
) -> Array:
    """Return the iterate, or the average of iterates, that `settings.average` selects.

    Parameters
    ----------
    run, weight_run : Run or None
        Release the gradients in the coefficients, and the losses that move the private weights.
    rows, source : Labelled or None
        Private target and public source; without rows the descent is on the source alone.
    settings : Settings
    discrepancy : float
        Released before; added to the source's losses.
    """
    step = settings.step
    p_source = settings.alpha / settings.n_source if source is not None and settings.alpha else 0.0
    p_target = (1 - settings.alpha) / settings.n_rows
    private = None if rows is None or run is None else Rows(rows.Z, rows.codes)
    inverse_source = np.full(settings.n_source, 1 / p_source) if p_source else np.zeros(0)
    inverse_target = (
        np.full(len(rows.codes), 1 / p_target) if rows is not None and weight_run is not None else np.zeros(0)
    )
    coef, total = np.zeros(settings.shape), np.zeros(settings.shape)
    kept = _averaged_iterates(settings)
    for t in range(settings.n_steps):
        gradient = np.zeros(settings.shape)
        losses_source, losses_target = np.zeros(len(inverse_source)), np.zeros(len(inverse_target))
        if source is not None and p_source:
            scores = source.Z @ coef
            if settings.source_moves:
                losses_source = settings.loss.losses(scores, source.codes) + discrepancy
            weights = settings.loss.weights(scores, source.codes)
            gradient += source.Z.T @ (weights.T / inverse_source).T
        if private is not None and run is not None and rows is not None:
            if weight_run is not None:
                private.leverage = 1 / (p_target * inverse_target)
                losses = settings.loss.losses(rows.Z @ coef, rows.codes)
                factors = private.leverage**2
                losses_target = weight_run.release(own_losses(losses, settings.loss_bound, factors)) / factors
            # No row is longer than 1, so its gradient is no longer than the Lipschitz constant: nothing is clipped.
            bounded = clipped_outer_sum(private, gradient_weights(_Scored(settings.loss), coef), settings.lipschitz)
            gradient += p_target * run.release(bounded)
        coef = coef - step * gradient
        length = float(np.linalg.norm(coef))
        if length > settings.radius:
            coef *= settings.radius / length
        if kept[t]:
            total += coef
        inverse_source, inverse_target = _move_weights(
            inverse_source, inverse_target, losses_source, losses_target, settings, step
        )
    return np.asarray(total / kept.sum())


def _averaged_iterates(settings: Settings) -> NDArray[np.bool_]:
    """Return which iterates are averaged: all, the last half, or one that is drawn independently of the data."""
    kept = np.ones(settings.n_steps, dtype=bool)
    if settings.average == "tail":
        kept[: settings.n_steps // 2] = False
    elif settings.average == "paper":
        kept[:] = False
        kept[np.random.default_rng(settings.random_state).integers(settings.n_steps)] = True
    return kept


@dataclass(frozen=True)
class _Scored:
    """A `SmoothLoss` as the `Loss` that `gradient_weights` takes."""

    loss: SmoothLoss

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return self.loss.weights(scores, y)

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        return float(np.mean(self.loss.losses(scores, y)))


def _move_weights(
    inverse_source: Array,
    inverse_target: Array,
    losses_source: Array,
    losses_target: Array,
    settings: Settings,
    step: float,
) -> tuple[Array, Array]:
    """Return the inverse weights after one step: lines 8 to 11."""
    if not settings.source_moves and not len(inverse_target):
        return inverse_source, inverse_target
    m = len(inverse_source)
    p_source = settings.alpha / settings.n_source if m else 0.0
    p_target = (1 - settings.alpha) / settings.n_rows
    # Private weights that do not move still count in the penalties, by their public number.
    resting = np.full(0 if len(inverse_target) or not p_target else round(settings.n_rows), 1 / max(p_target, 1e-300))
    inverse = np.concatenate([inverse_source, inverse_target, resting])
    reference = np.repeat([p_source, p_target], [m, len(inverse) - m])
    losses = np.concatenate([losses_source, losses_target, np.zeros(len(resting))])
    moved = inverse - step * weight_gradient(losses, inverse, reference, settings.penalties, settings.sharpness)
    moved = np.maximum(moved, 1 / np.maximum(reference, 1e-300))
    after_source = moved[:m] if settings.source_moves else inverse_source
    return after_source, moved[m : m + len(inverse_target)]


def _public_predictors(source: Labelled, settings: Settings) -> Array:
    """Return coefficients on the sphere to compare mean losses at: fixed directions and public class means."""
    rng = np.random.default_rng(0)
    predictors = rng.standard_normal((_LISTED_PREDICTORS, *settings.shape))
    signs = 2.0 * source.codes - 1.0 if len(settings.shape) == 1 else np.eye(settings.shape[1])[source.codes]
    towards = source.Z.T @ signs
    predictors[0], predictors[1] = towards, -towards
    lengths = np.sqrt(np.sum(predictors**2, axis=tuple(range(1, predictors.ndim)), keepdims=True))
    return np.asarray(predictors * (settings.radius / np.maximum(lengths, 1e-300)))


# More rows than any data set has: every step takes all of them.
_FULL_BATCH = 2**50


def ncnvx_network(
    module: Any = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    alpha: float = 0.5,
    n_steps: int = 300,
    learning_rate: float = 1.0,
    clip_norm: float = 1.0,
    average: float = 0.97,
    classes: Any = None,
    adjacency: str = "replace-one",
    n_rows: int | None = None,
    random_state: int | None = None,
) -> "PrivateNetwork":
    """Return a `PrivateNetwork` that descends on alpha parts of the source's loss and 1 - alpha of the target's.

    Algorithm 2 for networks, whose logistic loss Section 5 of the paper covers. Needs the extra `torch`. Every step
    takes all private rows and all public rows. What is released, and what it costs, is what `PrivateNetwork` says.

    Parameters
    ----------
    alpha : float, default=0.5
        The public source's share of the reference weights, from 0 (target alone) to below 1.
    module, epsilon, delta, n_steps, learning_rate, clip_norm, average, classes, adjacency, n_rows, random_state
        As in `PrivateNetwork`.

    Notes
    -----
    Where this differs from the printed algorithm, and why:

    - The sample weights stay at their reference. The printed steps do not move them either (docs/papers/adaptation.md).
    - The paper assumes a Lipschitz loss. A network's gradients have no known bound, so every row's gradient is clipped.
    - The paper's step is one over the smoothness, which is not known either; `learning_rate` is given.
    - There is no ball of weights.
    - The first step is on the target alone.
    - A part of the public rows is held out for the temperature of the probabilities.
    """
    from dpadapt.networks import PrivateNetwork

    alpha = mixture_share(alpha)
    if alpha == 1:
        raise ValueError("alpha must be below 1: at 1 no private row is used.")
    return PrivateNetwork(
        module,
        epsilon,
        delta,
        # Eq. (1) of paper 2 with a constant weight: after the first step, 1 - alpha for the private gradient.
        transfer="mirror" if alpha else "cold",
        decay_steps=1,
        mixing_floor=(1 - alpha) if alpha else 0.0,
        public_steps=0,
        n_steps=n_steps,
        batch_size=_FULL_BATCH,
        public_batch_size=_FULL_BATCH,
        learning_rate=learning_rate,
        clip_norm=clip_norm,
        average=average,
        classes=classes,
        adjacency=adjacency,
        n_rows=n_rows,
        random_state=random_state,
    )
