"""Mirror maps: the step argmin η<g, θ> + B(θ, θ_t) over a ball, for three public losses.

Line 4 of Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, eigsh

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ball:
    """All solutions within `radius` of `center`."""

    center: Vector
    radius: float

    def holds(self, solution: Vector) -> bool:
        """Tell whether a solution lies inside."""
        return float(np.linalg.norm(solution - self.center)) <= self.radius * (1 + 1e-12)

    def nearest(self, solution: Vector) -> Vector:
        """Return the closest solution inside, by Euclidean distance."""
        away = solution - self.center
        length = float(np.linalg.norm(away))
        return solution if length <= self.radius else self.center + away * (self.radius / length)


class MirrorMap(Protocol):
    """What mirror descent needs to know of a public loss."""

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return the minimiser of length <gradient, θ> + B(θ, current), the map being normalised."""
        ...


@dataclass(frozen=True, eq=False)
class EuclideanMap:
    """Half the squared length: mirror descent is gradient descent."""

    ball: Ball | None = None

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return a gradient step, brought back into the ball."""
        moved = current - length * gradient
        return moved if self.ball is None else self.ball.nearest(moved)


@dataclass(frozen=True, eq=False)
class QuadraticMap:
    """A quadratic public loss, normalised so that its inverse Hessian has largest eigenvalue 1 (Appendix E).

    Parameters
    ----------
    hessian : ndarray of shape (n_columns, n_columns)
        Its ridge included. Factored once.
    ball : Ball, optional
        Where solutions must lie. It needs the eigenvectors of the Hessian, which take longer than its factor.
    """

    hessian: Vector
    ball: Ball | None = None

    @cached_property
    def factor(self) -> tuple[Vector, bool]:
        """The Cholesky factor of the Hessian."""
        try:
            factor, lower = cho_factor(self.hessian, lower=True)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the public Hessian is singular: there are fewer public rows than features, or public columns depend "
                "on each other. Give a positive ridge."
            ) from None
        return factor, bool(lower)

    @cached_property
    def unit(self) -> float:
        """The smallest eigenvalue of the Hessian, which normalises it."""
        return smallest_eigenvalue(self.hessian, self.factor)

    @cached_property
    def _spectrum(self) -> tuple[Vector, Vector]:
        values, vectors = np.linalg.eigh(self.hessian)
        return values, vectors

    def inverse(self, vectors: Vector) -> Vector:
        """Return the inverse Hessian times `vectors`."""
        return np.asarray(cho_solve(self.factor, vectors, check_finite=False))

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return current - length * unit * H^-1 gradient, or the Bregman-nearest solution in the ball."""
        moved = current - length * self.unit * self.inverse(gradient)
        if self.ball is None or self.ball.holds(moved):
            return np.asarray(moved)
        # argmin (θ - moved)' H (θ - moved) on the sphere: θ = center + (H + ν)^-1 H (moved - center), ν >= 0.
        values, vectors = self._spectrum
        away = vectors.T @ (moved - self.ball.center)
        radius = self.ball.radius

        def beyond(pull: float) -> float:
            return float(np.linalg.norm(values * away / (values + pull))) - radius

        pull = falling_root(beyond, float(values[-1]))
        return self.ball.nearest(self.ball.center + vectors @ (values * away / (values + pull)))


def smallest_eigenvalue(matrix: Vector, factor: tuple[Vector, bool]) -> float:
    """Return the smallest eigenvalue of a positive definite matrix from its Cholesky factor."""
    k = len(matrix)
    if k <= 64:
        return float(np.linalg.eigvalsh(matrix)[0])
    inverse = LinearOperator((k, k), matvec=lambda v: cho_solve(factor, v, check_finite=False), dtype=np.float64)
    # A fixed start, so that a fit repeats to the bit.
    start = np.random.default_rng(0).standard_normal(k)
    return 1.0 / float(eigsh(inverse, k=1, which="LA", v0=start, tol=1e-8, return_eigenvectors=False)[0])


def falling_root(beyond: Callable[[float], float], scale: float) -> float:
    """Return where a falling function of a number above 0 crosses zero; `scale` is a first guess of it."""
    high = max(scale, 1e-300)
    while beyond(high) > 0:
        high *= 4.0
    return float(brentq(beyond, 0.0, high, xtol=1e-14 * high, rtol=1e-13, maxiter=300))
