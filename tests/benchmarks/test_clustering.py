"""The benchmark of the clustering paper measures what it says."""

import math

import numpy as np
import pytest

from benchmarks.clustering import appendix, measure, reasons
from benchmarks.clustering.sets import named, synthetic_2
from dpadapt import Public
from dpadapt.papers.source_target import proxies


def small_problem(monkeypatch, ks):
    monkeypatch.setattr("benchmarks.clustering.sets.MOST_TARGETS", 150)
    monkeypatch.setattr("benchmarks.clustering.sets.N_POINTS", 400)
    return measure.Problem(named("synthetic 2"), 11, ks)


def test_centres_of_a_weighted_coreset_are_those_of_repeated_targets(monkeypatch):
    problem = small_problem(monkeypatch, (1,))
    rows, weights = np.array([3, 40, 41, 90, 120]), np.array([1.0, 5.0, 2.0, 1.0, 3.0])
    free = np.full(150, np.inf)
    chosen = appendix.on_coreset(problem, free, rows, weights)[0]
    # By brute force: the row with the least sum of distances to all rows, each repeated as often as its weight says.
    repeated = np.repeat(rows, weights.astype(int))
    sums = [np.linalg.norm(problem.T[repeated] - problem.T[row], axis=1).sum() for row in rows]
    assert chosen.tolist() == [rows[int(np.argmin(sums))]]
    # A row without weight does not count.
    light = np.append(weights[:-1], 0.0)
    sums = [
        np.linalg.norm(problem.T[np.repeat(rows, light.astype(int))] - problem.T[row], axis=1).sum() for row in rows
    ]
    assert appendix.on_coreset(problem, free, rows, light)[0].tolist() == [rows[int(np.argmin(sums))]]
    # A free centre that serves everything but row 90 makes that row the centre.
    free[rows[[0, 1, 2, 4]]] = 0.0
    assert appendix.on_coreset(problem, free, rows, weights)[0].tolist() == [90]


def test_the_noise_of_a_proxy_is_what_nas_adds():
    T = synthetic_2(0)[1][:200]
    ball = proxies.Ball.of(T)
    for budget in ("epsilon 3", "rho 3"):
        # Without a source, every average is the target itself.
        model = proxies.NAS(1, coreset_distance=None, random_state=0, **measure.budget_of(budget))
        added = ball.scaled(model.fit(np.empty((0, 2)), public=Public(T)).proxies_) - ball.scaled(T)
        length = math.sqrt((added**2).sum(axis=1).mean())
        # 400 draws: the deviation of the estimate is at most 6%; twice the noise is rejected.
        expected = reasons.proxy_noise(200, 2, 150, budget)
        assert length == pytest.approx(expected, rel=0.2)
        assert length != pytest.approx(2 * expected, rel=0.2)
