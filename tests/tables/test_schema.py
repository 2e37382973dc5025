"""Schemas: inferred from public tables only, and unchanged after a round trip through TOML."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadapt.tables import Category, Encoded, Ignored, Number, Schema, Table, infer, read_schema, to_toml
from dpadapt.tables.schema import parse_numbers, parse_text


def table(private=False, **columns) -> Table:
    return Table(pd.DataFrame(columns), "t.csv", private)


def test_infer_finds_types_ranges_and_categories():
    public = table(
        age=["31", "54.5"],
        code=["3", "1"],
        name=["b", "a"],
        flag=["0", "1"],
        constant=["5", "5"],
        negative=["-2e3", "1"],
    )
    assert infer(public, dataset="d", categories=("code",)).columns == (
        Number("age", 31.0, 54.5),
        Category("code", (1, 3)),
        Category("name", ("a", "b")),
        Number("flag", 0.0, 1.0, (0, 1)),
        Number("constant", 5.0, 6.0),
        Number("negative", -2000.0, 1.0, (-2000, 1)),
    )


def test_infer_ignores_identifiers_and_uses_the_types_of_parquet_columns():
    frame = pd.DataFrame({"id": [f"p{k}" for k in range(60)], "flag": [True, False] * 30, "x": np.arange(60.0)})
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60), unit="D")
    frame["kind"] = pd.Categorical(["a", "b"] * 30)
    columns = infer(Table(frame, "t.parquet", False), dataset="d").columns
    assert columns == (
        Ignored("id"),
        Category("flag", ("False", "True")),
        Number("x", 0.0, 59.0),
        Ignored("when"),
        Category("kind", ("a", "b")),
    )


def test_infer_refuses_private_rows():
    with pytest.raises(ValueError, match="public data only"):
        infer(table(private=True, age=["1"]), dataset="d")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
texts = st.lists(names.map(str.strip).filter(bool), min_size=1, max_size=4, unique=True).map(tuple)
wholes = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=4, unique=True).map(tuple)
ranges = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda r: r[0] < r[1])
column = st.one_of(
    st.builds(lambda n, r, v: Number(n, *r, v), names, ranges, st.one_of(st.just(()), wholes)),
    st.builds(Category, names, st.one_of(texts, wholes)),
    st.builds(Ignored, names),
)


@given(columns=st.lists(column, min_size=1, max_size=5, unique_by=lambda c: c.name), name=names.filter(str.strip))
def test_every_schema_is_unchanged_after_writing_and_reading_toml(tmp_path_factory, columns, name):
    schema = Schema(name.strip(), tuple(columns))
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_bytes(to_toml(schema, origin="a\nb.csv").encode())
    assert read_schema(path) == schema


def test_infer_uses_encoders_and_refuses_unknown_columns():
    public = table(review=["good", "bad"], age=["1", "2"])
    assert infer(public, dataset="d", encoders={"review": "wordllama"}).columns[0] == Encoded("review", "wordllama")
    with pytest.raises(ValueError, match="--encode: there is no column 'picture'"):
        infer(public, dataset="d", encoders={"picture": "wordllama"})
    with pytest.raises(ValueError, match="--category: there is no column 'code'"):
        infer(public, dataset="d", categories=("code",))


def test_labels_need_a_range_for_regression_and_values_for_classification():
    schema = Schema("d", (Number("cost", 0, 9), Number("ill", 0, 1, (0, 1)), Category("one", ("a",)), Ignored("id")))
    assert schema.bounds("cost") == (0, 9)
    assert schema.classes("ill") == (0, 1)
    with pytest.raises(ValueError, match="'one' in the schema is not number"):
        schema.bounds("one")
    for label, problem in (("cost", "no values"), ("id", "no values"), ("one", "one value")):
        with pytest.raises(ValueError, match=f"lists {problem} for the label '{label}'"):
            schema.classes(label)
    with pytest.raises(ValueError, match="there is no column 'weight' in the schema"):
        schema.classes("weight")


def test_cells_are_parsed_as_numbers_or_text():
    cells = pd.Series(["1", "2.50", "x", None], dtype=object)
    assert np.array_equal(parse_numbers(cells), [1.0, 2.5, np.nan, np.nan], equal_nan=True)
    assert parse_text(pd.Series([3.0, 2.5, None, " a "], dtype=object)) == ["3", "2.5", "", "a"]
    assert np.isnan(parse_numbers(pd.Series(pd.to_datetime(["2020-01-01"])))).all()


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "9" * 50_000,
        'dataset = "d"\ncolumns = 3',
        'dataset = "d"\n[columns.a]\ntype = ["number"]',
        'dataset = "d"\n[columns.a]\ntype = {b = 1}',
        'dataset = "d"\n[columns.a]\ntype = "number"\nlow = [[[1]]]\nhigh = 1',
        'dataset = "d"\n[columns.a]\ntype = "number"\nlow = 1979-05-27\nhigh = 1',
        'dataset = "d"\n[columns.a]\ntype = "category"\nvalues = [[1], [2]]',
        'dataset = "d"\n[columns.a]\ntype = "encoded"\nencoder = 3',
    ],
    ids=lambda text: text[:40],
)
def test_any_other_toml_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(ValueError, match=r"schema\.toml") as caught:
        read_schema(tmp_path / "schema.toml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("fields", [None, 3, "text", ["dataset", "columns"]], ids=repr)
def test_a_schema_that_is_no_table_is_refused(fields):
    with pytest.raises(ValueError, match="expected a name and columns"):
        Schema.from_dict(fields)
