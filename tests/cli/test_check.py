"""`dpadapt check`: all problems at once, and no private cell is read."""

import pandas as pd
from refusals import SECRET_TEXT, refused

from dpadapt.tables import read_schema


def arguments(site, **changes):
    options = {"public": site.folder / "public.csv", "schema": site.schema, "private": site.private, "label": "cost"}
    named = {name: value for name, value in (options | changes).items() if value is not None}
    return ["check", *[part for name, value in named.items() for part in (f"--{name}", value)]]


def test_good_tables_have_no_problems(run, site):
    outcome = run(*arguments(site))
    assert (outcome.code, outcome.out, outcome.err) == (0, "no problems were found\n", "")


def test_all_problems_are_listed_at_once_and_fixed(run, site, tmp_path):
    public = pd.read_csv(tmp_path / "public.csv")
    public.assign(region="", bmi="fat", new=range(200)).to_csv(tmp_path / "public.csv", index=False)
    private = pd.read_csv(site.private).drop(columns="smoker")
    private.assign(new=1).to_csv(site.private, index=False)
    outcome = run(*arguments(site))
    assert outcome.code == 2
    assert outcome.err.startswith("dpadapt: error: 3 problems left.")
    for words in ("'smoker' of the schema is missing in the private table", "'region' has no value", "'bmi' is 'fat'"):
        assert words in outcome.out
    outcome = run(*arguments(site), "--fix")
    assert outcome.code == 0, outcome.err
    assert run(*arguments(site)).code == 0
    assert run(*site.fit(epsilon=0.001, ledger=None)).code == 0
    assert [column.name for column in read_schema(site.schema).features("cost")] == ["age", "bmi", "ill"]


def test_only_the_first_line_of_the_private_file_is_read(run, site, tmp_path):
    header = site.private.read_text().splitlines()[0]
    site.private.write_bytes(header.encode() + b'\n"\x00\xff not a table ' + SECRET_TEXT.encode())
    assert run(*arguments(site)).code == 0
    # Without a header, the first line is a private row: none of its cells may be shown.
    site.private.write_text(f"{SECRET_TEXT},31,north\n")
    outcome = run(*arguments(site))
    assert outcome.code == 2
    assert "none of the schema's columns" in outcome.out
    assert SECRET_TEXT not in outcome.out + outcome.err
    site.private.write_text(f"{header},{SECRET_TEXT}\n")
    outcome = run(*arguments(site))
    assert outcome.code == 0
    assert "they are not used" in outcome.out
    assert SECRET_TEXT not in outcome.out + outcome.err


def test_a_corrected_schema_can_be_written_elsewhere(run, site, tmp_path):
    before = site.schema.read_bytes()
    private = pd.read_csv(site.private).drop(columns="smoker")
    private.to_csv(site.private, index=False)
    outcome = run(*arguments(site), "--fix", "-o", tmp_path / "better.toml")
    assert outcome.code == 0
    assert site.schema.read_bytes() == before
    assert "smoker" not in [column.name for column in read_schema(tmp_path / "better.toml").features("cost")]


def test_what_another_schema_cannot_solve_is_left(run, site):
    pd.read_csv(site.private).drop(columns="cost").to_csv(site.private, index=False)
    outcome = run(*arguments(site), "--fix")
    assert outcome.code == 2
    assert "1 problem left" in outcome.err
    assert "the label 'cost' is missing in the private table" in outcome.out


def test_missing_files_are_refused(run, site, tmp_path):
    refused(run(*arguments(site, public=tmp_path / "no.csv")), "--public")
    refused(run(*arguments(site, schema=tmp_path / "no.toml")), "--schema")
    refused(run(*arguments(site, private=tmp_path / "no.csv")), "private")
