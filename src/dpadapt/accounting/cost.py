"""`epsilon` and `delta`: the cost of a collection of events.

The cost is exact where a closed form exists (Gaussian noise alone, pure events at delta = 0). Otherwise it is the
smallest of the valid bounds: the sum of pure epsilons, Rényi composition, and privacy-loss distributions. Every answer
is an upper bound.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from dpadapt import checks
from dpadapt.accounting import oracles
from dpadapt.accounting.closed_forms import choice_mu, gaussian_delta, gaussian_epsilon, laplace_mu, pure_mu
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Mechanism,
    NonPrivateEvent,
    Plan,
    PureEvent,
    SampledEvent,
    as_plan,
)

if TYPE_CHECKING:
    from dpadapt.accounting.receipt import Entry

Events = Event | Mechanism | Plan | Mapping[Event, int] | Iterable[Event | Mechanism | Plan]

# The events whose cost this module can compute. A subclass of one of them is refused too: its cost may differ.
_KNOWN_EVENTS = (
    GaussianEvent,
    LaplaceEvent,
    ConcentratedEvent,
    PureEvent,
    BoundedRangeEvent,
    SampledEvent,
    NonPrivateEvent,
)


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
    return _epsilon(frozenset(tally(events).items()), checks.delta(delta), Adjacency.of(adjacency))


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
    for event, times in counted.items():
        if type(event) not in _KNOWN_EVENTS:
            raise TypeError(f"unknown event {type(event).__name__}: its cost can't be computed, so it is refused.")
        if times < 0:
            raise ValueError(f"{event} can't have happened {times} times.")
    return {event: times for event, times in counted.items() if times}


def add_entries(counted: Mapping[Event, int], entries: "Iterable[Entry]") -> dict[Event, int]:
    """Return `counted`, the number of each event, with the events of `entries` added."""
    after = dict(counted)
    for entry in entries:
        after[entry.event] = after.get(entry.event, 0) + entry.times
    return after


def gaussian_part(counted: Mapping[Event, int]) -> float | None:
    """Return the mu of `counted` if all events are Gaussian, else None."""
    if not all(isinstance(event, GaussianEvent) for event in counted):
        return None
    # Not 1 / s²: s² can overflow or underflow where 1 / s does neither.
    # Claim: mu² = Σ 1 / s_t². Gaussian releases compose exactly (Dong, Roth and Su 2022, Corollary 3.3).
    scales = [(1 / e.noise_multiplier, n) for e, n in counted.items() if isinstance(e, GaussianEvent)]
    return math.sqrt(math.fsum(n * scale * scale for scale, n in scales))


def dominating_mu(event: Event) -> float:
    """Return mu such that one release of `event` is at least as private as a mu-Gaussian one; inf if there is none."""
    # Claim: the trade-off function of the event >= G_mu. `closed_forms` proves it for each kind; by joint convexity a
    # Poisson sample never tells more than all rows.
    match event:
        case GaussianEvent(noise_multiplier=s) | SampledEvent(event=GaussianEvent(noise_multiplier=s)):
            return 1 / s
        case PureEvent(epsilon=e):
            return pure_mu(e)
        case LaplaceEvent(noise_multiplier=s):
            return laplace_mu(1 / s)
        case BoundedRangeEvent(epsilon=e):
            return choice_mu(e)
        case SampledEvent(event=LaplaceEvent()):
            return pure_mu(pure_epsilon({event: 1}))
    return math.inf


def pure_epsilon(counted: Mapping[Event, int]) -> float:
    """Return the sum of pure epsilons; inf if some event is not pure."""
    # Claim: epsilon <= Σ epsilon_i; on a Poisson sample epsilon_i = log(1 + q (e^epsilon - 1)). Basic composition, and
    # amplification by sampling (Balle, Barthe and Gaboardi 2018).
    total = 0.0
    for event, times in counted.items():
        match event:
            case PureEvent(epsilon=e) | BoundedRangeEvent(epsilon=e):
                total += times * e
            case LaplaceEvent(noise_multiplier=s):
                total += times / s
            case SampledEvent(event=LaplaceEvent(noise_multiplier=s), rate=q):
                # Amplification by sampling: log(1 + q (e^epsilon - 1)). Above epsilon = 700 the exponential would
                # overflow; there the cost is bounded by that without sampling.
                total += times * (math.log1p(q * math.expm1(1 / s)) if s > 1 / 700 else 1 / s)
            case _:
                return math.inf
    return total


@lru_cache(maxsize=4096)
def _epsilon(items: frozenset[tuple[Event, int]], delta: float, adjacency: Adjacency) -> float:
    counted = dict(items)
    if not counted:
        return 0.0
    if any(isinstance(event, NonPrivateEvent) for event in counted):
        return math.inf
    mu = gaussian_part(counted)
    if mu is not None:
        return gaussian_epsilon(mu, delta)
    # Claim: epsilon <= the least of the valid bounds: pure sum, dominating Gaussian, Rényi, privacy-loss distribution.
    # Each holds for events that were fixed in advance, so their least does. Not proved: dp-accounting's privacy-loss
    # distributions, which are pessimistic by construction; `Receipt.verify` recomputes the cost by a second way, and
    # tests by closed forms.
    best = quick_epsilon(counted, delta, adjacency)
    precise = delta - oracles.rounding(counted)
    if not precise > delta / 2 or not oracles.pld_supports(counted, adjacency):
        return best
    while True:
        grid = oracles.grid_for(best)
        best = min(best, float(oracles.pld(counted, adjacency, grid=grid).get_epsilon_for_delta(precise)))
        # If the first bound was much too high, the grid was too coarse: repeat with a finer one.
        if oracles.grid_for(best) > grid / 2:
            return best


def quick_epsilon(counted: Mapping[Event, int], delta: float, adjacency: Adjacency) -> float:
    """Return the smallest of the bounds that need no privacy-loss distribution."""
    best = pure_epsilon(counted)
    if delta == 0:
        return best
    mus = [(dominating_mu(event), times) for event, times in counted.items()]
    best = min(best, gaussian_epsilon(math.sqrt(math.fsum(times * mu * mu for mu, times in mus)), delta))
    # Pure events need no delta: their epsilons can be added to the cost of the rest.
    pure = {event: times for event, times in counted.items() if math.isfinite(pure_epsilon({event: times}))}
    rest = {event: times for event, times in counted.items() if event not in pure}
    if pure and rest:
        best = min(best, pure_epsilon(pure) + quick_epsilon(rest, delta, adjacency))
    if oracles.rdp_supports(counted, adjacency):
        best = min(best, float(oracles.rdp(counted).get_epsilon(delta)))
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
    if oracles.rdp_supports(counted, adjacency):
        best = float(oracles.rdp(counted).get_delta(epsilon))
    if oracles.pld_supports(counted, adjacency):
        quick = oracles.rdp_supports(counted, adjacency)
        bound = quick_epsilon(counted, 1e-9, adjacency) if quick else _epsilon(items, 1e-9, adjacency)
        distribution = oracles.pld(counted, adjacency, grid=oracles.grid_for(bound))
        best = min(best, float(distribution.get_delta_for_epsilon(epsilon)) + oracles.rounding(counted))
    return best
