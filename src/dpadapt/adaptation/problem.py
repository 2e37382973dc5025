"""The optimisation problems (3), (5), (6) and (7) of private domain adaptation: weights, penalties, objectives.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024. arXiv:2306.08838. Every sample has a weight q; the reference weights p give the m source rows alpha together and
the n target rows the rest.

    (3), (5)   sum q (loss + d on the source) + one (1 - sum q) + two |q|_2 + infinity |q|_inf,   0 <= q <= p
    (6)        the same with the convex upper bound one (sum p² / q - 1) in place of one (1 - sum q)
    (7)        (5) with a smooth maximum in place of |q|_inf

Problem (3) allows weights above p, but they never help: (3) and (5) have the same minimisers. The paper writes (6) and
(7) in u = 1 / q.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate

Array = NDArray[np.float64]
Form = Literal["convex", "original"]


@dataclass(frozen=True)
class Penalties:
    """How strongly weights are held near the reference and spread out.

    Parameters
    ----------
    one : float
        On the distance from the reference weights: kappa 1 or lambda 1 in the paper.
    two : float
        On the Euclidean length of the weights: kappa 2 or lambda 2.
    infinity : float
        On the largest weight: kappa or lambda infinity.
    """

    one: float = 1.0
    two: float = 0.0
    infinity: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | float | np.floating) or isinstance(value, bool) or not 0 <= value < np.inf:
                raise ValueError(f"penalty {name!r} must be a number that is not negative, got {value!r}.")

    @property
    def total(self) -> float:
        """Their sum."""
        return self.one + self.two + self.infinity


def mixture_share(alpha: float) -> float:
    """Return `alpha`, the source's share of the reference weights, if it lies in [0, 1]."""
    if not isinstance(alpha, int | float | np.floating) or isinstance(alpha, bool) or not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}.")
    if 1 - 1e-6 < alpha < 1:
        # Beside so heavy a source the private sums would be lost in rounding, and their bounds with them.
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
    return np.concatenate([source, np.full(_validate.count(n_target, "n_target"), (1 - alpha) / n_target)])


def objective(losses: Array, weights: Array, reference: Array, penalties: Penalties, form: Form) -> float:
    """Return the objective of (6) ("convex") or of (3) and (5) ("original").

    `losses` already hold the discrepancy on the source rows. Rows of reference weight 0 take no part.
    """
    used = reference > 0
    q, p = weights[used], reference[used]
    near = float(np.sum(p**2 / q)) - 1 if form == "convex" else float(np.abs(q - p).sum() + 1 - p.sum())
    spread = penalties.two * float(np.linalg.norm(q)) + penalties.infinity * float(q.max(initial=0.0))
    return float(losses[used] @ q) + penalties.one * near + spread


def smooth_objective(losses: Array, weights: Array, reference: Array, penalties: Penalties, sharpness: float) -> float:
    """Return the objective of (7): as (5), with (1 / sharpness) log sum exp(sharpness q) for the largest weight."""
    used = reference > 0
    q = weights[used]
    top = float(q.max(initial=0.0))
    peak = top + np.log(np.sum(np.exp(sharpness * (q - top)))) / sharpness
    return (
        float(losses[used] @ q)
        + penalties.one * (1 - float(q.sum()))
        + float(penalties.two * np.linalg.norm(q) + penalties.infinity * peak)
    )


def weight_gradient(losses: Array, inverse: Array, reference: Array, penalties: Penalties, sharpness: float) -> Array:
    """Return the derivative in u = 1 / q of the objective of (6), or of (7) if `sharpness` is positive.

    For (6) the largest weight is a maximum; where several tie, the paper's subgradient counts each of them.
    """
    q = 1 / inverse
    length = float(np.linalg.norm(q))
    found = -(losses * q**2) - penalties.two * q**3 / max(length, 1e-300)
    if sharpness > 0:
        share = np.exp(sharpness * (q - q.max()))
        found += penalties.one * q**2 - penalties.infinity * q**2 * share / share.sum()
    else:
        found += penalties.one * reference**2 - penalties.infinity * q**2 * (q == q.max())
    return found
