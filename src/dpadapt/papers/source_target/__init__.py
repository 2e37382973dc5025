"""Paper 5, source-target clustering: its algorithms (NAS, NNA) and baselines.

"Differentially Private Source-Target Clustering", anonymous, under review.

Use `dpadapt.PrivateSourceTargetClustering` for real work.
"""

from dpadapt.papers.source_target.baselines import PrivateHistogramSource, PrivateKMeansSource
from dpadapt.papers.source_target.proxies import NAS, NNA, coreset

__all__ = [
    "NAS",
    "NNA",
    "PrivateHistogramSource",
    "PrivateKMeansSource",
    "coreset",
]
