"""The square root of the matrix of prefix sums, against the matrices themselves."""

import numpy as np
import pytest

from dpadapt.mechanisms.bounded import square_root_histogram
from dpadapt.mechanisms.prefix_sums import cumulative, furthest_columns, root_length, times_root


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_the_root_times_itself_gives_prefix_sums(n):
    S = np.column_stack([times_root(unit) for unit in np.eye(n)])
    assert np.allclose(S @ S, np.tri(n), atol=1e-12)
    lengths = np.linalg.norm(S, axis=0)
    assert root_length(n) == pytest.approx(lengths.max())
    corners = np.column_stack([S / lengths.max(), np.zeros(n)]).T
    assert furthest_columns(n) == pytest.approx(max(np.linalg.norm(a - b) for a in corners for b in corners))


def test_cumulative_counts_have_the_stated_noise():
    """3000 draws: a standard deviation is found within 6%, with a false-alarm rate below 1e-5 for each of 20 counts."""
    random = np.random.default_rng(0)
    exact = square_root_histogram(random.integers(0, 20, 500).astype(float), 20).value
    draws = np.array([cumulative(exact + 3.0 * random.standard_normal(20))[0] for _ in range(3000)])
    counts, spread = cumulative(exact)
    assert draws.std(axis=0) == pytest.approx(3.0 * spread, rel=0.06)
    assert draws.mean(axis=0) == pytest.approx(counts, abs=5 * 3.0 * spread.max() / np.sqrt(3000))
    assert counts[-1] == pytest.approx(500)


def test_the_noise_grows_with_the_logarithm_of_the_number_of_counts():
    assert cumulative(np.zeros(45))[1].max() == pytest.approx(2.28, abs=0.01)
    assert cumulative(np.zeros(450))[1].max() < 3.1
