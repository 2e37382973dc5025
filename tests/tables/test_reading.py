"""Reading of tables: headers are cleaned, and nothing about a private file shows its values."""

import re

import numpy as np
import pandas as pd
import pytest

from dpadapt.tables import Category, Number, Schema, Table, encode_features, read_table

SCHEMA = Schema("d", (Number("age", 0, 100), Category("plan", ("free", "paid"))))


def test_a_byte_order_mark_and_spaces_are_removed_from_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfage , plan\r\n 31, free \r\n")
    read = read_table(path, private=True)
    assert list(read.frame.columns) == ["age", "plan"]
    assert np.array_equal(encode_features(read, SCHEMA), [[-0.38, 1.0, 0.0]])


def test_a_row_shorter_than_the_header_has_a_missing_cell(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,plan\n31,free\n31\n")
    with pytest.raises(ValueError, match="'plan' holds missing"):
        encode_features(read_table(path, private=True), SCHEMA)


def test_the_text_of_a_table_shows_no_values():
    assert repr(Table(pd.DataFrame({"age": ["31"]}), "t.csv", private=True)) == "Table(t.csv)"


def test_csv_and_parquet_files_are_read_alike(tmp_path):
    frame = pd.DataFrame({"age": ["31", "40"], "plan": ["free", "paid"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        table = read_table(tmp_path / name, private=False)
        pd.testing.assert_frame_equal(table.frame, frame, check_dtype=False)
        assert (table.origin, table.folder) == (name, tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", "age\n1\n", "ending in .csv or .parquet"),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "age\n", "no rows"),
        ("a.csv", "age,\n1,secret\n", "a column has no name"),
        ("a.csv", "secret,secret\n1,2\n", "two columns have the same name"),
        ("a.csv", "age\n1,2,secret\n", "not a valid CSV file"),
        ("a.parquet", "secret", "can't be read as Parquet"),
    ],
)
def test_unreadable_private_files_are_refused_without_showing_values(tmp_path, name, content, problem):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=problem) as caught:
        read_table(tmp_path / name, private=True)
    assert "secret" not in str(caught.value)
    # Nor a count or a position.
    assert not re.search(r"\d", str(caught.value))


@pytest.mark.parametrize(
    "content",
    [
        "age,plan\n31,secret\n".encode("utf-16"),
        "age,plan\n31,secret\n".encode("utf-32"),
        bytes(range(256)) * 8,
        b"\x00" * 1000,
        b"age\n\xed\xa0\x80secret\n",
        b"PK\x03\x04secret" * 50,
        b"\x1f\x8bsecret",
        b'age,plan\n"secret' + b"\n" * 5000,
    ],
    ids=lambda content: repr(content[:8]),
)
def test_files_that_are_no_text_are_refused_without_showing_values(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.csv") as caught:
        encode_features(read_table(tmp_path / "a.csv", private=True), SCHEMA)
    assert "secret" not in str(caught.value)


def test_a_private_file_that_is_not_utf_8_shows_no_byte(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age\n31\n\xe9\n")
    with pytest.raises(ValueError, match="UTF-8") as caught:
        read_table(tmp_path / "a.csv", private=True)
    # The folder has a name of its own.
    message = str(caught.value).replace(str(tmp_path), "")
    assert not any(sign in message for sign in ("e9", "position", "byte"))


def test_a_header_alone_is_a_table_where_the_number_of_rows_is_private(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n")
    table = read_table(tmp_path / "a.csv", private=True, empty=True)
    assert encode_features(table, SCHEMA).shape == (0, 3)
    table.frame.to_parquet(tmp_path / "a.parquet")
    assert encode_features(read_table(tmp_path / "a.parquet", private=True, empty=True), SCHEMA).shape == (0, 3)
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match="empty"):
        read_table(tmp_path / "a.csv", private=True, empty=True)
