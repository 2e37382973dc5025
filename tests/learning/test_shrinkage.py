import numpy as np
import pytest

from dpadapt.learning.base import water_fill
from dpadapt.learning.descent import james_stein
from dpadapt.learning.scaling import shrunk_spectrum


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


def test_shares_add_up_to_one_and_fall_with_the_prior():
    random = np.random.default_rng(5)
    for noise in (1e-6, 1e-2, 1.0, 100.0):
        prior = random.exponential(size=30)
        shares = water_fill(noise / prior)
        assert shares.sum() == pytest.approx(1.0)
        assert np.all(shares >= 0)
        order = np.argsort(prior)
        assert np.all(np.diff(shares[order]) >= -1e-12)


def test_water_filling_is_optimal():
    random = np.random.default_rng(6)
    prior = random.exponential(size=6)
    best = np.sum(np.log1p(water_fill(0.3 / prior) * prior / 0.3))
    for _ in range(200):
        other = random.dirichlet(np.ones(6))
        assert np.sum(np.log1p(other * prior / 0.3)) <= best + 1e-12


def test_directions_whose_cost_is_too_high_get_nothing():
    assert water_fill(np.array([0.5, 1e300])) == pytest.approx([1.0, 0.0])


def test_all_positive_shares_are_at_one_level():
    random = np.random.default_rng(7)
    costs, slopes = random.exponential(size=20), random.exponential(size=20)
    shares = water_fill(costs, slopes)
    assert shares.sum() == pytest.approx(1.0)
    used = shares > 0
    # One level for all that get a share, and no share where even that level costs too much.
    levels = (shares[used] + costs[used]) / slopes[used]
    assert np.ptp(levels) < 1e-9 * levels.mean()
    assert np.all(levels.mean() * slopes[~used] <= costs[~used])


def test_a_direction_with_no_slope_gets_nothing():
    assert water_fill(np.array([0.1, 0.2]), np.array([0.0, 1.0])) == pytest.approx([0.0, 1.0])


def test_costs_beyond_rounding_leave_everything_to_the_cheapest_direction():
    assert water_fill(np.array([1e20, 1e17, 1e18])).tolist() == [0.0, 1.0, 0.0]


def _values(n, p, variances, seed=3):
    rows = np.random.default_rng(seed).standard_normal((n, p)) * np.sqrt(variances)
    return np.maximum(np.linalg.eigvalsh(rows.T @ rows / n), 0.0)


@pytest.mark.parametrize(("n", "p"), [(300, 200), (120, 200)])
def test_the_corrected_spectrum_of_isotropic_rows_is_flat(n, p):
    values = _values(n, p, np.ones(p))
    shrunk = shrunk_spectrum(values, n)
    assert np.all(np.diff(shrunk) >= 0)
    assert np.mean((shrunk - 1) ** 2) < 0.1 * np.mean((values - 1) ** 2)


def test_exactly_dependent_columns_do_not_change_the_other_variances():
    values = _values(300, 200, np.ones(200))
    with_null = shrunk_spectrum(np.concatenate([[0.0, 0.0], values]), 300)
    assert with_null[:2] == pytest.approx([0.0, 0.0])
    assert with_null[2:] == pytest.approx(shrunk_spectrum(values, 300))


def test_the_spectrum_of_many_rows_is_not_corrected():
    values = _values(1000, 5, np.arange(1, 6))
    assert np.array_equal(shrunk_spectrum(values, 1000), values)
