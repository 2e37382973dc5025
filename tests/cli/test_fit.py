"""`dpadapt fit`: predictions, clustering, people and tasks; ledgers, receipts, and failures after spending."""

import importlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outcomes import accepted, edit_private, refused

from dpadapt import Ledger, disk, persist
from dpadapt.accounting.ledger import NOT_ADDED_UP
from dpadapt.accounting.receipt import Receipt
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Gaussian
from dpadapt.methods import for_task
from dpadapt.persist import MODEL_FILE
from tests.failures import failing
from tests.saved_models import json_of


@pytest.fixture
def town(tmp_path):
    random = np.random.default_rng(0)
    for name, n, middle in (("public", 120, 0.6), ("private", 500, 0.3)):
        x, y = random.normal(middle, 0.15, (2, n))
        pd.DataFrame({"east": x, "north": y}).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "schema.toml").write_text(
        'dataset = "homes"\n'
        + "".join(f'[columns.{name}]\ntype = "number"\nlow = -1\nhigh = 2\n' for name in ("east", "north"))
    )
    return tmp_path


def order(town, **changes):
    options = {
        "private": town / "private.csv",
        "public": town / "public.csv",
        "schema": town / "schema.toml",
        "task": "clustering",
        "clusters": 6,
        "epsilon": 1,
        "ledger": town / "homes.ledger",
        "out": town / "out",
    } | changes
    named = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    return ["fit", *[part for name, value in named.items() for part in (f"--{name}", value)]]


def test_clustering_writes_the_chosen_rows_of_the_public_file(run, town):
    outcome = accepted(run(*order(town, method="clustering")))
    chosen = pd.read_csv(town / "out" / "chosen.csv", dtype={"row": int, "east": str, "north": str}, index_col="row")
    public = pd.read_csv(town / "public.csv", dtype=str)
    assert len(chosen) == 6
    pd.testing.assert_frame_equal(chosen, public.loc[chosen.index], check_names=False)
    receipt = json.loads((town / "out" / "receipt.json").read_text())
    assert receipt["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert Ledger.open(town / "homes.ledger").spent() == pytest.approx(1.0, rel=1e-3)
    assert "6 of 120 public rows" in outcome.out


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clusters": None}, "--clusters"),
        ({"clusters": 0}, "--clusters"),
        ({"clusters": 121}, "--clusters"),
        ({"public": None}, "--public"),
        ({"label": "east"}, "--label"),
        ({"agents_epsilon": 1}, "--agents-epsilon"),
        ({"rows": 3}, "--rows"),
        ({"method": "linear"}, "--method"),
        ({"epsilon": 0}, "--epsilon"),
        ({"ledger": None, "ledger_epsilon": 2}, "--ledger"),
        ({"task": "regression", "label": "east"}, "--clusters"),
        ({"task": "regression", "clusters": None}, "--label"),
    ],
)
def test_bad_options_of_a_clustering_are_refused_and_nothing_is_spent(run, town, changes, named):
    Ledger.open(town / "homes.ledger", epsilon=1.0, delta=1e-6, dataset="homes")
    refused(run(*order(town, **changes)), named)
    assert not Ledger.open(town / "homes.ledger").entries
    assert not (town / "out" / MODEL_FILE).exists()


@pytest.mark.parametrize("rows", ["", "0.5,0.5\n"], ids=["no row", "one row"])
def test_clustering_accepts_any_number_of_private_rows_where_it_is_private(run, town, rows):
    (town / "private.csv").write_text(f"east,north\n{rows}")
    assert run(*order(town, adjacency="add-remove")).code == 0
    receipt = json.loads((town / "out" / "receipt.json").read_text())
    assert not any("two private rows" in fact for fact in receipt["assumptions"])


def test_clustering_protects_all_rows_of_an_id(run, town):
    table = pd.read_csv(town / "private.csv")
    table.assign(id=[f"ZEBRA{k // 3}" for k in range(len(table))]).to_csv(town / "private.csv", index=False)
    accepted(run(*order(town, person="id")))
    receipt = json.loads((town / "out" / "receipt.json").read_text())
    assert receipt["unit"] == "person"
    assert "the number of persons" in receipt["assumptions"]
    assert receipt["epsilon"] == pytest.approx(1.0, rel=1e-2)
    assert Ledger.open(town / "homes.ledger").unit == "person"
    assert len(pd.read_csv(town / "out" / "chosen.csv")) == 6
    assert not any(b"ZEBRA" in path.read_bytes() for path in (town / "out").iterdir())
    refused(run(*order(town, person="id", method="nna", ledger=town / "other.ledger")), "protects rows, not persons")


def test_a_column_called_row_is_written_beside_the_number_of_the_row(run, town):
    for name in ("public.csv", "private.csv", "schema.toml"):
        (town / name).write_text((town / name).read_text().replace("east", "row"))
    assert run(*order(town)).code == 0
    assert (town / "out" / "chosen.csv").read_text().startswith("row,row,north\n")


def test_predict_refuses_a_clustering(run, town):
    assert run(*order(town)).code == 0
    refused(run("predict", town / "out", town / "public.csv"), "chosen.csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
def test_schema_fit_and_predict_work_together(run, tmp_path, site, label, task, suffix):
    for name in ("public", "private"):
        if suffix == ".parquet":
            pd.read_csv(tmp_path / f"{name}.csv").to_parquet(tmp_path / f"{name}.parquet")
    schema = tmp_path / f"{label}.toml"
    assert run("schema", tmp_path / f"public{suffix}", "-o", schema).code == 0
    changes = {"label": label, "task": task, "schema": schema, "ledger": None}
    changes |= {"private": tmp_path / f"private{suffix}", "public": tmp_path / f"public{suffix}"}
    accepted(run(*site.fit(**changes)))
    assert sorted(path.name for path in site.out.iterdir()) == [MODEL_FILE, "receipt.json", "report.html"]
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert 0.5 < receipt.epsilon <= 1.0
    assert not receipt.seeded
    receipt.verify()

    new = tmp_path / f"rows{suffix}"
    rows = pd.read_csv(tmp_path / "private.csv").drop(columns=label)
    rows.to_csv(new, index=False) if suffix == ".csv" else rows.to_parquet(new)
    out = tmp_path / f"predictions{suffix}"
    accepted(run("predict", site.out, new, "-o", out))
    predictions = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    truth = pd.read_csv(tmp_path / "private.csv")[label]
    assert len(predictions) == len(truth)
    if task == "regression":
        assert np.mean((predictions["prediction"] - truth) ** 2) < 0.6 * np.var(truth)
    else:
        assert (predictions["prediction"] == truth).mean() > 0.7
        assert np.allclose(predictions["probability of 0"] + predictions["probability of 1"], 1)


def test_fit_charges_the_ledger_what_the_receipt_says(run, site):
    assert run(*site.fit()).code == 0
    ledger = Ledger.open(site.ledger)
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert [(entry.event, entry.times) for entry in ledger.entries] == [(e.event, e.times) for e in receipt.entries]
    assert ledger.spent() == pytest.approx(receipt.epsilon)
    assert any("schema" in fact for fact in receipt.assumptions)


def test_a_fit_without_a_ledger_says_that_further_fits_are_not_added_up(run, site):
    outcome = accepted(run(*site.fit(ledger=None)))
    assert "further fits on the same rows are not added up" in " ".join(outcome.out.split())
    assert NOT_ADDED_UP in Receipt.from_json((site.out / "receipt.json").read_text()).warnings
    assert not Ledger.open(site.ledger).entries
    assert run(*site.fit(ledger=site.folder / "kept.ledger")).code == 0
    assert NOT_ADDED_UP not in Receipt.from_json((site.out / "receipt.json").read_text()).warnings
    assert "ledger" not in persist.load(site.out).extra
    assert b"kept.ledger" not in (site.out / MODEL_FILE).read_bytes()


@pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
def test_a_fit_is_by_transfer_and_says_what_public_and_private_rows_contributed(site, fitted, label, task):
    said = " ".join(fitted(label=label, task=task).out.split())
    assert json_of(site.out)["method"] == "transfer"
    assert "What the public and the private rows contributed" in said
    assert "The public rows gave the model to start from" in said
    assert "Forecast from public rows" in said
    assert "ε = 1 was spent" in said
    report = (site.out / "report.html").read_text()
    assert "What the public and the private rows contributed" in report
    assert "not an error bar" in report


def test_a_budget_that_is_too_small_is_not_spent_and_the_terminal_says_so(run, site):
    outcome = accepted(run(*site.fit(epsilon=0.001)))
    said = " ".join(outcome.out.split())
    assert "Nothing was spent" in said
    assert "The model is the public one" in said
    assert not Ledger.open(site.ledger).entries


def test_the_forecast_of_an_add_remove_fit_uses_the_public_number_of_rows(run, site):
    assert run(*site.fit(adjacency="add-remove", rows=450, ledger=None)).code == 0
    report = (site.out / "report.html").read_text()
    assert "For 450 private rows" in report
    assert "600 private" not in report


def test_a_fit_without_public_rows_says_so(run, site):
    outcome = accepted(run(*site.fit(public=None)))
    assert "There were no public rows" in " ".join(outcome.out.split())
    report = (site.out / "report.html").read_text()
    assert "private rows alone" in report
    assert "no public rows to compare" in report


def test_a_report_says_that_public_rows_have_no_labels(run, site, tmp_path):
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
    # What was adopted is computed from releases, which differ; nothing else does.
    outputs = [re.sub(r"[\d.,%]+", "#", outcome.out) for outcome in (good, bad)]
    assert outputs[0].split() == outputs[1].split()
    assert (good.code, good.err) == (bad.code, bad.err)
    assert bad.code == 0


def test_a_large_delta_is_said_on_receipt_terminal_and_report(run, site):
    outcome = accepted(run(*site.fit(delta=0.01, ledger=None)))
    receipt = Receipt.from_json((site.out / "receipt.json").read_text())
    assert any("1/n" in warning for warning in receipt.warnings)
    assert "1/n" in outcome.out
    assert "1/n" in (site.out / "report.html").read_text()


def test_a_seeded_fit_says_that_it_has_no_guarantee(run, site):
    outcome = run(*site.fit(seed=1, ledger=None))
    assert "no privacy guarantee" in " ".join(outcome.out.split())
    assert "There is no guarantee" in (site.out / "report.html").read_text()
    assert json.loads((site.out / "receipt.json").read_text())["seeded"]


def _full_disk(monkeypatch, *, refuses):
    """Let writing fail, after the fit, for the files that `refuses` picks."""
    sync = disk.sync

    def fail(file):
        # The trial before the fit succeeds.
        path = Path(file.name)
        if not path.parent.name.startswith(".trial-") and refuses(path):
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr("dpadapt.disk.sync", fail)


def test_a_model_is_saved_elsewhere_if_its_folder_fails_after_spending(run, site, temporary, monkeypatch):
    _full_disk(monkeypatch, refuses=lambda path: path.is_relative_to(site.out))
    outcome = run(*site.fit())
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "No space left on device" in outcome.err
    assert "budget is spent" in outcome.err
    (folder,) = temporary.iterdir()
    assert str(folder) in outcome.err
    assert persist.load(folder).model.privacy_.tally() == Ledger.open(site.ledger).receipt().tally()


def test_a_model_that_can_be_saved_nowhere_is_reported_as_lost(run, site, temporary, monkeypatch):
    _full_disk(monkeypatch, refuses=lambda path: True)
    outcome = run(*site.fit())
    assert outcome.code == 1
    line, _, receipt = outcome.err.partition("\n")
    assert "budget is spent" in line
    assert "could not be saved" in line
    # The receipt is all that is left of the fit.
    assert list(temporary.iterdir()) == []
    assert Receipt.from_json(receipt).tally() == Ledger.open(site.ledger).receipt().tally()


def test_the_report_of_an_earlier_model_is_removed_before_a_new_one_is_saved(run, site, monkeypatch):
    assert run(*site.fit(epsilon=0.5)).code == 0
    assert (site.out / "report.html").exists()
    _full_disk(monkeypatch, refuses=lambda path: ".report.html." in path.name)
    outcome = run(*site.fit(epsilon=1))
    assert outcome.code == 1
    assert "model and its receipt are there" in outcome.err
    assert persist.load(site.out).model.privacy_.epsilon > 0.9
    assert not (site.out / "report.html").exists()


ERRORS = {
    "memory": (MemoryError("SECRET"), 1, "memory ran out"),
    "a flaw": (ZeroDivisionError("SECRET"), 1, "unexpected ZeroDivisionError"),
    "a value": (ValueError("could not convert 'SECRET'"), 1, "unexpected ValueError"),
    "interrupt": (KeyboardInterrupt(), 130, "interrupted"),
}
STAGES = {
    "fit": ("dpadapt.learning.linear.private_descent", "nothing was written there", []),
    "save": ("dpadapt.persist._content", "were saved to", []),
    "report": ("dpadapt.report.fit.fit_page", "model and its receipt are there", [MODEL_FILE, "receipt.json"]),
    "print": ("dpadapt.report.terminal.print_fit", "everything was written there", [MODEL_FILE, "report.html"]),
}


@pytest.mark.every_fourth
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("kind", "ledger"), [*((kind, "a file") for kind in ERRORS), ("memory", "none")])
def test_any_failure_after_the_charge_is_said_to_be_one(run, site, monkeypatch, stage, kind, ledger):
    (error, code, said), (place, words, written) = ERRORS[kind], STAGES[stage]
    remaining = [error]

    def fail(*args, **options):
        if remaining:
            raise remaining.pop()
        return original(*args, **options)

    module, _, name = place.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    monkeypatch.setattr(place, fail)
    outcome = run(*site.fit(method="linear", **({} if ledger == "a file" else {"ledger": None})))
    line, _, receipt = outcome.err.partition("\n")
    assert outcome.code == code
    for part in (said, words, "The budget is spent"):
        assert part in line
    assert "SECRET" not in outcome.err + outcome.out
    assert all((site.out / name).exists() for name in written)
    if ledger == "a file":
        assert len(Ledger.open(site.ledger).entries) == 1
        assert receipt == ""
    elif stage == "fit":
        # Neither a file nor a ledger tells what was spent.
        assert Receipt.from_json(receipt).epsilon == pytest.approx(1.0, abs=1e-3)
    else:
        assert receipt == ""


@pytest.mark.parametrize("kind", ERRORS)
def test_a_failure_before_the_charge_spends_nothing(run, site, monkeypatch, kind):
    error, code, said = ERRORS[kind]

    monkeypatch.setattr("dpadapt.inputs.gate.private_arrays", failing(error))
    outcome = run(*site.fit(method="linear"))
    assert outcome.code == (130 if code == 130 else 2)
    assert ("Nothing was spent" if code == 130 else said) in outcome.err
    assert "SECRET" not in outcome.err
    assert site.untouched()


def test_a_refused_charge_is_no_spending_although_others_spend_at_the_same_time(run, site, monkeypatch):
    def refuse(ledger, *_args, **_options):
        Ledger.open(site.ledger).start(Gaussian(10.0), label="another process")
        raise BudgetExceeded("the cap does not allow it")

    monkeypatch.setattr("dpadapt.learning.base.PrivateEstimator._ledger", refuse)
    outcome = run(*site.fit(method="linear"))
    refused(outcome)
    assert "spent" not in outcome.err
    assert len(Ledger.open(site.ledger).entries) == 1


def test_a_ledger_that_cannot_be_read_after_a_failure_counts_as_spent(run, site, monkeypatch):
    def fail(*_args, **_options):
        site.ledger.write_bytes(b"nonsense")
        raise ZeroDivisionError

    monkeypatch.setattr("dpadapt.learning.linear.private_descent", fail)
    outcome = run(*site.fit(method="linear"))
    assert outcome.code == 1
    assert "take the budget as spent" in outcome.err


def test_a_fit_that_spends_nothing_and_fails_is_an_ordinary_error(run, site, monkeypatch):
    _full_disk(monkeypatch, refuses=lambda path: path.is_relative_to(site.out))
    refused(run(*site.fit(epsilon=0.001)), "Nothing was spent")
    assert site.untouched()


@pytest.mark.parametrize(("limit", "code"), [(4096, 2), (10_000, 1)])
def test_a_real_limit_on_the_size_of_files(run, site, monkeypatch, limit, code):
    # The trial before the fit finds a small limit. A limit that comes into force after the model was saved stops the
    # report.
    resource = pytest.importorskip("resource")
    before, prepare, save = resource.getrlimit(resource.RLIMIT_FSIZE), persist.prepare, persist.save

    def prepared(*args, **options):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        return prepare(*args, **options)

    def saved(*args, **options):
        save(*args, **options)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

    monkeypatch.setattr(persist, *(("prepare", prepared) if code == 2 else ("save", saved)))
    try:
        outcome = run(*site.fit())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome.code == code, outcome.err
    assert outcome.err.count("\n") == 1
    assert "File too large" in outcome.err
    assert ("The budget is spent" in outcome.err) == (code == 1)
    assert (site.out / MODEL_FILE).exists() == (code == 1)
    assert bool(Ledger.open(site.ledger).entries) == (code == 1)


def test_names_that_look_like_markup_are_shown_as_they_are(run, site, tmp_path):
    ledger = tmp_path / "v[red]2.ledger"
    outcome = run(*site.fit(out=tmp_path / "model[red]", ledger=ledger))
    assert outcome.out.rstrip().endswith("model[red]")
    assert ledger.name in run("ledger", "show", ledger).out
    assert ledger.name in run("ledger", "history", ledger).out


@pytest.fixture
def people(site, tmp_path):
    """Return a file of people whose label follows another rule than the private rows' does."""
    table = pd.read_csv(site.private)
    rows = table.sample(30_000, replace=True, random_state=0)
    rows["ill"] = (rows["age"] > rows["age"].median()).astype(int)
    path = tmp_path / "people.csv"
    rows.to_csv(path, index=False)
    return path


def hybrid(site, **changes):
    wanted = {"label": "ill", "task": "classification", "method": "hybrid", "public": None, "ledger": None}
    return site.fit(**{**wanted, **changes})


def test_people_from_a_file_are_asked_and_the_model_predicts(run, site, people, tmp_path):
    outcome = accepted(run(*hybrid(site, agents=people, agents_epsilon=2, epsilon=4)))
    assert "people answered one question each" in " ".join(outcome.out.split())
    saved = persist.load(site.out)
    assert saved.model.mode_ == "hybrid"
    assert 0 < sum(saved.model.people_asked_.values()) <= 30_000
    # The categories of the schema are asked about as such.
    assert saved.model.model_.groups
    assert any("epsilon = 2 for each" in fact for fact in saved.model.privacy_.assumptions)
    rows = pd.read_csv(people).head(2000)
    rows.drop(columns="ill").to_csv(tmp_path / "rows.csv", index=False)
    assert run("predict", site.out, tmp_path / "rows.csv", "-o", tmp_path / "found.csv").code == 0
    assert np.mean(pd.read_csv(tmp_path / "found.csv")["prediction"] == rows["ill"]) > 0.6


def test_without_people_it_is_a_model_of_the_private_rows(run, site):
    outcome = accepted(run(*hybrid(site)))
    assert "Nobody was asked" in outcome.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents_epsilon": 1}, "--agents-epsilon goes with --agents"),
        ({"agents": "people"}, "--agents goes with --agents-epsilon"),
        ({"agents": "people", "agents_epsilon": 0}, "--agents-epsilon must be a positive number"),
        ({"agents": "people", "agents_epsilon": 1, "method": "logistic"}, "does not ask people"),
        ({"public": "people"}, "not by public rows"),
        ({"agents": "missing.csv", "agents_epsilon": 1}, "--agents"),
        ({"agents": "private", "agents_epsilon": 1}, "this is the private file"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(run, site, people, changes, words):
    files = {"people": people, "private": site.private}
    changes = {name: files.get(value, value) for name, value in changes.items()}
    refused(run(*hybrid(site, **changes)), words)
    assert not (site.out / MODEL_FILE).exists()


def test_a_copy_of_the_private_file_is_refused_as_people(run, site, tmp_path):
    copy = shutil.copy(site.private, tmp_path / "copy.csv")
    refused(run(*hybrid(site, agents=copy, agents_epsilon=1)), "this is the private file")


@pytest.mark.parametrize("seed", [None, 3])
def test_peoples_noise_is_seeded_only_if_asked_for(run, site, people, seed):
    assert run(*hybrid(site, agents=people, agents_epsilon=2, epsilon=4, seed=seed)).code == 0
    warnings = json.loads((site.out / "receipt.json").read_text())["warnings"]
    assert any("people's noise came from a seed" in text for text in warnings) is (seed is not None)


@pytest.fixture
def surveyed(site):
    """A site whose public table says which hospital a row comes from, in a column that the private one has not."""
    public = pd.read_csv(site.folder / "public.csv")
    public["hospital"] = np.array(["A", "B", "C", "D", "E"])[np.arange(len(public)) % 5]
    public.to_csv(site.folder / "public.csv", index=False)
    return site


def test_tasks_are_used_and_the_column_is_no_feature(surveyed, run):
    accepted(run(*surveyed.fit(method="subspace", tasks="hospital", seed=0)))
    model = json_of(surveyed.out)
    assert model["class"].endswith("PrivateSubspaceRegressor")
    assert "hospital" not in json.dumps(model)
    assert run("predict", surveyed.out, surveyed.folder / "new.csv", "-o", surveyed.folder / "said.csv").code == 0
    assert len(pd.read_csv(surveyed.folder / "said.csv")) == 7


def test_tasks_may_be_ignored_in_the_schema(surveyed, run):
    text = surveyed.schema.read_text() + '\n[columns.hospital]\ntype = "ignore"\n'
    surveyed.schema.write_text(text)
    assert run(*surveyed.fit(method="subspace", tasks="hospital", seed=0)).code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "subspace", "tasks": "ward"}, "has no such column"),
        ({"method": "subspace", "tasks": "region"}, "a column of their own"),
        ({"method": "subspace", "tasks": "cost"}, "a column of their own"),
        ({"method": "subspace", "tasks": "hospital", "public": None}, "--tasks goes with --public"),
        ({"method": "transfer", "tasks": "hospital"}, "makes no use of tasks"),
    ],
)
def test_bad_tasks_are_refused_and_nothing_is_spent(surveyed, run, changes, words):
    refused(run(*surveyed.fit(**changes)), words)
    assert surveyed.untouched()


def test_labels_without_tasks_are_refused_and_rows_without_a_task(site, run):
    refused(run(*site.fit(method="subspace")), "--tasks must name the column")
    public = pd.read_csv(site.folder / "public.csv")
    public["hospital"] = ["A", "B", "", "D"] * (len(public) // 4)
    public.to_csv(site.folder / "public.csv", index=False)
    refused(run(*site.fit(method="subspace", tasks="hospital")), "have no task")
    assert site.untouched()


def test_an_input_that_stands_where_the_model_is_written_is_refused(run, town):
    assert run(*order(town)).code == 0
    chosen = town / "out" / "chosen.csv"
    refused(run(*order(town, public=chosen, clusters=2)), "--public", "would be overwritten")
    assert chosen.exists()


def test_rows_chosen_earlier_survive_a_later_fit_into_the_same_folder(run, site):
    site.out.mkdir()
    (site.out / "chosen.csv").write_text("row,east\n3,0.5\n")
    assert run(*site.fit()).code == 0
    assert (site.out / "chosen.csv").read_text() == "row,east\n3,0.5\n"


@pytest.mark.parametrize("method", [method.name for method in for_task("clustering")])
def test_every_clustering_of_the_table_can_be_used(run, town, method):
    accepted(run(*order(town, method=method)))
    assert len(pd.read_csv(town / "out" / "chosen.csv")) == 6
    assert persist.load(town / "out").method.name == method


# Persons and rows without a label.


def test_person_protects_all_rows_of_an_id(run, site):
    table = pd.read_csv(site.private)
    table.assign(id=[f"p{k // 3}" for k in range(len(table))]).to_csv(site.private, index=False)
    refused(run(*site.fit(person="id")), "this ledger protects rows, and --person asks for persons")
    assert site.untouched()
    site.ledger.unlink()
    outcome = accepted(run(*site.fit(person="id", ledger_epsilon=3)))
    receipt = json.loads((site.out / "receipt.json").read_text())
    assert receipt["unit"] == "person"
    assert "that there are at least two private rows" in receipt["assumptions"]
    report = (site.out / "report.html").read_text()
    assert "one person" in report
    # How many rows a person has is private, and so is their sum.
    assert f"For {(len(table) + 2) // 3:,} private persons" in report
    assert not re.search(rf"\b{len(table):,} (private )?rows", report + outcome.out)
    assert "of one person" in run("ledger", "show", site.ledger).out
    assert run("predict", site.out, site.folder / "new.csv", "-o", site.folder / "p.csv").code == 0


def test_the_column_of_persons_is_no_feature_without_an_edit_of_the_schema(run, site):
    for path in (site.private, site.folder / "public.csv"):
        table = pd.read_csv(path)
        table.assign(nr=[k // 3 * 7 % 1000 for k in range(len(table))]).to_csv(path, index=False)
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    accepted(run(*site.fit(person="nr", ledger=site.folder / "persons.ledger", method="linear")))
    assert "nr" not in persist.load(site.out).model.get_feature_names_out()


# Weights, classes and thresholds.


def test_weights_of_rows_come_from_a_column_that_is_no_feature(run, site):
    # The schema knows bmi as a feature; as a weight it is none, also when the model predicts.
    accepted(run(*site.fit(weight="bmi", max_weight=40, mean_weight=26)))
    receipt = json.loads((site.out / "receipt.json").read_text())
    assert any("largest sample weight, 40, and their mean, 26" in fact for fact in receipt["assumptions"])
    model = persist.load(site.out).model
    assert not any("bmi" in name for name in model.get_feature_names_out())
    table = pd.read_csv(site.folder / "new.csv").drop(columns="bmi")
    table.to_csv(site.folder / "new.csv", index=False)
    assert run("predict", site.out, site.folder / "new.csv", "-o", site.folder / "p.csv").code == 0


def test_classes_can_count_differently_and_begin_at_a_threshold(run, site):
    of_classes = {"label": "ill", "task": "classification", "ledger_epsilon": 20}
    site.ledger.unlink()
    shares = []
    for options in ({}, {"class_weight": "0=1,1=9"}, {"threshold": "9:1"}, {"threshold": "f1"}):
        accepted(run(*site.fit(**of_classes, **options)))
        of_classes.pop("ledger_epsilon", None)
        model = persist.load(site.out).model
        shares.append(float(np.mean(model.predict(site.folder / "public.csv"))))
    assert min(shares[1:3]) > shares[0]
    assert model.model_.decision_threshold == "f1"
    assert 0 < model.decision_threshold_ < 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"person": "cost"}, "this is the column to predict"),
        ({"person": "patient", "ledger": None}, "no column 'patient'"),
        ({"person": "id", "method": "reverse-adaptation"}, "ReverseAdaptation protects rows, not persons"),
        ({"weight": "bmi"}, "--weight goes with --max-weight"),
        ({"max_weight": 3}, "--max-weight goes with --weight"),
        ({"weight": "bmi", "max_weight": -1}, "max_weight must be a positive number"),
        ({"weight": "bmi", "max_weight": 3, "mean_weight": 4}, "mean_weight must be at most max_weight"),
        ({"weight": "cost", "max_weight": 3}, "this is the column to predict"),
        ({"weight": "nothing", "max_weight": 3}, "no column 'nothing'"),
        (
            {"weight": "bmi", "max_weight": 3, "method": "reverse-adaptation"},
            "--max-weight: the method reverse-adaptation",
        ),
        ({"class_weight": "balanced"}, "--class-weight is for --task classification"),
        ({"threshold": "0.2"}, "--threshold is for --task classification"),
        ({"label": "ill", "task": "classification", "class_weight": "2=3"}, "--class-weight must be balanced, or"),
        ({"label": "ill", "task": "classification", "class_weight": "1:3"}, "--class-weight must be balanced, or"),
        ({"label": "ill", "task": "classification", "threshold": "2"}, "decision_threshold must lie in"),
        ({"label": "ill", "task": "classification", "threshold": "5:"}, "decision_threshold must be a probability"),
        (
            {"label": "ill", "task": "classification", "threshold": "f1", "method": "ncnvx-adap"},
            "--threshold: the method ncnvx-adap has no such choice",
        ),
    ],
)
def test_bad_persons_weights_and_thresholds_are_refused_and_nothing_is_spent(run, site, changes, named):
    refused(run(*site.fit(**changes)), named)
    assert site.untouched()


@pytest.mark.parametrize("public", [True, False])
def test_fewer_than_ten_private_rows_are_refused(run, site, tmp_path, public):
    edit_private(site, lambda f: f.iloc[:9])
    changes = {} if public else {"public": None}
    refused(run(*site.fit(**changes)), "--private", "at least 10 rows", "Nothing was spent")
    assert site.untouched()


def test_too_few_private_rows_are_refused_alike_where_their_number_is_private(run, site):
    said = set()
    for rows in (0, 1):
        edit_private(site, lambda f, rows=rows: f.iloc[:rows])
        outcome = run(*site.fit(adjacency="add-remove", rows=600, ledger=None))
        refused(outcome, "--private", "at least two rows")
        said.add(outcome.err)
    assert len(said) == 1


def test_that_there_are_two_private_rows_is_on_the_receipt(run, site):
    assert run(*site.fit(adjacency="add-remove", rows=600, ledger=None)).code == 0
    assert "that there are at least two private rows" in (site.out / "receipt.json").read_text()
    assert run(*site.fit(ledger=None)).code == 0
    assert "two private rows" not in (site.out / "receipt.json").read_text()


def test_a_private_number_of_rows_is_not_shown(run, site, tmp_path):
    edit_private(site, lambda f: f.iloc[:9])
    accepted(run(*site.fit(adjacency="add-remove", rows=9, ledger=None)))
