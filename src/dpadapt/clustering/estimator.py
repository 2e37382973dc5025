"""`PrivateSourceTargetClustering`: centres among public targets when private sources already serve as centres."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering import releases
from dpadapt.clustering.inference import choose, choose_neighbours
from dpadapt.clustering.solver import nearest
from dpadapt.data import Public
from dpadapt.inputs.gate import sources_and_targets, unit_shares
from dpadapt.learning.base import PrivateEstimator

# Least epsilon for one bound on the cost: below it the noise is a billion times the sensitivity. Chosen by hand.
_LEAST_BOUND_EPSILON = 1e-9


def _numbers_of_centres(value: Any, name: str) -> list[int]:
    numbers = [value] if np.ndim(value) == 0 else list(value)
    if not numbers:
        raise ValueError(f"{name} must be a whole number or several of them, got none.")
    return list(dict.fromkeys(checks.count(number, name) for number in numbers))


def _failure_probability(value: Any, name: str) -> float:
    if not checks.unit(value, name) < 0.5:
        raise ValueError(f"{name} must be below 0.5, got {value!r}.")
    return float(value)


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
        n_clusters: Annotated[int | Sequence[int], _numbers_of_centres] = 8,
        epsilon: checks.Positive = 1.0,
        delta: float = 0.0,
        *,
        noise: Annotated[str, checks.choice("laplace", "gaussian")] = "laplace",
        gate: checks.Proportion = 0.001,
        certificate_share: checks.Share = 0.0,
        gamma: Annotated[float, _failure_probability] = 0.05,
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
        numbers, share = _numbers_of_centres(self.n_clusters, "n_clusters"), float(self.certificate_share)
        public, sources, T = sources_and_targets(S, public, blocks=persons is None)
        if max(numbers) > len(T):
            raise ValueError(f"n_clusters must be at most the number of targets, {len(T)}, got {max(numbers)}.")
        if share and not (persons is None and isinstance(sources, np.ndarray)):
            raise ValueError("certificate_share must be 0 with persons, and for sources in blocks: there is no bound.")
        shares = None if persons is None else unit_shares(persons, len(sources), self.adjacency)
        child = self._ledger(ledger, "row" if shares is None else shares.unit)
        mechanisms = releases.stage_mechanisms(self.noise, (1 - share) * self.epsilon, self.delta, whole=shares is None)
        spend = {"epsilon": share * self.epsilon / len(numbers), "gamma": self.gamma}  # on each bound
        plan = releases.make_plan(public, T, numbers, mechanisms, child.adjacency, spend["epsilon"])
        finest = releases.count_sources(sources, plan.around.cells, public, shares)
        # All releases are charged at once: a cap that is too small for the bounds raises before any noise is drawn.
        runs = child.start_all(plan.charges)
        released = releases.noisy_counts(finest, plan, runs)
        centres, costs, expected = choose(T, plan, released, gate=self.gate)
        bounds = {}
        for k, run in zip(numbers if share else (), runs[len(releases.LABELS) :], strict=True):
            caps = nearest(T, T[centres[k]])[1]
            moved, served = releases.most_moved(T, caps), caps[plan.around.rows]
            near = choose_neighbours(expected, plan.around.radii, served, moved=moved, **spend)
            bounds[k] = releases.certified_cost(sources, T, caps, near, adjacency=child.adjacency, run=run, **spend)
            costs[k] = min(costs[k], bounds[k])
        # The receipt is set first: an interrupted second fit must not leave new centres with an old receipt.
        self.privacy_ = child.receipt(assumptions=releases.assumed_public(self.adjacency, child.unit))
        self.n_features_in_ = T.shape[1]
        one = isinstance(self.n_clusters, int | np.integer)
        self.centers_ = centres[numbers[0]] if one else centres
        self.cost_estimate_ = costs[numbers[0]] if one else costs
        self.__dict__.pop("cost_bound_", None)
        if share:
            self.cost_bound_ = bounds[numbers[0]] if one else bounds
        return self

    def _check_combination(self, public: Any) -> None:
        super()._check_combination(public)
        share, gaussian = self.certificate_share, self.noise == "gaussian"
        if gaussian and self.delta == 0:
            raise ValueError("delta must be positive for noise='gaussian', got 0. A common choice is 1e-6.")
        if share and gaussian:
            raise ValueError("certificate_share must be 0 for noise='gaussian': the bound has Laplace noise.")
        numbers = _numbers_of_centres(self.n_clusters, "n_clusters")
        if share and share * self.epsilon / len(numbers) < _LEAST_BOUND_EPSILON:
            least = f"less than {_LEAST_BOUND_EPSILON:g} of epsilon for each bound"
            raise ValueError(f"certificate_share must be larger, or 0: it leaves {least}, got {share!r}.")
