"""`PrivateSourceTargetClustering`: centres among public targets when private sources already serve as centres.

Also here, everything that reads a source: two histograms, and the bound on the cost. No message shows a private value.
The first histogram counts sources in coarse cells, by distance to the targets. Its noisy counts decide how finely each
coarse cell is split for the second. For the histograms the sources are read once, and nothing is kept of a single
source. The rest is in `inference.py`.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.clustering.inference import (
    LABELS,
    Cells,
    Plan,
    Released,
    choose,
    choose_neighbours,
    make_plan,
    partition,
    stage_mechanisms,
)
from dpadapt.clustering.solver import nearest
from dpadapt.data import Public
from dpadapt.inputs.gate import private_points, sources_and_targets, unit_shares
from dpadapt.inputs.persons import IDS_ASSUMPTION
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, coarser_histogram, histogram_of_blocks
from dpadapt.mechanisms.bounded_neighbours import local_neighbour_distance_sum
from dpadapt.mechanisms.mechanism import Laplace
from dpadapt.rows import Shares, Unit

Array = NDArray[Any]

# Least epsilon for one bound on the cost: below it the noise is a billion times the sensitivity, and no bound is.
_LEAST_BOUND_EPSILON = 1e-9

# Sources that every part of a split coarse cell should keep on average, in noise scales: fewer give finer parts, and
# relatively more noise. With few columns (fewer than the last number) cells are narrow compared with the distances that
# matter, and coarser ones are better. Only 2 and 8 columns were compared; the border between them is a guess.
_SCALES_PER_PART, _SCALES_PER_PART_FEW_COLUMNS, _NARROW_CELL_COLUMNS = 1.5, 8.0, 4
# Each cell is counted ring by ring if the noisy number of sources is at least this many noise scales for each finest
# bin, and in two bands of distance below that: between thousands of sources, where two bands are better, and a million.
_SCALES_PER_RING = 10.0
# Sources that are assigned to bins at a time: memory against passes of a Python loop.
_SOURCES_AT_ONCE = 2**16


def _numbers_of_centres(value: Any) -> list[int]:
    numbers = [value] if np.ndim(value) == 0 else list(value)
    if not numbers:
        raise ValueError("n_clusters must be a whole number or several of them, got none.")
    return list(dict.fromkeys(checks.count(number, "n_clusters") for number in numbers))


class PrivateSourceTargetClustering(PrivateEstimator):
    """Choose centres among public targets, given that private sources already serve as centres.

    The cost of centres is the mean distance of a target to its nearest centre or source [1]_; the algorithm is ours.
    Sources are counted twice: in coarse public cells, by distance to the targets, and in cells as fine as these counts
    allow. From noisy counts follows the expected cost of every target as a function of its distance to a centre, which
    a k-medoids solver minimises. Where the counts don't prove that there are sources in range (the gate is shut), the
    answer is exactly that of clustering the targets alone.

    **Privacy.** Protects one source (see `adjacency`); with `persons` in `fit`, all sources of one person.
    Releases: counts of sources by coarse cell and distance, and by finer cell and distance, with exact discrete noise,
    for persons with continuous noise; with `certificate_share`, a bound on the cost for each number of centres.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected. The number of sources is not used.

    Parameters
    ----------
    n_clusters : int or sequence of int, default=8
        How many centres to choose, at most the number of targets. Several numbers share one release.
    {epsilon}
    delta : float, default=0.0
        Between 0 and 1; 0 for a pure guarantee.
    noise : {"laplace", "gaussian"}, default="laplace"
        Laplace noise is smaller for a histogram. Gaussian noise needs `delta`; it is for budgets kept as zCDP.
    gate : float, default=0.001
        With at most one source or person in range, the answer is that without sources with probability 1 - `gate`.
    certificate_share : float, default=0.0
        Share of `epsilon` that is spent on `cost_bound_`. Not with persons.
    gamma : float, default=0.05
        Probability with which `cost_bound_` may fail.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets; a dictionary by number of centres if `n_clusters` has several.
    cost_estimate_ : float
        Estimate of the cost from the released counts, not a bound; a dictionary if `n_clusters` has several.
    cost_bound_ : float
        The cost is at most this with probability 1 - `gamma`; a dictionary if `n_clusters` has several. Only if
        `certificate_share` is positive.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Sources far from all targets are not counted, nor are rows that are not finite. Above 5,000 targets the costs of a
    fixed sample of them are minimised; any may be a centre. Without persons, `S` may be an iterator of blocks.

    References
    ----------
    .. [1] Differentially Private Source-Target Clustering. (Paper 5 of PAPERS.md.)

    Examples
    --------
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> T = rng.standard_normal((300, 2))
    >>> S = rng.standard_normal((2000, 2)) / 3 + 1.0
    >>> model = PrivateSourceTargetClustering(5, random_state=0).fit(S, public=Public(T))
    >>> model.centers_.shape
    (5,)
    >>> bool(model.privacy_.epsilon <= 1.0)
    True
    """

    def __init__(
        self,
        n_clusters: int | Sequence[int] = 8,
        epsilon: checks.Positive = 1.0,
        delta: float = 0.0,
        *,
        noise: Annotated[str, checks.choice("laplace", "gaussian")] = "laplace",
        gate: checks.Proportion = 0.001,
        certificate_share: checks.Share = 0.0,
        gamma: checks.Proportion = 0.05,
        adjacency: str = "add-remove",
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.noise = noise
        self.gate = gate
        self.certificate_share = certificate_share
        self.gamma = gamma
        self.adjacency = adjacency
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that rows may be not finite; they are not counted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self, S: Any, y: Any = None, *, public: Public | None = None, persons: Any = None, ledger: Ledger | None = None
    ) -> "PrivateSourceTargetClustering":
        """Choose centres among the public targets, given that the private sources `S` already serve as centres.

        Parameters
        ----------
        S : array-like of shape (n_sources, n_features), or iterator of such blocks
            Private sources. There may be none.
        y : None
            Ignored.
        public : Public
            The targets.
        {persons}
        {ledger}
        """
        numbers, share = _numbers_of_centres(self.n_clusters), float(self.certificate_share)
        public, sources, T = sources_and_targets(S, public, blocks=persons is None)
        if max(numbers) > len(T):
            raise ValueError(f"n_clusters must be at most the number of targets, {len(T)}, got {max(numbers)}.")
        if share and not (persons is None and isinstance(sources, np.ndarray)):
            raise ValueError("certificate_share must be 0 with persons, and for sources in blocks: there is no bound.")
        shares = None if persons is None else unit_shares(persons, len(sources), self.adjacency)
        unit: Unit = "row" if shares is None else shares.unit
        child = self._ledger(ledger, unit)
        mechanisms = stage_mechanisms(self.noise, (1 - share) * self.epsilon, self.delta, whole=shares is None)
        spend = {"epsilon": share * self.epsilon / len(numbers), "gamma": self.gamma}  # on each bound
        plan = make_plan(public, T, numbers, mechanisms, Adjacency.of(self.adjacency), spend["epsilon"])
        assumed = assumed_public(self.adjacency, unit)
        finest = count_sources(sources, plan.around.cells, public, shares)
        # All releases are charged at once: a cap that is too small for the bounds raises before any noise is drawn.
        runs = child.start_all(plan.charges)
        released = noisy_counts(finest, plan, runs)
        centres, costs, expected = choose(T, plan, released, gate=self.gate)
        bounds = {}
        for k, run in zip(numbers if share else (), runs[len(LABELS) :], strict=True):
            caps = nearest(T, T[centres[k]])[1]
            moved, served = most_moved(T, caps), caps[plan.around.rows]
            near = choose_neighbours(expected, plan.around.radii, served, moved=moved, **spend)
            bounds[k] = certified_cost(sources, T, caps, near, adjacency=Adjacency.of(self.adjacency), run=run, **spend)
            costs[k] = min(costs[k], bounds[k])
        # The receipt is set first: an interrupted second fit must not leave new centres with an old receipt.
        self.privacy_ = child.receipt(assumptions=assumed)
        self.n_features_in_ = T.shape[1]
        one = isinstance(self.n_clusters, int | np.integer)
        self.centers_ = centres[numbers[0]] if one else centres
        self.cost_estimate_ = costs[numbers[0]] if one else costs
        self.__dict__.pop("cost_bound_", None)
        if share:
            self.cost_bound_ = bounds[numbers[0]] if one else bounds
        return self

    def _check_combination(self, public: Any) -> None:
        numbers = _numbers_of_centres(self.n_clusters)
        if self.gamma >= 0.5:
            raise ValueError(f"gamma must be below 0.5, got {self.gamma!r}.")
        share, gaussian = self.certificate_share, self.noise == "gaussian"
        if gaussian and self.delta == 0:
            raise ValueError("delta must be positive for noise='gaussian', got 0. A common choice is 1e-6.")
        if share and gaussian:
            raise ValueError("certificate_share must be 0 for noise='gaussian': the bound has Laplace noise.")
        if share and share * self.epsilon / len(numbers) < _LEAST_BOUND_EPSILON:
            least = f"less than {_LEAST_BOUND_EPSILON:g} of epsilon for each bound"
            raise ValueError(f"certificate_share must be larger, or 0: it leaves {least}, got {share!r}.")


def count_sources(S: Any, cells: Cells, public: Public, shares: Shares | None = None) -> Bounded:
    """Return the counts of the sources in the finest bins, or the sums of their `shares`, in one pass."""
    given, width = S if isinstance(S, Iterator) else [S], len(cells.origin)
    tables = (private_points(block, "each block of S", width, public) for block in given)
    parts = (t[start : start + _SOURCES_AT_ONCE] for t in tables for start in range(0, len(t), _SOURCES_AT_ONCE))
    return histogram_of_blocks(map(cells.codes, parts), cells.n_bins, shares)


def noisy_counts(finest: Bounded, plan: Plan, runs: Sequence[Run]) -> Released:
    """Release the two histograms of the counts in the `finest` bins, with one run each, already charged."""
    cells = plan.around.cells
    group = plan.group
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


def assumed_public(adjacency: str, unit: Unit = "row") -> list[str]:
    """Return the facts that a receipt lists as assumed public."""
    rows = [] if Adjacency.of(adjacency) is Adjacency.ADD_REMOVE else [f"the number of {unit}s"]
    ids = [IDS_ASSUMPTION] if unit == "person" else []
    return [*rows, "the columns and their order", "that all cells of the sources are numbers", *ids]
