"""Losses of linear models, clipping of their residuals, and private gradient descent on them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Batch, Run
from dpadapt.mechanisms.bounded import Array, Bounded, added, clipped_outer_sum, clipped_outer_sums
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.rows import Block, Blocks, Rows, rows_by_block

# Self-centred clipping of softmax residuals: a correct model is a fixed point.
#
# Clipping the residual p - e_y shortens the residuals of surprising labels more than the others, so the clipped
# gradient of a correct model is not zero on average: with rare classes the model drifts. Subtracting the mean effect of
# clipping under the model's own probabilities removes the drift.


def centred_residuals(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], limits: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return clipped residuals whose mean is zero if the labels follow `probabilities`.

    With f_k = min(1, limit / |p - e_k|) this is f_y (p - e_y) - Σ_k p_k f_k (p - e_k). It may be up to twice as long as
    its limit; the function that makes the bounded sum clips it once more.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows, n_classes)
        Overwritten by the result.
    codes : ndarray of shape (n_rows,)
        The class of each row.
    limits : ndarray of shape (n_rows,)
        The length that each residual is clipped to.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1]])
    >>> centred = [centred_residuals(p.copy(), np.array([k]), np.array([0.3])) for k in (0, 1)]
    >>> bool(np.allclose(0.9 * centred[0] + 0.1 * centred[1], 0.0))
    True
    """
    factors = _factors(probabilities, limits)
    index = np.arange(len(codes))
    own = factors[index, codes]
    # Σ_k p_k f_k (p - e_k) = (Σ_k p_k f_k) p - (p_k f_k)_k.
    factors *= probabilities
    probabilities *= (own - _over_columns(np.add, factors))[:, None]
    probabilities += factors
    probabilities[index, codes] -= own
    return probabilities


def clipped_curvature(probabilities: NDArray[np.float64], limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected derivative of each row's centred residual in its scores, if the labels follow the model.

    E[r (p - e_y)'] has trace Σ_k p_k f_k |p - e_k|², shared by the K - 1 directions that add up to zero. Without
    clipping it is the usual (1 - |p|²) / (K - 1).
    """
    lengths = _squared_lengths(probabilities)
    trace = np.sum(probabilities * _factors(probabilities, limits) * lengths, axis=1)
    return np.asarray(trace / (probabilities.shape[1] - 1))


def _squared_lengths(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |p - e_k|² = |p|² - 2 p_k + 1 for every class."""
    lengths = -2.0 * probabilities
    lengths += (np.einsum("ij,ij->i", probabilities, probabilities) + 1.0)[:, None]
    return np.maximum(lengths, 0.0, out=lengths)


def _factors(probabilities: NDArray[np.float64], limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return min(1, limit / |p - e_k|) for every class."""
    lengths = _squared_lengths(probabilities)
    np.sqrt(lengths, out=lengths)
    # A residual shorter than its limit keeps its length: the divisor is the larger of the two.
    np.maximum(lengths, limits[:, None], out=lengths)
    return np.divide(limits[:, None], lengths, out=lengths)


class Loss(Protocol):
    """The interface of a loss for private descent."""

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the derivative of each example's loss in its scores."""
        ...

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean loss; for public rows only."""
        ...


@dataclass(frozen=True)
class SquaredLoss:
    """Half the squared error."""

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return prediction minus target."""
        scores -= y
        return scores

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return half the mean squared error."""
        return float(np.mean((scores - y) ** 2) / 2)


@dataclass(frozen=True)
class HuberLoss:
    """Half the squared error up to `threshold`, linear beyond it."""

    threshold: float

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return prediction minus target, clipped to +-threshold."""
        scores -= y
        return np.clip(scores, -self.threshold, self.threshold, out=scores)

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean Huber loss."""
        error = np.abs(scores - y)
        inner = np.minimum(error, self.threshold)
        return float(np.mean(inner * (error - inner / 2)))


@dataclass(frozen=True)
class LogisticLoss:
    """Cross-entropy of two classes, coded 0 and 1, from one score."""

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the probability of class 1 minus its code."""
        # (1 + tanh(s / 2)) / 2 is the logistic function, and it can't overflow.
        scores *= 0.5
        np.tanh(scores, out=scores)
        scores += 1.0
        scores *= 0.5
        scores -= y
        return scores

    def each(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the log-loss of each example."""
        return np.asarray(np.logaddexp(0.0, scores) - y * scores)

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean log-loss."""
        return float(np.mean(self.each(scores, y)))


@dataclass(frozen=True)
class SoftmaxLoss:
    """Cross-entropy of K classes, coded 0 … K-1, from K scores."""

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the class probabilities minus the true class's indicator."""
        scores = softmax(scores)
        scores[np.arange(len(y)), y] -= 1.0
        return scores

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean log-loss."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]))


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    """Turn scores into probabilities, row by row, in place."""
    scores -= _over_columns(np.maximum, scores)[:, None]
    np.exp(scores, out=scores)
    scores /= _over_columns(np.add, scores)[:, None]
    return scores


# Up to this number of columns, numpy reduces rows several times faster column by column, with the same result: it adds
# up fewer than eight numbers in their order, too.
_FEW_COLUMNS = 7


def _over_columns(reduce: np.ufunc, rows: NDArray[Any]) -> NDArray[Any]:
    """Return `reduce` over the columns of each row."""
    if not 0 < rows.shape[1] <= _FEW_COLUMNS:
        return np.asarray(reduce.reduce(rows, axis=1))
    total = rows[:, 0].copy()
    for column in rows.T[1:]:
        reduce(total, column, out=total)
    return total


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
