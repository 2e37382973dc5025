"""What the algorithms of paper 5 share: public proxies stand in for the private sources, and a solver does the rest."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.distances import nearest
from dpadapt.clustering.solver import capped_k_medoids
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.laplace import Laplace
from dpadapt.mechanisms.mechanism import Mechanism, NonPrivate

Array = NDArray[np.float64]

RADIUS = 0.5  # the paper's points have length 1/2 at most
CONSTANTS = ("paper", "tight")


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball around the targets' mean that holds them all, mapped to radius 1/2.

    The paper scales by the longest of all points. Where that is a source, one source moves all others: no noise that is
    calibrated to the scaled points covers it. So the ball comes from public targets alone.
    """

    centre: Array
    scale: float

    @classmethod
    def of(cls, T: Array) -> "Ball":
        """Return the ball of public targets."""
        centre = T.mean(axis=0)
        longest = float(np.linalg.norm(T - centre, axis=1).max())
        # A little less than 1/2, so that rounding leaves every target inside.
        return cls(centre, RADIUS * (1 - 1e-9) / longest if longest > 0 else 1.0)

    def scaled(self, points: Array) -> Array:
        """Return points in the ball's units."""
        # Far and infinite points are null later; a numerical warning would tell of them.
        with np.errstate(all="ignore"):
            return np.asarray((points - self.centre) * self.scale)

    def back(self, points: Array) -> Array:
        """Return points in the units of the data."""
        return points / self.scale + self.centre


class ProxyClustering(PrivateEstimator):
    """Base: release points that stand in for the sources, then choose centres among the targets with those for free."""

    n_clusters: int

    def fit(
        self, S: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "ProxyClustering":
        """Choose centres among the public targets, given that the private sources `S` serve as centres already.

        Parameters
        ----------
        S : array-like of shape (n_sources, n_features)
            Private sources. There may be none. One that is not finite counts as absent.
        y : None
            Ignored.
        public : Public
            The targets.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        k = _validate.count(self.n_clusters, "n_clusters")
        _validate.positive(self.epsilon, "epsilon", infinite=True)
        _validate.delta(self.delta)
        self._check()
        sources, T = checked_sources(S, public)
        if k > len(T):
            raise ValueError(f"n_clusters must be at most the number of targets, {len(T)}, got {k!r}.")
        ball = Ball.of(T)
        child = self._ledger(ledger)
        proxies = ball.back(self._proxies(ball.scaled(sources), ball.scaled(T), child))
        # The receipt first: an interrupted refit must not leave new centres under an old receipt.
        self.privacy_ = child.receipt(assumptions=assumed_of(self.adjacency))
        self.n_features_in_ = T.shape[1]
        self.proxies_ = proxies
        self.centers_ = capped_k_medoids(T, k, nearest(T, proxies)[1] if len(proxies) else None)
        return self

    def _check(self) -> None:
        """Check the parameters of the subclass, before anything is spent."""

    @abstractmethod
    def _proxies(self, S: Array, T: Array, ledger: Ledger) -> Array:
        """Release points that stand in for the sources; all in the ball's units."""


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
    T = _table(public.X, "public X", "targets")
    if not len(T) or not np.isfinite(T).all():
        raise ValueError("public X must hold at least one target, and finite numbers alone.")
    sources = _table(S, "S", "sources")
    if sources.shape[1] != T.shape[1]:
        raise ValueError(f"S must have the targets' {T.shape[1]} columns, got {sources.shape[1]}.")
    return sources, T


def check_columns(S: Any, public: Public | None) -> None:
    """Refuse a frame whose columns are not those of the targets."""
    theirs, ours = getattr(getattr(public, "X", None), "columns", None), getattr(S, "columns", None)
    if theirs is not None and ours is not None and list(theirs) != list(ours):
        raise ValueError("the columns of S and of the targets must be the same, in the same order.")


def _table(values: Any, name: str, what: str) -> Array:
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


def noise(epsilon: float, delta: float, enlarged: float = 1.0) -> Mechanism:
    """Return Laplace noise, or Gaussian noise if `delta` is positive, that spends the budget; `enlarged` spends less.

    Gaussian noise is rho-zCDP with rho = mu² / 2; `accounting.gaussian_epsilon(sqrt(2 rho), delta)` is the epsilon that
    asks for it.
    """
    if np.isinf(epsilon):
        return NonPrivate()
    return Laplace(enlarged / epsilon) if delta == 0 else Gaussian(enlarged / gaussian_mu(epsilon, delta))
