"""The derivatives in the weights, and the constants of the smooth losses."""

import numpy as np
import pytest

from benchmarks.theory.adaptation_problems import objective, smooth_objective
from dpadapt.papers.adaptation.problem import CrossEntropy, Penalties, SquaredError, reference_weights, weight_gradient


@pytest.mark.parametrize("sharpness", [0.0, 7.0])
def test_weight_gradients_are_the_derivatives_of_the_objectives(sharpness):
    rng = np.random.default_rng(2)
    p = reference_weights(5, 4, 0.3)
    u = (1 + rng.random(9)) / p
    losses, penalties = rng.random(9), Penalties(0.7, 1.3, 0.4)

    def value(u):
        if sharpness:
            return smooth_objective(losses, 1 / u, p, penalties, sharpness)
        return objective(losses, 1 / u, p, penalties, "convex")

    numeric = [(value(u + h) - value(u - h)) / (2 * h.sum()) for h in np.diag(u * 1e-6)]
    assert weight_gradient(losses, u, p, penalties, sharpness) == pytest.approx(np.array(numeric), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError()])
def test_bounds_lipschitz_constants_and_smoothness_of_the_losses_hold(loss, k):
    rng = np.random.default_rng(0)
    n, radius = 4000, 2.0
    scores = rng.standard_normal((n, k))
    scores *= radius * rng.choice([0.3, 1.0], (n, 1)) / np.linalg.norm(scores, axis=1, keepdims=True)
    scores = scores[:, 0] if k == 1 else scores
    codes = rng.integers(max(k, 2), size=n)
    losses = loss.losses(scores, codes)
    assert 0 <= losses.min() <= losses.max() <= loss.bound(k, radius)
    slopes = loss.weights(scores.copy(), codes).reshape(n, k)
    assert np.linalg.norm(slopes, axis=1).max() <= loss.lipschitz(k, radius)
    step = 1e-5 * rng.standard_normal((n, k)).reshape(scores.shape)
    change = loss.losses(scores + step, codes) - losses
    assert change == pytest.approx(np.sum(slopes * step.reshape(n, k), axis=1), abs=1e-8)
    bend = loss.weights(scores + step, codes).reshape(n, k) - slopes
    ratio = np.linalg.norm(bend, axis=1) / np.linalg.norm(step.reshape(n, k), axis=1)
    assert 0.3 * loss.smoothness(k) < ratio.max() <= loss.smoothness(k) * (1 + 1e-4)
