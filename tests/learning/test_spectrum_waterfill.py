import numpy as np
import pytest

from dpadapt.learning.spectrum import shrunk_spectrum
from dpadapt.learning.waterfill import water_fill


def _values(n, p, variances, seed=3):
    rows = np.random.default_rng(seed).standard_normal((n, p)) * np.sqrt(variances)
    return np.maximum(np.linalg.eigvalsh(rows.T @ rows / n), 0.0)


@pytest.mark.parametrize(("n", "p"), [(300, 200), (120, 200)])
def test_isotropic_rows_get_a_flat_spectrum_back(n, p):
    values = _values(n, p, np.ones(p))
    found = shrunk_spectrum(values, n)
    assert np.all(np.diff(found) >= 0)
    assert np.mean((found - 1) ** 2) < 0.1 * np.mean((values - 1) ** 2)


def test_exactly_dependent_columns_do_not_spoil_the_rest():
    values = _values(300, 200, np.ones(200))
    with_null = shrunk_spectrum(np.concatenate([[0.0, 0.0], values]), 300)
    assert with_null[:2] == pytest.approx([0.0, 0.0])
    assert with_null[2:] == pytest.approx(shrunk_spectrum(values, 300))


def test_many_rows_are_left_alone():
    values = _values(1000, 5, np.arange(1, 6))
    assert np.array_equal(shrunk_spectrum(values, 1000), values)


def test_shares_add_up_to_one_and_fall_with_the_prior():
    random = np.random.default_rng(5)
    for noise in (1e-6, 1e-2, 1.0, 100.0):
        prior = random.exponential(size=30)
        shares = water_fill(prior, noise)
        assert shares.sum() == pytest.approx(1.0)
        assert np.all(shares >= 0)
        order = np.argsort(prior)
        assert np.all(np.diff(shares[order]) >= -1e-12)


def test_no_other_spread_does_better():
    random = np.random.default_rng(6)
    prior = random.exponential(size=6)
    best = np.sum(np.log1p(water_fill(prior, 0.3) * prior / 0.3))
    for _ in range(200):
        other = random.dirichlet(np.ones(6))
        assert np.sum(np.log1p(other * prior / 0.3)) <= best + 1e-12


def test_useless_directions_get_nothing():
    assert water_fill(np.array([1.0, 0.0]), 0.5) == pytest.approx([1.0, 0.0])
