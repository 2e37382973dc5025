"""A first schema from public rows: every column gets a type, and nothing is refused."""

import datetime

import numpy as np
import pandas as pd
import pytest

from dpadapt.tables import Category, Date, Encoded, Ignored, Number, Schema, Table, check_tables, encode_features, infer


def table(private=False, **columns) -> Table:
    return Table(pd.DataFrame(columns), "t.csv", private)


def column(cells, name="x", **options):
    return infer(table(**{name: cells}), dataset="d", **options).columns[0]


def test_infer_finds_types_ranges_and_categories():
    public = table(
        age=["31", "54.5", "40"],
        code=["3", "1", "2"],
        name=["b", "a", "b"],
        flag=["0", "1", "1"],
        constant=["5", "5", "5"],
        negative=["-2e3", "1", "-5"],
    )
    assert infer(public, dataset="d", categories=("code",)).columns == (
        Number("age", 25.0, 61.0, fill=40.0),
        Category("code", (1, 2, 3), other=True),
        Category("name", ("a", "b"), other=True),
        Number("flag", 0.0, 1.0, (0, 1), fill=1.0),
        Number("constant", 5.0, 6.0, fill=5.0),
        Number("negative", -2600.0, 600.0, (-2000, -5, 1), fill=-5.0),
    )


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        ([0, 5, 10], 0.0, 13.0),
        ([100, 150, 200], 70.0, 230.0),
        ([-3, -2, -1], -3.5, -0.5),
        ([0.001, 0.002, 0.003], 0.0005, 0.0035),
        ([1e15, 1e15 + 1, 1e15 + 3], 1e15, 1e15 + 3),
        ([-1e308, 0.5, 1e308], -1e308, 1e308),
        ([5e-324, 1e-323, 2e-323], 5e-324, 2e-323),
    ],
    ids=str,
)
def test_ranges_have_a_margin_in_round_numbers(cells, low, high):
    found = column([float(cell) for cell in cells])
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_missing_cells_are_filled_by_the_public_median_and_marked():
    found = column(["1", "", "?", "NA", "3", "inf", "10"])
    assert (found.fill, found.missing) == (3.0, True)
    assert column(["a", "", "b", "NA"]) == Category("x", ("a", "b"), other=True, missing=True)
    assert column(["1", "3", "10"]).missing is False


def test_a_column_without_values_is_ignored():
    assert column(["", "NA", None]) == Ignored("x")
    assert infer(table(x=["", None]), dataset="d").notes == ("x: no public row has a value",)


def test_identifiers_are_ignored_and_could_be_the_person_column():
    for name, cells in (
        ("id", [f"p{k}" for k in range(60)]),
        ("number", range(1000, 1060)),
        ("patientId", [k % 55 * 977 for k in range(300)]),
        ("idcode", [k % 55 * 977 for k in range(300)]),
    ):
        found = column(cells, name)
        assert isinstance(found, Ignored), name
        assert "person column" in found.note
    # Amounts that happen to differ, and years, are none.
    assert isinstance(column([k * k * 7919 % 104729 for k in range(60)], "salary"), Number)
    assert isinstance(column(range(1950, 2010), "year"), Number)


def test_whole_numbers_called_codes_are_categories():
    assert isinstance(column([1, 2, 3] * 10, "ind_code"), Category)
    assert isinstance(column([1, 2, 3] * 10, "children"), Number)
    assert isinstance(column(list(range(200)) * 2, "zip code"), Number)


def test_of_many_texts_the_most_frequent_are_listed():
    texts = [f"c{k}" for k in range(40) for _ in range(20)] + [f"r{k}" for k in range(60)]
    found = column(texts)
    assert set(found.values) == {f"c{k}" for k in range(40)}
    assert found.other
    assert "100 different texts: the 40 most frequent" in found.note
    assert len(column([f"c{k}" for k in range(70) for _ in range(20)]).values) == 50
    assert len(column([f"c{k}" for k in range(20)] + ["c0"] * 2000).values) == 20
    assert column([f"t{k // 2}" for k in range(400)]) == Ignored("x")
    assert len(column([f"t{k // 2}" for k in range(400)], categories=("x",)).values) == 50


@pytest.mark.parametrize(
    ("form", "found"),
    [
        ("%Y-%m-%d", "ISO8601"),
        ("%Y-%m-%d %H:%M:%S", "ISO8601"),
        ("%d.%m.%Y", "%d.%m.%Y"),
        ("%m/%d/%Y", "%m/%d/%Y"),
        ("%d/%m/%Y", "%d/%m/%Y"),
        ("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M"),
        ("%d-%b-%Y", "%d-%b-%Y"),
    ],
)
def test_dates_are_recognised_in_common_formats(form, found):
    days = pd.date_range("2020-01-01", "2021-03-31", freq="D")
    date = column([day.strftime(form) for day in days] + [""])
    assert date == Date(
        "x",
        datetime.date(2020, 1, 1),
        datetime.date(2021, 3, 31),
        ("month", "weekday"),
        datetime.date(2020, 8, 15),
        True,
        found,
    )


def test_dates_of_data_frames_keep_their_times_and_few_months_have_no_features():
    moments = pd.date_range("2020-01-01", periods=60, freq="17h")
    date = column(moments)
    assert date.parts == ("weekday",)
    assert date.low == datetime.datetime(2020, 1, 1)
    assert column([moment.date() for moment in pd.date_range("2020-01-01", periods=60)]).missing is False
    assert isinstance(column(["2016", "2017", "2018"]), Number)


def test_decimal_commas_and_thousands_are_recognised():
    assert column(["1,5", "2,25", "1.250,75"]).decimal == ","
    found = column([f"{k},{k:03d}.50" for k in range(1, 30)])
    assert (found.decimal, found.fill) == (".", 15015.5)


def test_a_few_texts_among_many_amounts_are_missing_cells():
    found = column([str(k / 7) for k in range(100)] + ["unknown"])
    assert isinstance(found, Number)
    assert found.missing
    assert isinstance(column(["1", "2", "A"] * 40), Category)
    # Always the same words, however often.
    cells = [str(k / 7) for k in range(60)] + ["none", "-"] * 60
    assert isinstance(column(cells), Number)
    schema = infer(table(x=cells), dataset="d")
    assert encode_features(table(x=cells), schema)[:, 1].sum() == 120


def test_none_is_a_category_and_a_class_among_texts():
    found = column(["none", "mild", "severe", "None"] * 5)
    assert found == Category("x", ("mild", "none", "severe"), other=True, missing=True)


def test_infer_uses_the_types_of_columns():
    frame = pd.DataFrame({"flag": [True, False] * 30, "x": np.arange(60.0) / 7})
    frame["kind"] = pd.Categorical(["a", "b"] * 30)
    columns = infer(Table(frame, "t.parquet", False), dataset="d").columns
    assert columns[0] == Category("flag", ("False", "True"), other=True)
    assert isinstance(columns[1], Number)
    assert columns[2] == Category("kind", ("a", "b"), other=True)


def test_infer_refuses_private_rows():
    with pytest.raises(ValueError, match="public data only"):
        infer(table(private=True, age=["1"]), dataset="d")


def test_infer_uses_encoders_and_refuses_unknown_columns():
    public = table(review=["good", "bad"], age=["1", "2"])
    assert infer(public, dataset="d", encoders={"review": "wordllama"}).columns[0] == Encoded("review", "wordllama")
    with pytest.raises(ValueError, match="--encode: there is no column 'picture'"):
        infer(public, dataset="d", encoders={"picture": "wordllama"})
    with pytest.raises(ValueError, match="--category: there is no column 'code'"):
        infer(public, dataset="d", categories=("code",))


def test_frames_of_polars_and_arrow_give_the_same_schema():
    frame = pd.DataFrame(
        {"age": [31.0, None, 54.0], "plan": ["a", None, "b"], "seen": pd.to_datetime(["2020-01-01"] * 3)}
    )
    expected = Schema.infer(frame, dataset="d")
    pyarrow = pytest.importorskip("pyarrow")
    assert Schema.infer(pyarrow.Table.from_pandas(frame), dataset="d") == expected
    polars = pytest.importorskip("polars")
    assert Schema.infer(polars.from_pandas(frame), dataset="d") == expected


@pytest.mark.parametrize("missing", [[], ["", "NA"]], ids=["filled", "gaps"])
def test_digits_with_leading_zeros_are_codes_and_said_to_be(missing):
    frame = pd.DataFrame(
        {"zip": ["02134", "90210", "00123"] * 20 + missing, "cost": np.arange(60 + len(missing)) * 1.5}
    )
    schema = Schema.infer(frame)
    assert schema.column("zip").values == ("00123", "02134", "90210")
    assert schema.column("zip").missing == bool(missing)
    assert [note for note in schema.notes if note.startswith("zip: leading zeros: codes, not numbers")]
    # Plain numbers, "0" and decimals below 1 among them, stay numbers.
    plain = pd.DataFrame({"a": [str(k) for k in range(60)], "b": [f"0.{k}" for k in range(1, 61)]})
    assert [type(column) for column in Schema.infer(plain).columns] == [Ignored, Number]


def test_codes_that_differ_in_nearly_every_row_are_ignored_as_identifiers():
    schema = Schema.infer(pd.DataFrame({"case": [f"{k:06d}" for k in range(300)], "cost": np.arange(300) * 1.5}))
    assert isinstance(schema.column("case"), Ignored)
    assert "leading zeros: codes, not numbers; a different text in every row" in schema.notes[0]


@pytest.mark.parametrize(
    ("odd", "words", "fill"),
    [
        ("<5", "'<5' is read as missing, because its number is not known", 50.0),
        (">= 100", "'>= 100' is read as missing", 50.0),
        ("1,234", "'1,234' is read as 1234: if it is a decimal comma", 50.5),
        ("12%", "'12%' is read as 12", 49.5),
        ("€7", "'€7' is read as 7", 49.5),
        ("haemolysed", "'haemolysed' is no number and is read as missing", 50.0),
    ],
)
def test_a_form_among_public_numbers_is_named_with_how_it_is_read(odd, words, fill):
    frame = pd.DataFrame({"lab": [str(k) for k in range(101)] + [odd], "cost": np.arange(102) * 1.5})
    schema = Schema.infer(frame)
    column = schema.column("lab")
    assert isinstance(column, Number)
    assert (column.fill, column.missing) == (fill, fill == 50.0)
    assert len(schema.notes) == 1
    assert schema.notes[0].startswith(f"lab: {words}")
    found = check_tables(frame, schema, label="cost")
    assert [finding.words for finding in found.findings] == [f"column 'lab': {column.note}"]
    # Of plain numbers nothing is said.
    assert not Schema.infer(frame[:-1].assign(lab=[f"{k}.5" for k in range(101)])).notes


def test_many_limits_among_numbers_leave_a_number():
    cells = [f"{k}.5" for k in range(60)] + ["<1", "<2", "<5", ">60", ">100"] * 8
    assert isinstance(Schema.infer(pd.DataFrame({"lab": cells})).column("lab"), Number)


def test_forms_of_private_and_new_cells_are_read_alike_and_nothing_is_said(recwarn):
    schema = Schema("d", (Number("lab", 0, 100, fill=50, missing=True),))
    encoded = []
    for private in (True, False):
        frame = pd.DataFrame({"lab": ["<5", "12%", "€50", "100"]})
        encoded.append(encode_features(Table(frame, "a.csv", private=private), schema))
    assert np.array_equal(*encoded)
    assert encoded[0].tolist() == [[0.0, 1.0], [-0.76, 0.0], [0.0, 0.0], [1.0, 0.0]]
    assert not recwarn
