"""A receipt in words: the guarantee, the facts, and a one-page statement about a saved model for a privacy officer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpadapt import __version__
from dpadapt.accounting.receipt import SEED_WARNING, Receipt
from dpadapt.report import page


def best_guess(epsilon: float, delta: float) -> float:
    """Return the largest probability with which an attacker decides correctly between two equally likely neighbours.

    An (epsilon, delta)-private output has total variation at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) between
    neighbours, and the best guess between two equally likely data sets is right with probability (1 + that) / 2.
    """
    return 1.0 if epsilon > 700 else min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def percent(share: float) -> str:
    """Return e.g. 73.2%, rounded up, with enough digits to differ from 100%."""
    if share >= 1.0:
        return "100%"
    digits = max(1, math.ceil(-math.log10(1.0 - share)) - 2)
    return f"{min(math.ceil(share * 10 ** (digits + 2)), 10 ** (digits + 2)) / 10**digits:.{digits}f}%"


def guarantee_in_words(receipt: Receipt) -> list[str]:
    """Return the guarantee as sentences for a reader who does not know what epsilon is."""
    if receipt.seeded:
        return [
            "There is no guarantee: the noise came from a seed, so whoever knows the seed can subtract it. Fit again "
            "without a seed before you publish or share this model."
        ]
    if math.isinf(receipt.epsilon):
        return ["There is no guarantee: something was released without noise."]
    highest = percent(best_guess(receipt.epsilon, receipt.delta))
    rows = "all private rows but one" if receipt.unit == "row" else "the private rows of all persons but one"
    unit = (
        "The privacy unit is one row, not one person. For a person with k rows, epsilon is about k times as large."
        if receipt.unit == "row"
        else "The privacy unit is one person: all rows with one id. A person with two ids is protected less."
    )
    return [
        f"Suppose somebody knows {rows}, sees this model and all of this page, and has to guess "
        f"{receipt.adjacency.question(receipt.unit)}. A random guess is right half of the time. Their guess is right "
        f"at most {highest} of the time, whatever else they know and however much they compute.",
        f"{unit} T{receipt.adjacency.counted(receipt.unit)[1:]}.",
        "What the rows have in common is meant to be learned: a model may say something true about a person because it "
        "is true about similar people, whether or not that person's row was used. Public rows are not protected at "
        "all.",
    ]


def receipt_facts(receipt: Receipt) -> dict[str, Any]:
    """Return `Receipt.to_dict` and what tables and pages show beside it.

    Added are ``cost`` and ``protects`` in words, a readable ``mechanism`` in each of the ``entries``, ``released`` (one
    line per entry), a warning if the noise was seeded, and in ``verification`` the bounds of a second accountant.
    """
    protects, verification = receipt.adjacency.protects(receipt.unit), receipt.verify()
    seeded = [f"{SEED_WARNING[0].upper()}{SEED_WARNING[1:]}."] if receipt.seeded else []
    return receipt.to_dict() | {
        "cost": f"epsilon = {receipt.epsilon:.4g}, delta = {receipt.delta:.3g}",
        "protects": protects,
        "entries": [entry.to_dict() | {"mechanism": str(entry.event)} for entry in receipt.entries],
        "released": [str(entry) for entry in receipt.entries],
        "warnings": [*seeded, *receipt.warnings],
        "verification": {
            "lower": verification.lower,
            "upper": verification.upper,
            "accountant": verification.accountant,
        },
    }


_FOLDER = {
    "model.dpadapt": "method, parameters, the schema of the table, the receipt, coefficients computed from noisy "
    "releases, and the public models, computed from public rows",
    "receipt.json": "what was released, with which noise, and what it cost",
    "report.html": "the receipt and the model in words and plots, if the model was made by dpadapt fit",
}


def summarise_statement(receipt: Receipt, *, dataset: str, method: str, version: str = __version__) -> dict[str, Any]:
    """Return the contents of the statement: headings with paragraphs and lists.

    `method` says in words what was fitted to the private data set `dataset`, `version` is that of dpadapt that made the
    model.
    """
    facts = receipt_facts(receipt)
    sections = [
        _section("What is protected", _protection(receipt, dataset)),
        _section("How strong the protection is", _strength(receipt, facts["cost"])),
        _section(
            "What left the private data",
            [
                "Only these statistics, each with random noise whose size was fixed before it was drawn. Everything "
                "else in the model was computed from them and from public data."
            ],
            facts["released"] or ["nothing"],
        ),
        _section(
            "What is assumed to be public",
            ["The guarantee does not cover these facts. Check that each may be known."],
            list(receipt.assumptions) or ["nothing"],
        ),
        _section(
            "What the model's folder contains",
            ["No private row, and nothing computed from private rows without noise."],
            [f"{name}: {what}" for name, what in _FOLDER.items()],
        ),
        _section("How to verify this without the data", _verification(receipt, facts["verification"])),
        _section(
            "What is not covered",
            [
                "Public rows are not protected. Patterns that hold for many people are meant to be learned, and may "
                "say something true about a person who was not in the data. Copies of the private file, access to the "
                "machine and other models made from the same rows are outside this statement; a ledger adds up the "
                "cost of several fits."
            ],
        ),
    ]
    if facts["warnings"]:
        sections.insert(0, _section("Warnings", facts["warnings"]))
    return {"dataset": dataset, "method": method, "made_by": version, "version": __version__, "sections": sections}


def _section(heading: str, paragraphs: Sequence[str], items: Sequence[str] = ()) -> dict[str, Any]:
    return {"heading": heading, "paragraphs": list(paragraphs), "items": list(items)}


def _protection(receipt: Receipt, dataset: str) -> list[str]:
    unit = "row" if receipt.unit == "row" else "person (all rows with one id)"
    protected = [
        f"The private data set is {dataset!r}. The privacy unit is one {unit}. Neighbouring data sets, between which "
        f"the guarantee holds, differ in {receipt.adjacency.protects(receipt.unit)} ({receipt.adjacency.value}); "
        f"{receipt.adjacency.counted(receipt.unit)}."
    ]
    if receipt.unit == "row":
        protected.append(
            "Rows are protected, not persons: if somebody has k rows, epsilon for that person is about k times as "
            "large. Where persons have several rows, fit with --person."
        )
    return protected


def _strength(receipt: Receipt, cost: str) -> list[str]:
    strength = [f"{cost}: {receipt.meaning}."]
    if receipt.seeded or math.isinf(receipt.epsilon):
        return strength + guarantee_in_words(receipt)
    return [
        *strength,
        f"For any fact that an observer may conclude from the model, the odds of that conclusion change by a "
        f"factor of at most {math.exp(min(receipt.epsilon, 700.0)):.3g} (e to the power of epsilon) whether or "
        f"not one {receipt.unit} is used, except with probability {receipt.delta:.3g} (delta).",
        guarantee_in_words(receipt)[0],
    ]


def _verification(receipt: Receipt, bounds: Mapping[str, Any]) -> list[str]:
    return [
        f"A second accountant ({bounds['accountant']}) recomputed the cost from the list of releases: epsilon is at "
        f"least {bounds['lower']:.4g} and, by a loose bound, at most {bounds['upper']:.4g}. The receipt states "
        f"{receipt.epsilon:.4g}; a number below the first would have been refused.",
        "To repeat it: dpadapt statement MODEL/ on any machine. To attack the method with made-up rows and see "
        "that the stated epsilon is not refuted: dpadapt audit MODEL/. Neither needs the private data.",
    ]


def statement_text(summary: Mapping[str, Any]) -> str:
    """Return the statement as plain text."""
    lines = [f"Privacy statement: {summary['method']}, learned from {summary['dataset']}"]
    for section in summary["sections"]:
        lines += ["", section["heading"], *section["paragraphs"], *(f"  - {item}" for item in section["items"])]
    return "\n".join([*lines, "", f"Model made by dpadapt {summary['made_by']}, statement by {summary['version']}."])


def statement_page(summary: Mapping[str, Any]) -> str:
    """Return the statement as a self-contained HTML page."""
    return page("statement", summary)
