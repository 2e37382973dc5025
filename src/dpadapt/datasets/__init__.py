"""Data for the demo, the examples and the documentation: `bundled` real sets."""

from dpadapt.datasets import bundled
from dpadapt.datasets.domains import Dataset, Domain, Domains, Source

__all__ = ["Dataset", "Domain", "Domains", "Source", "bundled"]
