"""Smooth losses of linear scores for problem (7): derivatives, values, and the constants that the algorithm needs."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss


class SmoothLoss(Protocol):
    """What `NCnvxAdap` needs to know of a loss of scores, for rows no longer than 1 and coefficients up to `radius`.

    `codes` are classes 0 … K-1; there is one score for two classes, else one for each class.
    """

    def weights(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return the derivative of each row's loss in its scores; it may overwrite `scores`."""
        ...

    def losses(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return each row's loss; at least 0."""
        ...

    def lipschitz(self, n_scores: int, radius: float) -> float:
        """Return the longest gradient of one row."""
        ...

    def smoothness(self, n_scores: int) -> float:
        """Return the largest curvature of one row's loss."""
        ...

    def bound(self, n_scores: int, radius: float) -> float:
        """Return the most that one row's loss can be."""
        ...


@dataclass(frozen=True)
class CrossEntropy:
    """Logistic loss for two classes, softmax for more."""

    def weights(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return probabilities minus the true class's indicator."""
        return (LogisticLoss() if scores.ndim == 1 else SoftmaxLoss()).weights(scores, codes)

    def losses(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return minus the log-probability of the true class."""
        # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            if scores.ndim == 1:
                return np.asarray(np.logaddexp(0.0, scores) - codes * scores)
            shifted = scores - scores.max(axis=1, keepdims=True)
            return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(codes)), codes])

    def lipschitz(self, n_scores: int, radius: float) -> float:
        """Return 1 for one score; p - e_y, of length sqrt 2 at most, for several."""
        return 1.0 if n_scores == 1 else math.sqrt(2)

    def smoothness(self, n_scores: int) -> float:
        """Return 1/4 for one score; the covariance of one indicator, 1/2 at most, for several."""
        return 0.25 if n_scores == 1 else 0.5

    def bound(self, n_scores: int, radius: float) -> float:
        """Return log(1 + (K - 1) e^s): two scores differ by at most s = sqrt 2 radius, one is at most radius."""
        reach, others = (radius, 1) if n_scores == 1 else (math.sqrt(2) * radius, n_scores - 1)
        return reach + math.log(others + math.exp(-reach))


@dataclass(frozen=True)
class SquaredError:
    """Squared distance of the scores from +1 for the true class and -1 for the others."""

    def weights(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return twice the distance."""
        scores -= _signs(scores, codes)
        scores *= 2.0
        return scores

    def losses(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return the squared distance."""
        gap = scores - _signs(scores, codes)
        return np.asarray(gap**2 if gap.ndim == 1 else np.einsum("ij,ij->i", gap, gap))

    def lipschitz(self, n_scores: int, radius: float) -> float:
        """Return 2 (radius + sqrt K): scores are no longer than the radius, signs than sqrt K."""
        return 2 * (radius + math.sqrt(n_scores))

    def smoothness(self, n_scores: int) -> float:
        """Return 2."""
        return 2.0

    def bound(self, n_scores: int, radius: float) -> float:
        """Return (radius + sqrt K)²."""
        return (radius + math.sqrt(n_scores)) ** 2


def _signs(scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    if scores.ndim == 1:
        return np.asarray(2.0 * codes - 1.0)
    signs = np.full(scores.shape, -1.0)
    signs[np.arange(len(codes)), codes] = 1.0
    return signs
