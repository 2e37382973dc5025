"""The transfer classifier before it sees a private row: public preparation, and the plan of what it will release.

`prepare` takes coordinates and a public softmax model from the public rows. `make_plan` shares a budget among the
coordinates and sets clipping norm, noise and gate. `Plan.charges` names the releases; `fit` and `forecast` both use it.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public, Remembered
from dpadapt.learning.base import Budget, split_noise, water_fill
from dpadapt.learning.losses import clipped_curvature, softmax
from dpadapt.learning.public_models import SCORE_VARIANCES, public_softmax, whitening
from dpadapt.learning.scaling import centre_and_scale
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import row_products
from dpadapt.transfer.base import PublicBase, boosting_fails, classification_base, mixed_units

# Public preparation

# Largest distance of a public value from its column's mean, in units of the column's scale: rare indicators get a
# larger scale. Without it, private rows with an indicator that is rare in public data would be very long. Chosen by
# hand.
_LARGEST_VALUE = 5.0
# Number of public rows on which curvature, lengths and loss ranges are measured. More rows cost time; the error of a
# few percent does not matter. Chosen by hand.
_SAMPLE_ROWS = 1500


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Constant, whitened public directions by falling variance, and directions of the public scores, in this order.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features, k)
        Applied to centred and scaled rows.
    shares : ndarray of shape (k,)
        Share of the public variance of each whitened direction; 0 for directions of the public scores.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    basis: NDArray[np.float64]
    shares: NDArray[np.float64]

    def transform(self, X: NDArray[Any], weights: NDArray[np.float64], *, fixed_rows: bool = True) -> NDArray[Any]:
        """Return the coordinates with a positive weight, times that weight, in the precision of `X`.

        A row too long for a float comes out not finite, without a warning.
        """
        linear = (np.column_stack([np.zeros(len(self.scale)), self.basis]) * weights)[:, weights > 0]
        linear /= self.scale[:, None]
        shift = -self.center @ linear
        if weights[0] > 0:
            shift[0] = weights[0]
        with np.errstate(all="ignore"):
            out = row_products(X, linear.astype(X.dtype), fixed_rows=fixed_rows)
            out += shift.astype(X.dtype)
        return out

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (n_features, n_classes) coefficients and intercepts for raw rows."""
        coef = (self.basis @ solution[1:]) / self.scale[:, None]
        return coef, solution[0] - self.center @ coef


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a fit takes from public rows.

    Parameters
    ----------
    coordinates : Coordinates
    start : ndarray of shape (1 + k, n_classes)
        The public model; zero without public labels.
    coef, intercept : ndarray
        The public model for raw rows; if it is an offset, for raw rows beside its scores.
    offset : bool
        Whether another public model is corrected, whose scores are the last columns of the rows; the start is then 0.
    warm : bool
        Whether there were public labels.
    total : float
        Variance of scores that the public model was allowed; chosen by cross-validation.
    sample : ndarray of shape (at most 1500, 1 + k)
        Public rows in the coordinates.
    sample_scores : ndarray
        Their public scores.
    score_variances : ndarray
        Public variance of the scores along each of the last coordinates, those of the public scores.
    n_rows : int
        How many public rows there are.
    unseen : tuple of int
        Columns that are constant in public rows, where there is a base.
    """

    coordinates: Coordinates
    start: NDArray[np.float64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    offset: bool
    warm: bool
    total: float
    sample: NDArray[np.float64]
    sample_scores: NDArray[np.float64]
    score_variances: NDArray[np.float64]
    n_rows: int
    unseen: tuple[int, ...] = ()

    @property
    def curvature(self) -> float:
        """Mean second derivative of the loss per direction of the scores, at the public model."""
        p = softmax(self.sample_scores)
        k = p.shape[1]
        mean = float(np.mean(1.0 - np.sum(p**2, axis=1))) / (k - 1)
        # A public model that is sure of everything need not be right: at least a fifth of the largest possible value.
        return float(max(mean, 0.2 / k))

    @property
    def entropy(self) -> float:
        """Mean loss that the public model expects of itself."""
        p = softmax(self.sample_scores)
        return float(-np.mean(np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)))


def centre_and_units(
    X: NDArray[np.float64], standardise: bool | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centre of public columns, and their units: one each, or one for all; infinity for a constant column.

    `standardise` says which; by default columns that seem to share a unit, such as pixels, get one for all.
    """
    center, scale = centre_and_scale(X)
    constant = np.isinf(scale)
    scale = np.where(constant, X.std(axis=0), scale)
    if standardise is None:
        standardise = mixed_units(scale[~constant])
    if standardise:
        rare = np.mean(np.median(X, axis=0) != X, axis=0)
        scale = scale * np.maximum(1.0, 1.0 / (_LARGEST_VALUE * np.sqrt(np.maximum(rare, 0.5 / len(X)))))
    else:
        scale = np.full_like(scale, np.sqrt(np.mean(scale**2)) or 1.0)
    scale = np.where(constant, np.inf, scale)
    return center, scale


def prepare(
    X: NDArray[np.float64], codes: NDArray[np.int64] | None, n_classes: int, standardise: bool | None = None
) -> Prepared:
    """Return the public preparation; deterministic, so that it can be cached."""
    center, scale = centre_and_units(X, standardise)
    rows = (X - center) / scale
    basis, shares = whitening(rows)
    coordinates = Coordinates(center, scale, basis, shares)
    whitened = coordinates.transform(X, np.ones(1 + len(shares)))
    start, total, score_variances = np.zeros((1 + len(shares), n_classes)), 0.0, np.zeros(0)
    if codes is not None:
        start, total = public_softmax(whitened, codes, n_classes, coordinates.shares)
        coordinates, start, score_variances = _with_scores(coordinates, whitened, start)
    coef, intercept = coordinates.coefficients(start)
    chosen = sample_rows(len(X))
    sample = coordinates.transform(X[chosen], np.ones(len(start)))
    scores, warm = sample @ start, codes is not None
    return Prepared(coordinates, start, coef, intercept, False, warm, total, sample, scores, score_variances, len(X))


def prepare_offset(X: NDArray[np.float64], scores: NDArray[np.float64]) -> Prepared:
    """Return the preparation for correcting another public model, given its scores on rows that it was not fitted to.

    The rows of the fit are those of the features with the scores as further columns. The coordinates are those of the
    features, and directions of the scores.
    """
    (n, d), n_classes = X.shape, scores.shape[1]
    plain = prepare(X, None, n_classes).coordinates
    k = plain.basis.shape[1]
    values, directions = _score_directions(scores)
    basis = np.zeros((d + n_classes, k + len(values)))
    basis[:d, :k], basis[d:, k:] = plain.basis, directions
    coordinates = Coordinates(
        np.concatenate([plain.center, scores.mean(axis=0)]),
        np.concatenate([plain.scale, np.ones(n_classes)]),
        basis,
        np.concatenate([plain.shares, np.zeros(len(values))]),
    )
    start = np.zeros((1 + k + len(values), n_classes))
    coef = np.concatenate([np.zeros((d, n_classes)), np.eye(n_classes)])
    chosen = sample_rows(n)
    sample = coordinates.transform(np.column_stack([X[chosen], scores[chosen]]), np.ones(len(start)))
    total = max(float(np.mean(np.var(scores, axis=0))), SCORE_VARIANCES[0])
    return Prepared(coordinates, start, coef, np.zeros(n_classes), True, True, total, sample, scores[chosen], values, n)


def sample_rows(n: int) -> NDArray[np.int64]:
    """Return the indices of the public rows on which curvature, lengths and loss ranges are measured."""
    return np.random.default_rng(n).permutation(n)[:_SAMPLE_ROWS]


def _with_scores(
    coordinates: Coordinates, whitened: NDArray[np.float64], start: NDArray[np.float64]
) -> tuple[Coordinates, NDArray[np.float64], NDArray[np.float64]]:
    """Append the whitened directions of the public scores, so that re-scaling the public model takes few numbers."""
    values, turned = _score_directions((whitened[:, 1:] @ start[1:]).astype(np.float64))
    if not len(values):
        return coordinates, start, values
    basis = np.column_stack([coordinates.basis, coordinates.basis @ start[1:] @ turned])
    shares = np.concatenate([coordinates.shares, np.zeros(len(values))])
    longer = np.concatenate([start, np.zeros((len(values), start.shape[1]))])
    return Coordinates(coordinates.center, coordinates.scale, basis, shares), longer, values


def _score_directions(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the variances of public scores along their directions, and the map to whitened scores."""
    scores = scores - scores.mean(axis=0)
    values, vectors = np.linalg.eigh(scores.T @ scores / len(scores))
    kept = values > max(1e-6 * values.max(), 1e-12)
    return values[kept], np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


_PREPARATIONS: Remembered[Prepared] = Remembered()


def prepared_for(
    public: Public,
    X: NDArray[np.float64],
    codes: NDArray[np.int64] | None,
    classes: NDArray[Any],
    *,
    prior: str = "shifted",
    model: Any = None,
) -> tuple[Prepared, PublicBase | None]:
    """Return the preparation of `public`, made once while its content stays the same, and the base that is corrected.

    There is no base, but a linear model to start from, where the base would have only this one: without public labels,
    if the same population is declared, for `model="linear"`, and where boosting can't be fitted.
    """
    linear = prior != "shifted" or (model is None and codes is not None and boosting_fails(len(X), codes))
    if codes is None or linear or isinstance(model, str):
        return _PREPARATIONS.get(public, [X, codes, classes], lambda: prepare(X, codes, len(classes))), None
    public_base = classification_base(public, X, codes, classes, model)
    scores = np.tensordot(public_base.base.weights, public_base.scores, 1)
    rows = public_base.rows
    prepared = _PREPARATIONS.get(public, [rows, scores], lambda: prepare_offset(rows, scores))
    unseen = np.flatnonzero(public_base.base.columns.constant).tolist()
    return replace(prepared, unseen=tuple(unseen)), public_base


# The plan

PRIORS = ("shifted", "same-population")
# How many standard deviations below its estimate the slope of the gain is assumed to be. A shifted public model must
# not be changed on weak evidence: 1.75 costs up to 0.3 points (Adult, one-hot, 1,000 rows), 2.25 up to 1.1% of log-loss
# (Fashion, 300 rows). If the same population is declared, the change is adopted unless the evidence is against it.
_GATE_CAUTION = {"shifted": 2.5, "same-population": -1.5}
# Share of the public model's own expected loss that a correction may cost if its slope is at the lower bound. Without
# it, gates stay nearly shut for few rows, where corrections are small: `fair` sets with 300 to 1,000 rows gain 0.3
# points and 1% of log-loss by it.
_TOLERATED_HARM = 0.005
# The noise does not depend on the number of steps; more of them only follow the curved loss more closely.
STEPS = 100
# Number of last steps whose end points are averaged. Fewer are noisier; the first 20 steps are still too far away.
AVERAGED_STEPS = 80
# Noise variance of the average, over that of one release of the whole budget.
EXCESS = STEPS / AVERAGED_STEPS


def step_length(t: int) -> float:
    """Return the length of step t, in Newton steps: constant at first, then falling like 1 / t.

    It falls late, after six steps' worth: where private rows are surer than public ones the loss is flatter than
    planned, and steps that fall sooner stop short of the minimum (Adult, label-encoded: 0.2 points at epsilon 20).
    """
    return min(0.3, 6.0 / (t + 6.0))


# Clipping norm of residuals, which are at most sqrt 2 long; half of that clips only the residuals of surprising labels.
_RESIDUAL_CLIP = 1.0 / math.sqrt(2.0)
# The gate gets the share of the budget, between 1% and 10%, that makes its noise about 1 / this of its range. A larger
# share leaves less for the steps: with 1,000, Adult with 4% public rows at epsilon 0.3 closes 1% less of its gap.
_GATE_PRECISION = 300.0
# Share of the budget for the mean squares of columns that are constant in public rows, which tell small groups from
# large ones: with n mu = 460 (2,000 rows, epsilon 1), their noise is 1.5% of the rows. Chosen by hand.
_UNSEEN_SHARE = 0.02
# A whole step moves scores by at most this many times the expected change, beyond its noise. Longer ones mean that the
# public curvature is far too small, as where private rows have a class that public ones lack: there, steps without a
# limit end far out (synthetic data: log-loss 1.2 at epsilon 10, with a limit 0.1).
_LONGEST_STEP = 3.0
# Median length of a weighted row that the plan assumes before it knows the weights: a little above 1. Chosen by hand.
_ASSUMED_LENGTH = 1.1
# Power of the shares of variance in the prior of a model without public labels, from which the plan is made. With the
# shares themselves accuracies at epsilon 1 are lower (Fashion-MNIST 0.5 points, CIFAR-10 features 0.9), though the
# log-loss of the latter is 4% better.
_PRIOR_POWER = 0.8
# Powers among which the steps choose, and the standard deviation of the prior of the power itself: wide, so that it
# decides only where the steps say nothing. With 0.3, word vectors lose 0.4 points, and no other set gains.
_PRIOR_POWERS, _POWER_DEVIATION = tuple(np.arange(0.2, 1.85, 0.1).tolist()), 1.0


@dataclass(frozen=True, eq=False)
class Plan:
    """What a fit will release and with which noise, made from public facts alone.

    Parameters
    ----------
    weights : ndarray of shape (1 + k,)
        What each coordinate is multiplied by; 0 leaves it out. The squares add up to 1.
    expected : ndarray of shape (1 + k,)
        Variance that the change of each coordinate is expected to have.
    clip_norm : float
        Each row's term is scaled down to this length.
    noise : float
        Standard deviation of a weighted mean of clipped terms, if the whole budget of the steps goes into it.
    gate_share : float
        Share of mu² for the gate; 0 if there is none.
    unseen_share : float
        Share of mu² for the mean squares of columns that are constant in public rows; 0 if there are none.
    caution : float
        How many standard deviations the gate stays below the estimated slope of the gain.
    tolerance : float
        The largest rise of the mean loss that the gate allows.
    blur : float
        Noise in a score, as a standard deviation.
    charges : list of (Repeated, str)
        What is charged, all at once: the steps, then the gate and the unseen columns, if there are any. Together
        exactly mu-Gaussian-DP.
    """

    weights: NDArray[np.float64]
    expected: NDArray[np.float64]
    clip_norm: float
    noise: float
    gate_share: float
    unseen_share: float
    caution: float
    tolerance: float
    blur: float
    charges: list[tuple[Repeated, str]]

    @property
    def used(self) -> NDArray[np.int64]:
        """Indices of the coordinates with a positive weight."""
        return np.flatnonzero(self.weights)


def expected_change(prepared: Prepared, prior: str) -> NDArray[np.float64]:
    """Return the variance that the best change of each coordinate is expected to have, per direction of the scores.

    A direction's share of the public variance is the prior: the energy of non-private fits follows it (log-log slope
    0.6 to 1.2 on images, embeddings and tables).
    """
    shares = prepared.coordinates.shares
    if not prepared.warm:
        # A little flatter than the shares, like the average of those slopes.
        return _power_prior(shares, _PRIOR_POWER)
    # The posterior variance that the public sample leaves.
    information = prepared.n_rows * prepared.curvature
    plain = shares[: len(shares) - len(prepared.score_variances)]
    left_open = 1.0 / (information + 1.0 / np.maximum(prepared.total * plain, 1e-12))
    if prior == "same-population":
        bias = 1.0 / (information + 0.25)
        # The scores of a model of few rows are too large by a few percent (Adult, 4% public rows, epsilon 0.3: 3% more
        # of the gap is closed).
        return np.concatenate([[bias], left_open, 0.003 * prepared.score_variances])
    return np.concatenate([[0.25], 0.5 * plain + 0.5 * left_open, 0.06 * prepared.score_variances])


def _power_prior(shares: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    flatter = shares**power
    return np.concatenate([[1.0], 2.5 * flatter / max(float(flatter.sum()), 1e-300)])


def likely_prior(
    prepared: Prepared, used: NDArray[np.int64], change: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the prior variances with the power of the shares that is most probable, for a model without public labels.

    How fast the coefficients fall with the variance of their directions differs between features: the slope is 0.6 on
    images and 1.6 on word vectors. The marginal likelihood of the change, which the steps estimate anyway, shows it.

    Parameters
    ----------
    prepared : Prepared
    used : ndarray of int
        The coordinates that the change is about.
    change : ndarray of shape (len(used), n_classes)
        An estimate without shrinkage, from releases.
    variance : ndarray of shape (len(used),)
        Of its error.
    """
    free, chosen = change.shape[1] - 1, used > 0
    squares, errors = np.sum(change[chosen] ** 2, axis=1), variance[chosen]

    def log_posterior(power: float) -> float:
        spread = _power_prior(prepared.coordinates.shares, power)[used[chosen]] + errors
        likelihood = -0.5 * float(np.sum(free * np.log(spread) + squares / spread))
        return likelihood - 0.5 * ((power - _PRIOR_POWER) / _POWER_DEVIATION) ** 2

    return _power_prior(prepared.coordinates.shares, max(_PRIOR_POWERS, key=log_posterior))


def make_plan(prepared: Prepared, budget: Budget, prior: str) -> Plan:
    """Return the plan for a budget."""
    expected = expected_change(prepared, prior)
    h, classes = prepared.curvature, prepared.start.shape[1]
    tolerance = _TOLERATED_HARM * prepared.entropy
    signal = budget.n_rows * budget.mu / budget.factor
    # Without a public model there is nothing to protect.
    gate_share = min(max((_GATE_PRECISION / signal) ** 2, 0.01), 0.1) if prepared.warm else 0.0
    unseen_share = _UNSEEN_SHARE if prepared.unseen else 0.0
    steps_share = 1.0 - gate_share - unseen_share
    clip = _RESIDUAL_CLIP
    # Clipping biases probabilities, so the clipping norm grows, up to twofold, while the noise in a score is below 0.1.
    for _ in range(2):
        noise = budget.noise(clip * _ASSUMED_LENGTH) / math.sqrt(steps_share)
        shares = _budget_shares(expected, h, math.sqrt(EXCESS) * noise)
        used = shares > 0
        scatter = EXCESS * noise**2 / shares[used]
        gain = h / (h + (scatter + h / budget.n_rows) / (h * expected[used]))
        blur = math.sqrt((classes - 1) / classes * float(np.sum(scatter * gain**2))) / h
        clip = _RESIDUAL_CLIP * min(max(0.1 / blur, 1.0), 2.0)
    weights = np.sqrt(shares)
    lengths = np.linalg.norm(prepared.sample * weights, axis=1)
    clip_norm = clip * float(np.median(lengths))
    noise = budget.noise(clip_norm) / math.sqrt(steps_share)
    caution, charges = _GATE_CAUTION[prior], step_charges(budget.mu, gate_share, unseen_share)
    return Plan(weights, expected, clip_norm, noise, gate_share, unseen_share, caution, tolerance, blur, charges)


def step_charges(mu: float, gate_share: float, unseen_share: float = 0.0) -> list[tuple[Repeated, str]]:
    """Return what is charged for the steps, and for gate and unseen columns if they have a share.

    Together it is exactly mu-Gaussian-DP.
    """
    beside = {name: share for name, share in (("gate", gate_share), ("unseen columns", unseen_share)) if share}
    steps, *others = split_noise(mu, [(1.0 - gate_share - unseen_share) / STEPS, *beside.values()])
    single = [(Repeated(Gaussian(noise)), name) for name, noise in zip(beside, others, strict=True)]
    return [(Repeated(Gaussian(steps), STEPS), "gradient"), *single]


def _budget_shares(expected: NDArray[np.float64], curvature: float, noise: float) -> NDArray[np.float64]:
    """Return the shares of the budget, adding up to 1, with the least expected loss after shrinkage.

    A direction with share b has noise variance noise² / b. Shrunk optimally, what is left of its expected change t
    costs h t s² / (h² t + s²). Setting the derivatives in b equal gives b = max(0, level - noise² / (h² t)).
    """
    shares = water_fill((noise / curvature) ** 2 / np.maximum(expected, 1e-300))
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True, eq=False)
class Stride:
    """Curvature and ridge of a step in each used coordinate, and the largest length of a whole step."""

    curvature: NDArray[np.float64]
    ridge: NDArray[np.float64]
    longest: float

    def newton(self, gradient: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the whole Newton step from `change`, to be subtracted, shortened to the largest length."""
        step = (gradient + self.ridge[:, None] * change) / (self.curvature + self.ridge)[:, None]
        return step * min(1.0, self.longest / max(float(np.linalg.norm(step)), 1e-300))


def residual_limits(lengths: NDArray[Any], clip_norm: float) -> NDArray[Any]:
    """Return the largest length of each row's residual for which its term is no longer than the clipping norm.

    Limits beyond 2 clip nothing; both ends only keep extreme rows from overflowing.
    """
    return np.asarray(np.clip(clip_norm / np.maximum(lengths, 1e-30), 1e-30, 2.0))


def stride(prepared: Prepared, plan: Plan, change: NDArray[np.float64], n_rows: float) -> Stride:
    """Return the step at the current change, from public rows: expected curvature of the clipped loss, and the ridge.

    The ridge is the linear least-mean-squares one: noise and sampling error over expected signal. The longest step has
    room for twice its own noise.
    """
    used = plan.used
    rows = prepared.sample[:, used]
    lengths = np.linalg.norm(rows * plan.weights[used], axis=1)
    p = softmax(prepared.sample_scores + rows @ change)
    a = clipped_curvature(p, residual_limits(lengths, plan.clip_norm))
    # At least a fifth of the mean: steps along directions that the public rows hardly use would be unbounded.
    curvature = np.maximum((rows**2).T @ a / len(a), 0.2 * float(a.mean()))
    release = (plan.noise / plan.weights[used]) ** 2
    ridge = (EXCESS * release + curvature / n_rows) / (curvature * plan.expected[used])
    free = change.shape[1] - 1
    expected = free * float(np.sum(plan.expected[used]))
    noise = free * STEPS * float(np.sum(release / (curvature + ridge) ** 2))
    return Stride(curvature, ridge, math.sqrt(_LONGEST_STEP**2 * expected + 4.0 * noise))
