"""Private linear models, and the parts that every private estimator is built from."""

from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression

__all__ = [
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
]
