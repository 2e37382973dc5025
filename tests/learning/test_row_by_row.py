"""Functions on private rows: mixing is found in batches of any size, and nothing is written.

`tests/papers/reweigh/test_row_by_row.py` tries many more functions, through a fit.
"""

import numpy as np
import pytest

from dpadapt.learning.row_by_row import on_private_rows, require_row_by_row


def doubled_in_place(X):
    X *= 2.0
    return X


def test_a_map_that_mixes_only_as_many_rows_as_there_are_is_refused():
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    mixer = lambda rows: rows - rows.mean(axis=0) if len(rows) > 1000 else rows  # noqa: E731
    require_row_by_row(mixer, 3, X.dtype, "row_map", axes=2)  # no batch of the trial is as large
    with pytest.raises(ValueError, match="row_map mixes rows"):
        on_private_rows(mixer, X, "row_map", axes=2)


def test_a_map_cannot_write_into_the_private_rows():
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    before = X.copy()
    with pytest.raises(ValueError, match=r"fails on private rows \(ValueError\)"):
        on_private_rows(doubled_in_place, X, "row_map", axes=2)
    assert np.array_equal(X, before)
