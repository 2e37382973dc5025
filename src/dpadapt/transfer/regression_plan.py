"""The transfer regressor before it sees a private row: public preparation, and the plan of what it will release.

`transfer_geometry` prepares the public rows. `shifted_plan` plans a fit that allows for a shift, the default: a scout,
the plane of few numbers (level, slope and mix of the public models), and the correction of many directions. The second
half of the file, `ClipBias` and `same_population_plan`, serves only the prior "same-population". A plan names its
releases and their noise (`charges`); `fit` and `forecast` both use it.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public, Remembered
from dpadapt.learning.base import Budget, water_fill
from dpadapt.learning.descent import constant, tail_noise
from dpadapt.learning.public_models import ridge_by_leave_one_out
from dpadapt.learning.scaling import WHITENING_FLOOR, centre_and_scale, quantile_between, shrunk_spectrum
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.transfer.base import (
    SHORTENED_RIDGES,
    PublicBase,
    combined,
    longest_length,
    shortened_rows,
    tamed_labels,
    without_errors,
)

Vector = NDArray[np.float64]

# Public preparation

# Least error of an offset on a public row, in standard deviations of the public labels. A larger one clips less of a
# shift where the offset fits public rows closely, and adds noise there. As in `PrivateLinearRegression`.
_LEAST_OFFSET_ERROR = 0.05
# Variance of a direction, relative to their mean, below which columns count as dependent: rounding errors are smaller,
# and whatever is measured varies more.
_DEPENDENT_VARIANCE = 1e-9
# Upper limit of the correction for optimism when the label noise is computed from leave-one-out residuals. Chosen by
# hand.
_MOST_OPTIMISM = 20.0


@dataclass(frozen=True, eq=False)
class TransferGeometry:
    """Public preparation. Coordinate 0 is the constant, the slopes come next, the others are directions.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
        Standardisation; a column that is constant in public has scale infinity and is left out.
    target_center : float
        Mean of the public labels; 0 with an offset.
    longest : float
        Length to which longer standardised rows (with their 1) are shortened.
    solution : ndarray of shape (n_features + 1,)
        The public ridge model, for standardised rows and the target less its centre; 0 with an offset.
    residuals : ndarray
        Its exact leave-one-out residuals on the public rows, or the errors of the offset.
    variance : float
        Their mean square.
    values, spectrum, vectors, ridge : ndarray, ndarray, ndarray, float
        Eigenvalues (descending) of the public second moment, the same corrected for sampling, eigenvectors, ridge.
    rows : ndarray
        Standardised, shortened public rows.
    slopes : ndarray of shape (n_features + 1, k)
        Directions that come first: the solution, which changes all predictions in proportion, or the last columns.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    target_center: float
    longest: float
    solution: NDArray[np.float64]
    residuals: NDArray[np.float64]
    variance: float
    values: NDArray[np.float64]
    spectrum: NDArray[np.float64]
    vectors: NDArray[np.float64]
    ridge: float
    rows: NDArray[np.float64]
    slopes: NDArray[np.float64]

    @property
    def noise_variance(self) -> float:
        """Variance of the labels about the best public model: leave-one-out error less its own optimism."""
        excess = float(np.sum(self.spectrum / (len(self.residuals) * (self.values + self.ridge))))
        return self.variance / (1.0 + min(_MOST_OPTIMISM, excess))

    @cached_property
    def _floored(self) -> NDArray[np.float64]:
        # Not the corrected spectrum: shifts of few-row public sets lie in directions whose variance it raises.
        return self.values + min(self.ridge, WHITENING_FLOOR * float(self.values.mean()))

    @cached_property
    def _turn(self) -> NDArray[np.float64]:
        """Orthonormal: first the constant, then the slopes, then eigenvectors by falling variance."""
        root = np.sqrt(self._floored)
        first = np.column_stack([self.vectors[-1] * root, (self.vectors.T @ self.slopes) * root[:, None]])
        full, _ = np.linalg.qr(np.column_stack([first, np.eye(len(root))]))
        return np.asarray(full[:, : len(root)])

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """The map from standardised rows to corrected coordinates; dependent columns have none of their own."""
        return np.asarray((np.where(self._dependent, 0.0, self.vectors) / np.sqrt(self._floored)) @ self._turn)

    @property
    def _dependent(self) -> NDArray[np.bool_]:
        """Directions in which public rows can't vary, such as the sum of all indicators of a category.

        A private row of a category that public rows lack does vary there. Divided by the floor, it would be dozens of
        times as long as public rows: it would hardly count in a fit, and its prediction would have dozens of times the
        noise of others.
        With fewer public rows than columns, directions without public variance are a matter of chance and stay.
        """
        if len(self.rows) <= len(self.values):
            return np.zeros(len(self.values), dtype=bool)
        return np.asarray(self.values < _DEPENDENT_VARIANCE * self.values.mean())

    @cached_property
    def whitened(self) -> NDArray[np.float64]:
        """The public rows in corrected coordinates."""
        return np.asarray(self.rows @ self.whitening)

    @cached_property
    def sampling(self) -> NDArray[np.float64]:
        """Expected squares of the public sampling error in corrected coordinates."""
        relative = self._floored / (len(self.residuals) * (self.values + self.ridge))
        return np.asarray(self.noise_variance * ((self._turn**2).T @ relative))

    def standardise(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised rows with their 1, shortened where they are longer than public rows are."""
        return shortened_rows(X, self.center, self.scale, self.longest)

    def coefficients(self, solution: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Return coefficients and intercept for raw rows that need no shortening."""
        coef = solution[:-1] / self.scale
        return coef, float(self.target_center + solution[-1] - self.center @ coef)


_GEOMETRIES: Remembered[TransferGeometry] = Remembered()


def remembered_geometry(public: Public, X: NDArray[np.float64], y: NDArray[np.float64]) -> TransferGeometry:
    """Return the geometry of public rows and labels without bad values.

    It is made once for each `public` as long as its content stays the same.
    """

    def made() -> TransferGeometry:
        rows, labels = without_errors(X, y, numeric=True)
        return transfer_geometry(rows, tamed_labels(labels))

    return _GEOMETRIES.get(public, [X, y], made)


def remembered_base_geometry(public: Public, public_base: PublicBase) -> TransferGeometry:
    """Return `base_geometry(public_base)`, made once for each `public` as long as its content stays the same."""
    parts = [public_base.rows, public_base.scores, public_base.labels, public_base.base.weights]
    return _GEOMETRIES.get(public, parts, lambda: base_geometry(public_base))


def base_geometry(public: PublicBase) -> TransferGeometry:
    """Return the geometry in which a blend of public models is corrected.

    Its columns are the standardised rows, the mix of the models if there are several, and the blend.
    """
    weights = public.base.weights
    columns = np.column_stack([public.rows, score_columns(public.scores, weights)])
    errors = public.labels - weights @ public.scores
    return transfer_geometry(columns, errors, offset=columns.shape[1] - public.rows.shape[1])


def score_columns(scores: NDArray[np.float64], weights: Vector) -> NDArray[np.float64]:
    """Return the mix of the public models, if there are several, and their blend: one row per row of data."""
    return combined(scores, _score_maps(weights))


def _score_maps(weights: Vector) -> NDArray[np.float64]:
    """Return the maps from the scores of the models to their mix and their blend.

    The mix has one number for each model after the first: its score less the weighted mean of those before it.
    """
    maps = np.eye(len(weights))
    for j in range(1, len(weights)):
        maps[:j, j] = -weights[:j] / max(float(weights[:j].sum()), 1e-300)
    return np.column_stack([maps[:, 1:], weights])


def transfer_geometry(X: NDArray[np.float64], y: NDArray[np.float64], *, offset: int = 0) -> TransferGeometry:
    """Prepare public rows and labels: standardise, fit the ridge of least leave-one-out error, find coordinates.

    With an `offset`, the last so many columns of `X` come from other public models, the very last holds the prediction
    that is corrected, and `y` its errors on rows that it was not fitted to. No ridge model is fitted on top: the public
    solution is 0.
    """
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, d = X.shape
    center, scale = centre_and_scale(X, least=1e-10)
    raw = np.column_stack([(X - center) / scale, np.ones(n)])
    norms = np.linalg.norm(raw, axis=1)
    longest = longest_length(norms, d)
    rows = raw * np.minimum(1.0, longest / norms)[:, None]
    target_center = 0.0 if offset else float(y.mean())
    y = y - target_center
    model = ridge_by_leave_one_out(rows, y, SHORTENED_RIDGES)
    solution, residuals, slopes, labels = model.solution, model.residuals, model.solution[:, None], y
    if offset:
        labels = y + X[:, -1] - np.mean(y + X[:, -1])
        # A public model without error would set the clipping norms to 0 and clip any shift away.
        least = _LEAST_OFFSET_ERROR * float(np.std(labels))
        solution, slopes = np.zeros(d + 1), np.eye(d + 1)[:, d - offset : d][:, ::-1]
        residuals = np.copysign(np.maximum(np.abs(y), least), y)
    # Labels that a model explains up to rounding have no scale of their own; a millionth of their standard
    # deviation is taken instead.
    variance = max(float(np.mean(residuals**2)), 1e-12 * float(labels @ labels) / n, 1e-300)
    values, vectors = model.values, model.vectors
    spectrum = shrunk_spectrum(values, n)
    # Descending by corrected variance; the correction keeps the order.
    order = slice(None, None, -1)
    return TransferGeometry(
        center,
        scale,
        target_center,
        longest,
        solution,
        residuals,
        variance,
        values[order],
        spectrum[order],
        vectors[:, order],
        model.ridge,
        rows,
        slopes,
    )


# The plan for a shifted population: stages of clipped full-batch steps


@dataclass(frozen=True, eq=False)
class Stage:
    """How a stage runs; everything from public data, earlier releases, the number of rows and the budget.

    Parameters
    ----------
    map : ndarray of shape (n_columns, k)
        From standardised rows to the coordinates of this stage.
    weights : ndarray of shape (k,)
        Squared scale of each coordinate relative to a whitened one (water-filled; 1 where all count alike).
    max_norm : float
        Longer rows weigh (max_norm / length)².
    clip_norm : float
        Largest length of one row's gradient; longer ones are clipped.
    noise : float
        Standard deviation, per coordinate of the mean gradient, of one release.
    n_steps : int
    step : float
    unclipped : float
        Share of public rows that are not clipped.
    row_weight : float
        Mean of the squared factors by which public rows are scaled down: shortening times `max_norm`.
    """

    map: Vector
    weights: Vector
    max_norm: float
    clip_norm: float
    noise: float
    n_steps: int
    step: float
    unclipped: float
    row_weight: float

    def noise_of_average(self, curvature: Vector) -> Vector:
        """Return the variance of the averaged iterate from the noise of the releases, for each curvature."""
        return self.noise**2 * tail_noise(self.n_steps, constant(self.step), curvature)

    def response(self, curvature: Vector) -> Vector:
        """Return how far the averaged iterate follows a constant gradient, per unit of it, for each curvature."""
        c = np.maximum(curvature, 1e-9)
        # Σ_{t=first+1..T} (1 - (1 - step c)^t) / c over the tail. Above a curvature of 1 / step, only the sign of a
        # tiny remainder is wrong.
        q = np.abs(1.0 - self.step * c)
        first = self.n_steps // 2
        left = (q ** (first + 1) - q ** (self.n_steps + 1)) / np.maximum(1.0 - q, 1e-12) / (self.n_steps - first)
        return np.asarray((1.0 - np.minimum(left, 1.0)) / c)


# Noise of a whole stage that sets its clipping norm, as a share of the residual variance: a larger norm costs more
# noise than it saves bias, a smaller one more bias than it saves noise. Chosen by hand.
_STAGE_NOISE_SHARE = 0.02
# Size of the shift that a stage must be able to follow, as a multiple of the residual variance. Chosen by hand.
_FOLLOWED_SHIFT = 1.2
# A coordinate is left out if its share of the budget is below this part of the largest share: it would add noise and
# hardly any gain. Chosen by hand.
_LEAST_SHARE = 1e-3
# Clipping norm that water-filling assumes, in standard deviations of the residuals: close to what `plan_stage` chooses.
_ASSUMED_CLIP = 0.9
# A step is at most this over max_norm². The curvature is about 1 where private rows look like public ones; it would be
# max_norm² if all of them were the same row, and an eighth of that is still stable.
_STEP_OF_ROWS = 16.0
# Limits of the number of steps of the correction. With fewer steps the average over their last half is not smooth; more
# steps only cost time. Chosen by hand.
_FEWEST_CORRECTION_STEPS, _MOST_CORRECTION_STEPS = 150, 300
# Share of the public curvature that the noise of the correction is computed with: a little low, so that the noise is
# overstated rather than understated. In a prototype, four seeds, on the 14 development tasks, all rows, epsilon 1: 0.85
# gains 0.5% more, and does harm on one task with heavy-tailed labels (airline, 1,000 rows: 3 to 5% on average).
CORRECTION_CURVATURE = 0.7


# Quantiles of the lengths of public gradients between which the clipping norm lies; divisor of the logarithm that
# decides the total length of all steps; the largest total length; upper limit of one step, which long rows may limit
# further. Chosen by hand.
_CLIP_QUANTILES, _WAY_DIVISOR, _FURTHEST, _LONGEST_CORRECTION_STEP = (0.5, 0.97), 0.7, 15.0, 0.1


def plan_stage(
    geometry: TransferGeometry,
    turn: Vector,
    weights: Vector,
    *,
    noise_per_clip: float,
    n_steps: int,
    size: float,
) -> Stage:
    """Return the plan of a stage.

    Parameters
    ----------
    turn : ndarray of shape (n_columns, k)
        From whitened coordinates to those of the stage, before weighting.
    weights : ndarray of shape (k,)
        Squared scale of each.
    noise_per_clip : float
        Noise of one release of the mean gradient, per unit of the clipping norm.
    size : float
        Released size of the private residuals relative to the public ones; 1 before the release.
    """
    k = len(weights)
    variance = geometry.variance * size**2
    turn = turn * np.sqrt(weights)
    turned = geometry.whitened @ turn
    norms = np.linalg.norm(turned, axis=1)
    max_norm = max(float(np.quantile(norms, 0.95)), 1e-12)
    leverage = np.minimum(1.0, max_norm / np.maximum(norms, 1e-300)) ** 2
    residuals = geometry.residuals * size
    lengths = leverage * norms * np.abs(residuals)
    # The noise of the whole stage, over all coordinates, is 2% of the residual variance: a larger clipping norm would
    # cost more in noise than it saves in bias, a smaller one the reverse.
    whole = noise_per_clip / math.sqrt(n_steps)
    clip_norm = max(
        quantile_between(lengths, math.sqrt(_STAGE_NOISE_SHARE * variance / (2 * k)) / whole, *_CLIP_QUANTILES), 1e-150
    )
    noise = whole * clip_norm
    # Descend until what is left of a shift of the size of the residuals is no larger than the noise. Not longer: along
    # directions of little private variance the iterate is a random walk, whose noise grows with the distance.
    way = math.log(max(_FOLLOWED_SHIFT * variance / (k * noise**2), 1.0001)) / _WAY_DIVISOR
    limit = n_steps * min(_LONGEST_CORRECTION_STEP, _STEP_OF_ROWS / max_norm**2)
    way = min(max(way, 1.0), _FURTHEST, limit)
    return Stage(
        map=geometry.whitening @ turn,
        weights=weights,
        max_norm=max_norm,
        clip_norm=clip_norm,
        noise=noise_per_clip * clip_norm,
        n_steps=n_steps,
        step=way / n_steps,
        unclipped=float(np.mean(lengths < clip_norm)),
        row_weight=float(np.mean(leverage * geometry.rows[:, -1] ** 2)),
    )


def shift_prior(n_columns: int) -> Vector:
    """Return how the energy of a shift is expected to be spread: half on calibration, the rest as 1/j over directions.

    On real data each doubling of the number of directions gained about the same.
    """
    rest = np.arange(1, n_columns - 1)
    return np.concatenate([np.full(min(2, n_columns), 0.25), 0.5 / (rest * math.log(2.0 * max(len(rest), 1) + 2))])


def choose_directions(
    geometry: TransferGeometry, *, n_rows: float, noise_per_clip: float, n_steps: int, size: float
) -> tuple[NDArray[np.int64], Vector]:
    """Return which coordinates to correct and their weights, the largest 1, by water-filling."""
    variance = geometry.variance * size**2
    prior = geometry.sampling + variance * shift_prior(len(geometry.solution))
    # Energy of this coordinate that the private sample could estimate without noise.
    useful = prior**2 / (prior + variance / n_rows)
    noise = (_ASSUMED_CLIP * noise_per_clip) ** 2 * variance / n_steps
    shares = water_fill(noise / np.maximum(useful, 1e-300))
    chosen = np.flatnonzero(shares > _LEAST_SHARE * shares.max())
    return chosen, shares[chosen] / shares.max()


def dyadic_blocks(chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return positions in `chosen`: the calibrating coordinates together, then 2, 4, 8, … directions."""
    first = np.flatnonzero(chosen < 2)
    rest = np.flatnonzero(chosen >= 2)
    blocks = [first] if len(first) else []
    before, size = len(blocks), 2
    while len(rest):
        block, rest = rest[:size], rest[size:]
        # A short remainder joins the block before it.
        if len(block) < size / 2 and len(blocks) > before:
            blocks[-1] = np.concatenate([blocks[-1], block])
        else:
            blocks.append(block)
        size *= 2
    return blocks


# The scout: few bounded numbers per row, summed once. It tells where the scores of private rows lie, and how large
# their residuals are.
#
# Largest length of a row's numbers. Each is at most 1; clipping the row at this length costs little bias.
SCOUT_NORM = 1.6
# The scout gets the share of the budget that makes its noise this large, but at most a tenth, and at least a hundredth.
# It has none below the first signal (n times mu), and all of it from the second on. Chosen by hand.
_SCOUT_NOISE, _SCOUT_SHARES, _SCOUT_SIGNALS = 0.03, (0.01, 0.1), (40.0, 60.0)

# The plane: level, slope and mix of the public models.
#
# Number of its releases, and of those before its estimate is averaged. Chosen by hand.
PLANE_STEPS, PLANE_FIRST = 40, 10
# Energy of a shift that is expected along level, slope and mix, as shares of the residual variance; and the signals
# between which slope and mix come in: with less, the whole budget goes to the level. Chosen by hand.
_PLANE_PRIOR, _MIX_SIGNALS = (0.3, 0.1, 0.3), (50.0, 100.0)
# Clipping norm that the plane's water-filling assumes, in standard deviations of the residuals. Chosen by hand.
_ASSUMED_PLANE_CLIP = 1.5
# Total length of the plane's steps, in Newton steps, below and above the given signals, in between linear. None at
# first: iterated clipping leads towards the median. Then more, which follows a shift further where private rows vary
# less than public ones, and costs noise. Small steps stay where the quadratic model holds. Chosen by hand.
_PLANE_WAYS = ((60.0, 0.0), (120.0, 3.0), (150.0, 3.0), (600.0, 8.0))
# Noise of the whole plane that sets its clipping norm, as a share of the residual variance, and the limits of the norm:
# this factor times two quantiles of the lengths of public gradients. In a prototype, four seeds, on the development
# tasks, shares of 0.001 and 0.01 differ by 0.1%.
_PLANE_NOISE_SHARE, _PLANE_CLIP_FACTOR, _PLANE_CLIP_QUANTILES = 0.003, 1.3, (0.9, 0.99)
# Least clipping norm of the plane, in standard deviations of the residuals: where public models fit most public rows
# without error, the quantiles may be 0. Chosen by hand.
_LEAST_PLANE_CLIP = 1e-3
# A row longer than this in level, slope and mix, each about 1, is weighted down.
PLANE_MAX_NORM = 4.0
# Least share of unclipped public rows that the plane's curvature is computed with. Chosen by hand.
_LEAST_PLANE_CURVATURE = 0.3
# Least standard deviation of slope and mix, in standard deviations of the residuals: columns of predictions that
# hardly vary would be scaled up to noise.
_LEAST_SCORE_DEVIATION = 0.1

# The directions: the correction of all coordinates that the budget can pay for.
#
# Signals and numbers of rows between which they come in; the least share of the plane then, and the signal at which
# the plane would have all of the budget: at ten times this signal it has a tenth. On nine development tasks with 1,000
# rows and epsilon 1, the signal 22 has 0.6% more error than 35.
_DIRECTION_SIGNALS, _DIRECTION_ROWS = (80.0, 140.0), (150.0, 300.0)
_LEAST_PLANE_SHARE, _PLANE_SIGNAL = 0.06, 30.0
# Directions that would get less than this share of the budget are left out.
_LEAST_DIRECTIONS_SHARE = 0.02
# Of the directions' share, the parts for the row mean, and for the sizes and the check each: what makes their noise
# about 1 / this of their range, within limits. Smaller parts make the gate less sure: in a prototype, four seeds, with
# a hundredth each, all rows and epsilon 1, the development tasks gain 0.5% less.
_ROW_MEAN_PART, _FACTS_PRECISION, _FACTS_PARTS = 0.02, 60.0, (0.02, 0.08)

# The gain: at the end, what several parts of the whole change gain on private rows, beside the error of the base. A
# noisy scout may take private rows for twenty times nearer than they are, and the change by slope and mix is then
# twenty times too large; a smaller part of it is then used, or none.
#
# The parts; where a row's numbers are clipped, each by itself in residual variances, and all together in the same unit.
CHANGE_PARTS, GAIN_LIMIT, GAIN_NORM = np.array([1.0, 0.3, 0.1]), 1.0, 1.5
# Noise of the gain, in units of `GAIN_NORM`, and limits of the share of the budget that makes it so. Chosen by hand.
_GAIN_NOISE, _GAIN_SHARES = 0.06, (0.003, 0.05)

# Nothing is released if the level alone would be this uncertain: variance of a level, clipped at three standard
# deviations, relative to the residual variance; and the factor on the noise, a safety margin. Chosen by hand.
_MOST_LEVEL_VARIANCE, _LEVEL_NOISE_MARGIN = 0.15, 1.2


def worthwhile(budget: Budget) -> bool:
    """Return whether the budget is enough to correct at least the level."""
    noise = budget.noise(3.0)
    return budget.worthwhile and _LEVEL_NOISE_MARGIN * noise**2 + 1.0 / budget.n_rows <= _MOST_LEVEL_VARIANCE


def budget_shares(signal: float, n_rows: float) -> dict[str, float]:
    """Return the share of the budget (of mu squared) for each part of a fit; a part without a share is left out.

    First the level has all of it, then the scout and the rest of the plane come in, then the directions. The shares
    change continuously with `signal`, the number of rows times mu, except that directions below 2% are left out.

    Examples
    --------
    >>> list(budget_shares(20.0, 1000.0)), list(budget_shares(70.0, 1000.0))
    (['plane'], ['scout', 'plane', 'gain'])
    >>> shares = budget_shares(1000.0, 5000.0)
    >>> list(shares), round(sum(shares.values()), 12)
    (['scout', 'plane', 'row mean', 'sizes', 'correction', 'check', 'gain'], 1.0)
    """
    least, most = _SCOUT_SHARES
    precise = (SCOUT_NORM / (_SCOUT_NOISE * signal)) ** 2
    scout = _ramp(signal, *_SCOUT_SIGNALS) * min(max(least, precise), most)
    low, high = _GAIN_SHARES
    gain = _ramp(signal, *_SCOUT_SIGNALS) * min(max(low, (_GAIN_NOISE * signal) ** -2), high)
    rest = 1.0 - scout - gain
    opened = _ramp(signal, *_DIRECTION_SIGNALS) * _ramp(n_rows, *_DIRECTION_ROWS)
    plane = rest * (1.0 - opened) + opened * min(rest, max(_LEAST_PLANE_SHARE, _PLANE_SIGNAL / signal))
    directions = rest - plane
    if directions < _LEAST_DIRECTIONS_SHARE:
        plane, directions = rest, 0.0
    low, high = _FACTS_PARTS
    facts = min(max(low, (_FACTS_PRECISION / signal) ** 2 / max(directions, 1e-300)), high)
    parts = {"row mean": _ROW_MEAN_PART, "sizes": facts, "correction": 1.0 - _ROW_MEAN_PART - 2 * facts, "check": facts}
    shares = {"scout": scout, "plane": plane} | {part: directions * share for part, share in parts.items()}
    shares["gain"] = gain
    return {part: share for part, share in shares.items() if share > 0.0}


def _ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, in between linear."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class PlaneFeatures:
    """Slope and mix of the public models, about 0 with standard deviation 1 on public rows: affine maps of the scores.

    Parameters
    ----------
    map : ndarray of shape (n_models, k)
    shift : ndarray of shape (k,)
        k is the number of models: the slope, then the mix, which compares the last model with the others first.
    """

    map: NDArray[np.float64]
    shift: Vector

    def of(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the features of each row, given the scores of the models."""
        return combined(scores, self.map) + self.shift

    def recentred(self, center: Vector, scale: Vector) -> "PlaneFeatures":
        """Return features about `center` with another scale."""
        return PlaneFeatures(self.map / scale, (self.shift - center) / scale)


def plane_features(public: PublicBase, deviation: float) -> PlaneFeatures:
    """Return slope and mix, orthogonal on public rows; `deviation` is the standard deviation of the residuals."""
    least = _LEAST_SCORE_DEVIATION * deviation
    maps = _score_maps(public.base.weights)[:, ::-1]  # first the blend
    columns = public.scores.T @ maps
    center = columns.mean(axis=0)
    # Without the parts that are in proportion to earlier ones.
    for j in range(1, maps.shape[1]):
        for i in range(j):
            first = columns[:, i] - center[i]
            along = float(first @ (columns[:, j] - center[j])) / max(float(first @ first), 1e-300)
            maps[:, j] -= along * maps[:, i]
            columns = public.scores.T @ maps
            center = columns.mean(axis=0)
    scale = np.maximum(columns.std(axis=0), least)
    return PlaneFeatures(maps / scale, -center / scale)


@dataclass(frozen=True, eq=False)
class PlaneStage:
    """How the plane runs; everything from public data, earlier releases, the number of rows and the budget.

    Parameters
    ----------
    weights : ndarray of shape (k,)
        Scales of the constant, slope and mix, by water-filling; the largest is 1. k is 1 if the level is all.
    clip_norm : float
    curvature : float
        Share of unclipped public rows: what a gradient is divided by.
    bias : ndarray of shape (k,)
        What clipping adds to the mean gradient on public rows, where there is no shift.
    step : float
        Length of a step, in Newton steps.
    variance : ndarray of shape (k,)
        Variance of the estimate from noise and sampling.
    noise_variance : ndarray of shape (k,)
        The part of it that is due to the noise of the releases.
    """

    weights: Vector
    clip_norm: float
    curvature: float
    bias: Vector
    step: float
    variance: Vector
    noise_variance: Vector


@dataclass(frozen=True, eq=False)
class ShiftedPlan:
    """What a fit that allows for a shift will release, made from public facts alone.

    Parameters
    ----------
    public : PublicBase
    geometry : TransferGeometry
        Of the base.
    budget : Budget
    shares : dict
        Of the budget, for each part in the order of its charges.
    n_steps : int
        Number of releases of the correction.
    """

    public: PublicBase
    geometry: TransferGeometry
    budget: Budget
    shares: dict[str, float]
    n_steps: int

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged, in the order of `shares`.

        N releases with noise multiplier sqrt(N / share) / mu have together the share of a mu-Gaussian-DP budget, and
        the shares add up to 1.
        """
        return [(Repeated(Gaussian(self._multiplier(part)), self._n_releases(part)), part) for part in self.shares]

    @property
    def signal(self) -> float:
        """Number of rows times mu: what noise is divided by."""
        return self.budget.n_rows * self.budget.mu / self.budget.factor

    def _n_releases(self, part: str) -> int:
        return {"plane": PLANE_STEPS, "correction": self.n_steps}.get(part, 1)

    def _multiplier(self, part: str) -> float:
        return math.sqrt(self._n_releases(part) / self.shares[part]) / self.budget.mu

    def noise(self, part: str) -> float:
        """Return the noise of one release of a mean of clipped terms, per unit of the clipping norm."""
        return self.budget.factor * self._multiplier(part) / self.budget.n_rows

    @cached_property
    def residuals(self) -> Vector:
        """Errors of the base on public rows that its models were not fitted to."""
        return np.asarray(self.public.labels - self.public.base.weights @ self.public.scores)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of these errors, at least a small part of that of the labels."""
        least = _LEAST_OFFSET_ERROR * float(np.std(self.public.labels))
        return max(math.sqrt(float(np.mean(self.residuals**2))), least, 1e-150)

    @cached_property
    def features(self) -> PlaneFeatures:
        """Slope and mix of the public models, as they are on public rows."""
        return plane_features(self.public, self.deviation)

    @cached_property
    def _plane_columns(self) -> NDArray[np.float64]:
        """1, slope and mix of each public row."""
        return np.column_stack([np.ones(len(self.residuals)), self.features.of(self.public.scores)])

    def plane(self, size: float) -> PlaneStage:
        """Return how the plane runs; `size` is how much larger private residuals are than public ones, at least 1."""
        residuals, variance, n_rows = self.residuals, self.deviation**2, self.budget.n_rows
        signal = self.signal * math.sqrt(self.shares["plane"])
        level, slope, mix = _PLANE_PRIOR
        prior = np.array([level, slope, *[mix] * (self.features.map.shape[1] - 1)])
        prior[1:] *= _ramp(self.signal, *_MIX_SIGNALS) if "scout" in self.shares else 0.0
        useful = np.maximum(prior**2 / (prior + 1.0 / n_rows), 1e-300)
        shares = water_fill((_ASSUMED_PLANE_CLIP / signal) ** 2 / useful)
        # In their order: where the mix is used, so is the slope, with little weight if its share is small.
        k = 1 + int(np.flatnonzero(shares > _LEAST_SHARE)[-1])
        scales = np.sqrt(np.maximum(shares[:k], _LEAST_SHARE) / shares.max())
        columns = self._plane_columns[:, :k] * scales
        norms = np.linalg.norm(columns, axis=1)
        leverage = np.minimum(1.0, PLANE_MAX_NORM / norms) ** 2
        lengths = leverage * norms * np.abs(residuals)
        limits = _PLANE_CLIP_FACTOR * np.quantile(lengths, _PLANE_CLIP_QUANTILES)
        clip_norm = size * float(np.clip(math.sqrt(_PLANE_NOISE_SHARE * variance / k) * signal, *limits))
        clip_norm = max(clip_norm, _LEAST_PLANE_CLIP * self.deviation)
        curvature = max(float(np.mean(size * lengths < clip_norm)), _LEAST_PLANE_CURVATURE)
        resized = residuals * size
        held = resized * np.minimum(1.0, clip_norm / np.maximum(size * lengths, 1e-300))
        # Clipping changes the mean of skewed residuals. The linear part is removed: a real slope is no bias.
        bias = (leverage[:, None] * columns).T @ (held - curvature * resized) / len(residuals)
        signals, ways = zip(*_PLANE_WAYS, strict=True)
        step = float(np.interp(self.signal, signals, ways)) / PLANE_STEPS
        noise = self.noise("plane") * clip_norm
        # A column that varies less than its scale, because models agree on public rows, has less curvature.
        own = [min(1.0, square) for square in np.mean(self._plane_columns[:, :k] ** 2, axis=0)]
        averaged = np.array([_noise_of_newton_average(PLANE_STEPS, PLANE_FIRST, step, least) for least in own])
        spread = (noise / (scales * curvature)) ** 2 * averaged
        sampling = size**2 * variance / (n_rows * curvature)
        return PlaneStage(scales, clip_norm, curvature, bias, step, spread + sampling, spread)

    def correction(self, mean: Vector, size: float) -> tuple[NDArray[np.int64], Stage]:
        """Return the coordinates that are corrected, and the stage.

        `mean` is the released mean of the private rows, `size` the released size of their residuals relative to the
        public ones.
        """
        noise = self.noise("correction")
        chosen, weights = choose_directions(
            self.geometry, n_rows=self.budget.n_rows, noise_per_clip=noise, n_steps=self.n_steps, size=size
        )
        turn = _contraction(mean)[:, chosen]
        return chosen, plan_stage(self.geometry, turn, weights, noise_per_clip=noise, n_steps=self.n_steps, size=size)


def shifted_plan(public: PublicBase, geometry: TransferGeometry, budget: Budget) -> ShiftedPlan:
    """Return the plan of a fit that allows for a shift; `geometry` is that of the base."""
    shares = budget_shares(budget.n_rows * budget.mu / budget.factor, budget.n_rows)
    n_steps = _FEWEST_CORRECTION_STEPS
    if "correction" in shares:
        whole = budget.noise(1.0) / math.sqrt(shares["correction"])
        chosen, weights = choose_directions(geometry, n_rows=budget.n_rows, noise_per_clip=whole, n_steps=1, size=1.0)
        # The noise depends on the distance that the correction may go, not on the number of steps.
        squares = geometry.whitened[:, chosen] ** 2 @ weights
        longest = min(_LONGEST_CORRECTION_STEP, _STEP_OF_ROWS / max(float(np.quantile(squares, 0.95)), 1e-12))
        n_steps = min(max(math.ceil(_FURTHEST / longest), _FEWEST_CORRECTION_STEPS), _MOST_CORRECTION_STEPS)
    return ShiftedPlan(public, geometry, budget, shares, n_steps)


# Curvatures, relative to the assumed one, over which the worst noise is taken. Chosen by hand.
_CURVATURES = (0.4, 0.55, 0.7, 0.85, 1.0, 1.15)


@lru_cache(maxsize=256)
def _noise_of_newton_average(n_steps: int, first: int, step: float, least: float) -> float:
    """Return the worst variance, over curvatures, of the averaged ends of Newton steps, per variance of a release.

    `least` is one more curvature, relative to the assumed one.

    From the iterate θ_t with gradient g_t = h θ_t + ξ_t, a whole step ends at θ_t - g_t, and the iterate moves on to
    θ_t - step g_t. Both are linear in the noise ξ of the releases; their coefficients are computed exactly.
    """
    worst = 0.0
    for h in (*_CURVATURES, least):
        iterate, ends = np.zeros(n_steps), np.zeros(n_steps)
        for t in range(n_steps):
            gradient = h * iterate
            gradient[t] += 1.0
            if t >= first:
                ends += iterate - gradient
            iterate = iterate - step * gradient
        worst = max(worst, float(np.sum((ends / (n_steps - first)) ** 2)))
    return worst


def _contraction(mean: Vector) -> Vector:
    """Return a contraction along the private rows' mean, where their second moment is 1 + |mean|².

    Without it, steps that suit public rows would be too long there.
    """
    away = np.concatenate([[0.0], mean[1:]])
    square = float(away @ away)
    along = (1.0 / math.sqrt(1.0 + square) - 1.0) / square if square > 0 else 0.0
    return np.asarray(np.eye(len(mean)) + along * np.outer(away, away))


# The bias of clipping, estimated from public residuals

# Largest number of entries of the public rows that `ClipBias` reads, and the smallest number of rows: with more rows, a
# sample stands for all. They trade time for the sampling error of the bias. Chosen by hand.
_CLIP_BIAS_ENTRIES, _CLIP_BIAS_ROWS = 12_000_000, 500
# Smallest share of unclipped residuals that is used: public rows estimate a smaller one badly. Chosen by hand.
_LEAST_CLIP_SLOPE = 0.05
# Newton steps to the level at which clipped residuals have mean zero. A few suffice; more only cost time.
_LEVEL_STEPS = 20
# Number of coordinates in the first block that shares one estimate of the size of biases; later blocks double. Larger
# blocks are estimated more precisely but mix different sizes. Chosen by hand.
_BIAS_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Clipped:
    """Gradients clipped at one length.

    Parameters
    ----------
    slope : float
        How fast the clipped gradient follows the solution, 1 without clipping.
    square : float
        Mean square of a clipped residual.
    shift, shift_variance : ndarray
        How far from the least-squares solution clipped gradients vanish, in eigencoordinates, and the variance of this
        estimate.
    """

    slope: float
    square: float
    shift: Vector
    shift_variance: Vector


class ClipBias:
    """The bias that clipping gives to gradients, estimated from public rows and leave-one-out residuals.

    The gradient of a row is its residual times its weighted coordinates. Clipping it at length c clips the residual at
    c over the length of the coordinates. Where residuals are skewed, or wider for some rows than for others, clipped
    gradients don't vanish where the squared loss is least; the private rows then lead to a wrong solution, however
    many they are. Public rows estimate the difference up to their own sampling error.
    """

    def __init__(self, geometry: TransferGeometry) -> None:
        n, k = geometry.rows.shape
        chosen = np.unique(
            np.linspace(0, n - 1, min(n, max(_CLIP_BIAS_ENTRIES // k, _CLIP_BIAS_ROWS))).astype(np.int64)
        )
        self._geometry = geometry
        self._residuals = geometry.residuals[chosen] / math.sqrt(geometry.variance)
        rows = geometry.rows[chosen]
        self._constant = rows[:, -1]
        self._turned = rows @ geometry.vectors
        self._squares = self._turned**2
        # Along its own eigenvectors the variance of a sample differs from that of new rows.
        seen = geometry.values > 1e-10 * geometry.values[0]
        self._ratio = np.where(seen, geometry.spectrum, 0.0) / np.where(seen, geometry.values, 1.0)
        self._unseen = np.where(seen, 0.0, geometry.spectrum)

    def measure(self, weights: Vector, clip: float, variance: float) -> Clipped:
        """Return what clipping at `clip` standard deviations of the residuals does.

        Parameters
        ----------
        weights : ndarray
            Weights of the squared eigencoordinates.
        clip : float
        variance : float
            Mean square that residuals are expected to have.
        """
        squares = self._squares @ (weights * self._ratio) + float(weights @ self._unseen)
        limit = clip * math.sqrt(variance) / np.sqrt(np.maximum(squares, 1e-300))
        residuals, constant = self._residuals * math.sqrt(variance), self._constant
        n = len(residuals)
        level = 0.0
        for _ in range(_LEVEL_STEPS):
            away = residuals - level * constant
            slope = float(constant**2 @ (np.abs(away) < limit))
            level += float(constant @ np.clip(away, -limit, limit)) / max(slope, _LEAST_CLIP_SLOPE * n)
        level -= float(constant @ residuals) / max(float(constant @ constant), 1e-300)
        away = residuals - level * constant
        clipped = np.clip(away, -limit, limit)
        total = max(float(squares.sum()), 1e-300)
        slope = max(float(squares @ (np.abs(away) < limit)) / total, _LEAST_CLIP_SLOPE)
        # The level explains a common skew. What a least-squares and a clipped fit of public rows differ by beyond it:
        differs = clipped / slope - residuals
        moment = self._geometry.values + self._geometry.ridge
        bias = self._turned.T @ differs / (n * moment)
        error = self._squares.T @ differs**2 / (n * moment) ** 2
        ratio = self._prior_to_error(bias, error)
        along = self._geometry.vectors[-1]
        shift = level * along + bias * ratio / (1.0 + ratio)
        shift_variance = error * np.maximum(ratio / (1.0 + ratio), along**2)
        return Clipped(slope, float(squares @ clipped**2) / total, shift, shift_variance)

    def _prior_to_error(self, bias: Vector, error: Vector) -> Vector:
        """Return prior variances of biases over variances of their sampling error, estimated block by block."""
        ratio = np.zeros_like(bias)
        low, size = 0, _BIAS_BLOCK
        while low < len(bias):
            high = low + size if low + 2 * size <= len(bias) else len(bias)
            block = slice(low, high)
            moment = self._geometry.spectrum[block]
            seen = float(moment @ bias[block] ** 2) / max(float(moment @ error[block]), 1e-300)
            # Sampling error alone makes this 1 on average. In a small block it may hide a bias of its own size, so less
            # than 1 is subtracted.
            ratio[block] = max(0.0, seen - 1.0 + min(1.0, _BIAS_BLOCK / (high - low)))
            low, size = high, 2 * size
        return ratio


# The plan for the same population: Kalman steps

# Number of releases. Each is planned from what earlier ones will have taught; more than four gain nothing measurable.
_KALMAN_RELEASES = 4
# Clipping norms tried, in standard deviations of the residuals: small ones have the best ratio of signal to noise,
# large ones the least bias. The plan takes the one of least expected error, so a finer grid would gain little.
_KALMAN_CLIPS = 2.0 ** np.arange(-1.5, 3.5, 0.5)


@dataclass(frozen=True, eq=False)
class Step:
    """One release: weights of eigencoordinates, length of clipped gradients, where to take them, and what they move."""

    weights: Vector
    clip_norm: float
    shift: Vector
    gain: Vector


@dataclass(frozen=True, eq=False)
class SamePopulationPlan:
    """All releases at one clipping norm, made from public facts alone.

    Parameters
    ----------
    steps : list of Step
    kept : ndarray
        Share of the estimated change that is an error of the public solution; the rest may be the bias of clipping.
    noise_variance : ndarray
        Variance of the estimated change that is due to the noise of the releases.
    error : float
        Expected loss above that of the best solution.
    multiplier : float
        Noise multiplier of each release.
    """

    steps: list[Step]
    kept: Vector
    noise_variance: Vector
    error: float
    multiplier: float

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged: N releases with noise multiplier sqrt(N) / mu are together exactly mu-Gaussian-DP."""
        return [(Repeated(Gaussian(self.multiplier), len(self.steps)), "gradient")]


def same_population_plan(geometry: TransferGeometry, budget: Budget) -> SamePopulationPlan:
    """Return the plan for the same population: the clipping norm whose expected error is least."""
    bias = ClipBias(geometry)
    plans = [_plan(geometry, bias, float(clip), budget) for clip in _KALMAN_CLIPS]
    return min(plans, key=lambda plan: plan.error)


def _plan(geometry: TransferGeometry, bias: ClipBias, clip: float, budget: Budget) -> SamePopulationPlan:
    """Return the releases at one clipping norm.

    Private gradients vanish at the public solution's error plus the bias of clipping, never at the error alone. So the
    filter follows their sum, and the error's share of the sum is kept at the end.
    """
    multiplier = math.sqrt(_KALMAN_RELEASES) / budget.mu
    # Standard deviation of the noise in one mean gradient, per unit of its clipping norm.
    noise_per_clip = budget.factor * multiplier / budget.n_rows
    moment, noise_variance = geometry.spectrum, geometry.noise_variance
    # Ridge: variance of the sampling error, plus a bias taken to be of the size that leave-one-out found best.
    prior = noise_variance / (len(geometry.residuals) * (geometry.values + geometry.ridge))
    variance = noise_variance + float(moment @ prior)
    even = np.full(len(moment), 1.0 / max(float(moment.sum()), 1e-300))
    first = bias.measure(even, clip, variance)
    both = prior + first.shift_variance
    kept = prior / np.maximum(both, 1e-300)
    slope = first.slope
    steps, spread = [], np.zeros(len(moment))
    for _ in range(_KALMAN_RELEASES):
        clip_norm = clip * math.sqrt(variance)
        noise = (noise_per_clip * clip_norm) ** 2
        weights = _most_useful_weights(moment, both, kept, noise / slope**2)
        clipped = bias.measure(weights, clip, variance)
        slope = clipped.slope
        signal = np.sqrt(weights) * slope * moment
        gain = both * signal / (signal**2 * both + noise + weights * moment * clipped.square / budget.n_rows)
        steps.append(Step(weights, clip_norm, clipped.shift, gain))
        # The change moves on by gain times what is left of the solution, as far as clipping lets it through.
        spread = spread * (1.0 - gain * signal) ** 2 + gain**2 * noise
        both = both * (1.0 - gain * signal)
        variance = noise_variance + float(moment @ (prior * (1.0 - kept) + kept**2 * both))
    return SamePopulationPlan(steps, kept, spread, variance - noise_variance, multiplier)


def _most_useful_weights(moment: Vector, prior: Vector, kept: Vector, noise: float) -> Vector:
    """Return weights b with Σ moment b = 1 that most reduce Σ moment * kept² * posterior variance.

    The reduction along one coordinate is kept² moment² prior² · moment b / (moment² prior b + noise). Setting its
    derivatives to a common value gives shares moment b = max(0, level kept √noise - noise / (moment prior)).
    """
    shares = water_fill(noise / np.maximum(moment * prior, 1e-300), kept * math.sqrt(noise))
    return np.asarray(shares / np.maximum(moment, 1e-300))
