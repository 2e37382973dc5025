"""The labelled discrepancy of a source and a target, and the learning bound of Theorem B.1. Not private.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, equation (2) and Appendix B; after P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. 2024. The discrepancy
is how far mean losses of the two samples can differ over a set of predictors. On private rows these values are for the
data's owner alone; `squared_loss_discrepancy` and `listed_discrepancy` in `mechanisms/bounded_losses.py` make the
statistics that may be released.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpadapt import checks
from dpadapt.mechanisms.trust_region import extremes_in_ball
from dpadapt.papers.adaptation.problem import mixture_share, reference_weights, stack

_REMEDIES = {
    "weighted loss": "the predictor fits the weighted samples badly; another predictor, features or radius may help",
    "discrepancy": "source and target differ; give the source less weight (alpha), or restrict the predictors (radius)",
    "complexity": "the set of predictors is too rich for few effective rows; lower the radius or spread the weights",
    "distance": "the weights are far from the reference; a stronger penalty on that distance brings them closer",
    "deviation": "too few rows have weight; spread the weights, or add rows",
}


@dataclass(frozen=True)
class LearningBound:
    """An upper bound on the target's expected loss, term by term.

    Parameters
    ----------
    weighted_loss : float
        The weighted empirical loss.
    discrepancy : float
        The source's total weight times the discrepancy.
    complexity : float
        Twice the weighted Rademacher complexity.
    distance : float
        Six times the loss bound times the distance of the weights from the reference.
    deviation : float
        The sampling error.
    loss_bound : float
        The largest possible loss: a bound above it says nothing.
    risk : float
        The probability that the bound fails.
    """

    weighted_loss: float
    discrepancy: float
    complexity: float
    distance: float
    deviation: float
    loss_bound: float
    risk: float

    @property
    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return {
            "weighted loss": self.weighted_loss,
            "discrepancy": self.discrepancy,
            "complexity": self.complexity,
            "distance": self.distance,
            "deviation": self.deviation,
        }

    @property
    def total(self) -> float:
        """The bound: the sum of all terms."""
        return math.fsum(self.terms.values())

    @property
    def limit(self) -> str:
        """The name of the largest term."""
        return max(self.terms, key=lambda name: self.terms[name])

    def __str__(self) -> str:
        """Return the terms as text, with a remedy for the largest."""
        lines = [f"expected target loss <= {self.total:.4g} with probability {1 - self.risk:.4g}"]
        lines += [
            f"  {name:14}{value:10.4g}  {100 * value / max(self.total, 1e-300):3.0f}%"
            for name, value in self.terms.items()
        ]
        lines.append(f"largest term: {self.limit}: {_REMEDIES[self.limit]}")
        if self.total >= self.loss_bound:
            lines.append(f"no loss exceeds {self.loss_bound:.4g}, so the bound says nothing at these sizes")
        return "\n".join(lines)


def learning_bound(
    losses: ArrayLike,
    weights: ArrayLike,
    *,
    n_source: int,
    alpha: float,
    discrepancy: float,
    complexity: float,
    loss_bound: float,
    risk: float = 0.05,
) -> LearningBound:
    """Return Theorem B.1's bound on the target's expected loss.

    Parameters
    ----------
    losses, weights : array-like of shape (n_source + n_target,)
        Loss and weight of every sample, source rows first; weights in [0, 1].
    n_source : int
    alpha : float
        The source's share of the reference weights; the weights must be closer than 1 to them.
    discrepancy : float
        Discrepancy of the two distributions. From samples it is an estimate, with an error of the order of
        sqrt((m + n) / (m n)).
    complexity : float
        Weighted Rademacher complexity of the losses, e.g. from `linear_complexity`.
    loss_bound : float
        The largest possible loss.
    risk : float, default=0.05

    Examples
    --------
    >>> q = np.full(2000, 1 / 2000)
    >>> bound = learning_bound(
    ...     np.full(2000, 0.1), q, n_source=1000, alpha=0.5, discrepancy=0.5, complexity=0.01, loss_bound=1.0
    ... )
    >>> bound.limit
    'discrepancy'
    >>> round(bound.total, 3)
    0.4
    """
    loss, q = np.asarray(losses, dtype=np.float64).ravel(), np.asarray(weights, dtype=np.float64).ravel()
    bound, risk = checks.positive(loss_bound, "loss_bound"), checks.unit(risk, "risk")
    m = checks.count(n_source, "n_source", least=0)
    if len(loss) != len(q) or len(q) <= m:
        raise ValueError(f"losses and weights must have one entry per sample, more than the {m} of the source.")
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError("weights must lie in [0, 1].")
    for name, value in (("discrepancy", discrepancy), ("complexity", complexity)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number that is not negative, got {value!r}.")
    distance = float(np.abs(q - reference_weights(m, len(q) - m, mixture_share(alpha) if m else 0.0)).sum())
    if distance >= 1:
        raise ValueError(f"weights must be closer than 1 to the reference weights in sum, got {distance:.4g}.")
    # sqrt(log log2(2 / (1 - distance))) is the cost of choosing the weights by the data; it is 0 at the reference.
    uniform = math.sqrt(math.log(math.log2(2 / (1 - distance))))
    spread = float(np.linalg.norm(q)) + 2 * distance
    return LearningBound(
        weighted_loss=float(q @ loss),
        discrepancy=float(q[:m].sum()) * float(discrepancy),
        complexity=2 * float(complexity),
        distance=6 * bound * distance,
        deviation=bound * spread * (uniform + math.sqrt(math.log(2 / risk) / 2)),
        loss_bound=bound,
        risk=risk,
    )


def linear_complexity(X: ArrayLike, weights: ArrayLike, *, radius: float, lipschitz: float) -> float:
    """Return an upper bound on the weighted Rademacher complexity of a loss of linear scores in a ball.

    By contraction it is at most `lipschitz`, the largest derivative of the loss in the score, times that of the scores,
    E sup Σ s q w'x = radius E |Σ s q x| <= radius sqrt(Σ q² |x|²). For squared loss `lipschitz` is
    2 (radius max_norm + max_target), for logistic loss 1.

    Examples
    --------
    >>> round(linear_complexity(np.ones((100, 1)), np.full(100, 0.01), radius=2.0, lipschitz=1.0), 6)
    0.2
    """
    rows, q = np.asarray(X, dtype=np.float64), np.asarray(weights, dtype=np.float64).ravel()
    squares = np.einsum("ij,ij->i", rows, rows)
    return checks.positive(lipschitz, "lipschitz") * checks.positive(radius, "radius") * math.sqrt(q**2 @ squares)


def discrepancy(
    X_source: ArrayLike,
    y_source: ArrayLike,
    X_target: ArrayLike,
    y_target: ArrayLike,
    *,
    radius: float,
    center: ArrayLike | None = None,
) -> float:
    """Return the discrepancy for squared loss over linear predictors in a ball, exactly.

    The difference of mean losses is a quadratic in the coefficients; its least and greatest values in a ball are two
    trust-region problems. Around a `center` this is the local discrepancy, e.g. around a model of interest.

    Parameters
    ----------
    X_source, y_source, X_target, y_target : array-like
        Rows as the predictor sees them: with a constant feature if it has an intercept.
    radius : float
        Radius of the ball of coefficients.
    center : array-like of shape (n_features,), optional
        Centre of the ball. Default: 0.

    Examples
    --------
    >>> discrepancy([[1.0]], [0.0], [[2.0]], [1.0], radius=1.0)  # (2 w - 1)² - w² at w = -1
    8.0
    >>> round(discrepancy([[1.0]], [0.0], [[2.0]], [1.0], radius=0.1, center=[0.5]), 4)
    0.32
    """
    radius = checks.positive(radius, "radius")
    X, y, m = stack(X_source, y_source, X_target, y_target)
    if not m:
        raise ValueError("X_source must hold at least one row.")
    A = X[m:].T @ X[m:] / (len(X) - m) - X[:m].T @ X[:m] / m
    b = X[m:].T @ y[m:] / (len(X) - m) - X[:m].T @ y[:m] / m
    c = float(np.mean(y[m:] ** 2) - np.mean(y[:m] ** 2))
    if center is not None:
        at = np.asarray(center, dtype=np.float64).reshape(-1)
        if at.shape != b.shape or not np.isfinite(at).all():
            raise ValueError(f"center must hold {len(b)} finite numbers, one per feature.")
        # w = center + v: the same quadratic in v.
        c += float(at @ A @ at - 2 * b @ at)
        b = b - A @ at
    lowest, highest = extremes_in_ball(A, b, radius)
    return max(abs(lowest + c), abs(highest + c))


def local_discrepancy(
    X_source: ArrayLike,
    y_source: ArrayLike,
    X_target: ArrayLike,
    y_target: ArrayLike,
    *,
    center: ArrayLike,
    radius: float | None = None,
) -> float:
    """Return the discrepancy over predictors near `center` alone: smaller, and enough if the predictor lies there.

    Parameters
    ----------
    X_source, y_source, X_target, y_target : array-like
    center : array-like of shape (n_features,)
        E.g. the target's empirical minimiser.
    radius : float, optional
        Default: 1 / sqrt(number of target rows), the order that the paper names.
    """
    radius = float(1 / np.sqrt(len(np.asarray(y_target))) if radius is None else radius)
    return discrepancy(X_source, y_source, X_target, y_target, radius=radius, center=center)
