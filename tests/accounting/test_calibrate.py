"""Calibrated noise costs at most its budget and at least 99.8% of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt.accounting import calibrate, epsilon
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
