"""How close Algorithms 1 and 2 of private domain adaptation come to a solution: Theorems 4.1, 4.3, 4.4 and 5.2.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Appendices C and D. The paper states most of these bounds up to constants; here the constants are those that its
proofs give with the noise of its algorithms. Everything in `ConvergenceBounds` is public; `relaxation_bound` and
`gradient_mapping` are computed from rows, and on private rows they are for the data's owner alone.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.mechanisms.bounded_losses import gradient_bounds, loss_bound
from dpadapt.papers.adaptation.preparation import MAX_NORM, MAX_TARGET
from dpadapt.papers.adaptation.problem import (
    Array,
    Penalties,
    SmoothLoss,
    mixture_share,
    reference_weights,
    weight_gradient,
)


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
