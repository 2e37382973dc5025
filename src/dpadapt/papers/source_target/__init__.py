"""Paper 5, source-target clustering: its algorithms (NAS, NNA), baselines and bounds.

"Differentially Private Source-Target Clustering", anonymous, under review.

Use `dpadapt.PrivateSourceTargetClustering` for real work.
"""

from dpadapt.papers.source_target.baselines import PrivateHistogramSource, PrivateKMeansSource, accelerated_k_medoids
from dpadapt.papers.source_target.bounds import (
    approximate_bound,
    concentrated_bound,
    delta_t,
    private_delta_t,
    pure_bound,
)
from dpadapt.papers.source_target.proxies import NAS, NNA, coreset

__all__ = [
    "NAS",
    "NNA",
    "PrivateHistogramSource",
    "PrivateKMeansSource",
    "accelerated_k_medoids",
    "approximate_bound",
    "concentrated_bound",
    "coreset",
    "delta_t",
    "private_delta_t",
    "pure_bound",
]
