"""Losses of generalised linear models, by the derivative of the loss in the scores.

The gradient of one example is its row times that derivative, so per-example gradients are never stored: see
`mechanisms.bounded.clipped_outer_sum`. Each `weights` may overwrite the scores it is given.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Loss(Protocol):
    """What private descent needs to know of a loss."""

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
        """Return prediction minus target, held to +-threshold."""
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

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the mean log-loss."""
        return float(np.mean(np.logaddexp(0.0, scores) - y * scores))


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
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
