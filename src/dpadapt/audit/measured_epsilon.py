"""`lower_bound`: the smallest epsilon that is compatible with many runs on two neighbouring data sets.

An attacker sees one output and guesses which of two neighbouring data sets it came from. Epsilon bounds the success of
every attacker, so a more successful attacker refutes the claimed epsilon.

`lower_limit` to `mu_shift` bound epsilon, or the mu of Gaussian privacy, from counts or scores. Each bound is wrong
with probability at most `risk`. Counts may be arrays.

A bound from below never proves a guarantee. It can refute a claim, and `LowerBound.runs_to_refute` says how many runs
it would take to refute a wrong one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.cost import gaussian_epsilon

BOUND_METHODS = ("any", "gaussian", "shift")
# Fewest runs on each data set: with fewer, a third of them could not choose a threshold.
LEAST_RUNS = 30
# Normal quantile of the bad luck that `LowerBound.runs_to_refute` allows for. Nominally that is 95%, but error rates at
# the best of many thresholds look better than they are. With normal, Laplace and discrete Laplace noise and randomized
# response, as many runs as 90 or 300 runs asked for refuted the claim with probability 0.65 to 1 (0.3 to 0.8 at 0.84).
_BAD_LUCK_QUANTILE = 1.65

Scores = NDArray[np.float64]


def lower_limit(hits: Any, trials: float, risk: float) -> NDArray[np.float64]:
    """Return the Clopper–Pearson lower limit on a probability."""
    from scipy.stats import beta

    hits = np.asarray(hits)
    limit = beta.ppf(risk, np.maximum(hits, 1), trials - hits + 1)
    return np.where(hits > 0, limit, 0.0)


def upper_limit(hits: Any, trials: float, risk: float) -> NDArray[np.float64]:
    """Return the Clopper–Pearson upper limit on a probability."""
    return 1.0 - lower_limit(trials - np.asarray(hits), trials, risk)


def epsilon_any(hits: Any, false_hits: Any, trials: float, *, delta: float, risk: float) -> NDArray[np.float64]:
    """Return a lower bound on epsilon from an event seen `hits` times on one data set, `false_hits` times on the other.

    (epsilon, delta)-privacy says p <= e^epsilon q + delta for every event and both orders of the data sets, whatever
    the mechanism. Half of `risk` goes to the limit on p, half to that on q.
    """
    p = lower_limit(hits, trials, risk / 2) - delta
    q = upper_limit(false_hits, trials, risk / 2)
    return np.asarray(np.maximum(0.0, np.log(np.maximum(p, 1e-300)) - np.log(q)))


def epsilon_errors(errors: Any, trials: float, *, delta: float, risk: float) -> NDArray[np.float64]:
    """Return a lower bound on epsilon from the wrong guesses in `trials` runs, half of them on each data set.

    Adding 1 - fnr <= e^epsilon fpr + delta and 1 - fpr <= e^epsilon fnr + delta gives (fpr + fnr) / 2 >= (1 - delta) /
    (1 + e^epsilon), whatever the mechanism. `risk` must be below 1/2, see `errors_limit`.
    """
    odds = (1.0 - delta) / errors_limit(errors, trials, risk) - 1.0
    return np.asarray(np.maximum(0.0, np.log(np.maximum(odds, 1e-300))))


def mu_gaussian(errors: Any, trials: float, *, risk: float) -> NDArray[np.float64]:
    """Return a lower bound on the mu of a Gaussian-private mechanism from the wrong guesses in `trials` runs.

    mu-GDP says that no test has fnr < Φ(Φ⁻¹(1 - fpr) - mu) (Dong, Roth and Su, "Gaussian differential privacy", 2022).
    This curve is convex and symmetric, so (fpr + fnr) / 2 is least where both are Φ(-mu / 2). Half of the runs must be
    on each data set, and `risk` below 1/2, see `errors_limit`.
    """
    from scipy.special import ndtri

    return np.asarray(np.maximum(0.0, -2.0 * ndtri(errors_limit(errors, trials, risk))))


def errors_limit(errors: Any, trials: float, risk: float) -> NDArray[np.float64]:
    """Return the upper limit on (fpr + fnr) / 2, if half of the runs are on each data set.

    The number of errors is a sum of independent Bernoulli variables with two probabilities. For c <= mean - 1 it is at
    most c with no greater probability than a binomial variable of the same mean (Hoeffding, "On the distribution of
    the number of successes in independent trials", 1956, Theorem 4). A binomial variable is below its median, hence at
    most mean - 1, where its distribution function is below `risk` < 1/2. So the Clopper–Pearson limit holds.
    """
    return upper_limit(errors, trials, risk)


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


def _expected_shift(fpr: float, fnr: float, trials: float, risk: float) -> float:
    """Return the `mu_shift` to expect, with some bad luck, from normal scores with these error rates."""
    from scipy.special import ndtri
    from scipy.stats import chi2

    mu = float(-ndtri(fpr) - ndtri(fnr))
    freedom = 2 * trials - 2
    wide = math.sqrt(freedom / float(chi2.ppf(risk / 2, freedom)))
    return max(0.0, mu / wide + (float(ndtri(risk / 2)) - _BAD_LUCK_QUANTILE) * math.sqrt(2 / trials))


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
    trials : int
        Runs on each data set that the bound was computed from: those that did not choose score and threshold.
    inequality : {"errors", "above", "below", "shift"}
        What the bound follows from: the number of wrong guesses; how much likelier a score above (below) the threshold
        is on one of the data sets; the difference of all scores.
    errors_seen : ndarray of shape (n_thresholds, 2)
        How many false positives and false negatives the thresholds that could have been chosen gave.
    seen : int
        In how many runs on each data set.
    """

    epsilon_lower: float
    delta: float
    method: str
    runs: int
    threshold: float
    fpr: float
    fnr: float
    confidence: float
    trials: int
    inequality: str
    errors_seen: NDArray[np.int64] = field(repr=False, compare=False)
    seen: int

    def refutes(self, epsilon: float) -> bool:
        """Return whether a claim of `epsilon` (at the same delta) is refuted."""
        return self.epsilon_lower > epsilon

    def runs_to_refute(self, epsilon: float) -> float:
        """Return about how many runs on each data set would refute a claim of `epsilon`; inf if no number would.

        With that many runs the same attack would probably refute the claim, if its true error rates are those seen here
        (each with one more error, since a rate of 0 is never seen for certain).
        """
        rates = (self.errors_seen + 1) / (self.seen + 2)

        def enough(runs: float) -> bool:
            return self._expected(runs * self.trials / self.runs, rates) > epsilon

        few, many = 0.0, float(LEAST_RUNS)
        while not enough(many):
            few, many = many, 2 * many
            if many > 1e9:  # beyond it, runs are no remedy
                return math.inf
        while many - few > 0.01 * many:
            middle = (few + many) / 2
            few, many = (few, middle) if enough(middle) else (middle, many)
        return float(math.ceil(many))

    def _expected(self, trials: float, rates: NDArray[np.float64]) -> float:
        """Return the bound that `trials` runs on each data set give with some bad luck, at the best threshold."""
        risk = 1.0 - self.confidence

        def unlucky(share: NDArray[np.float64], of: float, quantile: float) -> NDArray[np.float64]:
            """Return the number of errors in `of` runs that is exceeded by bad luck only."""
            return np.minimum(of, share * of + quantile * np.sqrt(of * share * (1 - share)))

        if self.method == "shift":
            return gaussian_epsilon(_expected_shift(float(rates[0, 0]), float(rates[0, 1]), trials, risk), self.delta)
        both = 2 * trials
        errors = unlucky(rates.mean(axis=1), both, _BAD_LUCK_QUANTILE)
        if self.method == "gaussian":
            return gaussian_epsilon(float(mu_gaussian(errors, both, risk=risk).max()), self.delta)
        values = [epsilon_errors(errors, both, delta=self.delta, risk=risk)]
        if self.trials < self.runs:
            # Two counts are unlucky at once: each by 1 / sqrt 2 of what one alone would be.
            wrong = unlucky(rates, trials, _BAD_LUCK_QUANTILE / math.sqrt(2))
            for first, second in ((0, 1), (1, 0)):
                hits, false_hits = trials - wrong[:, second], wrong[:, first]
                values.append(epsilon_any(hits, false_hits, trials, delta=self.delta, risk=risk))
        return float(np.max(values))

    def __str__(self) -> str:
        assumptions = {
            "any": "any mechanism",
            "gaussian": "if it is Gaussian-private",
            "shift": "if its noise is normal",
        }
        return (
            f"epsilon >= {self.epsilon_lower:.3f} at delta = {self.delta:.3g} ({self.confidence:.6g} confidence, "
            f"{assumptions[self.method]}; {self.runs} runs on each data set, fpr {self.fpr:.3g}, fnr {self.fnr:.3g})"
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
    threshold: float | None = None,
) -> LowerBound:
    """Return a lower bound on the epsilon of `fit`, from `runs` runs on each of two neighbouring data sets.

    Parameters
    ----------
    fit : callable
        Takes one of the data sets, returns what an attacker sees: a number, an array, or an estimator with `coef_`. Its
        noise must be fresh in every call. If it has a method `many(data, runs)`, that is called instead, for many runs
        at a time, and returns the outputs stacked.
    D, D_neighbour : object
        Two neighbouring data sets under the claimed guarantee. The more their outputs differ, the closer the bound
        comes to the true epsilon.
    delta : float
        In [0, 1). Epsilon is measured at this delta; "gaussian" and "shift" need it positive.
    runs : int
        How often to run `fit` on each data set; at least 30. The first third chooses score and threshold, the bound is
        computed from the rest.
    confidence : float, default=0.95
        Probability with which the bound holds, above 0.5 and below 1; 1 - confidence is the false-alarm rate of
        `LowerBound.refutes`.
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
    threshold : float, optional
        The neighbour is guessed if the score is above it. Only for scores whose best threshold is known beforehand,
        such as log-likelihood ratios (0): no run is then spent on choosing.

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
    runs = checks.count(runs, "runs", least=LEAST_RUNS)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0.5 < confidence < 1:
        raise ValueError(f"confidence must be above 0.5 and below 1, got {confidence!r}.")
    if delta == 0 and method != "any":
        raise ValueError(f"delta must be positive for method={method!r}: Gaussian noise is never purely private.")
    first, second = (_outputs(fit, data, runs, score) for data in (D, D_neighbour))
    if first.shape[1:] != second.shape[1:]:
        raise ValueError("outputs on both data sets must have one shape; another shape reveals the data set.")
    train = runs // 3 if threshold is None else 0
    if threshold is not None and (method == "shift" or (first.ndim > 1 and first.shape[1] > 1)):
        raise ValueError('threshold is for outputs that are one number, and not for method="shift". Leave it out.')
    a, b = _scalar_scores(first, second, train)
    return bound_from_scores(a, b, train=train, delta=delta, confidence=confidence, method=method, threshold=threshold)


def bound_from_scores(
    first: Scores,
    second: Scores,
    *,
    train: int,
    delta: float,
    confidence: float,
    method: str,
    threshold: float | None = None,
) -> LowerBound:
    """Return the bound from one score per run.

    The first `train` scores of each data set only choose sign, threshold and inequality. With a `threshold` nothing is
    chosen, and the bound follows from the number of wrong guesses.
    """
    risk = 1.0 - confidence
    a, b, trials = first[train:], second[train:], len(first) - train
    sign, inequality = 1.0, "errors"
    if method == "shift":
        sign = 1.0 if second[:train].mean() >= first[:train].mean() else -1.0
        threshold, inequality = sign * float(np.mean([first[:train].mean(), second[:train].mean()])), "shift"
    elif threshold is None:
        sign, threshold, inequality = _choose(first[:train], second[:train], delta=delta, risk=risk, method=method)
    false_positives, false_negatives = _errors(sign * a, sign * b, np.array([threshold]))
    errors_seen = np.column_stack([false_positives, false_negatives])
    if train and method != "shift":
        errors_seen = np.vstack(
            [np.column_stack(_errors(s * first, s * second, _cuts(s * first, s * second))) for s in (1.0, -1.0)]
        )
    if method == "shift":
        value = mu_shift(sign * a, sign * b, risk=risk)
    else:
        bounds = _values(false_positives, false_negatives, trials, delta=delta, risk=risk, method=method)
        value = float(bounds[inequality][0])
    return LowerBound(
        epsilon_lower=value if method == "any" else gaussian_epsilon(value, delta),
        delta=delta,
        method=method,
        runs=len(first),
        threshold=threshold,
        fpr=float(false_positives[0]) / trials,
        fnr=float(false_negatives[0]) / trials,
        confidence=float(confidence),
        trials=trials,
        inequality=inequality,
        errors_seen=errors_seen,
        seen=trials if len(errors_seen) == 1 else len(first),
    )


def _choose(a: Scores, b: Scores, *, delta: float, risk: float, method: str) -> tuple[float, float, str]:
    """Return the sign, threshold and inequality that give the largest bound in the runs reserved for this choice."""
    best, chosen = -math.inf, (1.0, 0.0, "errors")
    for sign in (1.0, -1.0):
        cuts = _cuts(sign * a, sign * b)
        errors = _errors(sign * a, sign * b, cuts)
        for inequality, values in _values(*errors, len(a), delta=delta, risk=risk, method=method).items():
            at = int(np.argmax(values))
            if values[at] > best:
                best, chosen = float(values[at]), (sign, float(cuts[at]), inequality)
    return chosen


def _cuts(a: Scores, b: Scores) -> Scores:
    """Return thresholds to choose from, at most 400."""
    pooled = np.unique(np.concatenate([a, b]))
    # Midway between two adjacent scores, so that equal scores are on the same side in every run.
    cuts = (pooled[1:] + pooled[:-1]) / 2 if len(pooled) > 1 else pooled
    return np.asarray(cuts[np.unique(np.linspace(0, len(cuts) - 1, 400).astype(int))])


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
) -> dict[str, Scores]:
    """Return bounds from these errors by inequality: on mu for "gaussian", else on epsilon."""
    errors = false_positives + false_negatives
    if method == "gaussian":
        return {"errors": mu_gaussian(errors, 2 * trials, risk=risk)}
    return {
        "above": epsilon_any(trials - false_negatives, false_positives, trials, delta=delta, risk=risk),
        "below": epsilon_any(trials - false_positives, false_negatives, trials, delta=delta, risk=risk),
        "errors": epsilon_errors(errors, 2 * trials, delta=delta, risk=risk),
    }


def _outputs(fit: Callable[[Any], Any], data: Any, runs: int, score: Callable[[Any], float] | None) -> Scores:
    """Return the outputs of `runs` runs on one data set, one row each (or one score each)."""
    convert = _vector if score is None else score
    outputs = np.stack([np.asarray(convert(output), dtype=np.float64) for output in _drawn(fit, data, runs)])
    if not np.isfinite(outputs).all():
        raise ValueError("outputs must be finite numbers; give a score that returns finite numbers.")
    return outputs


def _drawn(fit: Callable[[Any], Any], data: Any, runs: int) -> Iterator[Any]:
    """Yield the outputs of `runs` runs, those of `many` in blocks."""
    many = getattr(fit, "many", None)
    # Larger blocks are quicker and take more memory.
    block = 1 if many is None else 5_000
    for start in range(0, runs, block):
        size = min(block, runs - start)
        yield from [fit(data)] if many is None else many(data, size)


def _vector(output: Any) -> Scores:
    """Return the output that an attacker sees as one array."""
    if hasattr(output, "coef_"):
        names = ("coef_", "intercept_", "score_coef_", "level_", "correction_")
        parts = [part for name in names if (part := getattr(output, name, None)) is not None]
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
