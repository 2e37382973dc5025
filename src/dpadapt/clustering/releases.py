"""Everything that reads private sources, except the bound on the cost: input checks, the plan, and three histograms.

The first histogram counts sources by their distance to the targets, the second in coarse bins, the third in finer bins.
The noisy coarse counts decide how finely each coarse bin is split for the third. All bins come from public targets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpadapt import checks
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Run
from dpadapt.clustering.certificate import bound_charge
from dpadapt.clustering.public_cells import Cells, Centres, Surroundings, prepare
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.learning.estimator import moderate, public_table, require_plain, require_same_columns
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.mechanism import ConcentratedEvent, Mechanism
from dpadapt.mechanisms.noise import DiscreteGaussian, DiscreteLaplace

Array = NDArray[Any]
Counts = NDArray[np.int64]
CountNoise = DiscreteLaplace | DiscreteGaussian

COUNT_NOISES = ("laplace", "gaussian")
LABELS = "sources by distance", "sources in coarse bins", "sources in bins split by the coarse counts"

# The tuned constants below were chosen together, on the development draws that docs/clustering.md lists; except where a
# comment says so, what neighbouring values cost was not recorded.

# Shares of epsilon (or of rho) that the three histograms get, in the order of LABELS. More for the first two gives
# better distances and a better partition, but noisier fine counts.
HISTOGRAM_BUDGET_SHARES = 0.08, 0.17, 0.75
# Number of columns from which on a cell is wide compared with the distances that matter. Only 2 and 8 columns were
# compared; the border between them is a guess.
_MANY_COLUMNS = 4
# Bands of distance counted separately within a cell. More bands locate sources better, but share them among more bins.
_BANDS_FOR_FEW_COLUMNS = 3
# For many columns: (largest noise scale on a count, number of bands).
_BANDS_FOR_MANY_COLUMNS = ((1.5, 4), (np.inf, 2))
# Sources that every part of a split coarse bin should keep on average, in noise scales: fewer give finer parts with
# relatively more noise. With few columns distances within a cell hardly matter, so parts are kept larger, unless the
# noise scale of a count is at most _SMALL_COUNT_NOISE.
_SCALES_PER_PART, _SCALES_PER_PART_FEW_COLUMNS = 1.5, 4.0
_SMALL_COUNT_NOISE = 0.6
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


def source_codes(S: Array | Iterator[Any], cells: Cells, public: Public) -> NDArray[np.int32]:
    """Return the finest bin of each source, in one pass; -1 for a source that is out of range or not finite."""
    if not isinstance(S, Iterator):
        return cells.codes(S)
    width = len(cells.origin)
    parts = [cells.codes(_source_table(block, "each block of S", width, public)) for block in S]
    return np.concatenate([np.empty(0, np.int32), *parts])


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


@dataclass(frozen=True, eq=False)
class Plan:
    """What one fit releases: in which public bins and with which noise.

    Parameters
    ----------
    around : Surroundings
        The bins, and how near they are to each target.
    without : dict
        For each number of centres, the centres that ignore the sources (ClusterT).
    noise : tuple of Noise
        Noise on the counts of each histogram.
    least_in_part : float
        A coarse bin is split as finely as leaves this many sources in each part, on average.
    bound_epsilon : float
        Cost of each bound on the cost of centres; 0 if there are none.
    charges : tuple
        Mechanism and label of every release in its order: the histograms, then one bound for each number of centres.
    """

    around: Surroundings
    without: Centres
    noise: tuple[Noise, ...]
    least_in_part: float
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
    """Return the plan for choosing each of `numbers` centres among the targets `T`.

    Parameters
    ----------
    public : Public
        What `T` was taken from; the preparation of the targets is kept for the next fit with it.
    T : ndarray of shape (n_targets, n_features)
    numbers : sequence of int
    noise : {"laplace", "gaussian"}
    epsilon, delta : float
        What the histograms cost together.
    adjacency : Adjacency
    bound_epsilon : float
        What each bound costs; 0 for no bounds.
    """
    mechanisms = stage_mechanisms(noise, epsilon, delta)
    laws = tuple(_law(mechanism, adjacency) for mechanism in mechanisms)
    n_bands, scales_per_part = _resolution(laws[-1].scale, T.shape[1])
    around, without = prepare(public, T, numbers, n_bands)
    bounds = [bound_charge(bound_epsilon)] * len(numbers) if bound_epsilon else []
    charges = (*zip(mechanisms, LABELS, strict=True), *bounds)
    return Plan(around, without, laws, scales_per_part * laws[-1].scale, bound_epsilon, charges)


def stage_mechanisms(noise: str, epsilon: float, delta: float) -> tuple[CountNoise, ...]:
    """Return the mechanisms of the three histograms, which together cost `epsilon` at `delta`."""
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


def _resolution(scale: float, n_features: int) -> tuple[int, float]:
    """Return the number of bands, and the noise scales per part, for noise of `scale` on a fine count."""
    if n_features >= _MANY_COLUMNS:
        return next(bands for largest, bands in _BANDS_FOR_MANY_COLUMNS if scale <= largest), _SCALES_PER_PART
    return _BANDS_FOR_FEW_COLUMNS, _SCALES_PER_PART if scale <= _SMALL_COUNT_NOISE else _SCALES_PER_PART_FEW_COLUMNS


# The releases.


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy counts and the partition that they refer to: post-processing from here on.

    Parameters
    ----------
    profile : ndarray of shape (n_rings,)
        Noisy counts by distance to the targets.
    coarse : ndarray of shape (n_coarse_bins,)
        Noisy counts in coarse cells, for each band separately.
    counts : ndarray of shape (n_parts,)
        Noisy counts in the parts of a finer partition.
    part : ndarray of shape (n_bins,)
        The part of the partition that each finest bin belongs to.
    parent : ndarray of shape (n_parts,)
        The coarse bin that each part lies in.
    n_bands : int
        Coarse bins are numbered cell times `n_bands` plus band.
    noise : tuple of Noise
        Noise on the counts of each histogram.
    """

    profile: Counts
    coarse: Counts
    counts: Counts
    part: NDArray[np.int64]
    parent: NDArray[np.int64]
    n_bands: int
    noise: tuple[Noise, ...]

    @property
    def band(self) -> NDArray[np.int64]:
        """The band of each part."""
        return self.parent % self.n_bands

    @property
    def split(self) -> NDArray[np.bool_]:
        """Whether each part is smaller than its coarse bin."""
        return np.bincount(self.parent)[self.parent] > 1


def release(codes: NDArray[np.int32], plan: Plan, runs: Sequence[Run]) -> Released:
    """Release the three histograms.

    Parameters
    ----------
    codes : ndarray of shape (n_sources,)
        The finest bin of each private source, -1 for none.
    plan : Plan
    runs : sequence of Run
        One for each histogram, already charged.
    """
    cells = plan.around.cells
    profile = runs[0].release(histogram(cells.rings()[codes], cells.n_rings))
    coarse_bin = cells.coarse()
    coarse = runs[1].release(histogram(coarse_bin[codes], int(coarse_bin.max()) + 1))
    # The partition follows from the released counts alone: given those, it is the same for all neighbours, its parts
    # are disjoint, and one source is again in one of them at most.
    part, parent = partition(coarse, cells, plan.least_in_part)
    counts = runs[2].release(histogram(np.append(part, -1)[codes], len(parent)))
    return Released(profile, coarse, counts, part, parent, cells.n_bands, plan.noise)


def partition(coarse: NDArray[Any], cells: Cells, least: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the part of each finest bin, and the coarse bin of each part.

    Each coarse bin is split at the finest level whose parts hold `least` sources on average, by its noisy count.
    """
    top = cells.ancestors[0]
    n_top = int(top.max()) + 1
    # Row l: how many cells of level l each coarse cell has. It grows with l, so the levels that are coarse enough come
    # first.
    pieces = np.array(
        [np.bincount(top[np.unique(level, return_index=True)[1]], minlength=n_top) for level in cells.ancestors]
    )
    enough = np.repeat(pieces, cells.n_bands, axis=1) * least <= coarse
    enough[0] = True
    finest_level = len(enough) - 1 - enough[::-1].argmax(axis=0)
    coarse_bin = cells.coarse()[:-1]
    cell = cells.ancestors[finest_level[coarse_bin], np.repeat(np.arange(cells.n_cells), cells.n_rings)]
    # All bins of a coarse bin have the same level, and cells of one level have different numbers.
    _, where, part = np.unique(coarse_bin * cells.n_cells + cell, return_index=True, return_inverse=True)
    return part, coarse_bin[where]
