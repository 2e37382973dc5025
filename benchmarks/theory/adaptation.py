"""Theorems of private domain adaptation: discrepancy, the learning bound, and how close Algorithms 1 and 2 come.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024: equation (2), Theorems 4.1, 4.3, 4.4, 5.2 and B.1, Appendices B to D; after P. Awasthi, C. Cortes, M. Mohri.
Best-effort adaptation. 2024. The discrepancy is how far mean losses of the two samples can differ over a set of
predictors. The paper states most of its bounds on convergence up to constants; here the constants are those that its
proofs give with the noise of its algorithms. Values that are computed from private rows are for the data's owner alone.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.theory.adaptation_problems import stack
from dpadapt import checks
from dpadapt.papers.adaptation.bounded_losses import extremes_in_ball, gradient_bounds, loss_bound
from dpadapt.papers.adaptation.preparation import MAX_NORM, MAX_TARGET
from dpadapt.papers.adaptation.problem import (
    Array,
    Penalties,
    SmoothLoss,
    mixture_share,
    reference_weights,
    weight_gradient,
)

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


def relaxation_bound(weights: Array, reference: Array, one: float) -> float:
    """Return Theorem 4.1's bound on what solving (6) in place of (5) costs: `one` (C - 1) |p - q|_1.

    `weights` q are those of (5)'s minimiser, or of any other point that the objective is compared with, and C is the
    largest p / q. The difference of the two objectives at q is `one` times the sum of (p - q)² / q, and each term is
    at most (C - 1) (p - q). Infinite if a weight vanishes: then the theorem's assumption fails.

    Examples
    --------
    >>> relaxation_bound(np.array([0.25, 0.5]), np.array([0.5, 0.5]), one=2.0)
    0.5
    """
    one = checks.penalty(one, "one")
    used = reference > 0
    q, p = weights[used], reference[used]
    if not np.all((q >= 0) & (q <= p * (1 + 1e-12))):
        raise ValueError("weights must lie between 0 and the reference weights.")
    if not np.all(q > 0):
        return math.inf
    return one * (float(np.max(p / q)) - 1) * float(np.abs(p - q).sum())


@dataclass(frozen=True)
class ConvergenceBounds:
    """Sizes and settings of Algorithm 1 or 2 with the printed noise, and what the paper's theorems say about them.

    Parameters
    ----------
    n_source, n_rows : int
        Rows of the source (m) and of the target (n).
    n_coefficients : int
        d; a constant feature counts.
    alpha, radius, penalties
        As in `CnvxAdap` and `NCnvxAdap`.
    epsilon, delta : float
        What the algorithm itself spends: half of the whole method's epsilon if the discrepancy has the other half. At
        epsilon = inf there is no noise.
    lipschitz, loss_bound : float, optional
        G and B. Default: those of squared loss for rows of length at most 1 and targets in [-1, 1].

    Notes
    -----
    The printed constants of the proofs differ from those here. Theorem 4.3 has 32 log(2/delta) and 8 log(2/delta)
    where the algorithm's noise gives 16 log(3/delta) and 4 log(3/delta): valid, but larger. Theorem 5.2 has
    8 log(2/delta) in its last term where the proof gives 40 log(3/delta): printed too small. With a penalty on the
    largest weight, Algorithm 1's direction counts every tied weight and is then not a subgradient, which the proof of
    Theorem 4.3 needs.

    Examples
    --------
    >>> gas = ConvergenceBounds(7297, 10_000, 129, alpha=0.5, radius=3.0, epsilon=10.0, delta=0.01)
    >>> f"{gas.required_steps:.1e}"
    '6.7e+07'
    >>> print(f"{gas.optimisation(15_000).total:.2f} {gas.optimisation(200_000).total:.2f}")
    0.20 0.06
    """

    n_source: int
    n_rows: int
    n_coefficients: int
    alpha: float = 0.5
    radius: float = 3.0
    penalties: Penalties = field(default_factory=Penalties)
    epsilon: float = 1.0
    delta: float = 1e-6
    lipschitz: float | None = None
    loss_bound: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_source", "n_rows", "n_coefficients"):
            checks.count(getattr(self, name), name)
        if not 0 < mixture_share(self.alpha) < 1:
            raise ValueError(f"alpha must lie strictly between 0 and 1, got {self.alpha!r}.")
        checks.scale(self.radius, "radius")
        checks.positive(self.epsilon, "epsilon", infinite=True)
        checks.delta(self.delta)
        for name in ("lipschitz", "loss_bound"):
            if getattr(self, name) is not None:
                checks.positive(getattr(self, name), name)

    @property
    def _G(self) -> float:
        return gradient_bounds(MAX_NORM, MAX_TARGET, self.radius)[0] if self.lipschitz is None else self.lipschitz

    @property
    def _B(self) -> float:
        return loss_bound(MAX_NORM, MAX_TARGET, self.radius) if self.loss_bound is None else self.loss_bound

    @property
    def _B_bar(self) -> float:
        return self._B + self.penalties.total

    def _noise_per_step(self) -> tuple[float, float]:
        """Return d sigma_1² / T and n sigma_2² / T: the squared length of both noises over the number of steps."""
        rest, n = 1 - self.alpha, self.n_rows
        unit = 4 * math.log(3 / self.delta) / self.epsilon**2
        return (
            unit * self.n_coefficients * (2 * rest * self._G / n) ** 2,
            unit * n * (rest**2 * self._B / n**2) ** 2,
        )

    @property
    def required_steps(self) -> float:
        """The number of steps from which on Theorems 4.3 and 4.4 promise their rates; infinite without noise."""
        if math.isinf(self.epsilon):
            return math.inf
        log, ratio = math.log(1 / self.delta), (self._B_bar / self._B) ** 2
        return max(
            1.0,
            (self.n_rows * self.epsilon / (1 - self.alpha)) ** 2 / (self.n_coefficients * log),
            ratio * self.epsilon**2 / log,
            ratio * self.epsilon**2 * (self.n_rows / self.n_source) ** 3 / log,
        )

    def optimisation(
        self, n_steps: int, *, source_distance: float = 0.0, target_distance: float = 0.0
    ) -> "OptimisationBound":
        """Return Theorem 4.3's bound on the expected excess of problem (6)'s objective over its minimum.

        Parameters
        ----------
        n_steps : int
        source_distance, target_distance : float, default=0.0
            Squared distances of the first inverse weights from the minimiser's: 0 if the minimiser's weights are the
            reference, as they are for a large penalty `one`.
        """
        T = checks.count(n_steps, "n_steps")
        in_coefficients, in_weights = self._noise_per_step()
        m, n, rest = self.n_source, self.n_rows, 1 - self.alpha
        return OptimisationBound(
            # The first coefficients are 0, so the minimiser is at most `radius` away.
            coefficients=self.radius * math.sqrt(self._G**2 / T + in_coefficients),
            target_weights=(checks.penalty(target_distance, "target_distance") + 1)
            / 2
            * math.sqrt(rest**4 * self._B_bar**2 / (n**3 * T) + in_weights),
            source_weights=(checks.penalty(source_distance, "source_distance") + 1)
            / 2
            * (self.alpha**2 * (self._B + self._B_bar) / (m**1.5 * math.sqrt(T))),
        )

    def required_rows(self, distance: float) -> float:
        """Return Theorem 4.4's least number of target rows, for inverse weights at this squared distance in all."""
        most = max(1.0, checks.penalty(distance, "distance"))
        return (self._B * most / (self._G * self.radius)) ** 2 / self.n_coefficients

    @property
    def optimal_rate(self) -> float:
        """Theorem 4.4's bound, valid from `required_rows` and `required_steps` on.

        With T steps at least as required, 1/T is at most d rest² log(1/delta) / (n epsilon)², which bounds the first
        term of Theorem 4.3. With L = log(1/delta) and L' = log(3/delta), the other two are at most B / (epsilon n^1.5)
        times rest²/2 sqrt(L + 4 L') (U' + 1) and alpha² sqrt(L) (U + 1), and U + U' + 2 <= 3 max(1, U + U').
        """
        rest, log, noise = 1 - self.alpha, math.log(1 / self.delta), math.log(3 / self.delta)
        others = max(rest**2 / 2 * math.sqrt(log + 4 * noise), self.alpha**2 * math.sqrt(log))
        constant = rest * math.sqrt(log + 16 * noise) + 3 * others
        return constant * self._G * self.radius * math.sqrt(self.n_coefficients) / (self.n_rows * self.epsilon)

    @property
    def _range_of_7(self) -> float:
        """How much the objective of (7) can fall: M in the proof of Theorem 5.2."""
        m, n, rest = self.n_source, self.n_rows, 1 - self.alpha
        spread = self.penalties.two * (self.alpha / math.sqrt(m) + rest / math.sqrt(n))
        return 2 * self._B + self.penalties.one + spread + self.penalties.infinity * max(self.alpha / m, rest / n)

    def stationarity(self, n_steps: int, smoothness: float) -> float:
        """Return Theorem 5.2's bound on the expected squared length of Algorithm 2's gradient mapping."""
        T, beta = checks.count(n_steps, "n_steps"), checks.positive(smoothness, "smoothness")
        return 8 * beta * self._range_of_7 / T + 10 * T * math.fsum(self._noise_per_step())

    def best_steps(self, smoothness: float) -> float:
        """Return the number of steps at which `stationarity` is least; infinite without noise."""
        noise = 10 * math.fsum(self._noise_per_step())
        return (
            math.sqrt(8 * checks.positive(smoothness, "smoothness") * self._range_of_7 / noise) if noise else math.inf
        )


@dataclass(frozen=True)
class OptimisationBound:
    """Theorem 4.3's bound, by the block of variables that each term is due to."""

    coefficients: float
    target_weights: float
    source_weights: float

    @property
    def total(self) -> float:
        """The bound: the sum of its terms."""
        return self.coefficients + self.target_weights + self.source_weights


def gradient_mapping(
    X: Array,
    codes: NDArray[np.int64],
    coef: Array,
    inverse: Array,
    *,
    n_source: int,
    loss: SmoothLoss,
    alpha: float,
    radius: float,
    penalties: Penalties,
    sharpness: float,
    smoothness: float,
    discrepancy: float = 0.0,
) -> float:
    """Return the length of the gradient mapping of problem (7): `smoothness` times what one projected step moves.

    It is 0 at stationary points alone. Not private.

    Parameters
    ----------
    X, codes : array-like
        Source rows first, of length at most 1, and their classes.
    coef, inverse : ndarray
        Coefficients, and the inverse weights u of all rows.
    n_source, loss, alpha, radius, penalties, sharpness, discrepancy
        As in `solve_smooth`.
    smoothness : float
        The smoothness of the objective, e.g. from `smoothness_of`.
    """
    p = reference_weights(n_source, len(X) - n_source, alpha)
    scores = X @ coef
    losses = loss.losses(scores, codes) + np.where(np.arange(len(X)) < n_source, discrepancy, 0.0)
    in_weights = weight_gradient(losses, inverse, p, penalties, sharpness)
    in_coef = X.T @ (loss.weights(scores, codes).T / inverse).T
    moved = coef - in_coef / smoothness
    moved *= min(1.0, radius / max(float(np.linalg.norm(moved)), 1e-300))
    heavier = np.maximum(inverse - in_weights / smoothness, 1 / p)
    return smoothness * math.hypot(float(np.linalg.norm(coef - moved)), float(np.linalg.norm(inverse - heavier)))
