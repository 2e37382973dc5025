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
from dpadapt.accounting.receipt import SEED_WARNING, Entry
from dpadapt.report.html import environment


def summarise_ledger(ledger: Ledger, name: str) -> dict[str, Any]:
    """Return the contents of the page.

    Parameters
    ----------
    ledger : Ledger
    name : str
        What the ledger is called: its file, or its address without a password.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> ledger = Ledger(1.0, 1e-6)
    >>> run = ledger.start(Gaussian(30.0), label="a sum")
    >>> summary = summarise_ledger(ledger, "patients.ledger")
    >>> summary["charges"][0]["what"], summary["charges"][0]["cost"]
    ('a sum', '0.1227')
    """
    past = ledger.records()
    charges = [_charge(ledger, each) for each in past if each.charge]
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
        # Not so for a converted ledger whose charges are over its cap.
        "kept": receipt.epsilon <= ledger.epsilon * (1 + 1e-6),
        "rule": ledger.rule,
        "allowances": [
            _budget(ledger.allowance(allowance), allowance, sum(c["who"] == allowance for c in charges))
            for allowance in ledger.allowances
        ],
        "without": sum(not charge["who"] for charge in charges),
        "charges": charges,
        "changes": [
            {
                "time": each.time,
                "who": each.allowance,
                "epsilon": f"{each.limit[0]:.4g}",
                "delta": f"{each.limit[1]:.3g}",
            }
            for each in past
            if each.limit is not None
        ],
        "warnings": warnings,
    }


def ledger_page(summary: Mapping[str, Any]) -> str:
    """Return the page; `summary` is from `summarise_ledger`."""
    return str(environment().get_template("ledger.html.j2").render(summary))


def _budget(ledger: Ledger, name: str, charges: int) -> dict[str, Any]:
    """Return the state of a ledger or of an allowance."""
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


def _charge(ledger: Ledger, past: Past) -> dict[str, Any]:
    """Return the receipt of one charge."""
    cost = cost_of(add_entries({}, past.charge), ledger.delta, adjacency=ledger.adjacency)
    what, labels = _what(past.charge)
    return {
        "time": past.time,
        "who": past.allowance,
        "what": what,
        "cost": f"{cost:.4g}",
        "releases": [
            {"label": label, "mechanism": str(entry.event), "times": f"{entry.times:,}"}
            for label, entry in zip(labels, past.charge, strict=True)
        ],
        "seeded": any(entry.seeded for entry in past.charge),
    }


def _what(charge: Sequence[Entry]) -> tuple[str, list[str]]:
    """Return what a charge was for, and the labels of its entries without it: a fit puts its name before each."""
    names = {entry.label.partition(": ")[0] for entry in charge}
    if len(names) == 1 and all(": " in entry.label for entry in charge):
        return names.pop(), [entry.label.partition(": ")[2] for entry in charge]
    labels = [entry.label for entry in charge]
    return labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else ""), labels
