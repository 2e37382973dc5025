"""What two samples of scores say about epsilon: the bounds behind `lower_bound`, at a given threshold.

Each function takes counts (arrays are fine); the truth is on the other side of what it returns with probability at most
`risk`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def lower_limit(hits: Any, trials: int, risk: float) -> NDArray[np.float64]:
    """Return the Clopper–Pearson lower limit on a probability."""
    from scipy.stats import beta

    hits = np.asarray(hits)
    limit = beta.ppf(risk, np.maximum(hits, 1), trials - hits + 1)
    return np.where(hits > 0, limit, 0.0)


def upper_limit(hits: Any, trials: int, risk: float) -> NDArray[np.float64]:
    """Return the Clopper–Pearson upper limit on a probability."""
    return 1.0 - lower_limit(trials - np.asarray(hits), trials, risk)


def epsilon_any(hits: Any, false_hits: Any, trials: int, *, delta: float, risk: float) -> NDArray[np.float64]:
    """Return a lower bound on epsilon from an event that happened `hits` times in one world, `false_hits` in the other.

    (epsilon, delta)-privacy says p <= e^epsilon q + delta for every event and both orders of the worlds, whatever the
    mechanism. Half of `risk` goes to the limit on p, half to that on q.
    """
    p = lower_limit(hits, trials, risk / 2) - delta
    q = upper_limit(false_hits, trials, risk / 2)
    return np.asarray(np.maximum(0.0, np.log(np.maximum(p, 1e-300)) - np.log(q)))


def mu_gaussian(false_positives: Any, false_negatives: Any, trials: int, *, risk: float) -> NDArray[np.float64]:
    """Return a lower bound on the mu of a Gaussian-private mechanism from the errors of one test.

    mu-GDP says that no test has fnr < Φ(Φ⁻¹(1 - fpr) - mu) (Dong, Roth and Su, "Gaussian differential privacy", 2022).
    """
    from scipy.special import ndtri

    fpr = upper_limit(false_positives, trials, risk / 2)
    fnr = upper_limit(false_negatives, trials, risk / 2)
    return np.asarray(np.maximum(0.0, ndtri(1.0 - fpr) - ndtri(fnr)))


def mu_shift(first: NDArray[np.float64], second: NDArray[np.float64], *, risk: float) -> float:
    """Return a lower bound on shift over standard deviation of two samples from normals of one variance.

    Half of `risk` goes to the upper limit on the deviation (chi-squared), half to the lower limit on the shift.
    """
    from scipy.special import ndtri
    from scipy.stats import chi2

    n = len(first)
    freedom = 2 * n - 2
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    deviation = math.sqrt(squares / float(chi2.ppf(risk / 2, freedom)))
    shift = float(second.mean() - first.mean())
    if deviation == 0:
        return math.inf if shift > 0 else 0.0
    return max(0.0, shift / deviation + float(ndtri(risk / 2)) * math.sqrt(2 / n))
