"""Public representations for private learning: subspaces of public tasks, and probes on public encoders."""

from dpadapt.representation.encoders import load_encoder
from dpadapt.representation.probe import PrivateProbe
from dpadapt.representation.subspace import Diversity, PublicSubspace, subspace_distance, task_diversity
from dpadapt.representation.subspace_regression import PrivateSubspaceRegressor

__all__ = [
    "Diversity",
    "PrivateProbe",
    "PrivateSubspaceRegressor",
    "PublicSubspace",
    "load_encoder",
    "subspace_distance",
    "task_diversity",
]
