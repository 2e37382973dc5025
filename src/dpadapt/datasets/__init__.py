"""Data for the demo, the examples and the documentation: `bundled` real sets, and `synthetic` ones."""

from dpadapt.datasets import bundled, synthetic
from dpadapt.datasets.domains import Dataset, Domain, Domains, Source

__all__ = [
    "Dataset",
    "Domain",
    "Domains",
    "Source",
    "bundled",
    "synthetic",
]
