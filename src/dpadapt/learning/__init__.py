"""Private learners and what they are made of; every capability is compared with these."""

from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.learning.rehearsal import rehearse
from dpadapt.learning.transfer_classification import PrivateTransferClassifier
from dpadapt.learning.transfer_regression import PrivateTransferRegressor

__all__ = [
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "rehearse",
]
