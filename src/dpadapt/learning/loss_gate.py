"""The no-harm gate: how far to go along a noisy change of a model, from what is known of the gain.

Along c times the change, the mean loss falls by about slope * c - bend * c². The bend comes from public rows. The slope
is estimated twice: from the change itself, whose noise is known, and from a private mean of clipped loss differences.
Going to c = lower bound of the slope / (2 bend) can only raise the loss if the slope lies below its lower bound: any
step shorter than the best one gains. If the lower bound is not positive, c = 0: the model stays as it was, exactly.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.learning.losses import softmax

# The slope read off the change rests on the curvature of public rows, not of private ones: it may be this far off.
_MISFIT = 0.3


@dataclass(frozen=True)
class Slope:
    """An estimate of how fast the loss falls along a change, with its standard deviation."""

    value: float
    scatter: float

    def with_other(self, other: "Slope") -> "Slope":
        """Return the average of two independent estimates, weighted by their precision."""
        mine, theirs = 1.0 / self.scatter**2, 1.0 / other.scatter**2
        total = mine + theirs
        return Slope((mine * self.value + theirs * other.value) / total, 1.0 / math.sqrt(total))

    def fraction(self, bend: float, caution: float) -> float:
        """Return how far to go, from 0 to 1, if the slope is `caution` standard deviations below its estimate."""
        low = self.value - caution * self.scatter
        return min(max(low / (2.0 * max(bend, 1e-300)), 0.0), 1.0)


def bend_of(change: NDArray[np.float64], curvature: NDArray[np.float64]) -> float:
    """Return half the curvature of the mean loss along the change."""
    return 0.5 * float(np.sum(curvature[:, None] * change**2))


def slope_from_change(
    change: NDArray[np.float64], stiffness: NDArray[np.float64], variance: NDArray[np.float64]
) -> Slope:
    """Estimate the slope from the change alone.

    The change is (g + e) / stiffness, coordinate by coordinate, with the downhill gradient g and noise e of known
    `variance` in each of the K - 1 directions that add up to zero. So slope = Σ g v = Σ stiffness v² - Σ e v, and
    E[e v] = variance / stiffness: subtracting it leaves no bias. What is left has the variance
    Σ (g² variance + 2 variance²) / stiffness².
    """
    free = change.shape[1] - 1
    squares = np.sum(change**2, axis=1)
    noise = variance / stiffness
    value = float(np.sum(stiffness * squares - free * noise))
    signal = np.maximum(stiffness**2 * squares - free * variance, 0.0)
    spread = float(np.sum(noise / stiffness * (signal + 2.0 * free * variance)))
    return Slope(value, math.sqrt(spread + (_MISFIT * value) ** 2) + 1e-300)


def slope_from_losses(mean: float, noise: float, *, optimism: float, bend: float, n_rows: float) -> Slope:
    """Estimate the slope from a released mean of loss differences at the whole change.

    The mean looks better by `optimism` on the rows that the change was fitted to. A loss difference varies from row to
    row with variance of about its curvature along the change: twice the bend.
    """
    return Slope(mean - optimism + bend, math.sqrt(noise**2 + 2.0 * bend / n_rows) + 1e-300)


def loss_differences(before: NDArray[Any], after: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log-loss of each row under scores `before` minus that under `after`."""
    index = np.arange(len(codes))
    return np.asarray(_log_loss(before, index, codes) - _log_loss(after, index, codes), dtype=np.float64)


def _log_loss(scores: NDArray[Any], index: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[Any]:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[index, codes])


def difference_bound(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return a range for loss differences from public rows' scores: twice the 99% quantile of their root mean square.

    The mean square is taken over labels drawn from either model, whichever gives more. Narrower ranges hide the heavy
    tail of a harmful change: adopted models were 1 to 3% worse in log-loss.
    """
    losses = [np.log(np.maximum(softmax(scores.copy()), 1e-300)) for scores in (before, after)]
    squares = (losses[1] - losses[0]) ** 2
    spread = np.maximum(*(np.sum(np.exp(loss) * squares, axis=1) for loss in losses))
    return max(2.0 * math.sqrt(float(np.quantile(spread, 0.99))), 1e-12)
