"""`dpadapt evaluate`: a metric of private rows, charged to the ledger of the rows."""

import json

import pandas as pd
import pytest
from outcomes import accepted, refused

from dpadapt import Public, evaluate, load
from dpadapt.accounting.ledger import Ledger
from tests.failures import failing
from tests.saved_models import json_of, rewrite


@pytest.fixture
def fitted(site, fitted):
    """A site with a classification, a regression, and test rows of the same data set."""
    for label, task, method in (("ill", "classification", "logistic"), ("cost", "regression", "linear")):
        fitted(label=label, task=task, method=method, ledger=None)
        site.out.rename(site.folder / label)
    rows = pd.read_csv(site.private)
    rows.sample(400, random_state=0).to_csv(site.folder / "test.csv", index=False)
    return site


def order(site, label="ill", *more, epsilon="0.2", private="test.csv"):
    """Return the command; it names the ledger of the fit unless `more` names or refuses one."""
    if not {"--ledger", "--no-ledger"} & set(map(str, more)):
        more = (*more, "--ledger", site.ledger)
    return ["evaluate", site.folder / label, "--private", site.folder / private, "--epsilon", epsilon, *more]


def test_a_model_is_evaluated_and_the_ledger_is_charged_and_named(run, fitted):
    before = Ledger.open(fitted.ledger).n_charges
    outcome = accepted(run(*order(fitted)))
    assert outcome.out.startswith("accuracy = ")
    assert "95% interval" in outcome.out
    ledger = Ledger.open(fitted.ledger)
    assert ledger.n_charges == before + 1
    assert ledger.entries[-1].label == "evaluation of ill: accuracy"
    charge = (
        f"Charged to {fitted.ledger} (patients): epsilon = {ledger.spent():.4g} of 3 spent, {ledger.remaining():.4g}"
    )
    assert f"{charge} left at delta = 1e-06." in outcome.out


@pytest.mark.parametrize(
    ("label", "metric"), [("ill", "accuracy"), ("ill", "log-loss"), ("ill", "auc"), ("cost", "squared-error")]
)
def test_the_command_and_python_measure_the_same(run, fitted, label, metric):
    options = ["--metric", metric, "--public", fitted.folder / "public.csv", "--no-ledger", "--json"]
    outcome = accepted(run(*order(fitted, label, *options, epsilon="1e6")))
    shown = json.loads(outcome.out)
    model, rows = load(fitted.folder / label).model, pd.read_csv(fitted.folder / "test.csv")
    public = Public(pd.read_csv(fitted.folder / "public.csv"))
    same = evaluate(model, rows, metric=metric, epsilon=1e6, public=public)
    assert shown["value"] == pytest.approx(same.value, rel=1e-3)
    assert shown["receipt"]["assumptions"] == list(same.receipt.assumptions)


def test_json_says_that_a_ledger_will_not_be_found_again(run, fitted, monkeypatch):
    monkeypatch.setattr("pathlib.Path.symlink_to", failing(OSError(1, "not permitted")))
    outcome = accepted(run(*order(fitted, "ill", "--json")))
    assert "name the ledger by --ledger" in json.loads(outcome.out)["notes"][0]


def test_rows_without_labels_and_in_another_order_change_nothing_that_is_said(run, fitted):
    rows = pd.read_csv(fitted.folder / "test.csv")
    rows.loc[rows.index[:40], "ill"] = None
    rows[rows.columns[::-1]].to_csv(fitted.folder / "holes.csv", index=False)
    first, second = (run(*order(fitted, private=name)) for name in ("test.csv", "holes.csv"))
    assert (second.code, second.err) == (0, "")
    words = [[w for w in outcome.out.split() if not any(c.isdigit() for c in w)] for outcome in (first, second)]
    assert words[0] == words[1]


def test_an_evaluation_beyond_the_cap_is_refused_before_a_private_cell_is_read(run, fitted, monkeypatch):
    assert run(*order(fitted, epsilon="1")).code == 0
    before = Ledger.open(fitted.ledger).n_charges

    monkeypatch.setattr("dpadapt.cli.evaluate._tables", failing(AssertionError("a private cell was read")))
    refused(run(*order(fitted, epsilon="2.9")), "No private cell was read and nothing was spent")
    assert Ledger.open(fitted.ledger).n_charges == before


def test_persons_need_a_ledger_of_persons(run, fitted):
    refused(run(*order(fitted, "ill", "--person", "id")), "Leave --person out")
    new = fitted.folder / "persons.ledger"
    outcome = accepted(run(*order(fitted, "ill", "--person", "id", "--ledger", new)))
    assert (Ledger.open(new).unit, Ledger.open(new).delta) == ("person", 1e-6)
    assert "New ledger" in outcome.out


@pytest.mark.parametrize(
    ("label", "more", "words"),
    [
        ("cost", ["--metric", "auc"], "predict a class"),
        ("ill", ["--metric", "squared-error"], "predict a number"),
        ("ill", ["--error-bound", "0"], "--error-bound"),
        ("ill", ["--delta", "2"], "--delta"),
        ("ill", ["--no-ledger", "--ledger-epsilon", "3"], "--no-ledger"),
        ("ill", ["--ledger-epsilon", "9"], "can't be changed"),
        ("ill", ["--public", "test.csv"], "this is the private file"),
        ("ill", ["--adjacency", "add-remove"], "Use --adjacency zero-out"),
        ("nothing", [], "nothing"),
    ],
)
def test_bad_options_are_named_and_nothing_is_spent(run, fitted, monkeypatch, label, more, words):
    monkeypatch.chdir(fitted.folder)
    before = Ledger.open(fitted.ledger).n_charges
    refused(run(*order(fitted, label, *more)), words)
    assert Ledger.open(fitted.ledger).n_charges == before


def test_a_private_cell_that_is_no_label_counts_nothing_and_is_not_shown(run, fitted):
    rows = pd.read_csv(fitted.folder / "test.csv", dtype=str)
    rows.loc[3, "ill"] = "ZEBRA7731"
    rows.to_csv(fitted.folder / "odd.csv", index=False)
    outcome = run(*order(fitted, private="odd.csv"))
    assert "ZEBRA7731" not in outcome.out + outcome.err
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("folder", ["", "far/alone"])
def test_rows_without_a_ledger_need_one_that_is_named_once(run, fitted, folder):
    """In a folder without any ledger, too: rows held out from a fit would otherwise get a budget of their own."""
    (fitted.folder / "far" / "alone").mkdir(parents=True)
    (fitted.folder / "test.csv").rename(fitted.folder / folder / "rows.csv")
    command = ["evaluate", fitted.folder / "ill", "--private", fitted.folder / folder / "rows.csv", "--epsilon", "0.2"]
    before = Ledger.open(fitted.ledger).n_charges
    refused(run(*command), "has no ledger of its own", "name that ledger with --ledger")
    assert run(*command, "--no-ledger").code == 0
    assert Ledger.open(fitted.ledger).n_charges == before
    assert run(*command, "--ledger", fitted.ledger).code == 0
    assert run(*command).code == 0
    assert Ledger.open(fitted.ledger).n_charges == before + 2


def test_a_result_that_cannot_be_printed_is_shown_on_standard_error(run, fitted, monkeypatch):
    monkeypatch.setattr("dpadapt.cli.evaluate._print", failing(OSError(28, "No space left on device")))
    outcome = run(*order(fitted))
    assert outcome.code == 1
    assert "The budget is spent" in outcome.err
    assert "accuracy = " in outcome.err


def test_the_column_of_ids_comes_from_the_command_alone(run, site, monkeypatch):
    """Whoever made the model could name a column that is another one in every row."""
    persons = site.folder / "persons.ledger"
    assert run(*site.fit(person="id", ledger=persons)).code == 0
    saved = json_of(site.out)
    saved["extra"]["person"] = "visit"
    rewrite(site.out, {"model.json": saved})
    rows = pd.read_csv(site.private)
    rows.assign(visit=range(len(rows))).to_csv(site.private, index=False)
    command = ["evaluate", site.out, "--private", site.private, "--epsilon", 1, "--ledger", persons]
    before = Ledger.open(persons).n_charges
    with monkeypatch.context() as patch:
        patch.setattr("dpadapt.cli.evaluate._tables", lambda *_args: pytest.fail("a private cell was read"))
        refused(run(*command), "protects persons", "--person")
    assert Ledger.open(persons).n_charges == before
    outcome = accepted(run(*command, "--person", "id", "--json"))
    receipt = json.loads(outcome.out)["receipt"]
    assert receipt["unit"] == "person"
    assert "the ids of persons: the column 'id'" in receipt["assumptions"]
    refused(run(*command, "--person", "age"), "--person age")
