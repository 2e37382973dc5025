"""The bin of a row depends on that row and the targets alone, and coarse bins are unions of finer ones."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.clustering import inference as module
from dpadapt.clustering.inference import make_cells, prepare, surroundings
from dpadapt.clustering.solver import cluster_t


@pytest.fixture(scope="module")
def cells():
    T = np.random.default_rng(0).standard_normal((300, 3))
    return make_cells(T, edges=np.array([0.2, 0.5, 1.0]), sizes=[20, 40, 80])


def test_bin_of_a_row_does_not_depend_on_other_rows(cells):
    """Arithmetic is exact: rounded matrix products would differ at the edges of blocks."""
    rows = np.random.default_rng(1).standard_normal((500, 3)) * 1.3
    whole = cells.codes(rows)
    alone = np.array([cells.codes(row[None])[0] for row in rows])
    assert np.array_equal(whole, alone)
    for cut in (1, 7, 250):
        assert np.array_equal(np.append(cells.codes(rows[:cut]), cells.codes(rows[cut:])), whole)
    assert len(np.unique(whole)) > 50


def test_blocks_of_rows_do_not_overlap(cells, monkeypatch):
    rows = np.random.default_rng(1).standard_normal((50, 3))
    whole = cells.codes(rows)
    monkeypatch.setattr(module, "_ASSIGNED_BLOCK_BYTES", 8 * len(cells.points) * 7)
    assert np.array_equal(cells.codes(rows), whole)


def test_bins_are_nearest_centres_and_distances_to_the_targets(cells):
    rows = np.random.default_rng(2).standard_normal((400, 3))
    points = cells.points * cells.step + cells.origin
    far = np.linalg.norm(rows[:, None] - points, axis=2)
    inside = far.min(axis=1) <= 1.0
    expected = far[:, :80].argmin(axis=1) * 3 + np.searchsorted(cells.edges, far.min(axis=1))
    assert np.array_equal(cells.codes(rows), np.where(inside, expected, -1))
    assert 0.1 < inside.mean() < 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 1e6])
def test_rows_out_of_range_or_not_finite_are_in_no_bin(cells, value):
    rows = np.zeros((3, 3))
    rows[1, 2] = value
    codes = cells.codes(rows)
    assert codes[1] == -1
    assert codes[0] == codes[2] >= 0


def test_squared_distances_on_the_grid_are_exact_in_float64(cells):
    most = np.abs(cells.points).max() + np.ceil(cells.edges[-1] / cells.step)
    assert 4 * 3 * most**2 < 2.0**53
    assert np.array_equal(cells.points, np.rint(cells.points))


def test_coarse_cells_are_unions_of_finer_ones(cells):
    for upper, lower in zip(cells.ancestors[:-1], cells.ancestors[1:], strict=True):
        for cell in np.unique(lower):
            assert len(np.unique(upper[lower == cell])) == 1
    assert [len(np.unique(level)) for level in cells.ancestors] == [20, 40, 80]


def test_preparation_is_made_once_for_each_public_and_remade_when_its_rows_change():
    T = np.random.default_rng(5).standard_normal((50, 2))
    public = Public(T)
    first, without = prepare(public, T, [3, 4])
    assert prepare(public, T, [3, 4])[0] is first
    assert {k: rows.tolist() for k, rows in without.items()} == {k: cluster_t(T, k).tolist() for k in (3, 4)}
    assert prepare(public, T + 1.0, [3, 4])[0] is not first
    assert prepare(public, T, [3])[0] is not first


def test_shares_of_a_partition_are_weighted_averages_over_its_pool_points():
    T = np.random.default_rng(4).standard_normal((60, 2))
    around = surroundings(T, [5])
    n = around.cells.n_bins
    weight = np.random.default_rng(5).uniform(0.1, 2.0, n)
    one = around.shares(np.zeros(n, dtype=int), 1, weight).toarray().reshape(60, -1)
    assert (np.diff(one, axis=1) >= 0).all()
    assert one.max() <= 1.0 + 1e-6
    each = around.shares(np.arange(n), n, weight).toarray()
    mixed = each @ (weight * around.sizes / (weight * around.sizes).sum())
    assert mixed == pytest.approx(one.ravel(), abs=1e-6)
