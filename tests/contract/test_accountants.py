"""Battery (c): what every accountant must satisfy, and that ours agrees with dp-accounting where it should."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt.accounting import calibrate, delta, epsilon, oracles
from dpadapt.accounting.closed_forms import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    mu_to_rho,
    pure_to_rho,
    rdp_to_epsilon,
    rho_to_epsilon,
    rho_to_mu,
)
from dpadapt.mechanisms import Adjacency, Gaussian, Laplace, NonPrivate
from dpadapt.mechanisms.mechanism import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    Repeated,
    Sampled,
    SampledEvent,
)

DELTA = 1e-5
SWAP = Adjacency.REPLACE_ONE

# One collection for every kind of event and every path through the accountant.
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


def test_nothing_costs_nothing():
    for nothing in ([], {}, {GaussianEvent(1.0): 0}):
        assert epsilon(nothing, DELTA) == 0.0
        assert epsilon(nothing, 0.0) == 0.0
        assert delta(nothing, 0.0) == 0.0


@everywhere
@every
def test_a_leak_costs_everything(name, adjacency):
    leak = {**COLLECTIONS[name], NonPrivateEvent(): 1}
    assert epsilon(leak, 0.99, adjacency=adjacency) == math.inf
    assert delta(leak, 1e9, adjacency=adjacency) == 1.0
    assert epsilon(NonPrivate(), DELTA) == math.inf


def test_unknown_events_are_refused():
    @dataclass(frozen=True)
    class Free(Event):
        """Claims to cost nothing."""

    @dataclass(frozen=True)
    class Cheaper(GaussianEvent):
        """Looks like a known one."""

    for event in (Free(), Cheaper(1.0), "Gaussian", 3):
        with pytest.raises(TypeError, match=r"unknown event|expected a mechanism"):
            epsilon([event], DELTA)
        with pytest.raises(TypeError, match="unknown event"):
            epsilon({event: 1}, DELTA)
    with pytest.raises(ValueError, match="can't have happened -1 times"):
        epsilon({GaussianEvent(1.0): -1}, DELTA)


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan, "x"])
def test_deltas_are_probabilities(bad):
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


def test_extreme_noise_is_costed_not_crashed_on():
    assert epsilon(GaussianEvent(1e200), DELTA) == 0.0
    assert epsilon(GaussianEvent(1e-200), DELTA) == math.inf
    assert epsilon(SampledEvent(LaplaceEvent(1e-3), 0.5), 0.0) >= 999.0
    # Without a bound from elsewhere this would need a grid of gigabytes.
    assert 1000 < epsilon({SampledEvent(GaussianEvent(0.01), 0.01): 3}, DELTA, adjacency=SWAP) < 20_000


# ---- against dp-accounting 0.6.0 ----


# A bounded range costs less than the pure event that stands in for it there.
DISTRIBUTED = [
    (name, adjacency)
    for name, events in COLLECTIONS.items()
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
    if oracles.pld_supports(events, adjacency) and not any(isinstance(event, BoundedRangeEvent) for event in events)
]


@pytest.mark.parametrize(("name", "adjacency"), DISTRIBUTED)
def test_never_below_the_optimistic_privacy_loss_distribution(name, adjacency):
    optimistic = oracles.pld(COLLECTIONS[name], adjacency, pessimistic=False).get_epsilon_for_delta(DELTA)
    assert epsilon(COLLECTIONS[name], DELTA, adjacency=adjacency) >= optimistic - 1e-9


def accountants(event, count, relation=None):
    import dp_accounting as dpa

    relation = relation or dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    return dpa.pld.PLDAccountant(relation).compose(event, count).get_epsilon(DELTA)


@pytest.mark.parametrize(("noise", "steps"), [(0.75, 1), (1.0, 1), (5.0, 20), (456.9072, 15_000)])
def test_gaussian_cost_agrees_with_dp_accounting(noise, steps):
    import dp_accounting as dpa

    exact = dpa.get_epsilon_gaussian(noise / math.sqrt(steps), DELTA)
    assert epsilon(Repeated(Gaussian(noise), steps), DELTA) == pytest.approx(exact, rel=1e-6)
    assert accountants(dpa.GaussianDpEvent(noise), steps) == pytest.approx(exact, abs=1e-4)
    assert epsilon(Repeated(Gaussian(noise), steps), DELTA, adjacency=SWAP) == pytest.approx(exact, rel=1e-6)


def test_sampled_cost_agrees_with_dp_accounting():
    import dp_accounting as dpa

    theirs = accountants(dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(1.1)), 100)
    assert epsilon(Sampled(Gaussian(1.1), rate=0.02, steps=100), DELTA) == pytest.approx(theirs, abs=1e-4)


def test_sampled_replacement_stores_noise_over_the_replacement_sensitivity():
    import dp_accounting as dpa

    # Noise of 2 clips is 1 replacement sensitivity: ours says 1, theirs says 2 and doubles the sensitivity itself.
    event, relation = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(2.0)), dpa.NeighboringRelation.REPLACE_ONE
    theirs = accountants(event, 100, relation)
    ours = epsilon(Sampled(Gaussian(1.0), rate=0.02, steps=100), DELTA, adjacency=SWAP)
    assert ours == pytest.approx(theirs, abs=1e-4)
    # At rate 1 it is the plain release under replacement, which is the plain release.
    whole = epsilon({SampledEvent(GaussianEvent(1.0), 1.0): 2}, DELTA, adjacency=SWAP)
    assert whole == pytest.approx(epsilon({GaussianEvent(1.0): 2}, DELTA), abs=1e-3)


def test_mixtures_agree_with_dp_accounting():
    import dp_accounting as dpa

    theirs = dpa.pld.PLDAccountant()
    theirs.compose(dpa.GaussianDpEvent(2.0)).compose(dpa.LaplaceDpEvent(5.0), 3)
    ours = epsilon({GaussianEvent(2.0): 1, LaplaceEvent(5.0): 3}, DELTA)
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), abs=1e-4)


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


def test_golden_calibrations():
    # dp-accounting 0.6.0: get_sigma_gaussian(1, 1e-5) * sqrt(15000).
    assert calibrate(1.0, 1e-5, steps=15_000) == pytest.approx(456.91, abs=0.01)
    # dp-accounting 0.6.0: calibrate_dp_mechanism with PLD, bracket [1, 5], tolerance 1e-3.
    assert calibrate(1.0, 1e-5, steps=5000, rate=0.01) == pytest.approx(2.7528, abs=2e-3)


def test_half_the_noise_is_noticed():
    """The goldens can fail."""
    assert abs(epsilon(Sampled(Gaussian(1.48), rate=0.04, steps=2250), DELTA) - 6.770) > 0.01


# ---- calibration ----


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-3, 50.0), st.floats(-12.0, -0.5), st.integers(1, 10**6))
def test_full_batch_calibration_meets_the_target_and_no_more(target, log_delta, steps):
    budget = 10**log_delta
    cost = epsilon(Repeated(Gaussian(calibrate(target, budget, steps=steps)), steps), budget)
    assert cost <= target * (1 + 1e-12)
    assert cost >= target * 0.998 - 1e-6


plans = st.tuples(
    st.floats(0.3, 8.0),
    st.sampled_from([1e-4, 1e-6]),
    st.integers(1, 300),
    st.floats(1e-3, 0.3),
    st.sampled_from(list(Adjacency)),
)


def check_sampled_calibration(target, budget, steps, rate, adjacency):
    noise = calibrate(target, budget, steps=steps, rate=rate, adjacency=adjacency)
    cost = epsilon(Sampled(Gaussian(noise), rate=rate, steps=steps), budget, adjacency=adjacency)
    assert target * 0.998 <= cost <= target


@settings(max_examples=3, deadline=None, derandomize=True)
@given(plans)
def test_sampled_calibration_meets_the_target_and_no_more(plan):
    check_sampled_calibration(*plan)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(plans)
def test_sampled_calibration_meets_the_target_for_many_plans(plan):
    check_sampled_calibration(*plan)


def test_calibration_refuses_what_gaussian_noise_can_not_do():
    with pytest.raises(ValueError, match="Use Laplace noise for a pure guarantee"):
        calibrate(1.0, 0.0)
    for bad in ({"steps": 0}, {"rate": 0.0}, {"rate": 1.5}):
        with pytest.raises(ValueError, match="must"):
            calibrate(1.0, 1e-5, **bad)
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        calibrate(-1.0, 1e-5)


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


def test_gaussian_forms_at_the_edges():
    assert gaussian_epsilon(0.0, 0.0) == gaussian_epsilon(0.0, DELTA) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == gaussian_epsilon(math.inf, DELTA) == math.inf
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(math.inf, 5.0) == 1.0
    assert gaussian_delta(1.0, math.inf) == 0.0
    assert gaussian_mu(1.0, 0.0) == 0.0


# ---- conversions ----


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1e-3, 5.0), st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_conversions_are_upper_bounds(mu, budget):
    rho = mu_to_rho(mu)
    assert rho_to_mu(rho) == pytest.approx(mu)
    exact, converted = gaussian_epsilon(mu, budget), rho_to_epsilon(rho, budget)
    # zCDP can't know that the noise is Gaussian; the textbook conversion is looser still.
    assert exact <= converted * (1 + 1e-9) <= (rho + 2 * math.sqrt(rho * math.log(1 / budget))) * (1 + 1e-6)
    assert pure_to_rho(mu) == mu**2 / 2


def test_renyi_curves_without_a_usable_order_give_no_bound():
    assert rdp_to_epsilon([2.0], [1.0], 0.0) == math.inf
    assert rdp_to_epsilon([1.0, 2.0], [0.5, math.inf], DELTA) == math.inf
    assert rdp_to_epsilon([2.0, 1000.0], [0.0, 0.0], 0.9) == 0.0


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_sampling_helps_and_all_rows_are_no_sample(noise):
    for make in (Gaussian, Laplace):
        whole = epsilon(Repeated(make(noise), 5), DELTA)
        costs = [epsilon(Sampled(make(noise), rate=rate, steps=5), DELTA) for rate in (0.01, 0.3, 1.0)]
        assert costs[0] < costs[1] < costs[2]
        assert costs[2] == pytest.approx(whole, rel=2e-3)
