"""Recalibration: people's residuals correct a model's constant and slope. Two parameters, so few people suffice."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.score_question import ScoreQuestion

Array = NDArray[np.float64]

ROUNDS = 2
_HESSIAN_SHARE = 0.25
_FLATTEST = 1 / 3
_CURVATURE = ("curvature", "curvature, slope", "curvature, square")
_RESIDUAL = ("residual", "residual, slope")
# How large the two parameters may turn out to be: 0, or one of these.
_SIZES = np.concatenate([[0.0], np.geomspace(0.02, 5.0, 15)])


def recalibrate(agents: Agents, where: PublicMap, coef: Array, second: Array, n: int, positive: object) -> Array:
    """Return `coef` with another constant and slope, by `n` people's answers; `second` are released second moments."""
    span = max(2.0 * math.sqrt(float(coef @ second @ coef)), 1e-3)
    asked = max(1, int(_HESSIAN_SHARE * n))
    shape = ScoreQuestion(where, coef, _CURVATURE, span, positive)
    found = shape.estimate(agents.ask(shape, asked))
    # A Hessian is not negative, nor is the curvature above a quarter.
    corner = min(max(found["curvature"], 0.02), 0.25)
    square = min(max(found["curvature, square"], 0.1 * corner), corner)
    limit = 0.95 * math.sqrt(corner * square)
    across = min(max(found["curvature, slope"], -limit), limit)
    hessian = np.array([[corner, across], [across, square]])
    pooled, variance = np.zeros(2), math.inf
    per_round = max(1, (n - asked) // ROUNDS)
    for _ in range(ROUNDS):
        question = ScoreQuestion(where, coef, _RESIDUAL, span, positive)
        answers = agents.ask(question, per_round)
        estimate = question.estimate(answers)
        fresh = np.array([estimate[name] for name in _RESIDUAL])
        noise = question.noise("residual", len(answers), answers.scale) ** 2
        pooled, variance = pool(pooled, variance, fresh, noise)
        step = _posterior(hessian, pooled, variance, span)
        # A slope between a third and three times the old one: noise must not turn a model around.
        step[1] = span * (min(max(1.0 + step[1] / span, _FLATTEST), 1 / _FLATTEST) - 1.0)
        pooled = pooled - hessian @ step
        coef = coef * (1.0 + step[1] / span)
        coef[-1] += step[0]  # a new array by now
    return coef


def pool(old: Array, old_variance: float, fresh: Array, variance: float) -> tuple[Array, float]:
    """Return the mean of two estimates weighted by their precision, and its variance."""
    share = 0.0 if math.isinf(old_variance) else variance / (variance + old_variance)
    return share * old + (1 - share) * fresh, (1 - share) * variance


def _posterior(hessian: Array, seen: Array, variance: float, span: float) -> Array:
    """Return the posterior mean of the step, where `seen` = hessian step + noise; 0 if that is likelier than not.

    A priori each of the two parameters is 0 with probability 1/2, else normal of an unknown size on a grid.
    """
    slopes = _SIZES[0.5 * span >= _SIZES]
    chances, steps = [], []
    for sizes in itertools.product(_SIZES, slopes):
        prior = np.diag(np.square(sizes))
        spread = hessian @ prior @ hessian.T + variance * np.eye(2)
        solved = np.linalg.solve(spread, seen)
        chance = -0.5 * float(seen @ solved) - 0.5 * math.log(np.linalg.det(spread))
        for size, choices in zip(sizes, (_SIZES, slopes), strict=True):
            chance -= math.log(2.0) + (math.log(len(choices) - 1) if size else 0.0)
        chances.append(chance)
        steps.append(prior @ hessian.T @ solved)
    weights = np.exp(np.array(chances) - max(chances))
    weights /= weights.sum()
    # The first pair of sizes is 0, 0: if it is likelier than all others, a right model is left as it is.
    return np.zeros(2) if weights[0] > 0.5 else np.asarray(weights @ np.array(steps))
