"""Paper 3: Subsample-Test-Reweigh in the hybrid model and its learners.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022.
"""

from dpadapt.papers.reweigh.deciding import Verdict, decide, people_needed
from dpadapt.papers.reweigh.learners import DescentLearner, HingeLoss, OnlineLearner
from dpadapt.papers.reweigh.learners_discrete import FiniteLearner, ParityLearner, SparseLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

__all__ = [
    "DescentLearner",
    "FiniteLearner",
    "HingeLoss",
    "OnlineLearner",
    "ParityLearner",
    "SparseLearner",
    "SubsampleTestReweigh",
    "Verdict",
    "decide",
    "people_needed",
]
