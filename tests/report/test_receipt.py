"""The guarantee in words, the facts of a receipt, and the statement of a saved model say what the receipt says."""

import json

import numpy as np
import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import Adjacency, Gaussian, NonPrivate, clipped_sum
from dpadapt.report.receipt import (
    best_guess,
    guarantee_in_words,
    percent,
    receipt_facts,
    statement_page,
    statement_text,
    summarise_statement,
)


def receipt_of(mechanism, *, epsilon=1.0, delta=1e-6, label="sum", **options):
    ledger = Ledger(epsilon, delta, **options)
    ledger.release(mechanism, clipped_sum([[1.0]], 1.0), label=label)
    return ledger.receipt()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_words_name_the_chance_of_a_guess(adjacency):
    receipt = receipt_of(Gaussian(30.0), adjacency=adjacency)
    assert percent(best_guess(receipt.epsilon, receipt.delta)) in guarantee_in_words(receipt)[0]


@pytest.mark.parametrize(
    "receipt",
    [receipt_of(NonPrivate(), epsilon=float("inf"), delta=0.0), receipt_of(Gaussian(30.0), random_state=0)],
    ids=["no noise", "seeded"],
)
def test_a_missing_guarantee_is_stated_first(receipt):
    assert guarantee_in_words(receipt)[0].startswith("There is no guarantee")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 800.0])
def test_percent_never_understates(epsilon):
    share = best_guess(epsilon, 1e-6)
    shown = percent(share)
    assert float(shown.removesuffix("%")) / 100 >= share - 1e-15
    assert shown != "100%" or share == 1.0


def test_best_guess_is_that_of_randomized_response():
    # Randomized response attains it: right with probability e^eps / (1 + e^eps).
    assert best_guess(np.log(3), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 0.1) == pytest.approx(0.55)


def test_the_facts_of_a_receipt_are_its_data_and_what_is_shown_beside_it():
    receipt = receipt_of(Gaussian(30.0), random_state=0)
    facts, data = receipt_facts(receipt), receipt.to_dict()
    json.dumps(facts, allow_nan=False)
    assert {name: facts[name] for name in data.keys() - {"entries", "warnings"}} == {
        name: data[name] for name in data.keys() - {"entries", "warnings"}
    }
    (entry,) = facts["entries"]
    assert entry == data["entries"][0] | {"mechanism": "Gaussian(noise_multiplier=30)"}
    assert facts["warnings"] == ["The noise came from a seed: this fit has no privacy guarantee.", *receipt.warnings]
    bounds = facts["verification"]
    assert bounds["lower"] <= receipt.epsilon * (1 + 1e-6) <= bounds["upper"] * (1 + 1e-6)


def test_text_and_page_have_the_same_content():
    summary = summarise_statement(
        receipt_of(Gaussian(30.0), label="mean <of> ages"), dataset="patients", method="transfer (regression)"
    )
    text, page = statement_text(summary), statement_page(summary)
    for section in summary["sections"]:
        assert section["heading"] in text
        assert section["heading"].replace("'", "&#39;") in page
    assert "mean <of> ages: Gaussian(noise_multiplier=30)" in text
    assert "mean &lt;of&gt; ages" in page
    assert "epsilon = 0.1227" in text


def test_without_releases_it_says_so():
    text = statement_text(summarise_statement(Ledger(1.0, 1e-6).receipt(), dataset="d", method="m"))
    assert "  - nothing" in text
    assert "nothing was charged" in text


def test_a_seed_leaves_no_promise():
    text = statement_text(summarise_statement(receipt_of(Gaussian(30.0), random_state=1), dataset="d", method="m"))
    assert "There is no guarantee" in text
    assert "factor of at most" not in text
    assert text.index("Warnings") < text.index("What is protected")
