"""Prediction intervals and prediction sets of the transfer estimators: conformal calibration with one private release.

A fitted model gives each private row a score: the size of its residual, or the negative logarithm of the probability of
its class. Public numbers divide the range of scores into bins, and one release tells how many private scores lie above
each of these numbers. `Calibration.limit` turns that into the score that new rows exceed with a given probability.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from dpadapt import checks
from dpadapt.accounting.ledger import Run
from dpadapt.errors import CalibrationWarning
from dpadapt.learning.base import Budget
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, added, square_root_histogram
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.mechanisms.prefix_sums import cumulative
from dpadapt.rows import Blocks, Part
from dpadapt.transfer.base import LONGEST_CELL

Vector = NDArray[np.float64]

# The plan

# The calibration gets the share of the budget (of mu squared) that makes n mu sqrt(share) equal to this number, within
# limits. At 230, one standard deviation of the noise in a count is about 1% of the rows, and of the coverage. A larger
# share narrows intervals and leaves less for the model; that of sets is limited more, because a classification with
# many classes has few rows of each. Chosen by hand; `python -m benchmarks intervals` prints what it adds to the errors.
_CALIBRATION_SIGNAL, _INTERVAL_SHARES, _SET_SHARES = 230.0, (0.02, 0.1), (0.02, 0.05)
# How many standard deviations of its noise a count is assumed to be above what was released. The coverage rises by as
# many standard deviations of the noise, divided by the number of rows: at epsilon 1 and 1,000 rows, where one standard
# deviation is 4% of the rows, by half a point. It makes up for rows that are used twice: residuals of rows that a model
# was fitted to are smaller than those of new rows. Sets have more of it: classifications with many classes fit their
# rows more closely. Chosen by hand; `python -m benchmarks intervals` prints coverages and widths.
_INTERVAL_CAUTION, _SET_CAUTION = 0.15, 0.4


@dataclass(frozen=True)
class CalibrationPlan:
    """What the calibration will release; made from public facts alone.

    Parameters
    ----------
    multiplier : float
        Noise multiplier of the one release.
    budget : Budget
        What the calibration leaves for the model.
    caution : float
        How many standard deviations of its noise each released count is raised by.
    """

    multiplier: float
    budget: Budget
    caution: float

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged, together with the releases of the model."""
        return [(Repeated(Gaussian(self.multiplier)), "calibration")]


def interval_plan(budget: Budget) -> CalibrationPlan:
    """Return the plan that shares a budget between a regression and the calibration of its intervals.

    Examples
    --------
    >>> plan = interval_plan(Budget(mu=0.5, n_rows=10_000.0, factor=1.0))
    >>> round(plan.budget.mu**2 + plan.multiplier**-2, 12)
    0.25
    """
    return _calibration_plan(budget, _INTERVAL_SHARES, _INTERVAL_CAUTION)


def set_plan(budget: Budget) -> CalibrationPlan:
    """Return the plan that shares a budget between a classification and the calibration of its sets."""
    return _calibration_plan(budget, _SET_SHARES, _SET_CAUTION)


def _calibration_plan(budget: Budget, shares: tuple[float, float], caution: float) -> CalibrationPlan:
    least, most = shares
    share = min(max((_CALIBRATION_SIGNAL * budget.factor / (budget.mu * budget.n_rows)) ** 2, least), most)
    rest = replace(budget, mu=budget.mu * math.sqrt(1.0 - share))
    return CalibrationPlan(1.0 / (budget.mu * math.sqrt(share)), rest, caution)


# The release

# Ratios of neighbouring bounds of bins. A limit is rounded up to such a bound, so intervals are too wide by half a step
# on average: 1%. Smaller steps need more bins, which adds noise with the logarithm of their number: half the step adds
# 8% to it. With many rows the rounding of an interval matters more than the noise; the size of a set depends less on
# the exact limit. A limit between two bounds would be narrower still, but would miss ties: if the features are few
# categories, many rows have the same score. Chosen by hand; `python -m benchmarks intervals` prints the widths.
_RESIDUAL_RATIO, _LOG_LOSS_RATIO = 1.02, 1.04
# Range of the bounds for a regression, in units of the 90% quantile of the public errors. Private errors may be larger
# than public ones, and small coverages need small scores. Chosen by hand.
_RESIDUAL_RANGE = (0.1, 30.0)
# Range of the bounds for a classification, in nats: probabilities from 0.995 to 0.000006. Chosen by hand.
_LOG_LOSS_RANGE = (0.005, 12.0)
# Least scale of public errors, in their standard deviation, where most of them are 0. Chosen by hand.
_LEAST_RESIDUAL = 1e-3
# Share of a bin below its upper bound in which a score counts partly in the next bin. Products of matrices are rounded
# differently if there is one row more. Without this, such a rounding could move another record by a whole bin. It only
# has to be far above the rounding.
_BIN_EDGE = 0.01
# A calibration is imprecise if one standard deviation of the noise in a count is more than this share of the number of
# rows that may lie outside: for intervals of 90% and a tenth of the budget, if n mu < 151. Chosen by hand.
_IMPRECISE = 0.6


def residual_bounds(residuals: Vector) -> Vector:
    """Return the bounds of the bins for a regression, from errors on public rows."""
    sizes = np.abs(residuals)
    least = max(_LEAST_RESIDUAL * math.sqrt(float(np.mean(sizes**2))), 1e-150)
    return _bounds(_RESIDUAL_RANGE, _RESIDUAL_RATIO) * max(float(np.quantile(sizes, 0.9)), least)


def log_loss_bounds() -> Vector:
    """Return the bounds of the bins for a classification; log-losses have a unit of their own."""
    return _bounds(_LOG_LOSS_RANGE, _LOG_LOSS_RATIO)


def _bounds(limits: tuple[float, float], ratio: float) -> Vector:
    low, high = limits
    return np.asarray(low * ratio ** np.arange(math.ceil(math.log(high / low, ratio)) + 1))


def log_losses(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the negative logarithms of probabilities."""
    return np.asarray(-np.log(np.maximum(probabilities, 1e-300)))


@dataclass(frozen=True, eq=False)
class Calibration:
    """How large the scores of private rows are, as one release tells.

    Parameters
    ----------
    bounds : ndarray of shape (n_bounds,)
        Public scores, increasing.
    above : ndarray of shape (n_bounds,)
        Released number of rows (persons, if these are protected) with a larger score; not increasing.
    noise : ndarray of shape (n_bounds,)
        Standard deviation of the noise in each of these numbers.
    n_rows : float
        Released number of all rows that count.
    caution : float
        How many standard deviations of its noise each number is raised by.
    """

    bounds: Vector = field(repr=False)
    above: Vector = field(repr=False)
    noise: Vector = field(repr=False)
    n_rows: float
    caution: float

    def limit(self, coverage: float) -> float:
        """Return the least bound that a new row exceeds with probability at most 1 - coverage; infinity if none is.

        With exact counts this is split conformal prediction: at most (1 - coverage) (n + 1) - 1 scores lie above it.
        """
        # A coverage such as 0.9 is no exact float; a billionth of a row is nothing.
        allowed = (1.0 - coverage) * (self.n_rows + 1.0) - 1.0 + 1e-9
        enough = np.flatnonzero(self.above + self.caution * self.noise <= allowed)
        return float(self.bounds[enough[0]]) if len(enough) else math.inf

    def imprecise(self, coverage: float) -> bool:
        """Return whether the noise is large beside the number of rows that may lie outside."""
        return bool(self.noise.max() > _IMPRECISE * (1.0 - coverage) * self.n_rows)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as named arrays, for saving."""
        numbers = {"n_rows": np.array(self.n_rows), "caution": np.array(self.caution)}
        return {"bounds": self.bounds, "above": self.above, "noise": self.noise} | numbers

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Calibration":
        """Return the calibration that `arrays` came from; damaged ones are errors."""
        tables = arrays["bounds"], arrays["above"], arrays["noise"]
        made = cls(*tables, float(arrays["n_rows"]), float(arrays["caution"]))
        numbers = np.array([made.bounds, made.above, made.noise], dtype=np.float64)
        if made.arrays().keys() != arrays.keys() or numbers.ndim != 2 or not np.isfinite(numbers).all():
            raise ValueError("the calibration is damaged.")
        return made


def calibrated(
    run: Run,
    bounds: Vector,
    scores: Callable[[Part], Vector],
    rows: Blocks[Part],
    *,
    plan: CalibrationPlan,
    adjacency: Adjacency,
) -> Calibration:
    """Release how many private scores lie above each bound.

    Parameters
    ----------
    run : Run
    bounds : ndarray
        Public.
    scores : callable
        Returns the scores of some private rows; each from its own row and from earlier releases alone.
    rows : Blocks of Part
        The private rows: one that is too long for a float is null, here as in other releases.
    plan : CalibrationPlan
    adjacency : Adjacency
    """

    # Bins from large scores to small ones: the first cumulative counts have least noise, and high coverages need these.
    def histogram(part: Part) -> Bounded:
        return square_root_histogram(_places(bounds, scores(part), part.X), len(bounds) + 1, part.shares)

    counts = added(rows.results(histogram))
    sums, spread = cumulative(run.release(counts))
    noise = spread * plan.multiplier * counts.sensitivity("l2", adjacency)
    # True counts increase; this makes the released ones do so, with the least change.
    sums = isotonic_regression(sums, sample_weight=noise**-2, y_min=0.0)
    # The last bin has the scores below all bounds, so the last sum is the number of all rows that count. Rows without a
    # label don't count. Unless it is only an estimate, the given number of rows is the most there can be.
    total = float(sums[-1])
    if adjacency is not Adjacency.ADD_REMOVE:
        total = min(total, plan.budget.n_rows)
    return Calibration(bounds, sums[-2::-1].copy(), noise[-2::-1].copy(), total, plan.caution)


def _places(bounds: Vector, scores: Vector, X: NDArray[Any]) -> Vector:
    """Return where each row counts: at 0 above all bounds, at `len(bounds)` below all; NaN for a null row."""
    with np.errstate(all="ignore"):
        # 0 at the first bound, 1 at the second, and so on; all neighbouring bounds have the same ratio.
        steps = np.log(scores / bounds[0]) / math.log(bounds[-1] / bounds[0]) * (len(bounds) - 1)
        whole = np.floor(steps)
        partly = np.clip((steps - whole - (1.0 - _BIN_EDGE)) / _BIN_EDGE, 0.0, 1.0)
        # A score equal to a bound counts as larger.
        above = np.clip(np.where(np.isfinite(steps), whole + partly, steps) + 1.0, 0.0, len(bounds))
        null = ~(np.abs(X).max(axis=1) <= LONGEST_CELL)
    return np.where(null, np.nan, len(bounds) - above)


# What users see

_MEANING = (
    "Intervals and sets of a coverage of 90% hold the label of about 90% of new rows, on average over rows and fits. "
    "This assumes that new rows come from the population of the private rows, and says nothing about single groups of "
    "rows."
)
_MEANING_FOR_PERSONS = " A person counts alike whatever the number of rows."


def coverage_in_words(unit: str) -> str:
    """Return what coverage means, for a report."""
    return _MEANING + (_MEANING_FOR_PERSONS if unit == "person" else "")


def require_public(given: Any, what: str) -> None:
    """Refuse intervals where there is no public data to plan them with."""
    if given is None:
        raise ValueError(
            f"intervals=True needs {what}, which say how finely to count the errors of private rows. Give them, or use "
            f"intervals=False."
        )


def score_limit(calibration: Calibration | None, coverage: float, *, asked: bool) -> float:
    """Return the limit of scores for a coverage, with a warning where the calibration is too imprecise for it.

    `asked` says whether the fit was asked for intervals.
    """
    level = checks.inside_unit(coverage, "coverage")
    if calibration is None:
        if not asked:
            raise ValueError("the model was fitted without intervals. Fit it with intervals=True.")
        limit, words = math.inf, "the budget was too small to release anything"
    else:
        limit, words = calibration.limit(level), ""
        if math.isinf(limit):
            words = "the budget is too small for this many rows to find a limit at this coverage"
        elif calibration.imprecise(level):
            words = "the budget is too small for this many rows to calibrate this coverage well"
    if words:
        result = "they are infinite" if math.isinf(limit) else "they may be far too wide, and cover less than asked for"
        warnings.warn(
            f"intervals of coverage {level:g}: {words}; {result}. Ask for a smaller coverage, or fit with a larger "
            f"epsilon or more rows.",
            CalibrationWarning,
            stacklevel=3,
        )
    return limit
