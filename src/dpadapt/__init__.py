"""Differentially private transfer learning.

Private rows go in at one place and leave through one door (`dpadapt.Ledger`); everything else is public data
(`dpadapt.Public`) or post-processing. Names are loaded when first used, so importing this package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpadapt.accounting.calibrate import calibrate
    from dpadapt.accounting.cost import delta, epsilon
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.receipt import Receipt
    from dpadapt.advice import advise
    from dpadapt.clustering.estimator import PrivateSourceTargetClustering
    from dpadapt.data import Public
    from dpadapt.errors import (
        AssumedBoundsWarning,
        BudgetExceeded,
        CalibrationWarning,
        DataUnavailable,
        LedgerError,
        NoLedgerWarning,
        PrivacyError,
        PrivacyWarning,
    )
    from dpadapt.evaluation import Evaluation, evaluate
    from dpadapt.hybrid.classifier import PrivateHybridClassifier
    from dpadapt.inputs.sources import Source
    from dpadapt.learning.linear import PrivateLinearRegression
    from dpadapt.learning.logistic import PrivateLogisticRegression
    from dpadapt.mechanisms.adjacency import Adjacency
    from dpadapt.persist import load, save
    from dpadapt.representation.probe import PrivateProbe
    from dpadapt.representation.subspace_regression import PrivateSubspaceRegressor
    from dpadapt.tables.checking import check_tables
    from dpadapt.tables.model import TableModel
    from dpadapt.tables.schema import Schema
    from dpadapt.transfer.classification import PrivateTransferClassifier
    from dpadapt.transfer.preview import forecast, rehearse
    from dpadapt.transfer.regression import PrivateTransferRegressor

__version__ = "0.2.0"

__all__ = [
    "Adjacency",
    "AssumedBoundsWarning",
    "BudgetExceeded",
    "CalibrationWarning",
    "DataUnavailable",
    "Evaluation",
    "Ledger",
    "LedgerError",
    "NoLedgerWarning",
    "PrivacyError",
    "PrivacyWarning",
    "PrivateHybridClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateProbe",
    "PrivateSourceTargetClustering",
    "PrivateSubspaceRegressor",
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "Public",
    "Receipt",
    "Schema",
    "Source",
    "TableModel",
    "advise",
    "calibrate",
    "check_tables",
    "delta",
    "epsilon",
    "evaluate",
    "forecast",
    "load",
    "rehearse",
    "save",
]

_HOME = {
    "Adjacency": "mechanisms.adjacency",
    "AssumedBoundsWarning": "errors",
    "BudgetExceeded": "errors",
    "CalibrationWarning": "errors",
    "DataUnavailable": "errors",
    "Evaluation": "evaluation",
    "Ledger": "accounting.ledger",
    "LedgerError": "errors",
    "NoLedgerWarning": "errors",
    "PrivacyError": "errors",
    "PrivacyWarning": "errors",
    "PrivateHybridClassifier": "hybrid.classifier",
    "PrivateLinearRegression": "learning.linear",
    "PrivateLogisticRegression": "learning.logistic",
    "PrivateProbe": "representation.probe",
    "PrivateSourceTargetClustering": "clustering.estimator",
    "PrivateSubspaceRegressor": "representation.subspace_regression",
    "PrivateTransferClassifier": "transfer.classification",
    "PrivateTransferRegressor": "transfer.regression",
    "Public": "data",
    "Receipt": "accounting.receipt",
    "Schema": "tables.schema",
    "Source": "inputs.sources",
    "TableModel": "tables.model",
    "advise": "advice",
    "calibrate": "accounting.calibrate",
    "check_tables": "tables.checking",
    "delta": "accounting.cost",
    "epsilon": "accounting.cost",
    "evaluate": "evaluation",
    "forecast": "transfer.preview",
    "load": "persist",
    "rehearse": "transfer.preview",
    "save": "persist",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"dpadapt.{_HOME[name]}"), name)
    try:
        return import_module(f"dpadapt.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"dpadapt.{name}":
            raise
        raise AttributeError(f"module 'dpadapt' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
