"""`MirrorEstimator`: what the two estimators of public data-assisted mirror descent share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.learning.losses import Loss
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Repeated
from dpadapt.mirror.defaults import Terrain, choose
from dpadapt.mirror.descent import AVERAGES, Step, exact_step, first_averaged, first_order_step, mirror_descent
from dpadapt.mirror.maps import Ball, MirrorMap
from dpadapt.mirror.noise import NOISES, noise_multiplier, paper_note
from dpadapt.rows import Rows

Vector = NDArray[np.float64]
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
        _validate.one_of(self.step, STEPS, "step")
        _validate.one_of(self.noise, NOISES, "noise")
        _validate.one_of(self.average, AVERAGES, "average")
        _validate.count(self.n_steps, "n_steps")
        for name in ("learning_rate", "clip_norm", "radius"):
            if getattr(self, name) is not None:
                _validate.positive(getattr(self, name), name)
        if self.schedule_steps is not None:
            _validate.count(self.schedule_steps, "schedule_steps")
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
