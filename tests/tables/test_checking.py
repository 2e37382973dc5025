"""All problems of two tables and their schema at once; of the private table only the names of columns are read."""

import datetime
import time

import numpy as np
import pandas as pd
import pyarrow
import pytest

from dpadapt.tables import Category, Date, Ignored, Number, Schema, check_tables

PUBLIC = pd.DataFrame({"age": [31.0, 54.0, 40.0], "plan": ["free", "paid", "free"], "cost": [1.5, 2.0, 3.0]})
SCHEMA = Schema("d", (Number("age", 0, 99), Category("plan", ("free", "paid")), Number("cost", 0, 9)))


class Sealed(pd.DataFrame):
    """A private frame whose cells must not be read."""

    def __getitem__(self, key):
        raise AssertionError("a private cell was read")

    items = iterrows = itertuples = to_numpy = __getitem__


def lines(check):
    return str(check).splitlines()


def test_good_tables_have_no_findings():
    check = check_tables(PUBLIC, SCHEMA, Sealed(PUBLIC.copy()), label="cost")
    assert check.findings == ()
    assert str(check) == "no problems were found"
    assert check.fixed == SCHEMA


def test_no_cell_of_the_private_table_is_read():
    names = ["age", "plan", "cost", "ZEBRA7731"]
    sealed = Sealed(pd.DataFrame([["1", "2", "3", "4"]], columns=names))
    check = check_tables(PUBLIC, SCHEMA, sealed, label="cost")
    assert lines(check) == [
        "note: the private table has columns that neither the schema nor the public table has: they are not used"
    ]
    assert check_tables(PUBLIC, SCHEMA, pyarrow.Table.from_pandas(PUBLIC), label="cost").findings == ()


CASES = {
    "missing in public": (
        PUBLIC.drop(columns="age"),
        SCHEMA,
        "problem: column 'age' of the schema is missing in the public",
    ),
    "no value": (PUBLIC.assign(age=None), SCHEMA, "problem: column 'age' has no value in any public row"),
    "no category": (PUBLIC.assign(plan=""), SCHEMA, "problem: column 'plan' has no value in any public row"),
    "text for a number": (PUBLIC.assign(age="old"), SCHEMA, "problem: column 'age' is 'old' in row 1"),
    "missing number": (PUBLIC.assign(age=[31, None, 40]), SCHEMA, "advice: column 'age' has missing cells"),
    "unlisted category": (
        PUBLIC.assign(plan=["gold", "a", ""]),
        SCHEMA,
        "advice: column 'plan' has missing cells and values",
    ),
    "new column": (PUBLIC.assign(bmi=[20.5, 21, 22]), SCHEMA, "advice: column 'bmi' is in the public table"),
    "label missing in a row": (PUBLIC.assign(cost=[1, None, 2]), SCHEMA, "note: 1 public rows without a label"),
    "label ignored": (
        PUBLIC,
        Schema("d", (*SCHEMA.columns[:2], Ignored("cost"))),
        "problem: the label 'cost' is ignore",
    ),
    "label unknown": (PUBLIC, Schema("d", SCHEMA.columns[:2]), "problem: the label 'cost' is not in the schema"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_fixed_is_fixed(case):
    public, schema, words = CASES[case]
    check = check_tables(public, schema, label="cost")
    assert any(line.startswith(words) for line in lines(check))
    again = check_tables(public, check.fixed, label="cost")
    assert all(finding.kind == "note" for finding in again.findings)


UNFIXABLE = {
    "label of mixed types": (PUBLIC.assign(cost=["1", "x", "2"]), SCHEMA, {}, "is 'x' in row 2"),
    "no public label": (PUBLIC.assign(cost=""), SCHEMA, {}, "the label 'cost' has no value"),
    "no class": (PUBLIC, SCHEMA, {"task": "classification"}, "fewer than two classes"),
    "no number": (PUBLIC, SCHEMA, {"label": "plan", "task": "regression"}, "no number in the schema"),
    "unknown class": (PUBLIC.assign(plan="gold"), SCHEMA, {"label": "plan"}, "is 'gold' in row 1"),
    "no such label": (PUBLIC, SCHEMA, {"label": "shoe"}, "neither in the schema nor"),
    "one row": (PUBLIC.iloc[:1], SCHEMA, {}, "at least two public rows"),
    "no feature": (PUBLIC[["cost"]], Schema("d", SCHEMA.columns[2:]), {}, "no column to learn from"),
    "no private label": (PUBLIC, SCHEMA, {"private": PUBLIC[["age", "plan"]]}, "missing in the private table. Add it"),
    "other columns": (PUBLIC, SCHEMA, {"private": PUBLIC.add_prefix("ZEBRA7731")}, "none of the schema's columns"),
}


@pytest.mark.parametrize("case", UNFIXABLE)
def test_what_cannot_be_fixed_is_left(case):
    public, schema, options, words = UNFIXABLE[case]
    check = check_tables(public, schema, **{"label": "cost", **options})
    assert any(words in finding.words for finding in check.unfixable)
    assert "ZEBRA" not in str(check)


def test_columns_that_are_missing_in_one_table_are_ignored_by_the_fix():
    schema = Schema("d", (*SCHEMA.columns, Number("bmi", 10, 60), Ignored("id")))
    check = check_tables(PUBLIC, schema, PUBLIC.drop(columns="plan"), label="cost")
    assert [type(column).__name__ for column in check.fixed.columns] == [
        "Number",
        "Ignored",
        "Number",
        "Ignored",
        "Ignored",
    ]
    assert len(check.problems) == 2


def test_dates_are_checked_like_numbers():
    date = Date("day", datetime.date(2020, 1, 1), datetime.date(2021, 1, 1))
    public = PUBLIC.assign(day=["2020-05-01", "", "2020-06-01"])
    check = check_tables(public, Schema("d", (*SCHEMA.columns, date)), label="cost")
    assert check.fixed.column("day").missing
    public = PUBLIC.assign(day=["a", "b", "a"])
    check = check_tables(public, Schema("d", (*SCHEMA.columns, date)), label="cost")
    assert isinstance(check.fixed.column("day"), Category)


def test_wide_tables_are_checked_at_a_steady_pace():
    """The time per column does not grow with the number of columns, measured as a ratio in one run."""

    def seconds(n):
        frame = pd.DataFrame(np.arange(4.0 * n).reshape(4, n) % 7.5, columns=[f"c{k}" for k in range(n)])
        schema = Schema("d", tuple(Number(name, 0, 9) for name in frame.columns))
        start = time.process_time()
        assert check_tables(frame, schema, frame, label="c0").problems == ()
        return time.process_time() - start

    seconds(100)
    assert seconds(4000) < 3 * 10 * max(seconds(400), 0.01)
