"""Shares of rows: one id in several spellings, none, weights; sums of at most 1, refusals without a value."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt.inputs.persons import mean_factor, person_shares, weighted, weights_assumption
from dpadapt.rows import row_shares


@pytest.mark.parametrize(
    "ids",
    [
        [17, 17, 4, 4, 4],
        [17.0, 17.0, 4.0, 4.0, 4.0],
        np.array([17, 17, 4, 4, 4], dtype=np.uint8),
        ["17", " 17.0", "4", "4.", 4],
        pd.Series([17, 17, 4, 4, 4], dtype="Int64"),
        pd.Categorical(["a", "a", "b", "b", "b"]),
        np.array([[17], [17], [4], [4], [4]]),
        pd.DataFrame({"id": [17, 17, 4, 4, 4]}),
        ["+17", "\uff11\uff17.0", "4", "4\u200b", "4"],
        [b"17", "17", b"4", "4", 4.0],
        [0.0, -0.0, "a", "a", "a"],
        [0, "-0", 1, True, "1"],
        (i for i in (17, "17", 4, 4.0, "4")),
    ],
)
def test_one_id_has_many_spellings(ids):
    shares = person_shares(ids, 5)
    assert shares.values == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3], rel=1e-12)
    assert (shares.unit, shares.n_units) == ("person", 2)


@pytest.mark.parametrize(
    "missing",
    [
        *(None, np.nan, "", "  ", pd.NA, pd.NaT, "nan", "NaN", "None", "<NA>", b"", Decimal("nan"), np.float32("nan")),
        *"NULL none n/a NA ? . inf #N/A #n/a #NA #REF! #DIV/0! #VALUE! #NAME? #NUM! #NULL! #SPILL! #CALC!".split(),
        *"#GETTING_DATA #FIELD! #BLOCKED! #CONNECT! #BUSY! #UNKNOWN! #EXTERNAL! #PYTHON! #ERROR! Err:502".split(),
        *"#NV #WERT! #BEZUG! #¡VALOR! #¿NOMBRE?".split(),
    ],
)
def test_a_row_without_an_id_counts_nothing(missing):
    shares = person_shares(["a", missing, "a", missing], 4)
    assert shares.values == pytest.approx([0.5, 0.0, 0.5, 0.0])
    assert shares.n_units == 1


def test_nobody_has_an_id():
    shares = person_shares([None, None], 2)
    assert shares.values.tolist() == [0.0, 0.0]
    assert shares.n_units == 0


@settings(deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_the_shares_of_a_person_add_up_to_at_most_one(sizes):
    shares = person_shares(np.repeat(np.arange(len(sizes)), sizes), sum(sizes)).values
    start = 0
    for size in sizes:
        own = shares[start : start + size]
        start += size
        assert 1 - 1e-12 < math.fsum(own) <= 1


@pytest.mark.parametrize(
    "ids",
    [
        "ZEBRA",
        ["ZEBRA"],
        5,
        {"ZEBRA": 1, "x": 2, "y": 3},
        {"ZEBRA", "x", "y"},
        np.full((3, 2), "ZEBRA"),
        np.ma.masked_array(["ZEBRA", "x", "y"], [True, False, False]),
    ],
)
def test_a_refusal_shows_no_id_and_no_number_of_rows(ids):
    with pytest.raises(ValueError, match="persons must hold the id") as failure:
        person_shares(ids, 3)
    assert failure.value.__context__ is None
    assert "ZEBRA" not in str(failure.value)
    assert "3" not in str(failure.value)


class Hostile:
    """An id whose methods raise, and quote it."""

    def _refuse(self, *others):
        raise RuntimeError("ZEBRA")

    __str__ = __eq__ = __hash__ = __bool__ = _refuse


@pytest.mark.parametrize(
    "ids",
    [
        np.array([2.0**53, 1.0, 1.0]),
        np.array([math.inf, 1.0, 1.0]),
        [-math.inf, "1", 1],
        [1e15, 1, 1],
        [np.float32(2**24), 1, 1],
        pd.Series([2**24, 1, 1], dtype="Float32"),
        pd.Series([2**24, 1, 1], dtype=pd.ArrowDtype(pa.float32())),
        pd.Series([2**24, 1, 1], dtype="float32").astype("category"),
        pa.chunked_array([pa.array([2**24, 1, 1], pa.float32())]),
        pa.array(np.array([2**11, 1, 1], dtype=np.float16)),
        np.array([2.0**24, 1.0, 1.0], dtype=np.float32),
        [10**5000, 1, 1],
        [Fraction(10**400), 1, 1],
        [Hostile(), 1, 1],
        pa.array([b"\xff", b"1", b"1"], pa.binary()).view(pa.string()),
    ],
)
def test_an_id_that_is_inexact_or_cannot_be_read_is_none_and_moves_no_other(ids):
    """Two persons may have become one; and a refusal because of one id would tell of its row."""
    shares = person_shares(ids, 3)
    assert shares.values == pytest.approx([0.0, 0.5, 0.5])
    assert (shares.codes[0], shares.n_units) == (-1, 1)


def test_one_missing_id_changes_no_other_id():
    """As an array, whole numbers beside a missing one become decimal numbers, and large ids become equal."""
    ids = [2**60 + i for i in range(5)]
    for make in (pa.array, pa.chunked_array, lambda values: pd.Series(values, dtype="Int64"), list):
        arrays = [ids, [*ids, None]] if make is not pa.chunked_array else [[ids], [[*ids, None]]]
        whole, more = (person_shares(make(array), n) for array, n in zip(arrays, (5, 6), strict=True))
        assert (whole.n_units, more.n_units) == (5, 5)


def test_ids_that_only_look_alike_are_different():
    assert person_shares(["017", "17", "1.5", 1.25, "a", "A"], 6).n_units == 6


def test_rows_that_are_absent_count_nothing():
    shares = row_shares(np.array([True, False]))
    assert (shares.values.tolist(), shares.unit, shares.n_units) == ([1.0, 0.0], "row", 2)
    assert shares.take([1]).values.tolist() == [0.0]


@pytest.mark.parametrize("ids", [["b", "a", None, "b", "a"], [None] * 5, [1, 2, 3, 4, 5]])
def test_the_part_of_each_person_is_the_sum_of_share_times_row(ids):
    shares = person_shares(ids, 5)
    rows = np.arange(10.0).reshape(5, 2)
    parts = shares.by_unit(rows)
    assert parts.shape == (shares.n_units, 2)
    for name in range(shares.n_units):
        own = shares.codes == name
        assert parts[name] == pytest.approx(rows[own].mean(axis=0))
    assert shares.where(np.zeros(5, dtype=bool)).n_units == shares.n_units
    assert not shares.where(np.zeros(5, dtype=bool)).values.any()
    whole = shares.of_units()
    assert (whole.unit, whole.n_units, len(whole.values)) == ("person", shares.n_units, shares.n_units)
    assert (whole.values <= 1).all()


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
