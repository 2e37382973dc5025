"""`Budget`: what a fit may spend, in the units of plans."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_mu
from dpadapt.mechanisms.adjacency import Adjacency

# Least n * mu at which anything is released. At 7, a single mean of clipped terms has noise of a seventh of its range:
# below, every correction would be noise. Chosen by hand.
_LEAST_SIGNAL = 7.0


@dataclass(frozen=True)
class Budget:
    """What a fit may spend, in the units of plans.

    Parameters
    ----------
    mu : float
        The budget in one number; larger is less private. The noise multipliers s_t of all releases must
        satisfy Σ 1 / s_t² <= mu².
    n_rows : float
        A public number of rows to divide sums by; with sample weights, times what a row counts on average.
    factor : float
        How far a sum of bounded terms can move, per bound: 2 under replace-one, else 1. For planning only.
    counted : float, optional
        With sample weights: what a row counts on average, as it is assumed. It is in `n_rows` already.
    """

    mu: float
    n_rows: float
    factor: float
    counted: float | None = None

    @classmethod
    def of(cls, epsilon: float, delta: float, n_rows: float, adjacency: Adjacency | str) -> "Budget":
        """Check the privacy parameters and return the budget of a fit with `n_rows` rows, a public number."""
        epsilon, delta = checks.scale(epsilon, "epsilon"), checks.delta(delta)
        if delta == 0:
            raise ValueError("delta must be positive for this method (Gaussian noise), got 0. A common choice is 1e-6.")
        return cls(gaussian_mu(epsilon, delta), float(n_rows), Adjacency.of(adjacency).factor)

    @property
    def worthwhile(self) -> bool:
        """Whether the budget is enough for this many rows; if not, nothing is released and nothing is spent."""
        return self.n_rows * self.mu / self.factor > _LEAST_SIGNAL

    def noise(self, clip_norm: float) -> float:
        """Return the standard deviation of a mean of terms up to `clip_norm`, if the whole budget goes into it."""
        return self.factor * clip_norm / (self.n_rows * self.mu)


def split_noise(mu: float, shares: Sequence[float]) -> list[float]:
    """Return noise multipliers that spend the given shares of mu²; the shares must add up to at most 1."""
    if math.fsum(shares) > 1 + 1e-12:
        raise ValueError("shares of the budget must not add up to more than 1.")
    return [1.0 / (mu * math.sqrt(share)) for share in shares]
