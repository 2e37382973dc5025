"""CSV files: no cell is a formula in a spreadsheet, and ordinary cells are read back unchanged."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from dpadapt.tables import to_csv
from dpadapt.tables.writing import safe_line_end, write_csv, write_parquet

FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "--1", "+-"]
ORDINARY = ["yes", "A+", "-", "+", "-1", "+1.5", "-1e3", "a=b", "x@y.org", "", "it's", "'quoted", "größe", "-inf"]


def read(content):
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)


@pytest.mark.parametrize("text", FORMULAS, ids=ascii)
@pytest.mark.parametrize("kind", [object, "str", "category"])
def test_text_that_would_run_as_a_formula_is_marked_as_text(text, kind):
    frame = pd.DataFrame({text: pd.Series([text, "a"], dtype=kind)})
    again = read(to_csv(frame))
    assert again.columns[0].startswith("'")
    assert again.iloc[0, 0][0] == "'"
    assert again.iloc[1, 0] == "a"


@pytest.mark.parametrize("text", ORDINARY, ids=ascii)
def test_ordinary_text_is_read_back_unchanged(text):
    frame = pd.DataFrame({"prediction": [text, "b"]})
    assert read(to_csv(frame))["prediction"].tolist() == [text, "b"]


def test_a_line_end_inside_a_cell_begins_no_new_one():
    cells = ["a\r=1", "b\n=1", "c\r\n=1"]
    again = list(csv.reader(io.StringIO(to_csv(pd.DataFrame({"x": cells})).decode(), newline="")))
    assert again == [["x"], *([cell] for cell in cells)]


def test_numbers_dates_and_gaps_are_written_as_pandas_writes_them():
    frame = pd.DataFrame(
        {
            "float": [-1.5, np.nan],
            "int": [-3, 4],
            "bool": [True, False],
            "date": pd.to_datetime(["2024-05-31", "2023-01-01"]),
            "gap": ["a", None],
        },
        index=[7, 9],
    )
    assert to_csv(frame) == frame.to_csv(index=False).encode()


def test_two_columns_of_one_name_and_tables_without_rows_are_written():
    frame = pd.DataFrame([[1, "=2"]], columns=["row", "row"])
    assert to_csv(frame) == b"row,row\n1,'=2\n"
    assert to_csv(frame.iloc[:0]) == b"row,row\n"


@pytest.mark.parametrize("cells", [["a", "=1", "b"], ["a", "b\r=1", "c"], ["a", "b\n=1", "c"]], ids=ascii)
def test_a_file_written_in_parts_is_that_of_the_whole_frame(cells):
    frame = pd.DataFrame({"@x": cells, "y": [0.1, -np.inf, 1e-300]})
    parts = [frame.iloc[:1], frame.iloc[1:]]
    file = io.BytesIO()
    write_csv(file, parts, line_end=safe_line_end("".join(cells)))
    assert file.getvalue() == to_csv(frame)
    file = io.BytesIO()
    write_parquet(file, iter(parts))
    pd.testing.assert_frame_equal(pd.read_parquet(file), frame, check_exact=True)
