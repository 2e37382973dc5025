"""Clustering of a public target, given that the rows of a private source already serve as centres."""

from dpadapt.clustering.estimator import PrivateSourceTargetClustering, select_for_labelling
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, non_private, public_prior

__all__ = [
    "PrivateSourceTargetClustering",
    "capped_k_medoids",
    "cluster_t",
    "non_private",
    "public_prior",
    "select_for_labelling",
]
