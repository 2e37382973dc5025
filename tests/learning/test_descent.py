"""Losses, clipped gradients and private descent."""

import numpy as np
import pytest

from dpadapt import Ledger
from dpadapt.learning.descent import constant, decaying, private_descent, tail_noise
from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from dpadapt.mechanisms import Gaussian
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from dpadapt.rows import Rows

random = np.random.default_rng(2)
X = random.standard_normal((500, 3))


def _run(plan, **params):
    return Ledger(float("inf"), random_state=0, **params).start(plan, label="descent")


def _plain_descent(loss, y, start, steps, length, ridge):
    current, tail = start.copy(), []
    for t in range(steps):
        gradient = X.T @ loss.weights(X @ current, y) / len(X)
        current = current - length * (gradient + ridge * (current - start))
        if t >= steps // 2:
            tail.append(current)
    return np.mean(tail, axis=0)


@pytest.mark.parametrize(
    ("loss", "y", "start"),
    [
        (SquaredLoss(), random.standard_normal(500), np.zeros(3)),
        (LogisticLoss(), random.integers(0, 2, 500).astype(float), np.ones(3)),
        (SoftmaxLoss(), random.integers(0, 4, 500), np.zeros((3, 4))),
    ],
    ids=["squared", "logistic", "softmax"],
)
def test_without_noise_and_clipping_it_is_plain_gradient_descent(loss, y, start):
    run = _run(Repeated(Gaussian(1e-12), 40))
    rows = Rows(X, y)
    coef = private_descent(run, rows, loss, start, clip_norm=1e6, n_rows=500, step=constant(0.3), ridge=0.1)
    assert np.allclose(coef, _plain_descent(loss, y, start, 40, 0.3, 0.1), atol=1e-4)


def test_poisson_batches_reach_the_same_minimum():
    truth = np.array([1.0, -2.0, 0.5])
    rows = Rows(X, X @ truth)
    run = _run(Sampled(Gaussian(1e-9), rate=0.2, steps=300))
    coef = private_descent(run, rows, SquaredLoss(), np.zeros(3), clip_norm=1e6, n_rows=500, step=constant(0.2))
    assert np.allclose(coef, truth, atol=0.02)


def test_empty_batches_are_ordinary_steps():
    run = _run(Sampled(Gaussian(1.0), rate=1e-6, steps=5))
    coef = private_descent(
        run, Rows(X, X[:, 0]), SquaredLoss(), np.zeros(3), clip_norm=1.0, n_rows=500, step=constant(1)
    )
    assert np.isfinite(coef).all()
    assert run.left == 0


def test_rows_longer_than_max_norm_have_less_weight():
    far = X.copy()
    far[0] = 1e3
    rows = Rows(far, np.zeros(500), max_norm=2.0)
    assert rows.leverage[0] == pytest.approx((2.0 / np.linalg.norm(far[0])) ** 2, rel=1e-6)
    assert rows.leverage[1:].max() == 1.0


@pytest.mark.parametrize("rule", [constant(0.1), decaying(1.0)])
def test_tail_noise_matches_simulation(rule):
    steps, curvature = 30, np.array([0.0, 0.3, 1.0])
    noise = np.random.default_rng(3).standard_normal((20_000, steps, 3))
    current, total = np.zeros((20_000, 3)), np.zeros((20_000, 3))
    for t in range(steps):
        current = current - rule(t) * (curvature * current + noise[:, t])
        total += current * (t >= steps // 2)
    measured = (total / (steps - steps // 2)).var(axis=0)
    # The sampling error of a variance from 20,000 draws is 1%; 5% is five of them.
    assert np.allclose(measured, tail_noise(steps, rule, curvature), rtol=0.05)
    assert not np.allclose(measured, tail_noise(steps, rule, curvature + 0.2), rtol=0.05)
