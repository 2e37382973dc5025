"""Results in a notebook: escaped, whole, and in the notebook's own colours."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dpadapt import Ledger, PrivateLinearRegression, Public, evaluate, notebook
from dpadapt.mechanisms import Gaussian

NASTY = "<script>alert('x')</script> & \"y\""
PUBLIC_ROWS = np.random.default_rng(0).uniform(-1, 1, (200, 3))
PUBLIC = Public(PUBLIC_ROWS, PUBLIC_ROWS @ [1.0, 0.5, -1.0])


class Reader(HTMLParser):
    """Keeps the text of a page, and fails where an element is not closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def shown(result):
    """Return the text that a notebook shows of a result."""
    page = result._repr_html_()
    # No style sheet, script or image, and no colour of text or background that only one theme could have.
    assert not re.search(r"<(style|script|img|link|iframe)|[^-]color:(?!inherit)|background:(white|black|#fff)", page)
    return " ".join(" ".join(Reader(page).text).split())


def fitted(**options):
    X = np.random.default_rng(1).uniform(-1, 1, (600, 3))
    return PrivateLinearRegression(**options).fit(X, X[:, 0], public=PUBLIC)


@pytest.mark.parametrize("part", [
    notebook.headline(NASTY), notebook.sentence(NASTY), notebook.note(NASTY), notebook.warning(NASTY),
    notebook.facts({NASTY: NASTY}), notebook.folded(NASTY, [NASTY]), notebook.table([NASTY, NASTY], [[NASTY, NASTY]]),
])  # fmt: skip
def test_every_part_escapes_its_texts(part):
    page = notebook.card(NASTY, part)
    assert "<script" not in page
    assert NASTY in " ".join(Reader(page).text)


def test_a_receipt_shows_everything_that_its_text_has():
    receipt = fitted(random_state=0).privacy_
    text = shown(receipt)
    assert f"epsilon = {receipt.epsilon:.4g}, delta = {receipt.delta:.3g}" in text
    for part in (receipt.meaning, *map(str, receipt.entries), *receipt.assumptions, *receipt.all_warnings):
        assert " ".join(part.split()) in text
    assert "came from a seed" in text
    assert "came from a seed" not in shown(fitted().privacy_)


def test_a_ledger_shows_its_budget_allowances_and_charges(tmp_path):
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=3.0, delta=1e-6, dataset=NASTY)
    assert "epsilon = 0 of 3 spent" in shown(ledger)
    ledger.allow("anna", 1.0).start(Gaussian(20.0), label=NASTY)
    text = shown(ledger)
    for part in (NASTY, f"epsilon = {ledger.spent():.4g} of 3 spent", "allowance anna", "of 1 spent"):
        assert part in text
    assert f"{ledger.records()[-1].time} · anna · {NASTY}: Gaussian(noise_multiplier=20)" in text
    assert f"Allowance anna of {NASTY}" in shown(ledger.allowance("anna"))
    assert shown(Ledger(float("inf"), 1e-6)).startswith("Ledger epsilon = 0 of inf spent")


def test_a_ledger_with_many_charges_shows_the_newest():
    ledger = Ledger(100.0, 1e-6)
    for k in range(60):
        ledger.start(Gaussian(1000.0), label=f"charge number {k}.")
    text = shown(ledger)
    assert "the newest of 60 (50)" in text
    assert "charge number 59." in text
    assert "charge number 9." not in text


def test_an_evaluation_shows_interval_cost_and_receipt():
    result = evaluate(fitted(), PUBLIC.X, PUBLIC.y, epsilon=0.5, error_bound=2.0)
    text = shown(result)
    for part in (f"= {result.value:.4g}", f"{result.low:.4g} to {result.high:.4g}", "cost: epsilon = 0.5, delta = 0"):
        assert part in text
    assert all(fact in text for fact in result.receipt.assumptions)
