"""Private gradient descent: full batch or Poisson batches, clipped per example, averaged over its tail."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.learning.losses import Loss
from dpadapt.mechanisms.bounded import Array, clipped_outer_sum
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.rows import Block, Rows


def private_descent(
    run: Run,
    rows: Rows,
    loss: Loss,
    start: NDArray[np.float64],
    *,
    clip_norm: float,
    n_rows: float,
    step: Callable[[int], float],
    metric: float | NDArray[np.float64] = 1.0,
    ridge: float | NDArray[np.float64] = 0.0,
) -> NDArray[np.float64]:
    """Return the average of the last half of the iterates.

    Parameters
    ----------
    run : Run
        A charged run; it says how many steps there are and, if sampled, draws the batches.
    rows : Rows
    loss : Loss
    start : ndarray
        Where to start, shape (n_columns,) or (n_columns, n_scores).
    clip_norm : float
        Each example's gradient is scaled down to this length.
    n_rows : float
        A public number of rows to divide sums by.
    step : callable
        Step length at step t = 0, 1, …
    metric : float or ndarray, default=1.0
        Multiplies the steps, coordinate by coordinate.
    ridge : float or ndarray, default=0.0
        Strength of the pull towards `start`.
    """
    current = start.copy()
    average = np.zeros_like(start)
    steps = run.plan.steps
    first = steps // 2
    expected = n_rows * run.plan.rate if isinstance(run.plan, Sampled) else n_rows
    dtype = rows.X.dtype
    for t, batch in enumerate(_batches(run, rows)):
        weights = gradient_weights(loss, current.astype(dtype))
        gradient = run.release(clipped_outer_sum(batch, weights, clip_norm)) / expected
        current = current - step(t) * metric * (gradient + ridge * (current - start))
        if t >= first:
            average += current
    return average / (steps - first)


def _batches(run: Run, rows: Rows) -> Iterator[Rows]:
    if isinstance(run.plan, Sampled):
        for index in run.batches(rows.n_rows):
            yield rows.take(index)
    else:
        for _ in range(run.plan.steps):
            yield rows


def gradient_weights(loss: Loss, coef: NDArray[Any]) -> Callable[[Block], NDArray[Any]]:
    """Return what each row's gradient is a multiple of: the loss's derivative at `coef`, times the row's weight."""

    def weights(block: Block) -> Array:
        found = loss.weights(block.product(coef), block.y)
        if block.leverage is not None:
            found *= block.leverage if found.ndim == 1 else block.leverage[:, None]
        return found

    return weights


def tail_noise(steps: int, step: Callable[[int], float], curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of the tail average per unit of noise variance in each step, for each curvature.

    Exact for the linear recursion u <- u - step(t) (curvature u + noise), whose tail average is what
    `private_descent` returns.
    """
    curvature = np.asarray(curvature, dtype=np.float64)
    first = steps // 2
    # Backwards: `reach` is how much the average moves per unit of change of iterate t + 1.
    reach = np.zeros_like(curvature)
    total = np.zeros_like(curvature)
    for t in reversed(range(steps)):
        length = step(t)
        if t >= first:
            reach = reach + 1.0 / (steps - first)
        total += (length * reach) ** 2
        reach = reach * (1.0 - length * curvature)
    return total


def constant(length: float) -> Callable[[int], float]:
    """Return a step rule that never changes."""
    return lambda t: length


def decaying(length: float) -> Callable[[int], float]:
    """Return a step rule that falls like 1 / t after a plateau: quick at first, then averaging."""
    return lambda t: length * min(0.3, 3.0 / (t + 3.0))


def steps_for(progress: float, longest: float) -> int:
    """Return how many steps of at most `longest` make up `progress`, at least 20."""
    return max(20, math.ceil(progress / longest))
