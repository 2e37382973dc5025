"""The gates of the transfer estimators: how much of a noisy correction of the public model is adopted.

The classifier goes part of the way along its correction (`Slope.fraction`, along a `Path`). The regressor shrinks
level, slope and mix of the public models one by one (`keep_few`), and directions block by block (`keep`).
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, exp1, gammaln

from dpadapt.learning.losses import softmax

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """An estimate of how much a change reduces the error on the private population, and the variance of the estimate.

    It is computed from releases and public data alone.
    """

    value: float = 0.0
    variance: float = 0.0

    def interval(self) -> tuple[float, float, float]:
        """Return the estimate and the two ends of a 90% interval."""
        half = _NORMAL_90 * math.sqrt(self.variance)
        return self.value, self.value - half, self.value + half


# 95% quantile of the normal distribution: 90% lie within this many standard deviations.
_NORMAL_90 = 1.645

# The gate of the classifier
#
# Along c times the change, log-loss is a linear function that depends on the label plus a convex one that doesn't. So
# the mean loss falls by exactly slope * c - divergence(c), the divergence being that of the public model from the one
# at c. Its shape is taken from public rows, its size from both, and rather too small than too large. The slope is
# estimated twice: from the change itself, whose noise is known, and from a private mean of clipped loss differences.
# The gate chooses the c of the largest estimated gain, but no larger than where the loss would rise by a small
# tolerance if the slope were at its lower bound. If the estimate is not positive, c = 0: the model is exactly the
# public one.
#
# A wrong shape costs little. The loss is convex, so the gain at c is at least c times that of the whole change, which
# is measured on private rows; public rows only say how much more it is.

# Relative error of the slope that is computed from the change, as a standard deviation: it uses the curvature of public
# rows, not of private ones. Larger values trust the released losses more. Chosen by hand.
_CURVATURE_MISFIT = 0.3
# Share of the public rows' divergence that is counted. On private rows it may be smaller, and counting too much of it
# stops half-way along a good change; for any other change, counting too little is the careful side. Chosen by hand.
_COUNTED_DIVERGENCE = 0.75
# The second limit on the harm: this many standard deviations below the lower bound of the slope, the loss may rise by
# this many times the tolerance. Chosen by hand.
_LOWER_SLOPE_DEVIATIONS, _LOWER_SLOPE_TOLERANCES = 1.5, 10.0
# Relative standard deviation of the divergence on private rows about that on public rows, before it is measured. Larger
# values follow the measurement more closely. Chosen by hand.
_DIVERGENCE_MISFIT = 0.5
# Standard deviations of the stated gain beside that of the slope: as a share of the gain, because the shape of the path
# is that of public rows, and as a share of the public model's mean entropy, because the rows are those of the fit.
# Chosen so that the 90% interval covers about 90% of the gains on test rows of the development classifications;
# without them 60%. `python -m benchmarks.transfer.forecasts` prints the coverage.
_LOSS_GAIN_MISFIT, _LEAST_LOSS_GAIN_ERROR = 0.3, 0.005


@dataclass(frozen=True)
class Slope:
    """An estimate of how fast the loss falls along a change, with its standard deviation."""

    value: float
    scatter: float

    def with_other(self, other: "Slope") -> "Slope":
        """Return the average of two independent estimates, weighted by their precision."""
        mine, theirs = 1.0 / self.scatter**2, 1.0 / other.scatter**2
        total = mine + theirs
        return Slope((mine * self.value + theirs * other.value) / total, 1.0 / math.sqrt(total))

    def fraction(self, path: "Path", caution: float, tolerance: float) -> float:
        """Return how far to go, from 0 to 1.

        With a slope of at least low = value - caution * scatter, the loss rises by at most divergence(c) - low c, which
        is `tolerance` at the c called `reach`. Negative caution trusts a slope above the estimate.
        """
        low = self.value - caution * self.scatter
        reach = _crossing(lambda c: path.divergence(c) - low * c - tolerance)
        if caution > 0:
            # Once in two hundred fits the slope is lower still, and a whole change of pure noise may then cost a third
            # of the loss. So the harm at an even lower slope is limited too, less tightly.
            lower, most = low - _LOWER_SLOPE_DEVIATIONS * self.scatter, _LOWER_SLOPE_TOLERANCES * tolerance
            reach = min(reach, _crossing(lambda c: path.divergence(c) - lower * c - most))
        best = _crossing(lambda c: path.steepness(c) - max(self.value, low))
        return min(reach, best)

    def gain(self, path: "Path", c: float) -> Gain:
        """Return by how much the loss falls at c, with the whole divergence: counting less would overstate it."""
        if c == 0.0:
            return Gain()
        value = self.value * c - path.divergence(c) / _COUNTED_DIVERGENCE
        least = _LEAST_LOSS_GAIN_ERROR * path.entropy
        return Gain(value, (c * self.scatter) ** 2 + (_LOSS_GAIN_MISFIT * value) ** 2 + least**2)


class Path:
    """The straight path from public scores `before` to those `after` a change, on public rows.

    Examples
    --------
    >>> path = Path(np.zeros((1, 2)), np.array([[0.0, 2.0]]))
    >>> round(path.divergence(0.5), 3), round(path.divergence(1.0), 3)
    (0.09, 0.325)
    """

    def __init__(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> None:
        losses = [np.log(np.maximum(softmax(scores), 1e-300)) for scores in (before, after)]
        self._log_p = losses[0]
        # Centred under the public model, a change of all scores alike drops out.
        self._move = after - before
        self._move -= np.sum(np.exp(self._log_p) * self._move, axis=1, keepdims=True)
        squares = (losses[1] - losses[0]) ** 2
        # The labels may follow either model; the larger of the two expectations is taken.
        self._squares = np.maximum(*(np.sum(np.exp(loss) * squares, axis=1) for loss in losses))
        self._share = _COUNTED_DIVERGENCE

    @property
    def entropy(self) -> float:
        """Mean entropy of the public model's probabilities: its log-loss, if they are right."""
        return float(-np.mean(np.sum(np.exp(self._log_p) * self._log_p, axis=1)))

    def as_measured(self, divergence: float, noise: float) -> "Path":
        """Return the path with its divergence reduced towards a noisy mean over private rows, by how precise that is.

        If the models are surer of private rows than of public ones, the loss bends less, and the whole change is
        better than a part of it. A larger divergence than that of public rows is not counted: less is the careful side.
        """
        whole = max(self.divergence(1.0), 1e-300)
        trust = _DIVERGENCE_MISFIT**2 / (_DIVERGENCE_MISFIT**2 + (noise / whole) ** 2)
        path = copy(self)
        path._share = self._share * min(max(1.0 + trust * (divergence / whole - 1.0), 0.1), 1.0)
        return path

    def divergence(self, c: float) -> float:
        """Return the counted mean Kullback-Leibler divergence of the public model from the one at c."""
        return self._share * float(np.mean(self._at(c)[1]))

    def steepness(self, c: float) -> float:
        """Return the derivative of the divergence."""
        tilted, logs = self._at(c)
        return self._share * float(np.mean(np.sum(np.exp(tilted - logs[:, None]) * self._move, axis=1)))

    @property
    def scatter(self) -> float:
        """Upper bound on the standard deviation of loss differences between rows."""
        return math.sqrt(float(np.mean(self._squares)))

    @property
    def bound(self) -> float:
        """A range for loss differences: twice the 99% quantile of their root mean square.

        Narrower ranges cut off the heavy tail of a harmful change: adopted models were 1 to 3% worse in log-loss.
        """
        return max(2.0 * math.sqrt(float(np.quantile(self._squares, 0.99))), 1e-12)

    def _at(self, c: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return log p + c times the move, and the logarithm of the row sums of its exponentials: the divergence."""
        tilted = self._log_p + c * self._move
        top = tilted.max(axis=1)
        return tilted, np.asarray(top + np.log(np.exp(tilted - top[:, None]).sum(axis=1)))


def _crossing(function: Callable[[float], float]) -> float:
    """Return the c in [0, 1] up to which an increasing function stays at or below zero; by bisection, rounded down.

    A function that is positive at once gives exactly 0.
    """
    if function(1.0) <= 0.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) <= 0.0 else (low, middle)
    return low


def slope_from_change(
    change: NDArray[np.float64], stiffness: NDArray[np.float64], variance: NDArray[np.float64]
) -> Slope:
    """Estimate the slope from the change alone.

    The change is (g + e) / stiffness, coordinate by coordinate, with the downhill gradient g and noise e of known
    `variance` in each of the K - 1 directions that add up to zero. So slope = Σ g v = Σ stiffness v² - Σ e v, and
    E[e v] = variance / stiffness: subtracting it leaves no bias. What is left has the variance
    Σ (g² variance + 2 variance²) / stiffness².
    """
    free = change.shape[1] - 1
    squares = np.sum(change**2, axis=1)
    noise = variance / stiffness
    value = float(np.sum(stiffness * squares - free * noise))
    signal = np.maximum(stiffness**2 * squares - free * variance, 0.0)
    spread = float(np.sum(noise / stiffness * (signal + 2.0 * free * variance)))
    return Slope(value, math.sqrt(spread + (_CURVATURE_MISFIT * value) ** 2) + 1e-300)


def slope_from_losses(mean: float, noise: float, path: Path, *, optimism: float, n_rows: float) -> Slope:
    """Estimate the slope from a released mean of loss differences at the whole change.

    On the rows that the change was fitted to, the mean is too large by `optimism`.
    """
    sampling = path.scatter**2 / n_rows
    return Slope(mean - optimism + path.divergence(1.0), math.sqrt(noise**2 + sampling) + 1e-300)


def loss_differences(before: NDArray[Any], after: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log-loss of each row under scores `before` minus that under `after`."""
    index = np.arange(len(codes))
    return np.asarray(_log_loss(before, index, codes) - _log_loss(after, index, codes), dtype=np.float64)


def row_divergences(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.float64]:
    """Return the divergence of each row's probabilities under scores `before` from those under `after`."""
    logs = [np.log(np.maximum(softmax(scores), 1e-30)) for scores in (before, after)]
    return np.asarray(np.sum(np.exp(logs[0]) * (logs[0] - logs[1]), axis=1), dtype=np.float64)


def _log_loss(scores: NDArray[Any], index: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[Any]:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[index, codes])


# The gate of the regressor

# Factor on noise variances, which are computed from estimates of the private curvature. A larger one opens the gate
# less often. Chosen by hand.
_NOISE_MARGIN = 1.2
# Expected loss against the public model that is allowed while no shift is established, as a share of its error, and the
# noise variance (same unit) up to which all of it may be used. More of it opens the gate earlier and allows more harm.
# Chosen by hand.
_ALLOWED_LOSS, _ALLOWED_LOSS_NOISE = 0.004, 0.003
# Share of the energy of an established shift that may be put at risk to gain more. Chosen by hand.
_RISKED_SHARE = 0.2
# Energy counts as established if noise alone would exceed it with this probability. In a prototype that took energy
# above two standard deviations for established, 40 to 57 of 225 cells were worse than the public model by more than 1%.
_ESTABLISHED_LEVEL = 1e-4


@dataclass(frozen=True, eq=False)
class Kept:
    """What the gate of the regressor decided.

    Parameters
    ----------
    factors : ndarray of shape (k,)
        What each coordinate of the correction is multiplied by.
    established : float
        Energy of the shift that noise alone would hardly ever exceed.
    seen, adopted : float
        Energy of the noisy correction before and after the gate.
    """

    factors: Vector
    established: float
    seen: float = 0.0
    adopted: float = 0.0


def keep(
    change: Vector, variance: Vector, blocks: Sequence[NDArray[np.int64]], *, error: float, established: float = 0.0
) -> Kept:
    """Return how much of `change` to keep.

    Each block is multiplied by (1 - t / S)₊, S its energy over its noise. The threshold t is the least whose worst
    expected loss (`regret`) stays within the block's part of what is allowed. So in the Gaussian model, with variances
    not understated, the expected loss against no change is at most 0.4% of `error` plus a fifth of the energy that
    is established. This is a statement about the model, not about any data.

    Parameters
    ----------
    change, variance : ndarray of shape (k,)
        Noisy correction in coordinates whose squares add up to a change in squared error, and its noise.
    blocks : sequence of ndarray
        Positions that are judged together.
    error : float
        Squared error of the public model on the private population; if anything, understated.
    established : float
        Energy established before.
    """
    variance = np.maximum(_NOISE_MARGIN * variance, 1e-12 * error)
    energies = [float(np.sum(change[block] ** 2)) for block in blocks]
    noisiest = [float(np.max(variance[block])) for block in blocks]
    level = _ESTABLISHED_LEVEL
    parts = [e - v * float(chdtri(len(b), level)) for e, v, b in zip(energies, noisiest, blocks, strict=True)]
    whole = sum(energies) - max(noisiest) * float(chdtri(len(change), level))
    established += max(sum(max(0.0, part) for part in parts), whole, 0.0)
    factors = np.zeros(len(change))
    for block, noise in zip(blocks, noisiest, strict=True):
        free = _ALLOWED_LOSS * min(1.0, _ALLOWED_LOSS_NOISE * error / noise)
        allowed = (free + _RISKED_SHARE * established / error) / len(blocks)
        threshold = least_threshold(len(block), noise / error, allowed)
        signal = float(np.sum(change[block] ** 2 / variance[block]))
        if signal > threshold and math.isfinite(threshold):
            factors[block] = 1.0 - threshold / signal
    return Kept(factors, established, sum(energies), float(np.sum((factors * change) ** 2)))


# The gate of a few coordinates: level, slope and mix of the public models. They have little noise and gain most, so
# that they may risk more.
#
# Factor on their variances.
_FEW_MARGIN = 1.2
# Expected loss that is allowed while nothing is established, as a share of the public model's error, and how it is
# divided: this for the level, and this for each of the others, relative to their sum. Twice as much did harm in 3 of 14
# development tasks with 100 rows.
_FEW_ALLOWED, _FEW_PARTS = 0.003, (0.6, 0.2)
# Least threshold on a coordinate's square, in variances. Chosen by hand.
_FEW_THRESHOLD = 4.0
# A coordinate counts as established by what its square exceeds this many variances; share of it that may be risked.
_FEW_ESTABLISHED, _FEW_RISKED = 12.0, 0.1


def keep_few(change: Vector, variance: Vector, *, error: float) -> Kept:
    """Return how much of each of a few coordinates to keep, each judged by itself as in `keep`.

    Examples
    --------
    >>> keep_few(np.array([0.01, 1.0]), np.full(2, 1e-3), error=1.0).factors.round(2)
    array([0., 1.])
    """
    variance = np.maximum(_FEW_MARGIN * variance, 1e-12 * error)
    squares = change**2
    established = float(np.sum(np.maximum(squares - _FEW_ESTABLISHED * variance, 0.0)))
    parts = np.where(np.arange(len(change)) == 0, *_FEW_PARTS)
    parts = parts / parts.sum()
    factors = np.zeros(len(change))
    for i, part in enumerate(parts):
        allowed = part * (_FEW_ALLOWED + _FEW_RISKED * established / error)
        threshold = max(_FEW_THRESHOLD, least_threshold(1, float(variance[i]) / error, allowed))
        if squares[i] > threshold * variance[i]:
            factors[i] = 1.0 - threshold * variance[i] / squares[i]
    return Kept(factors, established, float(squares.sum()), float(np.sum((factors * change) ** 2)))


# Unseen groups: columns that are constant in public rows, such as the indicators of categories that these lack. The
# gates judge a correction by its mean over all rows, and a group of few rows hardly changes that mean. So the noise in
# the coefficient of such a group needs a rule of its own.
#
# Variance of the effect of an unseen group that is expected, relative to that of the residuals. More trusts small
# groups more; whatever the noise is, what is left of it adds at most a quarter of this to a group's squared error.
_UNSEEN_VARIANCE = 0.5
# An effect is taken for larger than expected by what its square exceeds this many noise variances. Chosen by hand.
_UNSEEN_EXCEEDED = 4.0


def unseen_factors(effects: Vector, variances: Vector, error: float) -> Vector:
    """Return what the effects of unseen groups are multiplied by, from 0 (the overall level) to 1 (their own).

    With an effect of variance T about 0, and noise of variance v, the best factor is T / (T + v). T is a share of
    `error`, or what the effect's square exceeds its noise by if that is more. While it is not, noise of standard
    deviation T v^0.5 / (T + v) is left, at most T^0.5 / 2 whatever v is: a group of few rows gets no wild value.

    Parameters
    ----------
    effects : ndarray of shape (n_groups,)
        How far the noisy correction moves the predictions of each group.
    variances : ndarray of shape (n_groups,)
        Of the noise in them; if anything, overstated.
    error : float
        Variance of the residuals.

    Examples
    --------
    >>> unseen_factors(np.array([0.5, 0.5, 9.0]), np.array([0.01, 1.0, 1.0]), 1.0).round(2)
    array([0.98, 0.33, 0.99])
    """
    expected = np.maximum(_UNSEEN_VARIANCE * error, effects**2 - _UNSEEN_EXCEEDED * variances)
    return np.asarray(expected / np.maximum(expected + variances, 1e-300))


# Thresholds that `least_threshold` tries, in standard deviations of chi-square above James–Stein's k - 2. Finer steps
# would only reduce the shrinkage a little. If none passes, the change is not adopted. Chosen by hand.
_THRESHOLD_STEPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def regret(k: int, threshold: float, energy: float) -> float:
    """Return the expected harm of adopting a change beyond a threshold: its squared error less that of no change.

    For r ~ N(m, I_k) with |m|² = `energy` and X = |r|², the estimator (1 - threshold / X)₊ r of m is compared with 0.
    By Stein's identity the difference of their expected squared errors is

        E[ 1{X > t} (2k - X + t (t - 2 (k - 2)) / X) ],

    with X noncentral chi-square, a Poisson(energy / 2) mixture of central ones. Negative values are gains. This is a
    statement about Gaussian noise of known variance, not about data.

    Examples
    --------
    >>> regret(4, 4.0, 0.0) > 0 > regret(4, 4.0, 30.0)
    True
    """
    return float(_regrets(k, threshold, np.array([energy]))[0])


def _regrets(k: int, threshold: float, energies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `regret` for several energies at once."""
    half = energies[:, None] / 2
    longest = float(half.max())
    j = np.arange(0, math.ceil(longest + 9 * math.sqrt(longest) + 15))
    with np.errstate(all="ignore"):
        weights = np.where(half > 0, np.exp(j * np.log(np.maximum(half, 1e-300)) - half - gammaln(j + 1.0)), j == 0)
    m = k + 2.0 * j
    if threshold <= 0:
        return np.asarray(weights @ (2 * k - m))
    tail = chdtrc(m, threshold)
    inverse = np.empty_like(m)
    plain = m > 2
    # E[1 / X; X > t] of chi-square with m degrees; by parts for m = 1, the exponential integral for m = 2.
    inverse[plain] = chdtrc(m[plain] - 2, threshold) / (m[plain] - 2)
    inverse[m == 2] = exp1(threshold / 2) / 2
    inverse[m == 1] = 2 * math.exp(-threshold / 2) / math.sqrt(2 * math.pi * threshold) - float(chdtrc(1, threshold))
    inside = 2 * k * tail - m * chdtrc(m + 2, threshold) + threshold * (threshold - 2 * (k - 2)) * inverse
    return np.asarray(weights @ inside)


def least_threshold(k: int, variance: float, allowed: float) -> float:
    """Return the least threshold on |r|² / variance whose worst relative regret is at most `allowed`; inf if none is.

    Relative to an error of 1 + energy: with noise `variance` per coordinate (in units of the error that remains when
    nothing can be gained), the worst over the energy of variance * regret / (1 + energy * variance). Both arguments are
    rounded to quarter octaves, to the safe side, so that thresholds are computed once.
    """
    if not allowed > 0 or not variance > 0:
        return math.inf
    return _least_threshold(k, math.ceil(4 * math.log2(variance)), min(40, math.floor(4 * math.log2(allowed))))


@lru_cache(maxsize=4096)
def _least_threshold(k: int, variance_octave: int, allowed_octave: int) -> float:
    variance, allowed = 2.0 ** (variance_octave / 4), 2.0 ** (allowed_octave / 4)
    energies = np.concatenate([[0.0], np.geomspace(0.3, 6.0 * k + 60.0, 16)])
    for step in _THRESHOLD_STEPS:
        threshold = max(k - 2, 0) + step * math.sqrt(2 * k)
        if float(np.max(variance * _regrets(k, threshold, energies) / (1 + energies * variance))) <= allowed:
            return threshold
    return math.inf
