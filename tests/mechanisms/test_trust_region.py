"""Minimum and maximum of a quadratic in a ball equal those of projected descent from many starts."""

import numpy as np
import pytest

from dpadapt.mechanisms.trust_region import extremes_in_ball, minimise_in_ball


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
def test_extremes_equal_those_of_projected_descent(kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(6):
        d = int(rng.integers(1, 6))
        A = rng.standard_normal((d, d))
        A = A @ A.T if kind == "definite" else (A + A.T) / 2
        b = rng.standard_normal(d) * (kind != "no linear part")
        if "hard" in kind:
            # No component, or one of 1e-9, along the eigenvectors of the least and the greatest eigenvalue.
            for v in np.linalg.eigh(A)[1].T[[0, -1]]:
                b = 0.1 * (b - v * (v @ b)) + (1e-9 * v if "nearly" in kind else 0.0)
        radius = float(rng.choice([0.1, 1.0, 5.0]))
        low, high = extremes_in_ball(A, b, radius)
        assert low == pytest.approx(descend(A, b, radius, rng), abs=1e-8)
        assert high == pytest.approx(-descend(-A, -b, radius, rng), abs=1e-8)
        w = minimise_in_ball(A, b, radius)
        assert np.linalg.norm(w) <= radius * (1 + 1e-12)
        assert w @ A @ w - 2 * b @ w == pytest.approx(low, abs=1e-10)


def test_an_interior_minimum_solves_the_linear_system():
    A, b = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.2])
    assert minimise_in_ball(A, b, 10.0) == pytest.approx(np.linalg.solve(A, b))


def test_zero_matrices_and_no_coordinates():
    assert extremes_in_ball(np.zeros((2, 2)), np.array([3.0, 4.0]), 0.5) == pytest.approx((-5.0, 5.0))
    assert extremes_in_ball(np.zeros((2, 2)), np.zeros(2), 0.5) == (0.0, 0.0)
    assert minimise_in_ball(np.zeros((0, 0)), np.zeros(0), 1.0).shape == (0,)


def test_the_hard_case_needs_its_eigenvector():
    # Without it the best point of (A + nu I) w = b is inside the ball and far from optimal.
    A, b = np.diag([-1.0, 1.0]), np.array([0.0, 0.5])
    low, _ = extremes_in_ball(A, b, 2.0)
    assert low == pytest.approx(-4.0 + 2 * 0.25**2 - 2 * 0.5 * 0.25, abs=1e-12)
