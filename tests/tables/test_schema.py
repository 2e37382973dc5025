"""Schemas: unchanged after a round trip through TOML, and refused in one line where they are wrong."""

import datetime
import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadapt.tables import Category, Date, Ignored, Number, Schema, read_schema, to_toml
from dpadapt.tables.schema import days_of

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
texts = st.lists(names.map(str.strip).filter(bool), min_size=1, max_size=4, unique=True).map(tuple)
wholes = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=4, unique=True).map(tuple)
ranges = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda r: r[0] < r[1])
fills = st.one_of(st.none(), st.floats(-1e300, 1e300))
moments = st.one_of(st.dates(), st.datetimes(timezones=st.none()).map(lambda moment: moment.replace(microsecond=0)))
spans = st.tuples(moments, moments).filter(lambda r: days_of(r[0]) < days_of(r[1]))
parts = st.sampled_from([(), ("month",), ("weekday",), ("month", "weekday")])
column = st.one_of(
    st.builds(
        lambda n, r, v, f, m, d: Number(n, *r, v, f, m, d),
        names,
        ranges,
        st.one_of(st.just(()), wholes),
        fills,
        st.booleans(),
        st.sampled_from(".,"),
    ),
    st.builds(Category, names, st.one_of(texts, wholes), st.booleans(), st.booleans()),
    st.builds(
        lambda n, r, p, f, m, form: Date(n, *r, p, f, m, form),
        names,
        spans,
        parts,
        st.one_of(st.none(), moments),
        st.booleans(),
        st.sampled_from(["ISO8601", "%d.%m.%Y"]),
    ),
    st.builds(Ignored, names, names),
)


@given(columns=st.lists(column, min_size=1, max_size=5, unique_by=lambda c: c.name), name=names.filter(str.strip))
def test_every_schema_is_unchanged_after_writing_and_reading_toml(tmp_path_factory, columns, name):
    schema = Schema(name.strip(), tuple(columns))
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_bytes(to_toml(schema, origin="a\nb.csv").encode())
    assert read_schema(path) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


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


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "9" * 50_000,
        "dataset = ",
        'dataset = "d"',
        'dataset = "d"\nrange = 3',
        'dataset = 3\n[columns.a]\ntype = "number"\nlow = 0\nhigh = 1',
        'dataset = "d"\n[columns]\na = 3',
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


OLD = """
dataset = "patients"
[columns."age"]
type = "number"
low = 18
high = 99
[columns."plan"]
type = "category"
values = ["free", "paid"]
[columns."id"]
type = "ignore"
"""


@pytest.mark.parametrize("kind", ["ignore", "category", "encoded", "date"])
def test_a_type_may_be_changed_without_removing_the_other_keys(tmp_path, kind):
    further = 'values = [1, 2]\nencoder = "wordllama"\nfill = 20\nmissing = true\n'
    text = OLD.replace('type = "number"', f'type = "{kind}"\n{further}')
    if kind == "date":
        text = text.replace("low = 18\nhigh = 99", "low = 2020-01-01\nhigh = 2021-01-01").replace("fill = 20", "")
    (tmp_path / "schema.toml").write_text(text)
    assert type(read_schema(tmp_path / "schema.toml").columns[0]).__name__.lower().startswith(kind[:5])


def test_a_schema_is_made_from_a_frame_and_written_with_its_notes(tmp_path):
    frame = pd.DataFrame({"id": range(60), "age": [20.5, None, 31] * 20, "empty": [None] * 60})
    schema = Schema.infer(frame, dataset="patients")
    schema.write(tmp_path / "schema.toml")
    text = (tmp_path / "schema.toml").read_text(encoding="utf-8")
    assert '# looks like an identifier; could be the person column\n[columns."id"]' in text
    assert "# no public row has a value" in text
    assert Schema.read(tmp_path / "schema.toml") == schema
    assert schema.notes[1] == "empty: no public row has a value"


def test_days_count_from_1970():
    moment = datetime.datetime(1970, 1, 2, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert days_of(moment) == 1.0


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('type = "date"\nlow = 2020-01-01', "high must be a date"),
        ('type = "date"\nlow = 2020-01-01\nhigh = 3', "high must be a date"),
        ('type = "date"\nlow = "soon"\nhigh = 2020-01-01', "low must be a date"),
        ('type = "date"\nlow = 2020-01-02\nhigh = 2020-01-01', "before"),
        ('type = "date"\nlow = 2020-01-01\nhigh = 2020-02-01\nparts = ["hour"]', "parts"),
        ('type = "date"\nlow = 2020-01-01\nhigh = 2020-02-01\nformat = "dd.mm"', "format"),
        ('type = "number"\nlow = 0\nhigh = 1\nfill = "x"', "fill"),
        ('type = "number"\nlow = 0\nhigh = 1\nmissing = 1', "missing must be true or false"),
        ('type = "number"\nlow = 0\nhigh = 1\ndecimal = ";"', "decimal"),
        ('type = "category"\nvalues = ["a"]\nother = "yes"', "other must be true or false"),
        ('type = "number"\nlow = 0\nhigh = 1\nlo = 3', "unknown key 'lo'"),
        ('type = "dates"', "type"),
        ("low = 0", "type"),
        ('type = "number"\nlow = 0', "high"),
        ('type = "number"\nlow = 0\nhigh = inf', "high"),
        (f'type = "number"\nlow = 0\nhigh = {10**400}', "high"),
        ('type = "number"\nlow = 9\nhigh = 1', "below"),
        ('type = "number"\nlow = 0\nhigh = 1\nvalues = ["a"]', "whole"),
        ('type = "category"', "values"),
        ('type = "category"\nvalues = [1, "a"]', "values"),
        ('type = "category"\nvalues = ["a", "a"]', "twice"),
        (f'type = "category"\nvalues = [{2**53}, {2**53 + 1}]', r"2\^53"),
    ],
    ids=lambda text: text[-30:],
)
def test_a_wrong_column_is_named_with_its_remedy(tmp_path, lines, problem):
    (tmp_path / "schema.toml").write_text(f'dataset = "d"\n[columns.a]\n{lines}\n')
    with pytest.raises(ValueError, match=rf"schema\.toml, column 'a': .*{problem}"):
        read_schema(tmp_path / "schema.toml")
