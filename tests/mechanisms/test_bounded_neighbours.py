"""No neighbouring data set moves a statistic of nearest rows further than its stated bound; rows are extreme too."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpadapt.errors import PrivacyError
from dpadapt.mechanisms import Adjacency, bounded_neighbours
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.bounded_neighbours import (
    cell_sums,
    each_neighbour_sum,
    local_neighbour_distance_sum,
    neighbour_distance_sum,
    neighbour_sums,
)

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}
EXTREME = [0.0, -0.0, 0.5, -0.5, 0.35355, 1e300, -1e155, 1e30, 1e-170, 5e-324, math.nan, math.inf, -math.inf]
number = st.one_of(st.sampled_from(EXTREME), st.floats(-0.4, 0.4))
# Few values on purpose: the order of rows could matter among equal rows and equal distances.
source = st.one_of(st.lists(number, min_size=2, max_size=2), st.tuples(*[st.sampled_from([-0.3, 0.0, 0.3])] * 2))
TARGETS = np.array([[0.0, 0.0], [0.3, 0.3], [-0.3, 0.0], [0.0, 0.0], [0.35, -0.35]])
CAPS = np.array([0.2, 0.0, 1.0, 0.5, 0.1])

MAKERS = {
    "neighbour_sums": lambda rows, t: [neighbour_sums(rows, TARGETS, t, 0.5)],
    "each_neighbour_sum": lambda rows, t: each_neighbour_sum(rows, TARGETS, t, 0.5),
    "cell_sums": lambda rows, t: [cell_sums(rows, TARGETS[:t], 0.5)],
    "neighbour_distance_sum": lambda rows, t: [neighbour_distance_sum(rows, TARGETS, t, CAPS)],
    "local_neighbour_distance_sum": lambda rows, t: [local_neighbour_distance_sum(rows, TARGETS, t, CAPS)],
}


def table(records):
    return np.array(records, dtype=np.float64).reshape(len(records), 2)


def neighbour(records, at, other, adjacency):
    if adjacency is Adjacency.ADD_REMOVE:
        return [*records[:at], *records[at + 1 :]]
    return [*records[:at], [math.nan] * 2 if adjacency is Adjacency.ZERO_OUT else other, *records[at + 1 :]]


def check(name, data, adjacency):
    records = data.draw(st.lists(source, min_size=1, max_size=7))
    at, other = data.draw(st.integers(0, len(records) - 1)), data.draw(source)
    t = data.draw(st.integers(1, 5))
    pairs = zip(
        MAKERS[name](table(records), t), MAKERS[name](table(neighbour(records, at, other, adjacency)), t), strict=True
    )
    for first, second in pairs:
        gap = np.ravel(first.value - second.value)
        assert np.isfinite(first.value).all()
        for norm, order in NORMS.items():
            try:
                limit = first.sensitivity(norm, adjacency)
            except PrivacyError:
                continue
            assert np.linalg.norm(gap, order) <= limit + 1e-9


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_no_neighbour_moves_further_than_the_bound(name, adjacency, data):
    check(name, data, adjacency)


def test_every_public_maker_is_in_the_battery():
    made = {
        name
        for name, value in vars(bounded_neighbours).items()
        if inspect.isfunction(value) and value.__module__ == bounded_neighbours.__name__ and not name.startswith("_")
    }
    assert made == set(MAKERS)


def test_the_local_bound_counts_only_targets_that_one_row_can_be_near_to():
    # Two groups of targets, far apart: one row can lower the distances of one group only.
    targets, caps = np.array([[0.0], [0.1], [9.0]]), np.array([1.0, 1.0, 1.0])
    local = local_neighbour_distance_sum([[0.3]], targets, 1, caps)
    whole = neighbour_distance_sum([[0.3]], targets, 1, caps)
    assert np.array_equal(local.value, whole.value)
    assert whole.l1 == 3.0
    assert local.l1 == pytest.approx(1.95)
    assert local.sensitivity("l1", Adjacency.REPLACE_ONE) == local.l1


def test_the_bounds_of_neighbour_sums_are_attained():
    # All rows lie at one end of the ball; a further row at the other end, nearer to every target, replaces one of them.
    d, t, n = 4, 3, 6
    end = np.full(d, 0.5 / math.sqrt(d)) * (1 - 1e-9)
    targets = np.zeros((n, d))
    far, near = np.tile(-end, (t, 1)), end * (1 - 1e-6)
    first, second = (neighbour_sums(rows, targets, t, 0.5) for rows in (far, np.vstack([far, near])))
    gap = np.ravel(first.value - second.value)
    assert np.abs(gap).sum() == pytest.approx(first.l1, rel=1e-4)
    assert np.linalg.norm(gap) == pytest.approx(first.l2, rel=1e-4)


@pytest.mark.parametrize("m", [1, 10, 20])
def test_the_bound_holds_with_fewer_rows_than_neighbours(m):
    """Dividing by the number of rows instead would move the average by 1 / m, many times the bound."""
    t, rows = 150, np.tile([-0.5 + 1e-9, 0.0], (m, 1))
    rows[0] = [0.5 - 1e-9, 0.0]
    first, second = (neighbour_sums(part, np.zeros((1, 2)), t, 0.5) for part in (rows, rows[1:]))
    assert np.linalg.norm(first.value - second.value) <= 2 * 0.5
    short = np.linalg.norm(rows.mean(axis=0) - (rows[1:].mean(axis=0) if m > 1 else 0.0))
    assert short > 1 / t  # the paper's average exceeds its stated bound


def test_rows_outside_the_ball_change_nothing():
    random = np.random.default_rng(0)
    rows = random.uniform(-0.3, 0.3, (50, 2))
    for far in ([1e6, 0.0], [0.51, 0.0], [1e200, -1e200], [math.nan, 0.0]):
        more = np.vstack([rows, [far]])
        for make in (lambda part: neighbour_sums(part, TARGETS, 9, 0.5), lambda part: cell_sums(part, TARGETS, 0.5)):
            assert np.array_equal(make(rows).value, make(more).value)


def test_no_rows_and_empty_cells_give_statistics_of_the_usual_shape():
    none = np.empty((0, 2))
    assert np.array_equal(neighbour_sums(none, TARGETS, 4, 0.5).value, 4 * TARGETS)
    assert not cell_sums(none, TARGETS, 0.5).value.any()
    assert neighbour_distance_sum(none, TARGETS, 3, CAPS).value == pytest.approx(3 * CAPS.sum())
    one = cell_sums([[0.31, 0.31]], TARGETS, 0.5).value
    assert one[1].tolist() == [1.0, 0.31, 0.31]
    assert not np.delete(one, 1, axis=0).any()


def test_the_order_of_the_rows_does_not_matter():
    random = np.random.default_rng(1)
    rows = random.choice([-0.2, 0.0, 0.2], (40, 2))
    for make in (lambda part: neighbour_sums(part, TARGETS, 7, 0.5), lambda part: cell_sums(part, TARGETS, 0.5)):
        assert np.allclose(make(rows).value, make(rows[random.permutation(40)]).value, atol=1e-12)


def test_bad_public_arguments_are_refused():
    with pytest.raises(ValueError, match="targets must lie in the ball"):
        neighbour_sums([[0.0, 0.0]], [[2.0, 0.0]], 1, 0.5)
    with pytest.raises(ValueError, match="caps must hold one finite number"):
        neighbour_distance_sum([[0.0, 0.0]], TARGETS, 1, [1.0])
    with pytest.raises(ValueError, match="the 2 columns"):
        cell_sums([[0.0]], TARGETS, 0.5)
    with pytest.raises(ValueError, match="n_neighbours must be a whole number"):
        neighbour_sums([[0.0, 0.0]], TARGETS, 0, 0.5)
    for caps in ([1.0, 1.0, math.nan, 1.0, 1.0], [1.0, math.inf, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, -1.0]):
        with pytest.raises(ValueError, match="caps must hold one finite number"):
            neighbour_distance_sum([[0.0, 0.0]], TARGETS, 1, caps)
    for points in ([0.0, 0.1], [[[0.0, 0.1]]], np.empty((0, 2)), [[0.0, math.nan]], [[math.inf, 0.0]]):
        with pytest.raises(ValueError, match="centres must be a table of finite numbers with at least one row"):
            cell_sums([[0.0, 0.0]], points, 0.5)
    for rows in ([0.0, 0.1], [[[0.0], [0.1]]]):
        with pytest.raises(ValueError, match="rows must have two axes"):
            cell_sums(rows, TARGETS, 0.5)
    assert isinstance(cell_sums([[0.0, 0.0]], TARGETS, 0.5), Bounded)


def test_distances_are_those_to_the_nearest_rows_only():
    random = np.random.default_rng(2)
    rows = random.uniform(-0.5, 0.5, (20, 2))
    distances = np.sort(np.linalg.norm(TARGETS[:, None] - rows, axis=2), axis=1)
    for n_neighbours in (1, 4, 20):
        expected = np.minimum(distances[:, :n_neighbours], CAPS[:, None]).sum()
        assert neighbour_distance_sum(rows, TARGETS, n_neighbours, CAPS).value == pytest.approx(expected)


def test_whole_numbers_are_no_shorter_than_they_are():
    """The square of 2**32 overflows to 0 in whole numbers, and the row would seem to lie in the ball."""
    assert not cell_sums(np.array([[2**32, 0]]), TARGETS, 0.5).value.any()


def test_whole_targets_do_not_round_sums():
    """A sum that is rounded to a whole number moves by 1 where a row moves it by much less."""
    rows, targets = [[0.4, 0.2], [0.3, 0.1]], np.zeros((2, 2), dtype=int)
    assert neighbour_sums(rows, targets, 2, 0.5).value == pytest.approx(np.array([[0.7, 0.3]] * 2))


def test_caps_of_float32_are_added_up_in_float64():
    """In float32 their sum, which bounds what one row moves, would be too small."""
    caps = np.array([1e8, 1.0, 1.0, 1.0, 1.0], dtype=np.float32)
    first, second = (neighbour_distance_sum(rows, np.zeros((5, 1)), 1, caps) for rows in (np.empty((0, 1)), [[0.0]]))
    assert first.l1 == abs(float(first.value[0] - second.value[0])) == 1e8 + 4


@pytest.mark.parametrize("number", [16, 2**10, 2**20])
def test_blocks_cover_all_rows_and_fit_into_their_bytes(monkeypatch, number):
    monkeypatch.setattr(bounded_neighbours, "_DISTANCE_BLOCK_BYTES", number)
    for n_rows, n_columns in ((0, 3), (1, 0), (37, 1), (50, 16), (8, 100_000)):
        blocks = [np.arange(n_rows)[part] for part in bounded_neighbours._blocks(n_rows, n_columns)]
        assert [row for block in blocks for row in block] == list(range(n_rows))
        size = max(map(len, blocks), default=0)
        assert size <= 4 or 8 * size * n_columns <= number
        # Fewer blocks would not do.
        assert len(blocks) <= 1 or 8 * 2 * size * n_columns > number
    assert neighbour_distance_sum(TARGETS, TARGETS, 2, CAPS).l1 == CAPS.sum()


def test_local_bound_of_equal_targets_is_the_sum_of_caps():
    targets = np.zeros((5, 2))
    assert local_neighbour_distance_sum(TARGETS, targets, 1, CAPS).l1 == CAPS.sum()


def test_bound_for_many_targets_covers_those_that_are_far_from_every_centre(monkeypatch):
    """Two targets with large caps lie far from the others, of which two are centres."""
    monkeypatch.setattr(bounded_neighbours, "_MOST_EXACT_TARGETS", 4)
    for at in range(8):
        targets, caps = np.linspace(0, 1e-3, 9)[:, None], np.full(9, 1e-3)
        targets[at : at + 2], caps[at : at + 2] = 100.0, 1.0
        bound = local_neighbour_distance_sum(np.empty((0, 1)), targets, 1, caps).l1
        first, second = (neighbour_distance_sum(rows, targets, 1, caps).value for rows in (np.empty((0, 1)), [[100.0]]))
        assert float(first[0] - second[0]) == pytest.approx(2.0)
        assert float(first[0] - second[0]) <= bound


def test_bound_for_many_targets_is_at_least_the_exact_one(monkeypatch):
    """Above a number of targets not all pairs are compared; the bound is then larger, never smaller."""
    random = np.random.default_rng(0)
    for scale in (0.05, 1.0):
        targets = np.vstack([random.normal(random.normal(size=2), scale, (40, 2)) for _ in range(10)])
        caps = random.uniform(0, 1, len(targets))
        exact = local_neighbour_distance_sum(targets[:0], targets, 1, caps).l1
        with monkeypatch.context() as patch:
            patch.setattr(bounded_neighbours, "_MOST_EXACT_TARGETS", 60)
            bounds = local_neighbour_distance_sum(targets[:0], targets, 1, caps).l1
        assert exact <= bounds <= caps.sum()
    assert bounds < 0.95 * caps.sum()
