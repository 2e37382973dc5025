"""Cells as numbers, dates and texts, each by itself, without errors and warnings."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import pyarrow
import pytest

from dpadapt.tables import cells
from dpadapt.tables.cells import cell_objects, distinct_texts, parse_days, parse_numbers, parse_text


class Stubborn:
    """A cell that can't be shown."""

    def __str__(self):
        raise RuntimeError("ZEBRA7731")


def test_cells_are_parsed_as_numbers_or_text():
    cells = pd.Series(["1", "2.50", "x", None], dtype=object)
    assert np.array_equal(parse_numbers(cells), [1.0, 2.5, np.nan, np.nan], equal_nan=True)
    assert parse_text(pd.Series([3.0, 2.5, None, " a "], dtype=object)) == ["3", "2.5", "", "a"]
    assert np.isnan(parse_numbers(pd.Series(pd.to_datetime(["2020-01-01"])))).all()


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,250", 1250.0),
        ("1,250,000.5", 1250000.5),
        ("$ 12.50", 12.5),
        ("12%", 12.0),
        ("1'000", 1000.0),
        ("1 000", 1000.0),
        ("1,25", np.nan),
        ("1_000", np.nan),
        ("0x1A", np.nan),
        ("1-2", np.nan),
        ("%", np.nan),
        ("e", np.nan),
        (10**400, np.nan),
        (decimal.Decimal("2.5"), 2.5),
        (np.float32(0.5), 0.5),
        (True, 1.0),
        (datetime.date(2020, 1, 1), np.nan),
        (b"3", np.nan),
        ([3], np.nan),
        (3j, np.nan),
        pytest.param(Stubborn(), np.nan, id="stubborn"),
    ],
    ids=repr,
)
def test_amounts_in_words_and_objects_that_are_no_numbers(cell, number):
    found = parse_numbers(pd.Series([cell, "1"], dtype=object))
    assert np.array_equal(found, [number, 1.0], equal_nan=True)


def test_decimal_commas_are_read_where_the_schema_says_so():
    cells = pd.Series(["1,5", "1.250,75", "3", "", None])
    assert np.array_equal(parse_numbers(cells, ","), [1.5, 1250.75, 3.0, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean", "int8", "float32", "bool", "category", "string"])
def test_every_kind_of_column_has_numbers_and_texts(kind):
    cells = pd.Series([1, 0, 1]).astype(kind)
    texts = {"boolean": ["True", "False", "True"], "bool": ["True", "False", "True"]}
    assert parse_numbers(cells).tolist() == [1, 0, 1]
    assert parse_text(cells) == texts.get(kind, ["1", "0", "1"])


def test_equal_objects_of_different_kinds_have_texts_of_their_own():
    codes, texts = distinct_texts(pd.Series([True, 1, 1.0, "1", Stubborn()], dtype=object))
    assert [texts[code] for code in codes] == ["True", "1", "1", "1", ""]


def of_arrow(*cells, kind) -> "pd.Series":
    return pd.Series(pd.arrays.ArrowExtensionArray(pyarrow.array(cells, kind)))


def test_a_cell_of_arrow_that_can_not_be_read_changes_no_other():
    moments = [0, 86_400_000_000, 9 * 10**18]
    for kind in (pyarrow.timestamp("us"), pyarrow.timestamp("us", "UTC"), pyarrow.timestamp("us", "Europe/Berlin")):
        assert np.array_equal(parse_days(of_arrow(*moments, kind=kind)), [0.0, 1.0, np.nan], equal_nan=True)
    assert parse_text(of_arrow([1], [2], [None], kind=pyarrow.list_(pyarrow.int64())))[:2] == ["[1]", "[2]"]
    codes = pyarrow.array([b"a", b"b", b"\xe9"], pyarrow.binary())
    texts = pyarrow.chunked_array([pyarrow.Array.from_buffers(pyarrow.string(), 3, codes.buffers())])
    for series in (pd.Series(pd.arrays.ArrowExtensionArray(texts)), pd.Series(texts.to_pandas())):
        assert parse_text(series) == ["a", "b", ""]
        assert np.isnan(parse_numbers(series)).all()
        assert np.isnan(parse_days(series)).all()


def test_dates_of_every_kind_are_days():
    moments = ["1970-01-03", "1970-01-03T12:00", None]
    expected = [2.0, 2.5, np.nan]
    native = pd.Series(pd.to_datetime(["1970-01-03", "1970-01-03T12:00", None], format="ISO8601"))
    objects = pd.Series([datetime.date(1970, 1, 3), datetime.datetime(1970, 1, 3, 12), None], dtype=object)
    zoned = native.dt.tz_localize("Europe/Berlin")
    for series in (pd.Series(moments), native, objects, zoned + pd.Timedelta(hours=1)):
        assert np.array_equal(parse_days(series), expected, equal_nan=True)
    assert np.isnan(parse_days(pd.Series([3.0, 4.0]))).all()
    assert np.isnan(parse_days(pd.Series(["today", "now", "2020-13-01", "x"]))).all()
    mixed = pd.Series(["1970-01-03T00:00+02:00", "1970-01-03"])
    assert parse_days(mixed).tolist() == pytest.approx([1 + 22 / 24, 2.0])
    assert parse_days(pd.Series(["03.01.1970", "04.01.1970 junk"]), "%d.%m.%Y").tolist()[0] == 2.0


def test_a_text_that_is_refused_without_pandas_is_no_date_for_pandas_either(monkeypatch):
    random = np.random.default_rng(0)
    dates = ["2020-01-03T10:11", "03.01.2020", "1/3/2020 10:11", "3-Jan-20", "20200103", "-12.5", ".3", "/7", "+2020"]
    texts = ["".join(random.choice(list(date + " ./:-T0"), random.integers(1, 12))) for date in dates * 60] + dates
    quick = [parse_days(pd.Series(texts), form) for form in (cells.ISO, "%d.%m.%Y", "%m/%d/%Y %H:%M", "%d-%b-%y")]
    monkeypatch.setattr(cells, "_may_be_written_as", lambda text, form: True)
    slow = [parse_days(pd.Series(texts), form) for form in (cells.ISO, "%d.%m.%Y", "%m/%d/%Y %H:%M", "%d-%b-%y")]
    assert np.array_equal(quick, slow, equal_nan=True)
    assert np.isfinite(slow).sum() >= 4  # some are dates


def test_amounts_with_a_decimal_comma_may_have_a_sign_around_them():
    cells = pd.Series(["1.250,50 €", "€ 7", "3,5 %", "1,5,5", "EUR 3"])
    assert parse_numbers(cells, ",").tolist()[:3] == [1250.5, 7.0, 3.5]
    assert np.isnan(parse_numbers(cells, ",")[3:]).all()


def test_a_number_that_refuses_to_be_one_is_missing_and_no_error():
    class Refusing(fractions.Fraction):
        def __float__(self):
            raise RuntimeError("ZEBRA7731")

    assert np.array_equal(parse_numbers(pd.Series([Refusing(1, 2), 3], dtype=object)), [np.nan, 3.0], equal_nan=True)


def test_a_gap_in_a_category_of_whole_numbers_leaves_the_others_whole():
    cells = pd.Series(pd.Categorical([2**53 + 1, None, 7]))
    assert cell_objects(cells).tolist()[::2] == [2**53 + 1, 7]
