"""Everything that reads private sources, except the bound on the cost: input checks, the plan, and two histograms.

The first histogram counts sources in coarse cells, by distance to the targets. Its noisy counts decide how finely each
coarse cell is split for the second. All bins come from public targets. The sources are read once, and nothing is kept
of a single source.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.stats import norm

from dpadapt import checks
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Run
from dpadapt.clustering.certificate import bound_charge
from dpadapt.clustering.public_cells import BANDS, Cells, Centres, Surroundings, prepare
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.learning.estimator import moderate, public_table, require_plain, require_same_columns
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, coarser_histogram, histogram, histogram_of_blocks
from dpadapt.mechanisms.mechanism import ConcentratedEvent, Mechanism
from dpadapt.mechanisms.noise import DiscreteGaussian, DiscreteLaplace

Array = NDArray[Any]
Counts = NDArray[np.int64]
CountNoise = DiscreteLaplace | DiscreteGaussian

COUNT_NOISES = ("laplace", "gaussian")
LABELS = "sources in coarse cells, by distance", "sources in cells split by the coarse counts"

# The tuned constants below were chosen on the development draws that docs/clustering.md lists.

# Shares of epsilon (or of rho) that the two histograms get, in the order of LABELS. More for the first gives a
# better partition, but noisier counts in it. With .25 for the first (and 20 coarsest cells), the gap on
# real development draws was .02 higher at epsilon 1, .01 higher at .3 and .02 lower at .1: within their noise.
HISTOGRAM_BUDGET_SHARES = 0.12, 0.88
# With fewer columns than this, cells are narrow compared with the distances that matter. Only 2 and 8 columns were
# compared; the border between them is a guess.
_NARROW_CELL_COLUMNS = 4
# Sources that every part of a split coarse cell should keep on average, in noise scales: fewer give finer parts, and
# relatively more noise. With few columns 4 instead of 8 raised the gap from .13 to .17 at epsilon .3 and from .24 to
# .34 at epsilon .1.
_SCALES_PER_PART, _SCALES_PER_PART_FEW_COLUMNS = 1.5, 8.0
# Each cell is counted ring by ring if the noisy number of sources is at least this many noise scales for each finest
# bin, and in two bands of distance below that. Chosen by hand, between thousands of sources (8 development draws at
# epsilon 1: with two bands the gap was .19 real, .07 synthetic, with four .20 and .10) and a million (one draw, 100,000
# targets, epsilon 1: two bands .40, four .38, ring by ring .19).
_SCALES_PER_RING = 10.0
# Sources that are assigned to bins at a time: memory against passes of a Python loop. Chosen by hand.
_SOURCES_AT_ONCE = 2**16
# Largest coordinate of a target: the solver keeps distances in float32, and sums them.
_LARGEST_TARGET = 1e30


# Input checks. No message shows a private value.


def declared_targets(public: Public | None) -> Public:
    """Return `public` if it is declared; clustering can't do without it."""
    if public is None:
        raise ValueError("public must hold the targets to choose from: public=Public(T).")
    return checks.declared_public(public)


def checked_inputs(S: Any, public: Public) -> tuple[Array | Iterator[Any], NDArray[np.float64]]:
    """Return sources, as an array or as the iterator of blocks that was given, and targets."""
    return (S, checked_targets(public)) if isinstance(S, Iterator) else checked_sources(S, public)


def checked_sources(S: Any, public: Public) -> tuple[Array, Array]:
    """Return sources and targets as arrays of numbers with the same columns."""
    if public.X is S:
        raise PrivacyError("public holds the private sources themselves, which would not be protected.")
    T = checked_targets(public)
    return _source_table(S, "S", T.shape[1], public), T


def checked_targets(public: Public) -> NDArray[np.float64]:
    """Return the targets as an array of finite numbers."""
    return moderate(public_table(public.X), "public X", _LARGEST_TARGET)


def count_sources(S: Array | Iterator[Any], cells: Cells, public: Public) -> Bounded:
    """Return the counts of the sources in the finest bins, in one pass."""
    width = len(cells.origin)
    tables = (
        _source_table(block, "each block of S", width, public) for block in (S if isinstance(S, Iterator) else [S])
    )
    parts = (t[start : start + _SOURCES_AT_ONCE] for t in tables for start in range(0, len(t), _SOURCES_AT_ONCE))
    return histogram_of_blocks(map(cells.codes, parts), cells.n_bins)


def assumed_public(adjacency: str) -> list[str]:
    """Return the facts that a receipt lists as assumed public."""
    rows = [] if Adjacency.of(adjacency) is Adjacency.ADD_REMOVE else ["the number of rows"]
    return [*rows, "the columns and their order", "that all cells of the sources are numbers"]


def _source_table(rows: Any, name: str, width: int, public: Public) -> Array:
    """Return sources as a table of numbers with the columns of the targets; cells need not be finite."""
    if issparse(rows):
        raise TypeError(f"{name} must be dense: sparse data is not supported. Use .toarray(), or blocks of it.")
    require_same_columns(public, rows)
    refusal = f"{name} must be a table of numbers, one row for each source. Complex data not supported."
    sources: Array = np.empty(0)
    try:
        require_plain(rows, name)
        if not np.iscomplexobj(rows):
            # A warning would reveal that some private value does not fit.
            with np.errstate(all="ignore"):
                sources = np.asarray(rows, dtype=np.float64)
    except Exception:
        # Raised below, outside of the handler: the original error may quote a cell and would be the context of ours.
        sources = np.empty(0)
    if sources.ndim != 2:
        raise ValueError(refusal)
    if sources.shape[1] != width:
        raise ValueError(f"{name} must have the targets' {width} columns, got {sources.shape[1]}.")
    return sources


# The plan: from public targets and parameters alone.


@dataclass(frozen=True)
class Noise:
    """Distribution of the noise on a count: discrete Laplace or discrete Gaussian of a known scale."""

    law: Literal["laplace", "gaussian"]
    scale: float

    @property
    def variance(self) -> float:
        """Variance of the continuous distribution of this scale, an upper approximation of the discrete one."""
        return (2.0 if self.law == "laplace" else 1.0) * self.scale**2

    def log_density(self, errors: Array) -> Array:
        """Return the log probability of each whole number, up to a constant that cancels in every ratio."""
        if self.law == "laplace":
            return -np.abs(errors) / self.scale
        return -0.5 * (errors / self.scale) ** 2

    def exceeded(self, probability: float) -> int:
        """Return a number that noise reaches with at most this probability, which is below 1/2."""
        if self.law == "laplace":
            # P(noise >= t) = exp(-t / scale) / (1 + exp(-1 / scale)) for whole t >= 0.
            return max(1, math.ceil(-self.scale * (math.log(probability) + math.log1p(math.exp(-1 / self.scale)))))
        # P(noise >= t) <= P(N(0, scale²) >= t - 1): Canonne, Kamath and Steinke 2020, Proposition 25.
        return 1 + max(1, math.ceil(self.scale * norm.isf(probability)))

    def log_moment(self, s: Array) -> Array:
        """Return log E exp(s noise), or an upper bound on it, for 0 < s < 1 / scale."""
        if self.law == "laplace":
            # P(noise = x) is proportional to a^|x| with a = exp(-1 / scale): the mean is a geometric series.
            a = -1 / self.scale
            return np.asarray(2 * np.log(-np.expm1(a)) - np.log(-np.expm1(a + s)) - np.log(-np.expm1(a - s)))
        # Discrete Gaussian noise is subgaussian: Canonne, Kamath and Steinke 2020, Lemma 9.
        return np.asarray((s * self.scale) ** 2 / 2)


@dataclass(frozen=True, eq=False)
class Plan:
    """What one fit releases: in which public bins, with which noise, and at which price.

    `without` has the centres that ignore the sources (ClusterT). `charges` lists mechanism and label of every release,
    in order: the histograms, then one bound for each number of centres, at `bound_epsilon` each.
    """

    around: Surroundings
    without: Centres
    noise: tuple[Noise, ...]
    bound_epsilon: float
    charges: tuple[tuple[Mechanism, str], ...]


def make_plan(
    public: Public,
    T: Array,
    numbers: Sequence[int],
    *,
    noise: str,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    bound_epsilon: float,
) -> Plan:
    """Return the plan for choosing each of `numbers` centres among the targets `T` of `public`.

    The histograms cost `epsilon` and `delta` together, each bound costs `bound_epsilon`, 0 for no bounds.
    """
    mechanisms = stage_mechanisms(noise, epsilon, delta)
    laws = tuple(_law(mechanism, adjacency) for mechanism in mechanisms)
    around, without = prepare(public, T, numbers)
    bounds = [bound_charge(bound_epsilon)] * len(numbers) if bound_epsilon else []
    return Plan(around, without, laws, bound_epsilon, (*zip(mechanisms, LABELS, strict=True), *bounds))


def stage_mechanisms(noise: str, epsilon: float, delta: float) -> tuple[CountNoise, ...]:
    """Return the mechanisms of the two histograms, which together cost `epsilon` at `delta`."""
    if noise == "laplace":
        # One source is in one bin of each histogram, and pure costs add up over the histograms.
        return tuple(DiscreteLaplace(1 / (share * epsilon)) for share in HISTOGRAM_BUDGET_SHARES)
    rho = _largest_rho(epsilon, delta)
    return tuple(DiscreteGaussian(1 / np.sqrt(2 * share * rho)) for share in HISTOGRAM_BUDGET_SHARES)


def _largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP costs at most `epsilon` at `delta`."""
    low = high = 1.0
    while cost_of(ConcentratedEvent(high), delta) <= epsilon:
        low, high = high, 4 * high
    while cost_of(ConcentratedEvent(low), delta) > epsilon:
        low, high = low / 4, low
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_of(ConcentratedEvent(middle), delta) <= epsilon else (low, middle)
    # A little less, so that the sum of the histograms' rounded rhos stays within the cap.
    return low * (1 - 1e-9)


def _law(mechanism: CountNoise, adjacency: Adjacency) -> Noise:
    """Return the distribution of the noise that `mechanism` adds to a count of any histogram."""
    law = "laplace" if isinstance(mechanism, DiscreteLaplace) else "gaussian"
    # The sensitivity of a histogram does not depend on its rows, so that one without rows tells the scale.
    return Noise(law, mechanism.scale(histogram([], 1), adjacency))  # type: ignore[arg-type]


# The releases.


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy counts and the partition that they refer to: post-processing from here on.

    `coarse` has noisy counts by coarse cell and ring, `counts` those in the parts of a finer partition. `part` is the
    part of each finest bin, `parent` the coarse cell and band of each part, cell * n_bands + band.
    """

    coarse: Counts
    counts: Counts
    part: NDArray[np.int64]
    parent: NDArray[np.int64]
    n_bands: int
    noise: tuple[Noise, ...]


def release(finest: Bounded, plan: Plan, runs: Sequence[Run]) -> Released:
    """Release the two histograms of the counts in the `finest` bins, with one run each, already charged."""
    cells = plan.around.cells
    group = cells.coarse()
    coarse = runs[0].release(coarser_histogram(finest, group, int(group.max()) + 1)).reshape(-1, cells.n_rings)
    # The partition follows from the released counts alone: given those, it is the same for all neighbours, its parts
    # are disjoint, and one source is again in one of them at most.
    few, scale = len(cells.origin) < _NARROW_CELL_COLUMNS, plan.noise[1].scale
    n_bands = cells.n_rings if coarse.sum() >= _SCALES_PER_RING * scale * cells.n_bins else 2
    least = (_SCALES_PER_PART_FEW_COLUMNS if few else _SCALES_PER_PART) * scale
    part, parent = partition(coarse, cells, n_bands, least)
    counts = runs[1].release(coarser_histogram(finest, part, len(parent)))
    return Released(coarse, counts, part, parent, n_bands, plan.noise)


def partition(coarse: Array, cells: Cells, n_bands: int, least: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the part of each finest bin, and the coarse cell and band of each part.

    Each coarse cell is split, in each band, at the finest level whose parts hold `least` sources on average, by its
    noisy count.
    """
    band, top = BANDS[n_bands], cells.ancestors[0]
    n_top = int(top.max()) + 1
    in_band = np.stack([coarse[:, band == b].sum(axis=1) for b in range(n_bands)], axis=1)
    # How many cells of each level (rows) each coarse cell (columns) has.
    firsts = [np.unique(level, return_index=True)[1] for level in cells.ancestors]
    pieces = np.array([np.bincount(top[first], minlength=n_top) for first in firsts])
    enough = pieces[:, :, None] * least <= in_band
    enough[0] = True
    level = len(enough) - 1 - enough[::-1].argmax(axis=0)
    # For each finest cell and ring: the coarse cell and band, and the cell of the level that this bin is split at.
    parent = top[:, None] * n_bands + band
    cell = cells.ancestors[level[top[:, None], band], np.arange(cells.n_cells)[:, None]]
    _, where, part = np.unique((parent * cells.n_cells + cell).ravel(), return_index=True, return_inverse=True)
    return part, parent.ravel()[where]
