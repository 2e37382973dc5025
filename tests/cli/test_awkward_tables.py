"""What a new user meets: two messy tables, in Python and on the command line, one test for each thing that once hurt.

The tables have missing cells, dates, an id, several rows per person, a category and a column value that public rows
lack, a rare class, and the private file is compressed, has semicolons, Latin-1 letters and an extra column.
"""

import gzip
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import dpadapt
from dpadapt import (
    AssumedBoundsWarning,
    Ledger,
    NoLedgerWarning,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
    load,
)

pytestmark = pytest.mark.thorough


def visits(n, seed, *, public):
    """Return visits to a clinic; the public ones are all of 2019, from one town, and know two of three plans."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, n // 2, n) + (0 if public else 10_000)
    age = rng.integers(18, 90, n).astype(float)
    plan = rng.choice(["basic", "full"] if public else ["basic", "full", "sénior"], n)
    year = 2019 if public else 2020
    start = pd.Timestamp(f"{year}-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D")
    cost = 5 * age + 100 * (plan == "full") + (0 if public else 80) + rng.normal(0, 40, n)
    frame = pd.DataFrame(
        {
            "visit": np.arange(n) + 1,
            "patient": [f"p{k:05d}" for k in patient],
            "age": age,
            "plan": plan,
            "start": start.strftime("%d.%m.%Y"),
            "town": "Bern" if public else rng.choice(["Bern", "Genève"], n),
            "score": 1.0 if public else rng.choice([1.0, 2.0], n),
            "cost": cost.round(1),
            "ill": np.where(rng.random(n) < 0.02 + 0.06 * (age > 60), "yes", "no"),
        }
    )
    for column in ("age", "plan", "start"):
        frame.loc[rng.random(n) < 0.1, column] = None
    return frame


PUBLIC, PRIVATE, NEW = visits(300, 0, public=True), visits(700, 1, public=False), visits(20, 2, public=False)


@pytest.fixture
def files(tmp_path):
    """Write the tables as people send them, for each test anew: the private one has a ledger beside it."""
    folder = tmp_path / "tables"
    folder.mkdir()
    PUBLIC.to_csv(folder / "public.csv", index=False)
    for name, frame in (("private", PRIVATE), ("new", NEW.drop(columns="cost"))):
        text = frame.assign(remark="très bien")[[*frame.columns[::-1], "remark"]].to_csv(index=False, sep=";")
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode("latin-1")))
    return folder


@pytest.fixture
def command(run, files, tmp_path):
    """Return a function that runs a command on the files; what it writes goes to a folder of its own."""

    def call(*arguments):
        places = {"PUBLIC": files / "public.csv", "PRIVATE": files / "private.csv.gz", "NEW": files / "new.csv.gz"}
        outcome = run(*[places.get(part, part) for part in arguments])
        assert outcome.code == 0, outcome.err
        return " ".join(outcome.out.split())

    return call


@pytest.fixture
def schema(command, tmp_path):
    """Return the path of the schema, as it is inferred."""
    command("schema", "PUBLIC", "-o", tmp_path / "schema.toml", "--dataset", "visits")
    return tmp_path / "schema.toml"


@pytest.fixture
def fit(command, schema, tmp_path):
    """Return a function that fits by the command."""

    def call(*more, label="cost", task="regression", epsilon=1):
        given = ["--private", "PRIVATE", "--public", "PUBLIC", "--schema", schema, "--label", label, "--task", task]
        return command("fit", *given, "--epsilon", epsilon, "--out", tmp_path / "model", *more)

    return call


def in_python(estimator=None, **options):
    """Return a model of the tables, fitted in Python."""
    model = TableModel(
        PrivateTransferRegressor(random_state=0) if estimator is None else estimator,
        Schema.infer(PUBLIC, dataset="visits"),
        **{"label": "cost"} | options,
    )
    return model.fit(
        PRIVATE, public=Public(PUBLIC), ledger=Ledger(3.0, 1e-6, unit="person" if "person" in options else "row")
    )


def test_1_5_8_messy_files_go_from_raw_to_predictions_and_the_model_loads_in_python(fit, command, tmp_path):
    fit()
    command("predict", tmp_path / "model", "NEW", "-o", tmp_path / "predictions.csv")
    predicted = pd.read_csv(tmp_path / "predictions.csv").iloc[:, -1]
    assert np.isfinite(predicted).all()
    model = load(tmp_path / "model").model
    assert model.predict(NEW.drop(columns="cost")) == pytest.approx(predicted)


def test_1_5_missing_cells_unseen_values_and_extra_columns_are_fine_in_python():
    model = in_python()
    strange = NEW.assign(remark="x", plan="unheard of", age=np.nan)[::-1]
    assert np.isfinite(model.predict(strange)).all()


def test_2_spending_adds_up_by_default(fit, run, schema, files, tmp_path):
    said = fit()
    ledger = files / "private.ledger"
    assert f"Charged to {ledger} (visits)" in said
    assert 0 < Ledger.open(ledger).spent() <= 1.0
    tables = ["--private", files / "private.csv.gz", "--public", files / "public.csv", "--schema", schema]
    what = ["--label", "cost", "--task", "regression", "--epsilon", 1.9, "--out", tmp_path / "model"]
    for _ in range(4):
        outcome = run("fit", *tables, *what)
        if outcome.code:
            break
    assert outcome.code == 2
    assert Ledger.open(ledger).spent() <= 3.0
    with pytest.warns(NoLedgerWarning, match=r"Ledger\.open"):
        TableModel(PrivateTransferRegressor(), Schema.read(schema), label="cost").fit(PRIVATE, public=Public(PUBLIC))


def test_3_a_rare_category_that_public_rows_lack_gets_no_wild_value():
    """Thirteen private rows of an unseen plan: its predictions stay near those of the other plans."""
    rare = PRIVATE.copy()
    rare["plan"] = np.where(np.arange(len(rare)) < 13, "gold", "basic")
    schema = Schema.infer(PUBLIC, dataset="visits")
    gaps = []
    for seed in range(4):
        model = TableModel(PrivateTransferRegressor(random_state=seed), schema, label="cost")
        model.fit(rare, public=Public(PUBLIC), ledger=Ledger(3.0, 1e-6))
        gold, basic = (model.predict(NEW.assign(plan=plan)).mean() for plan in ("gold", "basic"))
        gaps.append(gold - basic)
    assert np.abs(gaps).max() < np.std(PRIVATE["cost"])


def test_4_assumed_bounds_are_warned_about_and_on_the_receipt():
    X, y = np.random.default_rng(0).normal(size=(200, 2)), np.full(200, 50.0)
    with pytest.warns(AssumedBoundsWarning):
        model = PrivateTransferRegressor(random_state=0).fit(X, y, ledger=Ledger(3.0, 1e-6))
    assert "-1" in str(model.privacy_)
    assert any("[-1, 1]" in fact or "-1 to 1" in fact or "(-1, 1)" in fact for fact in model.privacy_.assumptions)


def test_5_a_number_may_be_ignored_without_deleting_its_range(fit, schema):
    text = schema.read_text()
    assert re.search(r'\[columns\."?age"?\]\ntype = "number"', text)
    schema.write_text(re.sub(r'(\[columns\."?age"?\]\n)type = "number"', r'\1type = "ignore"', text))
    fit()


def test_5_identifiers_are_no_features_and_dates_are(schema):
    known = Schema.read(schema)
    names = [column.name for column in known.features("cost")]
    assert "start" in names
    assert "visit" not in names
    assert "patient" not in names
    assert any("person" in note for note in Schema.infer(PUBLIC, dataset="visits").notes)


def test_6_a_column_that_is_constant_in_public_rows_is_used():
    schema = Schema.infer(PUBLIC, dataset="visits")
    moved = PRIVATE.assign(cost=PRIVATE["cost"] + 300 * (PRIVATE["score"] == 2.0))
    from dataclasses import replace

    wide = replace(
        schema, columns=tuple(replace(c, low=0.0, high=3.0) if c.name == "score" else c for c in schema.columns)
    )
    model = TableModel(PrivateTransferRegressor(3.0, random_state=0), wide, label="cost")
    model.fit(moved, public=Public(PUBLIC), ledger=Ledger(3.0, 1e-6))
    low, high = (model.predict(NEW.assign(score=value)).mean() for value in (1.0, 2.0))
    assert high - low > 100


def test_7_persons_are_protected_on_request(fit):
    assert "one person (all rows with one id)" in fit("--person", "patient")
    assert in_python(person="patient").privacy_.unit == "person"


def test_9_a_rare_class_has_weights_a_threshold_and_numbers_of_its_own(fit, tmp_path):
    fit("--threshold", "10:1", label="ill", task="classification")
    page = (tmp_path / "model" / "report.html").read_text()
    assert "By class" in page
    assert "precision" in page
    model = in_python(PrivateTransferClassifier(decision_threshold={"miss": 10, "false alarm": 1}), label="ill")
    assert model.decision_threshold_ == pytest.approx(1 / 11)


def test_10_an_adviser_answers_with_the_command_to_run(command, schema, tmp_path):
    out = ["--schema", schema, "--epsilon", "1", "--seed", "0", "--out", tmp_path / "advice.html"]
    said = command("advise", "PUBLIC", "--label", "cost", "--rows", "700", *out)
    assert "dpadapt fit --private" in said
    assert "along start" in said
    assert dpadapt.advise(PUBLIC[:80], 700, label="cost").model.estimator.epsilon > 0


def test_11_12_the_report_begins_with_a_verdict_in_plain_words(fit, tmp_path):
    said = fit()
    page = (tmp_path / "model" / "report.html").read_text()
    assert page.index('class="verdict') < page.index("The guarantee")
    assert "700 private rows" in page
    assert "viewport" in page
    shown = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    for word in ("heard", "blur", "vote", "worth 1%"):
        assert word not in shown
        assert word not in said


def test_13_an_audit_with_few_runs_says_that_they_are_too_few(run):
    outcome = run("audit", "--runs", "40", "--fits", "30", "--minutes", "0.02")
    said = " ".join(outcome.out.split())
    assert "too few" in said or "undecided" in said


def test_nothing_is_said_about_private_cells(recwarn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoLedgerWarning)
        in_python()
