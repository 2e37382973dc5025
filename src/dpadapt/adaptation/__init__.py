"""Private domain adaptation (paper 1): a private labelled target and a public labelled source from another domain.

The paper's algorithms and its baselines; `dpadapt.PrivateTransferRegressor` and `PrivateTransferClassifier` are what to
use. `baselines.BASELINES` lists all that they are compared with.
"""

from dpadapt.adaptation.bounds import learning_bound
from dpadapt.adaptation.cnvx import CnvxAdap
from dpadapt.adaptation.discrepancy import discrepancy, local_discrepancy
from dpadapt.adaptation.ncnvx import NCnvxAdap
from dpadapt.adaptation.noisy_sgd import NoisySGD
from dpadapt.adaptation.private_dm import PrivateDiscrepancyMinimization
from dpadapt.adaptation.private_mixture import PrivateMixture
from dpadapt.adaptation.reverse import ReverseAdaptation

__all__ = [
    "CnvxAdap",
    "NCnvxAdap",
    "NoisySGD",
    "PrivateDiscrepancyMinimization",
    "PrivateMixture",
    "ReverseAdaptation",
    "discrepancy",
    "learning_bound",
    "local_discrepancy",
]
