"""Two numerical accountants, both thin layers over dp-accounting: privacy-loss distributions and Rényi divergences.

dp-accounting's Gaussian event under replace-one doubles the sensitivity in one of its accountants and not in the
other. Our events hold the noise over the sensitivity *of the stated adjacency*, so neither is left to do it: a plain
release is always handed over as an add/remove one, and a sampled one with its conversion written out below.
"""

import math
from collections.abc import Mapping
from typing import Any

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SampledEvent,
)

Tally = Mapping[Event, int]

GRID = 1e-4


def pld_supports(tally: Tally, adjacency: Adjacency) -> bool:
    """Tell whether every event has a privacy-loss distribution here."""
    return all(
        isinstance(event, GaussianEvent | LaplaceEvent | PureEvent | BoundedRangeEvent)
        or (isinstance(event, SampledEvent) and (isinstance(event.event, GaussianEvent) or not _replaces(adjacency)))
        for event in tally
    )


def rdp_supports(tally: Tally, adjacency: Adjacency) -> bool:
    """Tell whether every event has a Rényi curve here."""
    return all(
        isinstance(event, GaussianEvent | LaplaceEvent | PureEvent | BoundedRangeEvent | ConcentratedEvent)
        or (isinstance(event, SampledEvent) and isinstance(event.event, GaussianEvent) and not _replaces(adjacency))
        for event in tally
    )


def pld(tally: Tally, adjacency: Adjacency, *, grid: float = GRID, pessimistic: bool = True) -> Any:
    """Return the composed privacy-loss distribution; `pessimistic=False` gives one that costs too little."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    options = {"value_discretization_interval": grid, "pessimistic_estimate": pessimistic}
    if not pessimistic:
        options["use_connect_dots"] = False
    total = losses.identity(value_discretization_interval=grid, pessimistic_estimate=pessimistic)
    # All plain Gaussian releases are one: it keeps the grid small however many steps there were.
    precision = sum(times / e.noise_multiplier**2 for e, times in tally.items() if isinstance(e, GaussianEvent))
    if precision:
        total = total.compose(losses.from_gaussian_mechanism(1 / math.sqrt(precision), **options))
    for event, times in tally.items():
        if not isinstance(event, GaussianEvent):
            total = total.compose(_one_pld(event, adjacency, options).self_compose(times))
    return total


def rdp(tally: Tally) -> Any:
    """Return an accountant that has composed everything in `tally`."""
    import dp_accounting as dpa

    # Integer orders up to 64 and a few beyond carry the optimum for all practical epsilons; fractional orders of a
    # sampled Gaussian cost fifty times more to evaluate.
    orders = [1.25, 1.5, 1.75, *range(2, 65), *(int(64 * 1.2**k) for k in range(1, 32))]
    sampled = any(isinstance(event, SampledEvent) for event in tally)
    accountant = dpa.rdp.RdpAccountant([o for o in orders if not (sampled and (o < 2 or o > 1100))])
    for event, times in tally.items():
        accountant.compose(_rdp_event(event), times)
    return accountant


def _one_pld(event: Event, adjacency: Adjacency, options: dict[str, Any]) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as losses

    if isinstance(event, LaplaceEvent):
        return losses.from_laplace_mechanism(event.noise_multiplier, **options)
    if isinstance(event, PureEvent | BoundedRangeEvent):
        grid = options["value_discretization_interval"]
        if options["pessimistic_estimate"]:
            return losses.from_privacy_parameters(common.DifferentialPrivacyParameters(event.epsilon, 0.0), grid)
        # The worst that a pure event can be is randomized response between two answers.
        lie = 2 / (1 + math.exp(min(event.epsilon, 30.0)))
        return losses.from_randomized_response(lie, 2, pessimistic_estimate=False, value_discretization_interval=grid)
    if isinstance(event, SampledEvent):
        inner = event.event
        if isinstance(inner, LaplaceEvent):
            return losses.from_laplace_mechanism(inner.noise_multiplier, sampling_prob=event.rate, **options)
        if not _replaces(adjacency):
            return losses.from_gaussian_mechanism(inner.noise_multiplier, sampling_prob=event.rate, **options)
        # Under replace-one ours is noise over 2C, the library's noise over C (it doubles C itself).
        return losses.from_gaussian_mechanism(
            2 * inner.noise_multiplier,
            sampling_prob=event.rate,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
            **options,
        )
    raise TypeError(f"{event} has no privacy-loss distribution here.")


def _rdp_event(event: Event) -> Any:
    import dp_accounting as dpa
    from dp_accounting import dp_event

    match event:
        case GaussianEvent(noise_multiplier=s):
            return dpa.GaussianDpEvent(s)
        case LaplaceEvent(noise_multiplier=s):
            return dpa.LaplaceDpEvent(s)
        case ConcentratedEvent(rho=rho):
            return dp_event.ZCDpEvent(rho)
        case PureEvent(epsilon=e):
            return dp_event.ZCDpEvent(e**2 / 2)
        case BoundedRangeEvent(epsilon=e):
            return dp_event.ZCDpEvent(e**2 / 8)
        case SampledEvent(event=GaussianEvent(noise_multiplier=s), rate=q):
            return dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(s))
    raise TypeError(f"{event} has no Rényi curve here.")


def _replaces(adjacency: Adjacency) -> bool:
    return adjacency is Adjacency.REPLACE_ONE
