import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpadapt.learning.base import Budget
from dpadapt.transfer.classification_plan import (
    AVERAGED_STEPS,
    EXCESS,
    STEPS,
    _budget_shares,
    expected_change,
    likely_prior,
    make_plan,
    prepare,
    residual_limits,
    step_length,
    stride,
)

random = np.random.default_rng(5)
X = random.standard_normal((600, 6)) @ np.diag([3.0, 1, 1, 1, 0.3, 0.0]) + 2.0
codes = (X[:, 0] + X[:, 1] > 4).astype(np.int64)


def _cost(shares, t, h, noise):
    s2 = noise**2 / np.maximum(shares, 1e-12)
    return np.sum(h * t * s2 / (h**2 * t + s2))


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
def test_waterfilling_is_the_least_cost(noise):
    t, h = np.array([1.0, 0.5, 0.1, 0.01]), 0.25
    shares = _budget_shares(t, h, noise)
    assert shares.sum() == pytest.approx(1.0)
    cost = _cost(shares, t, h, noise)
    other = minimize(lambda u: _cost(u**2 / np.sum(u**2), t, h, noise), np.full(4, 0.5), method="Nelder-Mead")
    assert cost <= other.fun * (1 + 1e-6)
    assert cost < _cost(np.full(4, 0.25), t, h, noise)


def test_plan_depends_on_public_numbers_only_and_stays_within_its_share():
    prepared = prepare(X, codes, 2)
    plan = make_plan(prepared, Budget(0.3, 1000.0, 1.0), "shifted")
    assert np.sum(plan.weights**2) == pytest.approx(1.0)
    assert 0.01 <= plan.gate_share <= 0.1
    assert plan.blur > make_plan(prepared, Budget(0.3, 4000.0, 1.0), "shifted").blur
    assert make_plan(prepare(X, None, 2), Budget(0.3, 1000.0, 1.0), "shifted").gate_share == 0.0


@pytest.mark.parametrize("power", [0.4, 1.4])
def test_the_prior_follows_the_decay_of_the_coefficients_and_without_evidence_stays(power):
    d, n_classes = 200, 4
    rows = np.random.default_rng(1).standard_normal((3000, d)) / np.sqrt(np.arange(1, d + 1))
    prepared = prepare(rows, None, n_classes)
    shares, used = prepared.coordinates.shares, np.arange(1 + d)
    wanted = np.concatenate([[1.0], 2.5 * shares**power / np.sum(shares**power)])
    change = np.random.default_rng(2).standard_normal((1 + d, n_classes)) * np.sqrt(wanted)[:, None]
    change -= change.mean(axis=1, keepdims=True)
    known = likely_prior(prepared, used, change, np.full(1 + d, 1e-6))
    slope = np.polyfit(np.log(shares), np.log(known[1:]), 1)[0]
    assert slope == pytest.approx(power, abs=0.25)
    assert known[1:].sum() == pytest.approx(2.5)
    unknown = likely_prior(prepared, used, change, np.full(1 + d, 1e6))
    assert unknown == pytest.approx(expected_change(prepared, "shifted"), rel=1e-6)


def test_averaged_end_points_are_unbiased_and_as_noisy_as_planned():
    # The recursion of the descent in one coordinate: 4000 runs, so the variance is known to 2.3% (one sigma).
    curvature, ridge, best, noise = 0.2, 0.05, 1.5, 0.01
    change, ends = np.zeros(4000), np.zeros(4000)
    for t in range(STEPS):
        gradient = curvature * (change - best) + noise * math.sqrt(STEPS) * random.standard_normal(4000)
        newton = (gradient + ridge * change) / (curvature + ridge)
        if t >= STEPS - AVERAGED_STEPS:
            ends += (change - newton) / AVERAGED_STEPS
        change -= step_length(t) * newton
    planned = math.sqrt(EXCESS) * noise / (curvature + ridge)
    assert np.mean(ends) == pytest.approx(curvature * best / (curvature + ridge), abs=5 * planned / math.sqrt(4000))
    assert np.std(ends) == pytest.approx(planned, rel=0.06)
    assert np.std(change) > 1.3 * planned  # the last iterate alone


def test_a_residual_within_its_limit_has_a_term_within_the_clipping_norm():
    lengths = np.array([1e-40, 0.1, 1.0, 50.0, np.inf])
    limits = residual_limits(lengths, 0.7)
    assert np.isfinite(limits).all()
    assert np.all(limits[1:4] * lengths[1:4] <= 0.7 * (1 + 1e-12))


def test_a_whole_step_is_the_newton_step_unless_it_is_too_long():
    prepared = prepare(X, codes, 2)
    plan = make_plan(prepared, Budget(1.0, 1000.0, 1.0), "shifted")
    pace = stride(prepared, plan, np.zeros((len(plan.used), 2)), 1000.0)
    change = 0.1 * random.standard_normal((len(plan.used), 2))
    gradient = pace.curvature[:, None] * 0.01
    step = pace.newton(gradient, change)
    assert np.allclose((pace.curvature + pace.ridge)[:, None] * step, gradient + pace.ridge[:, None] * change)
    far = pace.newton(1e6 * gradient, change)
    assert np.linalg.norm(far) == pytest.approx(pace.longest)
    assert pace.longest**2 > 9.0 * np.sum(plan.expected[plan.used])
    # Room for the step's own noise, which is what it is made of where nothing is to be learned.
    noise = plan.noise * math.sqrt(STEPS / 2) / plan.weights[plan.used]
    drawn = random.standard_normal((2000, len(plan.used))) * noise
    steps = [np.linalg.norm(pace.newton(np.column_stack([row, -row]), 0.0 * change)) for row in drawn]
    assert np.mean(np.array(steps) > 0.999 * pace.longest) < 0.05


def test_public_model_is_the_penalised_likelihood_fit():
    prepared = prepare(X, codes, 2)
    right = np.mean((X @ prepared.coef + prepared.intercept).argmax(axis=1) == codes)
    assert right > 0.97
    assert np.allclose(prepared.start.sum(axis=1), 0.0)
    assert math.isfinite(prepared.curvature)
