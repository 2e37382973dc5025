"""The transfer estimators: a public model, corrected by private rows as far as the budget allows.

Each estimator has three files: the estimator itself, its plan (public preparation and what will be released) and its
fit (the releases). The gate and the previews serve both.
"""

from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.preview import rehearse
from dpadapt.transfer.regression import PrivateTransferRegressor

__all__ = [
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "rehearse",
]
