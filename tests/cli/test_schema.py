"""`dpadapt schema`."""

import pytest
from refusals import refused


def test_a_schema_is_not_overwritten_unasked(run, site, tmp_path):
    outcome = run("schema", tmp_path / "public.csv", "-o", site.schema)
    assert outcome.code == 2
    assert "--force" in outcome.err
    assert run("schema", tmp_path / "public.csv", "-o", site.schema, "--force").code == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("age\n1\nNA\n", "row 2"),
        ("age\n1\ninf\n", "row 2"),
        ("plan,age\na,1\n,2\n", "'plan'"),
        ("", "empty"),
        ("age\n", "no rows"),
    ],
)
def test_bad_table_for_a_schema(run, tmp_path, content, named):
    path = tmp_path / "public.csv"
    path.write_text(content)
    refused(run("schema", path, "-o", tmp_path / "schema.toml"), named)
    assert not (tmp_path / "schema.toml").exists()


def test_schema_into_a_missing_folder_or_of_a_missing_column(run, site, tmp_path):
    refused(run("schema", tmp_path / "public.csv", "-o", tmp_path / "no" / "schema.toml"), "--out")
    refused(run("schema", tmp_path / "public.csv", "-o", tmp_path / "s.toml", "--category", "shoe"), "--category")
