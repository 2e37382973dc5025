"""The lower bound holds at its stated rate, comes close where the claim is exact, and detects half the noise."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.audit import lower_bound
from dpadapt.audit.measured_epsilon import (
    bound_from_scores,
    epsilon_any,
    epsilon_errors,
    errors_limit,
    lower_limit,
    mu_gaussian,
    mu_shift,
    upper_limit,
)


@pytest.mark.parametrize("p", [0.001, 0.03, 0.5, 0.99])
def test_clopper_pearson_limits_cover_as_stated(p):
    n, risk = 80, 0.05
    hits, weight = np.arange(n + 1), binom(n, p).pmf(np.arange(n + 1))
    assert weight[lower_limit(hits, n, risk) > p].sum() <= risk
    assert weight[upper_limit(hits, n, risk) < p].sum() <= risk


def test_limits_at_the_edges():
    assert lower_limit(0, 10, 0.05) == 0.0
    assert upper_limit(10, 10, 0.05) == 1.0
    # The rule of three, and its exact form.
    assert upper_limit(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert epsilon_any(0, 10, 10, delta=0.0, risk=0.05) == 0.0
    assert mu_gaussian(20, 20, risk=0.05) == 0.0
    assert epsilon_errors(20, 20, delta=0.0, risk=0.05) == 0.0
    assert epsilon_errors(0, 20, delta=0.9, risk=0.05) == 0.0


@pytest.mark.parametrize("rates", [(0.2, 0.2), (0.05, 0.6), (0.0, 0.9), (0.5, 0.01)])
@pytest.mark.parametrize("risk", [0.49, 0.05, 1e-3])
def test_limit_on_errors_holds_if_the_two_data_sets_have_different_rates(rates, risk):
    n = 40
    counts = [binom(n, rate).pmf(np.arange(n + 1)) for rate in rates]
    both = np.convolve(*counts)
    wrong = errors_limit(np.arange(2 * n + 1), 2 * n, risk) < np.mean(rates)
    assert both[wrong].sum() <= risk


def test_bounds_from_errors_are_exact_for_the_best_attack_on_their_mechanisms():
    # At these error rates a million runs leave hardly any uncertainty.
    trials = 2 * 10**6
    assert mu_gaussian(trials * norm.cdf(-0.7), trials, risk=0.05) == pytest.approx(1.4, abs=0.01)
    assert epsilon_errors(trials / (1 + math.e), trials, delta=0.0, risk=0.05) == pytest.approx(1.0, abs=0.01)
    # With probability delta the data set is shown, otherwise an answer that is (1, 0)-private.
    assert epsilon_errors(trials * 0.9 / (1 + math.e), trials, delta=0.1, risk=0.05) == pytest.approx(1.0, abs=0.01)


def repeated_bounds(method, mu, *, delta=0.1, times=300, runs=150):
    """Bounds from many audits of a normal release; seeded."""
    rng = np.random.default_rng(0)
    return np.array(
        [
            bound_from_scores(
                rng.standard_normal(runs),
                rng.standard_normal(runs) + mu,
                train=runs // 3,
                delta=delta,
                confidence=0.9,
                method=method,
            ).epsilon_lower
            for _ in range(times)
        ]
    )


@pytest.mark.parametrize("method", ["any", "gaussian", "shift"])
@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_bounds_exceed_the_truth_no_more_often_than_stated(method, mu):
    truth = gaussian_epsilon(mu, 0.1)
    false_alarms = int((repeated_bounds(method, mu) > truth).sum())
    # At most 10% of 300; a sound bound gives more than 47 with probability 1e-3, and the seed is fixed.
    assert false_alarms <= binom(300, 0.1).ppf(0.999)


@pytest.mark.parametrize("method", ["any", "gaussian", "shift"])
def test_the_rate_test_can_fail(method):
    truth = gaussian_epsilon(1.0, 0.1)
    assert (repeated_bounds(method, 2.5) > truth).sum() > binom(300, 0.1).ppf(0.999)


def test_using_all_scores_is_closer_than_counting_at_a_threshold():
    close, closer, closest = (repeated_bounds(method, 1.0, times=60).mean() for method in ("any", "gaussian", "shift"))
    assert close < closer < closest


def test_shift_uses_both_limits():
    a, b = norm.ppf(np.linspace(0.001, 0.999, 2000)), norm.ppf(np.linspace(0.001, 0.999, 2000)) + 1.0
    assert 0.85 < mu_shift(a, b, risk=0.05) < 1.0
    assert mu_shift(b, a, risk=0.05) == 0.0
    assert mu_shift(np.zeros(5), np.ones(5), risk=0.05) == math.inf


def laplace_release(scale, seed=0):
    rng = np.random.default_rng(seed)
    return lambda total: total + rng.laplace(scale=scale)


def test_the_direction_does_not_matter():
    up = lower_bound(laplace_release(1.0), 0.0, 1.0, delta=0.0, runs=3000)
    down = lower_bound(laplace_release(1.0), 1.0, 0.0, delta=0.0, runs=3000)
    for bound in (up, down):
        assert 0.7 < bound.epsilon_lower <= 1.0
        assert bound.refutes(0.5)
        assert not bound.refutes(1.0)


def test_half_the_noise_refutes_the_claim():
    assert lower_bound(laplace_release(0.5), 0.0, 1.0, delta=0.0, runs=1000).refutes(1.0)


def test_arrays_are_scored_by_their_discriminant():
    rng = np.random.default_rng(0)
    mix = np.array([[1.0, 0.9], [0.0, 0.4]])  # correlated noise: the plain difference of means would be a poor score

    def release(mean):
        return mean + rng.standard_normal(2) @ mix

    bound = lower_bound(release, np.zeros(2), np.array([0.0, 0.8]), delta=1e-3, runs=4000, method="gaussian")
    truth = float(np.linalg.norm(np.array([0.0, 0.8]) @ np.linalg.inv(mix)))
    assert 0.85 * gaussian_epsilon(truth, 1e-3) < bound.epsilon_lower <= gaussian_epsilon(truth, 1e-3)


def test_wide_outputs_and_constant_coordinates_are_fine():
    rng = np.random.default_rng(0)

    def release(mean):
        return np.concatenate([mean + rng.standard_normal(60), [7.0]])

    far = np.zeros(60)
    far[3] = 5.0
    assert lower_bound(release, np.zeros(60), far, delta=0.0, runs=90).epsilon_lower > 1.0


def test_a_plain_leak_is_as_large_as_the_runs_can_show():
    bound = lower_bound(lambda total: total, 0.0, 1.0, delta=0.0, runs=3000)
    assert bound.epsilon_lower > math.log(2000 / 8)
    assert (bound.fpr, bound.fnr) == (0.0, 0.0)


def test_equal_data_sets_give_a_bound_near_zero():
    assert lower_bound(laplace_release(1.0), 0.0, 0.0, delta=0.0, runs=2000).epsilon_lower < 0.2
    assert lower_bound(lambda total: 1.0, 0.0, 0.0, delta=0.0, runs=30).epsilon_lower == 0.0


def test_estimators_are_scored_by_their_coefficients():
    class Model:
        def __init__(self, mean, rng):
            self.coef_ = np.array([[mean + rng.standard_normal()]])
            self.intercept_ = 0.0

    rng = np.random.default_rng(0)
    assert lower_bound(lambda mean: Model(mean, rng), 0.0, 9.0, delta=0.0, runs=100).epsilon_lower > 1.0


def test_a_score_may_be_given():
    rng = np.random.default_rng(0)
    bound = lower_bound(
        lambda total: {"sum": total + rng.laplace()},
        0.0,
        9.0,
        delta=0.0,
        runs=60,
        score=lambda output: output["sum"],
    )
    assert bound.epsilon_lower > 1.0


@pytest.mark.parametrize("method", ["any", "gaussian", "shift"])
def test_the_number_of_runs_that_would_refute_is_right_within_a_factor(method):
    delta, claimed, true_mu = 0.05, gaussian_epsilon(1.0, 0.05), 2.0
    rng = np.random.default_rng(1)

    def bound(runs):
        scores = rng.standard_normal(runs), rng.standard_normal(runs) + true_mu
        return bound_from_scores(*scores, train=runs // 3, delta=delta, confidence=0.999, method=method)

    few = [bound(90) for _ in range(21)]
    needed = float(np.median([one.runs_to_refute(claimed) for one in few]))
    assert 0 < needed < math.inf
    refuting = [sum(bound(round(runs)).refutes(claimed) for _ in range(20)) for runs in (2 * needed, needed / 4)]
    assert refuting[0] >= 17
    assert refuting[1] <= 5


def test_no_number_of_runs_refutes_a_claim_that_holds():
    rng = np.random.default_rng(1)
    scores = rng.standard_normal(3000), rng.standard_normal(3000) + 1.0
    for method in ("any", "gaussian", "shift"):
        bound = bound_from_scores(*scores, train=1000, delta=0.05, confidence=0.99, method=method)
        assert bound.runs_to_refute(gaussian_epsilon(2.0, 0.05)) == math.inf


def test_a_given_threshold_spends_no_run_on_choosing():
    release = laplace_release(1.0)
    chosen = lower_bound(release, 0.0, 1.0, delta=0.0, runs=300)
    given = lower_bound(release, 0.0, 1.0, delta=0.0, runs=300, threshold=0.5)
    assert (chosen.trials, given.trials) == (200, 300)
    assert (given.threshold, given.inequality) == (0.5, "errors")
    with pytest.raises(ValueError, match="one number"):
        lower_bound(lambda mean: np.zeros(2), 0.0, 1.0, delta=0.0, runs=30, threshold=0.5)
    with pytest.raises(ValueError, match="not for method"):
        lower_bound(release, 0.0, 1.0, delta=0.1, runs=30, method="shift", threshold=0.5)


def test_arguments_are_checked():
    release = laplace_release(1.0)
    for bad, match in (
        ({"runs": 10}, "runs must be a whole number of at least 30"),
        ({"confidence": 1.0}, "confidence must be above 0.5 and below 1"),
        ({"confidence": 0.5}, "confidence must be above 0.5 and below 1"),
        ({"confidence": math.nan}, "confidence must be above 0.5 and below 1"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": "gaussian"}, "delta must be positive"),
        ({"delta": 1.0}, "delta must lie in"),
    ):
        with pytest.raises(ValueError, match=match):
            lower_bound(release, 0.0, 1.0, **{"delta": 0.0, "runs": 60, **bad})
    with pytest.raises(ValueError, match="one shape"):
        lower_bound(lambda n: np.zeros(n), 2, 3, delta=0.0, runs=30)
    with pytest.raises(ValueError, match="finite"):
        lower_bound(lambda n: math.nan, 2, 3, delta=0.0, runs=30)
