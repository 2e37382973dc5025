"""Every bad input: one line, exit code 2, the argument named, nothing private shown, nothing spent."""

import os

import pandas as pd
import pytest
from outcomes import SECRET_NUMBER, SECRET_TEXT, accepted, edit_private, refused

from dpadapt.persist import MODEL_FILE
from tests.failures import failing

pytestmark = pytest.mark.every_fourth

PRIVATE = {
    "missing column": (lambda f: f.drop(columns="age"), ["--private", "'age'", "missing"]),
    "missing label": (lambda f: f.drop(columns="cost"), ["--private", "'cost'", "missing"]),
    "no known column": (lambda f: f.add_prefix(SECRET_TEXT), ["--private", "none of the schema's columns"]),
    "no rows": (lambda f: f.iloc[:0], ["--private", "no rows"]),
    "one row": (lambda f: f.iloc[2:3], []),
    "unnamed column": (lambda f: f.rename(columns={"age": " "}), ["--private", "'age'", "missing"]),
}

# What is encoded without a message, because a message would reveal something about private rows.
SILENT = {
    "extra columns": lambda f: f.assign(shoe=1, **{SECRET_TEXT: SECRET_NUMBER}),
    "another order": lambda f: f[f.columns[::-1]],
    "unknown category": lambda f: f.assign(region=SECRET_TEXT),
    "no label at all": lambda f: f.assign(cost="nan"),
    "text for a label": lambda f: f.assign(cost=SECRET_TEXT),
    "mixed labels": lambda f: f.assign(cost=[SECRET_TEXT, *f["cost"][1:]]),
    "one label missing": lambda f: f.assign(cost=["", *f["cost"][1:]]),
    "missing category": lambda f: f.assign(region=""),
    "missing number": lambda f: f.assign(age=""),
    "text for a number": lambda f: f.assign(age=SECRET_TEXT),
    "number with a unit": lambda f: f.assign(age=SECRET_NUMBER + " years"),
    "infinite number": lambda f: f.assign(bmi="inf"),
    "control characters": lambda f: f.assign(region="\x1b[2J\x07"),
}


@pytest.mark.parametrize("case", SILENT)
def test_ordinary_mess_in_private_cells_is_encoded_silently(run, site, case):
    edit_private(site, lambda f: f)
    plain = run(*site.fit(ledger=None, seed=1, epsilon=0.001))
    edit_private(site, SILENT[case])
    outcome = accepted(run(*site.fit(ledger=None, seed=1, epsilon=0.001)))
    # The budget is too small for anything to be released: the output may not differ at all.
    note = f"--private {site.private}: columns that the schema does not know are not used."
    printed = "".join(outcome.out.split()).replace("".join(note.split()), "")
    assert printed == "".join(plain.out.split())
    assert ("".join(note.split()) in "".join(outcome.out.split())) == (case == "extra columns")
    for secret in (SECRET_TEXT, SECRET_NUMBER, "\x1b"):
        assert secret not in outcome.out + outcome.err


def test_a_private_file_that_is_read_whole_is_encoded_silently_too(run, site):
    """The rows of persons are not read in chunks."""
    edit_private(site, SILENT["mixed labels"])
    outcome = accepted(run(*site.fit(person="id", ledger=None, seed=1, epsilon=0.001)))
    assert SECRET_TEXT not in outcome.out + outcome.err


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("case", PRIVATE)
def test_bad_private_table(run, site, case, ending):
    change, named = PRIVATE[case]
    edit_private(site, change)
    path = site.private.with_suffix(f".{ending}")
    if ending == "parquet":
        pd.read_csv(site.private, dtype=str, keep_default_na=False).to_parquet(path)
    refused(run(*site.fit(private=path)), *named)
    assert site.untouched()


@pytest.mark.parametrize("values", [["0", SECRET_NUMBER], ["0", "2"], ["0", "yes"]], ids=str)
def test_labels_outside_the_declared_set_count_as_missing_and_nothing_is_said(run, site, values):
    printed = []
    for odd in (values[1], ""):
        edit_private(site, lambda f, odd=odd: f.assign(ill=[(values[0], odd)[k % 2] for k in range(len(f))]))
        outcome = run(*site.fit(label="ill", task="classification", method="logistic", ledger=None, seed=1))
        assert (outcome.code, outcome.err) == (0, "")
        assert SECRET_NUMBER not in outcome.out
        printed.append((outcome.out, (site.out / MODEL_FILE).read_bytes()))
    assert printed[0] == printed[1]


def test_private_csv_without_a_header_does_not_show_its_first_row(run, site):
    # The first row reads as names of columns, two of them equal.
    row = f"{SECRET_TEXT},{SECRET_NUMBER},north,yes,{SECRET_NUMBER},2,0\n"
    site.private.write_text(row * 2)
    refused(run(*site.fit()), "--private", "first line")
    site.private.write_text(f"id,age,region,smoker,bmi,cost,ill,{SECRET_TEXT},{SECRET_TEXT}\n" + row)
    refused(run(*site.fit()), "--private", "same name")
    assert site.untouched()


@pytest.mark.parametrize("option", ["private", "public"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("content", [b"", b"PAR1 no", SECRET_TEXT.encode() * 40], ids=["empty", "short", "text"])
def test_an_unreadable_table_is_refused(run, site, tmp_path, option, ending, content):
    path = tmp_path / f"broken.{ending}"
    path.write_bytes(content)
    refused(run(*site.fit(**{option: path})), f"--{option}")
    assert site.untouched()


@pytest.mark.parametrize("option", ["private", "public", "schema"])
def test_missing_file_and_folder_in_its_place(run, site, tmp_path, option):
    suffix = ".toml" if option == "schema" else ".csv"
    refused(run(*site.fit(**{option: tmp_path / f"nothing{suffix}"})), f"--{option}")
    (tmp_path / f"folder{suffix}").mkdir()
    refused(run(*site.fit(**{option: tmp_path / f"folder{suffix}"})), f"--{option}")
    assert site.untouched()


def test_unknown_kind_of_file(run, site, tmp_path):
    (tmp_path / "private.xls").write_bytes(b"x")
    refused(run(*site.fit(private=tmp_path / "private.xls")), "--private", ".csv", ".parquet")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 0}, "--epsilon"),
        ({"epsilon": -1}, "--epsilon"),
        ({"epsilon": "nan"}, "--epsilon"),
        ({"epsilon": "inf"}, "--epsilon"),
        ({"epsilon": "much"}, "--epsilon"),
        ({"delta": 1}, "--delta"),
        ({"delta": -1e-6}, "--delta"),
        ({"delta": "nan"}, "--delta"),
        ({"delta": 0}, "--delta"),
        ({"ledger_delta": 0}, "--ledger-delta"),
        ({"method": "nonsense"}, "--method"),
        ({"method": "logistic"}, "--method"),
        ({"task": "clustering"}, "--task"),
        ({"task": "classification"}, "--task classification"),
        ({"label": "region"}, "--task regression"),
        ({"label": "id"}, "--task regression"),
        ({"label": "nonsense"}, "--label"),
        ({"ledger_epsilon": 0}, "--ledger-epsilon"),
        ({"ledger_delta": 2}, "--ledger-delta"),
        ({"ledger_epsilon": 99}, "was made with 3"),
        ({"ledger": None, "ledger_epsilon": 5}, "--ledger"),
        ({"adjacency": "nonsense"}, "--adjacency"),
        ({"adjacency": "add-remove"}, "--rows"),
        ({"rows": 5}, "--rows"),
        ({"adjacency": "replace-one"}, "adjacency"),
        ({"epsilon": 4}, "cap"),
        ({"seed": -1}, "random_state"),
    ],
    ids=str,
)
def test_bad_option(run, site, changes, named):
    edit_private(site, lambda f: f)
    refused(run(*site.fit(**changes)), named)
    assert site.untouched()


@pytest.mark.parametrize("command", ["fit", "schema", "check", "predict"])
def test_an_unknown_encoding_is_refused_by_name(run, site, tmp_path, command):
    assert run(*site.fit(epsilon=0.001, ledger=None)).code == 0
    arguments = {
        "fit": site.fit(encoding="no-such"),
        "schema": ["schema", tmp_path / "public.csv", "-o", tmp_path / "s.toml", "--encoding", "no-such"],
        "check": ["check", "--public", tmp_path / "public.csv", "--schema", site.schema, "--encoding", "no-such"],
        "predict": ["predict", site.out, tmp_path / "new.csv", "-o", tmp_path / "o.csv", "--encoding", "no-such"],
    }
    refused(run(*arguments[command]), "'no-such'", "not known")


def test_public_columns_without_values_or_of_another_kind_are_refused(run, site, tmp_path):
    frame = pd.read_csv(tmp_path / "public.csv", dtype=str)
    for change, named in (
        ({"bmi": ""}, "'bmi' has no value in any row"),
        ({"bmi": "much"}, "'much' in row 1"),
        ({"cost": ""}, "'cost' has no value in any row"),
        ({"bmi": None}, "'bmi'"),
    ):
        frame.assign(**change).dropna(axis=1, how="all").to_csv(tmp_path / "public.csv", index=False)
        refused(run(*site.fit()), "--public", named)
    assert site.untouched()


def test_a_refused_fit_leaves_no_new_ledger_behind(run, site, tmp_path):
    (tmp_path / "one.csv").write_text("".join((tmp_path / "public.csv").read_text().splitlines(True)[:2]))
    for changes in ({"delta": 0}, {"public": tmp_path / "one.csv"}):
        refused(run(*site.fit(ledger=tmp_path / "new.ledger", **changes)))
        assert not (tmp_path / "new.ledger").exists()


@pytest.mark.parametrize("copied", [False, True])
def test_the_private_file_is_refused_as_the_public_one(run, site, tmp_path, copied):
    edit_private(site, lambda f: f.assign(bmi=20))
    path = site.private
    if copied:
        path = tmp_path / "copy.csv"
        path.write_bytes(site.private.read_bytes())
    refused(run(*site.fit(public=path)), "--public", "private file")
    assert site.untouched()


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "one byte"])
def test_corrupt_ledger(run, site, damage):
    assert run(*site.fit(epsilon=0.5)).code == 0
    receipt = (site.out / "receipt.json").read_bytes()
    broken = site.folder / "broken.ledger"
    content = site.ledger.read_bytes()
    middle = len(content) // 2
    damaged = {"truncated": content[:middle], "garbage": b"nonsense " * 900, "empty": b""}
    damaged["one byte"] = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    broken.write_bytes(damaged[damage])
    refused(run(*site.fit(ledger=broken)), "broken.ledger")
    refused(run("ledger", "show", broken), "broken.ledger")
    assert (site.out / "receipt.json").read_bytes() == receipt


def test_ledger_that_is_a_folder_or_has_none(run, site, tmp_path):
    (tmp_path / "folder").mkdir()
    refused(run(*site.fit(ledger=tmp_path / "folder")), "--ledger")
    refused(run(*site.fit(ledger=tmp_path / "no" / "such.ledger")), "--ledger", "--no-ledger")


@pytest.mark.parametrize("place", ["a file", "below a file"])
def test_output_folder_that_cannot_be_made(run, site, tmp_path, place):
    (tmp_path / "file").write_text("x")
    out = tmp_path / "file" if place == "a file" else tmp_path / "file" / "model"
    refused(run(*site.fit(out=out)), "--out")
    assert site.untouched()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_output_folder_that_is_read_only(run, site):
    site.out.mkdir(mode=0o500)
    refused(run(*site.fit()), "--out")
    assert site.untouched()


def test_write_refused_by_the_system(run, site, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", failing(PermissionError(13, "Permission denied")))
    refused(run(*site.fit()), "--out", "Permission denied")
    assert site.untouched()


def test_schema_that_is_no_text_or_wrong(run, site):
    site.schema.write_bytes(b"\xff\xfe\x00")
    refused(run(*site.fit()), "--schema", "UTF-8")
    site.schema.write_text('dataset = "patients"\n[columns.age]\ntype = "dates"')
    refused(run(*site.fit()), "--schema", "'age'")
    assert site.untouched()


def test_no_private_value_leaves_with_a_good_fit(run, site):
    # In an ignored column and beyond a range: neither may show up anywhere.
    edit_private(site, lambda f: f)
    outcome = accepted(run(*site.fit()))
    written = b"".join(path.read_bytes() for path in site.out.iterdir())
    for secret in (SECRET_TEXT, SECRET_NUMBER):
        assert secret not in outcome.out + outcome.err
        assert secret.encode() not in written
