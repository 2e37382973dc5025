"""Encoding depends on the schema alone, row by row, and encoded numbers lie in [-1, 1]."""

import datetime
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpadapt.representation import encoders
from dpadapt.representation.encoders import _image_array
from dpadapt.tables import (
    Category,
    Date,
    Encoded,
    Ignored,
    Number,
    Schema,
    Table,
    as_table,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    has_unknown_columns,
)

SCHEMA = Schema("d", (Number("age", 0, 100), Category("plan", ("free", "paid")), Ignored("id"), Number("y", 0, 10)))
ranges = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda r: r[0] < r[1])


def table(private=False, **columns) -> Table:
    return Table(pd.DataFrame(columns), "t.csv", private)


@example([0.0], (0.0, 5e-324))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), ranges)
def test_encoded_numbers_lie_between_minus_one_and_one(values, bounds):
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
def test_whole_number_codes_are_recognised_in_every_notation(cells):
    schema = Schema("d", (Category("c", (1, 2)), Number("y", 0, 1)))
    assert np.array_equal(encode_features(table(c=cells), schema, label="y"), np.eye(2))


def test_labels_keep_the_type_of_the_declared_values():
    schema = Schema("d", (Number("n", 0, 1, (0, 1)), Category("t", ("no", "yes"))))
    data = table(n=["1", "0"], t=["yes", " no "])
    for label, expected in (("n", [1, 0]), ("t", ["yes", "no"])):
        labels, labelled = encode_labels(data, schema, label=label, task="classification")
        assert labels.tolist() == expected
        assert labelled.all()


def test_a_schema_without_features_is_refused():
    with pytest.raises(ValueError, match="no feature columns"):
        encode_features(table(y=["1"]), Schema("d", (Number("y", 0, 1),)), label="y")


MESSY = Schema(
    "d",
    (
        Number("age", 0, 100, fill=40, missing=True),
        Number("bmi", 0, 100),
        Category("plan", ("free", "paid"), other=True, missing=True),
        Category("code", (1, 2), other=True),
        Date("seen", datetime.date(2020, 1, 1), datetime.date(2020, 12, 31), ("month", "weekday"), missing=True),
        Number("y", 0, 10),
    ),
)


def messy(**cells):
    row = {"age": "50", "bmi": "50", "plan": "free", "code": "1", "seen": "2020-07-01", "y": "1"}
    return encode_features(table(private=True, **{name: [cell] for name, cell in (row | cells).items()}), MESSY)[0]


def feature(row, name):
    return row[feature_names(MESSY, None).index(name)]


@pytest.mark.parametrize("cell", ["", "NA", "?", "nan", None, np.nan, pd.NA, "inf", "many", ".", " "], ids=repr)
def test_a_number_that_is_missing_or_no_number_is_filled_from_the_schema(cell):
    row = messy(age=cell, bmi=cell)
    assert feature(row, "age") == pytest.approx(-0.2)
    assert feature(row, "age (missing)") == 1
    assert feature(row, "bmi") == 0  # the middle of the range, where the schema has no value to fill in


@pytest.mark.parametrize(
    ("cell", "level"), [("gold", "plan (other)"), ("", "plan (missing)"), (None, "plan (missing)")]
)
def test_a_category_has_levels_for_other_and_missing_values(cell, level):
    row = messy(plan=cell)
    assert feature(row, level) == 1
    assert sum(feature(row, name) for name in feature_names(MESSY, None) if name.startswith("plan")) == 1
    assert feature(messy(code=cell), "code (other)") == 1  # no level of its own for missing ones


def test_a_category_of_an_old_schema_has_no_further_features():
    schema = Schema("d", (Category("plan", ("free", "paid")),))
    rows = encode_features(table(private=True, plan=["paid", "gold", None]), schema)
    assert rows.tolist() == [[0, 1], [0, 0], [0, 0]]


def test_a_date_is_a_number_with_its_month_and_weekday():
    row = messy(seen="2020-07-01")
    assert feature(row, "seen") == pytest.approx(2 * 182 / 365 - 1)
    assert [name for name in feature_names(MESSY, None) if name.startswith("seen:") and feature(row, name)] == [
        "seen: month = 7",
        "seen: weekday = 3",
    ]
    assert feature(messy(seen="2031-05-01"), "seen") == 1  # outside the range
    assert feature(messy(seen="2031-05-01"), "seen: month = 5") == 1
    row = messy(seen="soon")
    assert feature(row, "seen (missing)") == 1
    assert not any(feature(row, name) for name in feature_names(MESSY, None) if name.startswith("seen:"))


cells = st.one_of(
    st.none(), st.text(max_size=6), st.floats(), st.integers(-(10**400), 10**400), st.booleans(), st.dates(),
    st.sampled_from(["1", "free", "2020-07-01", "1,5", "9223372036854775808", "31 years"]),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(cells, min_size=2, max_size=6))
def test_what_a_cell_becomes_depends_on_no_other_cell(column):
    for name in ("age", "plan", "code", "seen"):
        schema = Schema("d", tuple(c for c in MESSY.columns if c.name == name))
        together = encode_features(table(private=True, **{name: pd.Series(column, dtype=object)}), schema)
        alone = [
            encode_features(table(private=True, **{name: pd.Series([cell], dtype=object)}), schema)[0]
            for cell in column
        ]
        assert np.array_equal(together, np.array(alone))
        assert (np.abs(together) <= 1).all()


@pytest.mark.parametrize("column", MESSY.columns[:5], ids=lambda column: column.name)
@pytest.mark.parametrize("numbers", [[1, 2, 50], [20200401, 20201231, 3], [True, False, True], [2**60, 1, -5]], ids=str)
def test_a_gap_in_one_row_changes_the_encoding_of_no_other(column, numbers):
    """A gap turns a column of whole numbers, or of True and False, into one of floats or objects."""
    schema = Schema("d", (column,))
    plain = pd.DataFrame({column.name: numbers})
    forms = [
        pd.DataFrame({column.name: [*numbers, None]}),
        pd.DataFrame({column.name: pd.Series([*numbers, None], dtype=object)}),
        pyarrow.table({column.name: [*numbers, None]}),
    ]
    expected = encode_features(as_table(plain, origin="X", private=True), schema)
    for form in forms:
        assert np.array_equal(encode_features(as_table(form, origin="X", private=True), schema)[:-1], expected)


def test_public_columns_of_another_kind_and_without_values_are_refused():
    with pytest.raises(ValueError, match="'old' in row 2, and most of its cells are no number"):
        encode_features(table(age=["", "old", "young"]), Schema("d", SCHEMA.columns[:1]))
    for column in (SCHEMA.columns[0], Category("age", ("a",)), MESSY.columns[4]):
        named = replace(column, name="x")
        with pytest.raises(ValueError, match="column 'x' has no value in any row"):
            encode_features(table(x=["", "NA"]), Schema("d", (named,)))
        assert len(encode_features(table(private=True, x=["", "NA"]), Schema("d", (named,)))) == 2


def test_public_rows_without_a_label_are_left_out():
    for label, cells_of in (("y", ["1", "?", "3"]), ("plan", ["free", "", "paid"])):
        task = "regression" if label == "y" else "classification"
        labels, labelled = encode_labels(table(**{label: cells_of}), SCHEMA, label=label, task=task)
        assert labelled.tolist() == [True, False, True]
        assert len(labels) == 2
        with pytest.raises(ValueError, match="no value in any row"):
            encode_labels(table(**{label: ["", ""]}), SCHEMA, label=label, task=task)
        with pytest.raises(ValueError, match="'gold' in row 2"):
            encode_labels(table(**{label: [cells_of[0], "gold"]}), SCHEMA, label=label, task=task)


@pytest.mark.parametrize("cell", ["", "NA", None, "ZEBRA7731", "<5"])
def test_a_private_label_that_is_missing_or_cannot_be_read_is_no_error(cell):
    cells_of = {"y": "1", "plan": SCHEMA.classes("plan")[0]}
    for label, task in (("y", "regression"), ("plan", "classification")):
        made = table(private=True, **{label: [cell, cells_of[label]]})
        labels, labelled = encode_labels(made, SCHEMA, label=label, task=task)
        assert (len(labels), labelled.tolist()) == (1, [False, True])


class Failing:
    """An encoder that quotes what it fails on."""

    def transform(self, texts):
        raise ValueError(f"can't encode {texts[0]}")


@pytest.mark.parametrize("private", [True, False])
def test_the_message_of_an_encoder_is_shown_for_public_tables_only(monkeypatch, private):
    ready = encoders.ReadyEncoder("wordllama", "text", "", (), 2, 1.0, "")
    monkeypatch.setattr(encoders, "find_encoder", lambda name: ready)
    monkeypatch.setattr(encoders, "as_encoder", lambda name: Failing())
    with pytest.raises(ValueError, match="encoder fails") as caught:
        encode_features(table(private=private, note=["ZEBRA7731"]), Schema("d", (Encoded("note", "wordllama"),)))
    assert ("ZEBRA7731" in str(caught.value)) is not private


class Grey:
    """An encoder of images: the mean of all pixels, and how many images it has had."""

    def transform(self, images):
        return np.column_stack([_image_array(images).mean(axis=(1, 2, 3)) / 255, np.full(len(images), len(images) / 8)])


class Words:
    """An encoder of texts that quotes a text that it can't encode."""

    def transform(self, texts):
        if any("ZEBRA" in text for text in texts):
            raise ValueError(f"can't encode {texts}")
        return np.array([[len(text) / 20, math.nan if text == "no number" else 0.5] for text in texts])


@pytest.fixture
def encoder_of(monkeypatch):
    """Return a function that puts an encoder of two features in place of a ready one."""

    def put(kind, encoder):
        ready = encoders.ReadyEncoder("stub", kind, "", (), 2, 1.0, "")
        monkeypatch.setattr(encoders, "find_encoder", lambda name: ready)
        monkeypatch.setattr(encoders, "as_encoder", lambda name: encoder)
        return Schema("d", (Encoded("note", "wordllama"),))

    return put


@pytest.mark.parametrize("name", ["gone.png", "", "text.png", "half.png", "a\0b.png", "x" * 5000, "folder"])
def test_a_private_image_that_is_missing_or_unreadable_is_a_null_cell(encoder_of, tmp_path, name):
    image = pytest.importorskip("PIL.Image")
    for grey in (51, 102):
        image.new("RGB", (64, 64), (grey, grey, grey)).save(tmp_path / f"{grey}.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "half.png").write_bytes((tmp_path / "51.png").read_bytes()[:60])
    (tmp_path / "folder").mkdir()
    schema = encoder_of("image", Grey())
    cells = ["51.png", "102.png", name, "51.png"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = replace(table(private=True, note=cells), folder=tmp_path)
        encoded = encode_features(made, schema)
    # A null image takes its place in the batch, so that those of the others are computed as without it.
    assert encoded == pytest.approx(np.array([[0.2, 0.5], [0.4, 0.5], [0.0, 0.0], [0.2, 0.5]]))
    with pytest.raises(ValueError, match="encoder fails on column 'note'"):
        encode_features(replace(made, private=False), schema)


@pytest.mark.parametrize("cell", ["ZEBRA7731", "no number"])
def test_a_private_text_that_an_encoder_cannot_encode_is_a_null_cell(encoder_of, cell):
    schema = encoder_of("text", Words())
    encoded = encode_features(table(private=True, note=["ab", cell, "abcd"]), schema)
    assert encoded == pytest.approx(np.array([[0.1, 0.5], [0.0, 0.0], [0.2, 0.5]]))
    with pytest.raises(ValueError, match="encode"):
        encode_features(table(note=["ab", cell, "abcd"]), schema)


def test_missing_columns_are_named_and_unknown_ones_are_not():
    with pytest.raises(ValueError, match="columns 'age', 'plan' of the schema are missing"):
        check_columns(table(y=["1"]), SCHEMA, label="y")
    with pytest.raises(ValueError, match="none of the schema's columns is there") as caught:
        check_columns(table(private=True, ZEBRA7731=["1"]), SCHEMA, label="y")
    assert "ZEBRA" not in str(caught.value)
    check_columns(table(age=["1"], plan=["free"]), SCHEMA, label="y", optional="y")
    assert not has_unknown_columns(table(age=["1"], plan=["free"], id=["p"]), SCHEMA)
    assert has_unknown_columns(table(age=["1"], plan=["free"], shoe=["44"]), SCHEMA)
