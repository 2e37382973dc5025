"""Paper 1, private domain adaptation: a private labelled target and a public labelled source.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024. Use `dpadapt.PrivateTransferRegressor` and `dpadapt.PrivateTransferClassifier` for real work; they are compared
with these algorithms in `benchmarks/adaptation`.
"""

from dpadapt.papers.adaptation.cnvx import CnvxAdap
from dpadapt.papers.adaptation.feature_map import FeatureMapAdaptation
from dpadapt.papers.adaptation.matching import PrivateBestDA
from dpadapt.papers.adaptation.ncnvx import NCnvxAdap
from dpadapt.papers.adaptation.private_statistics import ReverseAdaptation, ReverseAdaptationClassifier

__all__ = [
    "CnvxAdap",
    "FeatureMapAdaptation",
    "NCnvxAdap",
    "PrivateBestDA",
    "ReverseAdaptation",
    "ReverseAdaptationClassifier",
]
