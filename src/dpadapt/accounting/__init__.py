"""Accounting: the cost of releases (`epsilon`, `delta`), their noise (`calibrate`), and the ledger that makes them."""

from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.cost import delta, epsilon
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.accounting.receipt import Receipt, Verification
from dpadapt.mechanisms.events import Entry

__all__ = [
    "Entry",
    "Ledger",
    "Receipt",
    "Run",
    "Verification",
    "calibrate",
    "delta",
    "epsilon",
]
