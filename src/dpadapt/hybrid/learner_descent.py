"""`DescentLearner`: a generalised linear model by private weighted gradient descent, for any round of reweighing.

Every gradient is that of the weighted records, clipped record by record: full batch (exactly Gaussian), or on Poisson
samples for very many rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import Hypothesis, MappedHypothesis, RowMap
from dpadapt.hybrid.learner import Facts, Plans, Sample, noise_of
from dpadapt.hybrid.questions import LinearHypothesis
from dpadapt.learning.descent import constant, private_descent
from dpadapt.learning.losses import LogisticLoss, Loss
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Sampled
from dpadapt.rows import Rows


@dataclass(frozen=True)
class DescentLearner:
    """Weighted private descent on the loss of a generalised linear model.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself; features should be about 1 in size. Default: none.
    loss : Loss, default=LogisticLoss()
        By its derivative in the score, for classes coded 0 and 1.
    n_steps : int, default=40
        Gradient steps in a round.
    clip_norm : float, optional
        Each record's gradient is scaled down to this length. Default: half the length of a row whose features spread
        over [-1, 1].
    step : float, optional
        Length of each step. Default: what is stable for such rows.
    sampling_rate : float, default=1.0
        Below 1: each step sees a Poisson sample of the records. It saves time, not noise; for very many rows.

    Examples
    --------
    >>> DescentLearner(n_steps=10).plans(0.5, Facts(1000, 3, np.array([0, 1])))[0][1]
    'gradient'
    """

    row_map: RowMap | None = None
    loss: Loss = field(default_factory=LogisticLoss)
    n_steps: int = 40
    clip_norm: float | None = None
    step: float | None = None
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        _validate.count(self.n_steps, "n_steps")
        _validate.unit(self.sampling_rate, "sampling_rate")
        for name in ("clip_norm", "step"):
            if getattr(self, name) is not None:
                _validate.positive(getattr(self, name), name)

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the gradients of one round."""
        q = self.sampling_rate
        if q == 1.0 or math.isinf(mu):
            return [(noise_of(mu, 1.0, self.n_steps), "gradient")]
        # The limit law of many sampled steps: mu² = q² steps (e^(1/s²) - 1). A first guess; `strength` settles it.
        noise = 1.0 / math.sqrt(math.log1p(mu**2 / (q**2 * self.n_steps)))
        return [(Sampled(Gaussian(noise), q, self.n_steps), "gradient")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of the last half of the steps."""
        facts = sample.facts
        Z = sample.X if self.row_map is None else self.row_map(sample.X)
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True)
        # A record's gradient is multiplied by its weight, at most 1, before it is clipped: the bound stays clip_norm.
        rows.leverage = sample.weights.astype(Z.dtype)
        square = 1.0 + Z.shape[1] / 3.0
        found = private_descent(
            runs[0],
            rows,
            self.loss,
            np.zeros(Z.shape[1] + 1),
            clip_norm=0.5 * math.sqrt(square) if self.clip_norm is None else self.clip_norm,
            n_rows=sample.total,
            step=constant(8.0 / square if self.step is None else self.step),
        )
        return hyperplane(self.row_map, found, facts.classes)


def hyperplane(row_map: RowMap | None, solution: NDArray[Any], classes: NDArray[Any]) -> Hypothesis:
    """Return the hypothesis with these coefficients, the constant's last; without a map it can travel to devices."""
    coef, intercept = np.asarray(solution[:-1], dtype=np.float64), float(solution[-1])
    if row_map is None:
        return LinearHypothesis(coef, intercept, classes)
    return MappedHypothesis(row_map, coef, intercept, classes)
