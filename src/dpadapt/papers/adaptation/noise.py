"""How much noise Algorithms 1 and 2 of private domain adaptation need, and what their printed noise really costs.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Theorems 4.3 and 5.2.

Each of T steps releases two blocks, the gradients in the coefficients and in the private weights, with noise of
2 sqrt(T log(3 / delta)) / epsilon times their sensitivities. Gaussian noise composes exactly: all 2 T releases are one
Gaussian mechanism with mu² = 2 T (epsilon / (2 sqrt(T log(3 / delta))))², that is

    mu = epsilon / sqrt(2 log(3 / delta)),     whatever T is.

The proof of Theorem 4.3 takes every step to be epsilon² / (16 T log(1 / delta))-zCDP; two blocks at the printed noise
are epsilon² / (4 T log(3 / delta))-zCDP, about four times that. At delta = 0.01 the releases satisfy the claim up to
epsilon = 8.9 (`largest_valid_claim`), where the theorem says 36.8; below 8.9 the noise is 2.4 to 6 times larger than
needed. The whole method, which spends half of epsilon on the discrepancy and runs the algorithm at the other half,
satisfies the claim up to 19.66.

These numbers are for losses that attain both sensitivities of Lemma 4.2 in one pair of rows, as a linear loss does. The
squared loss does not: there the largest (gradient / 2 G)² + (loss / B)² is 1.29 instead of 2, and the claim fails from
17.5 on.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from dpadapt import checks
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.cost import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Event, GaussianEvent, LaplaceEvent

AdaptationNoise = Annotated[str, checks.choice("exact", "paper")]
# The part of epsilon that the paper gives to the discrepancy.
PAPER_SHARE = 0.5


def paper_multiplier(epsilon: float, delta: float, n_steps: int) -> float:
    """Return the printed noise of each block over its sensitivity: 2 sqrt(T log(3 / delta)) / epsilon."""
    return 2 * math.sqrt(n_steps * math.log(3 / delta)) / epsilon


def paper_mu(epsilon: float, delta: float) -> float:
    """Return the mu of all releases of Algorithm 1 or 2 at its printed noise.

    Examples
    --------
    >>> round(paper_mu(15.0, 0.01), 4)
    4.4411
    """
    return epsilon / math.sqrt(2 * math.log(3 / delta))


@dataclass(frozen=True)
class PaperClaim:
    """The true cost of the printed noise.

    Parameters
    ----------
    claimed, delta : float
        The paper's claim.
    algorithm_epsilon, algorithm_delta : float
        Algorithm 1 or 2 alone: its epsilon at `delta`, and its delta at `claimed`.
    method_epsilon : float
        The whole method: the discrepancy and the algorithm at what is left.
    """

    claimed: float
    delta: float
    algorithm_epsilon: float
    algorithm_delta: float
    method_epsilon: float

    @property
    def holds(self) -> bool:
        """Whether the whole method costs no more than claimed."""
        return self.method_epsilon <= self.claimed


def paper_claim(epsilon: float, delta: float, *, share: float = PAPER_SHARE) -> PaperClaim:
    """Return the true cost of Algorithm 1 or 2, and of the whole method, at the printed noise.

    Parameters
    ----------
    epsilon, delta : float
        The paper's claim.
    share : float, default=0.5
        The part of epsilon that the discrepancy gets, by Laplace noise; 0 for the algorithm alone.

    Examples
    --------
    >>> claim = paper_claim(15.0, 0.01)
    >>> round(claim.algorithm_delta, 3)  # more than eight times the 0.01 of Theorem 4.3
    0.088
    >>> round(claim.method_epsilon, 2)
    14.07
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    mu = paper_mu(epsilon, delta)
    return PaperClaim(
        epsilon, delta, gaussian_epsilon(mu, delta), gaussian_delta(mu, epsilon), _method_cost(epsilon, delta, share)
    )


@lru_cache(maxsize=256)
def _method_cost(epsilon: float, delta: float, share: float) -> float:
    """Return the true epsilon of the whole method at the printed noise."""
    events: dict[Event, int] = {GaussianEvent(1 / paper_mu(epsilon * (1 - share), delta)): 1}
    if share:
        events[LaplaceEvent(1 / (share * epsilon))] = 1
    return cost_of(events, delta, adjacency=Adjacency.REPLACE_ONE)


@lru_cache(maxsize=64)
def largest_valid_claim(delta: float, *, share: float = PAPER_SHARE) -> float:
    """Return the largest epsilon at which the printed noise satisfies its claim, rounded down to three digits.

    Examples
    --------
    >>> round(largest_valid_claim(0.01, share=0.0), 1)
    8.9
    """
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return _method_cost(epsilon, delta, share) / epsilon - 1

    # Without the discrepancy's share the claim fails at a smaller epsilon, whose cost has a closed form.
    low = 1.0 if not share else largest_valid_claim(delta, share=0.0)
    high = 2 * low
    while excess(high) <= 0:
        low, high = high, 2 * high
    # Rounded down by more than the root's error.
    return float(brentq(excess, low, high, rtol=2e-4)) * (1 - 4e-4) if excess(low) < 0 else 0.0


def require_valid_claim(epsilon: float, delta: float, *, share: float = PAPER_SHARE) -> PaperClaim:
    """Return the paper's claim, or refuse an epsilon at which it is false."""
    claim = paper_claim(epsilon, delta, share=share)
    if claim.holds:
        return claim
    most = largest_valid_claim(delta, share=share)
    raise PrivacyError(
        f"noise='paper' does not give what it claims: at epsilon={epsilon:.4g}, delta={delta:.3g} its releases cost "
        f"epsilon={claim.method_epsilon:.4g} (both sensitivities of Lemma 4.2 attained). Theorem 4.3's proof counts a "
        f"quarter of the noise's true cost per step; the claim holds up to epsilon={most:.3g}. Use noise='exact'."
    )


@dataclass(frozen=True)
class Spending:
    """How a fit splits its budget.

    Parameters
    ----------
    discrepancy_epsilon : float
        The cost of the discrepancy by Laplace noise; 0: it is not released.
    mu : float
        The Gaussian budget of all gradients in the coefficients together.
    """

    discrepancy_epsilon: float
    mu: float


def discrepancy_share(share: float | None, noise: str) -> float:
    """Return the part of epsilon that the discrepancy gets: by default half under "paper", none under "exact"."""
    if share is None:
        return PAPER_SHARE if noise == "paper" else 0.0
    return float(share)


@lru_cache(maxsize=64)
def exact_spending(epsilon: float, delta: float, share: float, adjacency: Adjacency) -> Spending:
    """Return the exact split: the discrepancy gets `share` of epsilon, the gradients all that remains."""
    most = gaussian_mu(epsilon, delta)
    if not share:
        return Spending(0.0, most)
    part = share * epsilon
    discrepancy = LaplaceEvent(1 / part)

    def excess(mu: float) -> float:
        return cost_of({discrepancy: 1, GaussianEvent(1 / mu): 1}, delta, adjacency=adjacency) - epsilon

    from scipy.optimize import brentq

    # The two costs at most add up, and the gradients' own cost is a lower bound: a bracket for mu. The root is found
    # with the ledger's accountant, so that the fit reaches its cap and does not exceed it.
    low = gaussian_mu(epsilon - part, delta)
    root = float(brentq(excess, low, most, xtol=1e-7 * most, rtol=1e-7)) if excess(most) > 0 else most
    back = 1e-7
    while root > low and excess(root) > 0:
        root, back = max(low, root * (1 - back)), 4 * back
    return Spending(part, root)
