"""`FiniteLearner`: the exponential mechanism over a public list of hypotheses (Corollary 4.4 of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import Hypothesis
from dpadapt.hybrid.learner import Facts, Plans, Sample, choice_of, chosen
from dpadapt.mechanisms.bounded_choices import weighted_votes


@dataclass(frozen=True)
class FiniteLearner:
    """Choose the hypothesis that gets most weight right, by the exponential mechanism.

    Parameters
    ----------
    hypotheses : sequence of Hypothesis
        The class, listed without looking at private rows. Not empty.

    Examples
    --------
    >>> from dpadapt.hybrid.questions import LinearHypothesis
    >>> from dpadapt.hybrid.reweigh import SubsampleTestReweigh
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

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one choice."""
        return [(choice_of(mu, 1.0), "choice of a hypothesis")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the chosen hypothesis."""
        labels = sample.facts.classes[sample.codes]
        # A warning would tell of an extreme row.
        with np.errstate(all="ignore"):
            right = weighted_votes((h.predict(sample.X) == labels for h in self.hypotheses), sample.weights)
        return self.hypotheses[chosen(runs[0], right)]
