"""`FeatureMapAdaptation`: its derivatives, what a learned map can do, and that only released gradients reach it."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpadapt import Public, audit
from dpadapt.papers.adaptation import CnvxAdap, FeatureMapAdaptation
from dpadapt.papers.adaptation.feature_map import MappedSource


def make_source(seed=0, d=3, k=4, radius=0.5, m=60):
    """Return a source of k columns and its map to d columns; a constant is appended to both."""
    rng = np.random.default_rng(seed)
    S = np.column_stack([rng.uniform(-1, 1, (m, k)), np.ones(m)])
    t = np.clip(S @ rng.standard_normal(k + 1) / 3, -1, 1)
    initial = np.zeros((d + 1, k + 1))
    initial[:-1], initial[-1, -1] = 0.4 * rng.standard_normal((d, k + 1)), 1.0
    return MappedSource(S.T @ S / m, S.T @ t / m, initial, radius), S, t


def loss(S, t, coef, mapping):
    return float(np.mean((S @ mapping.T @ coef - t) ** 2))


def test_derivatives_are_those_of_the_loss():
    source, S, t = make_source()
    rng = np.random.default_rng(1)
    coef, mapping = rng.standard_normal(4), source.initial + 0.1 * rng.standard_normal(source.initial.shape)
    h = 1e-6
    for j in range(4):
        shift = h * np.eye(4)[j]
        slope = (loss(S, t, coef + shift, mapping) - loss(S, t, coef - shift, mapping)) / (2 * h)
        assert source.coef_gradient(coef, mapping)[j] == pytest.approx(slope, abs=1e-6)
    gradient = source.map_gradient(coef, mapping)
    for i, j in ((0, 0), (1, 3), (2, 4)):
        shift = np.zeros_like(mapping)
        shift[i, j] = h
        slope = (loss(S, t, coef, mapping + shift) - loss(S, t, coef, mapping - shift)) / (2 * h)
        assert gradient[i, j] == pytest.approx(slope, abs=1e-6)
    assert not gradient[-1].any()  # the constant stays a constant


def test_maps_are_kept_within_the_radius():
    source, _, _ = make_source()
    far = source.initial + 3.0
    near = source.projected(far)
    assert np.linalg.norm(near - source.initial) == pytest.approx(0.5)
    assert np.linalg.matrix_rank(near - source.initial) == 1
    assert source.projected(near) == pytest.approx(near, abs=1e-12)


def data(n=200, m=150, seed=0):
    """Return a private target with two columns, and a source with three: mixtures of the two, and a useless one."""
    rng = np.random.default_rng(seed)
    X, hidden = rng.uniform(-1, 1, (n, 2)), rng.uniform(-1, 1, (m, 2))
    coef = np.array([0.6, -0.3])
    turned = hidden @ np.array([[0.9, 0.2], [-0.3, 1.1]])
    source = Public(np.column_stack([turned, rng.uniform(-1, 1, m)]), hidden @ coef)
    return X, X @ coef + 0.02 * rng.standard_normal(n), source


def fitted(epsilon=math.inf, seed=0, public=True, rows=None, **params):
    X, y, source = data() if rows is None else rows
    model = FeatureMapAdaptation(epsilon, 1e-5, random_state=seed, target_bounds=(-1, 1), **params)
    return model.fit(X, y, public=source if public else None)


def test_without_noise_descent_comes_close_to_the_least_objective():
    X, y, public = rows = data()
    model = fitted(rows=rows, n_steps=20_000, map_radius=0.3, radius=2.0)
    extended = np.column_stack([public.X, np.ones(len(public.X))])

    def value(point):
        coef, level, change = point[:2], point[2], point[3:].reshape(2, 4)
        mapping = np.hstack([np.eye(2, 3), np.zeros((2, 1))]) + change * min(1, 0.3 / max(np.linalg.norm(change), 1e-9))
        source = np.mean((extended @ mapping.T @ coef + level - public.y) ** 2)
        return float(source + np.mean((X @ coef + level - y) ** 2)) / 2

    starts = np.random.default_rng(0).standard_normal((5, 11)) * 0.3
    least = min(minimize(value, start, options={"maxiter": 2000}).fun for start in starts)
    nothing = value(np.zeros(11))
    change = (model.map_ - np.hstack([np.eye(2, 3), np.zeros((2, 1))])).ravel()
    reached = value(np.concatenate([model.coef_, [model.intercept_], change]))
    assert np.linalg.norm(change) <= 0.3 * (1 + 1e-9)
    # Algorithm 1 averages all iterates from 0 on, so it ends near, not at, the least value.
    assert least <= reached <= least + 0.02 * (nothing - least)
    still = fitted(rows=rows, n_steps=20_000, map_radius=0.0, radius=2.0)
    assert still.map_ == pytest.approx(np.hstack([np.eye(2, 3), np.zeros((2, 1))]))
    wrong = [np.linalg.norm(one.coef_ - [0.6, -0.3]) for one in (still, model)]
    assert wrong[1] < 0.75 * wrong[0]


def test_without_a_source_it_is_algorithm_1_and_a_source_without_weight_is_not_used():
    X, y, public = rows = data()
    paper = CnvxAdap(2.0, 1e-5, n_steps=50, target_bounds=(-1, 1), random_state=0).fit(X, y)
    alone = fitted(2.0, rows=rows, public=False, n_steps=50)
    assert alone.map_ is None
    assert alone.coef_ == pytest.approx(paper.coef_, rel=1e-9)
    assert [str(entry) for entry in alone.privacy_.entries] == [str(entry) for entry in paper.privacy_.entries]
    # The labels of a source set the middle of the scale, whatever its weight.
    one, other = (
        fitted(2.0, rows=(X, y, Public(table, public.y)), alpha=0.0, n_steps=50) for table in (public.X, public.X**2)
    )
    assert np.array_equal(one.coef_, other.coef_)


def test_where_the_source_has_all_the_weight_nothing_is_spent_and_no_private_row_is_read():
    first = fitted(2.0, alpha=1.0, n_steps=50)
    assert first.privacy_.entries == ()
    X, y, public = data()
    second = fitted(2.0, rows=(-X, y + 5, public), alpha=1.0, n_steps=50)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.map_, second.map_)


@pytest.mark.parametrize("params", [{}, {"map_radius": 0.0}, {"alpha": 1.0}, {"adjacency": "zero-out"}], ids=str)
def test_replay_finds_no_leak(params):
    X, y, public = data(60, 50)
    make = lambda: FeatureMapAdaptation(1.0, 0.01, n_steps=20, random_state=0, **params)  # noqa: E731
    for row, label in ((np.full(2, 1e6), 1e9), (np.zeros(2), -3.0)):
        X_other, y_other = X.copy(), y.copy()
        X_other[5], y_other[5] = row, label
        assert audit.leaks(make, (X, y), (X_other, y_other), public=public) == []
