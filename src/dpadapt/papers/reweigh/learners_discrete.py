"""Learners that make private choices: from a list of hypotheses, of parities, and of sparse ellipsoids.

`FiniteLearner` is Corollary 4.4 of the paper, `ParityLearner` its Appendix B. `SparseLearner` is for the sparse
hypotheses of section 4 and Appendix D: its sample grows with the logarithm of the number of coordinates, not with the
number itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.questions import (
    ConstantHypothesis,
    EllipsoidHypothesis,
    Hypothesis,
    ParityHypothesis,
    weighted_squares,
)
from dpadapt.mechanisms.bounded import kept_entries, threshold_votes, weighted_votes
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.papers.reweigh.learners import Facts, Plans, Sample, choice_of, chosen, labels_of, require_hypothesis
from dpadapt.papers.reweigh.parity import NOTHING, RandomParity, equations, pack

Array = NDArray[np.float64]

# The constants of `SparseLearner`. Chosen by hand.
#
# Squared radii that can be chosen, in units of the squared scale: from a hundredth to a hundred, four percent apart. A
# finer grid fits the radius better and makes the choice among more candidates.
_SQUARED_RADII = np.geomspace(0.01, 100.0, 240)
# A record votes for the coordinates in which it is closer to the origin than this, in units of the scale.
_CLOSE_TO_ORIGIN = 0.6
# The factors by which one choice may change a coordinate's weight.
_WEIGHT_FACTORS = (0.0, *(2.0**power for power in (-1, -0.5, -0.25, -0.125, 0, 0.125, 0.25, 0.5, 1)))
# Shares of a round's budget, without and with a choice of weights: for the coordinates, and for their number and the
# radius together. The weights get the rest.
_SPARSE_SHARES = {False: (0.5, 0.5), True: (0.15, 0.1)}


@dataclass(frozen=True)
class FiniteLearner:
    """A hypothesis from a public list, chosen by the exponential mechanism: score is the weight it labels correctly.

    Parameters
    ----------
    hypotheses : sequence of Hypothesis
        The list, made without looking at private rows. Not empty.

    Examples
    --------
    >>> from dpadapt.hybrid.questions import LinearHypothesis
    >>> from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh
    >>> X = np.linspace(-1, 1, 500).reshape(-1, 1)
    >>> cuts = FiniteLearner([LinearHypothesis([1.0], -cut) for cut in np.linspace(-1, 1, 21)])
    >>> model = SubsampleTestReweigh(cuts, random_state=0).fit(X, (X[:, 0] > 0.3).astype(int))
    >>> round(float(model.hypothesis_.intercept[0]), 3)
    -0.3
    """

    hypotheses: Sequence[Hypothesis]

    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not len(self.hypotheses):
            raise ValueError("hypotheses must not be empty: there would be nothing to choose from.")

    def prepare(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the rows themselves, or refuse a hypothesis that fails or mixes rows."""
        for hypothesis in self.hypotheses:
            require_hypothesis(hypothesis, X)
        return X

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one choice."""
        return [(choice_of(mu, 1.0), "choice of a hypothesis")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the chosen hypothesis."""
        labels = sample.facts.classes[sample.codes]
        # A warning would reveal that there is an extreme row.
        with np.errstate(all="ignore"):
            right = weighted_votes((labels_of(h, sample.X) == labels for h in self.hypotheses), sample.weights)
        return self.hypotheses[chosen(runs[0], right)]


@dataclass(frozen=True)
class ParityLearner:
    """The parity of some bits, which one noisy bit from each person can't teach, from one round at a curator.

    Each batch of records solves a random part of the records' equations, as in S. P. Kasiviswanathan et al. (2008); the
    most frequent answer of the batches is returned. An entry above 1/2 is a bit of 1. Of the weights only 0 has an
    effect: it removes a record.

    Parameters
    ----------
    n_batches : int, default=8
        A batch answers with probability 1/2, if the records that it keeps span all bits; so no batch answers with
        probability 1 / 2^n_batches.
    keep : float, optional
        The probability with which a record is kept. Default: the most that epsilon allows; the paper's is epsilon / 4.

    Examples
    --------
    >>> from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh
    >>> X = np.random.default_rng(0).integers(0, 2, (4000, 20)).astype(float)
    >>> y = X[:, [1, 5, 9]].sum(axis=1).astype(int) % 2
    >>> model = SubsampleTestReweigh(ParityLearner(), random_state=0).fit(X, y)
    >>> np.flatnonzero(model.hypothesis_.chosen)
    array([1, 5, 9])
    """

    n_batches: int = 8
    keep: float | None = None

    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.count(self.n_batches, "n_batches")
        if self.keep is not None:
            checks.unit(self.keep, "keep")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one answer per batch. A record is in one batch, so that all together cost as much as one."""
        # An (epsilon, 0) release is epsilon²/2-zCDP at most, and a Gaussian one mu²/2.
        return [(self.mechanism(min(mu, 50.0), facts.n_features), "parity")]

    def mechanism(self, epsilon: float, n_features: int) -> Mechanism:
        """Return the mechanism for records of `n_features` bits."""
        return RandomParity(epsilon, n_features, self.n_batches, self.keep)

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the most frequent parity of the batches; the first class for all rows if no batch answers."""
        # A record without weight is null: all of its bits are 0, and so is its label.
        used = sample.weights > 0
        bits, labels = (sample.X > 0.5) & used[:, None], (sample.codes == 1) & used
        answers = runs[0].release(equations(pack(bits), labels))
        parity = most_frequent(answers)
        if parity is None:
            return ConstantHypothesis(sample.facts.classes[0])
        return ParityHypothesis(parity, sample.facts.classes)


def most_frequent(answers: NDArray[np.int8]) -> NDArray[np.bool_] | None:
    """Return the most frequent row among the batches that answered, or None if none did."""
    given = answers[(answers != NOTHING).all(axis=1)]
    if not len(given):
        return None
    rows, counts = np.unique(given, axis=0, return_counts=True)
    return np.asarray(rows[np.argmax(counts)] == 1)


@dataclass(frozen=True)
class SparseLearner:
    """An ellipsoid around the origin in at most `most` coordinates; one class inside, the other outside.

    Records of the inside class vote for the coordinates in which they are close to the origin. The exponential
    mechanism chooses coordinates one by one, then how many of them to use together with the radius. If `passes` is not
    0, it then chooses the weight of each coordinate together with a new radius.

    Parameters
    ----------
    most : int, default=12
        The largest number of coordinates.
    exactly : bool, default=False
        Whether it is known that the number is `most`.
    passes : int, default=0
        How often each coordinate's weight is chosen; with 0, all weights are 1, and the ellipsoid is a ball.
    inside : int, default=0
        Which of the two classes, in order, is inside.
    scale : float, default=1.0
        The size of a typical entry. Choose it without looking at private rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh
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
        checks.count(self.most, "most")
        checks.count(self.passes, "passes", least=0)
        checks.positive(self.scale, "scale")
        if self.inside not in (0, 1):
            raise ValueError(f"inside must be 0 or 1, the class that is inside, got {self.inside!r}.")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the choices of coordinates, of their number with the radius, and of their weights."""
        most = min(self.most, facts.n_features)
        selection, radius = _SPARSE_SHARES[self.passes > 0]
        choices = [
            (choice_of(mu, selection, most), "choice of a coordinate"),
            (choice_of(mu, radius), "choice of how many and of the radius"),
        ]
        if self.passes:
            share = 1 - selection - radius
            choices.append((choice_of(mu, share, self.passes * most), "choice of a coordinate's weight"))
        return choices

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the chosen ellipsoid."""
        columns = self._coordinates(sample, runs[0])
        inside = sample.codes == self.inside
        part = sample.X[:, columns] / sample.X.dtype.type(self.scale)
        counts = [len(columns)] if self.exactly else list(range(1, len(columns) + 1))
        with np.errstate(all="ignore"):
            ranks = np.column_stack([_ranks(weighted_squares(part[:, :k], np.ones(k))) for k in counts])
        scores = threshold_votes(ranks, inside, sample.weights, len(_SQUARED_RADII))
        rule, threshold = divmod(chosen(runs[1], scores), len(_SQUARED_RADII))
        weights = (np.arange(len(columns)) < counts[rule]).astype(np.float64)
        for step in range(self.passes * len(columns)):
            j = step % len(columns)
            weights[j], threshold = _reweighted(part, weights, j, inside, sample.weights, runs[2])
        kept = np.flatnonzero(weights)
        order = kept[np.argsort(columns[kept])]
        classes = sample.facts.classes if self.inside == 0 else sample.facts.classes[::-1]
        square = float(_SQUARED_RADII[threshold] * self.scale**2)
        return EllipsoidHypothesis(columns[order], weights[order], square, classes)

    def _coordinates(self, sample: Sample, run: Run) -> NDArray[np.int64]:
        """Choose coordinates one by one, by the votes for them."""
        members = np.flatnonzero(sample.codes == self.inside)
        close = np.abs(sample.X[members]) < _CLOSE_TO_ORIGIN * self.scale
        weights = sample.weights[members]
        # One vote for each coordinate serves all choices.
        votes = weighted_votes(close.T, weights)
        left = np.ones(sample.X.shape[1], dtype=bool)
        columns = []
        for _ in range(run.plan.steps):
            columns.append(np.flatnonzero(left)[chosen(run, kept_entries(votes, left))])
            left[columns[-1]] = False
        return np.array(columns, dtype=np.int64)


def _reweighted(
    part: NDArray[Any], weights: Array, j: int, inside: NDArray[np.bool_], record_weights: Array, run: Run
) -> tuple[float, int]:
    """Choose the weight of coordinate `j` and the radius; a weight of 0 may become 1 again."""
    others = np.where(np.arange(len(weights)) == j, 0.0, weights)
    base = weighted_squares(part, others)
    square = weighted_squares(part[:, [j]], np.ones(1))
    options = [factor * (weights[j] or 1.0) for factor in _WEIGHT_FACTORS]
    if not others.any():
        # The last coordinate with a weight must keep it.
        options = options[1:]
    with np.errstate(all="ignore"):
        ranks = np.column_stack([_ranks(base + option * square) for option in options])
    scores = threshold_votes(ranks, inside, record_weights, len(_SQUARED_RADII))
    rule, threshold = divmod(chosen(run, scores), len(_SQUARED_RADII))
    return options[rule], threshold


def _ranks(totals: Array) -> NDArray[np.int64]:
    """Return the index of the first squared radius that is not below each total."""
    step = math.log(_SQUARED_RADII[1] / _SQUARED_RADII[0])
    with np.errstate(all="ignore"):
        # The logarithms are evenly spaced, so that no search is needed.
        place = np.ceil(np.log(totals / _SQUARED_RADII[0]) / step)
    return np.asarray(np.clip(np.nan_to_num(place, nan=np.inf), 0, len(_SQUARED_RADII)), dtype=np.int64)
