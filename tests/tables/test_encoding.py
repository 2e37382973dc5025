"""Encoding depends on the schema alone, row by row, and encoded numbers lie in [-1, 1]."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpadapt.representation import encoders
from dpadapt.tables import (
    Category,
    Encoded,
    Ignored,
    Number,
    Schema,
    Table,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
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
    assert encode_labels(data, schema, label="n", task="classification").tolist() == [1, 0]
    assert encode_labels(data, schema, label="t", task="classification").tolist() == ["yes", "no"]


def test_a_schema_without_features_is_refused():
    with pytest.raises(ValueError, match="no feature columns"):
        encode_features(table(y=["1"]), Schema("d", (Number("y", 0, 1),)), label="y")


@pytest.mark.parametrize(("cell", "problem"), [("x", "non-numeric"), ("", "non-numeric"), ("inf", "infinite")])
def test_messages_show_bad_cells_of_public_tables_only(cell, problem):
    rows = {"age": ["31", cell], "plan": ["free", "paid"]}
    schema = Schema("d", SCHEMA.columns[:2])
    with pytest.raises(ValueError, match=f"{cell!r} in row 2, which is not a finite number"):
        encode_features(table(**rows), schema)
    with pytest.raises(ValueError, match=problem) as caught:
        encode_features(table(private=True, **rows), schema)
    assert "row 2" not in str(caught.value)
    assert "chosen without private rows" in str(caught.value)


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


def test_missing_and_unknown_columns_are_named():
    with pytest.raises(ValueError, match="columns 'age', 'plan' of the schema are missing"):
        check_columns(table(y=["1"]), SCHEMA, label="y")
    with pytest.raises(ValueError, match="column 'shoe' is not in the schema"):
        check_columns(table(age=["1"], plan=["free"], y=["1"], shoe=["44"]), SCHEMA, label="y")
    check_columns(table(age=["1"], plan=["free"]), SCHEMA, label="y", optional="y")
