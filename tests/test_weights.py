"""Sample weights: factors between 0 and 1, silence about bad weights, refusals without a value."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt.persons import person_shares, row_shares
from dpadapt.weights import mean_factor, weighted, weights_assumption

ROWS = row_shares(np.ones(4, dtype=bool))


@pytest.mark.parametrize(
    "weights",
    [
        [1, 4, 8, 0],
        (1.0, 4.0, 9e300, 0.0),
        np.array([1, 4, 5, 0], dtype=np.uint8),
        pd.Series([1.0, 4.0, 4.5, 0.0], index=[9, 8, 7, 6]),
        pl.Series([1, 4, 4, 0]),
        [1, 4, 4, -3],
        [1, 4, 4, math.nan],
        [1, 4, 4, math.inf],
        [1, 4, 4, -math.inf],
        [1, 4, 4, None],
        [1, "4", 4, 10**400],
        [True, "4", 4, "nan"],
        np.ma.masked_array([1, 4, 4, 4], [False, False, False, True]),
    ],
)
def test_a_weight_becomes_a_factor_between_0_and_1(weights):
    shares = weighted(ROWS, weights, max_weight=4.0)
    assert shares.values == pytest.approx([0.25, 1.0, 1.0, 0.0])
    assert (shares.unit, shares.n_units, shares.counted) == ("row", 4, 1.0)


@pytest.mark.parametrize("others", [[0.0, 1.0, 2.0], [4.0, 1e9, 2.0], [math.nan, -1.0, 0.5]])
def test_the_factor_of_a_row_depends_on_its_own_weight_alone(others):
    assert weighted(ROWS, [1.0, *others], max_weight=4.0).values[0] == 0.25


def test_rows_that_count_nothing_still_do():
    assert weighted(ROWS.where(np.array([True, False, True, True])), [3, 3, 3, 3], max_weight=3.0).values[1] == 0.0


@settings(deadline=None, derandomize=True)
@given(
    weights=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30),
    most=st.floats(1e-60, 1e60),
    n_persons=st.integers(1, 4),
)
def test_the_shares_of_a_person_add_up_to_at_most_one_with_any_weights(weights, most, n_persons):
    ids = np.arange(len(weights)) % n_persons
    shares = weighted(person_shares(ids, len(ids)), weights, max_weight=most)
    assert (shares.values >= 0).all()
    for person in range(n_persons):
        assert math.fsum(shares.values[ids == person]) <= 1


@pytest.mark.parametrize(
    "weights",
    [
        "ZEBRA",
        ["ZEBRA", 1, 2, 3],
        [7, 7, 7],
        7,
        np.ones((4, 2)),
        np.ones((4, 1)),
        np.array(["2020-01-01"] * 4, dtype="datetime64[D]"),
        np.array([1j, 1, 1, 1]),
        [object()] * 4,
    ],
)
def test_what_are_no_weights_is_refused_without_a_value(weights):
    with pytest.raises(ValueError, match="sample_weight must hold one number for each private row") as failure:
        weighted(ROWS, weights, max_weight=4.0)
    assert failure.value.__context__ is None
    assert "ZEBRA" not in str(failure.value)
    assert "4" not in str(failure.value)


def test_the_largest_weight_must_be_public():
    with pytest.raises(ValueError, match="max_weight must be given with sample_weight"):
        weighted(ROWS, [1, 2, 3, 4], max_weight=None)
    for bad in (0.0, -1.0, math.inf, math.nan, "4", True):
        with pytest.raises(ValueError, match="max_weight must be a positive number"):
            weighted(ROWS, [1, 2, 3, 4], max_weight=bad)
        with pytest.raises(ValueError, match="mean_weight must be a positive number"):
            mean_factor(4.0, bad)
    with pytest.raises(ValueError, match="mean_weight must be at most max_weight"):
        mean_factor(4.0, 5.0)


def test_public_numbers_and_no_others_are_on_the_receipt():
    assert weighted(ROWS, [1, 2, 3, 4], max_weight=4.0, mean_weight=1.0).counted == 0.25
    assert "10, and their mean, 2.5;" in weights_assumption(10.0, 2.5)
    assert "mean" not in weights_assumption(10.0, None)
