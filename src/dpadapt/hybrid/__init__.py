"""The hybrid model: a curator holds a sample, and people who trust nobody answer for themselves."""

from dpadapt.hybrid.agents import Agents, Answers, SimulatedAgents
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.deciding import Verdict, decide, people_needed
from dpadapt.hybrid.device import Device
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion, Question, Squares, question_from

__all__ = [
    "Agents",
    "Answers",
    "Device",
    "LinearHypothesis",
    "LossQuestion",
    "PrivateHybridClassifier",
    "Question",
    "SimulatedAgents",
    "Squares",
    "Verdict",
    "decide",
    "people_needed",
    "question_from",
]
