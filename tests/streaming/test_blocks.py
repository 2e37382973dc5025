"""Blocks: their borders, and sums that do not depend on where they are kept."""

import numpy as np
import pytest

from dpadapt import Ledger, PrivacyError
from dpadapt.learning.descent import private_descent
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms import Gaussian
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from dpadapt.rows import Rows
from dpadapt.streaming.blocks import BLOCK_ROWS, InMemory, block_slices, rows_by_block
from dpadapt.streaming.spill import Spill


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
    X, y, *_ = rows
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
    X, y, *_ = rows
    for statistic in (
        lambda private: clipped_outer_sum(private, lambda block: block.y.copy(), 0.7),
        lambda private: clipped_gram(private, 0.7),
    ):
        whole, parts = statistic(Rows(X, y)), statistic(kept_rows(X, y, place))
        assert parts.value == pytest.approx(whole.value, rel=1e-12)
        assert (parts.l2, parts.replaced, parts.unit) == (whole.l2, whole.replaced, whole.unit)


def test_a_block_in_float32_is_refused_where_the_number_of_rows_is_private(rows):
    X, y, *_ = rows
    ledger = Ledger(1.0, 1e-6, adjacency="add-remove", random_state=0)
    run = ledger.start(Gaussian(5.0), label="sum")
    total = clipped_outer_sum(
        kept_rows(X.astype(np.float32), y, "memory"), lambda block: np.ones_like(block.X[:, 0]), 1.0
    )
    with pytest.raises(PrivacyError, match="number of rows is public"):
        run.release(total)
