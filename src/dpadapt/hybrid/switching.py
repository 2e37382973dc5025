"""Switching: people who were never asked before say whether a candidate is right more often than the incumbent."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.score_question import LeadQuestion

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lead:
    """By how much a candidate is wrong more often than the incumbent, as `people` people's bits say.

    Parameters
    ----------
    difference : float
        Error of the candidate less that of the incumbent; negative is good.
    margin : float
        Distance to the end of a one-sided 95% interval.
    people : int
    proven : bool
        Whether chance alone would make a candidate that is worse by the tolerance look so good with probability
        `level` at most.
    """

    difference: float
    margin: float
    people: int
    proven: bool


def compare(
    agents: Agents,
    where: PublicMap,
    candidate: Array,
    incumbent: Array,
    n: int,
    positive: object,
    *,
    tolerance: float,
    level: float = 0.05,
) -> Lead:
    """Ask `n` people which of two models is right about them."""
    answers = agents.ask(LeadQuestion(where, candidate, incumbent, positive), n)
    n = len(answers)
    if not n:
        return Lead(0.0, 1.0, 0, False)
    ups = int(np.count_nonzero(answers.bits > 0))
    # If the true difference is `tolerance` or more, a bit is up with probability (1 + tolerance / scale) / 2 or more.
    # The bits are independent, so their sum is binomial whatever the people's rows are (drawn at random).
    proven = bool(binom.cdf(ups, n, (1.0 + tolerance / answers.scale) / 2.0) <= level)
    margin = float(norm.isf(level)) * answers.scale / math.sqrt(n)
    return Lead(answers.mean(), margin, n, proven)
