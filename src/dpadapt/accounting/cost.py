"""`epsilon` and `delta`: what a collection of events costs.

Exact where a closed form exists (Gaussian noise alone, pure events at delta = 0); otherwise the smallest of the bounds
that hold: the sum of pure epsilons, Rényi composition, and privacy-loss distributions. Every answer is an upper bound.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from dpadapt import checks
from dpadapt.accounting import oracles
from dpadapt.accounting.closed_forms import gaussian_delta, gaussian_epsilon
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

Events = Event | Mechanism | Plan | Mapping[Event, int] | Iterable[Event | Mechanism | Plan]


def epsilon(events: Events, delta: float, *, adjacency: Adjacency = Adjacency.ZERO_OUT) -> float:
    """Return the epsilon that `events` cost together at `delta`.

    Parameters
    ----------
    events : event, mechanism, plan, or several of them; or a mapping of event to how often it happened
    delta : float
        In [0, 1). At 0 only pure events have a finite cost.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        Matters for sampled events only: the noise of an event is relative to the adjacency's own sensitivity.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> from dpadapt.mechanisms.mechanism import Repeated
    >>> round(epsilon(Repeated(Gaussian(456.91), steps=15_000), 1e-5), 4)
    1.0
    """
    return _epsilon(frozenset(tally(events).items()), checks.delta(delta), Adjacency.of(adjacency))


def delta(events: Events, epsilon: float, *, adjacency: Adjacency = Adjacency.ZERO_OUT) -> float:
    """Return the delta that `events` have together at `epsilon`; the inverse of `epsilon`.

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
    """Count equal events; refuse anything that is not one."""
    if isinstance(events, Mapping):
        counted = dict(events)
    else:
        counted = {}
        for item in [events] if isinstance(events, Event | Mechanism | Plan) else events:
            event, times = (item, 1) if isinstance(item, Event) else _event_of(item)
            counted[event] = counted.get(event, 0) + times
    for event, times in counted.items():
        if type(event) not in _KNOWN:
            raise TypeError(f"unknown event {type(event).__name__}: its cost can't be computed, so it is refused.")
        if times < 0:
            raise ValueError(f"{event} can't have happened {times} times.")
    return {event: times for event, times in counted.items() if times}


_KNOWN = (
    GaussianEvent,
    LaplaceEvent,
    ConcentratedEvent,
    PureEvent,
    BoundedRangeEvent,
    SampledEvent,
    NonPrivateEvent,
)


def _event_of(item: Mechanism | Plan) -> tuple[Event, int]:
    plan = as_plan(item)
    return plan.event(), plan.steps


def gaussian_part(counted: Mapping[Event, int]) -> float | None:
    """Return the mu of `counted` if it is Gaussian noise alone, else None."""
    if not all(isinstance(event, GaussianEvent) for event in counted):
        return None
    # Not 1 / s²: s² can overflow or vanish where 1 / s does neither.
    scales = [(1 / e.noise_multiplier, n) for e, n in counted.items() if isinstance(e, GaussianEvent)]
    return math.sqrt(math.fsum(n * scale * scale for scale, n in scales))


def _pure_epsilon(counted: Mapping[Event, int]) -> float:
    """Return the sum of pure epsilons, inf if some event has none."""
    total = 0.0
    for event, times in counted.items():
        match event:
            case PureEvent(epsilon=e) | BoundedRangeEvent(epsilon=e):
                total += times * e
            case LaplaceEvent(noise_multiplier=s):
                total += times / s
            case SampledEvent(event=LaplaceEvent(noise_multiplier=s), rate=q):
                # Amplification by sampling: log(1 + q (e^epsilon - 1)); beyond 700 it would overflow and gain nothing.
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
    best = _quick_epsilon(counted, delta, adjacency)
    if delta == 0 or not oracles.pld_supports(counted, adjacency):
        return best
    while True:
        grid = _grid(best)
        best = min(best, float(oracles.pld(counted, adjacency, grid=grid).get_epsilon_for_delta(delta)))
        # The first bound may have been far off, and the grid too coarse with it.
        if _grid(best) > grid / 2:
            return best


def _quick_epsilon(counted: Mapping[Event, int], delta: float, adjacency: Adjacency) -> float:
    """Return the least of the bounds that need no privacy-loss distribution."""
    best = _pure_epsilon(counted)
    if delta == 0:
        return best
    # By joint convexity a Poisson sample never costs more than all rows.
    whole: dict[Event, int] = {}
    for event, times in counted.items():
        inner = event.event if isinstance(event, SampledEvent) else event
        whole[inner] = whole.get(inner, 0) + times
    mu = gaussian_part(whole)
    if mu is not None:
        best = min(best, gaussian_epsilon(mu, delta))
    if oracles.rdp_supports(counted, adjacency):
        best = min(best, float(oracles.rdp(counted).get_epsilon(delta)))
    return best


def _grid(bound: float) -> float:
    """Return a grid fit for a cost of at most `bound`."""
    # A cost in the hundreds is no protection: coarsen the grid rather than run out of memory on its tail.
    return max(oracles.GRID, bound * 2e-5) if math.isfinite(bound) else oracles.GRID


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
    if _pure_epsilon(counted) <= epsilon:
        return 0.0
    best = 1.0
    if oracles.rdp_supports(counted, adjacency):
        best = min(best, float(oracles.rdp(counted).get_delta(epsilon)))
    if oracles.pld_supports(counted, adjacency):
        quick = oracles.rdp_supports(counted, adjacency)
        grid = _grid(_quick_epsilon(counted, 1e-9, adjacency) if quick else _epsilon(items, 1e-9, adjacency))
        best = min(best, float(oracles.pld(counted, adjacency, grid=grid).get_delta_for_epsilon(epsilon)))
    return best
