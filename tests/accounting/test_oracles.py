"""The numerical accountants agree with dp-accounting's own, with our meaning of noise under replace-one."""

import math

import pytest

from dpadapt.accounting import cost, epsilon
from dpadapt.mechanisms import Adjacency, Gaussian
from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled

DELTA = 1e-5
SWAP = Adjacency.REPLACE_ONE


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
        cost.pld(TALLY, Adjacency.ZERO_OUT, pessimistic=pessimistic).get_epsilon_for_delta(DELTA)
        for pessimistic in (False, True)
    )
    assert low < high < low * 1.01
    # Rényi composition is a valid bound too, and looser.
    assert high < cost.rdp(TALLY).get_epsilon(DELTA) < 2 * high


@pytest.mark.parametrize("size", [40.0, 700.0])
def test_both_distributions_of_a_large_pure_epsilon_have_that_epsilon(size):
    for pessimistic in (False, True):
        distribution = cost.pld(
            {PureEvent(size): 1}, Adjacency.ZERO_OUT, grid=cost.grid_for(size), pessimistic=pessimistic
        )
        assert distribution.get_epsilon_for_delta(DELTA) == pytest.approx(size, rel=1e-4)


def test_many_gaussian_releases_are_composed_as_one():
    many = cost.pld({GaussianEvent(400.0): 10_000}, Adjacency.ZERO_OUT)
    one = cost.pld({GaussianEvent(4.0): 1}, Adjacency.ZERO_OUT)
    assert many.get_epsilon_for_delta(DELTA) == pytest.approx(one.get_epsilon_for_delta(DELTA), rel=1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_supported_events_are_those_that_can_be_composed(adjacency):
    sampled = SampledEvent(GaussianEvent(2.0), 0.1), SampledEvent(LaplaceEvent(2.0), 0.1)
    events = [*TALLY, BoundedRangeEvent(0.2), ConcentratedEvent(0.05), *sampled]
    assert [cost.pld_supports({event: 1}, adjacency) for event in events] == (
        [True, True, True, True, False, True, adjacency is not SWAP]
    )
    assert [cost.rdp_supports({event: 1}, adjacency) for event in events] == (
        [True, True, True, True, True, adjacency is not SWAP, False]
    )


def test_events_without_a_distribution_or_divergences_are_refused():
    with pytest.raises(TypeError, match="no privacy-loss distribution"):
        cost.pld({ConcentratedEvent(0.05): 1}, Adjacency.ZERO_OUT)
    with pytest.raises(TypeError, match="no Rényi divergences"):
        cost.rdp({NonPrivateEvent(): 1})


def test_the_grid_is_coarser_for_large_costs_only():
    assert cost.grid_for(1.0) == cost.grid_for(math.inf) == cost.GRID
    assert cost.grid_for(1000.0) == pytest.approx(0.02)
