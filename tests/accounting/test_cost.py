"""The cost of events: what every accountant must satisfy, bounds from dp-accounting, and golden values."""

import math
from dataclasses import dataclass, field

import mpmath  # which dp-accounting needs, too
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dpadapt.accounting import Ledger, delta, epsilon
from dpadapt.accounting.cost import (
    GRID,
    add_entries,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    grid_for,
    pld,
    pld_supports,
    pure_epsilon,
    quick_epsilon,
    rdp,
    rdp_supports,
    rounding,
    tally,
)
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Adjacency, Gaussian, Laplace, NonPrivate
from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Entry,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
    from_dict,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled

DELTA = 1e-5
SWAP = Adjacency.REPLACE_ONE

# One collection for every kind of event and for every branch of the accountant.
COLLECTIONS = {
    "Gaussian": {GaussianEvent(2.0): 3, GaussianEvent(5.0): 10},
    "little noise": {GaussianEvent(0.5): 1},
    "Laplace": {LaplaceEvent(4.0): 5},
    "pure": {PureEvent(0.2): 5},
    "range": {BoundedRangeEvent(0.2): 50},
    "concentrated": {ConcentratedEvent(0.05): 2},
    "sampled": {SampledEvent(GaussianEvent(1.2), 0.03): 100},
    "sampled, all": {SampledEvent(GaussianEvent(1.2), 1.0): 3},
    "sampled Laplace": {SampledEvent(LaplaceEvent(2.0), 0.1): 5},
    "Gaussian and pure": {GaussianEvent(2.0): 1, PureEvent(0.3): 2, LaplaceEvent(5.0): 1},
    "Gaussian and concentrated": {GaussianEvent(2.0): 1, ConcentratedEvent(0.05): 1, BoundedRangeEvent(0.2): 3},
    "Gaussian and sampled": {GaussianEvent(5.0): 2, SampledEvent(GaussianEvent(1.5), 0.05): 50},
}
FINITE_AT_ZERO = ("Laplace", "pure", "range", "sampled Laplace")
# ADD_REMOVE takes the path of ZERO_OUT: see test_add_remove_costs_what_zero_out_costs.
everywhere = pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
every = pytest.mark.parametrize("name", COLLECTIONS)


def test_every_event_is_in_a_collection():
    every_event = {event for event in Event.__subclasses__() if event.__module__ == Event.__module__}
    assert {type(event) for events in COLLECTIONS.values() for event in events} == every_event - {NonPrivateEvent}


def test_nothing_costs_nothing():
    for nothing in ([], {}, {GaussianEvent(1.0): 0}):
        assert epsilon(nothing, DELTA) == 0.0
        assert epsilon(nothing, 0.0) == 0.0
        assert delta(nothing, 0.0) == 0.0


@everywhere
@every
def test_a_deliberate_leak_has_infinite_cost(name, adjacency):
    leak = {**COLLECTIONS[name], NonPrivateEvent(): 1}
    assert epsilon(leak, 0.99, adjacency=adjacency) == math.inf
    assert delta(leak, 1e9, adjacency=adjacency) == 1.0
    assert epsilon(NonPrivate(), DELTA) == math.inf


def test_what_an_event_leaves_out_costs_infinity():
    @dataclass(frozen=True)
    class NewEvent(Event):
        """States no cost at all."""

    new = NewEvent()
    for events in ({new: 1}, {new: 2, GaussianEvent(1.0): 1, PureEvent(0.1): 1}):
        for delta_ in (0.0, DELTA, 0.9):
            assert epsilon(events, delta_) == math.inf
        assert delta(events, 100.0) == 1.0
        assert Filter.of("mixed", 1e6, DELTA, Adjacency.ZERO_OUT).sums(
            [Entry("new", event, times) for event, times in events.items()]
        ) == Sums(math.inf, math.inf, math.inf, 0, 1)
    with pytest.raises(BudgetExceeded):
        Ledger(1e6, DELTA).start(Unknown(NewEvent), label="new")
    assert from_dict(new.to_dict()) == new


@dataclass(frozen=True)
class Unknown(NonPrivate):
    """A mechanism whose event states no cost."""

    kind: type

    def event(self):
        return self.kind()


def test_what_is_no_event_is_refused():
    for event in ("Gaussian", 3):
        with pytest.raises(TypeError, match="expected a mechanism"):
            epsilon([event], DELTA)
        with pytest.raises(TypeError, match="unknown event"):
            epsilon({event: 1}, DELTA)
    for times in (-1, 1.5, math.nan, "2"):
        for count in (
            lambda times: epsilon({GaussianEvent(1.0): times}, DELTA),
            lambda times: Entry("x", GaussianEvent(1.0), times),
        ):
            with pytest.raises(ValueError, match=f"can't have happened {times} times"):
                count(times)


def test_an_event_that_does_not_compare_its_fields_is_refused():
    """All instances would be one event, with the cost of the first."""

    class Plain(Event):
        def __init__(self, size):
            object.__setattr__(self, "size", size)

    @dataclass(frozen=True, eq=False)
    class Unequal(Event):
        size: float

    @dataclass(frozen=True)
    class Partly(Event):
        size: float = field(compare=False)

    for kind in (Plain, Unequal, Partly):
        for count in (
            lambda event: epsilon([event], 0.0),
            lambda event: epsilon({event: 1}, 0.0),
            lambda event: Entry("x", event),
        ):
            with pytest.raises(TypeError, match="must be a dataclass"):
                count(kind(1.0))


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan, "x"])
def test_delta_must_lie_in_the_unit_interval(bad):
    with pytest.raises(ValueError, match="delta must lie in"):
        epsilon(Gaussian(1.0), bad)


@everywhere
@every
def test_cost_is_monotone(name, adjacency):
    events = COLLECTIONS[name]
    cost = epsilon(events, DELTA, adjacency=adjacency)
    assert 0 < cost < math.inf
    more = {event: times + 1 for event, times in events.items()}
    assert epsilon(more, DELTA, adjacency=adjacency) > cost
    assert epsilon(events, DELTA / 10, adjacency=adjacency) >= cost * (1 - 1e-9)
    assert epsilon(noisier(events), DELTA, adjacency=adjacency) < cost
    assert delta(events, cost * 1.1, adjacency=adjacency) <= delta(events, cost, adjacency=adjacency)


def noisier(events):
    """Return the same events with 20% more noise."""

    def change(event):
        if isinstance(event, SampledEvent):
            return SampledEvent(change(event.event), event.rate)
        (value,) = event._fields().values()
        return type(event)(value * 1.2 if hasattr(event, "noise_multiplier") else value / 1.2)

    return {change(event): times for event, times in events.items()}


@everywhere
@every
def test_epsilon_and_delta_are_inverse(name, adjacency):
    events = COLLECTIONS[name]
    cost = epsilon(events, DELTA, adjacency=adjacency)
    if name in FINITE_AT_ZERO and cost == epsilon(events, 0.0, adjacency=adjacency):
        assert delta(events, cost, adjacency=adjacency) == 0.0
        return
    back = delta(events, cost, adjacency=adjacency)
    # Exact for Gaussian noise; otherwise both are upper bounds, on one grid.
    assert back <= DELTA * (1 + 1e-6)
    assert epsilon(events, back, adjacency=adjacency) == pytest.approx(cost, rel=1e-6 if name == "Gaussian" else 1e-3)


@every
def test_add_remove_costs_what_zero_out_costs(name):
    assert epsilon(COLLECTIONS[name], DELTA, adjacency=Adjacency.ADD_REMOVE) == epsilon(COLLECTIONS[name], DELTA)


@pytest.mark.parametrize("name", [name for name in COLLECTIONS if name not in FINITE_AT_ZERO])
def test_only_pure_events_are_finite_at_delta_zero(name):
    assert epsilon(COLLECTIONS[name], 0.0) == math.inf


def test_pure_costs_add_up_at_delta_zero():
    events = {PureEvent(0.5): 2, LaplaceEvent(2.0): 3, BoundedRangeEvent(0.25): 4}
    assert epsilon(events, 0.0) == pytest.approx(0.5 * 2 + 3 / 2 + 0.25 * 4)
    assert delta(events, 3.5) == 0.0


@pytest.mark.parametrize(
    ("pure", "rest", "least"),
    [
        ({PureEvent(0.1): 1}, {}, "pure"),
        ({PureEvent(1e-3): 100}, {GaussianEvent(1.0): 1}, "Gaussian"),
        ({PureEvent(1e-3): 1}, {ConcentratedEvent(0.05): 2}, "Rényi"),
        ({SampledEvent(LaplaceEvent(2.0), 0.1): 1}, {ConcentratedEvent(0.05): 2}, "both"),
        ({PureEvent(0.001): 1}, {GaussianEvent(1.0): 1, ConcentratedEvent(1e-9): 1}, "Rényi"),
    ],
)
def test_the_quick_cost_is_the_least_of_the_bounds(pure, rest, least):
    """Each bound, written out again."""
    counted = pure | rest
    bounds = {
        "pure": math.inf if rest else sum(times * pure_epsilon({event: 1}) for event, times in pure.items()),
        "Gaussian": gaussian_epsilon(math.sqrt(sum(n * e.dominating_mu() ** 2 for e, n in counted.items())), DELTA),
        "Rényi": math.inf,
    }
    if rdp_supports(counted, Adjacency.ZERO_OUT):
        bounds["Rényi"] = rdp(counted).get_epsilon(DELTA)
    if rest:
        bounds["both"] = pure_epsilon(pure) + quick_epsilon(rest, DELTA, Adjacency.ZERO_OUT)
    assert min(bounds, key=bounds.get) == least, bounds
    assert quick_epsilon(counted, DELTA, Adjacency.ZERO_OUT) == pytest.approx(bounds[least], rel=1e-9)


def test_a_pure_epsilon_below_the_grid_costs_no_more_than_itself():
    assert epsilon({PureEvent(1e-6): 1}, 1e-9) <= 1e-6


@pytest.mark.parametrize("bad", [-0.1, math.nan])
def test_a_delta_is_asked_for_at_an_epsilon_of_at_least_0(bad):
    with pytest.raises(ValueError, match="epsilon must not be negative"):
        delta({PureEvent(0.1): 1}, bad)


def test_extreme_noise_has_a_cost():
    assert epsilon(GaussianEvent(1e200), DELTA) == 0.0
    assert epsilon(GaussianEvent(1e-200), DELTA) == math.inf
    assert epsilon(SampledEvent(LaplaceEvent(1e-3), 0.5), 0.0) >= 999.0
    # Without the bound for all rows, which sets the grid, this would need gigabytes.
    cost = epsilon({SampledEvent(GaussianEvent(0.01), 0.01): 3}, DELTA, adjacency=Adjacency.REPLACE_ONE)
    assert 1000 < cost < 20_000


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_sampling_lowers_the_cost_and_rate_one_costs_what_all_rows_cost(noise):
    for make in (Gaussian, Laplace):
        whole = epsilon(Repeated(make(noise), 5), DELTA)
        costs = [epsilon(Sampled(make(noise), rate=rate, steps=5), DELTA) for rate in (0.01, 0.3, 1.0)]
        assert costs[0] < costs[1] < costs[2]
        assert costs[2] == pytest.approx(whole, rel=2e-3)


# Without BoundedRangeEvent: it costs less than the pure event that stands in for it in `pld`.
WITH_DISTRIBUTION = [
    (name, adjacency)
    for name, events in COLLECTIONS.items()
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
    if pld_supports(events, adjacency) and not any(isinstance(event, BoundedRangeEvent) for event in events)
]


@pytest.mark.parametrize(("name", "adjacency"), WITH_DISTRIBUTION)
def test_the_cost_is_never_below_the_optimistic_privacy_loss_distribution(name, adjacency):
    optimistic = pld(COLLECTIONS[name], adjacency, pessimistic=False).get_epsilon_for_delta(DELTA)
    assert epsilon(COLLECTIONS[name], DELTA, adjacency=adjacency) >= optimistic - 1e-9


GOLDEN = [
    # dp-accounting 0.6.0, PLD, interval 1e-4, delta 1e-5.
    (Sampled(Gaussian(1.5), rate=0.04, steps=2250), Adjacency.ADD_REMOVE, 6.770, 0.01),
    (Sampled(Gaussian(1.0), rate=0.01, steps=5000), Adjacency.ADD_REMOVE, 4.2019, 1e-4),
    # The same noise over twice the clip, PLD under REPLACE_ONE.
    (Sampled(Gaussian(0.5), rate=0.01, steps=5000), Adjacency.REPLACE_ONE, 7.1463, 1e-4),
    (Gaussian(1.0), Adjacency.REPLACE_ONE, 4.3772, 1e-4),
]


@pytest.mark.parametrize(("plan", "adjacency", "value", "tolerance"), GOLDEN)
def test_golden_costs(plan, adjacency, value, tolerance):
    assert epsilon(plan, DELTA, adjacency=adjacency) == pytest.approx(value, abs=tolerance)


def test_golden_costs_detect_slightly_less_noise():
    assert abs(epsilon(Sampled(Gaussian(1.48), rate=0.04, steps=2250), DELTA) - 6.770) > 0.01


@pytest.mark.parametrize("mechanism", [Gaussian(4.0), Laplace(4.0)])
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_equal_events_count_as_often_as_they_occur(mechanism, rate):
    """However they are grouped: in plans, events, entries, charges at once or a mapping, between other events."""

    def plan(steps):
        return Repeated(mechanism, steps) if rate == 1.0 else Sampled(mechanism, rate, steps)

    event, other = plan(1).event(), PureEvent(0.01)
    counted = {event: 6, other: 2}
    assert tally([plan(3), other, event, plan(2), other]) == tally(counted) == counted
    entries = [Entry("a", event, 3), Entry("b", other), Entry("a", event), Entry("c", event, 2), Entry("b", other)]
    assert add_entries({}, entries) == add_entries({event: 3, other: 1}, entries[1:4]) == counted
    ledger = Ledger(9.0, DELTA)
    ledger.start_all([(plan(3), "a"), (plan(1), "a"), (plan(2), "b")])
    assert ledger.spent() == epsilon(plan(6), DELTA) > epsilon(plan(3), DELTA)


@pytest.mark.parametrize("event", [PureEvent(800.0), BoundedRangeEvent(800.0), SampledEvent(LaplaceEvent(1e-3), 0.1)])
def test_a_pure_epsilon_beyond_all_exponentials_still_has_a_cost(event):
    assert 500 < epsilon([event, GaussianEvent(2.0)], 1e-6) < 1100


@pytest.mark.parametrize("each", [500.0, 699.0, 701.0, 5000.0])
def test_sampling_amplifies_no_more_than_is_proved_where_the_exponential_overflows(each):
    # log(1 + rate (exp(epsilon) - 1)) > epsilon + log(rate)
    assert pure_epsilon({SampledEvent(LaplaceEvent(1 / each), 0.1): 1}) >= each + math.log(0.1) - 1e-9


@pytest.mark.parametrize(("steps", "delta"), [(2000, 2e-15), (20_000, 1e-13), (50_000, 1e-12), (2000, 1e-9)])
def test_a_distribution_is_not_trusted_below_its_rounding_error(steps, delta):
    """At rate 1 the closed form is known; rounding made the composed distribution's delta several times too small."""
    noise = math.sqrt(steps) / gaussian_mu(1.0, delta)
    assert epsilon(Sampled(Gaussian(noise), 1.0, steps), delta) >= 1.0 * (1 - 1e-6)


@pytest.mark.parametrize("steps", [10**4, 10**5])
def test_many_pure_events_on_the_grid_cost_no_less_than_their_exact_binomial_tail(steps):
    """The probabilities of one such event add up to less than 1 by rounding; composition adds up what is missing."""
    each = 11 * GRID
    # Deltas close to where the distribution is not trusted any more: there the rounding error weighs most.
    allowed = 2.1 * (1e-15 + 3e-17 * steps), 2.1 * rounding({PureEvent(each): steps})
    truthful = np.arange(steps + 1)
    for delta_ in allowed:
        cost = epsilon({PureEvent(each): steps}, delta_)
        losses = (2 * truthful - steps) * each
        chances = np.exp(binom.logpmf(truthful, steps, 1 / (1 + math.exp(-each))))
        assert math.fsum((chances * -np.expm1(np.minimum(cost - losses, 0.0))).tolist()) <= delta_


# Closed forms of Gaussian noise


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-4, 40.0), st.floats(-14.0, -0.2))
def test_gaussian_forms_are_inverse(mu, log_delta):
    budget = 10**log_delta
    cost = gaussian_epsilon(mu, budget)
    if cost == 0.0:
        assert gaussian_delta(mu, 0.0) <= budget
        return
    assert gaussian_delta(mu, cost) <= budget * (1 + 1e-9)
    assert gaussian_delta(mu, cost) == pytest.approx(budget, rel=1e-4)
    if cost > 1e-6:
        assert gaussian_mu(cost, budget) == pytest.approx(mu, rel=1e-6)
        assert gaussian_mu(cost, budget) <= mu * (1 + 1e-9)


def test_gaussian_forms_in_limiting_cases():
    assert gaussian_epsilon(0.0, 0.0) == gaussian_epsilon(0.0, DELTA) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == gaussian_epsilon(math.inf, DELTA) == math.inf
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(math.inf, 5.0) == 1.0
    assert gaussian_delta(1.0, math.inf) == 0.0
    # Nor -0.0, nor an overflow, where rounding makes the difference of two logarithms positive.
    assert str(gaussian_delta(0.3522519415129706, 1679579031.3425448)) == "0.0"
    assert gaussian_mu(1.0, 0.0) == 0.0


def test_a_budget_too_small_for_floats_is_refused_in_plain_words():
    with pytest.raises(ValueError, match="epsilon and delta are too small"):
        gaussian_mu(1e-60, 1e-15)
    ledger = Ledger(1e-60, 1e-15)
    assert ledger.remaining() <= 1e-60


# dp-accounting's numerical accountants, with our meaning of noise under replace-one


def pld_epsilon(event, count, relation=None):
    """Return the epsilon of dp-accounting's PLD accountant."""
    import dp_accounting as dpa

    relation = relation or dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    return dpa.pld.PLDAccountant(relation).compose(event, count).get_epsilon(DELTA)


@pytest.mark.parametrize(("noise", "steps"), [(0.75, 1), (1.0, 1), (5.0, 20), (456.9072, 15_000)])
def test_gaussian_cost_agrees_with_dp_accounting(noise, steps):
    import dp_accounting as dpa

    exact = dpa.get_epsilon_gaussian(noise / math.sqrt(steps), DELTA)
    assert epsilon(Repeated(Gaussian(noise), steps), DELTA) == pytest.approx(exact, rel=1e-6)
    assert pld_epsilon(dpa.GaussianDpEvent(noise), steps) == pytest.approx(exact, abs=1e-4)
    assert epsilon(Repeated(Gaussian(noise), steps), DELTA, adjacency=SWAP) == pytest.approx(exact, rel=1e-6)


def test_sampled_cost_agrees_with_dp_accounting():
    import dp_accounting as dpa

    theirs = pld_epsilon(dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(1.1)), 100)
    assert epsilon(Sampled(Gaussian(1.1), rate=0.02, steps=100), DELTA) == pytest.approx(theirs, abs=1e-4)


def test_sampled_replacement_stores_noise_over_the_replacement_sensitivity():
    import dp_accounting as dpa

    # Noise of twice the clipping norm is once the sensitivity under replacement: our multiplier is 1, theirs is 2.
    event, relation = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(2.0)), dpa.NeighboringRelation.REPLACE_ONE
    theirs = pld_epsilon(event, 100, relation)
    ours = epsilon(Sampled(Gaussian(1.0), rate=0.02, steps=100), DELTA, adjacency=SWAP)
    assert ours == pytest.approx(theirs, abs=1e-4)
    # At rate 1 it costs what a release on all rows costs, which is the same under every adjacency.
    whole = epsilon({SampledEvent(GaussianEvent(1.0), 1.0): 2}, DELTA, adjacency=SWAP)
    assert whole == pytest.approx(epsilon({GaussianEvent(1.0): 2}, DELTA), abs=1e-3)


def test_mixtures_agree_with_dp_accounting():
    import dp_accounting as dpa

    theirs = dpa.pld.PLDAccountant()
    theirs.compose(dpa.GaussianDpEvent(2.0)).compose(dpa.LaplaceDpEvent(5.0), 3)
    ours = epsilon({GaussianEvent(2.0): 1, LaplaceEvent(5.0): 3}, DELTA)
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), abs=1e-4)


TALLY = {GaussianEvent(2.0): 2, LaplaceEvent(5.0): 3, PureEvent(0.2): 1}


def test_optimistic_and_pessimistic_distributions_enclose_the_cost():
    low, high = (
        pld(TALLY, Adjacency.ZERO_OUT, pessimistic=pessimistic).get_epsilon_for_delta(DELTA)
        for pessimistic in (False, True)
    )
    assert low < high < low * 1.01
    # Rényi composition is a valid bound too, and looser.
    assert high < rdp(TALLY).get_epsilon(DELTA) < 2 * high


@pytest.mark.parametrize("size", [40.0, 700.0])
def test_both_distributions_of_a_large_pure_epsilon_have_that_epsilon(size):
    for pessimistic in (False, True):
        distribution = pld({PureEvent(size): 1}, Adjacency.ZERO_OUT, grid=grid_for(size), pessimistic=pessimistic)
        assert distribution.get_epsilon_for_delta(DELTA) == pytest.approx(size, rel=1e-4)


def test_many_gaussian_releases_are_composed_as_one():
    many = pld({GaussianEvent(400.0): 10_000}, Adjacency.ZERO_OUT)
    one = pld({GaussianEvent(4.0): 1}, Adjacency.ZERO_OUT)
    assert many.get_epsilon_for_delta(DELTA) == pytest.approx(one.get_epsilon_for_delta(DELTA), rel=1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_supported_events_are_those_that_can_be_composed(adjacency):
    sampled = SampledEvent(GaussianEvent(2.0), 0.1), SampledEvent(LaplaceEvent(2.0), 0.1)
    events = [*TALLY, BoundedRangeEvent(0.2), ConcentratedEvent(0.05), *sampled]
    assert [pld_supports({event: 1}, adjacency) for event in events] == (
        [True, True, True, True, False, True, adjacency is not SWAP]
    )
    assert [rdp_supports({event: 1}, adjacency) for event in events] == (
        [True, True, True, True, True, adjacency is not SWAP, False]
    )


def test_events_without_a_distribution_or_divergences_are_refused():
    with pytest.raises(TypeError, match="no privacy-loss distribution"):
        pld({ConcentratedEvent(0.05): 1}, Adjacency.ZERO_OUT)
    with pytest.raises(TypeError, match="no Rényi divergences"):
        rdp({NonPrivateEvent(): 1})


def test_the_grid_is_coarser_for_large_costs_only():
    assert grid_for(1.0) == grid_for(math.inf) == GRID
    assert grid_for(1000.0) == pytest.approx(0.02)


@pytest.mark.parametrize("epsilon", [1e15, 6e15, 1e18, 1e40, 1e200, 1e299, 1e300, 1e308])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_huge_epsilons_have_costs_too(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert 0.9 * math.sqrt(epsilon) < mu
    assert 0.4 * epsilon <= gaussian_epsilon(mu, delta) <= epsilon
    if epsilon < 1e40:
        with mpmath.workdps(60):
            e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
            exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            assert exact <= delta
            assert gaussian_delta(mu, epsilon) >= 0.999 * exact
