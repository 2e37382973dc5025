"""`SparseLearner`: ellipsoids in a few of many coordinates, by private choices of coordinates, radius and weights.

The sparse hypotheses of the paper's section 4, for its Appendix D: the sample grows with the logarithm of the number of
coordinates, not with the number itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import EllipsoidHypothesis, Hypothesis, weighted_squares
from dpadapt.hybrid.learner import Facts, Plans, Sample, choice_of, chosen
from dpadapt.mechanisms.bounded_choices import threshold_votes, weighted_votes

Array = NDArray[np.float64]

# Squared radii in squares of the scale: from a hundredth to a hundred, four percent apart.
_SQUARES = np.geomspace(0.01, 100.0, 240)
# A record votes for the coordinates in which it is closer to the origin than this, in scales.
_CLOSE = 0.6
# What a coordinate's weight may be multiplied by in one choice.
_FACTORS = (0.0, *(2.0**power for power in (-1, -0.5, -0.25, -0.125, 0, 0.125, 0.25, 0.5, 1)))
# Shares of a round's budget: coordinates; how many and the radius; what is left goes to the weights, if any.
_SHARES = {False: (0.5, 0.5), True: (0.15, 0.1)}


@dataclass(frozen=True)
class SparseLearner:
    """An ellipsoid around the origin in at most `most` coordinates; one class inside, the other outside.

    Records of the inside class vote for the coordinates in which they are close to the origin; the exponential
    mechanism picks coordinates one by one, then the number of them that count and the radius, together, and then, if
    `passes` is not 0, the weight of each coordinate together with a new radius.

    Parameters
    ----------
    most : int, default=12
        Most coordinates that may count.
    exactly : bool, default=False
        Whether it is known that all `most` of them count.
    passes : int, default=0
        How often each coordinate's weight is chosen anew; 0: all weights are 1, a ball.
    inside : int, default=0
        Which of the two classes, in order, is inside.
    scale : float, default=1.0
        The size of a typical entry. Choose it without looking at private rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> from dpadapt.hybrid.reweigh import SubsampleTestReweigh
    >>> X = rng.standard_normal((20_000, 30))
    >>> y = (X[:, 4] ** 2 + X[:, 7] ** 2 > 0.5).astype(int)
    >>> model = SubsampleTestReweigh(SparseLearner(most=4), random_state=0).fit(X, y)
    >>> model.hypothesis_.columns
    array([4, 7])
    """

    most: int = 12
    exactly: bool = False
    passes: int = 0
    inside: int = 0
    scale: float = 1.0

    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _validate.count(self.most, "most")
        _validate.count(self.passes, "passes", least=0)
        _validate.positive(self.scale, "scale")
        if self.inside not in (0, 1):
            raise ValueError(f"inside must be 0 or 1, the class that is inside, got {self.inside!r}.")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the choices of coordinates, of their number and the radius, and of their weights."""
        most = min(self.most, facts.n_features)
        selection, radius = _SHARES[self.passes > 0]
        found = [
            (choice_of(mu, selection, most), "choice of a coordinate"),
            (choice_of(mu, radius), "choice of how many and of the radius"),
        ]
        if self.passes:
            share = 1 - selection - radius
            found.append((choice_of(mu, share, self.passes * most), "choice of a coordinate's weight"))
        return found

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the chosen ellipsoid."""
        columns = self._coordinates(sample, runs[0])
        inside = sample.codes == self.inside
        part = sample.X[:, columns] / sample.X.dtype.type(self.scale)
        counts = [len(columns)] if self.exactly else list(range(1, len(columns) + 1))
        with np.errstate(all="ignore"):
            ranks = np.column_stack([_ranks(weighted_squares(part[:, :k], np.ones(k))) for k in counts])
        scores = threshold_votes(ranks, inside, sample.weights, len(_SQUARES))
        rule, threshold = divmod(chosen(runs[1], scores), len(_SQUARES))
        weights = (np.arange(len(columns)) < counts[rule]).astype(np.float64)
        for step in range(self.passes * len(columns)):
            j = step % len(columns)
            weights[j], threshold = _reweighted(part, weights, j, inside, sample.weights, runs[2])
        kept = np.flatnonzero(weights)
        order = kept[np.argsort(columns[kept])]
        classes = sample.facts.classes if self.inside == 0 else sample.facts.classes[::-1]
        square = float(_SQUARES[threshold] * self.scale**2)
        return EllipsoidHypothesis(columns[order], weights[order], square, classes)

    def _coordinates(self, sample: Sample, run: Run) -> NDArray[np.int64]:
        """Choose coordinates one by one, the most voted for first."""
        members = np.flatnonzero(sample.codes == self.inside)
        close = np.abs(sample.X[members]) < _CLOSE * self.scale
        weights = sample.weights[members]
        left = list(range(sample.X.shape[1]))
        found = []
        for _ in range(run.plan.steps):
            votes = weighted_votes((close[:, j] for j in left), weights)
            found.append(left.pop(chosen(run, votes)))
        return np.array(found, dtype=np.int64)


def _reweighted(
    part: NDArray[Any], weights: Array, j: int, inside: NDArray[np.bool_], record_weights: Array, run: Run
) -> tuple[float, int]:
    """Choose the weight of coordinate `j` and the radius; a weight of 0 may come back as 1."""
    others = np.where(np.arange(len(weights)) == j, 0.0, weights)
    base = weighted_squares(part, others)
    square = weighted_squares(part[:, [j]], np.ones(1))
    options = [factor * (weights[j] or 1.0) for factor in _FACTORS]
    if not others.any():
        # The last coordinate that counts must stay.
        options = options[1:]
    with np.errstate(all="ignore"):
        ranks = np.column_stack([_ranks(base + option * square) for option in options])
    scores = threshold_votes(ranks, inside, record_weights, len(_SQUARES))
    rule, threshold = divmod(chosen(run, scores), len(_SQUARES))
    return options[rule], threshold


def _ranks(totals: Array) -> NDArray[np.int64]:
    """Return the place of the first squared radius that is not below each total."""
    step = math.log(_SQUARES[1] / _SQUARES[0])
    with np.errstate(all="ignore"):
        # Evenly spaced logarithms: no search.
        place = np.ceil(np.log(totals / _SQUARES[0]) / step)
    return np.asarray(np.clip(np.nan_to_num(place, nan=np.inf), 0, len(_SQUARES)), dtype=np.int64)
