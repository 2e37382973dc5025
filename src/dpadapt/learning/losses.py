"""Losses of linear models, and clipping of the residuals of softmax models."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


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
        scores = softmax(scores, out=scores)
        scores[np.arange(len(y)), y] -= 1.0
        return scores

    def each(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Return the log-loss of each example."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y])

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean log-loss."""
        return float(np.mean(self.each(scores, y)))


def log_loss(n_scores: int) -> LogisticLoss | SoftmaxLoss:
    """Return the cross-entropy of models with this number of scores: 1 for two classes, else one per class."""
    return LogisticLoss() if n_scores == 1 else SoftmaxLoss()


def softmax(scores: NDArray[Any], *, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the probabilities of each row of scores, as a new array or in `out`, which may be `scores` itself."""
    out = np.subtract(scores, _over_columns(np.maximum, scores)[:, None], out=out)
    np.exp(out, out=out)
    out /= _over_columns(np.add, out)[:, None]
    return out


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
