"""The page of a ledger: what it says is what the ledger holds, and nothing in a name or label becomes markup."""

import re

import pytest

from dpadapt.accounting import Ledger, calibrate
from dpadapt.mechanisms import Gaussian, Laplace
from dpadapt.report.ledger import ledger_page, summarise_ledger
from tests.pages import NASTY


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.open(tmp_path / "patients.ledger", epsilon=3.0, delta=1e-6, dataset="patients")
    anna = ledger.allow("anna", 1.0)
    child = anna.child(0.8, 1e-6, label="PrivateThing")
    child.start_all([(Gaussian(calibrate(0.7, 1e-6)), "first part"), (Laplace(100.0), "second part")])
    ledger.start(Gaussian(100.0), label="by nobody")
    ledger.allow("anna", 0.5)
    ledger.allow("bert", 2.0, 1e-7)
    return ledger


def test_the_page_has_budget_allowances_charges_and_changes(ledger):
    summary = summarise_ledger(ledger, "patients.ledger")
    assert summary["budget"]["spent"] == f"{ledger.spent():.4g}"
    assert summary["budget"]["left"] == f"{ledger.remaining():.4g}"
    anna, bert = summary["allowances"]
    assert (anna["who"], anna["epsilon"], anna["charges"], anna["share"], anna["full"]) == (
        "anna",
        "0.5",
        1,
        100.0,
        True,
    )
    assert (bert["who"], bert["delta"], bert["spent"], bert["share"], bert["full"]) == (
        "bert",
        "1e-07",
        "0",
        0.0,
        False,
    )
    assert [(charge["who"], charge["what"]) for charge in summary["charges"]] == [
        ("anna", "PrivateThing"),
        ("", "by nobody"),
    ]
    assert [release["label"] for release in summary["charges"][0]["releases"]] == ["first part", "second part"]
    assert [(change["who"], change["epsilon"]) for change in summary["changes"]] == [
        ("anna", "1"),
        ("anna", "0.5"),
        ("bert", "2"),
    ]
    assert summary["without"] == 1
    page = ledger_page(summary)
    times = {past.time for past in ledger.records()}
    for text in ("patients", "anna", "bert", "PrivateThing", "first part", "Gaussian(noise_multiplier=", *times):
        assert text in page
    # Nothing is loaded from anywhere.
    assert not re.search(r"(src|href)=|url\(|@import", page)


def test_names_and_labels_are_shown_as_they_are(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger", epsilon=3.0, delta=1e-6, dataset=NASTY)
    ledger.allow(NASTY, 1.0).start(Gaussian(100.0), label=NASTY)
    page = ledger_page(summarise_ledger(ledger, NASTY))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4


def test_a_seed_and_an_unlimited_cap_are_told():
    ledger = Ledger(float("inf"), 1e-6, random_state=1)
    ledger.start(Gaussian(10.0), label="x")
    page = ledger_page(summarise_ledger(ledger, "x"))
    assert "The noise came from a seed" in page
    assert "(seeded: no guarantee)" in page
    assert 'style="width: 0.0%"' in page
