"""`audit_model`: what can be checked about a saved model and its receipt, without the private rows.

Does a second accountant confirm the receipt, do its entries add up, do they agree with the model's parameters and with
the ledger?

No check reads a private row, and none proves privacy. A receipt that was forged together with everything that it could
be compared with looks genuine, except to a ledger.
"""

import inspect
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.errors import PrivacyError
from dpadapt.inputs.persons import IDS_ASSUMPTION
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import NonPrivateEvent
from dpadapt.persist import load
from dpadapt.tables import TableModel

Verdict = Literal["holds", "refuted"]

# Relative difference between a receipt's epsilon and the cost of its entries that still counts as equal. Accountants of
# two versions may differ by the step of their grid, 1e-4 of a typical epsilon.
_EPSILON_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    check : str
        What was checked.
    verdict : {"holds", "refuted"}
    words : str
        What was found.
    """

    check: str
    verdict: Verdict
    words: str


@dataclass(frozen=True)
class ModelAudit:
    """The result of the audit of a saved model.

    Parameters
    ----------
    receipt : Receipt
    findings : tuple of Finding
        In the order of the checks.
    """

    receipt: Receipt = field(repr=False)
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether some check refutes the receipt."""
        return "refuted" if any(finding.verdict == "refuted" for finding in self.findings) else "holds"

    @property
    def words(self) -> str:
        """The verdict in one line."""
        failed = [finding.check for finding in self.findings if finding.verdict == "refuted"]
        if failed:
            return f"REFUTED: don't rely on this receipt ({'; '.join(failed)})."
        claim = f"epsilon = {self.receipt.epsilon:.4g}, delta = {self.receipt.delta:.3g}"
        return f"holds: all {len(self.findings)} checks agree with the receipt ({claim}). This is no proof."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "verdict": self.verdict,
            "words": self.words,
            "receipt": self.receipt.to_dict(),
            "checks": [vars(finding) for finding in self.findings],
        }


def audit_model(path: str | Path, *, ledger: Ledger | None = None) -> ModelAudit:
    """Check a model that `dpadapt.save` or `dpadapt fit` wrote, and its receipt.

    Parameters
    ----------
    path : str or Path
        The model's file, or the folder that holds it.
    ledger : Ledger, optional
        The ledger of the private data set, to look for the model's charges in. Nothing is charged.

    Raises
    ------
    ValueError
        If there is no model, or a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dpadapt import PrivateLinearRegression, save
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = PrivateLinearRegression(epsilon=4.0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     audit = audit_model(folder)
    >>> audit.verdict
    'holds'
    """
    saved = load(path)
    model = saved.model.model_ if isinstance(saved.model, TableModel) else saved.model
    receipt: Receipt = model.privacy_
    params = model.get_params(deep=False)
    findings = [
        _second_accountant(receipt),
        _entries_add_up(receipt),
        _within_budget(receipt, params),
        _unseeded(receipt, params),
    ]
    if receipt.unit == "person":
        findings.append(_persons(model))
    if ledger is not None:
        dataset = saved.extra.get("schema", {}).get("dataset", ledger.dataset)
        findings.append(_charged(receipt, ledger, dataset, type(model).__name__))
    if not receipt.entries:
        findings.append(_nothing_released(receipt))
    return ModelAudit(receipt, tuple(findings))


def _persons(model: Any) -> Finding:
    check = "the fit was given persons"
    if "persons" not in inspect.signature(type(model).fit).parameters:
        return Finding(check, "refuted", "the receipt claims to protect persons, and the method takes none")
    if IDS_ASSUMPTION not in model.privacy_.assumptions:
        return Finding(check, "refuted", "the receipt claims to protect persons, and assumes nothing about their ids")
    return Finding(check, "holds", "the receipt says what is assumed of ids")


def _second_accountant(receipt: Receipt) -> Finding:
    check = "a second accountant confirms the receipt"
    try:
        bounds = receipt.verify()
    except PrivacyError as error:
        return Finding(check, "refuted", str(error))
    limits = f"at least {bounds.lower:.4g}" + (f", at most {bounds.upper:.4g}" if math.isfinite(bounds.upper) else "")
    return Finding(check, "holds", f"claimed {receipt.epsilon:.4g}; {limits} ({bounds.accountant})")


def _entries_add_up(receipt: Receipt) -> Finding:
    check = "the entries cost what the receipt claims"
    cost = cost_of(receipt.tally(), receipt.delta, adjacency=receipt.adjacency)
    words = f"together they cost epsilon = {cost:.4g}, claimed is {receipt.epsilon:.4g}"
    if cost == receipt.epsilon or abs(cost - receipt.epsilon) <= _EPSILON_TOLERANCE * receipt.epsilon:
        return Finding(check, "holds", words)
    return Finding(check, "refuted", f"{words}: an entry was removed or changed, or the claim was")


def _within_budget(receipt: Receipt, params: dict[str, Any]) -> Finding:
    check = "the receipt keeps to the model's budget"
    # As in the ledger, noise that is calibrated to the budget may cost it up to rounding.
    wrong = [] if receipt.epsilon <= params["epsilon"] * (1 + 1e-9) else ["epsilon"]
    wrong += [] if receipt.delta == params["delta"] else ["delta"]
    wrong += [] if receipt.adjacency is Adjacency.of(params["adjacency"]) else ["adjacency"]
    words = f"the model may spend epsilon = {params['epsilon']:.4g}, delta = {params['delta']:.3g}"
    if wrong:
        return Finding(
            check, "refuted", f"{words}, by {params['adjacency']}; the receipt differs in {', '.join(wrong)}"
        )
    return Finding(check, "holds", words)


def _unseeded(receipt: Receipt, params: dict[str, Any]) -> Finding:
    check = "all noise is secret"
    leaked = [entry.label for entry in receipt.entries if isinstance(entry.event, NonPrivateEvent)]
    if leaked:
        return Finding(check, "refuted", f"released without noise: {', '.join(leaked)}")
    if receipt.seeded:
        return Finding(check, "refuted", "noise came from a seed, and whoever knows it can subtract the noise")
    if receipt.entries and params.get("random_state") is not None:
        return Finding(check, "refuted", "the model was fitted with a seed, but the receipt does not say so")
    return Finding(check, "holds", "no entry was seeded or released without noise")


def _charged(receipt: Receipt, ledger: Ledger, dataset: str, name: str) -> Finding:
    check = "the ledger was charged"
    if ledger.adjacency is not receipt.adjacency:
        words = f"the ledger counts neighbours by {ledger.adjacency.value}, the receipt by {receipt.adjacency.value}"
        return Finding(check, "refuted", words)
    if ledger.unit != receipt.unit:
        return Finding(check, "refuted", f"the ledger protects one {ledger.unit}, the receipt says one {receipt.unit}")
    if ledger.dataset not in ("", dataset):
        words = f"the ledger is that of the data set {ledger.dataset!r}, the model that of {dataset!r}"
        return Finding(check, "refuted", words)
    # A ledger puts the names of the ledgers in between, if there are any, before that of the estimator.
    charged = Counter((_after(name, entry.label), entry.event, entry.times, entry.seeded) for entry in ledger.entries)
    expected = Counter((entry.label, entry.event, entry.times, entry.seeded) for entry in receipt.entries)
    lacking = [label for label, *_ in (expected - charged)]
    if lacking:
        words = f"not in the ledger, or with other noise: {', '.join(lacking)}"
        return Finding(check, "refuted", words)
    return Finding(check, "holds", "it has every entry of the receipt")


def _after(name: str, label: str) -> str:
    """Return what follows the estimator's name in the label of a ledger's entry; the whole label if it is not there."""
    _, separator, rest = f": {label}".rpartition(f": {name}: ")
    return rest if separator else label


def _nothing_released(receipt: Receipt) -> Finding:
    """Return whether a receipt without entries says why it has none."""
    check = "nothing was released"
    people = any("people's answers" in fact for fact in receipt.assumptions)
    if people or any("nothing was released" in warning for warning in receipt.warnings):
        return Finding(check, "holds", "the receipt has no entries, and says why: the model uses no private row")
    return Finding(check, "refuted", "the receipt has no entries and does not say why: they may have been removed")
