"""`SeparatorLearner`: the learner of Algorithm 1 in the experiments of paper 3's Appendix C. It is not private."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Run
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.questions import Hypothesis, LinearHypothesis
from dpadapt.mechanisms.mechanism import NonPrivate
from dpadapt.papers.reweigh.learners import Facts, Plans, Sample

Single = NDArray[np.float32]


@dataclass(frozen=True)
class SeparatorLearner:
    """The hyperplane that minimises ``ridge / 2 |w|²`` + the weighted sum of squared hinge losses. **Not private.**

    It is for Algorithm 1 and needs epsilon = inf. Newton's method takes a dozen steps, each on the records inside the
    margin alone.

    Parameters
    ----------
    ridge : float, default=1.0
        The smaller it is, the better the hyperplane separates.
    n_steps : int, default=20
        The largest number of Newton steps.

    Notes
    -----
    The paper's Appendix C uses a support vector machine with C = 1e30 instead, whose solver does not converge.
    """

    ridge: float = 1.0
    n_steps: int = 20

    def __post_init__(self) -> None:
        checks.positive(self.ridge, "ridge")
        checks.count(self.n_steps, "n_steps")

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return one deliberate leak; a ledger with a finite cap refuses it."""
        return [(NonPrivate(), "separating hyperplane (not private)")]

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return the hyperplane."""
        if not isinstance(runs[0].plan.mechanism, NonPrivate):
            raise PrivacyError("this learner is not private: it must be charged as a NonPrivate release.")
        X = np.column_stack([sample.X, np.ones(len(sample.X))]).astype(np.float32)
        signs = (2 * sample.codes - 1).astype(np.float32)
        weights = sample.weights.astype(np.float32)
        solution = _newton(X, signs, weights, self.ridge, self.n_steps).astype(np.float64)
        return LinearHypothesis(solution[:-1], solution[-1], sample.facts.classes)


def _newton(X: Single, signs: Single, weights: Single, ridge: float, n_steps: int) -> Single:
    """Return the minimiser; Newton steps end when the objective falls by less than a thousandth."""
    coef = np.zeros(X.shape[1], dtype=np.float32)
    scores = np.zeros(len(X), dtype=np.float32)

    def objective(coef: Single, scores: Single) -> float:
        hinge = np.maximum(1 - signs * scores, 0)
        return float(ridge / 2 * coef @ coef + weights @ (hinge * hinge))

    value = objective(coef, scores)
    for _ in range(n_steps):
        hinge = 1 - signs * scores
        active = np.flatnonzero(hinge > 0)
        part, weight = X[active], weights[active]
        gradient = ridge * coef - 2 * (part.T @ (weight * signs[active] * hinge[active]))
        hessian = (2 * ((part.T * weight) @ part)).astype(np.float64)
        hessian[np.diag_indices_from(hessian)] += ridge
        step = np.linalg.solve(hessian, gradient.astype(np.float64)).astype(np.float32)
        change, length, before = X @ step, np.float32(1.0), value
        value = objective(coef - step, scores - change)
        while value > before and length > 1e-3:
            length /= np.float32(2.0)
            value = objective(coef - length * step, scores - length * change)
        coef, scores = coef - length * step, scores - length * change
        if before - value < 1e-3 * before:
            break
    return coef
