"""`OnlineLearner`: the paper's private online descent, with its constants (Algorithm 3, as Algorithm 4 uses it).

A step sees about one record's worth of weight and pays for a sample of rate 1 / (density n). The paper draws one record
by the weights; here each record takes part with its own probability, independently, which costs no more and lets the
weights be normalised by a release. The noise is the paper's, so what it costs depends on the number of rows: with too
few, the ledger refuses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpadapt import _validate
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import Hypothesis, RowMap
from dpadapt.hybrid.learner import Facts, Plans, Sample
from dpadapt.hybrid.learner_descent import hyperplane
from dpadapt.hybrid.planning import Descent
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.losses import LogisticLoss, Loss
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.mechanism import NonPrivate
from dpadapt.mechanisms.plan import Repeated, Sampled
from dpadapt.rows import Rows

# sigma² = 20 L², the least that Theorem A.3 allows.
_SQUARE = 20.0


@dataclass(frozen=True)
class OnlineLearner:
    """Online descent over a ball of hypotheses, averaged over all steps.

    Parameters
    ----------
    row_map : callable, optional
        A public map from raw rows to features, each row by itself. Default: none.
    lipschitz : float, default=1.0
        L: gradients are scaled down to this length.
    diameter : float, default=2.0
        D, of the ball of hypotheses.
    alpha, beta : float
        Of the number of steps, R, where that is not given.
    n_steps : int, optional
        R. Default: the paper's formula, which is beyond reach for small alpha.
    loss : Loss, default=LogisticLoss()
    """

    row_map: RowMap | None = None
    lipschitz: float = 1.0
    diameter: float = 2.0
    alpha: float = 0.05
    beta: float = 1e-6
    n_steps: int | None = None
    loss: Loss = field(default_factory=LogisticLoss)

    def __post_init__(self) -> None:
        for name in ("lipschitz", "diameter", "alpha", "beta"):
            _validate.positive(getattr(self, name), name)
        if self.n_steps is not None:
            _validate.count(self.n_steps, "n_steps")

    def steps(self, n_features: int) -> int:
        """Return R, for rows of so many features."""
        if self.n_steps is not None:
            return self.n_steps
        return Descent(self.lipschitz, self.diameter, n_features + 1).steps(self.alpha, self.beta, _SQUARE)

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return the steps of one round, at the paper's noise whatever mu is."""
        steps = self.steps(facts.n_features)
        if math.isinf(mu):
            return [(Repeated(NonPrivate(), steps), "gradient")]
        rate = min(1.0, 1.0 / (facts.density * facts.n_rows))
        return [(Sampled(Gaussian(math.sqrt(_SQUARE)), rate, steps), "gradient")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the average of all steps."""
        run = runs[0]
        Z = sample.X if self.row_map is None else self.row_map(sample.X)
        rows = Rows(Z, sample.codes.astype(Z.dtype), intercept=True)
        rows.leverage = sample.weights.astype(Z.dtype)
        sampled = isinstance(run.plan, Sampled)
        # What the weights of a sample add up to on average: 1, if the weights add up to density times n.
        expected = sample.total * (run.plan.rate if isinstance(run.plan, Sampled) else 1.0)
        at = np.zeros(Z.shape[1] + 1)
        average = np.zeros_like(at)
        noise = math.sqrt(_SQUARE) * self.lipschitz
        batches = run.batches(rows.n_rows) if sampled else iter([None] * run.plan.steps)
        for r, index in enumerate(batches, start=1):
            batch = rows if index is None else rows.take(index)
            gradient = run.release(clipped_outer_sum(batch, gradient_weights(self.loss, at), self.lipschitz)) / expected
            at = at - self.diameter / (noise * math.sqrt(r)) * gradient
            at *= min(1.0, self.diameter / 2 / max(float(np.linalg.norm(at)), 1e-300))
            average += at
        return hyperplane(self.row_map, average / run.plan.steps, sample.facts.classes)
