"""The people's first and second moments: their own means and squares, and for the rest the curator's covariance."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.curator import Moments, around
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.score_question import SquareQuestion
from dpadapt.hybrid.vector_question import VectorQuestion

Array = NDArray[np.float64]

# A column's scale among the people, relative to the curator's covariance around their mean.
_SCALES = 0.1, 4.0


@dataclass(frozen=True, eq=False)
class PeopleMoments:
    """What people's answers say about the features of their population.

    Parameters
    ----------
    mean : ndarray of shape (n_columns,)
        Each entry with standard deviation `noise`.
    second : ndarray of shape (n_columns + 1, n_columns + 1)
        About the mean of row times row, constant last.
    noise : float
    shifted : bool
        Whether some mean differs from the curator's by more than noise.
    """

    mean: Array = field(repr=False)
    second: Array = field(repr=False)
    noise: float
    shifted: bool


def ask_moments(agents: Agents, where: PublicMap, moments: Moments, n_means: int, n_squares: int) -> PeopleMoments:
    """Ask people for their means and, where there are numbers, their squares."""
    question = VectorQuestion(where)
    answers = agents.ask(question, n_means)
    mean, noise = question.estimate(answers)[:-1], question.noise(len(answers), answers.scale)
    gap = mean - moments.mean
    # The largest of 2 k normals; the sums in the second moments have 1 / sqrt 2 of the noise, by symmetry.
    limit = math.sqrt(2 * math.log(2 * len(gap))) * math.hypot(noise, moments.noise / math.sqrt(2) / moments.n_rows)
    second = around(moments.covariance, moments.mean + _kept(gap, noise))
    if n_squares:
        squares = SquareQuestion(where)
        answers = agents.ask(squares, n_squares)
        numbers = list(where.numbers)
        old = np.maximum(np.diag(second)[numbers], 1e-6)
        new = old + _kept(squares.estimate(answers) - old, squares.noise(len(answers), answers.scale))
        scale = np.ones(len(second))
        scale[numbers] = np.sqrt(np.clip(new / old, *_SCALES))
        second *= np.outer(scale, scale)
    return PeopleMoments(mean, second, noise, bool(np.abs(gap).max() > limit))


def _kept(gap: Array, noise: float) -> Array:
    """Return the part of each gap that noise does not explain."""
    return np.asarray(np.maximum(0.0, 1.0 - noise**2 / np.maximum(gap**2, 1e-300)) * gap)
