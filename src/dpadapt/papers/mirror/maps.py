"""Mirror maps: the step argmin η<g, θ> + B(θ, θ_t), over all solutions or over a ball, for three public losses.

Line 4 of Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. B is the
Bregman divergence of the public loss. Labels cancel in it, so public rows without labels are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dtrsv
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import logsumexp

from dpadapt.learning.losses import softmax

Vector = NDArray[np.float64]

# Most Newton steps for one logistic mirror step. A safeguard: the tolerance below ends the iteration.
_LOGISTIC_STEP_ITERATIONS = 200
# Newton steps end once the gradient is this short, relative to 1 + the length of the wanted map gradient. It is close
# to what double precision allows, so that a mirror step counts as exact. Chosen by hand; neighbours were not compared.
_LOGISTIC_STEP_TOLERANCE = 1e-11
# Columns up to which all eigenvalues of a Hessian are computed to find the smallest. Chosen by hand.
_SMALL_HESSIAN = 64


@dataclass(frozen=True, eq=False)
class Ball:
    """All solutions within `radius` of `center`."""

    center: Vector
    radius: float

    def holds(self, solution: Vector) -> bool:
        """Return whether a solution lies in the ball."""
        return float(np.linalg.norm(solution - self.center)) <= self.radius * (1 + 1e-12)

    def nearest(self, solution: Vector) -> Vector:
        """Return the closest solution in the ball, by Euclidean distance."""
        away = solution - self.center
        length = float(np.linalg.norm(away))
        return solution if length <= self.radius else self.center + away * (self.radius / length)


class MirrorMap(Protocol):
    """The mirror step of a public loss."""

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return the minimiser of length <gradient, θ> + B(θ, current), the map being normalised."""
        ...


@dataclass(frozen=True, eq=False)
class EuclideanMap:
    """Half the squared length as mirror map: mirror descent is then gradient descent."""

    ball: Ball | None = None

    def step(self, current: Vector, gradient: Vector, length: float) -> Vector:
        """Return a gradient step, projected onto the ball."""
        moved = current - length * gradient
        return moved if self.ball is None else self.ball.nearest(moved)


@dataclass(frozen=True, eq=False)
class QuadraticMap:
    """A quadratic public loss as mirror map, normalised to an inverse Hessian of largest eigenvalue 1 (Appendix E).

    Parameters
    ----------
    hessian : ndarray of shape (n_columns, n_columns)
        Hessian of the public loss, ridge included. Factored once.
    ball : Ball, optional
        Where solutions must lie. A step onto the ball needs the eigenvectors of the Hessian, which take longer to
        compute than its factor.
    scratch : bool, default=False
        Whether a large Hessian may be overwritten by its factor: for one that nobody else needs. Not with a ball.
    """

    hessian: Vector
    ball: Ball | None = None
    scratch: bool = False

    @cached_property
    def factor(self) -> tuple[Vector, bool]:
        """The Cholesky factor of the Hessian."""
        try:
            # Symmetric: its transpose has the order that LAPACK wants.
            factor, lower = cho_factor(self.hessian.T, lower=True, overwrite_a=self._overwrites)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the public Hessian is singular: there are fewer public rows than features, or public columns depend "
                "on each other. Give a positive ridge."
            ) from None
        return factor, bool(lower)

    @property
    def _overwrites(self) -> bool:
        # `smallest_eigenvalue` reads small Hessians, and a step onto the ball reads all.
        return self.scratch and self.ball is None and len(self.hessian) > _SMALL_HESSIAN

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
        return solve_factored(self.factor, vectors)

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


def solve_factored(factor: tuple[Vector, bool], vectors: Vector) -> Vector:
    """Return the inverse of a matrix times `vectors`, from its lower Cholesky factor."""
    lower = factor[0]
    if vectors.ndim > 1 or not len(vectors):
        return np.asarray(cho_solve(factor, vectors, check_finite=False))
    # For a single vector the BLAS takes less than half the time of LAPACK's solver, which is made for many.
    return np.asarray(dtrsv(lower, dtrsv(lower, vectors, lower=1), lower=1, trans=1, overwrite_x=1))


def smallest_eigenvalue(matrix: Vector, factor: tuple[Vector, bool]) -> float:
    """Return the smallest eigenvalue of a positive definite matrix from its Cholesky factor."""
    k = len(matrix)
    if k <= _SMALL_HESSIAN:
        return float(np.linalg.eigvalsh(matrix)[0])
    inverse = LinearOperator((k, k), matvec=lambda v: solve_factored(factor, v), dtype=np.float64)
    # A fixed start, so that a fit repeats to the bit. The value only normalises a map.
    start = np.random.default_rng(0).standard_normal(k)
    return 1.0 / float(eigsh(inverse, k=1, which="LA", v0=start, tol=1e-5, return_eigenvectors=False)[0])


def falling_root(beyond: Callable[[float], float], scale: float) -> float:
    """Return the root of a falling function of a positive number; `scale` is a first guess."""
    high = max(scale, 1e-300)
    while beyond(high) > 0:
        high *= 4.0
    return float(brentq(beyond, 0.0, high, xtol=1e-14 * high, rtol=1e-13, maxiter=300))


@dataclass(frozen=True, eq=False)
class LogisticMap:
    """The public log-loss as mirror map: mean log-partition of public rows plus half `ridge` times the squared length.

    A step is solved exactly, by damped Newton steps. Without the ridge the gradient of the map has bounded range; a
    noisy step may then have no solution, because the gradient that it needs lies outside that range.

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
        """Return the solution whose map gradient is that of `current` less length * unit * gradient.

        If that solution lies outside the ball, return the one in the ball that is nearest in the Bregman divergence.
        """
        target = self.gradient(current) - length * self.unit * gradient
        moved = self._solve(target, current, 0.0)
        ball = self.ball
        if ball is None or ball.holds(moved):
            return moved
        # On the sphere: minimise the same plus pull / 2 |θ - center|², with the pull whose solution lies on the sphere.
        solutions = {0.0: moved}

        def beyond(pull: float) -> float:
            if pull not in solutions:
                near = solutions[min(solutions, key=lambda known: abs(known - pull))]
                solutions[pull] = self._solve(target, near, pull)
            return float(np.linalg.norm(solutions[pull] - ball.center)) - ball.radius

        pull = falling_root(beyond, self.unit)
        beyond(pull)
        return ball.nearest(solutions[pull])

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
        """Return the minimiser of map - <target, θ> + pull / 2 |θ - center|², by Newton steps with backtracking."""
        solution = start
        center = np.zeros_like(start) if self.ball is None else self.ball.center
        value = self._value(solution, target, pull)
        enough = _LOGISTIC_STEP_TOLERANCE * (1.0 + float(np.linalg.norm(target)))
        for _ in range(_LOGISTIC_STEP_ITERATIONS):
            gradient = self.gradient(solution) - target + pull * (solution - center)
            if float(np.linalg.norm(gradient)) <= enough:
                break
            hessian = self.hessian(solution)
            hessian[np.diag_indices_from(hessian)] += pull
            # The Hessian is ordered class by class: (n_classes, n_columns) flattened.
            try:
                factor = cho_factor(hessian, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                # A ridge that is lost in rounding: the solution so far is as good as this map can give.
                break
            inner = cho_solve(factor, gradient.T.ravel())
            direction = -inner.reshape(gradient.T.shape).T
            slope = float(np.sum(gradient * direction))
            # The value can still fall by about half the slope. Once rounding hides that, one more Newton step is exact.
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
