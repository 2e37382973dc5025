"""The stages of a hybrid fit that use people's answers: recalibration, correction and comparison."""

import math

import numpy as np
import pytest

from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier_fit import ask_moments, compare, correct, correction_step, fit_locally, pool, recalibrate
from dpadapt.hybrid.curator_releases import Moments
from dpadapt.hybrid.mapped_questions import probability, public_map, scores

WHERE = public_map(3, (-2, 2), None)


def test_a_correction_is_newtons_step_without_noise_and_about_0_for_noise_alone():
    hessian = np.diag([0.2, 0.1, 0.05])
    step = np.array([0.5, -0.3, 0.2])
    assert np.allclose(correction_step(hessian, hessian @ step, 1e-10, 0.9), step, rtol=1e-3)
    noise = np.random.default_rng(0).standard_normal((200, 3)) * 0.1
    lengths = [np.linalg.norm(correction_step(hessian, seen, 0.01, 0.9)) for seen in noise]
    assert np.quantile(lengths, 0.9) < 0.15
    assert np.linalg.norm(0.1 / np.diag(hessian)) > 2  # the length of Newton's step


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


def test_recalibration_corrects_the_constant_and_keeps_the_direction():
    truth = np.array([2.0, -1.0, 0.0, -1.5])
    start = np.array([2.0, -1.0, 0.0, 0.0])
    model = recalibrate(people(50_000, truth), WHERE, start, np.eye(4), 50_000, 1)
    assert model[-1] == pytest.approx(-1.5, abs=0.4)
    assert np.allclose(model[:2] / model[0], [1.0, -0.5])
    assert start[-1] == 0.0


def test_recalibration_does_not_turn_a_model_around():
    # The people's labels are the opposite; recalibration must leave that to the later stages.
    truth = np.array([2.0, -1.0, 0.0, 0.0])
    model = recalibrate(people(50_000, -truth), WHERE, truth, np.eye(4), 50_000, 1)
    assert model[0] > 0


def test_a_candidate_that_is_worse_by_the_tolerance_passes_one_test_in_twenty():
    X = np.zeros((1000, 3))
    X[:, 0] = np.where(np.arange(1000) < 540, 1.0, -1.0)
    y = (np.arange(1000) < 500).astype(int)
    # The candidate predicts by the first feature and is wrong about 40 of 1,000; the incumbent is always right.
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


def test_correction_learns_a_wrong_coefficient_from_residuals():
    truth, start = np.array([1.5, -1.0, 0.6, 0.3]), np.array([1.5, -1.0, -0.6, 0.3])
    model = correct(people(400_000, truth), WHERE, start, np.eye(4), 400_000, 1, p_unchanged=0.6)
    assert np.linalg.norm(model - truth) < 0.5 * np.linalg.norm(start - truth)
    # Where nothing is wrong, nothing changes.
    assert np.array_equal(correct(people(400_000, truth), WHERE, truth, np.eye(4), 400_000, 1, p_unchanged=0.9), truth)


def test_people_alone_learn_the_direction_of_the_coefficients():
    truth = np.array([1.5, -1.0, 0.5, 0.3])
    model = fit_locally(people(400_000, truth), WHERE, 400_000, 1)
    assert model @ truth > 0.95 * np.linalg.norm(model) * np.linalg.norm(truth)


@pytest.mark.parametrize(("mean", "shifted"), [((0.0, 0.0, 0.0), False), ((0.4, 0.0, 0.0), True)])
def test_a_shift_of_the_means_is_noticed(mean, shifted):
    X = np.random.default_rng(0).standard_normal((50_000, 3)) + mean
    Z = WHERE.transform(X)
    curators = Moments(1e6, np.zeros(3), np.cov(WHERE.transform(X - mean).T, bias=True), noise=1.0)
    theirs = ask_moments(SimulatedAgents(X, None, 1.0, random_state=0), WHERE, curators, 40_000, 10_000)
    assert theirs.shifted is shifted
    # Wrong by chance with probability 2e-4 at most.
    assert np.abs(theirs.mean - Z.mean(axis=0)).max() < 4 * theirs.noise
    assert np.allclose(theirs.second[:-1, :-1], Z.T @ Z / len(Z), atol=0.15)
