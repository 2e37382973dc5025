"""Paper 5: choose centres among public targets when private sources already serve as centres.

"Differentially Private Source-Target Clustering": its algorithms, bounds and baselines, and a solver. What to use is
`PrivateSourceTargetClustering`.
"""

from dpadapt.clustering.akm import accelerated_k_medoids
from dpadapt.clustering.baselines import (
    PrivateHistogramSource,
    PrivateKMeansSource,
    cluster_t,
    non_private,
    public_prior,
)
from dpadapt.clustering.bounds import approximate_bound, concentrated_bound, pure_bound
from dpadapt.clustering.coresets import coreset
from dpadapt.clustering.delta_t import delta_t, private_delta_t
from dpadapt.clustering.labelling import select_for_labelling
from dpadapt.clustering.nas import NAS
from dpadapt.clustering.nna import NNA
from dpadapt.clustering.private import PrivateSourceTargetClustering
from dpadapt.clustering.solver import capped_k_medoids

__all__ = [
    "NAS",
    "NNA",
    "PrivateHistogramSource",
    "PrivateKMeansSource",
    "PrivateSourceTargetClustering",
    "accelerated_k_medoids",
    "approximate_bound",
    "capped_k_medoids",
    "cluster_t",
    "concentrated_bound",
    "coreset",
    "delta_t",
    "non_private",
    "private_delta_t",
    "public_prior",
    "pure_bound",
    "select_for_labelling",
]
