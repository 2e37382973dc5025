"""The paper's bounds as functions, to plan how many public rows, private rows and dimensions are needed.

Theorems 5.2, 5.4 and 5.5 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution
Shift", arXiv:2312.15551. The theorems hide constants and logarithms. Here `constant` replaces the constants and the
logarithms are left out, so the values compare plans but do not guarantee errors.
"""

import math
from dataclasses import dataclass

from dpadapt import checks


@dataclass(frozen=True)
class TransferBound:
    """A bound on excess risk and its terms.

    Parameters
    ----------
    terms : dict of str to float
        Name of each term, and its size.
    """

    terms: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return math.fsum(self.terms.values())


def subspace_bound(n_features: int, n_components: int, n_public: int, *, constant: float = 1.0) -> float:
    """Return Theorem 5.2's bound on the sine of the angle between the true subspace and the one by "moments".

    The bound is sqrt(d k² / n1), at most 1.

    Examples
    --------
    >>> subspace_bound(25, 5, 10_000)
    0.25
    """
    d, k = checks.count(n_features, "n_features"), checks.count(n_components, "n_components")
    if k > d:
        raise ValueError(f"n_components must be at most n_features, {d}, got {k}.")
    n = checks.count(n_public, "n_public")
    return min(1.0, checks.positive(constant, "constant") * math.sqrt(d * k**2 / n))


def upper_bound(
    n_components: int,
    n_private: int,
    *,
    epsilon: float,
    delta: float,
    angle: float,
    task_norm: float = 1.0,
    noise: float = 1.0,
    constant: float = 1.0,
) -> TransferBound:
    """Return Theorem 5.4's bound on the excess risk of private regression within an estimated subspace.

    The bound is ``(σ² + |a|² γ²) (k / n2 + k² ln(1/δ) / (n2 ε)²) + |a|² γ²``, as in the proof. The term
    ``|a|² / n2^100``, the remaining error of the start, is negligible and left out.

    Parameters
    ----------
    n_components, n_private : int
        k and n2.
    epsilon, delta : float
        The budget of the private fit.
    angle : float
        γ: sine of the largest angle between the estimated subspace and the true one; see `subspace_bound`.
    task_norm, noise : float, default=1.0
        ``|a|``: length of the private task's coefficients; σ²: variance of the labels around its regression.
    constant : float, default=1.0
        Constant of the two terms of private regression; the theorem leaves it open. The last term has constant 1.

    Returns
    -------
    TransferBound
        With terms "sampling", "privacy" and "subspace", each a mean squared error above that of the true coefficients.
        For rows with second moment 1 this is the squared error of the coefficients.

    Examples
    --------
    >>> bound = upper_bound(5, 5000, epsilon=1.0, delta=1e-5, angle=0.2)
    >>> {name: round(value, 5) for name, value in bound.terms.items()}
    {'sampling': 0.00104, 'privacy': 1e-05, 'subspace': 0.04}
    """
    delta = checks.delta(delta)
    if delta == 0:
        raise ValueError("delta must be positive: the bound is for Gaussian noise.")
    sampling, privacy, missed, variance = _terms(n_components, n_private, epsilon, angle, task_norm, noise)
    return TransferBound(
        {
            "sampling": constant * variance * sampling,
            "privacy": constant * variance * privacy * math.log(1 / delta),
            "subspace": missed,
        }
    )


def lower_bound(
    n_components: int,
    n_private: int,
    *,
    epsilon: float,
    angle: float,
    noise: float = 1.0,
    constant: float = 1.0,
) -> TransferBound:
    """Return Theorem 5.5's lower bound on the worst-case excess risk of private regression within a subspace.

    The bound is c ((σ² + γ²) (k / n2 + k² / (n2 ε)²) + γ²), for tasks of length up to 1. It holds for methods that stay
    within the subspace; `PrivateSubspaceRegressor(projection="soft")` need not.

    Parameters
    ----------
    n_components, n_private, epsilon, angle, noise
        As in `upper_bound`.
    constant : float, default=1.0
        The theorem leaves it open.

    Examples
    --------
    >>> low = lower_bound(5, 5000, epsilon=1.0, angle=0.2)
    >>> low.total < upper_bound(5, 5000, epsilon=1.0, delta=1e-5, angle=0.2).total
    True
    """
    sampling, privacy, missed, variance = _terms(n_components, n_private, epsilon, angle, 1.0, noise)
    return TransferBound(
        {
            "sampling": constant * variance * sampling,
            "privacy": constant * variance * privacy,
            "subspace": constant * missed,
        }
    )


def private_rows_needed(n_components: int, *, epsilon: float, error: float) -> float:
    """Return the number of private rows for an excess risk of `error` above that of the subspace, Equation (8).

    The number is k / error + k / (ε sqrt(error)).

    Examples
    --------
    >>> private_rows_needed(5, epsilon=1.0, error=0.01)
    550.0
    """
    k = checks.count(n_components, "n_components")
    error, epsilon = checks.positive(error, "error"), checks.positive(epsilon, "epsilon")
    return k / error + k / (epsilon * math.sqrt(error))


def _terms(
    n_components: int, n_private: int, epsilon: float, angle: float, task_norm: float, noise: float
) -> tuple[float, float, float, float]:
    """Return k / n2, (k / (n2 ε))², |a|² γ², and the variance of the labels around the best fit in the subspace."""
    k, n = checks.count(n_components, "n_components"), checks.count(n_private, "n_private")
    epsilon, norm = checks.positive(epsilon, "epsilon"), checks.positive(task_norm, "task_norm")
    if isinstance(angle, bool) or not isinstance(angle, int | float) or not 0 <= angle <= 1:
        raise ValueError(f"angle must be a sine, between 0 and 1, got {angle!r}.")
    missed = (norm * angle) ** 2
    return k / n, (k / (n * epsilon)) ** 2, missed, checks.positive(noise, "noise") + missed
