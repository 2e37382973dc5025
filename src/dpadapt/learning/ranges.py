"""Private ranges: where rows and targets lie within their declared bounds, released at a small share of the budget.

Without public data a fit knows only bounds, and its noise grows with them. The releases of this file find bounds that
are far too wide. The fit then stretches rows and targets until they about fill the bounds, and works as it would with
bounds that fit. What is computed from the releases is post-processing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.base import Budget, split_noise
from dpadapt.learning.scaling import Geometry
from dpadapt.mechanisms.bounded import Bounded, added, clipped_sum, histogram
from dpadapt.mechanisms.mechanism import Gaussian
from dpadapt.rows import Blocks, Part

# The constants below were chosen by the error of PrivateLinearRegression (both solvers, epsilon 1, delta 1e-6,
# n = 1,000, 2,000 and 5,000) on synthetic sets, randhie, diabetes, digits and fair, with exact bounds and with bounds
# ten times too wide. "Exact" and "wide" are ratios to the error with exact bounds and without ranges. Each figure was
# measured when that constant was chosen, with the others close to what they are now. `python -m benchmarks bounds`
# measures what the releases cost and gain.

# Share of mu² that all ranges of a fit cost, times n * mu: 3% at n = 5,000 and epsilon 1. More of it means less noise
# in the ranges and more in the fit. At n = 5,000 a share of 4.5% changed no mean ratio by more than 0.01.
_RANGE_COST = 35.0
# Largest such share; it holds below n = 2,500 at epsilon 1. At n = 2,000 half of it raised the largest wide from 1.27
# to 1.32, twice as much raised the largest exact from 1.04 to 1.10.
_LARGEST_RANGE_SHARE = 0.06
# Least n * mu at which ranges are released: n = 990 at epsilon 1. Below, the declared bounds are kept and nothing is
# spent on ranges. At n = 500 their noise raised the error with exact bounds by 13% on one set.
_LEAST_RANGE_SIGNAL = 234.0
# Number of half octaves by which bounds can shrink at most: a factor of 256. Half, twice: 0.1% (`tools/constants.py`).
_N_HALF_OCTAVES = 16
# Standard deviations of the noise by which a noisy count must exceed its limit to stop the shrinking. Fewer stop it too
# early: with bounds ten times too wide at n = 5,000, noise alone kept the target's bounds five times too wide or more
# in 0.9% of fits with 2.25 and in 0.4% with 2.5. More stop it too late: the largest exact at n = 1,000 was 1.05 with
# 2.5 and 1.04 with 2.25.
_STOPPING_DEVIATIONS = 2.5
# Share of the targets that may lie in the octave (two bins) beyond the shrunk bounds. More targets outside mean less
# noise and more bias: with 0.02 the largest exact at n = 5,000 was 1.035 instead of 1.023, with 0 the largest wide 1.10
# instead of 1.03.
_FAR_TARGETS = {2: 0.005}
# Shares of the rows that may be longer than is typical: in the octave beyond, and in all. With 0.2 the fit failed
# (errors multiplied by 60 and more) where most rows are zero and the others matter; with 0.005 in the octave, features
# ten times too small cost a third more at n = 1,000. With 0.02 in all bins, noise alone stopped the shrinking too early
# in 0.6% of fits at n = 5,000, instead of 0.2%.
_LONG_ROWS = {2: 0.02, _N_HALF_OCTAVES + 1: 0.05}
# Largest mean square of stretched rows, in squares of their typical length, that rows hidden by the noise may add: it
# limits the stretching, to a factor of 11 at n = 5,000 and epsilon 1. With 2, features ten times too small cost 1.7
# instead of 1.1 on one set there. With 5, the error of rows of which 97% are zero rose by 21%.
_HIDDEN_SQUARE = 5.0

_LENGTHS, _MEAN, _DISTANCES = "length of rows", "mean of the target", "range of the target"
# Label of each release, and its part of what all ranges cost. With equal parts no mean ratio changed by more than 0.01.
ROWS_RANGE = {_LENGTHS: 0.2}
TARGET_RANGE = {_MEAN: 0.2, _DISTANCES: 0.6}


@dataclass(frozen=True)
class RangePlan:
    """The releases of ranges, and the budget that they leave for the fit.

    Parameters
    ----------
    charges : tuple of (Gaussian, str)
        For `Ledger.start_all`; empty if no range is released.
    rest : Budget
    """

    charges: tuple[tuple[Gaussian, str], ...]
    rest: Budget

    def count_noise(self, label: str) -> float:
        """Return the standard deviation of each count in the histogram of this label."""
        mechanism = next(mechanism for mechanism, name in self.charges if name == label)
        # A histogram moves by sqrt 2 if a row is replaced, and by 1 otherwise.
        return float(mechanism.noise_multiplier) * math.sqrt(self.rest.factor)


def plan_ranges(budget: Budget, releases: Mapping[str, float]) -> RangePlan:
    """Return the plan of releases, given by labels and parts, from public facts alone.

    Nothing is released, and the budget is left whole, if the ranges would be too noisy.
    """
    signal = budget.n_rows * budget.mu / budget.factor
    if not releases or signal < _LEAST_RANGE_SIGNAL:
        return RangePlan((), budget)
    share = min(_LARGEST_RANGE_SHARE, _RANGE_COST / signal)
    shares = [share * part for part in releases.values()]
    noises = split_noise(budget.mu, shares)
    rest = replace(budget, mu=budget.mu * math.sqrt(1 - math.fsum(shares)))
    return RangePlan(tuple((Gaussian(noise), label) for label, noise in zip(releases, noises, strict=True)), rest)


def _usable_rows(part: Part) -> NDArray[np.bool_]:
    """Return which rows are not null: those of finite length with a finite target. It is private."""
    with np.errstate(all="ignore"):
        return np.asarray(np.isfinite(_squared_lengths(part.X)) & np.isfinite(part.y))


def shrunk_geometry(run: Run, geometry: Geometry, rows: Blocks[Part], plan: RangePlan) -> Geometry:
    """Release a histogram of row lengths; return the geometry of rows that reach less far than was declared."""

    def lengths(part: Part) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            # Relative to the length of a row whose features have mean square 1/2; uniform ones have 1/3.
            return np.asarray(np.sqrt(_squared_lengths(part.X) * (2.0 / part.X.shape[1])))

    # Long rows that an octave may hide, as a share of all; stretched, they have mean square hidden / factor².
    hidden = _STOPPING_DEVIATIONS * plan.count_noise(_LENGTHS) * math.sqrt(2.0) / plan.rest.n_rows
    least = math.sqrt(hidden / _HIDDEN_SQUARE)
    shrinkage = _shrinkage(run, lengths, rows, plan, _LENGTHS, _LONG_ROWS, least=least)
    return replace(geometry, scale=geometry.scale * shrinkage)


def target_range(
    mean_run: Run,
    range_run: Run,
    rows: Blocks[Part],
    bounds: tuple[float, float],
    plan: RangePlan,
) -> tuple[float, float]:
    """Release the mean of the targets and a histogram of their distances from it; return where most of them lie.

    Returns
    -------
    mean : float
        Within the bounds.
    shrinkage : float
        Most targets lie within this factor, at most 1, of half the declared range from the mean.
    """
    low, high = bounds
    middle, half = (low + high) / 2, (high - low) / 2

    def counts_and_targets(part: Part) -> Bounded:
        with np.errstate(all="ignore"):
            # A target outside the bounds counts as the nearer bound. The number of rows may be private: the mean is the
            # ratio of two released sums.
            pairs = np.column_stack([np.ones(len(part.y)), np.clip((part.y - middle) / half, -1.0, 1.0)])
        pairs[~_usable_rows(part)] = np.nan
        return clipped_sum(pairs, math.sqrt(2.0), part.shares)

    count, total = mean_run.release(added(rows.results(counts_and_targets)))
    mean = middle + half * float(np.clip(total / max(count, 1.0), -1.0, 1.0))

    def distances(part: Part) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(part.y - mean) / half)

    return mean, _shrinkage(range_run, distances, rows, plan, _DISTANCES, _FAR_TARGETS)


def _squared_lengths(X: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _shrinkage(
    run: Run,
    sizes: Callable[[Part], NDArray[np.float64]],
    rows: Blocks[Part],
    plan: RangePlan,
    label: str,
    limits: Mapping[int, float],
    *,
    least: float = 0.0,
) -> float:
    """Release a histogram of sizes by half octaves below 1; return the smallest factor beyond which few rows lie.

    `limits` says what few is: the largest share of the rows, by the number of bins just beyond the factor.
    """
    factors = 2.0 ** (np.arange(-_N_HALF_OCTAVES, 1) / 2)

    def counted(part: Part) -> Bounded:
        # A row is in one bin, and a null row in none.
        codes = np.where(_usable_rows(part), np.searchsorted(factors, sizes(part)), -1)
        return histogram(codes, len(factors) + 1, part.shares)

    counts = run.release(added(rows.results(counted)))
    noise = plan.count_noise(label)
    shrinkage = 1.0
    for place in reversed(range(len(factors))):
        for n_bins, share in limits.items():
            beyond = counts[place + 1 :][:n_bins]
            limit = share * plan.rest.n_rows + _STOPPING_DEVIATIONS * noise * math.sqrt(len(beyond))
            if factors[place] < least or beyond.sum() > limit:
                return shrinkage
        shrinkage = float(factors[place])
    return shrinkage
