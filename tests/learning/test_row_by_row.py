"""Functions on private rows: mixing is found in batches of any size, and nothing is written.

`tests/papers/reweigh/test_row_by_row.py` tries many more functions, through a fit.
"""

import math

import numpy as np
import pandas as pd
import pytest

from dpadapt.learning.row_by_row import FailsOnPrivateRows, on_private_rows, require_row_by_row


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


@pytest.mark.parametrize("odd", ["unknown", 0.5, None, math.nan, 1 + 0j, pd.Timestamp("2024-05-31")])
@pytest.mark.parametrize("place", [0, 7, 19])
def test_no_row_decides_on_the_type_of_the_results_of_others(odd, place):
    """A model answers 1, and `odd` for a row above 100: in an array with it, all other answers have another type."""
    answer = lambda rows: [odd if row[0] > 100 else 1 for row in rows]  # noqa: E731
    rows = np.zeros((20, 2))
    assert on_private_rows(answer, rows, "model").tolist() == [1] * 20
    rows[place] = 1000.0
    for options in ({}, {"like": np.array([1])}):
        with pytest.raises(FailsOnPrivateRows, match="another type"):
            on_private_rows(answer, rows, "model", **options)


def test_texts_of_other_widths_have_one_type():
    answer = lambda rows: ["unknown" if row[0] > 100 else "a" for row in rows]  # noqa: E731
    rows = np.zeros((20, 2))
    rows[7] = 1000.0
    assert on_private_rows(answer, rows, "model")[6:9].tolist() == ["a", "unknown", "a"]


@pytest.mark.parametrize("missing", [math.nan, None, pd.NA, pd.NaT])
def test_a_missing_answer_is_no_sign_of_mixing(missing):
    answer = lambda rows: np.array([missing if row[0] > 100 else 1 for row in rows], dtype=object)  # noqa: E731
    rows = np.zeros((20, 2))
    rows[0] = 1000.0
    assert len(on_private_rows(answer, rows, "model")) == 20


def test_rows_that_are_left_out_are_a_failure_on_private_rows():
    rows = np.zeros((20, 2))
    rows[7] = 1000.0
    with pytest.raises(FailsOnPrivateRows, match="one result per row"):
        on_private_rows(lambda rows: [1 for row in rows if row[0] < 100], rows, "model")
