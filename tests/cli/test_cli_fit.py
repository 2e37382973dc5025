"""From tables to a model, a receipt, a report and predictions."""

import json

import numpy as np
import pandas as pd
import pytest

from dpadapt import persist
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.tables import Schema, encode_features, read_table


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
def test_schema_fit_predict(run, tmp_path, site, label, task, suffix):
    for name in ("public", "private"):
        if suffix == ".parquet":
            pd.read_csv(tmp_path / f"{name}.csv").to_parquet(tmp_path / f"{name}.parquet")
    schema = tmp_path / f"{label}.toml"
    assert run("schema", tmp_path / f"public{suffix}", "-o", schema).code == 0
    changes = {"label": label, "task": task, "schema": schema, "ledger": None}
    changes |= {"private": tmp_path / f"private{suffix}", "public": tmp_path / f"public{suffix}"}
    outcome = run(*site.fit(**changes))
    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in site.out.iterdir()) == [
        "arrays.npz",
        "model.json",
        "receipt.json",
        "report.html",
    ]
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert 0.5 < receipt.epsilon <= 1.0
    assert not receipt.seeded
    receipt.verify()

    new = tmp_path / f"rows{suffix}"
    rows = pd.read_csv(tmp_path / "private.csv").drop(columns=label)
    rows.to_csv(new, index=False) if suffix == ".csv" else rows.to_parquet(new)
    out = tmp_path / f"predictions{suffix}"
    outcome = run("predict", site.out, new, "-o", out)
    assert outcome.code == 0, outcome.err
    predictions = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    truth = pd.read_csv(tmp_path / "private.csv")[label]
    assert len(predictions) == len(truth)
    if task == "regression":
        assert np.mean((predictions["prediction"] - truth) ** 2) < 0.6 * np.var(truth)
    else:
        assert (predictions["prediction"] == truth).mean() > 0.7
        assert np.allclose(predictions["probability of 0"] + predictions["probability of 1"], 1)


def test_text_classes_come_back_as_text(run, site, tmp_path):
    assert run(*site.fit(label="region", task="classification")).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    assert set(pd.read_csv(tmp_path / "o.csv")["prediction"]) <= {"north", "south", "west"}


def test_the_model_in_the_folder_is_the_one_that_predicts(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns=["id", "cost"]).to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    saved = persist.load(site.out)
    X = encode_features(read_table(rows, private=True), Schema.from_dict(saved.extra["schema"]), label="cost")
    assert np.allclose(pd.read_csv(tmp_path / "o.csv")["prediction"], saved.model.predict(X))


def test_fit_charges_the_ledger_what_the_receipt_says(run, site):
    assert run(*site.fit()).code == 0
    ledger = Ledger.open(site.ledger)
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert [(entry.event, entry.times) for entry in ledger.entries] == [(e.event, e.times) for e in receipt.entries]
    assert ledger.spent() == pytest.approx(receipt.epsilon)


def test_a_fit_over_the_cap_is_refused_and_leaves_the_first_model(run, site):
    for _ in range(3):
        assert run(*site.fit()).code == 0
    before = (site.out / "receipt.json").read_bytes(), len(Ledger.open(site.ledger).entries)
    outcome = run(*site.fit(epsilon=3))
    assert outcome.code == 2
    assert "cap" in outcome.err
    assert before == ((site.out / "receipt.json").read_bytes(), len(Ledger.open(site.ledger).entries))


def test_a_new_ledger_gets_the_cap_asked_for(run, site, tmp_path):
    new = tmp_path / "new.ledger"
    assert run(*site.fit(ledger=new, ledger_epsilon=5, ledger_delta=1e-5)).code == 0
    ledger = Ledger.open(new)
    assert (ledger.epsilon, ledger.delta, ledger.dataset) == (5.0, 1e-5, "patients")


def test_a_new_ledger_without_a_cap_has_nothing_left(run, site, tmp_path):
    new = tmp_path / "new.ledger"
    assert run(*site.fit(ledger=new)).code == 0
    assert Ledger.open(new).remaining() < 0.01
    assert run(*site.fit(ledger=new)).code == 2


@pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
def test_the_default_is_transfer_and_the_baselines_are_named(run, site, label, task):
    chosen = {"label": label, "task": task, "ledger": None}
    assert run(*site.fit(**chosen)).code == 0
    assert json.loads((site.out / "model.json").read_text())["method"] == "transfer"
    older = "linear" if task == "regression" else "logistic"
    assert run(*site.fit(**chosen, method=older)).code == 0
    assert json.loads((site.out / "model.json").read_text())["method"] == older


@pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
def test_a_fit_says_what_each_part_of_the_data_brought(run, site, label, task):
    outcome = run(*site.fit(label=label, task=task))
    said = " ".join(outcome.out.split())
    assert "What the public and the private rows brought" in said
    assert "The public rows gave the model to start from" in said
    assert "What could be said beforehand" in said
    assert "ε = 1 was spent" in said
    report = (site.out / "report.html").read_text()
    assert "What the public and the private rows brought" in report
    assert "not an error bar" in report


def test_a_budget_that_buys_nothing_is_said_and_not_spent(run, site):
    outcome = run(*site.fit(epsilon=0.001))
    assert outcome.code == 0
    said = " ".join(outcome.out.split())
    assert "Nothing was spent" in said
    assert "The model is the public one" in said
    assert not Ledger.open(site.ledger).entries


def test_the_forecast_of_an_add_remove_fit_uses_the_public_number_of_rows(run, site):
    assert run(*site.fit(adjacency="add-remove", rows=450, ledger=None)).code == 0
    report = (site.out / "report.html").read_text()
    assert "For 450 private rows" in report
    assert "600 private" not in report


def test_private_rows_alone(run, site):
    outcome = run(*site.fit(public=None))
    assert outcome.code == 0
    assert "There were no public rows" in " ".join(outcome.out.split())
    report = (site.out / "report.html").read_text()
    assert "private rows alone" in report
    assert "no public rows to compare" in report


def test_public_rows_without_labels(run, site, tmp_path):
    public = tmp_path / "unlabelled.csv"
    pd.read_csv(tmp_path / "public.csv").drop(columns="cost").to_csv(public, index=False)
    assert run(*site.fit(public=public)).code == 0
    assert "without labels" in (site.out / "report.html").read_text()


def test_out_of_range_private_numbers_are_clipped_silently(run, site, tmp_path):
    frame = pd.read_csv(site.private)
    good = run(*site.fit(ledger=None, seed=1, out=tmp_path / "a"))
    frame.loc[0, ["age", "bmi", "cost"]] = [987654, -55555, 7777777]
    frame.to_csv(site.private, index=False)
    bad = run(*site.fit(ledger=None, seed=1, out=tmp_path / "a"))
    assert (good.code, good.out, good.err) == (bad.code, bad.out, bad.err)
    assert bad.code == 0


def test_a_large_delta_is_said_on_receipt_terminal_and_report(run, site):
    outcome = run(*site.fit(delta=0.01, ledger=None))
    assert outcome.code == 0
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert any("1/n" in warning for warning in receipt.warnings)
    assert "1/n" in outcome.out
    assert "1/n" in (site.out / "report.html").read_text()


def test_a_seeded_fit_says_that_it_has_no_guarantee(run, site):
    outcome = run(*site.fit(seed=1, ledger=None))
    assert "no privacy guarantee" in " ".join(outcome.out.split())
    assert "There is no guarantee" in (site.out / "report.html").read_text()
    assert json.loads((site.out / "receipt.json").read_text())["seeded"]


def test_the_number_of_rows_may_be_private(run, site, tmp_path):
    ledger = tmp_path / "other.ledger"
    outcome = run(*site.fit(adjacency="add-remove", rows=500, ledger=ledger))
    assert outcome.code == 0, outcome.err
    assert Ledger.open(ledger).adjacency.value == "add-remove"
    assert "500" in (site.out / "report.html").read_text()
    assert "600" not in (site.out / "receipt.json").read_text()


def test_the_schema_is_on_the_receipt_as_assumed(run, site):
    assert run(*site.fit()).code == 0
    assert any("schema" in fact for fact in json.loads((site.out / "receipt.json").read_text())["assumptions"])


def test_a_schema_is_not_overwritten_unasked(run, site, tmp_path):
    outcome = run("schema", tmp_path / "public.csv", "-o", site.schema)
    assert outcome.code == 2
    assert "--force" in outcome.err
    assert run("schema", tmp_path / "public.csv", "-o", site.schema, "--force").code == 0


def test_ledger_show_and_history(run, site):
    assert run(*site.fit(method="linear")).code == 0
    shown = run("ledger", "show", site.ledger)
    assert "patients" in shown.out
    assert "epsilon = 3" in shown.out
    facts = json.loads(run("ledger", "show", site.ledger, "--json").out)
    assert facts["charges"] == 1
    assert facts["spent_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert "gradient" in run("ledger", "history", site.ledger).out
    charges = json.loads(run("ledger", "history", site.ledger, "--json").out)["charges"]
    assert charges[0]["times"] >= 1


def test_looking_at_a_missing_ledger_makes_none(run, tmp_path):
    outcome = run("ledger", "show", tmp_path / "no.ledger")
    assert outcome.code == 2
    assert not list(tmp_path.iterdir())


def _full_disk(monkeypatch, *, refuses):
    """Let writing fail, after the fit, for the files and folders that `refuses` picks."""
    write = persist.write_atomically

    def fail(path, content):
        if refuses(path):
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(persist, "write_atomically", fail)


def test_a_model_that_was_paid_for_is_saved_elsewhere_if_its_folder_fails(run, site, tmp_path, monkeypatch):
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    _full_disk(monkeypatch, refuses=lambda path: path.parent == site.out)
    outcome = run(*site.fit())
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "No space left on device" in outcome.err
    assert "budget is spent" in outcome.err
    (folder,) = spare.iterdir()
    assert str(folder) in outcome.err
    assert persist.load(folder).model.privacy_.tally() == Ledger.open(site.ledger).receipt().tally()


def test_a_model_that_can_be_saved_nowhere_is_said_to_be_lost(run, site, monkeypatch):
    _full_disk(monkeypatch, refuses=lambda path: True)
    outcome = run(*site.fit())
    assert outcome.code == 1
    assert "budget is spent" in outcome.err
    assert "could not be saved" in outcome.err


def test_the_report_of_an_earlier_model_never_stands_beside_a_new_one(run, site, monkeypatch):
    assert run(*site.fit(epsilon=0.5)).code == 0
    assert (site.out / "report.html").exists()
    _full_disk(monkeypatch, refuses=lambda path: path.name == "report.html")
    outcome = run(*site.fit(epsilon=1))
    assert outcome.code == 1
    assert "model and its receipt are there" in outcome.err
    assert persist.load(site.out).model.privacy_.epsilon > 0.9
    assert not (site.out / "report.html").exists()


def test_an_interrupted_fit_says_that_the_budget_is_spent(run, site, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpadapt.learning.linear.private_descent", interrupt)
    outcome = run(*site.fit(method="linear"))
    assert outcome.code == 130
    assert "stays spent" in outcome.err
    assert len(Ledger.open(site.ledger).entries) == 1


def test_names_that_look_like_markup_are_shown_as_they_are(run, site, tmp_path):
    ledger = tmp_path / "v[red]2.ledger"
    outcome = run(*site.fit(out=tmp_path / "model[red]", ledger=ledger))
    assert outcome.out.rstrip().endswith("model[red]")
    assert ledger.name in run("ledger", "show", ledger).out
    assert ledger.name in run("ledger", "history", ledger).out
