"""Files of tables, in chunks: the cells of the whole table, refusals before a row is read, and no value in an error."""

import datetime
import gzip
import os
import re
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pyarrow
import pyarrow.dataset
import pyarrow.orc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadapt import Source
from dpadapt.accounting.places import table_name
from dpadapt.errors import PrivacyError
from dpadapt.inputs.files import FORMAT_NAMES, FORMATS
from dpadapt.inputs.persons import person_shares
from dpadapt.tables import (
    Category,
    Date,
    Number,
    Schema,
    Table,
    check_columns,
    encode_features,
    read_table,
    sampled_table,
    table_chunks,
)

SECRET = "ZEBRA7731"


def cells(frame: pd.DataFrame) -> list:
    """Return names and cells, missing ones as None."""
    rows = frame.astype(object).where(frame.notna(), None).to_numpy(dtype=object).tolist()
    return [list(frame.columns), *rows]


def joined(chunks) -> list:
    found = [chunk.frame for chunk in chunks]
    return [cells(found[0])[0], *[row for frame in found for row in cells(frame)[1:]]]


TEXTS = {
    "plain": "age,plan\n31,free\n40,paid\n18,free\n",
    "no line end": "age,plan\n31,free\n40,paid",
    "header alone": "age,plan\n",
    "quoted newlines": 'age,plan\n31,"a\nb"\n"4\r\n0",paid\n18,"say ""hi"", twice"\n',
    "short rows": "age,plan,town\n31\n40,paid\n18,free,Ulm\n\n7\n",
    "blank lines": "age,plan\n\n31,free\n \n\n40,paid\n\n",
    "empty cells": 'age,plan\n,\n"",\n31,""\n',
    "spaces": " age , plan \n 31 , free\n40,  paid \n",
    "windows": "age;plan\r\n31;free\r\n40;paid\r\n",
    "tabs": "age\tplan\n31\tfree\n40\tpaid\n",
    "bars": "age|plan\n31|free\n40|paid\n",
    "row numbers": ",age\n0,31\n1,40\n2,18\n",
    "header of two lines": '"age\nyears","a, b"\n31,x\n40,y\n',
    "umlauts": "age,pläce\n31,Zürich\n40,Orléans\n",
    "one column": "age\n31\n40\n\n18\n",
    "one column with a gap at its end": "age\n31\n40\n\n\n",
    "blank lines of windows": "age,plan\r\n\r\n31,free\r\n \r\n\r\n40\r\n\r\n",
    "returns in cells": "age,plan\n31,fr\ree\n40\r,paid\n18,\r\n7,free\r\n",
    "returns in cells of windows": 'age,plan\r\n31,fr\ree\r\n40\r\n18,"x"\r\n',
    "returns alone": "age,plan\r31,fr\nee\r\r40,paid\r",
    "words for missing": "age,plan\nNA,nan\nNone,?\n31,null\n",
}


@pytest.mark.every_fourth
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_chunks_of_text_are_the_whole_table(tmp_path, text, encoding):
    content = text.encode(encoding)
    (tmp_path / "a.csv").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    whole = read_table(tmp_path / "a.csv", private=True, empty=True).frame
    for name, rows in (("a.csv", 1), ("a.csv", 2), ("a.txt.gz", 1), ("a.txt.gz", 3)):
        chunks = table_chunks(tmp_path / name, private=True, empty=True, rows=rows)
        first = list(chunks)
        assert joined(first) == cells(whole)
        assert joined(chunks) == cells(whole)  # again, from the beginning
        assert all(0 < len(chunk.frame) <= rows for chunk in first) or not len(whole)
        assert {chunk.folder for chunk in first} == {tmp_path}
        assert chunks.n_rows is None


def test_bytes_that_are_not_utf_8_are_read_as_in_the_whole_table(tmp_path):
    (tmp_path / "a.csv").write_bytes("plan\nZürich\n".encode() + b"Z\xfcrich\n\x80uro\n\x81\n")
    for rows in (1, 2, 3):
        chunks = table_chunks(tmp_path / "a.csv", private=True, rows=rows)
        assert joined(chunks)[1:] == [["Zürich"], ["Zürich"], ["€uro"], ["\x81"]]


def test_an_encoding_that_is_given_is_used_and_an_unknown_one_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("plan\nŁódź\n".encode("cp1250"))
    assert joined(table_chunks(tmp_path / "a.csv", private=True, encoding="cp1250")) == [["plan"], ["Łódź"]]
    with pytest.raises(ValueError, match=r"a\.csv: the encoding .* is not known"):
        table_chunks(tmp_path / "a.csv", private=True, encoding="no-such-code")


# Pieces of which files are made: cells, separators, quotes and line ends, so that rows of all lengths occur.
_PIECES = st.lists(
    st.sampled_from(["1", "x", ",", ",", "\n", "\n", "\r\n", "\r", " ", '"', '""', '"y\nz"', "ü"]), max_size=40
)


@settings(deadline=None, max_examples=60)
@given(_PIECES, st.sampled_from(["a,b\n", "a\n", "a,b,c\r\n", "a,b\r", '"a\nb",c\n']), st.integers(1, 5))
def test_any_text_is_read_in_chunks_as_in_one_piece(tmp_path_factory, pieces, header, rows):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_text(header + "".join(pieces), newline="")
    try:
        whole = cells(read_table(path, private=True, empty=True).frame)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            list(table_chunks(path, private=True, empty=True, rows=rows))
    else:
        assert joined(table_chunks(path, private=True, empty=True, rows=rows)) == whole


def test_a_return_in_a_cell_makes_no_row_in_any_chunk(tmp_path):
    cell = "free\r31" * 3
    (tmp_path / "a.csv").write_text(f"age,plan\n31,{cell}\n40,paid\n18,free\n", newline="")
    for rows in (1, 2, None):
        chunks = table_chunks(tmp_path / "a.csv", private=True, rows=rows)
        assert joined(chunks) == [["age", "plan"], ["31", cell], ["40", "paid"], ["18", "free"]]


def test_rows_longer_than_the_buffer_of_the_parser_are_read(tmp_path):
    # pandas reads 262,144 bytes at a time.
    rng = np.random.default_rng(0)
    rows = [f'{k},"{"x" * int(size)}\n{k}"' for k, size in enumerate(rng.integers(1, 200_000, 30))]
    (tmp_path / "a.csv").write_text("\n".join(["k,text", *rows, "short"]) + "\n")
    whole = cells(read_table(tmp_path / "a.csv", private=True).frame)
    for size in (1, 7, 30, 31, 32):
        assert joined(table_chunks(tmp_path / "a.csv", private=True, rows=size)) == whole


def typed_table(n: int = 23) -> pyarrow.Table:
    """Return a table with columns of many types, and gaps in the second half of its rows."""
    rng = np.random.default_rng(0)
    gaps = (rng.random(n) < 0.4) & (np.arange(n) >= n // 2)
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=k) for k in range(n)]
    columns = {
        "id": pyarrow.array(2**53 + 1 + np.arange(n), mask=gaps),
        "small": pyarrow.array((np.arange(n) % 7).astype(np.int8), mask=gaps),
        "x": pyarrow.array(rng.standard_normal(n), mask=gaps),
        "plan": pyarrow.array(rng.choice(["free", "paid", " ", ""], n).tolist(), mask=gaps),
        "kind": pyarrow.array(rng.choice(["a", "b"], n).tolist(), mask=gaps).dictionary_encode(),
        "flag": pyarrow.array((rng.random(n) < 0.5).tolist(), mask=gaps),
        "day": pyarrow.array(days, mask=gaps),
        "moment": pyarrow.array(pd.to_datetime(days).to_numpy(), mask=gaps),
        "nothing": pyarrow.nulls(n),
    }
    return pyarrow.table(columns)


TYPED = Schema(
    "d",
    (
        Category("id", (2**53 + 1, 2**53 + 3), other=True, missing=True),
        Number("small", 0, 6, missing=True),
        Number("x", -3, 3, fill=0.1, missing=True),
        Category("plan", ("free", "paid"), other=True, missing=True),
        Category("kind", ("a", "b")),
        Category("flag", ("True", "False"), missing=True),
        Date("day", datetime.date(2024, 1, 1), datetime.date(2024, 2, 1), parts=("weekday",), missing=True),
        Date("moment", datetime.date(2024, 1, 1), datetime.date(2024, 2, 1), parts=("month",), missing=True),
        Number("nothing", 0, 1),
    ),
)


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
@pytest.mark.parametrize("group", [1, 4, 1000])
def test_chunks_of_parquet_are_the_whole_table_and_are_encoded_alike(tmp_path, rows, group):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(typed_table(), path, row_group_size=group)
    whole, chunks = read_table(path, private=True), table_chunks(path, private=True, rows=rows)
    assert joined(chunks) == cells(whole.frame)
    assert chunks.n_rows == len(whole.frame)
    encoded = np.concatenate([encode_features(chunk, TYPED) for chunk in chunks])
    assert encoded.tobytes() == encode_features(whole, TYPED).tobytes()


def test_a_frame_written_with_its_index_has_no_column_of_it(tmp_path):
    frame = pd.DataFrame({"age": [31, 40, 18]}, index=["a", "b", "c"])
    frame.to_parquet(tmp_path / "a.parquet")
    chunks = table_chunks(tmp_path / "a.parquet", private=True, rows=2)
    assert (
        joined(chunks) == cells(read_table(tmp_path / "a.parquet", private=True).frame) == [["age"], [31], [40], [18]]
    )
    assert list(chunks.header.frame.columns) == ["age"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_is_read_in_the_order_of_names(tmp_path, ending):
    folder = tmp_path / "data.parquet"  # as Spark names folders
    folder.mkdir()
    frames = {"b": [3, 4, 5], "a": [1, 2], "c": [], "d": [6]}
    for name, ages in frames.items():
        frame = pd.DataFrame({"age": pd.Series(ages, dtype="int64"), "plan": pd.Series(["x"] * len(ages), dtype="str")})
        path = folder / f"{name}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    (folder / "_SUCCESS").touch()
    (folder / ".a.crc").write_bytes(b"\x00")
    chunks = table_chunks(folder, origin="--private data", private=True, rows=2)
    assert [int(age) for age, _ in joined(chunks)[1:]] == [1, 2, 3, 4, 5, 6]
    assert [chunk.origin.split("/")[-1][0] for chunk in chunks] == ["a", "b", "b", "d"]
    assert {chunk.folder for chunk in chunks} == {folder}
    assert chunks.n_rows == (6 if ending == "parquet" else None)
    assert repr(chunks) == "TableChunks(--private data)"


def test_files_of_a_folder_may_have_their_columns_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n31,free\n")
    (tmp_path / "b.csv").write_text("plan;age\npaid;40\n")
    assert joined(table_chunks(tmp_path, private=True)) == [["age", "plan"], ["31", "free"], ["40", "paid"]]


def test_texts_are_one_type_however_they_are_stored_and_a_column_without_values_has_any(tmp_path):
    texts = pyarrow.array(["x", None])
    stored = [pyarrow.nulls(2), texts, texts.cast(pyarrow.large_string()), texts.dictionary_encode(), pyarrow.nulls(2)]
    for k, column in enumerate(stored):
        pyarrow.parquet.write_table(pyarrow.table({"plan": column}), tmp_path / f"{k}.parquet")
    found = joined(table_chunks(tmp_path, private=True))
    assert found == [["plan"], *[[None]] * 2, *[["x"], [None]] * 3, *[[None]] * 2]


@pytest.mark.parametrize(
    ("second", "private", "problem"),
    [
        ({"age": [1], "town": ["x"]}, False, r"b\.parquet: its columns are not those of .*a\.parquet .*'plan', 'town'"),
        ({"age": [1]}, False, r"b\.parquet: its columns are not those of .* \(column 'plan'\)"),
        ({"age": [1], "plan": ["x"], SECRET: [1]}, True, r"b\.parquet: its columns are not those of .*a\.parquet\."),
        ({"age": [1.5], "plan": ["x"]}, True, r"b\.parquet: column 'age' has another type"),
        ({"age": ["x"], "plan": [3]}, True, r"b\.parquet: columns 'age', 'plan' have another type"),
    ],
)
def test_parquet_files_that_do_not_agree_are_refused_before_a_row_is_read(
    tmp_path, monkeypatch, second, private, problem
):
    pyarrow.parquet.write_table(pyarrow.table({"age": [31], "plan": [SECRET]}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table(second), tmp_path / "b.parquet")
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", None)
    with pytest.raises(ValueError, match=problem) as caught:
        table_chunks(tmp_path, private=private)
    assert SECRET not in str(caught.value)


def test_text_files_that_do_not_agree_are_refused_and_private_headers_are_not_shown(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n1,x\n")
    (tmp_path / "b.csv").write_text(f"{SECRET},plan\n1,x\n")  # as if it had no header
    with pytest.raises(ValueError, match=r"b\.csv: its columns are not those of .*a\.csv\.") as caught:
        table_chunks(tmp_path, private=True)
    assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match=rf"b\.csv: .* \(columns '{SECRET}', 'age'\)"):
        table_chunks(tmp_path, private=False)


def folder_of(tmp_path: Path, **files: bytes) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, f"holds no {FORMAT_NAMES} files"),
        ({"a_csv": b"age\n1\n", "notes_pdf": b"x"}, "holds 'notes.pdf'"),
        ({"a_csv": b"age\n1\n", "a_parquet": b"x"}, "CSV and Parquet files. Give a folder of one kind"),
        ({"a_csv": b""}, r"a\.csv: the file is empty"),
        ({"a_csv": b"age\n1\n", "b_csv": b"age,age\n1,2\n"}, r"b\.csv: two columns have the same name"),
        ({"a_csv": b"age\n1\n", "b_csv": b"<html>ZEBRA7731"}, r"b\.csv: this is not a table"),
        ({"a_parquet": b"ZEBRA7731"}, r"a\.parquet: can't be read as Parquet"),
        ({"a_csv": b"age\n", "b_csv": b"age\n"}, "data: the table has no rows"),
        ({"a_csv": b"age\n1\n", "b_csv": b"age\n1\n2,ZEBRA7731\n"}, r"b\.csv: not a valid CSV file"),
        ({"a_csv": b"age\n1\n", "b_csv": b'age\n"ZEBRA7731\n'}, r"b\.csv: not a valid CSV file"),
        ({"a_csv_gz": gzip.compress(b"age\n" + b"ZEBRA7731\n" * 99)[:-9]}, "cut off|damaged|not a valid"),
    ],
)
def test_folders_that_can_not_be_read_are_refused_without_showing_values(tmp_path, files, problem):
    folder = folder_of(tmp_path, **files)
    with pytest.raises(ValueError, match=problem) as caught:
        list(table_chunks(folder, private=True))
    error: BaseException | None = caught.value
    while error is not None:  # nor may the error of the parser stay attached
        assert SECRET not in str(error)
        error = error.__context__


def test_a_folder_of_folders_is_refused_and_read_as_a_dataset(tmp_path):
    rows = pyarrow.table({"age": [1, 2, 3], "year": [2023, 2024, 2023]})
    pyarrow.dataset.write_dataset(rows, tmp_path, format="parquet", partitioning=["year"], partitioning_flavor="hive")
    with pytest.raises(ValueError, match=r"holds the folder 'year=2023'.*pyarrow\.dataset\.dataset"):
        table_chunks(tmp_path, private=True)
    with pytest.raises(ValueError, match="X: the names of the dataset's folders chose"):
        table_chunks(pyarrow.dataset.dataset(tmp_path, partitioning="hive"), origin="X", private=True)
    stated = pyarrow.dataset.partitioning(pyarrow.schema({"year": pyarrow.int32()}), flavor="hive")
    chunks = table_chunks(pyarrow.dataset.dataset(tmp_path, partitioning=stated), origin="X", private=True, rows=1)
    assert joined(chunks) == [["age", "year"], [1, 2023], [3, 2023], [2, 2024]] == joined(chunks)


def test_datasets_of_all_kinds_are_read(tmp_path):
    table = typed_table()
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    whole = cells(read_table(tmp_path / "a.parquet", private=True).frame)
    for dataset in (pyarrow.dataset.dataset(tmp_path / "a.parquet"), pyarrow.dataset.dataset(table)):
        chunks = table_chunks(dataset, origin="X", private=True, rows=5)
        assert joined(chunks) == whole
        assert max(len(chunk.frame) for chunk in chunks) <= 5


def test_a_dataset_with_cells_of_another_type_is_refused_without_showing_them(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"age": ["1", SECRET]}), tmp_path / "a.parquet")
    schema = pyarrow.schema({"age": pyarrow.int64()})
    dataset = pyarrow.dataset.dataset(tmp_path / "a.parquet", schema=schema)
    with pytest.raises(ValueError, match="X: the dataset can't be read") as caught:
        list(table_chunks(dataset, origin="X", private=True))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", ["csv", "json", "orc"])
@pytest.mark.parametrize("within", ["a file", "a union", "a filter"])
def test_datasets_whose_rows_choose_types_are_refused(tmp_path, kind, within):
    """One row that is no number would change "01" in all others; one far date makes all of ORC unreadable."""
    (tmp_path / f"a.{kind}").write_text("age\n01\n02\n" if kind == "csv" else '{"age": 1}\n')
    if kind == "orc":
        pyarrow.orc.write_table(pyarrow.table({"age": [1]}), str(tmp_path / "a.orc"))
    dataset = pyarrow.dataset.dataset(tmp_path / f"a.{kind}", format=kind)
    if within == "a union":
        dataset = pyarrow.dataset.dataset([pyarrow.dataset.dataset(pyarrow.table({"age": [1]})), dataset])
    elif within == "a filter":
        dataset = dataset.filter(pyarrow.dataset.field("age") > 0)
    for read in (
        lambda: table_chunks(dataset, private=True),
        lambda: Source.from_files(dataset, label="age").read(),
        lambda: read_table(dataset, private=True),
    ):
        with pytest.raises(ValueError, match=r"of Parquet or Arrow.*Give the path, which is read cell by cell"):
            read()


def wait(path: Path) -> None:
    """Set back the time of a file: a change within one tick of the clock would not be seen."""
    os.utime(path, (1, 1))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("change", ["vanishes", "shrinks", "grows", "is replaced"])
@pytest.mark.parametrize("taken", [0, 1])
def test_a_file_that_changes_is_refused_without_showing_values(tmp_path, ending, change, taken):
    path = tmp_path / f"a.{ending}"
    frame = pd.DataFrame({"age": range(40_000), "text": SECRET})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    wait(path)
    chunks = table_chunks(path, private=True, rows=1_000)
    rows = iter(chunks)
    for _ in range(taken):
        next(rows)
    if change == "vanishes":
        path.unlink()
    elif change == "shrinks":
        os.truncate(path, path.stat().st_size // 2)
    elif change == "grows":
        with path.open("ab") as file:
            file.write(b"1,x\n")
    else:
        path.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=rf"a\.{ending}: (the file was changed or removed|can't be read)") as caught:
        list(rows)
    assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match="changed or removed"):  # in later passes too
        list(chunks)


@pytest.mark.parametrize("data", [3, None, [1, 2], pd.DataFrame({"age": [1]}), b"a.csv"], ids=repr)
def test_what_is_no_path_is_refused(data):
    with pytest.raises(TypeError, match=f"must be the path of a {FORMAT_NAMES} file"):
        table_chunks(data, private=True)


@pytest.mark.parametrize("data", ["nothing.csv", "nothing", "", ".", "a.xls", "\0.csv", "a\0"])
def test_paths_without_a_table_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.csv").write_text("age\n1\n")
    with pytest.raises(ValueError, match=r"no such file|expected a file|name of a file|can't be read"):
        table_chunks(data, private=True)


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, "3"])
def test_chunks_have_at_least_one_row(tmp_path, rows):
    (tmp_path / "a.csv").write_text("age\n1\n")
    with pytest.raises(ValueError, match="rows must be a whole number"):
        table_chunks(tmp_path / "a.csv", private=True, rows=rows)


def test_a_table_without_rows_is_refused_unless_their_number_is_private(tmp_path):
    (tmp_path / "a.csv").write_text("age\n")
    with pytest.raises(ValueError, match="no rows"):
        list(table_chunks(tmp_path / "a.csv", private=True))
    (chunk,) = table_chunks(tmp_path / "a.csv", private=True, empty=True)
    assert cells(chunk.frame) == [["age"]]


def test_columns_are_known_before_a_row_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n31,free,too,many,cells\n")
    chunks = table_chunks(tmp_path / "a.csv", origin="--private a.csv", private=True)
    with pytest.raises(ValueError, match=r"--private a\.csv: column 'bmi' of the schema is missing"):
        check_columns(chunks.header, Schema("d", (Number("age", 0, 99), Number("bmi", 0, 50))))


def test_tables_of_many_columns_have_chunks_of_fewer_rows(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(f"c{k}" for k in range(3000)) + "\n" + ",".join("1" * 3000) + "\n")
    assert table_chunks(tmp_path / "a.csv", private=True).rows == 2**20 // 3000
    (tmp_path / "b.csv").write_text("age\n1\n")
    assert table_chunks(tmp_path / "b.csv", private=True).rows == 2**14


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path, ending):
    peaks = []
    for n in (10_000, 40_000):
        path = tmp_path / f"{n}.{ending}"
        pd.DataFrame({"x": np.arange(n) / 7, "y": np.arange(n) / 3}).to_csv(path, index=False)
        chunks = table_chunks(path, private=True, rows=1_000)
        tracemalloc.start()
        for chunk in chunks:
            encode_features(chunk, Schema("d", (Number("x", 0, 1), Number("y", 0, 1))))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_memory_does_not_grow_with_a_row_group(tmp_path):
    peaks = []
    for n in (200_000, 1_600_000):
        path = tmp_path / f"{n}.parquet"
        columns = {"x": np.random.default_rng(0).random(n), "y": np.random.default_rng(1).random(n)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=n)
        before = pyarrow.total_allocated_bytes()
        chunks = table_chunks(path, private=True, rows=5_000)
        peaks.append(max(pyarrow.total_allocated_bytes() - before for _ in chunks))
    assert peaks[1] < 1.5 * peaks[0]


def test_a_small_public_table_is_used_whole_and_a_large_one_by_a_uniform_sample(tmp_path):
    for k in range(3):
        rows = range(1000 * k, 1000 * (k + 1))
        (tmp_path / f"{k}.csv").write_text("\n".join(["number", *map(str, rows)]) + "\n")
    chunks = table_chunks(tmp_path, private=False, rows=70)
    whole, n_rows = sampled_table(chunks, most=3000)
    assert whole.frame["number"].astype(int).tolist() == list(range(3000))
    assert n_rows == 3000
    table, n_rows = sampled_table(chunks, most=400)
    numbers = table.frame["number"].astype(int).to_numpy()
    assert n_rows == 3000
    assert len(np.unique(numbers)) == 400
    assert (np.diff(numbers) > 0).all()
    # Uniform: about as many from each third.
    assert np.all(np.abs(np.bincount(numbers // 1000) - 400 / 3) < 40)
    assert sampled_table(chunks, most=400)[0].frame.equals(table.frame)


def test_no_sample_of_private_rows_is_made(tmp_path):
    (tmp_path / "a.csv").write_text("number\n17\n")
    with pytest.raises(PrivacyError, match="these rows are private"):
        sampled_table(table_chunks(tmp_path, private=True))


def workbook(path: Path, rows: list, *others: str) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name).append([SECRET])
    book.save(path)
    return path


ROWS = [
    [None, " age ", None, "plan", "visit"],
    [0, 31, "x", "free", datetime.datetime(2024, 5, 31)],
    [1, 40.5, "x", None, None],
    [2],
    [3, "12,5", "x", True, datetime.datetime(2024, 6, 1, 12), "beyond the header"],
]


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_the_first_sheet_of_a_workbook_is_a_table_in_one_piece_and_in_chunks(tmp_path, rows):
    path = workbook(tmp_path / "a.xlsx", [[], [None], *ROWS], "other")
    expected = [["age", "plan", "visit"], *([*row, *[None] * 4][1:2] + [*row, *[None] * 4][3:5] for row in ROWS[1:])]
    assert cells(read_table(path, private=True).frame) == expected
    chunks = table_chunks(path, private=True, rows=rows)
    assert joined(chunks) == expected == joined(chunks)
    assert chunks.n_rows is None
    schema = Schema("d", (Number("age", 0, 100), Category("plan", ("free", "True"), missing=True)))
    encoded = np.concatenate([encode_features(chunk, schema) for chunk in chunks])
    assert encoded.tobytes() == encode_features(read_table(path, private=True), schema).tobytes()
    assert encoded.tolist() == [[-0.38, 1, 0, 0], [-0.19, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_a_row_of_a_workbook_whose_cells_are_missing_is_a_row(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [["age"], [31], [None], [40], [None]])
    assert read_table(path, private=True).frame["age"].tolist() == [31, None, 40, None]


def test_the_rows_of_a_workbook_go_to_the_last_one_that_is_stored(tmp_path):
    for last in (3, 5):
        book = openpyxl.Workbook()
        book.active["A1"], book.active[f"A{last}"] = "age", 31
        book.save(tmp_path / "a.xlsx")
        assert read_table(tmp_path / "a.xlsx", private=True).frame["age"].tolist() == [None] * (last - 2) + [31]


def test_the_size_that_a_workbook_states_is_not_believed(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [["age", "plan"], [31, "free"], [40, "paid"]])
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    assert b'ref="A1:B3"' in parts[sheet]
    parts[sheet] = parts[sheet].replace(b'ref="A1:B3"', b'ref="A1"')
    with zipfile.ZipFile(path, "w") as new:
        for name, content in parts.items():
            new.writestr(name, content)
    assert cells(read_table(path, private=True).frame) == [["age", "plan"], [31, "free"], [40, "paid"]]


def test_a_date_of_a_workbook_outside_the_calendar_is_missing_and_not_shown(tmp_path):
    book = openpyxl.Workbook()
    for row, value in enumerate(["visit", 45_000, 77_317_731], start=1):
        book.active.cell(row, 1, value).number_format = "yyyy-mm-dd"
    book.save(tmp_path / "a.xlsx")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = read_table(tmp_path / "a.xlsx", private=True).frame
    assert caught == []
    column = Date("visit", datetime.date(2020, 1, 1), datetime.date(2030, 1, 1), missing=True)
    assert encode_features(Table(frame, "a", private=True), Schema("d", (column,)))[:, 1].tolist() == [0, 1]


def test_workbooks_that_can_not_be_read_are_refused_without_showing_values(tmp_path, monkeypatch):
    for rows, problem in (([], "the first sheet is empty"), ([["a", "a"]], "two columns have the same name")):
        with pytest.raises(ValueError, match=problem):
            read_table(workbook(tmp_path / "a.xlsx", rows), private=True)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04" + SECRET.encode())
    with pytest.raises(ValueError, match=r"a\.xlsx: can't be read as Excel") as caught:
        read_table(tmp_path / "a.xlsx", private=True)
    assert SECRET not in str(caught.value)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        ValueError, match=r"a\.xlsx: Excel files need the package openpyxl: pip install 'dpadapt\[excel\]'"
    ):
        read_table(tmp_path / "a.xlsx", private=True)


def test_a_gap_in_a_workbook_makes_no_decimal_number_of_a_whole_one(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [["id", "n"], [17, 1], [None, 1]])
    assert repr(read_table(path, private=True).frame["id"].tolist()) == "[17, None]"


def test_ids_of_a_workbook_that_may_have_lost_digits_are_none(tmp_path):
    """Excel stores doubles and keeps 15 digits, so that two people's longer numbers are one."""
    long = [10**15, 123456789012345678, -(10**15), 10**300, float(10**15)]
    path = workbook(tmp_path / "a.xlsx", [["id"], *[[cell] for cell in long], [10**15 - 1], ["1000000000000000"]])
    codes = person_shares(read_table(path, private=True).frame["id"], 7).codes
    assert codes.tolist() == [-1, -1, -1, -1, -1, 0, 1]


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_source_reads_numbers_and_labels_cell_by_cell(tmp_path, ending):
    path = tmp_path / f"a.{ending}"

    def write(rows):
        if ending == "csv":
            path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        else:
            workbook(path, [[cell or None for cell in row] for row in rows])
        return Source.from_files(path, label="y").chunks()

    ((X, y),) = write([["a", "b", "y"], [1, "2.5", "7"], [3, 1e3, "x"], ["", 10**300, "3.0"]])
    np.testing.assert_array_equal(X, [[1, 2.5], [3, 1e3], [np.nan, 1e300]])
    assert y.tolist() == [7.0, "x", 3.0]
    for cell in ("2024-01-01", SECRET, "1_000"):
        with pytest.raises(ValueError, match="some columns hold no numbers") as caught:
            list(write([["a", "y"], [cell, 1]]))
        assert cell not in str(caught.value)


@pytest.mark.parametrize("ending", [ending for each in FORMATS for ending in each.endings])
def test_a_folder_has_the_same_ledger_as_the_file_of_its_name(tmp_path, ending):
    folder = tmp_path / f"rows{ending}"
    folder.mkdir()
    assert table_name(folder) == "rows"
