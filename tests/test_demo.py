"""The demo: every method of a task once, panels that agree, help that lowers errors, tables as awkward as they say."""

import numpy as np
import pandas as pd
import pytest

from dpadapt import demo as module
from dpadapt.demo import (
    CASES,
    compared,
    contributions,
    demo_page,
    raw_tables,
    side_by_side,
    worth_in_rows,
    write_raw_tables,
)
from dpadapt.methods import find
from dpadapt.tables import read_table
from tests.pages import NASTY, case, check_page, demo, spread_over

pytestmark = pytest.mark.thorough


@pytest.fixture
def without_other_panels(monkeypatch):
    """Leave out the panels on other kinds of help."""
    for name in ("digits_panel", "people_panel", "centres_panel"):
        monkeypatch.setattr(module, name, lambda *args: None)


@pytest.mark.usefixtures("without_other_panels")
def test_the_panels_agree_where_all_rows_are_used_at_the_middle_epsilon():
    done = []
    (measured,) = side_by_side(CASES[2:3], epsilons=[0.3, 1.0], seeds=1, done=done.append)["cases"]
    by_epsilon, by_rows = measured["panels"]
    for first, second in zip(by_epsilon["curves"], by_rows["curves"], strict=False):
        assert first["key"] == second["key"]
        assert first["points"][-1]["values"] == second["points"][-1]["values"]
    assert done == [measured["name"], f"{measured['name']}, papers", "other help"]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_private_rows_alone_are_one_curve(task):
    alone = [line for line in compared(task) if not line.shared]
    assert [line.key for line in alone] == ["private only"]
    assert compared(task)[0].method.name == find(None, task).name


@pytest.mark.parametrize("named", CASES, ids=lambda each: each.name)
def test_declared_ranges_are_not_empty_and_cover_the_rows(named):
    assert all(low < high for low, high in named.ranges.values())
    domains = named.domains()
    for part in (domains.source, domains.target):
        for name in part.X.columns:
            low, high = named.ranges.get(name, (0.0, 1.0))
            assert np.mean((part.X[name] < low) | (part.X[name] > high)) < 0.01


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.62, 0.91, 0.45, 0.36), "private rows gave 65% of their possible gain. The public rows removed 84% of the"),
        ((0.62, 0.91, 0.62, 0.36), "The private rows made no clear difference. The public rows removed 53%"),
        ((0.62, 0.91, 0.70, 0.36), "clearly worse than the public rows alone. The public rows removed 38%"),
        ((0.36, 0.91, 0.36, 0.36), "the private rows are not clearly better than the public rows alone"),
        ((0.62, 0.40, 0.45, 0.36), "The public rows made the model clearly worse than the private rows alone"),
        ((0.62, 0.45, 0.45, 0.36), "The public rows made no clear difference"),
        ((0.62, 0.36, 0.36, 0.36), "Privacy has no clear cost, even without the public rows"),
        ((0.62, 0.91, 0.30, 0.36), "private rows gave all of their possible gain. The public rows removed all of the"),
    ],
)
def test_contributions_follow_from_the_four_errors(means, expected):
    parts = [{"values": spread_over(mean), "mean": mean} for mean in means]
    assert expected in contributions(*parts)


def panels_of(*errors):
    return demo(case(*errors))["cases"][0]["panels"]


def test_public_rows_are_counted_in_private_ones():
    # Halfway between 0.9 at 100 rows and 0.7 at 1,000, on the logarithmic axis: sqrt(100 * 1,000) = 316.
    sentence = worth_in_rows(panels_of([0.9, 0.7], [0.8, 0.6])[1], 1)
    assert "100 private rows with the public ones do as well as about 320 private rows alone" in sentence
    sentence = worth_in_rows(panels_of([0.9, 0.7], [0.65, 0.6])[1], 1)
    assert "better than all 1,000 private rows alone" in sentence


def test_a_gain_of_the_public_rows_alone_is_not_counted_in_private_rows():
    assert worth_in_rows(panels_of([1.2, 0.6], [0.9, 0.6])[1], 1) is None


def test_only_the_cases_of_the_demo_get_sentences():
    summary = demo(case([1.4, 0.7], [0.85, 0.6]))
    assert summary["cases"][0]["words"]
    assert "words" not in summary["papers"][0]
    assert "mean" in summary["papers"][0]["panels"][0]["levels"][0]


def test_the_demo_page_escapes_names():
    page = demo_page(demo(case([1.4, 0.7], [0.85, 0.6]), case([300.0, 0.7], [0.85, 0.6])))
    check_page(page)
    assert NASTY not in page
    assert "error by epsilon and rows" in page


def test_the_tables_differ_in_age_and_share_no_record(tmp_path):
    tables = raw_tables()
    assert tables["public"]["age"].min() > tables["private"]["age"].max()
    records = pd.concat([table["record"] for table in tables.values()])
    assert records.is_unique
    assert all(table["marriage"].isna().any() for table in tables.values())
    assert "affair" not in tables["new"]


def test_the_files_are_read_back_whole(tmp_path):
    paths = write_raw_tables(tmp_path)
    for name, table in raw_tables().items():
        frame = read_table(paths[name], origin=name, private=name != "public").frame
        assert set(frame.columns) == set(table.columns)
        assert len(frame) == len(table)
    assert ";" in paths["private"].read_text().splitlines()[0]
