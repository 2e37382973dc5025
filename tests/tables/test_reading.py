"""Reading of tables: headers are cleaned, and nothing about a private file shows its values."""

import codecs
import encodings.aliases
import gzip
import re
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from dpadapt import Public
from dpadapt.inputs.files import from_arrow, known_encoding, without_values
from dpadapt.tables import (
    Category,
    Number,
    Schema,
    Table,
    as_table,
    encode_features,
    read_header,
    read_table,
    table_chunks,
)
from dpadapt.tables.cells import parse_text

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
    assert encode_features(read_table(path, private=True), SCHEMA)[1].tolist() == [-0.38, 0, 0]


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
        ("a.xls", "age\n1\n", "ending in .csv .* or .xlsx"),
        ("a.xlsx", "secret", "can't be read as Excel"),
        ("a.csv", "<html>secret</html>\n", "not a table"),
        ("a.csv", '{"age": "secret"}\n', "not a table"),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "age\n", "no rows"),
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
        bytes(range(256)) * 8,
        b"\x00" * 1000,
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


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"], ids=repr)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv"])
def test_separator_encoding_and_compression_are_found_out(tmp_path, separator, encoding, name):
    rows = [["age", "pläce", "a, b; c"], ["31", "Zürich", "x;y,z"], ["40", "Orléans", ""]]
    text = "\n".join(separator.join(f'"{cell}"' for cell in row) for row in rows) + "\n"
    content = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    table = read_table(tmp_path / name, private=True)
    assert [table.frame.columns.tolist(), *table.frame.to_numpy().tolist()] == rows
    assert read_header(tmp_path / name) == rows[0]


def test_one_byte_that_is_not_utf_8_changes_no_other_cell(tmp_path):
    (tmp_path / "a.csv").write_bytes("plan\nZürich\n".encode() + b"Z\xfcrich\n\x80uro\n\x81\n")
    assert read_table(tmp_path / "a.csv", private=True).frame["plan"].tolist() == ["Zürich", "Zürich", "€uro", "\x81"]


def test_an_encoding_that_is_given_is_used_and_an_unknown_one_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("plan\nŁódź\n".encode("cp1250"))
    table = read_table(tmp_path / "a.csv", private=False, encoding="cp1250")
    assert table.frame["plan"].tolist() == ["Łódź"]
    for encoding in ("no-such-code", "rot13", "\0", "hz", "iso2022_jp", "iso2022_kr", "UTF7", "unicode_escape", "idna"):
        with pytest.raises(ValueError, match=r"a\.csv: the encoding .* is not known"):
            read_table(tmp_path / "a.csv", private=True, encoding=encoding)


def stateless_encodings() -> list[str]:
    """Return the encodings that are accepted, but for those whose characters all have several bytes."""
    accepted = set()
    for name in set(encodings.aliases.aliases.values()):
        try:
            accepted.add(codecs.lookup(known_encoding(name, "a.csv") or "").name)
        except ValueError:
            continue
    return sorted(name for name in accepted if not name.startswith(("utf-16", "utf-32")))


def test_in_an_encoding_that_is_accepted_no_cell_changes_how_others_are_read():
    names = stateless_encodings()
    assert {"utf-8", "iso8859-1", "cp1252", "cp932", "gb18030", "big5", "shift_jis", "euc_jp", "koi8-r"} <= set(names)
    for name in names:
        line_end = "\n".encode(name)
        others = 'x,"y"'.encode(name.replace("-sig", "")) + line_end
        for lead in range(256):
            for cell in (bytes([lead]), bytes([lead, 0xA1]), bytes([lead, 0x30, lead])):
                if line_end not in cell:
                    text = (others + cell + line_end + others).decode(name, "replace")
                    assert text.split("\n", 1)[0] == 'x,"y"', name
                    assert text.endswith('\nx,"y"\n'), name


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize("gap", ["", " "], ids=repr)
def test_the_header_says_where_lines_end(tmp_path, line_end, gap):
    # Writers leave the other line end without quotes: csv.writer of Python 3.11, and so pandas on Linux.
    cell = "paid" + ("\n" if line_end == "\r" else "\r") + "99,free"
    rows = ["age, plan, town", "31,free,Ulm", "40," + cell, gap, "18,free,Ulm"]
    (tmp_path / "a.csv").write_text(line_end.join(rows) + line_end, newline="")
    frame = read_table(tmp_path / "a.csv", private=True).frame
    assert frame.to_numpy().tolist() == [
        ["31", "free", "Ulm"],
        ["40", *cell.split(",")],
        [""] * 3,
        ["18", "free", "Ulm"],
    ]
    assert frame.columns.tolist() == read_header(tmp_path / "a.csv") == ["age", "plan", "town"]


def test_line_ends_in_the_header_and_those_that_windows_doubles_are_read(tmp_path):
    for name, end in (('"age\rnow"', "\n"), ('"age\nnow"', "\r"), (' "age\r\nnow"', "\r\n"), ("age", "\r\r\n")):
        (tmp_path / "a.csv").write_text(end.join([f"{name},plan", "31,free", "40,", ""]), newline="")
        table = read_table(tmp_path / "a.csv", private=True)
        assert table.frame.to_numpy().tolist() == [["31", "free"], ["40", ""]]
        assert table.frame.columns.tolist() == read_header(tmp_path / "a.csv") == [name.strip(' "'), "plan"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=repr)
def test_a_zero_byte_in_the_first_row_is_part_of_its_cell(tmp_path, line_end):
    (tmp_path / "a.csv").write_text(line_end.join(["age,plan", "\0,free", "40,paid", ""]), newline="")
    assert read_table(tmp_path / "a.csv", private=True).frame["plan"].tolist() == ["free", "paid"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=repr)
def test_an_empty_line_is_a_row_except_around_the_table(tmp_path, line_end):
    rows = ["", " ", "age,plan", "31,free", "", " ", "40,paid", "", "", " "]
    (tmp_path / "a.csv").write_text(line_end.join(rows), newline="")
    frame = read_table(tmp_path / "a.csv", private=True).frame
    assert frame.to_numpy().tolist() == [["31", "free"], ["", ""], ["", ""], ["40", "paid"]]
    assert read_header(tmp_path / "a.csv") == ["age", "plan"]
    # In a single column it may be a missing cell, wherever it is.
    (tmp_path / "a.csv").write_text(line_end.join(["age", "31", "", "40", "", ""]), newline="")
    assert read_table(tmp_path / "a.csv", private=True).frame["age"].tolist() == ["31", "", "40", ""]


def texts(*cells: bytes) -> pyarrow.Array:
    """Return texts of Arrow that need not be UTF-8."""
    return pyarrow.Array.from_buffers(pyarrow.string(), len(cells), pyarrow.array(cells, pyarrow.binary()).buffers())


# Columns whose last cell Python or pandas has no object for, and what it is read as: ... is for anything.
ODD_COLUMNS = {
    "text": (texts(b"a", b"b", b"Jos\xe9"), "José"),
    "texts of a dictionary": (pyarrow.DictionaryArray.from_arrays([0, 1, 2], texts(b"a", b"b", b"Jos\xe9")), "José"),
    "gap in a dictionary": (pyarrow.DictionaryArray.from_arrays([0, 1, 2], pyarrow.array(["a", "b", None])), None),
    "second 86,400": (pyarrow.array([0, 1, 86_400], pyarrow.time32("s")), ...),
    "before midnight": (pyarrow.array([0, 1, -5], pyarrow.time64("us")), ...),
    "nanosecond": (pyarrow.array([0, 1000, 1], pyarrow.time64("ns")), ...),
    "day after 9999": (pyarrow.array([0, 1, 10**7], pyarrow.date32()), None),
    "date64 after 9999": (
        pyarrow.array([0, 86_400_000, 9 * 10**18 // 86_400_000 * 86_400_000], pyarrow.date64()),
        None,
    ),
    "days in lists": (pyarrow.array([[0], [1], [10**7]], pyarrow.list_(pyarrow.date32())), None),
    "moments in structs": (
        pyarrow.array([{"a": 0}, {"a": 1}, {"a": 9 * 10**18}], pyarrow.struct([("a", pyarrow.timestamp("us"))])),
        None,
    ),
}


@pytest.mark.parametrize(("column", "odd"), ODD_COLUMNS.values(), ids=ODD_COLUMNS)
def test_a_cell_that_there_is_no_object_for_changes_no_other(tmp_path, column, odd):
    beside = pyarrow.array([1, 10**12, 3], pyarrow.timestamp("s"))  # the second in the year 33658
    table = pyarrow.table({"a": column, "b": beside})
    expected = from_arrow(table.slice(0, 2))
    frame = pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(pyarrow.chunked_array([column])), "b": beside.to_pandas()})
    frames = [
        as_table(table, origin="X", private=True).frame,
        as_table(frame, origin="X", private=True).frame,
    ]
    with suppress(pyarrow.ArrowNotImplementedError):  # of dictionaries with a gap
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        frames.append(read_table(tmp_path / "a.parquet", private=True).frame)
        frames.append(pd.concat(chunk.frame for chunk in table_chunks(tmp_path / "a.parquet", private=True, rows=1)))
    for read in frames:
        assert list(read.columns) == ["a", "b"]
        assert read["a"].tolist()[:2] == expected["a"].tolist()
        last = read["a"].tolist()[2]
        assert odd in (..., last) or (odd is None and pd.isna(last))
        assert parse_text(read["b"])[1] == "33658-09-27T01:46:40"


def test_texts_of_a_frame_that_are_not_utf_8_change_no_other(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"plan": texts(b"free", b"Jos\xe9", b"paid")}), tmp_path / "a.parquet")
    frame = (
        pd.read_parquet(tmp_path / "a.parquet", dtype_backend="pyarrow").astype("string[pyarrow]").set_axis([7, 7, 8])
    )
    assert as_table(frame, origin="X", private=True).frame["plan"].tolist() == ["free", "José", "paid"]


def test_the_index_of_a_frame_is_no_column_whatever_it_holds(tmp_path):
    table = pyarrow.Table.from_pandas(pd.DataFrame({"age": [1, 2]}, index=["a", "b"]))
    table = table.set_column(1, table.column_names[1], texts(b"a", b"\xe9"))
    assert from_arrow(table).columns.tolist() == ["age"]


def test_a_file_does_not_choose_the_types_of_pandas(tmp_path):
    # Those of Arrow can't be read if one cell can't.
    frame = pd.DataFrame({"day": pd.Series([0, 1], dtype=pd.ArrowDtype(pyarrow.timestamp("us")))})
    frame.to_parquet(tmp_path / "a.parquet")
    assert isinstance(pd.read_parquet(tmp_path / "a.parquet")["day"].dtype, pd.ArrowDtype)
    assert isinstance(read_table(tmp_path / "a.parquet", private=True).frame["day"].dtype, np.dtype)


def test_a_type_that_pandas_does_not_have_is_refused():
    moments = pyarrow.array([0, 1], pyarrow.timestamp("s", "Mars/Olympus"))
    with pytest.raises(ValueError, match="X: the columns can't be read as a table of plain cells"):
        as_table(pyarrow.table({"a": moments}), origin="X", private=True)


def test_columns_without_a_name_are_left_out(tmp_path):
    pd.DataFrame({"age": [31, 40]}).to_csv(tmp_path / "a.csv")  # with row numbers
    assert read_table(tmp_path / "a.csv", private=True).frame.columns.tolist() == ["age"]


def test_a_header_is_read_without_the_rows(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'age;"a\nb"\n' + b"\x00\xff,,;;broken\n" * 3)
    assert read_header(tmp_path / "a.csv") == ["age", "a\nb"]
    pd.DataFrame({"age": [1], "plan": ["a"]}).to_parquet(tmp_path / "a.parquet")
    assert read_header(tmp_path / "a.parquet") == ["age", "plan"]
    with pytest.raises(ValueError, match="no such file"):
        read_header(tmp_path / "b.csv")


def test_frames_and_paths_are_tables_and_arrays_are_not(tmp_path):
    frame = pd.DataFrame({" age ": [31]}, index=["p1"])
    assert as_table(frame, origin="X", private=True).frame.columns.tolist() == ["age"]
    assert frame.columns.tolist() == [" age "]
    frame.to_csv(tmp_path / "a.csv", index=False)
    for path in (tmp_path / "a.csv", str(tmp_path / "a.csv")):
        assert as_table(path, origin="X", private=True).private
    public = as_table(Public(frame), origin="public", private=False)
    assert as_table(public, origin="X", private=True).private  # once private, always private
    with pytest.raises(TypeError, match="X must be a data frame"):
        as_table(np.zeros((2, 2)), origin="X", private=True)
    with pytest.raises(ValueError, match="two columns have the same name") as caught:
        as_table(pd.DataFrame([[1, 2]], columns=["secret", "secret"]), origin="X", private=True)
    assert "secret" not in str(caught.value)


def test_a_header_alone_is_a_table_where_the_number_of_rows_is_private(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n")
    table = read_table(tmp_path / "a.csv", private=True, empty=True)
    assert encode_features(table, SCHEMA).shape == (0, 3)
    table.frame.to_parquet(tmp_path / "a.parquet")
    assert encode_features(read_table(tmp_path / "a.parquet", private=True, empty=True), SCHEMA).shape == (0, 3)
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match="empty"):
        read_table(tmp_path / "a.csv", private=True, empty=True)


def test_a_gap_in_one_row_changes_no_large_number_in_another(tmp_path):
    for gap in (None, 7):
        path = tmp_path / f"{gap}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"id": [2**53 + 1, gap]}), path)
        assert read_table(path, private=True).frame["id"].tolist() == [2**53 + 1, gap]


@pytest.mark.parametrize(
    "error",
    [
        OSError("secret"),
        OSError(5, "secret"),
        EOFError("secret"),
        gzip.BadGzipFile("secret"),
        pd.errors.ParserError("secret"),
        pd.errors.EmptyDataError("secret"),
        pyarrow.ArrowInvalid("secret"),
        UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"),
        KeyError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_text_of_a_parser_or_the_system_is_repeated(error):
    def read():
        raise error

    with pytest.raises(ValueError, match=r"^a\.csv: ") as caught:
        without_values(read, "a.csv", "can't be read.")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()], ids=str)
def test_categories_of_arrow_are_read_however_their_texts_are_stored(kind):
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, None, 1]), pyarrow.array(["a", "b"]).cast(kind))
    frame = as_table(pyarrow.table({"plan": words}), origin="X", private=True).frame
    assert parse_text(frame["plan"]) == ["a", "", "b"]
