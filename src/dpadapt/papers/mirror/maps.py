"""The public log-loss of a linear classifier as a mirror map: an exact Bregman step by damped Newton.

Line 4 of Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. The labels
cancel in the Bregman divergence, so public rows without labels do.
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
from scipy.special import logsumexp

from dpadapt.learning.descent import softmax

# Mirror maps: the step argmin η<g, θ> + B(θ, θ_t) over a ball, for three public losses.
#
# Line 4 of Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.


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


_ITERATIONS = 200
_TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False)
class LogisticMap:
    """Mean log-partition of public rows plus half `ridge` times the squared length.

    Without the ridge the gradient of the map has bounded range, and noise may ask for a point outside: there would be
    no solution.

    Parameters
    ----------
    rows : ndarray of shape (n_public, n_columns)
        Public rows with their constant.
    ridge : float
        Positive.
    start : ndarray of shape (n_columns,) or (n_columns, n_classes)
        Where descent starts; the map is normalised so that its inverse Hessian there has largest eigenvalue 1.
    ball : Ball, optional
        Where solutions must lie.
    """

    rows: Vector
    ridge: float
    start: Vector
    ball: Ball | None = None

    @cached_property
    def unit(self) -> float:
        """The smallest eigenvalue of the Hessian at the start."""
        hessian = self.hessian(self.start)
        return smallest_eigenvalue(hessian, cho_factor(hessian, lower=True))

    def gradient(self, solution: Vector) -> Vector:
        """Return the gradient of the map; labels would only add a constant."""
        return np.asarray(self.rows.T @ self._probabilities(solution) / len(self.rows) + self.ridge * solution)

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return the solution whose map gradient is that of `current` less length * unit * gradient, or the nearest."""
        target = self.gradient(current) - length * self.unit * gradient
        moved = self._solve(target, current, 0.0)
        ball = self.ball
        if ball is None or ball.holds(moved):
            return moved
        # On the sphere: minimise the same plus pull / 2 |θ - center|², with the pull that ends on it.
        found = {0.0: moved}

        def beyond(pull: float) -> float:
            if pull not in found:
                near = found[min(found, key=lambda known: abs(known - pull))]
                found[pull] = self._solve(target, near, pull)
            return float(np.linalg.norm(found[pull] - ball.center)) - ball.radius

        pull = falling_root(beyond, self.unit)
        beyond(pull)
        return ball.nearest(found[pull])

    def hessian(self, solution: Vector) -> Vector:
        """Return the second derivative of the map, class by class for several classes."""
        p = self._probabilities(solution)
        n, k = self.rows.shape
        if p.ndim == 1:
            inner = self.rows.T @ (self.rows * (p * (1 - p))[:, None]) / n
        else:
            n_classes = p.shape[1]
            inner = np.empty((n_classes * k, n_classes * k))
            for a in range(n_classes):
                for b in range(a + 1):
                    weight = p[:, a] * ((a == b) - p[:, b])
                    block = self.rows.T @ (self.rows * weight[:, None]) / n
                    inner[a * k : (a + 1) * k, b * k : (b + 1) * k] = block
                    inner[b * k : (b + 1) * k, a * k : (a + 1) * k] = block.T
        inner[np.diag_indices_from(inner)] += self.ridge
        return np.asarray(inner)

    def _probabilities(self, solution: Vector) -> Vector:
        scores = self.rows @ solution
        return np.asarray(0.5 + 0.5 * np.tanh(scores / 2) if scores.ndim == 1 else softmax(scores))

    def _value(self, solution: Vector, target: Vector, pull: float) -> float:
        scores = self.rows @ solution
        partition = np.logaddexp(0.0, scores) if scores.ndim == 1 else logsumexp(scores, axis=1)
        away = 0.0 if self.ball is None else float(np.sum((solution - self.ball.center) ** 2))
        square = float(np.sum(solution**2))
        return float(np.mean(partition) + self.ridge / 2 * square + pull / 2 * away - np.sum(target * solution))

    def _solve(self, target: Vector, start: Vector, pull: float) -> Vector:
        """Return the minimiser of map - <target, θ> + pull / 2 |θ - center|²: Newton steps, halved until they help."""
        solution = start
        center = np.zeros_like(start) if self.ball is None else self.ball.center
        value = self._value(solution, target, pull)
        enough = _TOLERANCE * (1.0 + float(np.linalg.norm(target)))
        for _ in range(_ITERATIONS):
            gradient = self.gradient(solution) - target + pull * (solution - center)
            if float(np.linalg.norm(gradient)) <= enough:
                break
            hessian = self.hessian(solution)
            hessian[np.diag_indices_from(hessian)] += pull
            # The Hessian is ordered class by class: (n_classes, n_columns) flattened.
            inner = cho_solve(cho_factor(hessian, lower=True, check_finite=False), gradient.T.ravel())
            direction = -inner.reshape(gradient.T.shape).T
            slope = float(np.sum(gradient * direction))
            # What is left to gain is half the slope. Where rounding hides it, one more Newton step is exact.
            last = -slope <= 1e-13 * (1.0 + abs(value) + abs(float(np.sum(target * solution))))
            size = 1.0
            trial, reached = solution + direction, 0.0
            while not last and size > 1e-12:
                trial = solution + size * direction
                reached = self._value(trial, target, pull)
                if reached <= value + 1e-4 * size * slope:
                    break
                size /= 2
            solution, value = trial, reached
            if last:
                break
        return solution
