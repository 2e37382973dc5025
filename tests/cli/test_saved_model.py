"""`dpadapt predict`, `statement` and `audit`: predictions, pages and verdicts of a saved model, and their refusals."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outcomes import SECRET_TEXT, accepted, refused

from dpadapt import Ledger, persist, save
from dpadapt.cli import main
from dpadapt.inputs.files import FORMAT_NAMES
from dpadapt.papers.adaptation import ReverseAdaptation
from dpadapt.tables import TableModel
from tests.saved_models import json_of, rewrite


def test_bad_models_rows_and_outputs_are_refused(run, site, fitted, tmp_path):
    fitted()
    new, out = tmp_path / "new.csv", tmp_path / "o.csv"
    refused(run("predict", tmp_path, new, "-o", out), "not a model")
    refused(run("predict", tmp_path / "nothing", new, "-o", out), "not a model")
    refused(run("predict", site.out, new, "-o", tmp_path / "o.xlsx"), "--out")
    refused(run("predict", site.out, new, "-o", tmp_path / "no" / "o.csv"), "--out")
    refused(run("predict", site.out, new, "-o", tmp_path), "--out")
    frame = pd.read_csv(new, dtype=str)
    frame.drop(columns="age").to_csv(new, index=False)
    refused(run("predict", site.out, new, "-o", out), "'age'")
    assert not Path(out).exists()


def test_text_classes_are_predicted_as_text(run, site, fitted, tmp_path):
    fitted(label="region", task="classification")
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    assert set(pd.read_csv(tmp_path / "o.csv")["prediction"]) <= {"north", "south", "west"}


def test_predictions_equal_those_of_the_loaded_model(run, site, fitted, tmp_path):
    fitted()
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns=["id", "cost"]).to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    model = persist.load(site.out).model
    assert isinstance(model, TableModel)
    for table in (rows, pd.read_csv(rows), pd.read_csv(rows).assign(cost=1, shoe="44").iloc[:, ::-1]):
        assert np.allclose(pd.read_csv(tmp_path / "o.csv")["prediction"], model.predict(table))


def test_messy_rows_are_predicted_without_a_message(run, site, fitted, tmp_path):
    fitted()
    new = tmp_path / "new.csv"
    frame = pd.read_csv(new, dtype=str)
    frame.loc[0, "region"], frame.loc[1, "age"] = SECRET_TEXT, "?"
    frame.assign(shoe=44).to_csv(new, index=False, sep=";", encoding="utf-16")
    outcome = accepted(run("predict", site.out, new, "-o", tmp_path / "o.csv"))
    assert outcome.out.splitlines()[0].endswith("new.csv: columns that the schema does not know are not used.")
    assert pd.read_csv(tmp_path / "o.csv")["prediction"].notna().sum() == len(frame)


def test_class_names_are_no_formulas_in_the_file(run, site, fitted, tmp_path):
    names = {"north": "=1+1", "south": "-", "west": "@SUM(A1)"}
    for name in ("public", "private"):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame["region"] = frame["region"].map(names)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert run("schema", tmp_path / "public.csv", "-o", site.schema, "--force").code == 0
    fitted(label="region", task="classification", ledger=None)
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    assert set(pd.read_csv(tmp_path / "o.csv", dtype=str)["prediction"]) <= {"'=1+1", "-", "'@SUM(A1)"}
    # Parquet files have types: nothing there is taken for a formula.
    assert run("predict", site.out, rows, "-o", tmp_path / "o.parquet").code == 0
    assert set(pd.read_parquet(tmp_path / "o.parquet")["prediction"]) <= set(names.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["extra"].update(schema=None),
        lambda model: model["extra"].update(schema=[1]),
        lambda model: model["extra"].update(schema={"dataset": "d", "columns": {"age": {"type": ["number"]}}}),
        lambda model: model["extra"].update(label={"a": 1}),
        lambda model: model["extra"]["schema"]["columns"].pop("age"),
        lambda model: model["attributes"].update(coef_="SECRET"),
        lambda model: model["attributes"].update(intercept_=None),
        lambda model: model["attributes"].update(n_features_in_="many"),
        lambda model: model.update(extra=None),
        lambda model: model.update(params={"epsilon": {"tuple": 3}}),
    ],
)
def test_a_model_with_wrong_contents_is_refused_by_one_line(run, site, fitted, tmp_path, change):
    fitted(method="linear", ledger=None)
    model = json_of(site.out)
    change(model)
    rewrite(site.out, {"model.json": model})
    outcome = run("predict", site.out, tmp_path / "new.csv", "-o", tmp_path / "o.csv")
    if outcome.code != 0:
        refused(outcome)
        assert "unexpected" not in outcome.err
        assert not (tmp_path / "o.csv").exists()
    else:
        # The arrays, not the attributes in model.json, hold the coefficients: nothing was changed.
        assert "coef_" in model["attributes"] or "epsilon" in model["params"]


def test_coverage_adds_the_ends_of_intervals(run, site, tmp_path):
    fitted = accepted(run(*site.fit(epsilon=3), "--intervals"))
    # What coverage means is an ordinary line, not a warning.
    said = " ".join(fitted.out.split())
    assert "Intervals and sets of a coverage of 90% hold the label of about 90% of new rows" in said
    assert "warning: intervals" not in said
    assert "Intervals and sets of a coverage of 90%" in (site.out / "report.html").read_text()
    new, out = tmp_path / "new.csv", tmp_path / "o.csv"
    assert run("predict", site.out, new, "-o", out, "--coverage", 0.8).code == 0
    written, model = pd.read_csv(out), persist.load(site.out).model
    assert list(written) == ["prediction", "lower", "upper"]
    assert np.allclose(written[["lower", "upper"]], model.predict_interval(pd.read_csv(new), coverage=0.8))
    assert (written["upper"] > written["prediction"]).all()
    # Without it, the file is as before.
    assert run("predict", site.out, new, "-o", out).code == 0
    assert list(pd.read_csv(out)) == ["prediction"]


def test_coverage_adds_the_classes_of_sets(run, site, fitted, tmp_path):
    fitted("--intervals", label="region", task="classification", epsilon=3)
    rows, out = tmp_path / "rows.csv", tmp_path / "o.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", out, "--coverage", 0.8).code == 0
    written = pd.read_csv(out)
    members = written[[f"set has {name}" for name in ("north", "south", "west")]]
    assert np.array_equal(members, persist.load(site.out).model.predict_set(rows, coverage=0.8))


def test_a_coverage_is_refused_without_intervals_or_outside_0_and_1(run, site, fitted, tmp_path):
    fitted()
    new, out = tmp_path / "new.csv", tmp_path / "o.csv"
    refused(run("predict", site.out, new, "-o", out, "--coverage", 0.9), "without --intervals")
    refused(run("predict", site.out, new, "-o", out, "--coverage", 90), "--coverage must lie between 0 and 1")
    assert not out.exists()


def test_intervals_that_can_not_be_had_are_refused_before_anything_is_spent(run, site):
    refused(run(*site.fit(method="reverse-adaptation"), "--intervals"), "--intervals")
    refused(run(*site.fit(public=None), "--intervals"), "--intervals", "--public")
    assert site.untouched()


@pytest.fixture
def small_chunks(monkeypatch):
    """Make chunks of seven rows."""
    monkeypatch.setattr("dpadapt.tables.reading._CHUNK_ROWS", 7)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("label", "task", "options"),
    [
        ("cost", "regression", {}),
        ("cost", "regression", {"method": "linear"}),
        ("region", "classification", {}),
        ("ill", "classification", {"method": "logistic"}),
        ("cost", "regression", {"coverage": 0.8}),
        ("region", "classification", {"coverage": 0.8}),
    ],
)
def test_predictions_in_chunks_are_those_of_the_whole_table(run, site, tmp_path, monkeypatch, label, task, options):
    coverage = options.pop("coverage", None)
    beside = [] if coverage is None else ["--coverage", coverage]
    fit = site.fit(label=label, task=task, epsilon=3, **options)
    assert run(*fit, *(["--intervals"] if beside else [])).code == 0
    rows = pd.read_csv(site.private).drop(columns=label).head(60)
    rows.loc[::5, "region" if label != "region" else "smoker"] = None
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    for folder, ending in (("texts", "csv"), ("tables", "parquet")):
        (tmp_path / folder).mkdir()
        for k, part in enumerate(np.array_split(np.arange(len(rows)), 3)):
            path = tmp_path / folder / f"{k}.{ending}"
            piece = rows.iloc[part].reset_index(drop=True)
            piece.to_csv(path, index=False) if ending == "csv" else piece.to_parquet(path)
    for ending in ("csv", "parquet"):
        out = tmp_path / f"o.{ending}"
        assert run("predict", site.out, tmp_path / "rows.csv", "-o", out, *beside).code == 0
        expected, read = out.read_bytes(), pd.read_csv if ending == "csv" else pd.read_parquet
        whole = read(out)
        with monkeypatch.context() as patched:
            patched.setattr("dpadapt.tables.reading._CHUNK_ROWS", 7)
            for data in ("rows.csv", "rows.parquet", "texts", "tables"):
                accepted(run("predict", site.out, tmp_path / data, "-o", out, *beside))
                pd.testing.assert_frame_equal(read(out), whole, check_exact=True)
                assert ending == "parquet" or out.read_bytes() == expected


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_failure_midway_leaves_the_old_file_and_no_scraps(run, site, fitted, tmp_path, small_chunks, ending, place):
    fitted()
    rows = tmp_path / "rows"
    rows.mkdir()
    table = pd.read_csv(site.private).to_csv(index=False)
    if place == "file":
        (rows / "a.csv").write_text(table + f"1,2,3,4,5,6,7,8,{SECRET_TEXT}\n")
    else:
        (rows / "a.csv").write_text(table)
        (rows / "b.csv").write_text(table + f'"{SECRET_TEXT}\n')
    target = tmp_path / "out"
    target.mkdir()
    out = target / f"o.{ending}"
    data = rows / "a.csv" if place == "file" else rows
    refused(run("predict", site.out, data, "-o", out), "not a valid CSV file")
    assert not list(target.iterdir())
    out.write_bytes(b"old")
    refused(run("predict", site.out, data, "-o", out), "not a valid CSV file")
    assert [path.name for path in target.iterdir()] == [out.name]
    assert out.read_bytes() == b"old"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_is_refused_and_leaves_no_scraps(run, site, fitted, tmp_path, small_chunks, ending):
    resource = pytest.importorskip("resource")
    fitted()
    target = tmp_path / "out"
    target.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    try:
        outcome = run("predict", site.out, site.private, "-o", target / f"o.{ending}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(outcome, "--out", "can't be written (File too large)")
    assert not list(target.iterdir())


def test_predictions_may_replace_their_table(run, site, fitted, tmp_path, small_chunks):
    fitted()
    rows = pd.read_csv(site.private)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert run("predict", site.out, tmp_path / "rows.csv", "-o", tmp_path / "rows.csv").code == 0
    assert pd.read_csv(tmp_path / "rows.csv").shape == (len(rows), 1)


def test_folders_that_are_no_table_are_refused(run, site, fitted, tmp_path):
    fitted()
    rows, out = tmp_path / "rows", tmp_path / "o.csv"
    rows.mkdir()
    refused(run("predict", site.out, rows, "-o", out), "rows", f"no {FORMAT_NAMES} files")
    (rows / "year=2024").mkdir()
    refused(run("predict", site.out, rows, "-o", out), "rows", "year=2024")
    (rows / "year=2024").rmdir()
    table = pd.read_csv(site.private)
    table.to_csv(rows / "a.csv", index=False)
    table.rename(columns={"age": SECRET_TEXT}).to_csv(rows / "b.csv", index=False)
    refused(run("predict", site.out, rows, "-o", out), "b.csv", "its columns are not those of")
    table.iloc[:0].to_csv(rows / "a.csv", index=False)
    (rows / "b.csv").unlink()
    refused(run("predict", site.out, rows, "-o", out), "rows", "no rows")
    refused(run("predict", site.out, "", "-o", out), "name of a file or folder")
    assert not out.exists()


def test_a_coverage_that_can_not_be_calibrated_is_warned_about_once(run, site, fitted, tmp_path, small_chunks):
    fitted("--intervals", epsilon=0.2)
    outcome = accepted(run("predict", site.out, site.private, "-o", tmp_path / "o.csv", "--coverage", 0.99))
    assert outcome.out.count("warning: intervals of coverage 0.99") == 1
    assert np.isinf(pd.read_csv(tmp_path / "o.csv")["upper"]).all()


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_number_of_rows(run, site, fitted, tmp_path, monkeypatch):
    fitted()
    monkeypatch.setattr("dpadapt.tables.reading._CHUNK_ROWS", 1_000)
    for out in (tmp_path / "o.csv", tmp_path / "o.parquet"):
        peaks = []
        for n in (4_000, 16_000):
            pd.read_csv(site.private).sample(n, replace=True, random_state=0).to_csv(tmp_path / "rows.csv", index=False)
            tracemalloc.start()
            code = run("predict", site.out, tmp_path / "rows.csv", "-o", out).code
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert code == 0
        assert peaks[1] < 1.5 * peaks[0]


# The statement.


@pytest.fixture
def described(site, fitted):
    fitted()
    site.private.unlink()
    return site.out


def test_the_text_says_what_an_officer_asks(run, described):
    outcome = accepted(run("statement", described))
    said = " ".join(outcome.out.split())
    for part in (
        "privacy unit is one row",
        "number of rows is public",
        "Rows are protected, not persons",
        "factor of at most 2.7",
        "What is assumed to be public",
        "the schema",
        "scout: Gaussian",
        "model.dpadapt",
        "second accountant",
        "What is not covered",
    ):
        assert part in said, part


def test_the_page_stands_alone(run, described, site):
    out = site.folder / "statement.html"
    assert run("statement", described, "--out", out).code == 0
    page = out.read_text()
    assert "Privacy statement" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_person_is_the_unit_where_persons_were_protected(run, site):
    schema = site.schema.read_text()
    assert run(*site.fit(person="id", ledger=site.folder / "persons.ledger")).code == 0, schema
    said = " ".join(run("statement", site.out).out.split())
    assert "privacy unit is one person (all rows with one id)" in said
    assert "Rows are protected, not persons" not in said


def test_a_folder_without_a_model_is_refused(run, site):
    refused(run("statement", site.folder))


# The audit.


@pytest.fixture
def model(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    ledger = Ledger.open(tmp_path / "rows.ledger", epsilon=20.0, delta=1e-5)
    save(ReverseAdaptation(epsilon=9.9, delta=1e-5).fit(X, X[:, 0], ledger=ledger), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "missing argument 'model'"),
        (["nowhere/"], "not a model"),
        (["nowhere/", "--ledger", "nowhere.ledger"], "there is no such ledger"),
        (["nowhere/", "--dataset", "patients"], "--dataset names the data set on the server"),
    ],
)
def test_bad_options_get_one_line_and_exit_with_2(options, named, capsys):
    assert main(["audit", *options]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert named in errors[0].lower()


def test_a_model_is_audited_with_its_ledger(model, capsys):
    assert main(["audit", str(model), "--ledger", str(model.parent / "rows.ledger")]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "the ledger was charged" in words
    assert "all 5 checks agree with the receipt (epsilon = 9.9, delta = 1e-05). This is no proof." in words


def test_the_json_of_an_audit_holds_receipt_and_checks_and_a_tampered_receipt_exits_with_1(model, capsys):
    assert main(["audit", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "holds"
    assert facts["receipt"]["delta"] == 1e-5
    assert {check["verdict"] for check in facts["checks"]} == {"holds"}
    rewrite(model, {"receipt.json": json_of(model, "receipt.json") | {"epsilon": 1.0}})
    assert main(["audit", str(model), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "refuted"
    assert facts["receipt"]["epsilon"] == 1.0
