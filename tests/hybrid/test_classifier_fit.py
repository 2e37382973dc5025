"""The stages of a hybrid fit that use people's answers: correction, people alone, and the choice by a test."""

import math

import numpy as np
import pytest

from dpadapt.hybrid import classifier_fit
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier_fit import ask_moments, choose, correct, correct_constant, correction_step, fit_locally
from dpadapt.hybrid.curator_releases import Moments
from dpadapt.hybrid.mapped_questions import probability, public_map, scores

WHERE = public_map(3, (-2, 2), None)
SIZES = classifier_fit._CORRECTION_SIZES


def test_a_correction_is_newtons_step_without_noise_and_about_0_for_noise_alone():
    hessian = np.diag([0.2, 0.1, 0.05])
    step = np.array([0.5, -0.3, 0.2])
    assert np.allclose(correction_step(hessian, hessian @ step, 1e-10, SIZES), step, rtol=1e-3)
    noise = np.random.default_rng(0).standard_normal((200, 3)) * 0.1
    lengths = [np.linalg.norm(correction_step(hessian, seen, 0.01, SIZES)) for seen in noise]
    assert np.quantile(lengths, 0.9) < 0.15
    assert np.linalg.norm(0.1 / np.diag(hessian)) > 2  # the length of Newton's step


def people(n, coef, seed=0, n_people=None):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3))
    chance = probability(scores(WHERE.transform(X), coef))
    y = (random.random(n) < chance).astype(int)
    return SimulatedAgents(X, y, 1.0, n_people=n_people, random_state=seed)


def test_the_constant_is_corrected_and_nothing_else():
    truth = np.array([2.0, -1.0, 0.0, -1.5])
    start = np.array([2.0, -1.0, 0.0, 0.0])
    model = correct_constant(people(50_000, truth), WHERE, start, np.eye(4), 50_000, (0, 1))
    assert model[-1] == pytest.approx(-1.5, abs=0.4)
    assert np.array_equal(model[:-1], start[:-1])
    assert start[-1] == 0.0
    assert np.array_equal(correct_constant(people(50_000, truth), WHERE, truth, np.eye(4), 50_000, (0, 1)), truth)


def test_correction_learns_a_wrong_coefficient_from_residuals():
    truth, start = np.array([1.5, -1.0, 0.6, 0.3]), np.array([1.5, -1.0, -0.6, 0.3])
    model = correct(people(400_000, truth), WHERE, start, np.eye(4), 400_000, (0, 1))
    assert np.linalg.norm(model - truth) < 0.5 * np.linalg.norm(start - truth)
    # Where nothing is wrong, next to nothing changes.
    assert np.linalg.norm(correct(people(400_000, truth), WHERE, truth, np.eye(4), 400_000, (0, 1)) - truth) < 0.1


def voters():
    """Return rows of people: one model is wrong about 100 of 1,000, another about 300, "always 1" about 500."""
    X = np.zeros((1000, 3))
    number = np.arange(1000)
    y = (number < 500).astype(int)
    X[:, 0] = np.where(number < 400, 1.0, -1.0)
    X[:, 1] = np.where(number < 200, 1.0, -1.0)
    return X, y, {"good": np.array([1.0, 0.0, 0.0, 0.0]), "bad": np.array([0.0, 1.0, 0.0, 0.0])}


def test_the_test_estimates_every_error_and_chooses_the_least():
    X, y, candidates = voters()
    chosen = []
    for seed in range(40):
        agents = SimulatedAgents(X, y, 1.0, n_people=6000, random_state=seed)
        named = {"bad": candidates["bad"], "good": candidates["good"]}
        name, coef, estimates, _ = choose(agents, WHERE, named, 6000, (0, 1))
        assert agents.asked == 6000
        truth = {"error of good": 0.1, "error of bad": 0.3, "error of constant": 0.5}
        noise = estimates["noise of an error"]
        # 2,000 people about each: scale / 2 / sqrt(2000). 4.5 standard deviations in one of 120: once in 1,000 tests.
        assert noise == pytest.approx(2.164 / 2 / math.sqrt(2000), rel=1e-3)
        for what, error in truth.items():
            # The better of both constant labels: it is 0.5 less the noise.
            assert abs(estimates[what] - error) < 4.5 * noise
        assert estimates["error of constant"] <= 0.5
        chosen.append(name)
        assert np.array_equal(coef, candidates[name])
    assert set(chosen) == {"good"}


def test_people_alone_learn_the_direction_of_the_coefficients():
    truth = np.array([1.5, -1.0, 0.5, 0.3])
    model = fit_locally(people(400_000, truth), WHERE, 400_000, (0, 1))
    assert model @ truth > 0.95 * np.linalg.norm(model) * np.linalg.norm(truth)


@pytest.mark.parametrize(("mean", "shifted"), [((0.0, 0.0, 0.0), False), ((0.4, 0.0, 0.0), True)])
def test_a_shift_of_the_means_is_noticed(mean, shifted):
    X = np.random.default_rng(0).standard_normal((50_000, 3)) + mean
    Z = WHERE.transform(X)
    curators = Moments(1e6, np.zeros(3), np.cov(WHERE.transform(X - mean).T, bias=True), noise=1.0)
    theirs = ask_moments(SimulatedAgents(X, None, 1.0, random_state=0), WHERE, curators, 40_000)
    assert theirs.shifted is shifted
    # Wrong by chance with probability 2e-4 at most.
    assert np.abs(theirs.mean - Z.mean(axis=0)).max() < 4 * theirs.noise
    assert np.allclose(theirs.second[:-1, :-1], Z.T @ Z / len(Z), atol=0.15)
