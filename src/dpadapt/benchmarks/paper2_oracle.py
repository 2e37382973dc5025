"""Test-tuned descents for a linear regression: every setting of a grid at once, one column each.

The same steps as the estimators of `dpadapt.mirror` (a test holds them together), without a ledger: the best of a grid
is chosen by looking at the loss, as the paper does, so nothing here is private.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Geometry:
    """How a descent treats gradients: as they are, by the inverse Hessian, or on whitened rows.

    Parameters
    ----------
    lengths : ndarray
        Length of each private row where gradients are clipped.
    move : callable
        Turns clipped mean gradients, given for raw rows, into a step of length 1.
    shake : callable
        Turns isotropic noise into its part of a step of length 1.
    fastest : float
        A step of 1 over this does not diverge.
    """

    lengths: Array
    move: Callable[[Array], Array]
    shake: Callable[[Array], Array]
    fastest: float


def plain(X: Any, hessian: Array, ridge: float = 0.0) -> Geometry:
    """Return gradient descent; it has no use for a ridge."""
    vector = np.ones(len(hessian))
    for _ in range(50):
        vector = hessian @ vector
        vector /= np.linalg.norm(vector)
    top = float(vector @ hessian @ vector)
    return Geometry(row_lengths(X), lambda g: g, lambda b: b, top)


def mirror(X: Any, hessian: Array, ridge: float) -> Geometry:
    """Return exact mirror descent with `ridge` mean eigenvalues; normalised to a step of 1 in the mean direction."""
    unit, factor = _ridged(hessian, ridge)

    def inverse(g: Array) -> Array:
        return np.asarray(unit * cho_solve(factor, g, check_finite=False))

    return Geometry(row_lengths(X), inverse, inverse, unit)


def whitened(X: Any, hessian: Array, ridge: float) -> Geometry:
    """Return gradient descent on rows whitened by the Hessian with `ridge` mean eigenvalues."""
    _, factor = _ridged(hessian, ridge)
    lower = np.tril(factor[0])
    # |L^-1 x|² = x' H^-1 x, a few rows at a time.
    squares = [
        np.sum(solve_triangular(lower, _dense(X[i : i + 1000]).T, lower=True, check_finite=False) ** 2, axis=0)
        for i in range(0, X.shape[0], 1000)
    ]
    return Geometry(
        np.sqrt(np.concatenate(squares)),
        lambda g: np.asarray(cho_solve(factor, g, check_finite=False)),
        lambda b: np.asarray(solve_triangular(lower, b, lower=True, trans="T", check_finite=False)),
        1.0,
    )


def _ridged(hessian: Array, ridge: float) -> tuple[float, tuple[Array, bool]]:
    unit = float(np.trace(hessian)) / len(hessian)
    ridged = hessian.copy()
    ridged[np.diag_indices_from(ridged)] += ridge * unit
    return unit, cho_factor(ridged, lower=True, overwrite_a=True)


def row_lengths(X: Any) -> Array:
    """Return the length of each row of a dense or sparse matrix."""
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares, dtype=np.float64)).ravel()


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


@dataclass(frozen=True)
class Setting:
    """One point of a grid: ridge in mean eigenvalues, number of steps, rate in units of 1 / fastest, clipping norm."""

    ridge: float
    steps: int
    rate: float
    clip_norm: float


@dataclass(frozen=True, eq=False)
class Tried:
    """A setting and where it ended: the last iterate, or the average of all."""

    setting: Setting
    average: str
    solution: Array


def descend(
    X: Any,
    y: Array,
    start: Array,
    geometry: Geometry,
    settings: Sequence[Setting],
    *,
    noise: float,
    random: np.random.Generator,
) -> list[Tried]:
    """Return where settings with one ridge and one number of steps end.

    Parameters
    ----------
    X, y : array or sparse array, ndarray
        Private rows and target.
    start : ndarray
    geometry : Geometry
    settings : sequence of Setting
    noise : float
        Noise of one release over its clipping norm, if there were only one.
    random : Generator
    """
    n, steps = X.shape[0], settings[0].steps
    rate = np.array([one.rate for one in settings]) / geometry.fastest
    clip = np.array([one.clip_norm for one in settings])
    limits = clip[None, :] / geometry.lengths[:, None]
    scale = clip * noise * math.sqrt(steps) / n
    current = np.repeat(start[:, None], len(settings), axis=1)
    total = np.zeros_like(current)
    back = X.T.tocsr() if hasattr(X, "tocsr") else X.T
    for _ in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):
            weights = X @ current
            weights -= y[:, None]
            np.minimum(weights, limits, out=weights)
            np.maximum(weights, -limits, out=weights)
            shaken = geometry.shake(random.standard_normal(current.shape) * scale)
            current = current - rate * (geometry.move(back @ weights / n) + shaken)
        total += current
    ends = (("last", current), ("all", total / steps))
    return [Tried(one, name, end[:, i]) for name, end in ends for i, one in enumerate(settings)]


def ranked(tried: Sequence[Tried], loss: Callable[[Array], Array]) -> list[Tried]:
    """Return what was tried, best first; `loss` takes solutions in columns."""
    losses = np.asarray(loss(np.stack([one.solution for one in tried], axis=1)), dtype=np.float64)
    return [tried[i] for i in np.argsort(np.where(np.isfinite(losses), losses, math.inf), kind="stable")]
