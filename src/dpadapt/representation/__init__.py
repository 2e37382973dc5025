"""Public representations for private learning: subspaces of public tasks, and probes on public encoders."""

from dpadapt.representation.encoders import load_encoder
from dpadapt.representation.probe import PrivateProbe
from dpadapt.representation.subspace import PublicSubspace
from dpadapt.representation.subspace_regression import PrivateSubspaceRegressor
from dpadapt.representation.task_model import Diversity, subspace_distance, task_diversity

__all__ = [
    "Diversity",
    "PrivateProbe",
    "PrivateSubspaceRegressor",
    "PublicSubspace",
    "load_encoder",
    "subspace_distance",
    "task_diversity",
]
