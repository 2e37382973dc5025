"""`dpadapt schema` and `dpadapt check`: no private cell is read, and all problems are listed at once."""

import os

import pandas as pd
import pytest
from outcomes import SECRET_TEXT, accepted, refused

from dpadapt.tables import read_schema


def test_a_schema_is_not_overwritten_unasked(run, site, tmp_path):
    refused(run("schema", tmp_path / "public.csv", "-o", site.schema), "--force")
    assert run("schema", tmp_path / "public.csv", "-o", site.schema, "--force").code == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "empty"),
        ("a\nb,c\n", "more cells"),
        ("age\nNA\n", "no column can be used"),
        ("<html>\n<body>\n", "not a table"),
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


def test_names_of_columns_do_not_steer_the_terminal(run, tmp_path):
    name = "id\x1b[2J\x07"
    cells = "".join(f"person {k},{k}\n" for k in range(60))
    (tmp_path / "public.csv").write_text(f"{name},age\n{cells}")
    outcome = accepted(run("schema", tmp_path / "public.csv", "-o", tmp_path / "schema.toml"))
    assert "id\\x1b[2J\\x07" in outcome.out
    assert "\x1b" not in outcome.out
    assert read_schema(tmp_path / "schema.toml").columns[0].name == name
    outcome = run("schema", tmp_path / "public.csv", "-o", tmp_path / "another.toml", "--category", "\x1b[2J")
    refused(outcome)
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize("name", ["pub\x1b[2Jlic.csv", "pub\nlic.csv", os.fsdecode(b"pub\xfflic.csv"), "\t.csv"])
def test_a_file_name_with_strange_characters_gives_a_schema_that_can_be_read(run, tmp_path, name):
    (tmp_path / name).write_text("age,plan\n1,a\n2,b\n")
    outcome = accepted(run("schema", tmp_path / name, "-o", tmp_path / "schema.toml"))
    assert "\x1b" not in outcome.out
    assert read_schema(tmp_path / "schema.toml").dataset == ""
    refused(run("schema", tmp_path / name, "-o", tmp_path / "s.toml", "--dataset", "a\x1b[2J"), "--dataset")


def test_a_table_of_many_columns_is_described_quickly(run, tmp_path):
    # Seconds, not minutes: nothing takes time with the square of the number of columns.
    columns = 3000
    (tmp_path / "public.csv").write_text(
        "\n".join(",".join(cell.format(k) for k in range(columns)) for cell in ("c{}", "1{}", "2{}"))
    )
    assert run("schema", tmp_path / "public.csv", "-o", tmp_path / "schema.toml").code == 0
    assert len(read_schema(tmp_path / "schema.toml").columns) == columns


def test_a_messy_table_has_a_schema_at_once_with_notes_on_what_is_ignored(run, tmp_path):
    rows = [f"{k};{'' if k % 7 else '?'};2020-{k % 12 + 1:02d}-11;{k % 3},5;note {k};" for k in range(60)]
    (tmp_path / "public.csv").write_bytes(("nr;gap;seen;cost;größe;empty\n" + "\n".join(rows)).encode("latin-1"))
    outcome = accepted(run("schema", tmp_path / "public.csv", "-o", tmp_path / "schema.toml"))
    assert "1 number, 1 date, 4 ignored columns" in outcome.out
    for note in ("nr: looks like an identifier", "größe: a different text in every row", "empty: no public row"):
        assert note in outcome.out
    schema = read_schema(tmp_path / "schema.toml")
    assert [column.name for column in schema.features(None)] == ["seen", "cost"]
    assert schema.column("cost").decimal == ","


def check(site, **changes):
    options = {"public": site.folder / "public.csv", "schema": site.schema, "private": site.private, "label": "cost"}
    named = {name: value for name, value in (options | changes).items() if value is not None}
    return ["check", *[part for name, value in named.items() for part in (f"--{name}", value)]]


def test_good_tables_have_no_problems(run, site):
    outcome = run(*check(site))
    assert (outcome.code, outcome.out, outcome.err) == (0, "no problems were found\n", "")


def test_all_problems_are_listed_at_once_and_fixed(run, site, tmp_path):
    public = pd.read_csv(tmp_path / "public.csv")
    public.assign(region="", bmi="fat", new=range(200)).to_csv(tmp_path / "public.csv", index=False)
    private = pd.read_csv(site.private).drop(columns="smoker")
    private.assign(new=1).to_csv(site.private, index=False)
    outcome = run(*check(site))
    assert outcome.code == 2
    assert outcome.err.startswith("dpadapt: error: 3 problems left.")
    for words in ("'smoker' of the schema is missing in the private table", "'region' has no value", "'bmi' is 'fat'"):
        assert words in outcome.out
    accepted(run(*check(site), "--fix"))
    assert run(*check(site)).code == 0
    assert run(*site.fit(epsilon=0.001, ledger=None)).code == 0
    assert [column.name for column in read_schema(site.schema).features("cost")] == ["age", "bmi", "ill"]


def test_only_the_first_line_of_the_private_file_is_read(run, site, tmp_path):
    header = site.private.read_text().splitlines()[0]
    site.private.write_bytes(header.encode() + b'\n"\x00\xff not a table ' + SECRET_TEXT.encode())
    assert run(*check(site)).code == 0
    # Without a header, the first line is a private row: none of its cells may be shown.
    site.private.write_text(f"{SECRET_TEXT},31,north\n")
    outcome = run(*check(site))
    assert outcome.code == 2
    assert "none of the schema's columns" in outcome.out
    assert SECRET_TEXT not in outcome.out + outcome.err
    site.private.write_text(f"{header},{SECRET_TEXT}\n")
    outcome = accepted(run(*check(site)))
    assert "they are not used" in outcome.out
    assert SECRET_TEXT not in outcome.out + outcome.err


def test_a_corrected_schema_can_be_written_elsewhere(run, site, tmp_path):
    before = site.schema.read_bytes()
    private = pd.read_csv(site.private).drop(columns="smoker")
    private.to_csv(site.private, index=False)
    refused(run(*check(site), "-o", tmp_path / "better.toml"), "--out is where --fix writes")
    accepted(run(*check(site), "--fix", "-o", tmp_path / "better.toml"))
    assert site.schema.read_bytes() == before
    assert "smoker" not in [column.name for column in read_schema(tmp_path / "better.toml").features("cost")]


def test_what_another_schema_cannot_solve_is_left(run, site):
    pd.read_csv(site.private).drop(columns="cost").to_csv(site.private, index=False)
    outcome = run(*check(site), "--fix")
    assert outcome.code == 2
    assert "1 problem left" in outcome.err
    assert "the label 'cost' is missing in the private table" in outcome.out


def test_missing_files_are_refused(run, site, tmp_path):
    refused(run(*check(site, public=tmp_path / "no.csv")), "--public")
    refused(run(*check(site, schema=tmp_path / "no.toml")), "--schema")
    refused(run(*check(site, private=tmp_path / "no.csv")), "private")
