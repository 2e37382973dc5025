"""`calibrate`: the least noise that keeps a plan within a budget."""

import math
from collections.abc import Callable
from functools import lru_cache

from dpadapt import checks
from dpadapt.accounting.cost import GRID, composed_epsilon, gaussian_mu, pld, rdp, rdp_supports
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Event, GaussianEvent, SampledEvent

# The search for a noise multiplier stops here. Where rows are sampled so rarely that even less noise would do, delta
# covers the whole sample, and less noise would protect no sampled row at all.
_LEAST_MULTIPLIER = 0.1
# The longest step of the search towards less noise: a privacy-loss distribution of far too little noise is large.
_WIDEST_SPREAD = 2.0


def calibrate(
    epsilon: float,
    delta: float,
    *,
    steps: int = 1,
    rate: float = 1.0,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> float:
    """Return the smallest Gaussian noise multiplier with which `steps` releases cost at most (`epsilon`, `delta`).

    Parameters
    ----------
    epsilon, delta : float
        The budget. Gaussian noise needs delta > 0.
    steps : int, default=1
        Number of releases.
    rate : float, default=1.0
        Probability with which each record takes part in a step (Poisson sampling); 1 means all rows in every step.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        The multiplier is relative to the sensitivity under this relation.

    Examples
    --------
    >>> round(calibrate(1.0, 1e-5, steps=15_000), 2)
    456.91
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    steps, rate = checks.count(steps, "steps"), checks.unit(rate, "rate")
    if delta == 0:
        raise ValueError("delta must be positive for Gaussian noise, got 0. Use Laplace noise for a pure guarantee.")
    # Claim: cost of steps releases at the answer <= (epsilon, delta). On all rows mu = sqrt(steps) / answer; on samples
    # the answer's own cost was computed (`_smallest`).
    if rate == 1.0:
        return math.sqrt(steps) / gaussian_mu(epsilon, delta)
    return _sampled(epsilon, delta, steps, rate, Adjacency.of(adjacency))


@lru_cache(maxsize=1024)
def _sampled(epsilon: float, delta: float, steps: int, rate: float, adjacency: Adjacency) -> float:
    def event(multiplier: float) -> dict[Event, int]:
        return {SampledEvent(GaussianEvent(multiplier), rate): steps}

    # Sampling lowers the cost, so the multiplier without sampling is always enough. Rényi composition gives a closer
    # upper bound where it is available.
    high = math.sqrt(steps) / gaussian_mu(epsilon, delta)
    if rdp_supports(event(1.0), adjacency):
        high = min(high, _smallest(lambda s: float(rdp(event(s), adjacency).get_epsilon(delta)), epsilon, high, 1e-3))
    # A privacy-loss distribution on a coarse grid is quick and close to the answer. The last search uses the cost that
    # the ledger will charge.
    coarse = GRID * 10
    near = _smallest(
        lambda s: float(pld(event(s), adjacency, grid=coarse).get_epsilon_for_delta(delta)), epsilon, high, 2e-4
    )
    return _smallest(lambda s: composed_epsilon(event(s), delta, adjacency), epsilon, near * 1.0002, 1e-4, spread=1.002)


def _smallest(
    cost: Callable[[float], float], target: float, enough: float, tolerance: float, *, spread: float = 1.1
) -> float:
    """Return a multiplier with cost <= `target`, at most `tolerance` (relative) above the smallest such multiplier.

    Regula falsi on log cost against log multiplier, from `enough` downwards. The answer is always a multiplier whose
    cost was computed.
    """
    high, cost_high = enough, cost(enough)
    while cost_high > target:
        high *= spread
        cost_high = cost(high)
    low, cost_low = high / spread, cost(high / spread)
    while cost_low <= target:
        high, cost_high = low, cost_low
        if high <= _LEAST_MULTIPLIER:
            return high
        spread = min(spread * spread, _WIDEST_SPREAD)
        low /= spread
        cost_low = cost(low)
    while high / low > 1 + tolerance:
        share = (math.log(cost_low) - math.log(target)) / (math.log(cost_low) - math.log(max(cost_high, 1e-300)))
        # Aim a little above the root, so that the upper end of the bracket, which is the answer, is lowered.
        share = min(0.95, max(0.05, share + 0.3 * tolerance / math.log(high / low)))
        middle = low * float((high / low) ** share)
        cost_middle = cost(middle)
        if cost_middle <= target:
            high, cost_high = middle, cost_middle
            # If interpolation is good, a second point just below closes the bracket in one further step.
            below = middle / (1 + tolerance)
            if below > low:
                cost_below = cost(below)
                if cost_below > target:
                    return high
                high, cost_high = below, cost_below
        else:
            low, cost_low = middle, cost_middle
    return high
