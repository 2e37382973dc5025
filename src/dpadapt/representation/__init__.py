"""Public representations for private learning (paper 4): subspaces of public tasks, and probes on public features.

"On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551.
"""

from dpadapt.representation.ambssgd import DPAMBSSGD
from dpadapt.representation.angles import Diversity, subspace_distance, task_diversity
from dpadapt.representation.bounds import lower_bound, private_rows_needed, subspace_bound, upper_bound
from dpadapt.representation.dpsgd import ProjectedDPSGD
from dpadapt.representation.encoders import load_encoder
from dpadapt.representation.probe import PrivateProbe
from dpadapt.representation.probe_descent import DescentProbe
from dpadapt.representation.probe_least_squares import LeastSquaresProbe
from dpadapt.representation.regression import PrivateSubspaceRegressor
from dpadapt.representation.subspace import PublicSubspace

__all__ = [
    "DPAMBSSGD",
    "DescentProbe",
    "Diversity",
    "LeastSquaresProbe",
    "PrivateProbe",
    "PrivateSubspaceRegressor",
    "ProjectedDPSGD",
    "PublicSubspace",
    "load_encoder",
    "lower_bound",
    "private_rows_needed",
    "subspace_bound",
    "subspace_distance",
    "task_diversity",
    "upper_bound",
]
