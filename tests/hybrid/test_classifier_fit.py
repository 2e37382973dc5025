"""The stages of a hybrid fit, one by one: what each makes of answers, and what each release depends on."""

import math

import numpy as np
import pytest

from dpadapt import Ledger
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier_fit import compare, pool, posterior_step, recalibrate
from dpadapt.hybrid.classifier_plan import make_plan
from dpadapt.hybrid.curator_releases import RELEASES, Tilt, descend, find_tilt, release_moments, release_total
from dpadapt.hybrid.mapped_questions import probability, public_map, scores
from dpadapt.learning.estimator import Budget
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.rows import Rows

WHERE = public_map(3, (-2, 2), None)


def curators_rows(n=4000, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3))
    return Rows(WHERE.transform(X), (X[:, 0] > 0).astype(float), intercept=True)


def quiet(steps, noise=1e-3):
    return Ledger(math.inf, random_state=0).start(Repeated(Gaussian(noise), steps), label="test")


def released_moments(rows, n):
    return release_moments(quiet(1), rows, WHERE, n_rows=n, public=True, noise=1e-3 * WHERE.max_norm**2)


def test_released_moments_are_those_of_the_rows():
    rows = curators_rows()
    found = released_moments(rows, rows.n_rows)
    assert np.allclose(found.mean, rows.X.mean(axis=0), atol=1e-5)
    assert np.allclose(found.covariance, np.cov(rows.X.T, bias=True), atol=1e-4)


def test_without_a_public_number_of_rows_the_release_says_it():
    rows = curators_rows()
    found = release_moments(quiet(1), rows, WHERE, n_rows=9000, public=False, noise=1e-3)
    assert found.n_rows == pytest.approx(4000, rel=1e-3)
    assert np.allclose(found.mean, rows.X.mean(axis=0), atol=1e-4)


def test_indicators_of_one_category_exclude_each_other_however_noisy_the_release():
    where = public_map(3, None, [[0, 1, 2]])
    X = np.eye(3)[np.random.default_rng(0).integers(0, 3, 3000)]
    rows = Rows(where.transform(X), np.zeros(3000), intercept=True)
    noisy = Ledger(math.inf, random_state=0).start(Gaussian(20.0), label="test")
    found = release_moments(noisy, rows, where, n_rows=3000, public=True, noise=20 * where.max_norm**2)
    assert np.allclose(found.covariance, np.diag([1 / 3] * 3) - 1 / 9, atol=0.05)


def test_tilting_brings_the_means_to_those_of_the_people():
    rows = curators_rows()
    wanted = np.array([0.6, 0.0, -0.4])
    moments = released_moments(rows, rows.n_rows)
    tilt = find_tilt(quiet(RELEASES), rows, WHERE, moments, wanted, bound=10.0, noise=0.005, scale=0.01)
    weights = tilt.of(rows.X)
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert np.abs(weights @ rows.X / weights.sum() - wanted).max() < 0.06
    total = release_total(quiet(1), rows, tilt, rows.n_rows)
    assert total == pytest.approx(weights.sum(), abs=0.1)
    assert total * tilt.bound == pytest.approx(rows.n_rows, rel=0.1)


def test_a_null_row_has_no_weight():
    X = np.vstack([np.zeros(3), np.full(3, np.nan)])
    tilt = Tilt(np.ones(3), 0.0, 2.0)
    assert release_total(quiet(1, 1e-9), Rows(X, np.zeros(2), intercept=True), tilt, 1.0) == pytest.approx(0.5)


def test_a_shift_within_noise_is_left_alone():
    rows = curators_rows()
    moments = released_moments(rows, rows.n_rows)
    wanted = moments.mean + np.array([0.05, -0.05, 0.5])
    tilt = find_tilt(quiet(RELEASES), rows, WHERE, moments, wanted, bound=10.0, noise=0.1, scale=0.01)
    assert np.array_equal(tilt.theta[:2], [0.0, 0.0])
    assert tilt.theta[2] > 0.2


def test_weighted_descent_fits_the_weighted_rows():
    rows = curators_rows()
    # The label is 1[x0 > 0]; in rows with x1 > 0 its opposite.
    rows.y[rows.X[:, 1] > 0] = 1 - rows.y[rows.X[:, 1] > 0]
    tilt = Tilt(np.array([0.0, -50.0, 0.0]), 0.0, 1.0)
    second = np.eye(4)
    weights = tilt.of(rows.X)
    coef = descend(
        quiet(20), rows, second, float(weights.sum()), clip_norm=WHERE.max_norm, blur=0.0, weights=tilt.weights
    )
    assert coef[0] > 1
    unweighted = descend(quiet(20), rows, second, rows.n_rows, clip_norm=WHERE.max_norm, blur=0.0)
    assert abs(unweighted[0]) < 0.2


def test_a_step_is_newtons_without_noise_and_nothing_in_noise():
    hessian = np.diag([0.2, 0.1, 0.05])
    step = np.array([0.5, -0.3, 0.2])
    assert np.allclose(posterior_step(hessian, hessian @ step, 1e-10, 0.9), step, rtol=1e-3)
    noise = np.random.default_rng(0).standard_normal((200, 3)) * 0.1
    found = [np.linalg.norm(posterior_step(hessian, seen, 0.01, 0.9)) for seen in noise]
    assert np.quantile(found, 0.9) < 0.15
    assert np.linalg.norm(0.1 / np.diag(hessian)) > 2  # what Newton's step would be


def test_pooling_weighs_by_precision():
    first, variance = pool(np.zeros(1), math.inf, np.array([1.0]), 2.0)
    assert first[0] == 1.0
    assert variance == 2.0
    second, variance = pool(first, variance, np.array([4.0]), 1.0)
    assert second[0] == pytest.approx(3.0)
    assert variance == pytest.approx(2 / 3)


def people(n, coef, seed=0, n_people=None):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3))
    chance = probability(scores(WHERE.transform(X), coef))
    y = (random.random(n) < chance).astype(int)
    return SimulatedAgents(X, y, 1.0, n_people=n_people, random_state=seed)


def test_recalibration_finds_another_constant_and_keeps_the_direction():
    truth = np.array([2.0, -1.0, 0.0, -1.5])
    start = np.array([2.0, -1.0, 0.0, 0.0])
    found = recalibrate(people(50_000, truth), WHERE, start, np.eye(4), 50_000, 1)
    assert found[-1] == pytest.approx(-1.5, abs=0.4)
    assert np.allclose(found[:2] / found[0], [1.0, -0.5])
    assert start[-1] == 0.0


def test_recalibration_does_not_turn_a_model_around():
    # The people's concept is the opposite: only the tests after this stage can tell.
    truth = np.array([2.0, -1.0, 0.0, 0.0])
    found = recalibrate(people(50_000, -truth), WHERE, truth, np.eye(4), 50_000, 1)
    assert found[0] > 0


def test_a_model_that_is_worse_by_the_tolerance_is_accepted_in_a_twentieth_of_tests():
    X = np.zeros((1000, 3))
    X[:, 0] = np.where(np.arange(1000) < 540, 1.0, -1.0)
    y = (np.arange(1000) < 500).astype(int)
    # The candidate says what the first feature says, and is wrong about 40 of 1,000; the incumbent about none.
    candidate, incumbent = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0])
    X[:, 2] = np.where(y, 1.0, -1.0)
    proven = {0.04: 0, 0.24: 0}
    for tolerance in proven:
        for seed in range(300):
            agents = SimulatedAgents(X, y, 1.0, n_people=2000, random_state=seed)
            proven[tolerance] += compare(agents, WHERE, candidate, incumbent, 2000, 1, tolerance=tolerance).proven
    # 27 or more of 300 at a rate of 0.05 happens once in 400 times.
    assert 3 < proven[0.04] < 27
    assert proven[0.24] > 290  # and it has power


def plan_for(mode="auto", n_people=200_000, epsilon=1.0, n_rows=20_000, columns=10, mu=0.268):
    where = public_map(columns, None, None)
    agents = SimulatedAgents(np.zeros((1, columns)), None, epsilon, n_people=n_people)
    return make_plan(mode, where, Budget(mu, n_rows, 1.0), agents, 0.01)


def test_the_mode_follows_from_public_numbers():
    assert plan_for().mode == "hybrid"
    assert plan_for(n_people=10_000).mode == "curator"
    assert plan_for(n_people=60_000, epsilon=0.5).mode == "curator"
    assert plan_for(n_people=2_000_000).mode == "local"
    assert plan_for(n_people=2_000_000, columns=30).mode == "hybrid"
    assert plan_for(n_rows=20).mode == "local"  # the curator's budget is too small for anything
    where = public_map(3, None, None)
    assert make_plan("auto", where, Budget(0.268, 1000, 1.0), None, 0.01).mode == "curator"


def test_tilting_is_tried_only_where_its_noise_is_small():
    assert plan_for().tilting
    assert not plan_for(n_rows=1000).tilting
    assert not plan_for(n_rows=4000, columns=100).tilting


@pytest.mark.parametrize("mode", ["hybrid", "local", "curator"])
@pytest.mark.parametrize("n_rows", [1000, 20_000])
def test_a_plan_spends_the_budget_and_asks_no_more_than_there_are(mode, n_rows):
    plan = plan_for(mode, n_rows=n_rows)
    spent = sum(repeated.steps / repeated.mechanism.noise_multiplier**2 for repeated, _ in plan.releases(0.268))
    assert spent == pytest.approx(0.0 if mode == "local" else 0.268**2)
    assert sum(plan.people.values()) == (0 if mode == "curator" else 200_000)
    assert min(plan.people.values(), default=1) > 0
