"""The public log-loss of a linear classifier as a mirror map: an exact Bregman step by damped Newton.

Line 4 of Algorithm 1 of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. The labels
cancel in the Bregman divergence, so public rows without labels do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from dpadapt.learning.losses import softmax
from dpadapt.mirror.maps import Ball, falling_root, smallest_eigenvalue

Vector = NDArray[np.float64]
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
