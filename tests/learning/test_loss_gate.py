import math

import numpy as np
import pytest

from dpadapt.learning.loss_gate import (
    Slope,
    bend_of,
    difference_bound,
    loss_differences,
    slope_from_change,
    slope_from_losses,
)
from dpadapt.learning.losses import SoftmaxLoss

random = np.random.default_rng(4)


def _changes(gradient, stiffness, variance, repeats):
    """Noisy changes of two classes (one free direction), as the descent makes them."""
    noise = np.sqrt(variance) * random.standard_normal((repeats, len(gradient)))
    one = (gradient + noise) / stiffness / math.sqrt(2.0)
    return np.stack([one, -one], axis=2)


@pytest.mark.parametrize("size", [0.0, 0.3, 2.0])
def test_slope_from_a_change_is_unbiased_and_its_scatter_right(size):
    # 4000 draws: the standard error is 0.016 of the scatter; 0.08 is five of them.
    stiffness, variance = random.uniform(0.5, 2.0, 30), random.uniform(0.1, 0.3, 30)
    gradient = size * random.standard_normal(30)
    errors, scatters = [], []
    for change in _changes(gradient, stiffness, variance, 4000):
        slope = slope_from_change(change, stiffness, variance)
        truth = math.sqrt(2.0) * float(gradient @ change[:, 0])
        errors.append(slope.value - truth)
        scatters.append(math.sqrt(max(slope.scatter**2 - (0.3 * slope.value) ** 2, 0.0)))
    assert abs(np.mean(errors)) < 0.08 * np.std(errors)
    assert np.mean(scatters) == pytest.approx(np.std(errors), rel=0.15)
    assert abs(np.mean(errors) + np.sum(variance / stiffness)) > 0.5 * np.std(errors)  # without the correction it fails


def test_two_estimates_are_weighted_by_precision():
    both = Slope(1.0, 0.1).with_other(Slope(2.0, 0.2))
    assert both.value == pytest.approx((1.0 / 0.01 + 2.0 / 0.04) / 125.0)
    assert both.scatter == pytest.approx(1 / math.sqrt(125.0))


def test_how_far_to_go():
    assert Slope(1.0, 0.1).fraction(0.5, 0.0) == 1.0
    assert Slope(1.0, 0.1).fraction(1.0, 2.0) == pytest.approx(0.4)
    assert Slope(1.0, 0.6).fraction(1.0, 2.0) == 0.0
    assert Slope(-1.0, 0.1).fraction(1.0, -1.5) == 0.0


def _mean_gain(caution, gradient, n_repeats=3000):
    """Mean gain (as a share of the bend) of going as far as a gate with this caution says, in the quadratic model."""
    stiffness, variance = np.ones(10), np.full(10, 0.02)
    gains = []
    for change in _changes(gradient, stiffness, variance, n_repeats):
        bend = bend_of(change, np.full(10, 0.8))
        slope = math.sqrt(2.0) * float(gradient @ change[:, 0])
        noise = 0.1
        measured = slope_from_losses(
            slope - bend + noise * random.standard_normal(), noise, optimism=0.0, bend=bend, n_rows=1e9
        )
        found = slope_from_change(change, stiffness, variance).with_other(measured)
        c = found.fraction(bend, caution)
        gains.append(c * slope - c * c * bend)
    return float(np.mean(gains))


@pytest.mark.parametrize("size", [0.0, 0.05, 0.1, 0.2, 0.5])
def test_gate_does_no_harm_and_an_over_confident_one_does(size):
    gradient = np.full(10, size)
    noise_cost = 0.5 * 0.8 * 10 * 0.02  # what adopting pure noise would cost
    assert _mean_gain(1.75, gradient) > -0.02 * noise_cost
    if size == 0.0:
        assert _mean_gain(-1.75, gradient) < -0.2 * noise_cost


def test_loss_differences_are_differences_of_losses():
    before, after, codes = random.standard_normal((5, 3)), random.standard_normal((5, 3)), np.array([0, 1, 2, 0, 1])
    single = [SoftmaxLoss().value(s[i : i + 1], codes[i : i + 1]) for s in (before, after) for i in range(5)]
    assert np.allclose(loss_differences(before, after, codes), np.array(single[:5]) - np.array(single[5:]))


def test_bound_grows_with_the_change_and_stays_positive():
    scores, move = random.standard_normal((500, 3)), random.standard_normal((500, 3))
    small, large = (difference_bound(scores, scores + c * move) for c in (0.1, 1.0))
    assert 0 < small < large
    assert difference_bound(scores, scores) > 0
