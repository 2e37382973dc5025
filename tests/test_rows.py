"""Rows: sums in blocks equal sums of all rows, norms are upper bounds, and rows that are not finite are null."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpadapt import Ledger, PrivacyError
from dpadapt import rows as module
from dpadapt.inputs.sources import Spill
from dpadapt.learning.descent import gradient_weights, private_descent
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms import Gaussian
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from dpadapt.rows import (
    BLOCK_ROWS,
    FLOAT32_EXCESS,
    InMemory,
    Part,
    Rows,
    block_slices,
    norm_bounds,
    products_by_row,
    rows_by_block,
)

dtypes = st.sampled_from([np.float32, np.float64])


@st.composite
def tables(draw):
    dtype = draw(dtypes)
    top = 1e30 if dtype is np.float32 else 1e300
    shape = (draw(st.integers(0, 5)), draw(st.integers(1, 6)))
    width = 32 if dtype is np.float32 else 64
    limit = float(np.dtype(dtype).type(top))
    return draw(arrays(dtype, shape, elements=st.floats(-limit, limit, width=width)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables(), st.booleans())
def test_norms_are_upper_bounds_and_never_zero(X, intercept):
    rows = Rows(X, np.zeros(len(X)), intercept=intercept)
    assert (rows.norms > 0).all()
    with np.errstate(over="ignore"):
        exact = np.sqrt((rows.X.astype(np.longdouble) ** 2).sum(axis=1) + intercept)
    assert (rows.norms >= exact).all()
    ordinary = np.isfinite(rows.norms) & (exact > 1e-10)
    assert (rows.norms[ordinary] <= exact[ordinary] * (1 + 1e-5)).all()


def test_norms_are_upper_bounds_where_squares_underflow():
    for dtype, tiny in ((np.float32, 1e-25), (np.float64, 1e-170)):
        squares = np.full(1, tiny, dtype) ** 2
        assert squares == 0
        assert norm_bounds(squares, 1) > tiny


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_rows_that_are_not_finite_become_null_in_a_copy(bad):
    X, y = np.array([[1.0, 2.0], [bad, 1.0]]), np.array([3.0, 4.0])
    before = X.copy()
    rows = Rows(X, y, intercept=True)
    assert rows.X.tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert rows.y.tolist() == [3.0, 0.0]
    assert rows.norms[1] == np.inf
    assert np.array_equal(X, before, equal_nan=True)
    assert Rows(np.ones((2, 1)), np.array([1.0, np.nan])).norms.tolist()[1] == np.inf


def test_finite_data_is_not_copied():
    X = np.ones((4, 2), np.float32)
    assert Rows(X, np.zeros(4)).X is X
    assert Rows(np.ones((4, 2), int), np.zeros(4)).X.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [False, True])
def test_sums_in_blocks_equal_sums_of_all_rows(monkeypatch, dtype, intercept):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 3)).astype(dtype), rng.standard_normal(100).astype(dtype)
    full = X if not intercept else np.column_stack([X, np.ones(100, dtype)])
    coef = rng.standard_normal(3 + intercept).astype(dtype)
    seen = []

    def statistic(block):
        seen.append(len(block.X))
        assert block.product(coef) == pytest.approx(
            block.X @ coef[:3] + (coef[3] if intercept else 0), rel=1e-4, abs=1e-5
        )
        return block.outer(block.y)

    expected = full.T.astype(np.float64) @ y
    rows = Rows(X, y, intercept=intercept)
    assert rows.map_sum(statistic) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    monkeypatch.setattr(module, "_ROW_BLOCK_SIZES", (16, 16))
    total = rows.map_sum(statistic)
    assert total == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert total.dtype == np.float64
    assert seen == [100, 16, 16, 16, 16, 16, 16, 4]
    assert (rows.n_rows, rows.n_columns) == (100, 3 + intercept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_block_has_the_norms_of_its_own_rows(monkeypatch, dtype):
    X = np.random.default_rng(0).standard_normal((50, 3)).astype(dtype) * np.arange(1, 51, dtype=dtype)[:, None]
    rows = Rows(X, np.zeros(50, dtype), max_norm=20.0)
    monkeypatch.setattr(module, "_ROW_BLOCK_SIZES", (16, 16))
    seen = []

    def statistic(block):
        seen.append((block.norms, block.inverse_norms, block.leverage))
        return np.zeros(1)

    rows.map_sum(statistic)
    assert len(seen) == 4
    for parts, whole in zip(zip(*seen, strict=True), (rows.norms, rows.inverse_norms, rows.leverage), strict=True):
        assert np.array_equal(np.concatenate(parts), whole)


def test_taken_rows_keep_their_norms():
    rows = Rows(np.arange(8.0).reshape(4, 2), np.arange(4.0))
    some = rows.take(np.array([2, 0]))
    assert some.X.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert some.y.tolist() == [2.0, 0.0]
    assert some.norms.tolist() == rows.norms[[2, 0]].tolist()
    none = rows.take(np.array([], dtype=np.int64))
    assert none.map_sum(lambda block: block.outer(block.y)).tolist() == [0.0, 0.0]


def test_rows_longer_than_max_norm_have_less_weight():
    rows = Rows(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 0.0]]), np.zeros(3), max_norm=1.0)
    assert rows.leverage == pytest.approx([1 / 25, 1.0, 0.0])
    assert rows.take(np.array([1])).leverage == pytest.approx([1.0])
    assert Rows(np.ones((1, 1)), np.zeros(1)).leverage is None


@pytest.mark.parametrize("dtypes_of", [(np.float64, np.float64), (np.float32, np.float64), (np.float32, np.float32)])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(3, 1), (101, 5), (1003, 20), (700, 134), (64, 1280)])
def test_products_by_row_of_a_row_do_not_depend_on_other_rows(n_rows, n_columns, dtypes_of):
    random = np.random.default_rng(n_rows)
    X = random.standard_normal((n_rows, n_columns)).astype(dtypes_of[0])
    for shape in ((n_columns,), (n_columns, 3)):
        coef = random.standard_normal(shape).astype(dtypes_of[1])
        whole = products_by_row(X, coef)
        assert np.allclose(whole, X @ coef, rtol=1e-4, atol=1e-4)
        for left_out in {0, 1, n_rows // 2, n_rows - 1}:
            kept = np.arange(n_rows) != left_out
            assert np.array_equal(products_by_row(X[kept], coef), whole[kept])
        alone = np.concatenate([products_by_row(X[i : i + 1], coef) for i in range(n_rows)])
        assert np.array_equal(alone, whole)
        assert np.array_equal(products_by_row(np.asfortranarray(X), coef), whole)


@pytest.mark.parametrize("columns", [8, 20, 50])
def test_where_a_row_may_be_missing_no_other_row_changes_its_clipped_gradient(columns):
    """Rows of length 1e9 whose residual is what rounding leaves: a matrix product gives it by the row's place."""
    random = np.random.default_rng(1)
    for _ in range(10):
        coef, x = random.standard_normal(columns), 1e9 * random.standard_normal(columns)
        X = np.repeat(x[None], 100, 0)
        y, weights = X @ coef, gradient_weights(SquaredLoss(), coef)
        whole, without = (
            clipped_outer_sum(Rows(X[some], y[some], fixed_rows=False), weights, 1.0)
            for some in (slice(None), slice(1, None))
        )
        moved = np.linalg.norm(whole.value - without.value)
        assert moved <= whole.sensitivity("l2", Adjacency.ADD_REMOVE) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("dtype", "length", "rate"), [(float, 1e9, 0.5), (np.float32, 1e4, 0.5), (np.float32, 1e4, None)]
)
@pytest.mark.parametrize("n_scores", [None, 3])
def test_a_null_row_that_is_drawn_changes_no_other_row_of_the_sample(dtype, length, rate, n_scores):
    """Rows whose residual is what rounding leaves: their terms would follow from their places in the sample."""
    random = np.random.default_rng(1)
    for _ in range(10):
        shape = (8,) if n_scores is None else (8, n_scores)
        coef = random.standard_normal(shape).astype(dtype)
        X = np.repeat(length * random.standard_normal((1, 8)), 104, 0).astype(dtype)
        y = X @ coef
        X[0] = 0
        rows, weights = Rows(X, y[:, 0] if n_scores else y), gradient_weights(Residuals(y), coef)
        with_null, without = (
            clipped_outer_sum(rows.take(index, rate), weights, 1.0).value
            for index in (np.arange(104), np.arange(1, 104))
        )
        # Other terms are the same; their sum may be rounded differently.
        assert np.linalg.norm(with_null - without) <= (1e-9 if dtype is float else 1e-4)


class Residuals:
    """A loss with several targets, of which the first tells the rows apart: prediction minus target."""

    def __init__(self, y):
        self.y = y

    def weights(self, scores, y):
        # All rows but the first, which is null, have the same targets.
        return scores - self.y[1]

    def value(self, scores, y):
        raise NotImplementedError


def rounded_by_order():
    """Return 128 numbers whose sum in float32 depends on their order."""
    random = np.random.default_rng(0)
    ones = np.ones(128, np.float32)
    found = max(
        (random.uniform(0.5, 1, (128, 1)).astype(np.float32) for _ in range(2000)),
        key=lambda X: abs(float(module._products(X, ones)[0]) - float(module._products(np.roll(X, 1, 0), ones)[0])),
    )
    return np.tile(found, (512, 1))


@pytest.mark.parametrize("left_out", [0, 1, 40_000])
def test_a_row_that_is_drawn_moves_a_sum_in_float32_by_no_more_than_the_bound(left_out):
    """Without groups by row number, all later groups would hold other rows."""
    X = rounded_by_order()
    X[left_out] = 0
    rows, drawn = Rows(X, np.zeros(len(X), np.float32)), np.arange(len(X))
    not_drawn = np.delete(drawn, left_out)
    sums = [clipped_outer_sum(rows.take(some, 0.99), ones_in_float32, 1.01).value for some in (drawn, not_drawn)]
    # The row is null: what is left is rounding, in one group and in the sums that hold it.
    assert np.linalg.norm(sums[0] - sums[1]) <= FLOAT32_EXCESS / 8


def ones_in_float32(block):
    return np.ones(len(block.X), np.float32)


@pytest.mark.parametrize("n_scores", [None, 3])
@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_sums_over_a_sample_in_float32_are_those_in_float64(rate, n_scores):
    random = np.random.default_rng(3)
    X = random.standard_normal((20_000, 30)).astype(np.float32)
    rows = Rows(X, np.zeros(len(X)))
    # All of the first thousand rows: ranges with more rows than a group.
    index = np.flatnonzero((random.random(len(X)) < rate) | (np.arange(len(X)) < 1000))
    shape = (len(X),) if n_scores is None else (len(X), n_scores)
    weights = dict(zip(X[:, 0].tolist(), random.standard_normal(shape).astype(np.float32), strict=True))

    def chosen(block):
        return np.array([weights[key] for key in block.X[:, 0].tolist()], np.float32).reshape(len(block.X), *shape[1:])

    taken = rows.take(index, rate)
    assert taken.splits[0] == 0
    assert taken.splits[-1] == len(index)
    total = taken.map_sum(lambda block: block.outer(chosen(block)))
    exact = X[index].astype(float).T @ np.array([weights[key] for key in X[index, 0].tolist()], float)
    assert np.allclose(total, exact, rtol=1e-4, atol=1e-3)
    assert rows.take(index).X.dtype == np.float64


def test_an_empty_sample_in_float32_has_sums_of_zero():
    rows = Rows(np.ones((300, 2), np.float32), np.zeros(300)).take(np.array([], dtype=np.int64), 0.5)
    assert clipped_outer_sum(rows, ones_in_float32, 1.0).value.tolist() == [0.0, 0.0]


def test_products_are_computed_column_by_column_where_a_place_matters(monkeypatch):
    random = np.random.default_rng(4)
    X, coef = random.standard_normal((70, 6)), random.standard_normal((6, 3))
    fast = products_by_row(X, coef)
    monkeypatch.setattr(module, "_same_in_every_place", lambda *shape: False)
    assert np.allclose(products_by_row(X, coef), fast, rtol=1e-12)


def test_a_library_that_rounds_by_place_is_noticed(monkeypatch):
    module._same_in_every_place.cache_clear()
    original = module._part_products

    def by_place(rows, coef):
        products = original(rows, coef)
        products[-1] = np.nextafter(products[-1], np.inf)
        return products

    monkeypatch.setattr(module, "_part_products", by_place)
    assert not module._same_in_every_place(6, 3, np.dtype(float))
    module._same_in_every_place.cache_clear()


@pytest.mark.parametrize("part", [np.s_[:, ::2], np.s_[::-1], np.s_[:, :3]])
def test_a_null_row_does_not_change_the_order_of_memory(part):
    table = np.random.default_rng(5).standard_normal((500, 40)).astype(np.float32)
    null = table.copy()
    null[7] = np.nan
    assert Rows(table[part], np.zeros(500)).X.strides == Rows(null[part], np.zeros(500)).X.strides


def test_places_in_a_sample_are_not_fixed():
    assert not Rows(np.ones((4, 2)), np.zeros(4)).take(np.array([1, 2])).fixed_rows
    assert Rows(np.ones((4, 2)), np.zeros(4)).fixed_rows


def test_private_parts_do_not_show_their_cells():
    rows = Rows(np.full((2, 2), 123.0), np.zeros(2))
    assert "123" not in repr(rows._block(0, 2))
    assert "123" not in repr(Part(rows.X, rows.y))


# Rows in blocks


@pytest.fixture(scope="module")
def rows():
    """Rows of three blocks, and their labels."""
    X = np.random.default_rng(3).standard_normal((2 * BLOCK_ROWS + 777, 4))
    return X, X @ [0.2, 0.6, -1.0, 0.0] + 0.3


@pytest.mark.parametrize("n", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
def test_blocks_cover_every_row_once(n):
    rows = np.arange(n)
    parts = [rows[own] for own in block_slices(n)]
    assert np.array_equal(np.concatenate(parts), rows)
    assert all(len(part) == BLOCK_ROWS for part in parts[:-1])


def test_sampled_rows_are_found_in_their_blocks():
    n = 2 * BLOCK_ROWS + 10
    index = np.flatnonzero(np.random.default_rng(0).random(n) < 0.01)
    own = rows_by_block(index, n)
    assert np.array_equal(np.concatenate([k * BLOCK_ROWS + part for k, part in enumerate(own)]), index)
    assert [len(part) for part in rows_by_block(np.array([], dtype=np.int64), n)] == [0, 0, 0]


def kept_rows(X, y, place):
    parts = [Rows(X[own], y[own]) for own in block_slices(len(X))]
    blocks = InMemory(parts, len(X)) if place == "memory" else Spill(0).kept(parts)
    blocks.n_rows = len(X)
    return blocks


@pytest.mark.parametrize("place", ["memory", "file"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_descent_over_blocks_is_that_over_all_rows(rows, place, sampled):
    X, y = rows
    plan = Sampled(Gaussian(5.0), 0.02, 20) if sampled else Repeated(Gaussian(5.0), 20)

    def descent(private):
        run = Ledger(np.inf, 1e-6, random_state=0).start(plan, label="gradient")
        options = {"clip_norm": 1.0, "n_rows": len(X), "step": lambda t: 0.5}
        return private_descent(run, private, SquaredLoss(), np.zeros(X.shape[1]), **options)

    whole, parts = descent(Rows(X, y)), descent(kept_rows(X, y, place))
    assert parts == pytest.approx(whole, abs=1e-9)
    assert np.array_equal(parts, descent(kept_rows(X, y, "memory")))


@pytest.mark.parametrize("place", ["memory", "file"])
def test_statistics_of_blocks_have_the_bounds_of_all_rows(rows, place):
    X, y = rows
    for statistic in (
        lambda private: clipped_outer_sum(private, lambda block: block.y.copy(), 0.7),
        lambda private: clipped_gram(private, 0.7),
    ):
        whole, parts = statistic(Rows(X, y)), statistic(kept_rows(X, y, place))
        assert parts.value == pytest.approx(whole.value, rel=1e-12)
        assert (parts.l2, parts.replaced, parts.unit) == (whole.l2, whole.replaced, whole.unit)


def test_a_block_in_float32_is_refused_where_the_number_of_rows_is_private(rows):
    X, y = rows
    ledger = Ledger(1.0, 1e-6, adjacency="add-remove", random_state=0)
    run = ledger.start(Gaussian(5.0), label="sum")
    total = clipped_outer_sum(
        kept_rows(X.astype(np.float32), y, "memory"), lambda block: np.ones_like(block.X[:, 0]), 1.0
    )
    with pytest.raises(PrivacyError, match="number of rows is public"):
        run.release(total)
