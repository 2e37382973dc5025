"""Questions about a model's score on one's own row: how wrong, how curved, which of two models is right."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.agents import Answers
from dpadapt.hybrid.public_map import LIMIT, PublicMap
from dpadapt.hybrid.vector_question import MappedQuestion, probability, scores

Array = NDArray[np.float64]


def _curvature(score: Array, label: Array, part: Array) -> Array:
    p = probability(score)
    return 4.0 * p * (1.0 - p)


# Each takes scores, labels (0 or 1) and the score's part of its span, in [-1, 1], and returns numbers in [-1, 1].
# Second: what to add and multiply to turn the mean of those into the mean of what the name says.
NUMBERS: dict[str, tuple[Callable[[Array, Array, Array], Array], float, float]] = {
    "curvature": (lambda s, y, q: 2 * _curvature(s, y, q) - 1, 1.0, 0.125),
    "curvature, slope": (lambda s, y, q: _curvature(s, y, q) * q, 0.0, 0.25),
    "curvature, square": (lambda s, y, q: 2 * _curvature(s, y, q) * q**2 - 1, 1.0, 0.125),
    "residual": (lambda s, y, q: y - probability(s), 0.0, 1.0),
    "residual, slope": (lambda s, y, q: (y - probability(s)) * q, 0.0, 1.0),
    "error": (lambda s, y, q: 2.0 * ((s > 0) != (y > 0.5)) - 1, 1.0, 0.5),
}


@dataclass(frozen=True, eq=False)
class ScoreQuestion(MappedQuestion):
    """What is the mean of one of these `numbers` of your score? Which of them, a public coin says.

    Parameters
    ----------
    where : PublicMap
    coef : ndarray of shape (n_columns + 1,)
    numbers : tuple of str
        Keys of `NUMBERS`.
    span : float
        Scores beyond it count as it, in the numbers that are about slopes.
    positive : object
        The label that counts as 1.
    """

    where: PublicMap
    coef: Array
    numbers: tuple[str, ...]
    span: float = 1.0
    positive: Any = 1
    kind = "score"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which number each person is asked for."""
        return np.asarray(random.integers(0, len(self.numbers), n))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        score = scores(self.where.transform(X), self.coef)
        label = (np.asarray(y) == self.positive).astype(np.float64)
        part = np.clip(score / self.span, -1.0, 1.0)
        found = np.choose(coins, [NUMBERS[name][0](score, label, part) for name in self.numbers])
        return np.asarray(found)

    def estimate(self, answers: Answers) -> dict[str, float]:
        """Return the mean of each number."""
        found = {}
        for place, name in enumerate(self.numbers):
            mine = answers.coins == place
            _, add, times = NUMBERS[name]
            mean = answers.scale * float(answers.bits[mine].sum()) / max(1, int(mine.sum()))
            found[name] = times * (mean + add)
        return found

    def noise(self, name: str, n: int, scale: float) -> float:
        """Return the standard deviation of one estimate if `n` people are asked in all, at most."""
        return NUMBERS[name][2] * scale * float(np.sqrt(len(self.numbers) / max(1, n)))


@dataclass(frozen=True, eq=False)
class LeadQuestion(MappedQuestion):
    """Is the first model wrong about you (+1), or the second (-1), or both or neither (0)?"""

    where: PublicMap
    first: Array
    second: Array
    positive: Any = 1
    kind = "lead"

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z, label = self.where.transform(X), np.asarray(y) == self.positive
        # A row that is not finite has no score; both models are wrong about it or neither.
        wrong = [((scores(Z, coef) > 0) != label).astype(np.float64) for coef in (self.first, self.second)]
        return np.asarray(wrong[0] - wrong[1])


@dataclass(frozen=True, eq=False)
class SquareQuestion(MappedQuestion):
    """What is the mean square of each variable that is a number? Which of them, a public coin says."""

    where: PublicMap
    kind = "square"

    def coins(self, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draw which number each person is asked about."""
        return np.asarray(random.integers(0, len(self.where.numbers), n))

    def value(self, X: Any, y: Any, coins: NDArray[np.int64]) -> Array:
        """Return each person's number in [-1, 1]."""
        Z = self.where.transform(X)
        mine = Z[np.arange(len(Z)), np.asarray(self.where.numbers)[coins]] / LIMIT
        return np.asarray(2 * mine**2 - 1)

    def estimate(self, answers: Answers) -> Array:
        """Return the mean square of each number."""
        sums = np.bincount(answers.coins, weights=answers.bits, minlength=len(self.where.numbers))
        counts = np.maximum(1, np.bincount(answers.coins, minlength=len(self.where.numbers)))
        return np.asarray(LIMIT**2 * (1 + answers.scale * sums / counts) / 2)

    def noise(self, n: int, scale: float) -> float:
        """Return the standard deviation of each estimate from `n` people in all, at most."""
        return LIMIT**2 / 2 * scale * float(np.sqrt(len(self.where.numbers) / max(1, n)))
