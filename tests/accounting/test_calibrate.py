"""Calibrated noise costs at most its budget and at least 99.8% of it."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt.accounting import calibrate, epsilon
from dpadapt.accounting.calibrate import _smallest
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.mechanisms import Adjacency, Gaussian
from dpadapt.mechanisms.mechanism import Repeated, Sampled


def test_golden_calibrations():
    # dp-accounting 0.6.0: get_sigma_gaussian(1, 1e-5) * sqrt(15000).
    assert calibrate(1.0, 1e-5, steps=15_000) == pytest.approx(456.91, abs=0.01)
    # dp-accounting 0.6.0: calibrate_dp_mechanism with PLD, bracket [1, 5], tolerance 1e-3.
    assert calibrate(1.0, 1e-5, steps=5000, rate=0.01) == pytest.approx(2.7528, abs=2e-3)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-3, 50.0), st.floats(-12.0, -0.5), st.integers(1, 10**6))
def test_full_batch_calibration_spends_the_budget_and_no_more(target, log_delta, steps):
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


@pytest.mark.thorough
@settings(max_examples=3, deadline=None, derandomize=True)
@given(plans)
def test_sampled_calibration_spends_the_budget_and_no_more(plan):
    check_sampled_calibration(*plan)


@pytest.mark.thorough
@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(plans)
def test_sampled_calibration_spends_the_budget_and_no_more_for_many_plans(plan):
    check_sampled_calibration(*plan)


def test_calibration_refuses_delta_zero_and_impossible_plans():
    with pytest.raises(ValueError, match="Use Laplace noise for a pure guarantee"):
        calibrate(1.0, 0.0)
    for bad in ({"steps": 0}, {"rate": 0.0}, {"rate": 1.5}):
        with pytest.raises(ValueError, match="must"):
            calibrate(1.0, 1e-5, **bad)
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        calibrate(-1.0, 1e-5)


@pytest.mark.thorough
def test_rows_that_are_hardly_ever_sampled_still_get_noise():
    assert calibrate(1.0, 1e-6, steps=10, rate=1e-50) == pytest.approx(0.1, rel=0.5)


# By name: a cost as a function of the multiplier, where the search starts, the most steps that it may take, and the
# least multiplier that it may try. The answer is 1, and a step towards less noise can take minutes.
SEARCHES = {
    "far": (lambda s: 1 / s**2, 1e4, 25, 0.5),
    "near": (lambda s: 1 / s**2, 1.15, 8, 0.8),
    "no cost above": (lambda s: 0.0 if s > 1 else 5.0, 3.0, 60, 0.7),
    "the whole budget above": (lambda s: 1.0 if s >= 1 else 2.0, 3.0, 150, 0.7),
    "hardly more than the budget below": (lambda s: 1e-3 if s >= 1 else 1.0000001, 1.05, 30, 0.9),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_search_takes_few_steps_and_none_far_below_the_answer(name):
    cost, start, most, least = SEARCHES[name]
    tried = []

    def counted(multiplier):
        tried.append(multiplier)
        assert len(tried) <= most
        assert multiplier >= least
        return cost(multiplier)

    answer = _smallest(counted, 1.0, start, 1e-4)
    assert answer in tried
    assert cost(answer) <= 1.0 < cost(answer / 1.00011)


@pytest.mark.parametrize(("steps", "rate"), [(300, 0.01), (1, 0.99)])
def test_no_distribution_is_made_for_more_noise_than_a_quick_bound_asks_for(monkeypatch, steps, rate):
    """In the first plan the Rényi bound is the lower one by far, in the second the cost without sampling."""

    class FirstError(Exception):
        pass

    def first(events, *_, **__):
        ((event, _),) = events.items()
        raise FirstError(event.event.noise_multiplier)

    module = sys.modules["dpadapt.accounting.calibrate"]
    monkeypatch.setattr(module, "pld", first)
    without_sampling = math.sqrt(steps) / gaussian_mu(1.0, 1e-5)
    with pytest.raises(FirstError) as stopped:
        calibrate(1.0, 1e-5, steps=steps, rate=rate)
    start = stopped.value.args[0]
    assert start <= without_sampling
    assert (start < without_sampling / 2) == (rate < 0.5)
