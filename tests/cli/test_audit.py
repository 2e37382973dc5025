"""`dpadapt audit`: verdicts in words, exit codes and checked options."""

import json

import numpy as np
import pytest

from dpadapt import Ledger, save
from dpadapt.cli import main
from dpadapt.papers.adaptation import PrivateMixture
from tests.saved_models import json_of, rewrite


@pytest.fixture
def model(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    ledger = Ledger.open(tmp_path / "rows.ledger", epsilon=20.0, delta=1e-5)
    save(PrivateMixture(epsilon=9.9, delta=1e-5).fit(X, X[:, 0], ledger=ledger), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "missing argument 'model'"),
        (["nowhere/"], "not a model"),
        (["nowhere/", "--ledger", "nowhere.ledger"], "there is no such ledger"),
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


def test_help_explains_exit_codes(capsys):
    assert main(["audit", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "An audit is no proof" in words
    assert "The exit code is 1 if the receipt is refuted, and 0 otherwise" in words
