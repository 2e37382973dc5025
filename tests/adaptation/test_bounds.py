"""`learning_bound`: the terms of Theorem B.1, and what it says of them."""

import math

import numpy as np
import pytest

from dpadapt.adaptation.bounds import learning_bound, linear_complexity
from dpadapt.adaptation.problem import reference_weights

OPTIONS = {"n_source": 40, "alpha": 0.25, "discrepancy": 0.3, "complexity": 0.1, "loss_bound": 4.0, "risk": 0.1}


def test_every_term_is_the_theorem_s():
    rng = np.random.default_rng(0)
    p = reference_weights(40, 20, 0.25)
    q, losses = p * rng.uniform(0.6, 1.0, 60), rng.random(60)
    found = learning_bound(losses, q, **OPTIONS)
    far = np.abs(q - p).sum()
    assert found.weighted_loss == pytest.approx(q @ losses)
    assert found.discrepancy == pytest.approx(q[:40].sum() * 0.3)
    assert found.complexity == 0.2
    assert found.distance == pytest.approx(24 * far)
    chance = math.sqrt(math.log(math.log2(2 / (1 - far)))) + math.sqrt(math.log(20) / 2)
    assert found.deviation == pytest.approx(4 * (np.linalg.norm(q) + 2 * far) * chance)
    assert found.total == pytest.approx(sum(found.terms.values()))


def test_it_says_what_limits():
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
    # At the reference weights the price of choosing them is 0.
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
