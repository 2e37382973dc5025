"""Private moments of the features, and the preparation of a head by public rows recoloured to them.

Public rows of another kind have other means and variances than the private ones, so that whitening by them misleads the
head of a probe. Two releases for a small share of the budget mend that: a histogram of the lengths of private rows, and
one Gram matrix of their directions. Both are merged with the public moments, as far as they differ by more than their
noise. All of that is post-processing.

`Frame` holds what is taken from public rows, `MomentPlan` what will be released; `fit` and `forecast` use both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.data import Public, Remembered
from dpadapt.learning.base import Budget, split_noise
from dpadapt.learning.scaling import WHITENING_FLOOR, Scaling
from dpadapt.mechanisms.bounded import Bounded, added, clipped_gram, histogram
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Blocks, Part, Rows
from dpadapt.transfer.classification_plan import Coordinates, Prepared, centre_and_units, sample_rows, step_charges

Vector = NDArray[np.float64]

# Shares of mu² for the lengths and the directions. Larger shares make the moments more precise and the head noisier.
_LENGTH_SHARE, _DIRECTION_SHARE = 0.005, 0.045
# Least n * mu (no unit) at which moments are released. Below, the head has the whole budget: the moments would be so
# noisy that they hardly differ from the public ones, and their share would be lost.
_LEAST_SIGNAL_FOR_MOMENTS = 250.0
# Edges of the histogram of lengths, in quarters of an octave from the public median length: from 1/16 to 1,024 times.
# Rows around a point far from the public ones are long. Wider bins blur the median. Here and below:
# `tools/constants.py probe` compares the neighbours by the log-loss on digits; half and twice are 0.8% (+- 0.7%) worse
# for the first edge, equal and 1.0% (+- 0.9%) better for the last.
_FIRST_EDGE, _LAST_EDGE = -16, 40
# Number of neighbouring bins, three octaves, in which the median is sought: those with the largest count. In more bins
# there is more noise. Half and twice: within 0.1%.
_LENGTH_WINDOW = 12
# Length of the constant beside a direction, which has length 1. A longer one makes the mean more precise and the second
# moment less. Half and twice: 0.7% (+- 0.6%) and 0.1% (+- 0.8%) worse.
_CONSTANT_LENGTH = 0.5
# Number of public directions among which correlations are estimated; further ones keep their own variances. More cost
# time (eigendecompositions) and raise the level that a correlation must exceed. On the digit network's 288 features,
# 128 directions lose 1 point at epsilon 5, and 256 none.
_CORRELATED_DIRECTIONS = 512
# Number of directions in the first block of the public spectrum; further blocks are octaves. Half
# and twice: 0.8% (+- 0.5%) and 0.1% (+- 0.6%) worse.
_FIRST_BLOCK = 4
# Number of standard errors by which the variance of a block must differ from the public one before it is moved. Fewer
# let noise in, more keep wrong public variances. Half and twice: 0.9% (+- 1.3%) and 0.6% (+- 0.6%) better.
_VARIANCE_CAUTION = 2.0
# Least share of its public variance that a block keeps, and of its block's variance that a direction keeps. Smaller
# shares let noise switch directions off. Half and twice: no difference.
_LEAST_VARIANCE_SHARE = 0.05
# Rounds in which the variances of blocks and the correlations are estimated in turn, each without the part of the
# other. On the development sets two rounds are within 0.3 points of four, one within 0.8.
_ROUNDS = 4
# Rows whose lengths are computed at once; only memory depends on it.
_ROWS_AT_ONCE = 4096


# Public rows


@dataclass(frozen=True, eq=False)
class Frame(Scaling):
    """What the releases are relative to; from public rows alone.

    A *direction* is a row in units, divided by its length.

    Parameters
    ----------
    center, scale : ndarray of shape (n_features,)
        A row in units is (x - center) / scale. The scale of a constant feature is infinite.
    length : float
        Median length of a public row in units.
    basis : ndarray of shape (n_features, k)
        Orthonormal: principal axes of public directions, by falling variance.
    mean, variances : ndarray of shape (k,)
        Moments of public directions in the basis.
    sample : ndarray of shape (at most 1500, k)
        Public directions in the basis, centred and whitened.
    n_rows : int
        How many public rows there are.
    """

    length: float
    basis: Vector
    mean: Vector
    variances: Vector
    sample: Vector
    n_rows: int


_FRAMES: Remembered[Frame | None] = Remembered()


def _frame(X: Vector) -> Frame | None:
    """Return the frame of public rows; None if no feature varies."""
    center, scale = centre_and_units(X)
    rows = (X - center) / scale
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    length = float(np.median(lengths))
    if not length > 0.0:
        return None
    directions = rows / np.maximum(lengths, _least_length(length))[:, None]
    mean = directions.mean(axis=0)
    values, vectors = np.linalg.eigh(directions.T @ directions / len(X) - np.outer(mean, mean))
    values, vectors = values[::-1], vectors[:, ::-1]
    # As in `whitening`: axes without public variance take no part.
    varying = values > 1e-7 * values[0]
    values, vectors = values[varying], vectors[:, varying]
    sample = (directions[sample_rows(len(X))] - mean) @ (vectors / np.sqrt(values))
    return Frame(center, scale, length, vectors, mean @ vectors, values, sample, len(X))


def _least_length(length: float) -> float:
    """Return the length below which a row counts as short of a direction: rounding would make up one."""
    return 1e-6 * length


# The plan


@dataclass(frozen=True, eq=False)
class MomentPlan:
    """What the moments and the head will release and with which noise, made from public facts alone.

    Parameters
    ----------
    frame : Frame
    head : Budget
        What is left for the head.
    noise : float
        Standard deviation of an entry of the mean second moment of directions, before symmetry is used.
    charges : list of (Repeated, str)
        What is charged, all at once: lengths, directions and the head's steps. Together exactly mu-Gaussian-DP.
    """

    frame: Frame
    head: Budget
    noise: float
    charges: list[tuple[Repeated, str]]


def plan_moments(public: Public, X: Vector, budget: Budget) -> MomentPlan | None:
    """Return the plan for a budget and the public rows `X`, or None if the head should have the whole budget.

    The frame is made once, while the content of `public` stays the same.
    """
    if budget.n_rows * budget.mu / budget.factor < _LEAST_SIGNAL_FOR_MOMENTS:
        return None
    frame = _FRAMES.get(public, [X], lambda: _frame(X))
    if frame is None:
        return None
    lengths, directions = split_noise(budget.mu, [_LENGTH_SHARE, _DIRECTION_SHARE])
    head = Budget(budget.mu * math.sqrt(1.0 - _LENGTH_SHARE - _DIRECTION_SHARE), budget.n_rows, budget.factor)
    # Replacing a record moves a Gram matrix of unit rows by at most sqrt 2, where the factor of sums is 2.
    noise = directions * math.sqrt(budget.factor) * (1.0 + _CONSTANT_LENGTH**2) / budget.n_rows
    charges = [
        (Repeated(Gaussian(lengths)), "feature lengths"),
        (Repeated(Gaussian(directions)), "feature directions"),
        *step_charges(head.mu, 0.0),
    ]
    return MomentPlan(frame, head, noise, charges)


# The two releases


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy moments of the private rows, as released, in the basis of the frame.

    Parameters
    ----------
    length : float
        Median length in units.
    mean, squares : ndarray of shape (k,)
        First moment of the directions, and diagonal of the second.
    second : ndarray of shape (r, r)
        Second moment of the directions along the first r axes.
    """

    length: float
    mean: Vector
    squares: Vector
    second: Vector


def release_moments(plan: MomentPlan, runs: Sequence[Run], private: Blocks[Part]) -> Moments:
    """Release the lengths and the directions of private rows, by the first two of the plan's runs."""
    frame, n = plan.frame, plan.head.n_rows
    rows = private.map(_without_labels)
    edges = frame.length * 2.0 ** (np.arange(_FIRST_EDGE, _LAST_EDGE + 1) / 4.0)
    # Claim: |counts - counts'|_2 <= 1 and |Σ vv' - that of a neighbour|_F <= 1, replaced: sqrt 2 each. By `histogram`
    # and `clipped_gram`, with |v| = 1; a null record has v = 0 and no bin.
    counts = runs[0].release(added(rows.results(partial(_length_histogram, frame=frame, edges=edges))))
    total = runs[1].release(clipped_gram(rows, 1.0, _extended_directions(frame)))
    total = (total + total.T) * ((1.0 + _CONSTANT_LENGTH**2) / (2.0 * n))
    turned = total[1:, 1:] @ frame.basis
    r = _CORRELATED_DIRECTIONS
    return Moments(
        _median_length(counts, edges),
        total[0, 1:] @ frame.basis / _CONSTANT_LENGTH,
        np.einsum("ij,ij->j", frame.basis, turned),
        frame.basis[:, :r].T @ turned[:, :r],
    )


def _without_labels(part: Part) -> Rows:
    return Rows(part.X, np.zeros(len(part.X)), shares=part.shares)


def _length_histogram(rows: Rows, *, frame: Frame, edges: Vector) -> Bounded:
    return histogram(_length_codes(frame, rows, edges), len(edges) + 1, rows.shares)


def _extended_directions(frame: Frame) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that maps each row to its direction beside the constant, together of length 1."""

    def extended(X: NDArray[Any]) -> NDArray[Any]:
        rows = frame.scaled(X)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows /= np.maximum(lengths, X.dtype.type(_least_length(frame.length)))[:, None]
        with_constant = np.column_stack([np.full(len(X), _CONSTANT_LENGTH, X.dtype), rows])
        with_constant /= X.dtype.type(math.sqrt(1.0 + _CONSTANT_LENGTH**2))
        return with_constant

    return extended


def _length_codes(frame: Frame, rows: Rows, edges: Vector) -> NDArray[np.int64]:
    """Return the bin of each private row's length, the first and the last being open; -1 for null rows."""
    codes = np.empty(rows.n_rows, dtype=np.int64)
    for start in range(0, rows.n_rows, _ROWS_AT_ONCE):
        chosen = slice(start, start + _ROWS_AT_ONCE)
        units = frame.scaled(rows.X[chosen])
        with np.errstate(all="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", units, units))
        usable = np.isfinite(lengths) & np.isfinite(rows.norms[chosen])
        codes[chosen] = np.where(usable, np.searchsorted(edges, lengths), -1)
    return codes


def _median_length(counts: NDArray[Any], edges: Vector) -> float:
    """Return the median length by noisy counts, interpolated between two edges on the logarithmic scale."""
    sums = np.convolve(counts, np.ones(_LENGTH_WINDOW), "valid")
    first = int(np.argmax(sums))
    below = np.cumsum(counts[first : first + _LENGTH_WINDOW]) / max(float(sums[first]), 1e-300)
    # The last is 1, or 0 if no count exceeds the noise.
    place = int(np.argmax(below >= 0.5))
    before = below[place - 1] if place else 0.0
    share = (0.5 - before) / max(float(below[place] - before), 1e-12)
    # Bin j lies between the edges j - 1 and j; the first and the last are open.
    low, high = (edges[min(max(first + place + side, 0), len(edges) - 1)] for side in (-1, 0))
    return float(low * (high / low) ** min(max(share, 0.0), 1.0))


# From here on, everything is post-processing of the releases


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimated moments of private rows, in the basis of the frame.

    Parameters
    ----------
    length : float
        Median length in units.
    mean, variances : ndarray of shape (k,)
        Mean of the directions, and their variances apart from the correlations.
    correlations : ndarray of shape (r, r)
        Added to the variances of the first r axes; of low rank.
    """

    length: float
    mean: Vector
    variances: Vector
    correlations: Vector = field(default_factory=lambda: np.zeros((0, 0)))


def public_estimate(frame: Frame) -> Estimate:
    """Return the moments of the public rows themselves."""
    return Estimate(frame.length, frame.mean, frame.variances)


def estimate(plan: MomentPlan, moments: Moments) -> Estimate:
    """Return the public moments, moved towards the released ones as far as these exceed their noise."""
    frame, r = plan.frame, len(moments.second)
    mean = shrunk_mean(frame.mean, moments.mean, plan.noise / (math.sqrt(2.0) * _CONSTANT_LENGTH))
    squares = moments.squares - mean**2
    covariance = moments.second - np.outer(mean[:r], mean[:r])
    variances, correlations = frame.variances, np.zeros((r, r))
    for _ in range(_ROUNDS):
        rest = squares.copy()
        rest[:r] -= np.diag(correlations)
        variances = moved_variances(frame.variances, rest, plan.noise)
        correlations = distinct_correlations(covariance - np.diag(variances[:r]), plan.noise / math.sqrt(2.0))
    return Estimate(moments.length, mean, variances, correlations)


def shrunk_mean(public: Vector, released: Vector, error: float) -> Vector:
    """Return the public mean, moved towards the released one in each block by the rule of James and Stein."""
    mean = public.copy()
    for block in _blocks(len(mean)):
        gap = released[block] - public[block]
        mean[block] += max(0.0, 1.0 - len(gap) * error**2 / max(float(gap @ gap), 1e-300)) * gap
    return mean


def moved_variances(public: Vector, released: Vector, error: float) -> Vector:
    """Return the public variances, multiplied by one factor per block towards the released sum over the block."""
    variances = public.copy()
    for block in _blocks(len(variances)):
        total, gap = float(public[block].sum()), float((released[block] - public[block]).sum())
        threshold = _VARIANCE_CAUTION * error * math.sqrt(len(public[block]))
        gap *= max(0.0, 1.0 - (threshold / max(abs(gap), 1e-300)) ** 2)
        variances[block] *= max(1.0 + gap / total, _LEAST_VARIANCE_SHARE)
    return variances


def distinct_correlations(difference: Vector, error: float) -> Vector:
    """Return the part of a symmetric matrix that stands out from noise, which has this error off the diagonal.

    The eigenvalues of the noise fill a semicircle of radius 2 e, where e = error * sqrt(r). An eigenvalue t of the
    signal appears at t + e² / t, and its eigenvector has the squared overlap 1 - e² / t² with the true one (spiked
    matrices: F. Benaych-Georges and R. R. Nadakuditi, Advances in Mathematics 227, 2011).
    """
    edge = error * math.sqrt(len(difference))
    values, vectors = np.linalg.eigh(difference)
    far = np.abs(values) > 2.0 * edge
    values, vectors = values[far], vectors[:, far]
    signal = (values + np.sign(values) * np.sqrt(values**2 - 4.0 * edge**2)) / 2.0
    return np.asarray((vectors * (signal * (1.0 - (edge / signal) ** 2))) @ vectors.T)


def _blocks(k: int) -> list[slice]:
    """Return blocks of axes: 0-3, 4-7, 8-15 and so on."""
    ends = [0, _FIRST_BLOCK]
    while ends[-1] < k:
        ends.append(2 * ends[-1])
    return [slice(start, min(end, k)) for start, end in pairwise(ends)]


def recoloured(frame: Frame, moments: Estimate, n_classes: int) -> Prepared:
    """Return the preparation of a head by public rows, recoloured so that they have these moments."""
    r = len(moments.correlations)
    values, vectors = np.linalg.eigh(np.diag(moments.variances[:r]) + moments.correlations)
    # Correlations below zero must not cancel a variance.
    values = np.maximum(values, _LEAST_VARIANCE_SHARE * (vectors**2).T @ moments.variances[:r])
    values = np.concatenate([values, moments.variances[r:]])

    def turned(rows: Vector) -> Vector:
        return np.column_stack([rows[:, :r] @ vectors, rows[:, r:]])

    whitened, mean = turned(frame.sample), turned(moments.mean[None])
    lengths = np.linalg.norm(whitened * np.sqrt(values) + mean, axis=1)
    stretch = moments.length / max(float(np.median(lengths)), 1e-12)
    shift = np.where(np.isinf(frame.scale), 0.0, frame.scale) * (stretch * (frame.basis @ moments.mean))
    widths = np.sqrt(values + WHITENING_FLOOR * values.mean())
    d, k = frame.basis.shape
    return Prepared(
        coordinates=Coordinates(
            frame.center + shift, frame.scale, turned(frame.basis) / (stretch * widths), values / values.sum()
        ),
        start=np.zeros((1 + k, n_classes)),
        coef=np.zeros((d, n_classes)),
        intercept=np.zeros(n_classes),
        offset=False,
        warm=False,
        total=0.0,
        sample=np.column_stack([np.ones(len(whitened)), whitened * (np.sqrt(values) / widths)]),
        sample_scores=np.zeros((len(whitened), n_classes)),
        score_variances=np.zeros(0),
        n_rows=frame.n_rows,
    )
