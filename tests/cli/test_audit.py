"""`dpadapt audit`: verdicts in words, exit codes, checked options, and the audit of a saved model."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpadapt import Ledger, save
from dpadapt.audit import battery
from dpadapt.audit.battery_cases import mechanism_cases
from dpadapt.cli import main
from dpadapt.papers.adaptation import PrivateMixture
from tests.saved_models import json_of, rewrite

GAUSSIAN = mechanism_cases()[0]


@pytest.fixture
def audit_of(monkeypatch, capsys):
    """Return a function that runs `dpadapt audit` on given cases and returns its exit code and what it printed."""

    def run(cases, *options):
        monkeypatch.setattr("dpadapt.audit.battery_cases.all_cases", lambda full=False: cases)
        # One true claim in a hundred is refuted by chance; seeded noise repeats.
        monkeypatch.setattr(battery, "audit_all", partial(battery.audit_all, seed=1))
        code = main(["audit", *options])
        return code, capsys.readouterr()

    return run


@pytest.fixture
def model(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    ledger = Ledger.open(tmp_path / "rows.ledger", epsilon=20.0, delta=1e-5)
    save(PrivateMixture(epsilon=9.9, delta=1e-5).fit(X, X[:, 0], ledger=ledger), tmp_path / "model")
    return tmp_path / "model"


def test_a_claim_that_holds_exits_with_0(audit_of):
    code, printed = audit_of([GAUSSIAN], "--runs", "3000")
    assert code == 0
    assert "1 of 1 claims hold, refuted: 0, undecided: 0." in printed.out
    assert "not audited: " in printed.out


def test_a_refuted_claim_exits_with_1(audit_of):
    code, printed = audit_of([replace(GAUSSIAN, claim=lambda: GAUSSIAN.claimed / 10)], "--runs", "3000")
    assert code == 1
    assert "REFUTED" in printed.out


def test_an_undecided_claim_exits_with_0_and_says_what_would_decide(audit_of):
    code, printed = audit_of([GAUSSIAN, replace(GAUSSIAN, name="too high", claim=lambda: 8.0)], "--runs", "60")
    assert code == 0
    words = " ".join(printed.out.split())
    assert "too few runs to" in words
    assert "undecided: " in words


def test_time_limits_the_audit(audit_of):
    slow = replace(GAUSSIAN, fit=lambda noise, seed: lambda data: np.random.default_rng().standard_normal())
    code, printed = audit_of([slow], "--runs", "10000000", "--minutes", "0.005")
    assert code == 0
    assert "undecided: 1." in printed.out


def test_json_holds_every_case_and_the_reasons_for_those_that_are_missing(audit_of):
    code, printed = audit_of([GAUSSIAN], "--runs", "3000", "--json")
    facts = json.loads(printed.out)
    assert code == 0
    assert facts["refuted"] is False
    assert [case["verdict"] for case in facts["cases"]] == ["holds"]
    assert "epsilon = inf" in facts["not_audited"]["NonPrivate"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--runs", "0"], "--runs must be a whole number from 30"),
        (["--runs", "10000000000000"], "--runs must be a whole number from 30"),
        (["--fits", "-1"], "--fits must be a whole number from 30"),
        (["--fits", "29"], "--fits must be a whole number from 30"),
        (["--confidence", "0"], "--confidence must be above 0.5 and below 1"),
        (["--confidence", "1"], "--confidence must be above 0.5 and below 1"),
        (["--confidence", "nan"], "--confidence must be above 0.5 and below 1"),
        (["--minutes", "0"], "--minutes must be above 0"),
        (["--minutes", "inf"], "--minutes must be above 0"),
        (["--minutes", "nan"], "--minutes must be above 0"),
        (["--ledger", "a.ledger"], "--ledger is for the audit of a model"),
        (["nowhere/"], "not a model"),
        (["nowhere/", "--full"], "--full is for the audit of dpadapt itself"),
        (["nowhere/", "--ledger", "nowhere.ledger"], "there is no such ledger"),
    ],
)
def test_bad_options_get_one_line_and_exit_with_2(options, named, capsys, monkeypatch):
    monkeypatch.setattr("dpadapt.audit.battery_cases.all_cases", lambda **_: pytest.fail("it ran"))
    assert main(["audit", *options]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert named in errors[0]


def test_a_model_is_audited_with_its_ledger(model, capsys):
    assert main(["audit", str(model), "--ledger", str(model.parent / "rows.ledger")]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "the ledger was charged" in words
    assert "all 5 checks agree with the receipt (epsilon = 9.9, delta = 1e-05). This is no proof." in words


def test_a_tampered_receipt_exits_with_1(model, capsys):
    rewrite(model, {"receipt.json": json_of(model, "receipt.json") | {"epsilon": 1.0}})
    assert main(["audit", str(model), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "refuted"
    assert facts["receipt"]["epsilon"] == 1.0


def test_the_json_of_a_model_holds_receipt_and_checks(model, capsys):
    assert main(["audit", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "holds"
    assert facts["receipt"]["delta"] == 1e-5
    assert {check["verdict"] for check in facts["checks"]} == {"holds"}


def test_help_explains_verdicts_and_exit_codes(capsys):
    assert main(["audit", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "An audit is no proof" in words
    assert "The exit code is 1 if a claim is refuted, and 0 otherwise" in words
