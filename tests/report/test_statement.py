"""The statement for a privacy officer says what the receipt says, and no more."""

from dpadapt.accounting import Ledger
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.report.statement import statement_page, statement_text, summarise_statement


def receipt(unit="row", seed=None):
    ledger = Ledger(epsilon=1.0, delta=1e-6, unit=unit, random_state=seed)
    ledger.release(Gaussian(30.0), clipped_sum([[1.0]], 1.0), label="mean <of> ages")
    return ledger.receipt()


def test_text_and_page_have_the_same_content():
    summary = summarise_statement(receipt(), dataset="patients", method="transfer (regression)")
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
    text = statement_text(summarise_statement(receipt(seed=1), dataset="d", method="m"))
    assert "There is no guarantee" in text
    assert "factor of at most" not in text
    assert text.index("Warnings") < text.index("What is protected")
