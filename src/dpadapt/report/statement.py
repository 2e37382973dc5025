"""A one-page statement about a saved model, for a data-protection assessment: made from its receipt alone."""

import math
from collections.abc import Mapping
from typing import Any

from dpadapt import __version__
from dpadapt.accounting.receipt import Receipt
from dpadapt.report.html import environment
from dpadapt.report.summarise import guarantee_in_words, receipt_facts

_FOLDER = {
    "model.dpadapt": "method, parameters, the schema of the table, the receipt, coefficients computed from noisy "
    "releases, and the public models, computed from public rows",
    "receipt.json": "what was released, with which noise, and what it cost",
    "report.html": "the receipt and the model in words and plots, if the model was made by dpadapt fit",
}


def summarise_statement(receipt: Receipt, *, dataset: str, method: str, version: str = __version__) -> dict[str, Any]:
    """Return the contents of the statement: headings with paragraphs and lists.

    Parameters
    ----------
    receipt : Receipt
    dataset : str
        Name of the private data set.
    method : str
        What was fitted, in words.
    version : str
        Version of dpadapt that made the model.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> statement = summarise_statement(Ledger(1.0, 1e-6).receipt(), dataset="patients", method="transfer (regression)")
    >>> [section["heading"] for section in statement["sections"]][:2]
    ['What is protected', 'How strong the protection is']
    """
    facts = receipt_facts(receipt)
    unit = "row" if receipt.unit == "row" else "person (all rows with one id)"
    protected = [
        f"The private data set is {dataset!r}. The privacy unit is one {unit}. Neighbouring data sets, between which "
        f"the guarantee holds, differ in {receipt.adjacency.protects(receipt.unit)} ({receipt.adjacency.value}); "
        f"{receipt.adjacency.counted(receipt.unit)}.",
    ]
    if receipt.unit == "row":
        protected.append(
            "Rows are protected, not persons: if somebody has k rows, epsilon for that person is about k times as "
            "large. Where persons have several rows, fit with --person."
        )
    strength = [f"{facts['cost']}: {receipt.meaning}."]
    usable = not receipt.seeded and math.isfinite(receipt.epsilon)
    if usable:
        strength.append(
            f"For any fact that an observer may conclude from the model, the odds of that conclusion change by a "
            f"factor of at most {math.exp(min(receipt.epsilon, 700.0)):.3g} (e to the power of epsilon) whether or "
            f"not one {receipt.unit} is used, except with probability {receipt.delta:.3g} (delta)."
        )
    strength += guarantee_in_words(receipt)[: 1 if usable else None]
    sections: list[dict[str, Any]] = [
        {"heading": "What is protected", "paragraphs": protected, "items": []},
        {"heading": "How strong the protection is", "paragraphs": strength, "items": []},
        {
            "heading": "What left the private data",
            "paragraphs": [
                "Only these statistics, each with random noise whose size was fixed before it was drawn. Everything "
                "else in the model was computed from them and from public data."
            ],
            "items": facts["released"] or ["nothing"],
        },
        {
            "heading": "What is assumed to be public",
            "paragraphs": ["The guarantee does not cover these facts. Check that each may be known."],
            "items": list(receipt.assumptions) or ["nothing"],
        },
        {
            "heading": "What the model's folder contains",
            "paragraphs": ["No private row, and nothing computed from private rows without noise."],
            "items": [f"{name}: {what}" for name, what in _FOLDER.items()],
        },
        {
            "heading": "How to verify this without the data",
            "paragraphs": [
                f"A second accountant ({facts['verification']['accountant']}) recomputed the cost from the list of "
                f"releases: epsilon is at least {facts['verification']['lower']:.4g} and, by a loose bound, at most "
                f"{facts['verification']['upper']:.4g}. The receipt states {receipt.epsilon:.4g}; a number below the "
                f"first would have been refused.",
                "To repeat it: dpadapt statement MODEL/ on any machine. To attack the method with made-up rows and see "
                "that the stated epsilon is not refuted: dpadapt audit MODEL/. Neither needs the private data.",
            ],
            "items": [],
        },
        {
            "heading": "What is not covered",
            "paragraphs": [
                "Public rows are not protected. Patterns that hold for many people are meant to be learned, and may "
                "say something true about a person who was not in the data. Copies of the private file, access to the "
                "machine and other models made from the same rows are outside this statement; a ledger adds up the "
                "cost of several fits.",
            ],
            "items": [],
        },
    ]
    if facts["warnings"]:
        sections.insert(0, {"heading": "Warnings", "paragraphs": facts["warnings"], "items": []})
    return {"dataset": dataset, "method": method, "made_by": version, "version": __version__, "sections": sections}


def statement_text(summary: Mapping[str, Any]) -> str:
    """Return the statement as plain text."""
    lines = [f"Privacy statement: {summary['method']}, learned from {summary['dataset']}"]
    for section in summary["sections"]:
        lines += ["", section["heading"], *section["paragraphs"], *(f"  - {item}" for item in section["items"])]
    return "\n".join([*lines, "", f"Model made by dpadapt {summary['made_by']}, statement by {summary['version']}."])


def statement_page(summary: Mapping[str, Any]) -> str:
    """Return the statement as a self-contained HTML page."""
    return str(environment().get_template("statement.html.j2").render(summary))
