"""The raw tables of the demo are as awkward as they say."""

import pandas as pd
import pytest

from dpadapt.demo.raw_tables import raw_tables, write_raw_tables
from dpadapt.tables import read_table

pytestmark = pytest.mark.thorough


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
