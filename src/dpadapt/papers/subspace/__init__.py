"""Paper 4: algorithms for private learning in a public subspace and on public features.

"On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551.
"""

from dpadapt.papers.subspace.probes import DescentProbe
from dpadapt.papers.subspace.solvers import DPAMBSSGD

__all__ = [
    "DPAMBSSGD",
    "DescentProbe",
]
