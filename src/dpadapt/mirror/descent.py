"""Private mirror descent: clipped full-batch gradients, a step of the caller's choice, averaged iterates.

Algorithm 1 and Equation (1) of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.losses import Loss
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mirror.maps import MirrorMap
from dpadapt.rows import Rows

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
