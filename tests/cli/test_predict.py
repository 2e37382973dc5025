"""`dpadapt predict`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import SECRET_TEXT, refused

from dpadapt import persist
from dpadapt.tables import TableModel


def test_bad_models_rows_and_outputs_are_refused(run, site, tmp_path):
    assert run(*site.fit()).code == 0
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


def test_text_classes_are_predicted_as_text(run, site, tmp_path):
    assert run(*site.fit(label="region", task="classification")).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    assert set(pd.read_csv(tmp_path / "o.csv")["prediction"]) <= {"north", "south", "west"}


def test_predictions_equal_those_of_the_loaded_model(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns=["id", "cost"]).to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    model = persist.load(site.out).model
    assert isinstance(model, TableModel)
    for table in (rows, pd.read_csv(rows), pd.read_csv(rows).assign(cost=1, shoe="44").iloc[:, ::-1]):
        assert np.allclose(pd.read_csv(tmp_path / "o.csv")["prediction"], model.predict(table))


def test_messy_rows_are_predicted_without_a_message(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    new = tmp_path / "new.csv"
    frame = pd.read_csv(new, dtype=str)
    frame.loc[0, "region"], frame.loc[1, "age"] = SECRET_TEXT, "?"
    frame.assign(shoe=44).to_csv(new, index=False, sep=";", encoding="utf-16")
    outcome = run("predict", site.out, new, "-o", tmp_path / "o.csv")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[0].endswith("new.csv: columns that the schema does not know are not used.")
    assert pd.read_csv(tmp_path / "o.csv")["prediction"].notna().sum() == len(frame)


def test_class_names_are_no_formulas_in_the_file(run, site, tmp_path):
    names = {"north": "=1+1", "south": "-", "west": "@SUM(A1)"}
    for name in ("public", "private"):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame["region"] = frame["region"].map(names)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert run("schema", tmp_path / "public.csv", "-o", site.schema, "--force").code == 0
    assert run(*site.fit(label="region", task="classification", ledger=None)).code == 0
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
def test_a_model_with_wrong_contents_is_refused_by_one_line(run, site, tmp_path, change):
    assert run(*site.fit(method="linear", ledger=None)).code == 0
    path = site.out / "model.json"
    model = json.loads(path.read_text())
    change(model)
    path.write_text(json.dumps(model))
    outcome = run("predict", site.out, tmp_path / "new.csv", "-o", tmp_path / "o.csv")
    if outcome.code != 0:
        refused(outcome)
        assert "unexpected" not in outcome.err
        assert not (tmp_path / "o.csv").exists()
    else:
        # The arrays, not the attributes in model.json, hold the coefficients: nothing was changed.
        assert "coef_" in model["attributes"] or "epsilon" in model["params"]


def test_coverage_adds_the_ends_of_intervals(run, site, tmp_path):
    fitted = run(*site.fit(epsilon=3), "--intervals")
    assert fitted.code == 0
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


def test_coverage_adds_the_classes_of_sets(run, site, tmp_path):
    assert run(*site.fit(label="region", task="classification", epsilon=3), "--intervals").code == 0
    rows, out = tmp_path / "rows.csv", tmp_path / "o.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", out, "--coverage", 0.8).code == 0
    written = pd.read_csv(out)
    members = written[[f"set has {name}" for name in ("north", "south", "west")]]
    assert np.array_equal(members, persist.load(site.out).model.predict_set(rows, coverage=0.8))


def test_a_coverage_that_can_not_be_calibrated_is_warned_about(run, site, tmp_path):
    assert run(*site.fit(epsilon=0.2), "--intervals").code == 0
    outcome = run("predict", site.out, tmp_path / "new.csv", "-o", tmp_path / "o.csv", "--coverage", 0.99)
    assert outcome.code == 0
    assert "warning: intervals of coverage 0.99" in outcome.out
    assert np.isinf(pd.read_csv(tmp_path / "o.csv")["upper"]).all()


def test_a_coverage_is_refused_without_intervals_or_outside_0_and_1(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    new, out = tmp_path / "new.csv", tmp_path / "o.csv"
    refused(run("predict", site.out, new, "-o", out, "--coverage", 0.9), "without --intervals")
    refused(run("predict", site.out, new, "-o", out, "--coverage", 90), "--coverage must lie between 0 and 1")
    assert not out.exists()


def test_intervals_that_can_not_be_had_are_refused_before_anything_is_spent(run, site):
    refused(run(*site.fit(method="noisy-sgd"), "--intervals"), "--intervals")
    refused(run(*site.fit(public=None), "--intervals"), "--intervals", "--public")
    assert site.untouched()
