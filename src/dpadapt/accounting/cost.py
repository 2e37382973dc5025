"""`epsilon` and `delta`: the cost of a collection of events.

The cost is exact where a closed form exists (Gaussian noise alone, pure events at delta = 0). Otherwise it is the
smallest of the valid bounds: the sum of pure epsilons, Rényi composition, and privacy-loss distributions. Every answer
is an upper bound. What one event costs is up to its class (`mechanisms/events.py`).

**Gaussian noise.** T releases with noise multipliers s_1 … s_T are together exactly as private as one release with
multiplier 1 / mu, mu² = Σ 1 / s_t². Such a release is called mu-Gaussian. Its privacy profile is that of Balle and
Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018:

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon Φ(-mu/2 - epsilon/mu).

**Two numerical accountants** come from dp-accounting: privacy-loss distributions (PLD) and Rényi differential privacy
(RDP). For a Gaussian event under replace-one, its PLD accountant doubles the sensitivity and its RDP accountant does
not. Our events hold the noise over the sensitivity *of the stated adjacency*. So we leave the doubling to neither: a
release on all rows is always passed on under add/remove, and `SampledEvent.losses` converts a sampled one explicitly.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, Event, GaussianEvent, NonPrivateEvent, SampledEvent, times_of
from dpadapt.mechanisms.mechanism import Mechanism, Plan, as_plan

Tally = Mapping[Event, int]
Events = Event | Mechanism | Plan | Tally | Iterable[Event | Mechanism | Plan]

# Relative and absolute step from a computed root to the safe side. Roots are accurate to about 1e-12, so the result is
# a valid bound; larger steps would waste budget.
_ROOT_MARGIN = 1e-10
_ABSOLUTE_ROOT_MARGIN = 2e-14
# Above this mu (an epsilon of 5e15) floats can't tell the two terms of the Gaussian profile apart: a bound takes its
# place.
_LARGEST_EXACT_MU = 1e8
# Least mu that is searched for: below it the absolute margin would take a noticeable part of the answer.
_LEAST_MU = 1e-12
# Privacy loss per grid step; dp-accounting's default. A coarser grid is quicker and gives a looser bound. Measured on
# two published DP-SGD runs: epsilon 0.2126 and 0.6197 at 1e-3 (looser than Rényi composition: 0.19, 0.48), 0.1644 and
# 0.4429 at 1e-4, 0.1639 and 0.4408 at 2e-5.
GRID = 1e-4
# Privacy loss per grid step, as a share of epsilon. A larger share needs less memory for a large epsilon and gives a
# looser bound. An epsilon in the hundreds is no protection, so its precision does not matter. Chosen by hand.
_GRID_PER_EPSILON = 2e-5
# Composing more steps of one event takes minutes or more.
_MOST_STEPS = 10**9
# Rounding error of a composed distribution, as a probability: in all, and per step. The probabilities of one step add
# up to 1 but for a rounding error of a number near 1 (2.2e-16), and composition multiplies what is missing. Up to
# 9.4e-17 per step were measured: 8.4e-17 for pure events that lie on the grid, 9.4e-17 for sampled Gaussian noise.
_PLD_ROUNDING, _PLD_ROUNDING_PER_STEP = 1e-15, 2.3e-16


def epsilon(events: Events, delta: float, *, adjacency: Adjacency = Adjacency.ZERO_OUT) -> float:
    """Return the epsilon of all `events` together at `delta`.

    Parameters
    ----------
    events : event, mechanism, plan, or several of them; or a mapping from events to their numbers
    delta : float
        In [0, 1). At 0 only pure events have a finite cost.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        Matters for sampled events only: every event holds its noise relative to the sensitivity under the adjacency.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> from dpadapt.mechanisms.mechanism import Repeated
    >>> round(epsilon(Repeated(Gaussian(456.91), steps=15_000), 1e-5), 4)
    1.0
    """
    return composed_epsilon(tally(events), checks.delta(delta), Adjacency.of(adjacency))


def delta(events: Events, epsilon: float, *, adjacency: Adjacency = Adjacency.ZERO_OUT) -> float:
    """Return the delta of all `events` together at `epsilon`: the inverse of the function `epsilon`.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> f"{delta(Gaussian(3.73063), 1.0):.1e}"
    '1.0e-05'
    """
    if epsilon < 0 or math.isnan(epsilon):
        raise ValueError(f"epsilon must not be negative, got {epsilon!r}.")
    return _delta(frozenset(tally(events).items()), float(epsilon), Adjacency.of(adjacency))


def tally(events: Events) -> dict[Event, int]:
    """Return the number of each event; refuse anything whose cost is unknown."""
    if isinstance(events, Mapping):
        counted = dict(events)
    else:
        counted = {}
        for item in [events] if isinstance(events, Event | Mechanism | Plan) else events:
            if isinstance(item, Event):
                event, times = item, 1
            else:
                plan = as_plan(item)
                event, times = plan.event(), plan.steps
            counted[event] = counted.get(event, 0) + times
    return {event: times for event, times in counted.items() if times_of(event, times)}


def add_entries(counted: Tally, entries: Iterable[Entry]) -> dict[Event, int]:
    """Return `counted`, the number of each event, with the events of `entries` added."""
    after = dict(counted)
    for entry in entries:
        after[entry.event] = after.get(entry.event, 0) + entry.times
    return after


def gaussian_part(counted: Tally) -> float | None:
    """Return the mu of `counted` if all events are Gaussian, else None."""
    if not all(isinstance(event, GaussianEvent) for event in counted):
        return None
    # Not 1 / s²: s² can overflow or underflow where 1 / s does neither.
    # Claim: mu² = Σ 1 / s_t². Gaussian releases compose exactly (Dong, Roth and Su 2022, Corollary 3.3).
    scales = [(1 / e.noise_multiplier, n) for e, n in counted.items() if isinstance(e, GaussianEvent)]
    return math.sqrt(math.fsum(n * scale * scale for scale, n in scales))


def pure_epsilon(counted: Tally) -> float:
    """Return the sum of pure epsilons; inf if some event is not pure."""
    # Claim: epsilon <= Σ epsilon_i. Basic composition.
    total = 0.0
    for event, times in counted.items():
        total += event.pure_epsilon(times)
    return total


def composed_epsilon(counted: Tally, delta: float, adjacency: Adjacency) -> float:
    """Return what `epsilon` does, of numbers that were checked."""
    return _epsilon(frozenset(counted.items()), delta, adjacency)


@lru_cache(maxsize=4096)
def _epsilon(items: frozenset[tuple[Event, int]], delta: float, adjacency: Adjacency) -> float:
    counted = dict(items)
    if not counted:
        return 0.0
    if any(isinstance(event, NonPrivateEvent) for event in counted):
        return math.inf
    mu = gaussian_part(counted)
    if mu is not None:
        return _gaussian_epsilon(mu, delta)
    # Claim: epsilon <= the least of the valid bounds: pure sum, dominating Gaussian, Rényi, privacy-loss distribution.
    # Each holds for events that were fixed in advance, so their least does. Not proved: dp-accounting's privacy-loss
    # distributions, which are pessimistic by construction; `Receipt.verify` recomputes the cost by a second way, and
    # tests by closed forms.
    best = quick_epsilon(counted, delta, adjacency)
    precise = delta - rounding(counted)
    if not precise > delta / 2 or not pld_supports(counted, adjacency):
        return best
    while True:
        grid = grid_for(best)
        best = min(best, float(pld(counted, adjacency, grid=grid).get_epsilon_for_delta(precise)))
        # If the first bound was much too high, the grid was too coarse: repeat with a finer one.
        if grid_for(best) > grid / 2:
            return best


def quick_epsilon(counted: Tally, delta: float, adjacency: Adjacency) -> float:
    """Return the smallest of the bounds that need no privacy-loss distribution."""
    best = pure_epsilon(counted)
    if delta == 0:
        return best
    mus = [(event.dominating_mu(), times) for event, times in counted.items()]
    best = min(best, gaussian_epsilon(math.sqrt(math.fsum(times * mu * mu for mu, times in mus)), delta))
    # Pure events need no delta: their epsilons can be added to the cost of the rest.
    pure = {event: times for event, times in counted.items() if math.isfinite(event.pure_epsilon(times))}
    rest = {event: times for event, times in counted.items() if event not in pure}
    if pure and rest:
        best = min(best, pure_epsilon(pure) + quick_epsilon(rest, delta, adjacency))
    if rdp_supports(counted, adjacency):
        best = min(best, float(rdp(counted, adjacency).get_epsilon(delta)))
    return best


@lru_cache(maxsize=4096)
def _delta(items: frozenset[tuple[Event, int]], epsilon: float, adjacency: Adjacency) -> float:
    counted = dict(items)
    if not counted:
        return 0.0
    if any(isinstance(event, NonPrivateEvent) for event in counted):
        return 1.0
    mu = gaussian_part(counted)
    if mu is not None:
        return gaussian_delta(mu, epsilon)
    if pure_epsilon(counted) <= epsilon:
        return 0.0
    best = 1.0
    if rdp_supports(counted, adjacency):
        best = float(rdp(counted, adjacency).get_delta(epsilon))
    if pld_supports(counted, adjacency):
        quick = rdp_supports(counted, adjacency)
        bound = quick_epsilon(counted, 1e-9, adjacency) if quick else _epsilon(items, 1e-9, adjacency)
        distribution = pld(counted, adjacency, grid=grid_for(bound))
        best = min(best, float(distribution.get_delta_for_epsilon(epsilon)) + rounding(counted))
    return best


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta at `epsilon` of a mu-Gaussian release.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    from scipy.special import log_ndtr

    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    # Claim: delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon Φ(-mu/2 - epsilon/mu). Balle and Wang 2018, Theorem 8.
    if mu > _LARGEST_EXACT_MU:  # The first term, with an argument above its rounding error, bounds the difference.
        return math.exp(float(log_ndtr(mu / 2 - epsilon / mu + 1e-15 * (mu + epsilon / mu))))
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = float(log_ndtr(-mu / 2 - epsilon / mu))
    # exp(upper) - exp(epsilon + lower), without cancellation.
    return max(0.0, -math.exp(upper) * math.expm1(min(0.0, epsilon + lower - upper)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact epsilon at `delta` of a mu-Gaussian release, rounded up.

    Examples
    --------
    >>> round(gaussian_epsilon(0.2680, 1e-5), 3)
    1.0
    """
    return _gaussian_epsilon(mu, checks.delta(delta))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    if mu == 0 or (delta > 0 and gaussian_delta(mu, 0.0) <= delta):
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    # Claim: gaussian_delta(mu, answer) <= delta. The profile decreases in epsilon, and the root is rounded up;
    # delta(epsilon) <= exp(-(epsilon/mu - mu/2)² / 2) bounds it from above.
    # Not proved: that the root is accurate to 1e-12; tests compare it with high precision.
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) + 1
    if mu > _LARGEST_EXACT_MU:
        return high * (1 + _ROOT_MARGIN)
    root = _decreasing_root(lambda e: math.log(max(gaussian_delta(mu, e), 5e-324)) - math.log(delta), 0.0, high)
    return root * (1 + _ROOT_MARGIN) + _ABSOLUTE_ROOT_MARGIN


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (`epsilon`, `delta`)-private, rounded down.

    Raises
    ------
    ValueError
        If that is below 1e-12, where floats can't tell it from 0.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 4)
    3.7306
    """
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    if delta == 0:
        return 0.0
    if gaussian_delta(_LEAST_MU, epsilon) >= delta:
        raise ValueError("epsilon and delta are too small: no float holds noise of that size. Raise either.")
    # Claim: gaussian_epsilon(answer, delta) <= epsilon. The profile increases in mu, and the root is rounded down.
    # Above the largest exact mu, mu (mu/2 + tail) <= epsilon for what `gaussian_epsilon` returns there.
    tail = math.sqrt(2 * math.log(1 / delta))
    bound = 2 * epsilon / (math.sqrt(tail * tail + 2 * epsilon) + tail) if epsilon < 1e300 else math.sqrt(epsilon)
    if bound > _LARGEST_EXACT_MU:
        return bound * (1 - 2 * _ROOT_MARGIN)
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    log_delta = math.log(delta)
    root = _decreasing_root(lambda mu: log_delta - math.log(max(gaussian_delta(mu, epsilon), 5e-324)), _LEAST_MU, high)
    # Twice the margins: then `gaussian_epsilon` of the answer, which is rounded up, is still at most `epsilon`.
    root = root * (1 - 2 * _ROOT_MARGIN) - 2 * _ABSOLUTE_ROOT_MARGIN
    return min(root, _LARGEST_EXACT_MU)


def _decreasing_root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(f, low, high, xtol=1e-14, rtol=1e-13, maxiter=200))


def grid_for(bound: float) -> float:
    """Return the grid for a privacy-loss distribution whose epsilon is at most `bound`."""
    return max(GRID, bound * _GRID_PER_EPSILON) if math.isfinite(bound) else GRID


def pld_supports(tally: Tally, adjacency: Adjacency, *, pessimistic: bool = True) -> bool:
    """Return whether every event has a privacy-loss distribution here.

    A rho-zCDP release has only an optimistic one: that of Gaussian noise, which is one such release.
    """
    return all(
        times <= _MOST_STEPS
        and (
            event.precision(pessimistic=pessimistic) is not None
            or event.losses(adjacency, pessimistic=pessimistic) is not None
        )
        for event, times in tally.items()
    )


def rdp_supports(tally: Tally, adjacency: Adjacency) -> bool:
    """Return whether every event has Rényi divergences here."""
    return all(event.rdp_event(adjacency) is not None for event in tally)


def pld(tally: Tally, adjacency: Adjacency, *, grid: float = GRID, pessimistic: bool = True) -> Any:
    """Return the composed privacy-loss distribution; with `pessimistic=False` its epsilon is a lower bound."""
    return _pld(frozenset(tally.items()), adjacency, grid, pessimistic)


# The last few are kept: a charge is first costed and then converted for the ledger's filter.
@lru_cache(maxsize=4)
def _pld(items: frozenset[tuple[Event, int]], adjacency: Adjacency, grid: float, pessimistic: bool) -> Any:
    tally = dict(items)
    from dp_accounting.pld import privacy_loss_distribution as losses

    options = {"value_discretization_interval": grid, "pessimistic_estimate": pessimistic}
    if not pessimistic:
        options["use_connect_dots"] = False
    total = losses.identity(value_discretization_interval=grid, pessimistic_estimate=pessimistic)
    # All Gaussian releases on all rows are equivalent to one. This keeps the distribution small for any number of them.
    precisions = {event: event.precision(pessimistic=pessimistic) for event in tally}
    precision = math.fsum(tally[event] * one for event, one in precisions.items() if one is not None)
    if precision:
        total = total.compose(losses.from_gaussian_mechanism(1 / math.sqrt(precision), **options))
    for event, times in tally.items():
        if precisions[event] is None:
            make = event.losses(adjacency, pessimistic=pessimistic)
            if make is None:
                raise TypeError(f"{event} has no privacy-loss distribution here.")
            total = total.compose(make(options).self_compose(times))
    return total


def rounding(tally: Tally) -> float:
    """Return a probability by which the delta of a composed distribution can be too small."""
    # Claim: true delta <= computed delta + the number returned.
    # Not proved: it is twice what was measured, per step, on pure events and sampled Gaussian noise.
    return _PLD_ROUNDING + _PLD_ROUNDING_PER_STEP * sum(t for e, t in tally.items() if not isinstance(e, GaussianEvent))


def rdp(tally: Tally, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Any:
    """Return an RDP accountant that has composed all events of `tally`."""
    import dp_accounting as dpa

    # Integer orders up to 64 and a few larger ones contain the optimum for all practical epsilons; fractional orders of
    # a sampled Gaussian take fifty times longer.
    orders = [1.25, 1.5, 1.75, *range(2, 65), *(int(64 * 1.2**k) for k in range(1, 32))]
    sampled = any(isinstance(event, SampledEvent) for event in tally)
    accountant = dpa.rdp.RdpAccountant([o for o in orders if not (sampled and (o < 2 or o > 1100))])
    for event, times in tally.items():
        make = event.rdp_event(adjacency)
        if make is None:
            raise TypeError(f"{event} has no Rényi divergences here.")
        accountant.compose(make(), times)
    return accountant
