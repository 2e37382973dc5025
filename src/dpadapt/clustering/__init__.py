"""Source-target clustering: public points as centres, where private points already serve as centres.

The source is private, the target public. Every target should be near a chosen target or near a source.
"""

from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, non_private

__all__ = [
    "PrivateSourceTargetClustering",
    "capped_k_medoids",
    "cluster_t",
    "non_private",
]
