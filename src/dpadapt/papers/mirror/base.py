"""What the estimators of the mirror-descent paper share: noise, the fit body, and the descent of Algorithm 1.

"Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.learning.base import Budget, PrivateEstimator, bounds_assumption
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.losses import Loss, SquaredLoss, log_loss
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.papers.mirror.maps import Ball, EuclideanMap, MirrorMap
from dpadapt.papers.mirror.public_fit import (
    Coordinates,
    DescentModel,
    PublicFit,
    choose_clip_and_rate,
    classification_fit,
    gradient_descent_model,
    public_coordinates,
    regression_fit,
)
from dpadapt.rows import Blocks, Part, Rows

Vector = NDArray[np.float64]
MIRROR_NOISES = ("exact", "paper")
MirrorNoise = Annotated[str, checks.choice(*MIRROR_NOISES)]
MirrorStep = Annotated[str, checks.choice("exact", "first-order")]
MirrorAverage = Annotated[str, checks.choice("all", "tail", "last")]

# Smallest clipping norms that are tried by default, as quantiles of the lengths of public gradients. A lower quantile
# needs less noise and clips more rows. In a regression residuals are taken to be symmetric, so clipping only shortens
# steps. In a classification clipping the surprising labels alone biases probabilities, so at most a tenth of the
# gradients is clipped. Chosen by hand.
_REGRESSION_LEAST_CLIP_QUANTILE = 0.25
_CLASSIFICATION_LEAST_CLIP_QUANTILE = 0.9


def paper_noise_multiplier(epsilon: float, delta: float, *, steps: int = 1) -> float:
    """Return the printed noise of each step over the clipping norm: sqrt(8 T ln(1/delta)) / epsilon.

    Line 1 of Algorithm 1. The claim of (`epsilon`, `delta`) is true up to an epsilon a little above 8 ln(1/delta), and
    wasteful: at epsilon 1 and delta 1e-5 the noise is 2.6 times what is needed.

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
    """Return the noise multiplier of each of `steps` full-batch releases: the least, or the printed one."""
    if checks.one_of(noise, MIRROR_NOISES, "noise") == "paper":
        return paper_noise_multiplier(epsilon, delta, steps=steps)
    return calibrate(epsilon, delta, steps=steps)


def paper_note(epsilon: float, spent: float) -> str:
    """Return the receipt's note on the printed noise."""
    return f"the paper's noise was used, which claims epsilon = {epsilon:.4g}; exact accounting finds {spent:.4g}"


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """A regression or classification in the coordinates of the descent. It holds private rows and is no release.

    Parameters
    ----------
    coordinates : Coordinates
    rows : Blocks of Part
        Private rows as given, with their targets or class codes.
    Z_public : ndarray or None
        Public rows in the coordinates, with their constant.
    y_public : ndarray or None
        Public targets or class codes; None if there are none, or if they are not to be used.
    public_fit : PublicFit
    loss : Loss
    least_clip_quantile : float
        Smallest quantile of public gradient lengths that is tried as clipping norm.
    """

    coordinates: Coordinates
    rows: Blocks[Part]
    Z_public: Vector | None
    y_public: NDArray[Any] | None
    public_fit: PublicFit
    loss: Loss
    least_clip_quantile: float


@dataclass(frozen=True, eq=False)
class Descended:
    """The outcome of a descent, and the settings that it used."""

    solution: Vector
    clip_norm: float
    learning_rate: float


class DescentEstimator(PrivateEstimator):
    """The fit body of linear models by private descent from a public start; subclasses supply the descent."""

    _streams = True

    n_steps: int
    learning_rate: float | None
    clip_norm: float | None
    ridge: float | None
    standardise: bool
    fit_intercept: bool

    @property
    def _uses_public_labels(self) -> bool:
        """Whether public labels are used where there are any."""
        return True

    def _descend(self, ledger: Ledger, problem: Problem, budget: Budget) -> Descended:
        """Plan from public facts and, if the budget is worthwhile, charge and take all steps."""
        raise NotImplementedError

    def _notes(self, ledger: Ledger, budget: Budget) -> Sequence[str]:
        """Return notes for the receipt."""
        return ()

    def _fit_regression(
        self, X: Any, y: Any, public: Public | None, ledger: Ledger | None, target_bounds: Any
    ) -> tuple[Vector, float]:
        """Fit a regression and write its receipt; return coefficients and intercept for raw rows."""
        bounds = checks.bounds(target_bounds, "target_bounds")
        data = self._read_regression(X, y, public, ledger)
        labels = data.y_public if self._uses_public_labels else None
        coordinates, Z_public = self._coordinates(data.X_public, data.n_features)
        problem = Problem(
            coordinates,
            data.rows,
            Z_public,
            labels,
            regression_fit(coordinates, Z_public, labels, bounds),
            SquaredLoss(),
            _REGRESSION_LEAST_CLIP_QUANTILE,
        )
        assumed = [] if labels is not None else [bounds_assumption(target_bounds)]
        coef, intercept = coordinates.coefficients(self._solution(data.ledger, problem, data.budget, assumed))
        return coef, float(intercept)

    def _fit_classification(
        self, X: Any, y: Any, public: Public | None, ledger: Ledger | None, declared_classes: Any
    ) -> tuple[Vector, Vector, NDArray[Any]]:
        """Fit a classification and write its receipt; return coefficients and intercepts for raw rows, and classes."""
        data = self._read_classification(X, y, public, ledger, declared_classes)
        codes = data.codes_public if self._uses_public_labels else None
        coordinates, Z_public = self._coordinates(data.X_public, data.n_features)
        public_fit = classification_fit(coordinates, Z_public, codes, len(data.classes))
        loss = log_loss(public_fit.n_scores)
        problem = Problem(
            coordinates, data.rows, Z_public, codes, public_fit, loss, _CLASSIFICATION_LEAST_CLIP_QUANTILE
        )
        coef, intercept = coordinates.coefficients(self._solution(data.ledger, problem, data.budget, [data.source]))
        return np.atleast_2d(coef.T).copy(), np.atleast_1d(np.asarray(intercept, dtype=np.float64)), data.classes

    def _coordinates(self, X_public: Vector | None, n_features: int) -> tuple[Coordinates, Vector | None]:
        """Return the coordinates of the descent, and the public rows in them."""
        coordinates = public_coordinates(
            X_public, n_features, standardise=self.standardise, intercept=self.fit_intercept
        )
        return coordinates, None if X_public is None else coordinates.extend(X_public)

    def _solution(self, ledger: Ledger, problem: Problem, budget: Budget, assumed: Sequence[str]) -> Vector:
        """Descend, write receipt and settings, and return the solution."""
        descended = self._descend(ledger, problem, budget)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(ledger, budget, assumed, notes=self._notes(ledger, budget))
        self.clip_norm_, self.learning_rate_ = descended.clip_norm, descended.learning_rate
        return descended.solution


# A step takes its number, the iterate and the private gradient there, and returns the next iterate.
Step = Callable[[int, Vector, Vector], Vector]


def mirror_descent(
    run: Run,
    rows: Rows | Blocks[Rows],
    loss: Loss,
    start: Vector,
    *,
    clip_norm: float,
    n_rows: float,
    step: Step,
    average: str,
) -> Vector:
    """Return the average of iterates 1 … T, of their last half, or the last one (Algorithm 1 and Equation (1)).

    Parameters
    ----------
    run : Run
        A charged run, which fixes the number of steps.
    rows : Rows, or blocks of them
    loss : Loss
    start : ndarray
        Where to start, shape (n_columns,) or (n_columns, n_scores).
    clip_norm : float
        Each example's gradient is scaled down to this length.
    n_rows : float
        A public number of rows to divide sums by.
    step : Step
    average : {"all", "tail", "last"}
    """
    current, total = start, np.zeros_like(start)
    steps = run.plan.steps
    first = first_averaged(steps, average)
    for t in range(steps):
        gradient = released_gradient(run, rows, loss, current, clip_norm, n_rows)
        current = step(t, current, gradient)
        if t >= first:
            total = total + current
    return total / (steps - first)


def first_averaged(steps: int, average: str) -> int:
    """Return the first step, counted from 0, whose iterate is averaged."""
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


def _require_no_divergence(step: Step, start: Vector, n_steps: int) -> None:
    """Refuse steps whose public part alone takes a solution near the start beyond all bounds."""
    current = start + 1.0
    for t in range(n_steps):
        current = step(t, current, np.zeros_like(start))
    if not (np.abs(current) <= checks.LARGEST).all():
        raise ValueError("learning_rate must be smaller for step='first-order': steps on the public loss diverge.")


class MirrorEstimator(DescentEstimator):
    """Parameters, plan and descent of Algorithm 1; subclasses supply the mirror map and the public gradient."""

    step: str
    noise: str
    radius: float | None
    schedule_steps: int | None
    average: str

    def _check_combination(self, public: Any) -> None:
        super()._check_combination(public)
        if self.step == "first-order" and getattr(public, "y", None) is None:
            raise ValueError(
                "step='first-order' needs public labels: it follows the public gradient. Use step='exact'."
            )
        if self.step == "first-order" and self.radius is not None:
            raise ValueError("radius is for step='exact': the first-order form is unconstrained. Leave it out.")

    def _mirror_map(self, fit: PublicFit, Z_public: Vector, ball: Ball | None) -> tuple[MirrorMap, DescentModel]:
        """Return the mirror map of the public loss and the model of exact mirror descent with it."""
        raise NotImplementedError

    def _public_gradient(self, problem: Problem) -> Callable[[Vector], Vector] | None:
        """Return the gradient of the public loss, or None without public labels."""
        raise NotImplementedError

    def _descend(self, ledger: Ledger, problem: Problem, budget: Budget) -> Descended:
        """Plan from public facts and, if the budget is worthwhile, charge and take all steps."""
        fit = problem.public_fit
        ball = None if self.radius is None else Ball(fit.solution, float(self.radius))
        mirror: MirrorMap = EuclideanMap(ball)
        if problem.Z_public is not None and self.step == "exact":
            mirror, model = self._mirror_map(fit, problem.Z_public, ball)
        else:
            model = gradient_descent_model(fit)
        multiplier = noise_multiplier(self.noise, self.epsilon, self.delta, steps=self.n_steps)
        rate = self.learning_rate
        if rate is None and self.step == "first-order":
            rate = 1.0 / model.fastest
        clip_norm, rate = choose_clip_and_rate(
            model,
            clip_norm=self.clip_norm,
            learning_rate=rate,
            noise=budget.factor * multiplier / budget.n_rows,
            steps=self.n_steps,
            first=first_averaged(self.n_steps, self.average),
            least_quantile=problem.least_clip_quantile,
        )
        if not budget.worthwhile:
            return Descended(fit.solution, clip_norm, rate)
        step = exact_step(mirror, rate)
        public_gradient = self._public_gradient(problem)
        if self.step == "first-order" and public_gradient is not None:
            schedule_steps = 2 * self.n_steps if self.schedule_steps is None else self.schedule_steps
            step = first_order_step(public_gradient, rate, schedule_steps)
            _require_no_divergence(step, fit.solution, self.n_steps)
        solution = mirror_descent(
            ledger.start(Repeated(Gaussian(multiplier), self.n_steps), label="gradient"),
            problem.rows.map(partial(problem.coordinates.rows, fixed_rows=ledger.fixed_rows)),
            problem.loss,
            fit.solution,
            clip_norm=clip_norm,
            n_rows=budget.n_rows,
            step=step,
            average=self.average,
        )
        return Descended(solution, clip_norm, rate)

    def _notes(self, ledger: Ledger, budget: Budget) -> Sequence[str]:
        """Return the note on the printed noise, if it was used."""
        if self.noise == "paper" and budget.worthwhile:
            return [paper_note(self.epsilon, ledger.spent())]
        return ()
