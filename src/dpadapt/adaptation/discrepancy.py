"""Labelled discrepancy of a source and a target: how far their mean losses can differ over a set of predictors.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, equation (2). None of these functions is private; `squared_loss_discrepancy` and `listed_discrepancy` in
`mechanisms/bounded_losses.py` make what may be released.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpadapt import _validate
from dpadapt.adaptation.exact import stack
from dpadapt.adaptation.problem import Array
from dpadapt.mechanisms.trust_region import extremes_in_ball


def discrepancy(
    X_source: ArrayLike,
    y_source: ArrayLike,
    X_target: ArrayLike,
    y_target: ArrayLike,
    *,
    radius: float,
    center: ArrayLike | None = None,
) -> float:
    """Return the discrepancy for squared loss over linear predictors in a ball, exactly.

    The difference of mean losses is a quadratic in the coefficients; its least and greatest values in a ball are two
    trust-region problems. Around a `center` this is the local discrepancy, e.g. around a model of interest.

    Parameters
    ----------
    X_source, y_source, X_target, y_target : array-like
        Rows as the predictor sees them: with a constant feature if it has an intercept.
    radius : float
        Of the ball of coefficients.
    center : array-like of shape (n_features,), optional
        Of the ball. Default: 0.

    Examples
    --------
    >>> discrepancy([[1.0]], [0.0], [[2.0]], [1.0], radius=1.0)  # (2 w - 1)² - w² at w = -1
    8.0
    >>> round(discrepancy([[1.0]], [0.0], [[2.0]], [1.0], radius=0.1, center=[0.5]), 4)
    0.32
    """
    radius = _validate.positive(radius, "radius")
    X, y, m = stack(X_source, y_source, X_target, y_target)
    if not m:
        raise ValueError("X_source must hold at least one row.")
    A = X[m:].T @ X[m:] / (len(X) - m) - X[:m].T @ X[:m] / m
    b = X[m:].T @ y[m:] / (len(X) - m) - X[:m].T @ y[:m] / m
    c = float(np.mean(y[m:] ** 2) - np.mean(y[:m] ** 2))
    if center is not None:
        at = np.asarray(center, dtype=np.float64).reshape(-1)
        if at.shape != b.shape or not np.isfinite(at).all():
            raise ValueError(f"center must hold {len(b)} finite numbers, one per feature.")
        # w = center + v: the same quadratic in v.
        c += float(at @ A @ at - 2 * b @ at)
        b = b - A @ at
    lowest, highest = extremes_in_ball(A, b, radius)
    return max(abs(lowest + c), abs(highest + c))


def local_discrepancy(
    X_source: ArrayLike,
    y_source: ArrayLike,
    X_target: ArrayLike,
    y_target: ArrayLike,
    *,
    center: ArrayLike,
    radius: float | None = None,
) -> float:
    """Return the discrepancy over predictors near `center` alone: smaller, and enough if the answer lies there.

    Parameters
    ----------
    X_source, y_source, X_target, y_target : array-like
    center : array-like of shape (n_features,)
        E.g. the target's empirical minimiser.
    radius : float, optional
        Default: 1 / sqrt(number of target rows), the order that the paper names.
    """
    near = 1 / np.sqrt(len(np.asarray(y_target))) if radius is None else radius
    return discrepancy(X_source, y_source, X_target, y_target, radius=float(near), center=center)


Difference = Callable[[Array], tuple[float, Array]]


def local_search_discrepancy(
    difference: Difference,
    shape: tuple[int, ...],
    *,
    radius: float,
    starts: int = 8,
    n_steps: int = 500,
    smoothness: float = 1.0,
    random_state: int = 0,
) -> float:
    """Return a lower bound on the discrepancy for any smooth loss, by projected gradient ascent from several starts.

    A local method: nothing certifies that it finds the supremum, and what it finds may jump when one record changes,
    so it can't be released with the sensitivity of a supremum.

    Parameters
    ----------
    difference : callable
        Takes coefficients, returns the target's mean loss less the source's, and its gradient.
    shape : tuple of int
        Of the coefficients.
    radius : float
        Of the ball, in Euclidean length.
    starts : int, default=8
        Random starts for each sign, besides 0.
    n_steps : int, default=500
    smoothness : float, default=1.0
        Largest curvature of the mean losses; steps are its inverse.
    random_state : int, default=0
    """
    radius, smoothness = _validate.positive(radius, "radius"), _validate.positive(smoothness, "smoothness")
    rng = np.random.default_rng(random_state)
    best = 0.0
    for sign in (1.0, -1.0):
        for start in range(_validate.count(starts, "starts", least=0) + 1):
            at = _project(rng.standard_normal(shape), radius) if start else np.zeros(shape)
            for _ in range(n_steps):
                value, slope = difference(at)
                best = max(best, abs(value))
                following = _project(at + sign * slope / (2 * smoothness), radius)
                if np.allclose(following, at, rtol=0, atol=1e-12 * radius):
                    break
                at = following
            best = max(best, abs(difference(at)[0]))
    return best


def _project(coef: Array, radius: float) -> Array:
    length = float(np.linalg.norm(coef))
    return coef if length <= radius else coef * (radius / length)
