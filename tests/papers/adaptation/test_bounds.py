"""Discrepancy and learning bound: exact in a ball, equal to the theorem term by term."""

import math

import numpy as np
import pytest

from dpadapt.papers.adaptation.bounds import (
    discrepancy,
    learning_bound,
    linear_complexity,
    local_discrepancy,
)
from dpadapt.papers.adaptation.problem import reference_weights

OPTIONS = {"n_source": 40, "alpha": 0.25, "discrepancy": 0.3, "complexity": 0.1, "loss_bound": 4.0, "risk": 0.1}


def test_every_term_is_the_theorem_s():
    rng = np.random.default_rng(0)
    p = reference_weights(40, 20, 0.25)
    q, losses = p * rng.uniform(0.6, 1.0, 60), rng.random(60)
    bound = learning_bound(losses, q, **OPTIONS)
    far = np.abs(q - p).sum()
    assert bound.weighted_loss == pytest.approx(q @ losses)
    assert bound.discrepancy == pytest.approx(q[:40].sum() * 0.3)
    assert bound.complexity == 0.2
    assert bound.distance == pytest.approx(24 * far)
    chance = math.sqrt(math.log(math.log2(2 / (1 - far)))) + math.sqrt(math.log(20) / 2)
    assert bound.deviation == pytest.approx(4 * (np.linalg.norm(q) + 2 * far) * chance)
    assert bound.total == pytest.approx(sum(bound.terms.values()))


def test_the_largest_term_and_its_remedy_are_shown():
    p = reference_weights(40, 20, 0.25)
    losses = np.zeros(60)
    assert learning_bound(losses, p, **{**OPTIONS, "discrepancy": 50.0}).limit == "discrepancy"
    assert learning_bound(losses, p, **{**OPTIONS, "complexity": 50.0}).limit == "complexity"
    few = learning_bound(losses, p, **OPTIONS)
    assert few.limit == "deviation"
    assert "add rows" in str(few)
    assert "says nothing" in str(learning_bound(losses, p, **{**OPTIONS, "complexity": 50.0}))
    many = learning_bound(np.zeros(60_000), reference_weights(40_000, 20_000, 0.25), **{**OPTIONS, "n_source": 40_000})
    assert "says nothing" not in str(many)
    # At the reference weights the cost of choosing them is 0.
    assert few.distance == 0.0
    assert few.deviation == pytest.approx(4 * np.linalg.norm(p) * math.sqrt(math.log(20) / 2))


def test_linear_complexity_bounds_the_complexity_of_squared_losses():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((50, 3)), rng.uniform(-1, 1, 50)
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    q = rng.random(50) / 50
    W = rng.standard_normal((500, 3))
    W *= 2.0 / np.linalg.norm(W, axis=1, keepdims=True)
    losses = (W @ X.T - y) ** 2
    signs = rng.choice([-1.0, 1.0], (400, 50))
    drawn = (losses @ (signs * q).T).max(axis=0).mean()
    assert 0 < drawn <= linear_complexity(X, q, radius=2.0, lipschitz=2 * (2.0 + 1.0))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"n_source": 60}, "more than"),
        ({"alpha": 2.0}, "alpha"),
        ({"discrepancy": -1.0}, "discrepancy"),
        ({"complexity": math.nan}, "complexity"),
        ({"loss_bound": 0.0}, "loss_bound"),
        ({"risk": 0.0}, "risk"),
    ],
)
def test_bad_input_is_named(change, name):
    with pytest.raises(ValueError, match=name):
        learning_bound(np.zeros(60), reference_weights(40, 20, 0.25), **{**OPTIONS, **change})


def test_weights_far_from_the_reference_are_refused():
    with pytest.raises(ValueError, match="closer than 1"):
        learning_bound(np.zeros(60), np.zeros(60), **OPTIONS)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        learning_bound(np.zeros(60), np.full(60, -0.1), **OPTIONS)


def samples(seed, d=3):
    rng = np.random.default_rng(seed)
    parts = [
        rng.standard_normal((30, d)),
        rng.standard_normal(30),
        rng.standard_normal((20, d)),
        rng.standard_normal(20),
    ]
    return parts, rng


@pytest.mark.parametrize("center", [None, [0.5, -0.2, 0.1]])
def test_discrepancy_is_the_largest_difference_of_mean_losses(center):
    (X_s, y_s, X, y), rng = samples(1)
    computed = discrepancy(X_s, y_s, X, y, radius=1.5, center=center)
    V = rng.standard_normal((40_000, 3))
    V *= 1.5 * rng.uniform(0.8, 1, (len(V), 1)) / np.linalg.norm(V, axis=1, keepdims=True)
    W = V + (0.0 if center is None else np.array(center))
    gaps = np.abs(((W @ X.T - y) ** 2).mean(axis=1) - ((W @ X_s.T - y_s) ** 2).mean(axis=1))
    assert gaps.max() <= computed <= gaps.max() * 1.02


def test_local_discrepancy_is_smaller_and_grows_to_the_whole():
    (X_s, y_s, X, y), _ = samples(2)
    center = np.zeros(3)
    near, wide = (local_discrepancy(X_s, y_s, X, y, center=center, radius=r) for r in (0.1, 2.0))
    assert near < wide == discrepancy(X_s, y_s, X, y, radius=2.0)
    assert local_discrepancy(X_s, y_s, X, y, center=center) == discrepancy(X_s, y_s, X, y, radius=20**-0.5)


def test_bad_input_of_the_discrepancy_is_named():
    (X_s, y_s, X, y), _ = samples(4)
    with pytest.raises(ValueError, match="columns"):
        discrepancy(X_s[:, :2], y_s, X, y, radius=1.0)
    with pytest.raises(ValueError, match="radius"):
        discrepancy(X_s, y_s, X, y, radius=0.0)
    with pytest.raises(ValueError, match="center"):
        discrepancy(X_s, y_s, X, y, radius=1.0, center=[1.0])
