import numpy as np
import pytest

from dpadapt.learning.shrinkage import james_stein


def test_pure_noise_is_dropped_in_nineteen_of_twenty_cases():
    noise = np.random.default_rng(1).standard_normal((2000, 12)) * 3.0
    dropped = np.mean([not james_stein(row, np.full(12, 9.0)).any() for row in noise])
    assert 0.93 < dropped < 0.97  # 0.95 by construction, four standard errors either way


def test_a_strong_signal_is_kept():
    change = np.full(12, 50.0)
    assert james_stein(change, np.ones(12)) == pytest.approx(change, rel=1e-3)


def test_shrinking_beats_not_shrinking_on_weak_signals():
    random = np.random.default_rng(2)
    truth = np.full(40, 0.5)
    noisy = truth + random.standard_normal((500, 40))
    shrunk = np.array([james_stein(row, np.ones(40)) for row in noisy])
    assert np.mean((shrunk - truth) ** 2) < 0.5 * np.mean((noisy - truth) ** 2)
    # With the noise overstated by half, the signal is lost: the variance has to be the true one.
    assert np.mean([not james_stein(row, np.full(40, 2.0)).any() for row in noisy]) > 0.9
