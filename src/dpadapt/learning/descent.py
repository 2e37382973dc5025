"""Private gradient descent on linear models, and shrinkage of the noisy change that it gives."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dpadapt.accounting.ledger import Batch, Run
from dpadapt.learning.losses import Loss
from dpadapt.mechanisms.bounded import Array, Bounded, added, clipped_outer_sum, clipped_outer_sums
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.rows import Block, Blocks, Rows, rows_by_block


def private_descent(
    run: Run,
    rows: Rows | Blocks[Rows],
    loss: Loss,
    start: NDArray[np.float64],
    *,
    clip_norm: float,
    n_rows: float,
    step: Callable[[int], float],
    metric: float | NDArray[np.float64] = 1.0,
    ridge: float | NDArray[np.float64] = 0.0,
) -> NDArray[np.float64]:
    """Run private gradient descent and return the average of the last half of the iterates.

    Parameters
    ----------
    run : Run
        A charged run; it sets the number of steps and, if sampled, draws the batches.
    rows : Rows, or blocks of them
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
    # In the order in which sums over rows come (`rows._products`): updates in mixed orders take three times as long.
    current = start.copy(order="F")
    average = np.zeros_like(current)
    steps = run.plan.steps
    first = steps // 2
    expected = n_rows * run.plan.rate if isinstance(run.plan, Sampled) else n_rows

    def position() -> NDArray[np.float64]:
        return current

    for t, gradient in enumerate(released_gradients(run, rows, loss, position, clip_norm, expected)):
        current = current - step(t) * metric * (gradient + ridge * (current - start))
        if t >= first:
            average += current
    return average / (steps - first)


def released_gradients(
    run: Run,
    rows: Rows | Blocks[Rows],
    loss: Loss,
    coef: Callable[[], NDArray[Any]],
    clip_norm: float,
    n_rows: float,
) -> Iterator[NDArray[np.float64]]:
    """Yield what `released_gradient` returns for each step of the run, at the coefficients that `coef()` then returns.

    It takes less time than as many calls: see `clipped_outer_sums` and `Run.release_each`.
    """
    if isinstance(run.plan, Sampled):
        for batch in run.batches(rows.n_rows):
            yield released_gradient(run, rows, loss, coef(), clip_norm, n_rows, batch=batch)
        return
    sums = clipped_outer_sums(rows, clip_norm)
    steps = run.plan.steps
    for released in run.release_each((sums(gradient_weights(loss, coef())) for _ in range(steps)), steps):
        yield np.asarray(released / n_rows)


def released_gradient(
    run: Run,
    rows: Rows | Blocks[Rows],
    loss: Loss,
    coef: NDArray[Any],
    clip_norm: float,
    n_rows: float,
    *,
    batch: Batch | None = None,
) -> NDArray[np.float64]:
    """Release the sum of the rows' gradients at `coef`, each clipped at `clip_norm`, and divide by a public number.

    With a `batch` of the run, only its rows are summed; a sampled run needs one.
    """

    # Claim: |sum - sum'|_2 <= clip_norm, and what is divided by is public. Each row's gradient, whatever it is, is
    # shortened to clip_norm; dividing the release by n_rows is post-processing.
    gradients = partial(clipped_outer_sum, weights=gradient_weights(loss, coef), clip_norm=clip_norm)

    def sampled(index: NDArray[np.int64] | slice) -> Bounded:
        if isinstance(index, slice):
            return gradients(rows)
        rate = run.plan.rate if isinstance(run.plan, Sampled) and run.unit == "row" else None
        if isinstance(rows, Rows):
            return gradients(rows.take(index, rate))
        own = rows_by_block(index, rows.n_rows)
        return added(rows.results(lambda part, chosen: gradients(part.take(chosen, rate)), own))

    summed = gradients(rows) if batch is None else batch.of(sampled)
    return np.asarray(run.release(summed) / n_rows)


def gradient_weights(loss: Loss, coef: NDArray[Any]) -> Callable[[Block], NDArray[Any]]:
    """Return the function that gives each row's factor in its gradient: derivative of the loss times leverage."""

    def weights(block: Block) -> Array:
        factors = loss.weights(block.product(coef.astype(block.X.dtype, copy=False)), block.y)
        if block.leverage is not None:
            factors *= block.leverage if factors.ndim == 1 else block.leverage[:, None]
        return factors

    return weights


def tail_noise(steps: int, step: Callable[[int], float], curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of the tail average per unit of noise variance in each step, for each curvature.

    Exact for the linear recursion u <- u - step(t) (curvature u + noise), whose tail average is what
    `private_descent` returns.
    """
    curvature = np.asarray(curvature, dtype=np.float64)
    first = steps // 2
    # Backwards: `reach` is the derivative of the average in iterate t + 1.
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
    """Return a step rule of constant length."""
    return lambda t: length


def decaying(length: float) -> Callable[[int], float]:
    """Return a step rule that is constant at first and then falls like 1 / t."""
    return lambda t: length * min(0.3, 3.0 / (t + 3.0))


def steps_for(progress: float, longest: float) -> int:
    """Return the number of steps of at most `longest` that add up to `progress`, at least 20."""
    return max(20, math.ceil(progress / longest))


def james_stein(change: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a noisy change, shrunk towards zero by as much as its known noise demands.

    Positive-part James–Stein: with k coordinates and noise variances v, the change is multiplied by
    max(0, 1 - (k - 2) / S), S = Σ change² / v. For k > 2 and noise as stated, the expected squared error (in units of
    the variances) is never more than that of the unshrunk change, and small where the true change is 0. A change that
    noise alone would exceed in one case of twenty or more (S below the 95% point of chi-square) is dropped.

    Examples
    --------
    >>> noise = np.random.default_rng(7).standard_normal(1000)
    >>> bool(np.abs(james_stein(noise, np.ones(1000))).max() < 0.3)
    True
    """
    signal = float(np.sum(change**2 / variance))
    if signal <= chdtri(change.size, 0.05):
        return np.zeros_like(change)
    return change * (1.0 - max(0.0, change.size - 2.0) / signal)
