"""The transfer regressor before it sees a private row: public preparation, and the plan of what it will release.

`transfer_geometry` prepares the public rows. `shifted_plan` plans a fit that allows for a shift, the default. The
second half of the file, `ClipBias` and `same_population_plan`, serves only the prior "same-population". A plan names
its releases and their noise (`charges`); `fit` and `forecast` both use it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public
from dpadapt.learning.descent import constant, tail_noise
from dpadapt.learning.estimator import Budget
from dpadapt.learning.preparation import (
    WHITENING_FLOOR,
    Remembered,
    centre_and_scale,
    quantile_between,
    ridge_by_leave_one_out,
    shrunk_spectrum,
)
from dpadapt.learning.shrinkage import water_fill
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.transfer.public_models import Offset, remembered_offset

Vector = NDArray[np.float64]

# Public preparation

# Ridge strengths tried for the public model, in mean eigenvalues. Smaller ones would amplify directions in which public
# rows hardly vary but private rows of a shifted population may. Chosen by hand.
_PUBLIC_RIDGES = np.logspace(-2, 1, 7)
# Rows longer than 95% of the public rows are shortened to that length, private and new rows alike. With more than
# `_ROWS_PER_COLUMN_TO_TRUST` public rows per column the limit is `_LONGER_ROWS` times that length: a shifted
# population has many rows that are somewhat longer, and a well-estimated model predicts them better as they are.
# Chosen by hand.
_ROWS_PER_COLUMN_TO_TRUST, _LONGER_ROWS = 20, 2.0
# Least error of an offset on a public row, in standard deviations of the public labels. A larger one clips less of a
# shift where the offset fits public rows closely, and adds noise there. As in `PrivateLinearRegression`.
_LEAST_OFFSET_ERROR = 0.05
# Upper limit of the correction for optimism when the label noise is computed from leave-one-out residuals. Chosen by
# hand.
_MOST_OPTIMISM = 20.0


@dataclass(frozen=True, eq=False)
class TransferGeometry:
    """Public preparation. Coordinate 0 is the constant, 1 the slope of the public model, the others directions.

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
    slope : ndarray of shape (n_features + 1,)
        The direction in which a step changes all predictions in proportion: the solution, or the column of an offset.
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
    slope: NDArray[np.float64]

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
        """Orthonormal: first the constant, then the public model's slope, then eigenvectors by falling variance."""
        root = np.sqrt(self._floored)
        first = np.column_stack([self.vectors[-1] * root, self.vectors.T @ self.slope * root])
        full, _ = np.linalg.qr(np.column_stack([first, np.eye(len(root))]))
        return np.asarray(full[:, : len(root)])

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """The map from standardised rows to corrected coordinates."""
        return np.asarray((self.vectors / np.sqrt(self._floored)) @ self._turn)

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


def shortened_rows(
    X: NDArray[Any], center: NDArray[np.float64], scale: NDArray[np.float64], longest: float
) -> NDArray[np.float64]:
    """Return standardised rows with their 1, none longer than `longest`.

    Each row is a function of itself alone. A row too long for a float comes out not finite or zero, silently.
    """
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    with np.errstate(all="ignore"):
        np.subtract(X, center, out=rows[:, :-1])
        rows[:, :-1] /= scale
        rows[:, -1] = 1.0
        rows *= np.minimum(1.0, longest / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
    return rows


_GEOMETRIES: Remembered[TransferGeometry] = Remembered()


def remembered_geometry(
    public: Public, X: NDArray[np.float64], y: NDArray[np.float64], *, offset: bool = False
) -> TransferGeometry:
    """Return `transfer_geometry(...)`, made once for each `public` as long as its content stays the same."""
    return _GEOMETRIES.get(public, [X, y, np.array(offset)], lambda: transfer_geometry(X, y, offset=offset))


def prepared_with(
    model: Any, public: Public, X: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[TransferGeometry, Offset | None]:
    """Return the public preparation, with the offset of a model that the user gave."""
    if model is None:
        return remembered_geometry(public, X, y), None
    offset = remembered_offset(model, public, X, y)
    rows = offset.beside_public(X)
    return remembered_geometry(public, rows, y[offset.rows] - offset.scores, offset=True), offset


def transfer_geometry(X: NDArray[np.float64], y: NDArray[np.float64], *, offset: bool = False) -> TransferGeometry:
    """Prepare public rows and labels: standardise, fit the ridge of least leave-one-out error, find coordinates.

    With an `offset`, the last column of `X` holds the predictions of another public model, and `y` its errors on rows
    that it was not fitted to. No ridge model is fitted on top: the public solution is 0.
    """
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, d = X.shape
    center, scale = centre_and_scale(X, least=1e-10)
    raw = np.column_stack([(X - center) / scale, np.ones(n)])
    norms = np.linalg.norm(raw, axis=1)
    longest = (_LONGER_ROWS if n > _ROWS_PER_COLUMN_TO_TRUST * d else 1.0) * float(np.quantile(norms, 0.95))
    rows = raw * np.minimum(1.0, longest / norms)[:, None]
    target_center = 0.0 if offset else float(y.mean())
    y = y - target_center
    model = ridge_by_leave_one_out(rows, y, _PUBLIC_RIDGES)
    solution, residuals, slope, labels = model.solution, model.residuals, model.solution, y
    if offset:
        labels = y + X[:, -1] - np.mean(y + X[:, -1])
        # A public model without error would set the clipping norms to 0 and clip any shift away.
        least = _LEAST_OFFSET_ERROR * float(np.std(labels))
        solution, slope = np.zeros(d + 1), np.eye(d + 1)[d - 1]
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
        slope,
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
    bias : ndarray of shape (k,)
        What clipping adds to the mean gradient on public rows, where there is no shift.
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
    bias: Vector
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


# How the budget is shared: out of 200 releases with equal noise, this many for each part. 2% for the row mean, 9%
# calibration, 1.5% each for sizes, plane and check, 84.5% correction. Every part except the correction makes exactly
# this many releases; the correction makes `n_steps` with the same total cost. Chosen by hand.
RELEASES = {"row mean": 4, "calibration": 18, "sizes": 3, "plane": 3, "correction": 169, "check": 3}
# Noise of a whole stage that sets its clipping norm, as a share of the residual variance: a larger norm costs more
# noise than it saves bias, a smaller one more bias than it saves noise. Chosen by hand.
_STAGE_NOISE_SHARE = 0.02
# Size of the shift that a stage must be able to follow, as a multiple of the residual variance. Chosen by hand.
_FOLLOWED_SHIFT = 1.2
# Least length of the slope's direction after the row mean is removed from it; below, the public slope is used as it
# is. Chosen by hand.
_LEAST_SLOPE_LENGTH = 0.3
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
# overstated rather than understated. In a prototype 0.5 lost gains, and 1 did harm in 4 to 5 cells.
CORRECTION_CURVATURE = 0.7


@dataclass(frozen=True)
class StageKind:
    """Settings that differ between calibration and correction.

    Parameters
    ----------
    quantiles : (float, float)
        Of the lengths of public gradients: the clipping norm stays between them.
    divisor, furthest : float
        Divisor of the logarithm that decides the total length of all steps, and the largest total length.
    longest_step : float
        Upper limit of one step; long rows may limit it further.
    """

    quantiles: tuple[float, float]
    divisor: float
    furthest: float
    longest_step: float


# Two coordinates have so little noise that the clipping norm may be large, which reduces the bias of skewed residuals.
# Both chosen by hand; neighbouring values were not compared.
CALIBRATION = StageKind(quantiles=(0.8, 0.999), divisor=0.6, furthest=20.0, longest_step=0.5)
CORRECTION = StageKind(quantiles=(0.5, 0.97), divisor=0.7, furthest=15.0, longest_step=0.1)


def plan_stage(
    geometry: TransferGeometry,
    turn: Vector,
    weights: Vector,
    *,
    noise_per_clip: float,
    n_steps: int,
    size: float,
    kind: StageKind,
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
        Released size of the private residuals relative to the public leave-one-out residuals; 1 before the release.
    kind : StageKind
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
        quantile_between(lengths, math.sqrt(_STAGE_NOISE_SHARE * variance / (2 * k)) / whole, *kind.quantiles), 1e-150
    )
    noise = whole * clip_norm
    # Descend until what is left of a shift of the size of the residuals is no larger than the noise. Not longer: along
    # directions of little private variance the iterate is a random walk, whose noise grows with the distance.
    way = math.log(max(_FOLLOWED_SHIFT * variance / (k * noise**2), 1.0001)) / kind.divisor
    limit = n_steps * min(kind.longest_step, _STEP_OF_ROWS / max_norm**2)
    way = min(max(way, 1.0), kind.furthest, limit)
    unclipped = lengths < clip_norm
    held = np.clip(residuals, *(side * clip_norm / np.maximum(leverage * norms, 1e-300) for side in (-1, 1)))
    # Clipping changes the mean of skewed residuals. The linear part is removed: the effect of a real slope is not bias.
    bias = (leverage[:, None] * turned).T @ (held - np.mean(unclipped) * residuals) / len(residuals)
    return Stage(
        map=geometry.whitening @ turn,
        weights=weights,
        max_norm=max_norm,
        clip_norm=clip_norm,
        noise=noise_per_clip * clip_norm,
        n_steps=n_steps,
        step=way / n_steps,
        unclipped=float(np.mean(unclipped)),
        bias=bias,
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


@dataclass(frozen=True, eq=False)
class ShiftedPlan:
    """What a fit that allows for a shift will release, made from public facts alone.

    Parameters
    ----------
    geometry : TransferGeometry
    budget : Budget
    multiplier : float
        Noise multiplier of every release except those of the correction.
    noise_per_clip : float
        Noise of one such release of a mean of clipped terms, per unit of the clipping norm.
    n_steps : int
        Number of releases of the correction.
    noise_per_step : float
        Noise of one release of the correction, per unit of the clipping norm.
    """

    geometry: TransferGeometry
    budget: Budget
    multiplier: float
    noise_per_clip: float
    n_steps: int
    noise_per_step: float

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged, in the order of `RELEASES`.

        N releases with noise multiplier sqrt(N) / mu are together exactly mu-Gaussian-DP. So is a part that makes more
        or fewer of them, if its multiplier changes as the root of their number.
        """
        plans = {label: Repeated(Gaussian(self.multiplier), times) for label, times in RELEASES.items()}
        noise = self.multiplier * self.noise_per_step / self.noise_per_clip
        plans["correction"] = Repeated(Gaussian(noise), self.n_steps)
        return [(plan, label) for label, plan in plans.items()]

    def calibration(self, mean: Vector) -> Stage:
        """Return the stage that corrects level and slope, given the released mean of the private rows."""
        plane = _calibration_plane(mean)
        return plan_stage(
            self.geometry,
            plane,
            np.ones(plane.shape[1]),
            noise_per_clip=self.noise_per_clip,
            n_steps=RELEASES["calibration"],
            size=1.0,
            kind=CALIBRATION,
        )

    def correction(self, mean: Vector, size: float) -> tuple[NDArray[np.int64], Stage]:
        """Return the coordinates that are corrected, and the stage.

        `mean` is the released mean of the private rows, `size` the released size of their residuals relative to the
        public ones.
        """
        chosen, weights = choose_directions(
            self.geometry,
            n_rows=self.budget.n_rows,
            noise_per_clip=self.noise_per_step,
            n_steps=self.n_steps,
            size=size,
        )
        stage = plan_stage(
            self.geometry,
            _contraction(mean)[:, chosen],
            weights,
            noise_per_clip=self.noise_per_step,
            n_steps=self.n_steps,
            size=size,
            kind=CORRECTION,
        )
        return chosen, stage


def shifted_plan(geometry: TransferGeometry, budget: Budget) -> ShiftedPlan:
    """Return the plan of a fit that allows for a shift."""
    multiplier = math.sqrt(sum(RELEASES.values())) / budget.mu
    noise_per_clip = budget.factor * multiplier / budget.n_rows
    share = RELEASES["correction"]
    chosen, weights = choose_directions(
        geometry, n_rows=budget.n_rows, noise_per_clip=noise_per_clip, n_steps=share, size=1.0
    )
    # The noise depends on the distance that the correction may go, not on the number of steps.
    squares = geometry.whitened[:, chosen] ** 2 @ weights
    longest = min(CORRECTION.longest_step, _STEP_OF_ROWS / max(float(np.quantile(squares, 0.95)), 1e-12))
    n_steps = min(max(math.ceil(CORRECTION.furthest / longest), _FEWEST_CORRECTION_STEPS), _MOST_CORRECTION_STEPS)
    noise_per_step = noise_per_clip * math.sqrt(n_steps / share)
    return ShiftedPlan(geometry, budget, multiplier, noise_per_clip, n_steps, noise_per_step)


def _calibration_plane(mean: Vector) -> Vector:
    """Return two directions: the one that raises predictions by the least change of coefficients, and the slope.

    If the mean of the private rows differs from that of the public rows, their mean residual is explained by a change
    along their mean, not by the constant alone. The first is scaled so that the private rows' coordinate is about 1.
    """
    lift = mean / float(mean @ mean)
    if len(mean) < 2:
        return np.asarray(lift[:, None])
    slope = np.eye(len(mean))[1] - mean * (mean[1] / float(mean @ mean))
    length = float(np.linalg.norm(slope))
    slope = slope / length if length > _LEAST_SLOPE_LENGTH else np.eye(len(mean))[1]
    return np.column_stack([lift, slope])


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
    error : float
        Expected loss above that of the best solution.
    multiplier : float
        Noise multiplier of each release.
    """

    steps: list[Step]
    kept: Vector
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
    steps = []
    for _ in range(_KALMAN_RELEASES):
        clip_norm = clip * math.sqrt(variance)
        noise = (noise_per_clip * clip_norm) ** 2
        weights = _most_useful_weights(moment, both, kept, noise / slope**2)
        clipped = bias.measure(weights, clip, variance)
        slope = clipped.slope
        signal = np.sqrt(weights) * slope * moment
        gain = both * signal / (signal**2 * both + noise + weights * moment * clipped.square / budget.n_rows)
        steps.append(Step(weights, clip_norm, clipped.shift, gain))
        both = both * (1.0 - gain * signal)
        variance = noise_variance + float(moment @ (prior * (1.0 - kept) + kept**2 * both))
    return SamePopulationPlan(steps, kept, variance - noise_variance, multiplier)


def _most_useful_weights(moment: Vector, prior: Vector, kept: Vector, noise: float) -> Vector:
    """Return weights b with Σ moment b = 1 that most reduce Σ moment * kept² * posterior variance.

    The reduction along one coordinate is kept² moment² prior² · moment b / (moment² prior b + noise). Setting its
    derivatives to a common value gives shares moment b = max(0, level kept √noise - noise / (moment prior)).
    """
    shares = water_fill(noise / np.maximum(moment * prior, 1e-300), kept * math.sqrt(noise))
    return np.asarray(shares / np.maximum(moment, 1e-300))
