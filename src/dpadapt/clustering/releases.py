"""Everything that reads private sources: the plan, two histograms, and the bound on the cost.

No message shows a private value. The plan follows from public targets and parameters alone. The first histogram counts
sources in coarse cells, by distance to the targets. Its noisy counts decide how finely each coarse cell is split for
the second. For the histograms the sources are read once, and nothing is kept of a single source.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect

from dpadapt.accounting.closed_forms import gaussian_mu
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Run
from dpadapt.clustering.public_cells import BANDS, Cells, Surroundings, prepare
from dpadapt.clustering.solver import Centres
from dpadapt.data import Public
from dpadapt.inputs.gate import private_points
from dpadapt.inputs.persons import IDS_ASSUMPTION
from dpadapt.learning.base import split_noise
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, coarser_histogram, histogram, histogram_of_blocks
from dpadapt.mechanisms.bounded_neighbours import local_neighbour_distance_sum
from dpadapt.mechanisms.mechanism import ConcentratedEvent, Mechanism
from dpadapt.mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpadapt.rows import Shares, Unit

Array = NDArray[Any]
Law = Literal["laplace", "gaussian"]
Mechanisms = tuple[DiscreteLaplace | DiscreteGaussian | Laplace | Gaussian, ...]

LABELS = "sources in coarse cells, by distance", "sources in cells split by the coarse counts"

# Constants were chosen by hand, on the development draws that docs/benchmarks/clustering.md lists.

# Shares of epsilon (or of rho) that the two histograms get, in the order of LABELS. More for the first gives a better
# partition, but noisier counts in it.
HISTOGRAM_BUDGET_SHARES = 0.12, 0.88
# Sources that every part of a split coarse cell should keep on average, in noise scales: fewer give finer parts, and
# relatively more noise. With few columns (fewer than the last number) cells are narrow compared with the distances that
# matter, and coarser ones are better. Only 2 and 8 columns were compared; the border between them is a guess.
_SCALES_PER_PART, _SCALES_PER_PART_FEW_COLUMNS, _NARROW_CELL_COLUMNS = 1.5, 8.0, 4
# Each cell is counted ring by ring if the noisy number of sources is at least this many noise scales for each finest
# bin, and in two bands of distance below that: between thousands of sources, where two bands are better, and a million.
_SCALES_PER_RING = 10.0
# Levels between a part and the parent within which parts are compared. Sources can be spread evenly over large cells
# and be clumped in small ones, so the parent should be small; but one level alone leaves about two parts to compare.
_LEVELS_TO_PARENT = 2
# Sources that are assigned to bins at a time: memory against passes of a Python loop.
_SOURCES_AT_ONCE = 2**16


def count_sources(S: Any, cells: Cells, public: Public, shares: Shares | None = None) -> Bounded:
    """Return the counts of the sources in the finest bins, or the sums of their `shares`, in one pass."""
    given, width = S if isinstance(S, Iterator) else [S], len(cells.origin)
    tables = (private_points(block, "each block of S", width, public) for block in given)
    parts = (t[start : start + _SOURCES_AT_ONCE] for t in tables for start in range(0, len(t), _SOURCES_AT_ONCE))
    return histogram_of_blocks(map(cells.codes, parts), cells.n_bins, shares)


def assumed_public(adjacency: str, unit: Unit = "row") -> list[str]:
    """Return the facts that a receipt lists as assumed public."""
    rows = [] if Adjacency.of(adjacency) is Adjacency.ADD_REMOVE else [f"the number of {unit}s"]
    ids = [IDS_ASSUMPTION] if unit == "person" else []
    return [*rows, "the columns and their order", "that all cells of the sources are numbers", *ids]


@dataclass(frozen=True)
class Noise:
    """Distribution of the noise on a count: Laplace or Gaussian of a known scale, discrete if counts are `whole`."""

    law: Law
    scale: float
    whole: bool = True

    @property
    def variance(self) -> float:
        """Variance of the continuous distribution of this scale, an upper approximation of the discrete one."""
        return (2.0 if self.law == "laplace" else 1.0) * self.scale**2

    def log_density(self, errors: Array) -> Array:
        """Return the log probability (or density) of each error, up to a constant that cancels in every ratio."""
        scaled = errors / self.scale
        return -np.abs(scaled) if self.law == "laplace" else -0.5 * scaled**2

    def log_moment(self, s: Array) -> Array:
        """Return log E exp(s noise), or an upper bound on it, for 0 < s < 1 / scale."""
        if self.law == "laplace" and self.whole:
            # P(noise = x) is proportional to a^|x| with a = exp(-1 / scale): the mean is a geometric series.
            a = -1 / self.scale
            return np.asarray(2 * np.log(-np.expm1(a)) - np.log(-np.expm1(a + s)) - np.log(-np.expm1(a - s)))
        # E exp(s noise) is 1 / (1 - (s scale)²) for Laplace noise, exp((s scale)² / 2) for Gaussian noise. Neither is
        # larger on a grid of step g: sinh(s g / 2) / sinh(g / (2 scale)) <= s scale takes the place of s scale in the
        # first; for the second see Canonne, Kamath and Steinke 2020, Lemma 9.
        square = (s * self.scale) ** 2
        moment = -np.log1p(-square) if self.law == "laplace" else square / 2
        # `Laplace` and `Gaussian` also round the count or the sum, by less than 2⁻²³ scales.
        return np.asarray(moment if self.whole else moment + 2.0**-23 * s * self.scale)


@dataclass(frozen=True, eq=False)
class Plan:
    """What one fit releases: in which public bins, with which noise, and at which price.

    `without` has the centres that ignore the sources (ClusterT), `noise` is that of each histogram. `charges`
    lists every release: the histograms, then one bound for each number of centres.
    """

    around: Surroundings
    without: Centres
    noise: tuple[Noise, Noise]
    charges: tuple[tuple[Mechanism, str], ...]


def make_plan(
    public: Public, T: Array, numbers: Sequence[int], mechanisms: Mechanisms, adjacency: Adjacency, bound_epsilon: float
) -> Plan:
    """Return the plan for choosing each of `numbers` centres among the targets `T`; `bound_epsilon` 0: no bounds."""
    law: Law = "laplace" if isinstance(mechanisms[0], DiscreteLaplace | Laplace) else "gaussian"
    whole = isinstance(mechanisms[0], DiscreteLaplace | DiscreteGaussian)
    around, without = prepare(public, T, numbers)
    # The sensitivity of a histogram does not depend on its rows, so that one without rows tells the scale. That of
    # `Laplace` grows a little with the number of bins: no histogram has more than this one.
    finest = histogram([], around.cells.n_bins)
    coarse, fine = (Noise(law, mechanism.scale(finest, adjacency), whole) for mechanism in mechanisms)
    bounds = [(Laplace(1 / bound_epsilon), "bound on the cost")] * len(numbers) if bound_epsilon else []
    return Plan(around, without, (coarse, fine), (*zip(mechanisms, LABELS, strict=True), *bounds))


def stage_mechanisms(noise: str, epsilon: float, delta: float, *, whole: bool = True) -> Mechanisms:
    """Return the mechanisms of both histograms, at `epsilon`, `delta` together; continuous if counts aren't `whole`."""
    if noise == "laplace":
        # Each histogram has l1 sensitivity 1, and pure costs add up over the histograms.
        kind = DiscreteLaplace if whole else Laplace
        return tuple(kind(1 / (share * epsilon)) for share in HISTOGRAM_BUDGET_SHARES)
    if not whole:
        return tuple(map(Gaussian, split_noise(gaussian_mu(epsilon, delta), HISTOGRAM_BUDGET_SHARES)))
    # The largest rho whose zCDP costs at most epsilon. A little less, so that neither the search nor the sum of the
    # histograms' rounded rhos exceeds it.
    log_rho = bisect(lambda log: cost_of(ConcentratedEvent(math.exp(log)), delta) - epsilon, -60.0, 60.0, xtol=1e-9)
    rho = math.exp(log_rho) * (1 - 1e-8)
    return tuple(DiscreteGaussian(1 / np.sqrt(2 * share * rho)) for share in HISTOGRAM_BUDGET_SHARES)


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy counts and the partition that they refer to: post-processing from here on.

    `coarse` are the counts in coarse cells by ring, with `coarse_noise`; `counts` are those in the parts of the finer
    partition, with `noise`. `part` is the part of each finest bin, `parent` the cell and band that each part and its
    neighbours belong to, cell * n_bands + band.
    """

    coarse: Array
    coarse_noise: Noise
    counts: Array
    part: NDArray[np.int64]
    parent: NDArray[np.int64]
    n_bands: int
    noise: Noise


def noisy_counts(finest: Bounded, plan: Plan, runs: Sequence[Run]) -> Released:
    """Release the two histograms of the counts in the `finest` bins, with one run each, already charged."""
    cells = plan.around.cells
    group = cells.coarse()
    coarse = runs[0].release(coarser_histogram(finest, group, int(group.max()) + 1)).reshape(-1, len(cells.edges))
    # Claim: each of the two histograms has |h - h'|_1 <= 1. The partition follows from the released counts alone: given
    # those, it is the same for all neighbours, its parts are disjoint, and one source is again in one of them at most;
    # a person's shares again add up to at most 1.
    scale = plan.noise[1].scale
    n_bands = len(cells.edges) if coarse.sum() >= _SCALES_PER_RING * scale * cells.n_bins else 2
    least = (_SCALES_PER_PART_FEW_COLUMNS if len(cells.origin) < _NARROW_CELL_COLUMNS else _SCALES_PER_PART) * scale
    # Noise alone should split no cell, unless it is so small that empty parts are recognised: a source counts 1.
    margin = math.sqrt(plan.noise[0].variance) * scale**2 / (1 + scale**2)
    part, parent = partition(coarse, cells, n_bands, least, margin)
    counts = runs[1].release(coarser_histogram(finest, part, len(parent)))
    return Released(coarse.ravel(), plan.noise[0], counts, part, parent, n_bands, plan.noise[1])


def partition(
    coarse: Array, cells: Cells, n_bands: int, least: float, margin: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the part of each finest bin, and the cell and band, a few levels coarser, that each part belongs to.

    Each coarse cell is split, in each band, at the finest level whose parts hold `least` sources on average, by its
    noisy count minus a margin; `margin` is for a single of the `coarse` counts, whose errors are independent.
    """
    band, top = BANDS[n_bands], cells.ancestors[0]
    n_top = int(top.max()) + 1
    in_band = np.stack([coarse[:, band == b].sum(axis=1) for b in range(n_bands)], axis=1)
    in_band = in_band - margin * np.sqrt(np.bincount(band))
    # How many cells of each level (rows) each coarse cell (columns) has.
    firsts = [np.unique(level, return_index=True)[1] for level in cells.ancestors]
    pieces = np.array([np.bincount(top[first], minlength=n_top) for first in firsts])
    enough = pieces[:, :, None] * least <= in_band
    enough[0] = True
    level = len(enough) - 1 - enough[::-1].argmax(axis=0)
    # For each finest cell and ring: the coarse cell and band, and the cell of the level that this bin is split at.
    parent = top[:, None] * n_bands + band
    cell = cells.ancestors[level[top[:, None], band], np.arange(len(top))[:, None]]
    _, where, part = np.unique((parent * len(top) + cell).ravel(), return_index=True, return_inverse=True)
    # Cells of different levels have different numbers if they lie in different coarse cells: a cell has the number of
    # its centre, whose coarse cell is the same at every level.
    above = np.maximum(level[top[:, None], band] - _LEVELS_TO_PARENT, 0)
    parent = cells.ancestors[above, np.arange(len(top))[:, None]] * n_bands + band
    return part, parent.ravel()[where]


def certified_cost(
    S: Array, T: Array, caps: Array, n_neighbours: int, *, epsilon: float, gamma: float, adjacency: Adjacency, run: Run
) -> float:
    """Release an upper bound on the mean over targets `T` of min(cap, distance to the nearest private source).

    The mean of a target's `n_neighbours` nearest capped distances is at least the smallest of them, and one source
    moves it by at most cap / `n_neighbours`, only for the targets around that source. The noise is below minus its tail
    with probability `gamma`. `n_neighbours` must follow from released or public values alone; `run` is that of the plan
    for a bound at `epsilon`, already charged.
    """
    without_sources = float(caps.mean())
    if without_sources == 0.0:
        # Every target is at a centre, with or without sources: nothing is released, and noise of scale 0 is avoided.
        return without_sources
    statistic = local_neighbour_distance_sum(S, T, n_neighbours, caps)
    noisy = float(run.release(statistic)[0])
    # Laplace noise is below -scale ln(1 / (2 gamma)) with probability gamma. The scale follows from the caps alone.
    tail = Laplace(1 / epsilon).scale(statistic, adjacency) * math.log(1 / (2 * gamma)) * (1 + 1e-6)
    return min(without_sources, (noisy + tail) / (n_neighbours * len(T)))


def most_moved(T: Array, caps: Array) -> float:
    """Return the most that one source can move the mean capped distance to the nearest source; from public targets."""
    return float(local_neighbour_distance_sum(T[:0], T, 1, caps).sensitivity("l1", Adjacency.ADD_REMOVE)) / len(T)
