"""Closed forms: inverse to each other, valid in limiting cases, and upper bounds where they convert."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt import Ledger
from dpadapt.accounting.cost import gaussian_delta, gaussian_epsilon, gaussian_mu, rho_to_epsilon

DELTA = 1e-5


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


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1e-3, 5.0), st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_the_epsilon_of_zcdp_lies_between_the_gaussian_and_the_textbook_one(mu, budget):
    # A mu-Gaussian release is mu²/2-zCDP; the conversion from zCDP does not use that the noise is Gaussian.
    rho = mu**2 / 2
    exact, converted = gaussian_epsilon(mu, budget), rho_to_epsilon(rho, budget)
    assert exact <= converted * (1 + 1e-9) <= (rho + 2 * math.sqrt(rho * math.log(1 / budget))) * (1 + 1e-6)


def test_the_epsilon_of_zcdp_in_limiting_cases():
    assert rho_to_epsilon(1.0, 0.0) == math.inf
    assert rho_to_epsilon(math.inf, DELTA) == math.inf
    assert rho_to_epsilon(0.0, 0.9) == 0.0


@pytest.mark.parametrize("rho", [math.inf, math.nan])
def test_a_rho_that_is_no_number_costs_infinitely_much(rho):
    assert rho_to_epsilon(rho, 1e-6) == math.inf
