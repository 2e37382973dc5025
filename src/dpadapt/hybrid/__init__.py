"""The hybrid model: a curator holds private rows, and people answer one question each, with one noisy bit."""

from dpadapt.hybrid.agents import Agents, Answers, SimulatedAgents
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion, Question, Squares, question_from

__all__ = [
    "Agents",
    "Answers",
    "LinearHypothesis",
    "LossQuestion",
    "PrivateHybridClassifier",
    "Question",
    "SimulatedAgents",
    "Squares",
    "question_from",
]
