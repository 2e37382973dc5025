import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dpadapt.learning.losses import HuberLoss, LogisticLoss, SoftmaxLoss, SquaredLoss

random = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("loss", "targets", "n_scores"),
    [
        (SquaredLoss(), random.standard_normal(6), 1),
        (HuberLoss(0.4), random.standard_normal(6), 1),
        (LogisticLoss(), random.integers(0, 2, 6).astype(float), 1),
        (SoftmaxLoss(), random.integers(0, 4, 6), 4),
    ],
    ids=["squared", "huber", "logistic", "softmax"],
)
def test_weights_are_the_derivative_of_the_loss(loss, targets, n_scores):
    shape = (6,) if n_scores == 1 else (6, n_scores)
    scores = random.standard_normal(shape)
    numeric = approx_fprime(scores.ravel(), lambda s: loss.value(s.reshape(shape), targets) * 6, 1e-7)
    assert np.allclose(loss.weights(scores.copy(), targets).ravel(), numeric, atol=1e-5)


@pytest.mark.parametrize("loss", [LogisticLoss(), SoftmaxLoss()])
def test_extreme_scores_give_no_warning_and_stay_bounded(loss):
    scores = np.array([-1e4, 1e4, 0.0]) if isinstance(loss, LogisticLoss) else np.diag([1e4, -1e4, 0.0])
    weights = loss.weights(scores.copy(), np.array([1, 0, 1]))
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() <= 1.0
