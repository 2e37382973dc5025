"""Private learners and what they are made of; every capability is compared with these."""

from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression

__all__ = ["PrivateLinearRegression", "PrivateLogisticRegression"]
