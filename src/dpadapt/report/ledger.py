"""The page of a ledger: the budget of a private data set, its allowances, and who spent what on what and when."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dpadapt import __version__
from dpadapt.accounting.chain import Past
from dpadapt.accounting.cost import add_entries
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import SEED_WARNING
from dpadapt.mechanisms.events import Entry
from dpadapt.report import page
from dpadapt.report.charts import spending_chart


def summarise_ledger(ledger: Ledger, name: str) -> dict[str, Any]:
    """Return the contents of the page; `name` is the ledger's file, or its address without a password."""
    past = history_of(ledger)
    charges = [record for record in past if record["kind"] == "charge"]
    receipt = ledger.receipt()
    warnings = list(receipt.warnings)
    if receipt.seeded:
        warnings.append(f"{SEED_WARNING[0].upper()}{SEED_WARNING[1:]}.")
    return {
        "name": name,
        "dataset": ledger.dataset or "(no name)",
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "protects": f"{ledger.adjacency.protects(ledger.unit)}; {ledger.adjacency.counted(ledger.unit)}",
        "budget": _budget(ledger, "", len(charges)),
        "meaning": receipt.meaning,
        "rule": ledger.rule,
        "allowances": [
            _budget(ledger.allowance(allowance), allowance, sum(c["who"] == allowance for c in charges))
            for allowance in ledger.allowances
        ],
        "without": sum(not charge["who"] for charge in charges),
        "charges": charges,
        "changes": [record for record in past if record["kind"] == "change"],
        "spending": ledger.spending(),
        "cap": ledger.epsilon,
        "warnings": warnings,
    }


def history_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Return every charge with its receipt, and every change of an allowance, oldest first."""
    spending = iter(ledger.spending())
    records = [past for past in ledger.records() if past.charge or past.limit is not None]
    return [_change(past) if past.limit else _charge(ledger, past, next(spending)) for past in records]


def cost_alone(ledger: Ledger, charge: Sequence[Entry]) -> float:
    """Return the epsilon of one charge by itself, at the ledger's delta."""
    return cost_of(add_entries({}, charge), ledger.delta, adjacency=ledger.adjacency)


def ledger_page(summary: Mapping[str, Any]) -> str:
    """Return the page; `summary` is from `summarise_ledger`."""
    chart = None
    # One charge makes no curve, and there is no axis up to an infinite cap.
    if len(summary["spending"]) > 1 and math.isfinite(summary["cap"]):
        chart = spending_chart(summary["spending"], summary["cap"])
    return page("ledger", summary, chart=chart)


def _budget(ledger: Ledger, name: str, charges: int) -> dict[str, Any]:
    spent = ledger.spent()
    return {
        "who": name,
        "epsilon": f"{ledger.epsilon:.4g}",
        "delta": f"{ledger.delta:.3g}",
        "spent": f"{spent:.4g}",
        "left": f"{ledger.remaining():.4g}",
        # Of the bar, in percent; an allowance may have been lowered below what was spent.
        "share": round(min(100.0, 100 * spent / ledger.epsilon), 1) if math.isfinite(ledger.epsilon) else 0.0,
        "full": not ledger.remaining() > 0,
        "charges": charges,
    }


def _change(past: Past) -> dict[str, Any]:
    epsilon, delta = past.limit or (math.nan, math.nan)
    return {
        "kind": "change",
        "time": past.time,
        "who": past.allowance,
        "epsilon": f"{epsilon:.4g}",
        "delta": f"{delta:.3g}",
    }


def _charge(ledger: Ledger, past: Past, spent: float) -> dict[str, Any]:
    """Return one charge with its receipt: its cost alone, and what was spent with it and all charges before."""
    what, labels = _what(past.charge)
    return {
        "kind": "charge",
        "time": past.time,
        "who": past.allowance,
        "what": what,
        "cost": f"{cost_alone(ledger, past.charge):.4g}",
        "spent": f"{spent:.4g}",
        "releases": [
            {"label": label, "mechanism": str(entry.event), "times": f"{entry.times:,}"}
            for label, entry in zip(labels, past.charge, strict=True)
        ],
        "seeded": any(entry.seeded for entry in past.charge),
    }


def _what(charge: Sequence[Entry]) -> tuple[str, list[str]]:
    """Return what a charge was for, and the labels of its entries without it.

    A fit puts its name before each label, and a model of tables what it predicts before that.
    """
    split = [entry.label.split(": ") for entry in charge]
    n_shared = 0
    while all(len(parts) > n_shared + 1 and parts[: n_shared + 1] == split[0][: n_shared + 1] for parts in split):
        n_shared += 1
    if n_shared:
        return ": ".join(split[0][:n_shared]), [": ".join(parts[n_shared:]) for parts in split]
    labels = [entry.label for entry in charge]
    return labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else ""), labels
