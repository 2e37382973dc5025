"""`ParityLearner`: parities of bits, which people who answer for themselves can't teach, from one round at a curator.

Appendix B of the paper. S. P. Kasiviswanathan et al. (2008) solve a random part of the records' equations; here in
several batches of records at once, of which the answer given most often is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import ConstantHypothesis, Hypothesis, ParityHypothesis
from dpadapt.hybrid.learner import Facts, Plans, Sample
from dpadapt.mechanisms.bounded_parity import equations
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.parity import NOTHING, RandomParity, pack


@dataclass(frozen=True)
class ParityLearner:
    """Private parity in several batches of records.

    Rows hold bits, as numbers: above 1/2 is 1. Weights are not used, unless they are 0: equations hold or
    they don't.

    Parameters
    ----------
    n_batches : int, default=8
        Each answers with probability 1/2, if the records it keeps span all bits; so all are silent with probability
        1 / 2^n_batches.
    keep : float, optional
        Probability with which a record is kept. Default: the most that epsilon allows; the paper's is epsilon / 4.

    Examples
    --------
    >>> from dpadapt.hybrid.reweigh import SubsampleTestReweigh
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
        _validate.count(self.n_batches, "n_batches")
        if self.keep is not None:
            _validate.unit(self.keep, "keep")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one answer per batch; a record is in one batch, so they cost what one costs."""
        # An (epsilon, 0) release is epsilon²/2-zCDP at most, and a Gaussian one mu²/2.
        return [(self.mechanism(min(mu, 50.0), facts.n_features), "parity")]

    def mechanism(self, epsilon: float, n_features: int) -> Mechanism:
        """Return the mechanism for records of `n_features` bits."""
        return RandomParity(epsilon, n_features, self.n_batches, self.keep)

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the parity that most batches give; the first class for all rows if none gives any."""
        # A record without weight is null: all of its bits are 0, and so is its label.
        counts = sample.weights > 0
        bits, labels = (sample.X > 0.5) & counts[:, None], (sample.codes == 1) & counts
        answers = runs[0].release(equations(pack(bits), labels))
        chosen = most_frequent(answers)
        if chosen is None:
            return ConstantHypothesis(sample.facts.classes[0])
        return ParityHypothesis(chosen, sample.facts.classes)


def most_frequent(answers: NDArray[np.int8]) -> NDArray[np.bool_] | None:
    """Return the row that occurs most often among those that are answers, or None."""
    given = answers[(answers != NOTHING).all(axis=1)]
    if not len(given):
        return None
    rows, counts = np.unique(given, axis=0, return_counts=True)
    return np.asarray(rows[np.argmax(counts)] == 1)
