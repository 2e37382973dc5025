"""Tables for the terminal: receipts, ledgers, panels and forecasts."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.methods import PREDICTORS
from dpadapt.report.ledger import history_of
from dpadapt.report.receipt import receipt_facts
from dpadapt.report.terminal import (
    facts_table,
    history_table,
    print_fit,
    print_preview,
    receipt_table,
)
from dpadapt.transfer.preview import beside, forecast_of_scores


def render(table) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def printed(function, result) -> str:
    console = Console(file=io.StringIO(), width=100)
    function(console, result)
    return console.file.getvalue()


@pytest.fixture
def ledger():
    ledger = Ledger(1.0, 1e-6, random_state=0)
    ledger.release(Gaussian(30.0), clipped_sum([[1.0]], 1.0), label="a [bold]sum[/]")
    return ledger


def test_facts_are_not_read_as_markup():
    assert "[bold]x[/]" in render(facts_table("t", {"name": "[bold]x[/]"}))


def test_a_receipt_shows_cost_releases_and_further_facts(ledger):
    text = render(receipt_table(receipt_facts(ledger.receipt()), {"chosen": "3 rows"}))
    assert "epsilon = 0.1227, delta = 1e-06" in text
    assert "a [bold]sum[/]: Gaussian(noise_multiplier=30) (seeded)" in text
    assert "3 rows" in text


def test_a_receipt_without_releases_says_nothing_was_released():
    facts = receipt_facts(Ledger(1.0, 1e-6).receipt())
    assert any("released" in line and "nothing" in line for line in render(receipt_table(facts, {})).splitlines())


@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: f"{method.name}-{method.task}")
def test_a_fit_shows_its_method_and_its_ledger(summary_of, method):
    summary = summary_of(method)
    text = printed(print_fit, summary | {"ledger": {"words": "half of it is spent"}})
    assert summary["verdict"]["title"] in text
    assert "Receipt" in text
    assert f"{method.name} ({method.task})" in " ".join(text.split())
    assert "half of it is spent" in text
    assert "half of it is spent" not in printed(print_fit, summary | {"ledger": None})
    if summary["by_class"]:
        assert "On public rows, another population" in text


def test_a_history_marks_seeded_charges(ledger):
    text = " ".join(render(history_table("h", history_of(ledger))).split())
    assert "(seeded: no guarantee)" in text
    assert "[bold]sum[/]" in text


def test_a_preview_is_printed_with_its_table_and_that_nothing_was_spent():
    first = forecast_of_scores(0.1, 1200, worthwhile=False, needed_gain=np.inf, gate="shut")
    later = forecast_of_scores(3.0, 1200, n_directions=7, blur=0.25, needed_gain=0.01, gate="open")
    text = printed(print_preview, replace(beside([first, later]), words=("a [bold]label[/]",)))
    assert "a [bold]label[/]" in text
    assert "Forecast for 1,200 private rows" in text
    assert "nothing was spent" in text
    (first,) = [line for line in text.splitlines() if "ε = 0.1" in line]
    (second,) = [line for line in text.splitlines() if "ε = 3" in line]
    assert first.split() == ["ε", "=", "0.1", "-", "-", "0", "unspent"]
    assert second.split() == ["ε", "=", "3", "0.25", "0.01", "7", "probably"]
