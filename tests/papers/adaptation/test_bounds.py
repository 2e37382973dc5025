"""Discrepancy: exact in a ball, hard case included; what is released moves no further than stated."""

import math

import numpy as np
import pytest

from dpadapt.mechanisms.trust_region import extremes_in_ball, minimise_in_ball
from dpadapt.papers.adaptation.bounds import (
    discrepancy,
    learning_bound,
    linear_complexity,
    local_discrepancy,
    local_search_discrepancy,
)
from dpadapt.papers.adaptation.problem import reference_weights

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


def descend(A, b, radius, rng, starts=60):
    """Return the least value of w'Aw - 2b'w in the ball, by projected descent from many starts."""
    size = np.abs(np.linalg.eigvalsh(A)).max() + 1e-12
    W = rng.standard_normal((starts, len(b)))
    W *= radius * rng.uniform(0, 1, (starts, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
    for _ in range(5000):
        after = W - (W @ A - b) / size
        length = np.linalg.norm(after, axis=1, keepdims=True)
        after = np.where(length > radius, after * radius / np.maximum(length, 1e-300), after)
        if np.abs(after - W).max() < 1e-13:
            break
        W = after
    return float((np.einsum("ij,jk,ik->i", W, A, W) - 2 * W @ b).min())


@pytest.mark.parametrize("kind", ["general", "hard", "nearly hard", "definite", "no linear part"])
def test_extremes_equal_brute_force(kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(6):
        d = int(rng.integers(1, 6))
        A = rng.standard_normal((d, d))
        A = A @ A.T if kind == "definite" else (A + A.T) / 2
        b = rng.standard_normal(d) * (kind != "no linear part")
        if "hard" in kind:
            # No component along the least and the greatest eigenvector, or next to none.
            for v in np.linalg.eigh(A)[1].T[[0, -1]]:
                b = 0.1 * (b - v * (v @ b)) + (1e-9 * v if "nearly" in kind else 0.0)
        radius = float(rng.choice([0.1, 1.0, 5.0]))
        low, high = extremes_in_ball(A, b, radius)
        assert low == pytest.approx(descend(A, b, radius, rng), abs=1e-8)
        assert high == pytest.approx(-descend(-A, -b, radius, rng), abs=1e-8)
        w = minimise_in_ball(A, b, radius)
        assert np.linalg.norm(w) <= radius * (1 + 1e-12)
        assert w @ A @ w - 2 * b @ w == pytest.approx(low, abs=1e-10)


def test_the_hard_case_needs_its_eigenvector():
    # Without it the best point of (A + nu I) w = b is inside the ball and far from optimal.
    A, b = np.diag([-1.0, 1.0]), np.array([0.0, 0.5])
    low, _ = extremes_in_ball(A, b, 2.0)
    assert low == pytest.approx(-4.0 + 2 * 0.25**2 - 2 * 0.5 * 0.25, abs=1e-12)


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
    found = discrepancy(X_s, y_s, X, y, radius=1.5, center=center)
    V = rng.standard_normal((40_000, 3))
    V *= 1.5 * rng.uniform(0.8, 1, (len(V), 1)) / np.linalg.norm(V, axis=1, keepdims=True)
    W = V + (0.0 if center is None else np.array(center))
    gaps = np.abs(((W @ X.T - y) ** 2).mean(axis=1) - ((W @ X_s.T - y_s) ** 2).mean(axis=1))
    assert gaps.max() <= found <= gaps.max() * 1.02


def test_local_discrepancy_is_smaller_and_grows_to_the_whole():
    (X_s, y_s, X, y), _ = samples(2)
    center = np.zeros(3)
    near, wide = (local_discrepancy(X_s, y_s, X, y, center=center, radius=r) for r in (0.1, 2.0))
    assert near < wide == discrepancy(X_s, y_s, X, y, radius=2.0)
    assert local_discrepancy(X_s, y_s, X, y, center=center) == discrepancy(X_s, y_s, X, y, radius=20**-0.5)


def test_local_search_never_exceeds_the_exact_discrepancy_and_finds_it_here():
    (X_s, y_s, X, y), _ = samples(3)

    def difference(w):
        e_s, e = X_s @ w - y_s, X @ w - y
        return float((e**2).mean() - (e_s**2).mean()), 2 * (X.T @ e / len(e) - X_s.T @ e_s / len(e_s))

    exact = discrepancy(X_s, y_s, X, y, radius=1.0)
    found = local_search_discrepancy(difference, (3,), radius=1.0, smoothness=4.0)
    assert found <= exact * (1 + 1e-12)
    assert found == pytest.approx(exact, rel=1e-6)


def test_bad_input_of_the_discrepancy_is_named():
    (X_s, y_s, X, y), _ = samples(4)
    with pytest.raises(ValueError, match="columns"):
        discrepancy(X_s[:, :2], y_s, X, y, radius=1.0)
    with pytest.raises(ValueError, match="radius"):
        discrepancy(X_s, y_s, X, y, radius=0.0)
    with pytest.raises(ValueError, match="center"):
        discrepancy(X_s, y_s, X, y, radius=1.0, center=[1.0])
