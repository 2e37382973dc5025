"""Losses, and clipped residuals of softmax models."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dpadapt.learning.losses import (
    HuberLoss,
    LogisticLoss,
    SoftmaxLoss,
    SquaredLoss,
    _over_columns,
    centred_residuals,
    clipped_curvature,
    softmax,
)

clipping_random = np.random.default_rng(3)


def test_softmax_changes_its_scores_only_where_it_is_told_to():
    scores = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    before = scores.copy()
    probabilities = softmax(scores)
    np.testing.assert_array_equal(scores, before)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert softmax(scores, out=scores) is scores
    np.testing.assert_array_equal(scores, probabilities)


def _probabilities(n, k):
    scores = 2.0 * clipping_random.standard_normal((n, k))
    p = np.exp(scores)
    return p / p.sum(axis=1, keepdims=True)


def _direct(p, code, limit):
    """The definition, class by class."""
    unit = np.eye(len(p))
    factors = [min(1.0, limit / max(np.linalg.norm(p - unit[k]), 1e-300)) for k in range(len(p))]
    mean = sum(p[k] * factors[k] * (p - unit[k]) for k in range(len(p)))
    return factors[code] * (p - unit[code]) - mean


@pytest.mark.parametrize("k", [2, 3, 7])
def test_centred_residuals_follow_their_definition(k):
    p, codes, limits = _probabilities(50, k), clipping_random.integers(0, k, 50), clipping_random.uniform(0.05, 2.0, 50)
    expected = np.array([_direct(*row) for row in zip(p, codes, limits, strict=True)])
    assert np.allclose(centred_residuals(p.copy(), codes, limits), expected)


@pytest.mark.parametrize("limit", [0.05, 0.4, 2.0])
def test_a_correct_model_is_a_fixed_point_of_centred_but_not_of_plain_clipping(limit):
    p = np.tile([0.97, 0.03], (2, 1))
    residuals = centred_residuals(p.copy(), np.array([0, 1]), np.full(2, limit))
    assert np.allclose(0.97 * residuals[0] + 0.03 * residuals[1], 0.0, atol=1e-15)
    plain = np.array([p[0] - [1, 0], p[1] - [0, 1]])
    plain *= np.minimum(1.0, limit / np.linalg.norm(plain, axis=1))[:, None]
    drift = np.abs(0.97 * plain[0] + 0.03 * plain[1]).max()
    assert (drift > 0.005) == (limit < 1.3)  # without centring a clipped model would move


def test_without_clipping_centred_residuals_are_plain_residuals():
    p, codes = _probabilities(20, 4), clipping_random.integers(0, 4, 20)
    expected = p - np.eye(4)[codes]
    assert np.allclose(centred_residuals(p.copy(), codes, np.full(20, 2.0)), expected)
    assert np.allclose(clipped_curvature(p, np.full(20, 2.0)), (1 - np.sum(p**2, axis=1)) / 3)


def test_curvature_is_the_derivative_of_the_expected_residual():
    # E over labels from p of r at scores s, as s moves towards the labels' own scores: E[r (p - e_y)'] is its trace.
    p, limit = _probabilities(1, 3)[0], 0.3
    unit = np.eye(3)
    trace = sum(p[k] * _direct(p, k, limit) @ (p - unit[k]) for k in range(3))
    assert clipped_curvature(p[None], np.array([limit]))[0] == pytest.approx(trace / 2)


@pytest.mark.parametrize("limit", [1e-30, 2.0])
def test_certain_predictions_stay_finite(limit):
    p = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    residuals = centred_residuals(p.copy(), np.array([0, 0]), np.full(2, limit))
    assert np.isfinite(residuals).all()
    assert np.isfinite(clipped_curvature(p, np.full(2, limit))).all()


loss_random = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("loss", "targets", "n_scores"),
    [
        (SquaredLoss(), loss_random.standard_normal(6), 1),
        (HuberLoss(0.4), loss_random.standard_normal(6), 1),
        (LogisticLoss(), loss_random.integers(0, 2, 6).astype(float), 1),
        (SoftmaxLoss(), loss_random.integers(0, 4, 6), 4),
    ],
    ids=["squared", "huber", "logistic", "softmax"],
)
def test_weights_are_the_derivative_of_the_loss(loss, targets, n_scores):
    shape = (6,) if n_scores == 1 else (6, n_scores)
    scores = loss_random.standard_normal(shape)
    numeric = approx_fprime(scores.ravel(), lambda s: loss.value(s.reshape(shape), targets) * 6, 1e-7)
    assert np.allclose(loss.weights(scores.copy(), targets).ravel(), numeric, atol=1e-5)


@pytest.mark.parametrize("loss", [LogisticLoss(), SoftmaxLoss()])
def test_extreme_scores_give_no_warning_and_stay_bounded(loss):
    scores = np.array([-1e4, 1e4, 0.0]) if isinstance(loss, LogisticLoss) else np.diag([1e4, -1e4, 0.0])
    weights = loss.weights(scores.copy(), np.array([1, 0, 1]))
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() <= 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 7, 8, 30])
def test_reducing_column_by_column_changes_no_bit(n_columns, dtype):
    rows = np.random.default_rng(n_columns).standard_normal((500, n_columns)).astype(dtype)
    for reduce in (np.maximum, np.add):
        assert np.array_equal(_over_columns(reduce, rows), reduce.reduce(rows, axis=1))
