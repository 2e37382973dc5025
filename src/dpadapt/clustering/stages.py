"""The releases: counts by distance, counts on coarse bins, which say where to look finely, and counts on finer bins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.clustering.cells import Cells
from dpadapt.clustering.evidence import Noise
from dpadapt.mechanisms.bounded import histogram
from dpadapt.mechanisms.events import ConcentratedEvent
from dpadapt.mechanisms.gaussian import DiscreteGaussian
from dpadapt.mechanisms.laplace import DiscreteLaplace

Counts = NDArray[np.int64]
Mechanism = DiscreteLaplace | DiscreteGaussian

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


def stage_mechanisms(noise: str, epsilon: float, delta: float) -> tuple[Mechanism, ...]:
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


def noise_of(mechanism: Mechanism, ledger: Ledger) -> Noise:
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
