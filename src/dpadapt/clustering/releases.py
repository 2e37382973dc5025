"""The releases: counts by distance, counts on coarse bins, which say where to look finely, and counts on finer bins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.clustering.public_cells import Cells
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.mechanism import ConcentratedEvent
from dpadapt.mechanisms.noise import DiscreteGaussian, DiscreteLaplace

Array = NDArray[Any]


@dataclass(frozen=True)
class Noise:
    """The law of the noise on a count: discrete Laplace or discrete Gaussian of a known scale."""

    law: Literal["laplace", "gaussian"]
    scale: float

    @property
    def variance(self) -> float:
        """Its variance, but for what discreteness takes away."""
        return (2.0 if self.law == "laplace" else 1.0) * self.scale**2

    def log_density(self, errors: Array) -> Array:
        """Return the log probability of each whole number, less a constant that cancels in every ratio."""
        if self.law == "laplace":
            return -np.abs(errors) / self.scale
        return -0.5 * (errors / self.scale) ** 2


def assumed_of(adjacency: str) -> list[str]:
    """Return what a receipt says is assumed public."""
    rows = [] if Adjacency.of(adjacency) is Adjacency.ADD_REMOVE else ["the number of rows"]
    return [*rows, "the columns and their order"]


def checked_sources(S: Any, public: Public | None) -> tuple[Array, Array]:
    """Return sources and targets as arrays, or refuse them without showing a private value."""
    if public is None:
        raise ValueError("public must hold the targets to choose from: public=Public(T).")
    if not isinstance(public, Public):
        raise TypeError(f"public must be wrapped: public=Public(T), got {type(public).__name__}.")
    if public.X is S:
        raise PrivacyError("public holds the private sources themselves, which would not be protected.")
    check_columns(S, public)
    T = _finite_table(public.X, "public X", "targets")
    if not len(T) or not np.isfinite(T).all():
        raise ValueError("public X must hold at least one target, and finite numbers alone.")
    sources = _finite_table(S, "S", "sources")
    if sources.shape[1] != T.shape[1]:
        raise ValueError(f"S must have the targets' {T.shape[1]} columns, got {sources.shape[1]}.")
    return sources, T


def check_columns(S: Any, public: Public | None) -> None:
    """Refuse a frame whose columns are not those of the targets."""
    theirs, ours = getattr(getattr(public, "X", None), "columns", None), getattr(S, "columns", None)
    if theirs is not None and ours is not None and list(theirs) != list(ours):
        raise ValueError("the columns of S and of the targets must be the same, in the same order.")


def _finite_table(values: Any, name: str, what: str) -> Array:
    """Return `values` as a table of numbers; an error shows no value."""
    try:
        # A warning about one private cell would tell of it.
        with np.errstate(all="ignore"):
            array = None if np.iscomplexobj(values) else np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.ndim != 2:
        raise ValueError(f"{name} must be a table of numbers, one row for each of the {what}.")
    return array


# Private sources, all at once or block by block, reduced to the bin that each falls in.


def checked(S: Any, public: Public | None) -> tuple[Array | Iterator[Any], NDArray[np.float64]]:
    """Return sources, an array or an iterator of blocks, and targets; an error shows no private value."""
    if isinstance(S, Iterator):
        _, T = checked_sources(np.empty((0, _width(public))), public)
        return S, T
    if issparse(S):
        raise TypeError("S must be dense: sparse data is not supported. Use S.toarray(), or blocks of it.")
    if np.iscomplexobj(S):
        raise ValueError("S must be real: Complex data not supported.")
    return checked_sources(S, public)


def source_codes(S: Array | Iterator[Any], cells: Cells, public: Public | None) -> NDArray[np.int32]:
    """Return the finest bin of each source, in one pass; -1 for one that is out of range or not finite."""
    if not isinstance(S, Iterator):
        return cells.codes(S)
    width = len(cells.origin)
    parts = [np.empty(0, np.int32)]
    for block in S:
        check_columns(block, public)
        rows = _table(block)
        if rows is None or rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"each block of S must be a table of numbers with the targets' {width} columns.")
        parts.append(cells.codes(rows))
    return np.concatenate(parts)


def _table(block: Any) -> Array | None:
    """Return a block as an array, None if it holds anything but numbers."""
    try:
        array = np.asarray(block)
        if array.dtype.kind == "c":
            return None
        return array if array.dtype.kind in "fiu" else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _width(public: Any) -> int:
    shape = list(np.shape(public.X)) if isinstance(public, Public) else []
    return int(shape[1]) if len(shape) == 2 else 0


Counts = NDArray[np.int64]
CountNoise = DiscreteLaplace | DiscreteGaussian

NOISES = ("laplace", "gaussian")
LABELS = "sources by distance", "sources in coarse bins", "sources in bins split by the coarse counts"
# Shares of the budget that go into each.
SHARES = 0.08, 0.17, 0.75


@dataclass(frozen=True, eq=False)
class Released:
    """What left, and the partition it is about. Nothing here is private any more.

    Parameters
    ----------
    profile : ndarray of shape (n_rings,)
        Noisy counts by distance to the targets.
    coarse : ndarray of shape (n_coarse_bins,)
        Noisy counts in coarse cells, each band by itself.
    counts : ndarray of shape (n_parts,)
        Noisy counts in the parts of a finer partition.
    part : ndarray of shape (n_bins,)
        Which part of the partition a finest bin belongs to.
    parent : ndarray of shape (n_parts,)
        Which coarse bin a part lies in.
    n_bands : int
        Coarse bins are numbered cell times `n_bands` plus band.
    noise : tuple of Noise
        Of each stage.
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
        """Whether a part is only a part of its coarse bin."""
        return np.bincount(self.parent)[self.parent] > 1


def stage_mechanisms(noise: str, epsilon: float, delta: float) -> tuple[CountNoise, ...]:
    """Return the mechanisms of the stages, which together cost `epsilon` at `delta`."""
    if noise == "laplace":
        # One source is in one bin of each stage, and pure costs add up over the stages.
        return tuple(DiscreteLaplace(1 / (share * epsilon)) for share in SHARES)
    rho = _concentrated(epsilon, delta)
    return tuple(DiscreteGaussian(1 / np.sqrt(2 * share * rho)) for share in SHARES)


def _concentrated(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP costs at most `epsilon` at `delta`."""
    low = high = 1.0
    while cost_of(ConcentratedEvent(high), delta) <= epsilon:
        low, high = high, 4 * high
    while cost_of(ConcentratedEvent(low), delta) > epsilon:
        low, high = low / 4, low
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_of(ConcentratedEvent(middle), delta) <= epsilon else (low, middle)
    # A little less, so that stages whose rhos are rounded stay within the cap.
    return low * (1 - 1e-9)


def noise_of(mechanism: CountNoise, ledger: Ledger) -> Noise:
    """Return the law of the noise that `mechanism` puts on a histogram; it depends on no data."""
    law = "laplace" if isinstance(mechanism, DiscreteLaplace) else "gaussian"
    return Noise(law, mechanism.scale(histogram([], 1), ledger.adjacency))  # type: ignore[arg-type]


def release(
    codes: NDArray[np.int32], cells: Cells, runs: Sequence[Run], noise: Sequence[Noise], least: float
) -> Released:
    """Release the counts of all stages.

    Parameters
    ----------
    codes : ndarray of shape (n_sources,)
        The finest bin of each private source, -1 for none.
    cells : Cells
    runs, noise : sequences
        Of each stage; the runs were charged.
    least : float
        A coarse bin is split as finely as leaves this many noise scales of the last stage in each part, on average.
    """
    profile = runs[0].release(histogram(cells.rings()[codes], cells.n_rings))
    above = cells.coarse()
    coarse = runs[1].release(histogram(above[codes], int(above.max()) + 1))
    # From the released counts alone: given those, the partition is the same for all neighbours, its parts are disjoint,
    # and one source is again in one of them at most.
    part, parent = partition(coarse, cells, least * noise[2].scale)
    counts = runs[2].release(histogram(np.append(part, -1)[codes], len(parent)))
    return Released(profile, coarse, counts, part, parent, cells.n_bands, tuple(noise))


def partition(coarse: NDArray[Any], cells: Cells, least: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each finest bin's part, and each part's coarse bin: as fine as leaves parts `least` sources on average."""
    top = cells.ancestors[0]
    n_top = int(top.max()) + 1
    # How many cells of each level a coarse cell has; more and more, so that the levels that are fine enough come first.
    pieces = np.array([np.bincount(_first(level, top), minlength=n_top) for level in cells.ancestors])
    enough = np.repeat(pieces, cells.n_bands, axis=1) * least <= coarse
    enough[0] = True
    level = len(enough) - 1 - enough[::-1].argmax(axis=0)
    bins = cells.coarse()[:-1]
    cell = cells.ancestors[level[bins], np.repeat(np.arange(cells.n_cells), cells.n_rings)]
    # Cells of one level have different numbers, and a coarse bin has one level.
    _, where, part = np.unique(bins * cells.n_cells + cell, return_index=True, return_inverse=True)
    return part, bins[where]


def _first(level: NDArray[np.int64], top: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the coarse cell of each cell of a level."""
    return top[np.unique(level, return_index=True)[1]]
