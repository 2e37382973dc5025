"""Local only: a model from people's answers alone, by descent on one-bit residuals. The curator's rows are not used."""

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.vector_question import VectorQuestion

Array = NDArray[np.float64]

ROUNDS = 10


def fit_locally(agents: Agents, where: PublicMap, n: int, positive: object) -> Array:
    """Return a logistic model by descent, each step on the residuals of an equal share of `n` people."""
    # Indicators are not centred, so that the loss is as curved as a quarter of their number in one direction.
    rate = min(1.0, 16.0 / (len(where.groups) + 1))
    coef = np.zeros(where.n_columns + 1)
    average = np.zeros_like(coef)
    for turn in range(ROUNDS):
        question = VectorQuestion(where, coef, positive)
        coef = coef + rate * question.estimate(agents.ask(question, n // ROUNDS))
        if turn >= ROUNDS // 2:
            average += coef
    return average / (ROUNDS - ROUNDS // 2)
