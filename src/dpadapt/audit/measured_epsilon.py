"""`lower_bound`: the smallest epsilon that is compatible with many runs on two neighbouring data sets.

An attacker sees one output and guesses which of two neighbouring data sets it came from. Epsilon bounds the success of
every attacker, so a more successful attacker refutes the claimed epsilon.

`lower_limit` to `mu_shift` bound epsilon, or the mu of Gaussian privacy, from counts or scores. Each bound is wrong
with probability at most `risk`. Counts may be arrays.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_epsilon

BOUND_METHODS = ("any", "gaussian", "shift")

Scores = NDArray[np.float64]


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
    """Return a lower bound on epsilon from an event seen `hits` times on one data set, `false_hits` times on the other.

    (epsilon, delta)-privacy says p <= e^epsilon q + delta for every event and both orders of the data sets, whatever
    the mechanism. Half of `risk` goes to the limit on p, half to that on q.
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
    """Return a lower bound on shift / standard deviation, from samples of two normal distributions of equal variance.

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


@dataclass(frozen=True)
class LowerBound:
    """A measured lower bound on epsilon, at a given confidence.

    Parameters
    ----------
    epsilon_lower : float
        Exceeds the true epsilon at `delta` with probability at most 1 - `confidence`.
    delta : float
    method : {"any", "gaussian", "shift"}
        What was assumed about the mechanism; see `lower_bound`.
    runs : int
        How often `fit` was run on each data set, including the runs that chose score and threshold.
    threshold : float
        The attacker guesses the neighbour if the score is above it.
    fpr, fnr : float
        False positive and false negative rate of this guess, in the runs that did not choose score and threshold.
    confidence : float
    """

    epsilon_lower: float
    delta: float
    method: str
    runs: int
    threshold: float
    fpr: float
    fnr: float
    confidence: float

    def refutes(self, epsilon: float) -> bool:
        """Return whether a claim of `epsilon` (at the same delta) is refuted."""
        return self.epsilon_lower > epsilon

    def __str__(self) -> str:
        """Return one line of text."""
        given = {"any": "any mechanism", "gaussian": "if it is Gaussian-private", "shift": "if its noise is normal"}
        return (
            f"epsilon >= {self.epsilon_lower:.3f} at delta = {self.delta:.3g} ({self.confidence:.6g} confidence, "
            f"{given[self.method]}; {self.runs} runs on each data set, fpr {self.fpr:.3g}, fnr {self.fnr:.3g})"
        )


def lower_bound(
    fit: Callable[[Any], Any],
    D: Any,
    D_neighbour: Any,
    *,
    delta: float,
    runs: int,
    confidence: float = 0.95,
    method: str = "any",
    score: Callable[[Any], float] | None = None,
    progress: bool = False,
) -> LowerBound:
    """Return a lower bound on the epsilon of `fit`, from `runs` runs on each of two neighbouring data sets.

    Parameters
    ----------
    fit : callable
        Takes one of the data sets, returns what an attacker sees: a number, an array, or an estimator with `coef_`. Its
        noise must be fresh in every call. If it has a method `many(data, runs)`, that is called instead, once for each
        data set, and returns the outputs stacked.
    D, D_neighbour : object
        Two neighbouring data sets under the claimed guarantee. The more their outputs differ, the closer the bound
        comes to the true epsilon.
    delta : float
        In [0, 1). Epsilon is measured at this delta; "gaussian" and "shift" need it positive.
    runs : int
        How often to run `fit` on each data set; at least 30. The first third chooses score and threshold, the bound is
        computed from the rest.
    confidence : float, default=0.95
        Probability with which the bound holds; 1 - confidence is the false-alarm rate of `LowerBound.refutes`.
    method : {"any", "gaussian", "shift"}, default="any"
        "any" is valid for every mechanism: p <= e^epsilon q + delta at the threshold, Clopper–Pearson limits. It can't
        resolve probabilities below about 1 / runs, so it can't reach a large epsilon or check a tiny delta.
        "gaussian" is valid for mechanisms that are claimed to be mu-Gaussian private (Gaussian noise, composed): it
        bounds mu at the threshold and converts. It refutes only such a claim.
        "shift" needs more: outputs (or scores) that are exactly normal with one variance, such as a linear statistic
        of Gaussian releases. It compares all scores instead of counting at a threshold, and refutes only such a claim.
    score : callable, optional
        Returns a number for an output, larger (or smaller) for the neighbour. Default: the output itself if it is a
        number; for arrays the linear discriminant of the first third of the runs.
    progress : bool, default=False
        Show a progress bar.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def release(total):
    ...     return total + rng.laplace(scale=1.0)  # epsilon = 1 if one person moves the total by 1
    >>> bound = lower_bound(release, 0.0, 1.0, delta=0.0, runs=3000)
    >>> 0.8 < bound.epsilon_lower <= 1.0
    True
    >>> bound.refutes(0.5)
    True
    """
    delta, method = checks.delta(delta), checks.one_of(method, BOUND_METHODS, "method")
    runs = checks.count(runs, "runs", least=30)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}.")
    if delta == 0 and method != "any":
        raise ValueError(f"delta must be positive for method={method!r}: Gaussian noise is never purely private.")
    first, second = (_outputs(fit, data, runs, score, progress) for data in (D, D_neighbour))
    if first.shape[1:] != second.shape[1:]:
        raise ValueError("outputs on both data sets must have one shape; another shape reveals the data set.")
    train = runs // 3
    a, b = _scalar_scores(first, second, train)
    return bound_from_scores(a, b, train=train, delta=delta, confidence=confidence, method=method)


def bound_from_scores(
    first: Scores, second: Scores, *, train: int, delta: float, confidence: float, method: str
) -> LowerBound:
    """Return the bound from one score per run; the first `train` of each data set only choose sign and threshold."""
    risk = 1.0 - confidence
    a, b, trials = first[train:], second[train:], len(first) - train
    if method == "shift":
        sign = 1.0 if second[:train].mean() >= first[:train].mean() else -1.0
        mu = mu_shift(sign * a, sign * b, risk=risk)
        epsilon = gaussian_epsilon(mu, delta)
        threshold = sign * float(np.mean([first[:train].mean(), second[:train].mean()]))
        false_positives, false_negatives = _errors(sign * a, sign * b, np.array([threshold]))
    else:
        sign, threshold, event = _choose(first[:train], second[:train], delta=delta, risk=risk, method=method)
        false_positives, false_negatives = _errors(sign * a, sign * b, np.array([threshold]))
        values = _values(false_positives, false_negatives, trials, delta=delta, risk=risk, method=method)[event]
        epsilon = float(values[0]) if method == "any" else gaussian_epsilon(float(values[0]), delta)
    return LowerBound(
        epsilon_lower=epsilon,
        delta=delta,
        method=method,
        runs=len(first),
        threshold=threshold,
        fpr=float(false_positives[0]) / trials,
        fnr=float(false_negatives[0]) / trials,
        confidence=confidence,
    )


def _choose(a: Scores, b: Scores, *, delta: float, risk: float, method: str) -> tuple[float, float, int]:
    """Return the sign, threshold and event that give the largest bound in the runs reserved for this choice."""
    best, chosen = -math.inf, (1.0, 0.0, 0)
    for sign in (1.0, -1.0):
        pooled = np.unique(np.concatenate([sign * a, sign * b]))
        # Midway between two adjacent scores, so that equal scores are on the same side in every run.
        cuts = (pooled[1:] + pooled[:-1]) / 2 if len(pooled) > 1 else pooled
        cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, 400).astype(int))]
        errors = _errors(sign * a, sign * b, cuts)
        for event, values in enumerate(_values(*errors, len(a), delta=delta, risk=risk, method=method)):
            at = int(np.argmax(values))
            if values[at] > best:
                best, chosen = float(values[at]), (sign, float(cuts[at]), event)
    return chosen


def _errors(a: Scores, b: Scores, cuts: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many scores of the first data set lie above each cut, and of the second at or below it."""
    above = len(a) - np.searchsorted(np.sort(a), cuts, side="right")
    below = np.searchsorted(np.sort(b), cuts, side="right")
    return above, below


def _values(
    false_positives: NDArray[np.int64],
    false_negatives: NDArray[np.int64],
    trials: int,
    *,
    delta: float,
    risk: float,
    method: str,
) -> list[Scores]:
    """Return bounds from these errors: on mu for "gaussian", else on epsilon for both orders of the data sets."""
    if method == "gaussian":
        return [mu_gaussian(false_positives, false_negatives, trials, risk=risk)]
    return [
        epsilon_any(trials - false_negatives, false_positives, trials, delta=delta, risk=risk),
        epsilon_any(trials - false_positives, false_negatives, trials, delta=delta, risk=risk),
    ]


def _outputs(
    fit: Callable[[Any], Any], data: Any, runs: int, score: Callable[[Any], float] | None, progress: bool
) -> Scores:
    """Return the outputs of `runs` runs on one data set, one row each (or one score each)."""
    many = getattr(fit, "many", None)
    drawn: Iterable[Any] = many(data, runs) if many is not None else (fit(data) for _ in range(runs))
    if progress:
        from rich.progress import track

        drawn = track(drawn, total=runs, description="audit")
    convert = _vector if score is None else score
    outputs = np.stack([np.asarray(convert(output), dtype=np.float64) for output in drawn])
    if not np.isfinite(outputs).all():
        raise ValueError("outputs must be finite numbers; give a score that returns finite numbers.")
    return outputs


def _vector(output: Any) -> Scores:
    """Return the output that an attacker sees as one array."""
    if hasattr(output, "coef_"):
        parts = [output.coef_, getattr(output, "intercept_", ())]
        return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)
    return np.ravel(np.asarray(output, dtype=np.float64))


def _scalar_scores(first: Scores, second: Scores, train: int) -> tuple[Scores, Scores]:
    """Return one score per run: the outputs themselves, or their linear discriminant in the first runs."""
    if first.ndim == 1 or first.shape[1] == 1:
        return first.reshape(-1), second.reshape(-1)
    a, b = first[:train], second[:train]
    gap = b.mean(axis=0) - a.mean(axis=0)
    spread = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
    scale = np.sqrt((spread**2).mean(axis=0))
    scale = np.where(scale > 0, scale, np.where(gap != 0, np.abs(gap) * 1e-6, 1.0))
    if first.shape[1] * 5 > train:
        # Too few runs to estimate correlations.
        direction = gap / scale**2
    else:
        correlation = (spread / scale).T @ (spread / scale) / len(spread)
        direction = np.linalg.solve(correlation + 1e-6 * np.eye(len(gap)), gap / scale) / scale
    return first @ direction, second @ direction
