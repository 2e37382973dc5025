"""The optimisation problems of private domain adaptation: weights, their derivatives, and smooth losses for (7).

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024. arXiv:2306.08838. Every sample has a weight q. The reference weights p give the m source rows alpha together and
the n target rows the rest. With d the discrepancy, which is added to the losses of the source, the problems are

    (3), (5)  minimise sum q loss + one (1 - sum q) + two |q|_2 + infinity |q|_inf over 0 <= q <= p;
    (6)       the same with the convex upper bound one (sum p² / q - 1) in place of one (1 - sum q);
    (7)       (5) with a smooth maximum in place of |q|_inf.

Problem (3) allows weights above p, but they never help: (3) and (5) have the same minimisers. The paper writes (6) and
(7) in u = 1 / q. Nothing in this file is private. Exact solvers: `benchmarks/theory/adaptation_problems.py`.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.learning.losses import log_loss

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Penalties:
    """Penalties that keep the weights near the reference and spread out.

    Parameters
    ----------
    one : float
        Penalty on the distance from the reference weights: kappa 1 or lambda 1 in the paper.
    two : float
        Penalty on the Euclidean length of the weights: kappa 2 or lambda 2.
    infinity : float
        Penalty on the largest weight: kappa or lambda infinity.
    """

    one: float = 1.0
    two: float = 0.0
    infinity: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checks.penalty(value, f"penalty {name!r}")

    @property
    def total(self) -> float:
        """The sum of the three penalties."""
        return self.one + self.two + self.infinity


def mixture_share(alpha: float, name: str = "alpha") -> float:
    """Return `alpha`, the source's share of the reference weights, if it lies in [0, 1]."""
    if not isinstance(alpha, int | float | np.floating) or isinstance(alpha, bool) or not 0 <= alpha <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {alpha!r}.")
    if 1 - 1e-6 < alpha < 1:
        # With a source this heavy the private sums, and their bounds, would be lost in rounding.
        raise ValueError(f"alpha must be 1 or at most 1 - 1e-6, got {alpha!r}.")
    return float(alpha)


def reference_weights(n_source: int, n_target: int, alpha: float) -> Array:
    """Return p: alpha / m for each source row, then (1 - alpha) / n for each target row.

    Examples
    --------
    >>> reference_weights(2, 4, 0.5)
    array([0.25 , 0.25 , 0.125, 0.125, 0.125, 0.125])
    """
    source = np.full(n_source, alpha / n_source if n_source else 0.0)
    return np.concatenate([source, np.full(checks.count(n_target, "n_target"), (1 - alpha) / n_target)])


def weight_gradient(losses: Array, inverse: Array, reference: Array, penalties: Penalties, sharpness: float) -> Array:
    """Return the derivative in u = 1 / q of the objective of (6), or of (7) if `sharpness` is positive.

    In (6) the largest weight is a maximum; if several weights tie, the paper's subgradient counts each of them.
    """
    q = 1 / inverse
    length = float(np.linalg.norm(q))
    slope = -(losses * q**2) - penalties.two * q**3 / max(length, 1e-300)
    if sharpness > 0:
        share = np.exp(sharpness * (q - q.max()))
        slope += penalties.one * q**2 - penalties.infinity * q**2 * share / share.sum()
    else:
        slope += penalties.one * reference**2 - penalties.infinity * q**2 * (q == q.max())
    return slope


class SmoothLoss(Protocol):
    """A smooth loss of scores for `NCnvxAdap`, with rows no longer than 1 and coefficients no longer than `radius`.

    `codes` are classes 0 … K-1; there is one score for two classes, else one for each class.
    """

    def weights(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return the derivative of each row's loss in its scores; it may overwrite `scores`."""
        ...

    def losses(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return each row's loss; at least 0."""
        ...

    def lipschitz(self, n_scores: int, radius: float) -> float:
        """Return the largest length of one row's gradient."""
        ...

    def smoothness(self, n_scores: int) -> float:
        """Return the largest curvature of one row's loss."""
        ...

    def bound(self, n_scores: int, radius: float) -> float:
        """Return the largest loss of one row."""
        ...


def checked_loss(loss: Any, n_scores: int, radius: float) -> SmoothLoss:
    """Return a loss if it works on made-up scores, each row by itself: it must not fail after the charge."""
    scores = np.random.default_rng(0).uniform(-1.0, 1.0, (4, n_scores)) * min(radius, 1.0)
    scores, codes = (scores[:, 0] if n_scores == 1 else scores), np.arange(4) % max(2, n_scores)
    try:
        sizes = loss.lipschitz(n_scores, radius), loss.bound(n_scores, radius), loss.smoothness(n_scores)
        fine = all(checks.positive(size, "size") for size in sizes)
        for part, shape in ((loss.weights, scores.shape), (loss.losses, codes.shape)):
            together = np.asarray(part(scores.copy(), codes), dtype=np.float64)
            alone = [np.asarray(part(scores[i : i + 1].copy(), codes[i : i + 1])) for i in range(len(codes))]
            fine = fine and together.shape == shape and bool(np.allclose(together, np.concatenate(alone)))
    except Exception as error:
        raise TypeError(f"loss must be a SmoothLoss, such as CrossEntropy(); {type(error).__name__}: {error}") from None
    if not fine:
        raise ValueError("loss must give each row's weights and losses by that row alone, and positive finite bounds.")
    return loss  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CrossEntropy:
    """Logistic loss for two classes, softmax for more."""

    def weights(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return probabilities minus the true class's indicator."""
        return log_loss(scores.ndim).weights(scores, codes)

    def losses(self, scores: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return minus the log-probability of the true class."""
        # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            return log_loss(scores.ndim).each(scores, codes)

    def lipschitz(self, n_scores: int, radius: float) -> float:
        """Return 1 for one score, sqrt 2 for several: the largest length of p - e_y."""
        return 1.0 if n_scores == 1 else math.sqrt(2)

    def smoothness(self, n_scores: int) -> float:
        """Return 1/4 for one score, 1/2 for several: the largest eigenvalue of the covariance of a class indicator."""
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
    """Return +1 for the true class and -1 for the others, in the shape of `scores`."""
    if scores.ndim == 1:
        return np.asarray(2.0 * codes - 1.0)
    signs = np.full(scores.shape, -1.0)
    signs[np.arange(len(codes)), codes] = 1.0
    return signs
