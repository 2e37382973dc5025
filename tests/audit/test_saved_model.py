"""The check of a saved model: an honest one holds, a receipt that was tampered with is found."""

from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

from dpadapt import Ledger, PrivateLinearRegression, Public, load, save
from dpadapt.accounting import epsilon
from dpadapt.audit import audit_model
from dpadapt.hybrid import PrivateHybridClassifier
from dpadapt.mechanisms import NonPrivate
from dpadapt.mechanisms.events import Entry, GaussianEvent
from dpadapt.methods import METHODS, Method
from dpadapt.papers.adaptation import ReverseAdaptation
from tests.saved_models import json_of, rewrite

RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-1, 1, (300, 2))
Y = X @ [1.0, -0.5]
EPSILON, DELTA = 9.9, 1e-5
# Two rows for each person.
PERSONS = np.arange(len(X)) // 2


@pytest.fixture
def folder(tmp_path):
    """Return the folder of an honest model with a ledger beside it."""
    ledger = Ledger.open(tmp_path / "rows.ledger", epsilon=20.0, delta=DELTA)
    save(ReverseAdaptation(epsilon=EPSILON, delta=DELTA).fit(X, Y, ledger=ledger), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def two_entries(tmp_path):
    """Return the folder of a model whose receipt has several entries."""
    model = PrivateHybridClassifier(epsilon=EPSILON, delta=DELTA, classes=[0, 1]).fit(X, (Y > 0).astype(int))
    save(model, tmp_path / "two")
    return tmp_path / "two"


def tamper(folder, change, *, params=None):
    """Change the receipt of a model, and its parameters."""
    receipt, model = json_of(folder, "receipt.json"), json_of(folder)
    change(receipt)
    model["params"] |= params or {}
    rewrite(folder, {"receipt.json": receipt, "model.json": model})


def ledger_of(folder):
    return Ledger.open(folder.parent / "rows.ledger", read_only=True)


def ledger_finding(path, ledger):
    return next(each for each in audit_model(path, ledger=ledger).findings if each.check == "the ledger was charged")


def verdicts(audit):
    return {finding.check: finding.verdict for finding in audit.findings}


def refuted(audit):
    return [finding.check for finding in audit.findings if finding.verdict == "refuted"]


def test_an_honest_model_holds_and_its_ledger_is_not_charged(folder):
    before = (folder.parent / "rows.ledger").read_bytes()
    audit = audit_model(folder, ledger=ledger_of(folder))
    assert set(verdicts(audit).values()) == {"holds"}, audit.findings
    assert len(audit.findings) == 5
    assert (audit.verdict, audit.words.split(":")[0]) == ("holds", "holds")
    assert "no proof" in audit.words
    assert (folder.parent / "rows.ledger").read_bytes() == before


def test_a_lower_epsilon_is_found(folder):
    tamper(folder, lambda receipt: receipt.update(epsilon=receipt["epsilon"] / 2))
    audit = audit_model(folder)
    assert "a second accountant confirms the receipt" in refuted(audit)
    assert "the entries cost what the receipt claims" in refuted(audit)


def test_a_removed_entry_is_found(two_entries):
    tamper(two_entries, lambda receipt: receipt["entries"].pop(0))
    assert "the entries cost what the receipt claims" in refuted(audit_model(two_entries))


def test_a_larger_noise_multiplier_is_found(folder):
    tamper(folder, lambda receipt: receipt["entries"][0]["event"].update(noise_multiplier=3.0))
    assert "the entries cost what the receipt claims" in refuted(audit_model(folder))


def forge(receipt):
    """Raise the noise and lower the epsilon to match."""
    receipt["entries"][0]["event"]["noise_multiplier"] = 3.0
    receipt["epsilon"] = epsilon(GaussianEvent(3.0), DELTA)


def test_a_forgery_of_everything_is_found_by_the_ledger_alone(folder):
    tamper(folder, forge, params={"epsilon": epsilon(GaussianEvent(3.0), DELTA)})
    audit = audit_model(folder, ledger=ledger_of(folder))
    assert refuted(audit) == ["the ledger was charged"]


@pytest.mark.parametrize("params", [{"epsilon": 1.0}, {"delta": 1e-6}, {"adjacency": "replace-one"}])
def test_a_receipt_beyond_the_budget_of_the_model_is_found(folder, params):
    tamper(folder, lambda receipt: None, params=params)
    assert "the receipt keeps to the model's budget" in refuted(audit_model(folder))


def test_seeds_are_found_whether_the_receipt_shows_them_or_not(tmp_path):
    save(ReverseAdaptation(epsilon=EPSILON, delta=DELTA, random_state=0).fit(X, Y), tmp_path)
    assert refuted(audit_model(tmp_path)) == ["all noise is secret"]
    tamper(tmp_path, lambda receipt: receipt["entries"][0].update(seeded=False))
    assert refuted(audit_model(tmp_path)) == ["all noise is secret"]


def test_releases_without_noise_are_found(folder):
    def change(receipt):
        receipt["entries"].append(Entry("all rows", NonPrivate().event()).to_dict())
        receipt["epsilon"] = "inf"

    tamper(folder, change)
    assert {"the receipt keeps to the model's budget", "all noise is secret"} <= set(refuted(audit_model(folder)))


def test_the_wrong_ledger_is_found(folder, tmp_path):
    caps = {"epsilon": 20.0, "delta": DELTA}
    save(load(folder).model, folder, extra={"schema": {"dataset": "patients"}})
    wrong = [
        Ledger.open(tmp_path / "empty.ledger", **caps),
        Ledger.open(tmp_path / "other.ledger", dataset="customers", **caps),
        Ledger.open(tmp_path / "replaced.ledger", adjacency="replace-one", **caps),
    ]
    for ledger, words in zip(wrong, ("not in the ledger", "'customers'", "replace-one"), strict=True):
        finding = ledger_finding(folder, ledger)
        assert finding.verdict == "refuted"
        assert words in finding.words


def test_charges_are_found_in_the_ledger_of_a_study(tmp_path):
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=20.0, delta=DELTA)
    study = ledger.child(15.0, DELTA, label="a study: the first")
    save(ReverseAdaptation(epsilon=EPSILON, delta=DELTA).fit(X, Y, ledger=study), tmp_path / "model")
    assert ledger_finding(tmp_path / "model", ledger).verdict == "holds"


def test_an_entry_that_the_receipt_has_twice_must_be_charged_twice(folder, tmp_path):
    model = load(folder).model
    model.privacy_ = replace(model.privacy_, entries=model.privacy_.entries * 2)
    save(model, folder)
    assert ledger_finding(folder, ledger_of(folder)).verdict == "refuted"


def test_a_model_that_released_nothing_must_say_so(tmp_path):
    save(ReverseAdaptation(epsilon=1e-4, delta=1e-9).fit(X, Y), tmp_path)
    audit = audit_model(tmp_path)
    assert verdicts(audit)["nothing was released"] == "holds"
    tamper(tmp_path, lambda receipt: receipt.update(warnings=[]))
    assert refuted(audit_model(tmp_path)) == ["nothing was released"]


@pytest.fixture
def of_persons(tmp_path):
    """Return the folder of an honest model that protects persons."""
    save(PrivateLinearRegression(epsilon=EPSILON, delta=DELTA).fit(X, Y, persons=PERSONS), tmp_path / "persons")
    return tmp_path / "persons"


def test_an_honest_model_of_persons_holds(of_persons):
    audit = audit_model(of_persons)
    assert set(verdicts(audit).values()) == {"holds"}, audit.findings
    assert "the fit was given persons" in verdicts(audit)


def test_a_receipt_of_persons_must_come_from_a_method_that_takes_them(folder, of_persons):
    tamper(folder, lambda receipt: receipt.update(unit="person"))
    tamper(of_persons, lambda receipt: receipt.update(assumptions=[]))
    for forged, words in ((folder, "the method takes none"), (of_persons, "nothing about their ids")):
        audit = audit_model(forged)
        assert refuted(audit) == ["the fit was given persons"]
        assert any(words in finding.words for finding in audit.findings)


TAKING_PERSONS = [method for method in METHODS if "persons" in signature(type(method.estimator()).fit).parameters]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "beside"),
    [*((method, {}) for method in METHODS), *((method, {"persons": PERSONS}) for method in TAKING_PERSONS)],
    ids=lambda value: f"{value.name}-{value.task}" if isinstance(value, Method) else "-".join(value) or "rows",
)
def test_no_honest_model_is_refuted(method, beside, tmp_path):
    wanted = {"n_clusters": 2, "classes": [0, 1]}
    model = method.estimator()
    model.set_params(**{name: value for name, value in wanted.items() if name in model.get_params()})
    labels = Y if method.task == "regression" else (Y > 0).astype(int)
    data = (X,) if method.task == "clustering" else (X, labels)
    rows = RANDOM.uniform(-1, 1, (150, 2))
    public = Public(
        rows, rows[:, 0] if method.task == "regression" else (rows[:, 0] > 0).astype(int), tasks=np.arange(150) % 5
    )
    save(model.fit(*data, **beside, **({"public": public} if method.beside == "public" else {})), tmp_path)
    audit = audit_model(tmp_path)
    assert refuted(audit) == [], audit.findings
    assert verdicts(audit).get("the fit was given persons", "") == ("holds" if beside else "")
