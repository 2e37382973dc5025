"""`MirrorEstimator`: what the two estimators of public data-assisted mirror descent share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.closed_forms import gaussian_epsilon
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.errors import PrivacyError
from dpadapt.learning.descent import Loss, gradient_weights
from dpadapt.learning.estimator import Budget, PrivateEstimator
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.papers.mirror.maps import Ball, MirrorMap
from dpadapt.papers.mirror.public_fit import Terrain, choose
from dpadapt.rows import Rows

# Private mirror descent: clipped full-batch gradients, a step of the caller's choice, averaged iterates.
#
# Algorithm 1 and Equation (1) of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.


Vector = NDArray[np.float64]
Step = Callable[[int, Vector, Vector], Vector]
AVERAGES = ("all", "tail", "last")


def mirror_descent(
    run: Run, rows: Rows, loss: Loss, start: Vector, *, clip_norm: float, n_rows: float, step: Step, average: str
) -> Vector:
    """Return the average of iterates 1 … T, of their last half, or the last one.

    Parameters
    ----------
    run : Run
        A charged run; it says how many steps there are.
    rows : Rows
    loss : Loss
    start : ndarray
        Where to start, shape (n_columns,) or (n_columns, n_scores).
    clip_norm : float
        Each example's gradient is scaled down to this length.
    n_rows : float
        A public number of rows to divide sums by.
    step : callable
        Takes the number of the step, the iterate and the private gradient there; returns the next iterate.
    average : {"all", "tail", "last"}
    """
    current, total = start, np.zeros_like(start)
    steps = run.plan.steps
    first = first_averaged(steps, average)
    for t in range(steps):
        weights = gradient_weights(loss, current.astype(rows.X.dtype))
        gradient = run.release(clipped_outer_sum(rows, weights, clip_norm)) / n_rows
        current = step(t, current, gradient)
        if t >= first:
            total = total + current
    return total / (steps - first)


def first_averaged(steps: int, average: str) -> int:
    """Return the first step, counted from 0, whose outcome takes part in the average."""
    return {"all": 0, "tail": steps // 2, "last": steps - 1}[average]


def exact_step(mirror: MirrorMap, length: float) -> Step:
    """Return line 4 of Algorithm 1: the minimiser of length <g, θ> + B(θ, θ_t)."""
    return lambda t, current, gradient: mirror.step(current, gradient, length)


def first_order_step(public_gradient: Callable[[Vector], Vector], length: float, schedule_steps: int) -> Step:
    """Return Equation (1): a gradient step on a mixture of private and public loss, more and more of it public."""

    def step(t: int, current: Vector, gradient: Vector) -> Vector:
        share = private_share(t, schedule_steps)
        return current - length * (share * gradient + (1.0 - share) * public_gradient(current))

    return step


def private_share(t: int, schedule_steps: int) -> float:
    """Return the weight of the private gradient at step t: cos(π t / 2K), and 0 from K on.

    The cosine as printed turns negative beyond K, which would climb the private loss.

    Examples
    --------
    >>> [round(private_share(t, 4), 3) for t in (0, 2, 4, 9)]
    [1.0, 0.707, 0.0, 0.0]
    """
    return 0.0 if t >= schedule_steps else math.cos(math.pi * t / (2 * schedule_steps))


# How much noise T private steps need: exactly, or as Algorithm 1 of the mirror-descent paper prints it.
#
# .. [1] Public Data-Assisted Mirror Descent for Private Model Training. arXiv:2112.00193, Algorithm 1, line 1.


NOISES = ("exact", "paper")


def paper_noise_multiplier(epsilon: float, delta: float, *, steps: int = 1) -> float:
    """Return the printed noise of each step over the clipping norm: sqrt(8 T ln(1/delta)) / epsilon.

    The claim of (`epsilon`, `delta`) is true up to an epsilon a little above 8 ln(1/delta), and wasteful: at epsilon 1
    and delta 1e-5 the noise is 2.6 times what is needed.

    Raises
    ------
    PrivacyError
        Where the claim is false.

    Examples
    --------
    >>> round(paper_noise_multiplier(1.0, 1e-5), 3)
    9.597
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    steps = checks.count(steps, "steps")
    if delta == 0:
        raise ValueError("delta must be positive for Gaussian noise, got 0. A common choice is 1e-6.")
    once = math.sqrt(8 * math.log(1 / delta)) / epsilon
    # T releases at sqrt(T) times the noise are one release at that noise.
    true = gaussian_epsilon(1 / once, delta)
    if true > epsilon:
        raise PrivacyError(
            f"noise='paper' claims epsilon={epsilon:.4g}, but that noise costs {true:.4g} at delta={delta:.3g}. "
            f"Use noise='exact'."
        )
    return math.sqrt(steps) * once


def noise_multiplier(noise: str, epsilon: float, delta: float, *, steps: int) -> float:
    """Return the noise of each of `steps` full-batch releases over the sensitivity, by the rule called `noise`."""
    if checks.one_of(noise, NOISES, "noise") == "paper":
        return paper_noise_multiplier(epsilon, delta, steps=steps)
    return calibrate(epsilon, delta, steps=steps)


def paper_note(epsilon: float, spent: float) -> str:
    """Return what the receipt says about the printed noise."""
    return f"the paper's noise was used, which claims epsilon = {epsilon:.4g}; exact accounting finds {spent:.4g}"


STEPS = ("exact", "first-order")


@dataclass(frozen=True, eq=False)
class Descent:
    """How a descent will go, decided before a private row is read.

    Parameters
    ----------
    clip_norm, learning_rate : float
    multiplier : float
        Noise of one release over its sensitivity.
    step : Step
    """

    clip_norm: float
    learning_rate: float
    multiplier: float
    step: Step


class MirrorEstimator(PrivateEstimator):
    """Parameters, plan and descent of Algorithm 1; subclasses bring the loss and the mirror map."""

    step: str
    noise: str
    n_steps: int
    learning_rate: float | None
    clip_norm: float | None
    ridge: float | None
    radius: float | None
    schedule_steps: int | None
    average: str
    standardise: bool
    fit_intercept: bool

    def _check_parameters(self, *, labelled: bool) -> None:
        """Check what can be checked before data is read."""
        checks.one_of(self.step, STEPS, "step")
        checks.one_of(self.noise, NOISES, "noise")
        checks.one_of(self.average, AVERAGES, "average")
        checks.count(self.n_steps, "n_steps")
        for name in ("learning_rate", "clip_norm", "radius"):
            if getattr(self, name) is not None:
                checks.positive(getattr(self, name), name)
        if self.schedule_steps is not None:
            checks.count(self.schedule_steps, "schedule_steps")
        if self.step == "first-order" and not labelled:
            raise ValueError(
                "step='first-order' needs public labels: it follows the public gradient. Use step='exact'."
            )
        if self.step == "first-order" and self.radius is not None:
            raise ValueError("radius is for step='exact': the first-order form is unconstrained. Leave it out.")

    def _ball(self, center: Vector) -> Ball | None:
        return None if self.radius is None else Ball(center, float(self.radius))

    def _descent(
        self,
        budget: Budget,
        terrain: Terrain,
        mirror: MirrorMap,
        public_gradient: Callable[[Vector], Vector] | None,
        *,
        least: float,
    ) -> Descent:
        """Decide noise, clipping norm, learning rate and step from public facts."""
        multiplier = noise_multiplier(self.noise, self.epsilon, self.delta, steps=self.n_steps)
        rate = self.learning_rate
        if rate is None and self.step == "first-order":
            rate = 1.0 / terrain.fastest
        clip_norm, rate = choose(
            terrain,
            clip_norm=self.clip_norm,
            learning_rate=rate,
            noise=budget.factor * multiplier / budget.n_rows,
            steps=self.n_steps,
            first=first_averaged(self.n_steps, self.average),
            least=least,
        )
        if self.step == "exact" or public_gradient is None:
            return Descent(clip_norm, rate, multiplier, exact_step(mirror, rate))
        half_life = 2 * self.n_steps if self.schedule_steps is None else self.schedule_steps
        return Descent(clip_norm, rate, multiplier, first_order_step(public_gradient, rate, half_life))

    def _run(
        self, ledger: Ledger, rows: Rows, loss: Loss, start: Vector, descent: Descent, budget: Budget
    ) -> NDArray[np.float64]:
        """Charge all steps, then take them."""
        run = ledger.start(Repeated(Gaussian(descent.multiplier), self.n_steps), label="gradient")
        return mirror_descent(
            run,
            rows,
            loss,
            start,
            clip_norm=descent.clip_norm,
            n_rows=budget.n_rows,
            step=descent.step,
            average=self.average,
        )

    def _notes(self, ledger: Ledger, budget: Budget) -> list[str]:
        if self.noise == "paper" and budget.worthwhile:
            return [paper_note(self.epsilon, ledger.spent())]
        return []


def largest_eigenvalue(matrix: Vector) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix, to about a thousandth and rather above."""
    # Power steps from a fixed start, so that a fit repeats to the bit.
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    value = 0.0
    for _ in range(200):
        image = matrix @ vector
        length = float(np.linalg.norm(image))
        if length == 0.0:
            return 1e-300
        vector, before, value = image / length, value, length / float(np.linalg.norm(vector))
        if math.isclose(before, value, rel_tol=1e-6) and before > 0:
            break
    return 1.001 * value
