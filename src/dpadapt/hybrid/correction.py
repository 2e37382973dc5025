"""Correction: people's residuals, asked as vectors, correct all coefficients as far as noise lets them be seen.

The residual is measured on the people themselves, so it assumes nothing about the curator's population: wrong second
moments only make the steps shorter or longer.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.recalibration import pool
from dpadapt.hybrid.score_question import ScoreQuestion
from dpadapt.hybrid.vector_question import VectorQuestion

Array = NDArray[np.float64]

ROUNDS = 2
_CURVATURE_SHARE = 0.04
# How large the correction of a coefficient may be: 0, or one of these.
_SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1.0, 15)])


def correct(
    agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object, *, doubt: float
) -> Array:
    """Return `coef` corrected by `n` people's answers.

    `second` are the people's second moments, about, and `doubt` the probability that there is nothing to correct.
    """
    per_round = n // ROUNDS
    pooled, variance = np.zeros(len(coef)), math.inf
    for _ in range(ROUNDS):
        about = ScoreQuestion(where, coef, ("curvature",), 1.0, positive)
        few = max(1, int(_CURVATURE_SHARE * per_round))
        curvature = min(max(about.estimate(agents.ask(about, few))["curvature"], 0.05), 0.25)
        question = VectorQuestion(where, coef, positive)
        answers = agents.ask(question, max(1, per_round - few))
        noise = question.noise(len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, question.estimate(answers), noise)
        hessian = curvature * second + 0.01 * np.eye(len(coef))
        step = posterior_step(hessian, pooled, variance, doubt)
        pooled = pooled - hessian @ step
        coef = coef + step
    return coef


def posterior_step(hessian: Array, seen: Array, variance: float, doubt: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori the step is 0 with probability `doubt`, else normal of an unknown size on a grid. Given the size, `seen`
    has the covariance size² hessian² + variance, which is diagonal in the hessian's own axes.
    """
    prior = np.full(len(_SIZES), (1.0 - doubt) / (len(_SIZES) - 1))
    prior[0] = doubt
    values, vectors = np.linalg.eigh(hessian)
    along = vectors.T @ seen
    spread = (_SIZES[:, None] * values) ** 2 + variance
    logarithms = np.log(prior) - 0.5 * np.sum(along**2 / spread + np.log(spread), axis=1)
    chances = np.exp(logarithms - logarithms.max())
    chances /= chances.sum()
    if chances[0] > 0.5:
        # More likely nothing than anything: then nothing, so that a right model is left as it is.
        return np.zeros_like(seen)
    return np.asarray(vectors @ (chances @ (_SIZES[:, None] ** 2 * values / spread) * along))
