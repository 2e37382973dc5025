"""Paper 5, source-target clustering: its algorithms NAS and NNA.

"Differentially Private Source-Target Clustering", anonymous, under review.

Use `dpadapt.PrivateSourceTargetClustering` for real work.
"""

from dpadapt.papers.source_target.proxies import NAS, NNA, coreset

__all__ = [
    "NAS",
    "NNA",
    "coreset",
]
