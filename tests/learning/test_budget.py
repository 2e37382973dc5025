"""What a fit may spend, and how releases share it."""

import math

import numpy as np
import pytest

from dpadapt.learning.budget import Budget, split_noise

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]


def test_a_budget_is_worthwhile_from_enough_rows_on():
    few, many = (Budget.of(1.0, 1e-6, n, "zero-out") for n in (10, 1000))
    assert not few.worthwhile
    assert many.worthwhile
    assert Budget.of(1.0, 1e-6, 1000, "replace-one").noise(1.0) == 2 * many.noise(1.0)
    with pytest.raises(ValueError, match="delta must be positive"):
        Budget.of(1.0, 0.0, 1000, "zero-out")


def test_split_noise_spends_exactly_its_shares():
    multipliers = split_noise(0.5, [0.2, 0.3, 0.5])
    assert math.fsum(1 / multiplier**2 for multiplier in multipliers) == pytest.approx(0.5**2)
    with pytest.raises(ValueError, match="more than 1"):
        split_noise(0.5, [0.6, 0.6])
