"""Plans of the private transfer regressor: clip level, step length and coordinates, without a private row."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public
from dpadapt.learning.descent import constant, tail_noise
from dpadapt.learning.estimator import quantile_between
from dpadapt.learning.preparation import Remembered, shrunk_spectrum
from dpadapt.learning.shrinkage import _water_filled, water_fill

# What the private transfer regressor knows before it sees a private row: public model, coordinates, residuals.


# Public ridge strengths tried, in mean eigenvalues. The floor keeps a public model that is perfect on its own
# population from amplifying directions it has hardly seen, which a shifted population may use.
_RIDGES = np.logspace(-2, 1, 7)
# No direction of the whitening is amplified beyond this share of the mean eigenvalue.
_FLOOR = 1e-2
# Rows longer than 95% of the public ones are shortened to that length, private and new rows alike. With many public
# rows per column, `_MANY`, only those twice as long: a population that has shifted has many rows that are somewhat
# longer, and a model that is well known predicts them better as they are.
_MANY, _LONGEST = 20, 2.0
# Most that the optimism of leave-one-out residuals may explain when the label noise is told from them.
_MOST_OPTIMISM = 20.0


@dataclass(frozen=True, eq=False)
class TransferGeometry:
    """Public preparation. Coordinates 0 and 1 calibrate (constant, slope of the public model), the rest are directions.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
        Standardisation; a column that is constant in public has scale infinity and is left out.
    target_center : float
        Mean of the public labels.
    longest : float
        Length to which longer standardised rows (with their 1) are shortened.
    solution : ndarray of shape (n_features + 1,)
        The public ridge model, for standardised rows and the target less its centre.
    residuals : ndarray
        Its exact leave-one-out residuals on the public rows.
    variance : float
        Their mean square.
    values, spectrum, vectors, ridge : ndarray, ndarray, ndarray, float
        Eigenvalues (descending) of the public second moment, the same corrected for sampling, eigenvectors, ridge.
    rows : ndarray
        Standardised, shortened public rows.
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

    @property
    def noise_variance(self) -> float:
        """Variance of the labels about the best public model: leave-one-out error less its own optimism."""
        excess = float(np.sum(self.spectrum / (len(self.residuals) * (self.values + self.ridge))))
        return self.variance / (1.0 + min(_MOST_OPTIMISM, excess))

    @cached_property
    def _floored(self) -> NDArray[np.float64]:
        # Not the corrected spectrum: shifts of few-row public sets lie in directions whose variance it raises.
        return self.values + min(self.ridge, _FLOOR * float(self.values.mean()))

    @cached_property
    def _turn(self) -> NDArray[np.float64]:
        """Orthonormal: first the constant, then the public model's slope, then eigenvectors by falling variance."""
        root = np.sqrt(self._floored)
        first = np.column_stack([self.vectors[-1] * root, self.vectors.T @ self.solution * root])
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
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(X, center, out=rows[:, :-1])
        rows[:, :-1] /= scale
        rows[:, -1] = 1.0
        rows *= np.minimum(1.0, longest / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
    return rows


_PREPARED: Remembered[TransferGeometry] = Remembered()


def remembered_geometry(public: Public, X: NDArray[np.float64], y: NDArray[np.float64]) -> TransferGeometry:
    """Return `transfer_geometry(X, y)`, made once for each `public` as long as its content stays the same."""
    return _PREPARED.get(public, [X, y], lambda: transfer_geometry(X, y))


def transfer_geometry(X: NDArray[np.float64], y: NDArray[np.float64]) -> TransferGeometry:
    """Prepare public rows and labels: standardise, fit the ridge of least leave-one-out error, find coordinates."""
    if not np.all(np.isfinite(y)):
        raise ValueError("the public labels are not finite; remove those rows.")
    n, d = X.shape
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 1e-10 * np.maximum(1.0, np.abs(center)), scale, np.inf)
    raw = np.column_stack([(X - center) / scale, np.ones(n)])
    norms = np.linalg.norm(raw, axis=1)
    longest = (_LONGEST if n > _MANY * d else 1.0) * float(np.quantile(norms, 0.95))
    rows = raw * np.minimum(1.0, longest / norms)[:, None]
    target_center = float(y.mean())
    y = y - target_center
    values, vectors = np.linalg.eigh(rows.T @ rows / n)
    values = np.maximum(values, 0.0)
    turned = rows @ vectors
    cross = turned.T @ y / n
    squares = turned**2
    mean = float(values.mean())
    best = (math.inf, mean, np.zeros(d + 1), y)
    for ridge in mean * _RIDGES:
        inner = 1.0 / (values + ridge)
        leverage = np.minimum(squares @ inner / n, 1 - 1e-6)
        left_out = (y - turned @ (inner * cross)) / (1.0 - leverage)
        error = float(np.mean(left_out**2))
        if error < best[0]:
            best = error, float(ridge), vectors @ (inner * cross), left_out
    # Labels that a linear model explains to rounding leave no scale; a millionth of their variance is one.
    variance = max(best[0], 1e-12 * float(y @ y) / n, 1e-300)
    spectrum = shrunk_spectrum(values, n)
    # Descending by corrected variance; the correction keeps the order.
    order = slice(None, None, -1)
    return TransferGeometry(
        center,
        scale,
        target_center,
        longest,
        best[2],
        best[3],
        variance,
        values[order],
        spectrum[order],
        vectors[:, order],
        best[1],
        rows,
    )


# What clipping does to the gradients of a squared loss, told from public residuals: slope, size and bias.


Vector = NDArray[np.float64]
# Most numbers looked at: with more, some public rows stand for all.
_NUMBERS, _LEAST_ROWS = 12_000_000, 500
# A clip that leaves fewer residuals as they are has a slope that public rows don't tell well.
_LEAST_SLOPE = 0.05
# Steps to the level where clipped residuals have mean zero; they converge in a few.
_STEPS = 20
# Coordinates that share one guess of how large biases are: so many, then twice as many, and so on.
_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Clipped:
    """Gradients clipped at one length.

    Parameters
    ----------
    slope : float
        How fast the clipped gradient follows the solution, 1 without clipping.
    square : float
        Mean square of a clipped residual.
    shift, doubt : ndarray
        How far from the least-squares solution clipped gradients vanish, in eigencoordinates, and the variance of that
        guess.
    """

    slope: float
    square: float
    shift: Vector
    doubt: Vector


class ClipBias:
    """Public rows and leave-one-out residuals as they look to a clipped gradient.

    The gradient of a row is its residual times its weighted coordinates. Clipping it at length c clips the residual at
    c over the length of the coordinates. Where residuals are skewed, or wider for some rows than for others, clipped
    gradients don't vanish where the squared loss is least; the private rows then point to the wrong place, however
    many they are. Public rows tell that place up to their own sampling error.
    """

    def __init__(self, geometry: TransferGeometry) -> None:
        n, k = geometry.rows.shape
        chosen = np.unique(np.linspace(0, n - 1, min(n, max(_NUMBERS // k, _LEAST_ROWS))).astype(np.int64))
        self._geometry = geometry
        self._residuals = geometry.residuals[chosen] / math.sqrt(geometry.variance)
        rows = geometry.rows[chosen]
        self._constant = rows[:, -1]
        self._turned = rows @ geometry.vectors
        self._squares = self._turned**2
        # Along its own eigenvectors a sample is longer or shorter than new rows are.
        seen = geometry.values > 1e-10 * geometry.values[0]
        self._ratio = np.where(seen, geometry.spectrum, 0.0) / np.where(seen, geometry.values, 1.0)
        self._unseen = np.where(seen, 0.0, geometry.spectrum)

    def measure(self, weights: Vector, clip: float, variance: float) -> Clipped:
        """Return what a clip of `clip` residual deviations does.

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
        for _ in range(_STEPS):
            away = residuals - level * constant
            slope = float(constant**2 @ (np.abs(away) < limit))
            level += float(constant @ np.clip(away, -limit, limit)) / max(slope, _LEAST_SLOPE * n)
        level -= float(constant @ residuals) / max(float(constant @ constant), 1e-300)
        away = residuals - level * constant
        clipped = np.clip(away, -limit, limit)
        total = max(float(squares.sum()), 1e-300)
        slope = max(float(squares @ (np.abs(away) < limit)) / total, _LEAST_SLOPE)
        # The level explains a common skew. What a least-squares and a clipped fit of public rows differ by beyond it:
        differs = clipped / slope - residuals
        moment = self._geometry.values + self._geometry.ridge
        bias = self._turned.T @ differs / (n * moment)
        error = self._squares.T @ differs**2 / (n * moment) ** 2
        ratio = self._believed(bias, error)
        along = self._geometry.vectors[-1]
        shift = level * along + bias * ratio / (1.0 + ratio)
        doubt = error * np.maximum(ratio / (1.0 + ratio), along**2)
        return Clipped(slope, float(squares @ clipped**2) / total, shift, doubt)

    def _believed(self, bias: Vector, error: Vector) -> Vector:
        """Return prior variances of biases over variances of their sampling error, told from blocks of coordinates."""
        ratio = np.zeros_like(bias)
        low, size = 0, _BLOCK
        while low < len(bias):
            high = low + size if low + 2 * size <= len(bias) else len(bias)
            block = slice(low, high)
            moment = self._geometry.spectrum[block]
            found = float(moment @ bias[block] ** 2) / max(float(moment @ error[block]), 1e-300)
            # Sampling error alone makes this 1. In a small block it may hide a bias of its own size, so less is taken.
            ratio[block] = max(0.0, found - 1.0 + min(1.0, _BLOCK / (high - low)))
            low, size = high, 2 * size
        return ratio


# Each release is planned from what the ones before must have taught; more than four gain nothing measurable.
_RELEASES = 4
# Clips tried, in residual deviations. Signal over noise is best for small ones, bias for large ones.
_CLIPS = 2.0 ** np.arange(-1.5, 3.5, 0.5)


@dataclass(frozen=True, eq=False)
class Step:
    """One release: weights of eigencoordinates, length of clipped gradients, where to take them, and what they move."""

    weights: Vector
    clip_norm: float
    shift: Vector
    gain: Vector


@dataclass(frozen=True, eq=False)
class KalmanPlan:
    """All releases at one clip, made from public data alone.

    Parameters
    ----------
    steps : list of Step
    kept : ndarray
        How much of what the releases found is an error of the public solution; the rest is doubt about clipping.
    error : float
        Expected loss above that of the best solution.
    """

    steps: list[Step]
    kept: Vector
    error: float


def kalman_plan(geometry: TransferGeometry, noise_per_clip: float, n_rows: float) -> KalmanPlan:
    """Return the plan whose clip has the least expected error.

    Parameters
    ----------
    geometry : TransferGeometry
    noise_per_clip : float
        Standard deviation of the noise in one mean gradient, per unit of its clip.
    n_rows : float
        Number of private rows.
    """
    bias = ClipBias(geometry)
    plans = [_plan(geometry, bias, float(clip), noise_per_clip, n_rows) for clip in _CLIPS]
    return min(plans, key=lambda plan: plan.error)


def _plan(geometry: TransferGeometry, bias: ClipBias, clip: float, noise_per_clip: float, n_rows: float) -> KalmanPlan:
    """Return the releases at one clip.

    Private gradients vanish at the public solution's error plus the bias of clipping, never at the one alone. So the
    filter follows their sum, and the error's share of it is kept at the end.
    """
    moment, noise_variance = geometry.spectrum, geometry.noise_variance
    # Ridge: variance of the sampling error, plus a bias taken to be of the size that leave-one-out found best.
    prior = noise_variance / (len(geometry.residuals) * (geometry.values + geometry.ridge))
    variance = noise_variance + float(moment @ prior)
    even = np.full(len(moment), 1.0 / max(float(moment.sum()), 1e-300))
    first = bias.measure(even, clip, variance)
    kept = prior / np.maximum(prior + first.doubt, 1e-300)
    slope, both = first.slope, prior + first.doubt
    steps = []
    for _ in range(_RELEASES):
        clip_norm = clip * math.sqrt(variance)
        noise = (noise_per_clip * clip_norm) ** 2
        weights = _water_filled(moment, both, kept, noise / slope**2)
        clipped = bias.measure(weights, clip, variance)
        slope = clipped.slope
        signal = np.sqrt(weights) * slope * moment
        gain = both * signal / (signal**2 * both + noise + weights * moment * clipped.square / n_rows)
        steps.append(Step(weights, clip_norm, clipped.shift, gain))
        both = both * (1.0 - gain * signal)
        variance = noise_variance + float(moment @ (prior * (1.0 - kept) + kept**2 * both))
    return KalmanPlan(steps, kept, variance - noise_variance)


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
        Most that one row's gradient may be.
    noise : float
        Standard deviation, per coordinate of the mean gradient, of one release.
    n_steps : int
    step : float
    unclipped : float
        Share of public rows that are not clipped.
    bias : ndarray of shape (k,)
        What clipping adds to the mean gradient on public rows, where nothing is to be found.
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
        # Σ_{t=first+1..T} (1 - (1 - step c)^t) / c over the tail. Curvatures past 1 / step only flip a tiny remainder.
        q = np.abs(1.0 - self.step * c)
        first = self.n_steps // 2
        left = (q ** (first + 1) - q ** (self.n_steps + 1)) / np.maximum(1.0 - q, 1e-12) / (self.n_steps - first)
        return np.asarray((1.0 - np.minimum(left, 1.0)) / c)


# Water-filled shares below this part of the largest are not worth a coordinate.
_LEAST_SHARE = 1e-3
# Clip level that water-filling assumes, in residual deviations: close to what `plan_stage` finds.
_ASSUMED_CLIP = 0.9
# A step is at most this over max_norm²: curvature is about 1 where private rows look like public ones, and would be
# max_norm² if all of them were one row; an eighth of that is still stable.
_STEP_OF_ROWS = 16.0
# With fewer steps the average over their last half is not smooth; more only cost time.
_FEWEST_STEPS, _MOST_STEPS = 150, 300


@dataclass(frozen=True)
class Kind:
    """What tells one kind of stage from another.

    Parameters
    ----------
    quantiles : (float, float)
        Of public gradient lengths: the clip level stays between them.
    divisor, furthest : float
        Divisor of the logarithm that says how long to go, and the longest way.
    longest_step : float
        Upper limit of a step, before that of long rows.
    """

    quantiles: tuple[float, float]
    divisor: float
    furthest: float
    longest_step: float


# Two coordinates have so little noise that clipping, which biases skewed residuals, need not be tight.
CALIBRATION = Kind(quantiles=(0.8, 0.999), divisor=0.6, furthest=20.0, longest_step=0.5)
CORRECTION = Kind(quantiles=(0.5, 0.97), divisor=0.7, furthest=15.0, longest_step=0.1)


def plan_stage(
    geometry: TransferGeometry,
    turn: Vector,
    weights: Vector,
    *,
    noise_per_clip: float,
    n_steps: int,
    size: float,
    kind: Kind,
) -> Stage:
    """Return the plan of a stage.

    Parameters
    ----------
    turn : ndarray of shape (n_columns, k)
        From whitened coordinates to those of the stage, before weighting.
    weights : ndarray of shape (k,)
        Squared scale of each.
    noise_per_clip : float
        Noise of one release of the mean gradient, per unit of clip norm.
    size : float
        Size of the private residuals relative to the public leave-one-out ones, as far as it was released.
    kind : Kind
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
    # Noise of the whole stage in 2% of the residual variance, over all coordinates: a larger clip would cost more noise
    # than it saves bias, a smaller one the other way round.
    whole = noise_per_clip / math.sqrt(n_steps)
    clip_norm = max(quantile_between(lengths, math.sqrt(0.02 * variance / (2 * k)) / whole, *kind.quantiles), 1e-150)
    noise = whole * clip_norm
    # Go until what is left of a shift of the size of the residuals is no larger than the noise. Not longer: along
    # directions of little private variance the iterate is a random walk, whose noise grows with the way.
    way = math.log(max(1.2 * variance / (k * noise**2), 1.0001)) / kind.divisor
    limit = n_steps * min(kind.longest_step, _STEP_OF_ROWS / max_norm**2)
    way = min(max(way, 1.0), kind.furthest, limit)
    unclipped = lengths < clip_norm
    held = np.clip(residuals, *(side * clip_norm / np.maximum(leverage * norms, 1e-300) for side in (-1, 1)))
    # Skewed residuals, clipped, have another mean. Linear part removed: what a real slope would do is not bias.
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
    """Return how a shift's energy is expected to be spread: half on calibration, the rest as 1/j over directions.

    On real data each doubling of the number of directions was worth about the same.
    """
    rest = np.arange(1, n_columns - 1)
    return np.concatenate([np.full(min(2, n_columns), 0.25), 0.5 / (rest * math.log(2.0 * max(len(rest), 1) + 2))])


def choose_directions(
    geometry: TransferGeometry, *, n_rows: float, noise_per_clip: float, n_steps: int, size: float
) -> tuple[NDArray[np.int64], Vector]:
    """Return which coordinates to correct and their weights, the largest 1, by water-filling."""
    variance = geometry.variance * size**2
    prior = geometry.sampling + variance * shift_prior(len(geometry.solution))
    # What the private sample itself could tell of this coordinate without noise.
    useful = prior**2 / (prior + variance / n_rows)
    noise = (_ASSUMED_CLIP * noise_per_clip) ** 2 * variance / n_steps
    shares = water_fill(useful, noise)
    chosen = np.flatnonzero(shares > _LEAST_SHARE * shares.max())
    return chosen, shares[chosen] / shares.max()


def correction_steps(geometry: TransferGeometry, chosen: NDArray[np.int64], weights: Vector) -> int:
    """Return how many steps the longest correction takes; the noise depends on the way, not on their number."""
    squares = geometry.whitened[:, chosen] ** 2 @ weights
    longest = min(CORRECTION.longest_step, _STEP_OF_ROWS / max(float(np.quantile(squares, 0.95)), 1e-12))
    return min(max(math.ceil(CORRECTION.furthest / longest), _FEWEST_STEPS), _MOST_STEPS)


def dyadic_blocks(chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return positions in `chosen`: the calibrating coordinates together, then 2, 4, 8, … directions."""
    first = np.flatnonzero(chosen < 2)
    rest = np.flatnonzero(chosen >= 2)
    blocks = [first] if len(first) else []
    before, size = len(blocks), 2
    while len(rest):
        block, rest = rest[:size], rest[size:]
        # A short remainder can't be judged by itself.
        if len(block) < size / 2 and len(blocks) > before:
            blocks[-1] = np.concatenate([blocks[-1], block])
        else:
            blocks.append(block)
        size *= 2
    return blocks
