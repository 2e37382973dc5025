"""Paper 2: mirror descent with the public loss as mirror map, for linear models.

"Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. Use
`dpadapt.PrivateTransferRegressor` and `dpadapt.PrivateTransferClassifier` with ``prior="same-population"`` for real
work; they are compared with these algorithms in `benchmarks/mirror`.
"""

from dpadapt.papers.mirror.base import paper_noise_multiplier
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor
from dpadapt.papers.mirror.mean import PDADPMDMean

__all__ = [
    "PDADPMDClassifier",
    "PDADPMDMean",
    "PDADPMDRegressor",
    "paper_noise_multiplier",
]
