"""Paper 3: a curator's sample plus people who answer for themselves.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022.
"""

from dpadapt.hybrid.agents import Agents, Answers
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.deciding import Verdict, decide, people_needed
from dpadapt.hybrid.device import Device
from dpadapt.hybrid.hypotheses import Squares
from dpadapt.hybrid.learner_descent import DescentLearner
from dpadapt.hybrid.learner_finite import FiniteLearner
from dpadapt.hybrid.learner_online import OnlineLearner
from dpadapt.hybrid.learner_parity import ParityLearner
from dpadapt.hybrid.learner_separator import SeparatorLearner
from dpadapt.hybrid.learner_sparse import SparseLearner
from dpadapt.hybrid.planning import plan
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion, Question, question_from
from dpadapt.hybrid.reweigh import SubsampleTestReweigh
from dpadapt.hybrid.simulated import SimulatedAgents

__all__ = [
    "Agents",
    "Answers",
    "DescentLearner",
    "Device",
    "FiniteLearner",
    "LinearHypothesis",
    "LossQuestion",
    "OnlineLearner",
    "ParityLearner",
    "PrivateHybridClassifier",
    "Question",
    "SeparatorLearner",
    "SimulatedAgents",
    "SparseLearner",
    "Squares",
    "SubsampleTestReweigh",
    "Verdict",
    "decide",
    "people_needed",
    "plan",
    "question_from",
]
