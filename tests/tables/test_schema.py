"""Schemas, and tables encoded by them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpadapt.tables import (
    Category,
    Ignored,
    Number,
    Schema,
    Table,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    infer,
    read_schema,
    read_table,
    to_toml,
)

SCHEMA = Schema("d", (Number("age", 0, 100), Category("plan", ("free", "paid")), Ignored("id"), Number("y", 0, 10)))


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


def test_infer_ignores_identifiers_and_takes_typed_columns():
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


def test_a_schema_of_private_rows_is_refused():
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
def test_any_schema_survives_toml(tmp_path_factory, columns, name):
    schema = Schema(name.strip(), tuple(columns))
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_bytes(to_toml(schema, origin="a\nb.csv").encode())
    assert read_schema(path) == schema


@example([0.0], (0.0, 5e-324))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), ranges)
def test_encoded_numbers_lie_in_the_unit_interval_whatever_the_rows(values, bounds):
    schema = Schema("d", (Number("x", *bounds),))
    X = encode_features(table(x=np.array(values)), schema)
    assert X.shape == (len(values), 1)
    assert (np.abs(X) <= 1).all()


def test_one_row_changes_only_its_own_encoding():
    rows = {"age": ["10", "20", "30"], "plan": ["free", "paid", "free"], "y": ["1", "2", "3"]}
    before = encode_features(table(**rows), SCHEMA, label="y")
    rows["age"][1], rows["plan"][1] = "99999", "free"
    after = encode_features(table(**rows), SCHEMA, label="y")
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert not np.array_equal(before[1], after[1])


def test_features_follow_the_schema_not_the_file():
    shuffled = table(y=["1"], plan=["paid"], id=["p"], age=["50"])
    check_columns(shuffled, SCHEMA, label="y")
    assert feature_names(SCHEMA, "y") == ["age", "plan = free", "plan = paid"]
    assert np.array_equal(encode_features(shuffled, SCHEMA, label="y"), [[0.0, 0.0, 1.0]])


@pytest.mark.parametrize("cells", [["1", "2"], ["1.0", "02"], [1, 2], [1.0, 2.0], pd.Categorical([1, 2])], ids=str)
def test_whole_number_codes_match_however_they_are_written(cells):
    schema = Schema("d", (Category("c", (1, 2)), Number("y", 0, 1)))
    assert np.array_equal(encode_features(table(c=cells), schema, label="y"), np.eye(2))


def test_labels_keep_the_type_of_the_declared_values():
    schema = Schema("d", (Number("n", 0, 1, (0, 1)), Category("t", ("no", "yes"))))
    data = table(n=["1", "0"], t=["yes", " no "])
    assert encode_labels(data, schema, label="n", task="classification").tolist() == [1, 0]
    assert encode_labels(data, schema, label="t", task="classification").tolist() == ["yes", "no"]


def test_a_schema_without_features_is_refused():
    with pytest.raises(ValueError, match="no feature columns"):
        encode_features(table(y=["1"]), Schema("d", (Number("y", 0, 1),)), label="y")


def test_a_byte_order_mark_and_spaces_are_no_part_of_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfage , plan\r\n 31, free \r\n")
    read = read_table(path, private=True)
    assert list(read.frame.columns) == ["age", "plan"]
    assert np.array_equal(encode_features(read, Schema("d", SCHEMA.columns[:2])), [[-0.38, 1.0, 0.0]])


def test_a_row_shorter_than_the_header_has_a_missing_cell(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,plan\n31,free\n31\n")
    with pytest.raises(ValueError, match="'plan' holds missing"):
        encode_features(read_table(path, private=True), Schema("d", SCHEMA.columns[:2]))


def test_a_table_shows_nothing_of_its_rows():
    assert repr(table(private=True, age=["31"])) == "Table(t.csv)"
