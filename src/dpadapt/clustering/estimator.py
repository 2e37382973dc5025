"""`select_for_labelling`: which public targets to label when the labelled source is private."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.certificate import bound_charge, certified_cost, choose_neighbours, most_moved
from dpadapt.clustering.choice import Centres, choose
from dpadapt.clustering.public_cells import Surroundings, surroundings
from dpadapt.clustering.releases import (
    LABELS,
    NOISES,
    assumed_of,
    checked,
    noise_of,
    release,
    source_codes,
    stage_mechanisms,
)
from dpadapt.clustering.solver import cluster_t, nearest
from dpadapt.data import Public
from dpadapt.learning.estimator import PrivateEstimator
from dpadapt.learning.preparation import Remembered

# `PrivateSourceTargetClustering`: centres among public targets when private sources serve as centres already.
#
# The problem is that of "Differentially Private Source-Target Clustering" (paper 5); the algorithm is ours.


_SPACE = 4  # dimensions from which on cells are wide against the distances that matter
# Bands of distance that pay: in fewer dimensions, and in space by the noise on a count up to which they do.
_PLANE_BANDS = 3
_SPACE_BANDS = ((1.5, 4), (np.inf, 2))
# A coarse bin is split as long as its parts keep this many noise scales each. In the plane, where distances within a
# cell hardly matter, it should keep more, unless the counts are all but exact.
_LEAST, _LEAST_IN_PLANE = 1.5, 4.0
_EXACT = 0.6
_LEAST_FOR_BOUND = 1e-9

_known: Remembered[tuple[Surroundings, Centres]] = Remembered()


class PrivateSourceTargetClustering(PrivateEstimator):
    """Centres among public targets, given that private sources serve as centres already.

    The cost of centres is the mean distance of a target to its nearest centre or source [1]_. Sources are counted
    three times: by distance to the targets, in coarse public cells, and as finely as the coarse counts allow. What is
    believed of the sources after that gives every target an expected cost for each distance to a centre, and a solver
    does the rest. Where the counts don't prove that there are sources in range, the answer is exactly that of
    clustering the targets alone.

    Privacy
    -------
    Protects one source (see `adjacency`).
    Releases: sources by distance, in coarse bins, then in bins that were split by the coarse counts, with exact
    discrete noise; if asked for, a bound on the cost.
    Costs at most `epsilon`, `delta`; see `privacy_`. The targets are not protected. The number of sources is not
    used.

    Parameters
    ----------
    n_clusters : int or sequence of int, default=8
        How many centres to choose, at most the number of targets. Several numbers share one release.
    {epsilon}
    delta : float, default=0.0
        Between 0 and 1; 0 for a pure guarantee.
    noise : {"laplace", "gaussian"}, default="laplace"
        Laplace noise is pure, and smaller for a histogram. Gaussian noise needs `delta`; it is for budgets that are
        kept as zCDP.
    gate : float, default=0.1
        Where no source is in range, the centres are those of the targets alone with at least probability 1 - `gate`.
    certificate_share : float, default=0.0
        Share of `epsilon` that is spent on `cost_bound_`.
    gamma : float, default=0.05
        Probability with which `cost_bound_` may fail.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    {random_state}

    Attributes
    ----------
    centers_ : ndarray of shape (n_clusters,)
        Row numbers of the targets; a dictionary of them by number if `n_clusters` has several.
    cost_estimate_ : float
        What the cost probably is, by the released counts; a dictionary if `n_clusters` has several. Not a bound.
    cost_bound_ : float
        The cost is at most this with probability 1 - `gamma`; a dictionary if `n_clusters` has several, each bound at
        that probability. Only if `certificate_share` is positive.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Sources far from all targets count nowhere, as do rows that are not finite. Above 20,000 targets a fixed sample of
    them stands for all. `S` may be an iterator of blocks, which is read once.

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
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        noise: str = "laplace",
        gate: float = 0.1,
        certificate_share: float = 0.0,
        gamma: float = 0.05,
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
        """Tell scikit-learn that rows that are not finite count nowhere."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self, S: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateSourceTargetClustering":
        """Choose centres among the public targets, given that the private sources `S` serve as centres already.

        Parameters
        ----------
        S : array-like of shape (n_sources, n_features), or iterator of such blocks
            Private sources. There may be none.
        y : None
            Ignored.
        public : Public
            The targets.
        {ledger}
        """
        numbers = self._checked_numbers()
        share = self._checked_share()
        each = share * self.epsilon / len(numbers)
        if share and each < _LEAST_FOR_BOUND:
            raise ValueError("certificate_share must be larger: what it leaves for a bound is next to nothing.")
        sources, T = checked(S, public)
        if max(numbers) > len(T):
            raise ValueError(f"n_clusters must be at most the number of targets, {len(T)}, got {max(numbers)}.")
        if share and not isinstance(sources, np.ndarray):
            raise ValueError("certificate_share must be 0 for sources in blocks: the bound needs a second pass.")
        child = self._ledger(ledger)
        mechanisms = stage_mechanisms(self.noise, (1 - share) * self.epsilon, self.delta)
        noise = [noise_of(mechanism, child) for mechanism in mechanisms]
        n_bands, least = _resolution(noise[-1].scale, T.shape[1])
        around, without = _prepared(public, T, numbers, n_bands)
        codes = source_codes(sources, around.cells, public)
        # Charged all at once: a cap too small for the bounds raises before anything is drawn.
        charges = [*zip(mechanisms, LABELS, strict=True), *([bound_charge(each)] * len(numbers) if share else [])]
        runs = child.start_all(charges)
        released = release(codes, around.cells, runs[: len(LABELS)], noise, least)
        choice = choose(T, around, released, without, gate=self.gate)
        bounds = {}
        for k, run in zip(numbers, runs[len(LABELS) :], strict=False):
            caps = nearest(T, T[choice.centres[k]])[1]
            spend = {"epsilon": each, "gamma": self.gamma}
            radii, moved = around.shares.radii, most_moved(T, caps)
            near = choose_neighbours(choice.expected, radii, caps[around.rows], moved=moved, **spend)
            bounds[k] = certified_cost(np.asarray(sources), T, caps, near, ledger=child, run=run, **spend)
        # The receipt first: an interrupted refit must not leave new centres under an old receipt.
        self.privacy_ = child.receipt(assumptions=assumed_of(self.adjacency))
        self.n_features_in_ = T.shape[1]
        one = isinstance(self.n_clusters, int | np.integer)
        self.centers_ = choice.centres[numbers[0]] if one else choice.centres
        costs = {k: min(cost, bounds.get(k, cost)) for k, cost in choice.costs.items()}
        self.cost_estimate_ = costs[numbers[0]] if one else costs
        if share:
            self.cost_bound_ = bounds[numbers[0]] if one else bounds
        elif hasattr(self, "cost_bound_"):
            del self.cost_bound_
        return self

    def _checked_numbers(self) -> list[int]:
        """Check the parameters, before anything is read; return the numbers of centres."""
        given = [self.n_clusters] if np.ndim(self.n_clusters) == 0 else list(self.n_clusters)  # type: ignore[arg-type]
        if not given:
            raise ValueError("n_clusters must be a whole number or several of them, got none.")
        checks.positive(self.epsilon, "epsilon")
        delta = checks.delta(self.delta)
        if checks.one_of(self.noise, NOISES, "noise") == "gaussian" and delta == 0:
            raise ValueError("delta must be positive for noise='gaussian', got 0. A common choice is 1e-6.")
        checks.unit(self.gate, "gate")
        if not checks.unit(self.gamma, "gamma") < 0.5:
            raise ValueError(f"gamma must be below 0.5, got {self.gamma!r}.")
        return list(dict.fromkeys(checks.count(k, "n_clusters") for k in given))

    def _checked_share(self) -> float:
        share = self.certificate_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise ValueError(f"certificate_share must lie in [0, 1), got {share!r}.")
        if share and self.noise == "gaussian":
            raise ValueError("certificate_share must be 0 for noise='gaussian': the bound has Laplace noise.")
        return float(share)


def _resolution(scale: float, n_features: int) -> tuple[int, float]:
    """Return the number of bands, and how many noise scales a part should hold, for noise of `scale` on a count."""
    if n_features >= _SPACE:
        return next(bands for most, bands in _SPACE_BANDS if scale <= most), _LEAST
    return _PLANE_BANDS, _LEAST_IN_PLANE if scale > _EXACT else _LEAST


def _prepared(
    public: Public | None, T: NDArray[np.float64], numbers: Sequence[int], n_bands: int
) -> tuple[Surroundings, Centres]:
    """Return what the targets alone give, made once for each `Public`."""

    def make() -> tuple[Surroundings, Centres]:
        return surroundings(T, numbers, n_bands=n_bands), {k: cluster_t(T, k) for k in numbers}

    if public is None:
        return make()
    return _known.get(public, [T, np.array([*numbers, n_bands])], make)


def select_for_labelling(
    S: Any,
    T: Any,
    k: int,
    *,
    epsilon: float = 1.0,
    adjacency: str = "add-remove",
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> NDArray[np.int64]:
    """Return the rows of `T` to label: `k` centres, given that the labelled private rows `S` serve as centres already.

    The use that motivates paper 5 (after de Mathelin et al., 2022): a target is easy to predict if a labelled row is
    near. The columns must be on scales in which that is true; scale them by `T`.

    Parameters
    ----------
    S : array-like of shape (n_sources, n_features)
        Features of the private rows. Their labels are not used.
    T : array-like of shape (n_targets, n_features)
        Features of the public rows that may be labelled.
    k : int
        How many to label.
    epsilon : float, default=1.0
        What the choice may spend, besides what a model on `S` spends.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    ledger : Ledger, optional
        The private data set's ledger; it is charged what the choice spends.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee.

    Returns
    -------
    ndarray of shape (k,)
        Row numbers of `T`.

    Notes
    -----
    A source counts as a labelled row here. A private model knows less of a single source than that, so where the budget
    of the model is small the rows that `baselines.cluster_t` chooses may serve as well, for free: docs/clustering.md
    has the figures.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 2.0
    >>> len(select_for_labelling(S, T, 10, random_state=0))
    10
    """
    model = PrivateSourceTargetClustering(k, epsilon, adjacency=adjacency, random_state=random_state)
    return np.asarray(model.fit(S, public=Public(T), ledger=ledger).centers_)
