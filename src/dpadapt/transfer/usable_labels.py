"""How many private rows have a label that could be read: one count, released before anything is corrected.

A row without a readable label counts nothing in any release, so every sum over such rows is 0. A mean of 0 would say
that a correction neither gains nor harms; rows that say nothing must not say that. So all sums are divided by the
number of rows that count, and where that number does not exceed its noise the public model stays as it is.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from dpadapt.accounting.ledger import Run
from dpadapt.learning.base import Budget
from dpadapt.mechanisms.bounded import Bounded, added, votes
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Blocks, Part
from dpadapt.transfer.base import LONGEST_CELL

# The count gets the share of the budget (of mu squared) that makes n mu sqrt(share) equal to this number, within
# limits: one standard deviation of its noise is then a tenth of the rows. A larger one leaves less for the model.
# Chosen by hand.
_COUNT_SIGNAL, _COUNT_SHARES = 10.0, (0.002, 0.1)
# Labels count as readable if their number exceeds 0 by this many standard deviations of its noise: if there are none,
# 6 of 1,000 fits take noise for labels. A larger number leaves more fits of few rows at the public model.
_USABLE_DEVIATIONS = 2.5

NO_LABELS_NOTE = (
    "the number of readable private labels did not exceed its noise, so the model is the public one, or a constant "
    "without public labels; the budget was spent. Compare how labels are written in the private and in the public table"
)


@dataclass(frozen=True)
class UsableLabels:
    """The share of private rows, or of people, with a readable label, as released, and the deviation of its noise."""

    share: float
    noise: float

    @property
    def none(self) -> bool:
        """Whether noise alone may explain the share."""
        return self.share <= _USABLE_DEVIATIONS * self.noise

    def budget(self, budget: Budget) -> Budget:
        """Return the budget with the number of rows that count, which must not be `none`; never more rows than given.

        Means are then means over rows with a label, and their noise is that of so few rows.
        """
        return replace(budget, n_rows=budget.n_rows * min(self.share, 1.0))

    def interval(self) -> tuple[float, float, float]:
        """Return the share and the ends of a 90% interval, each from 0 to 1; the lower end is 0 if there are `none`."""
        half = float(ndtri(0.95)) * self.noise
        estimate, low, high = (min(max(self.share + move, 0.0), 1.0) for move in (0.0, -half, half))
        return estimate, 0.0 if self.none else low, high


@dataclass(frozen=True)
class CountPlan:
    """What the count will release; made from public facts alone.

    Parameters
    ----------
    multiplier : float
        Noise multiplier of the one release.
    budget : Budget
        What the count leaves for the model.
    """

    multiplier: float
    budget: Budget

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged, together with the releases of the model."""
        return [(Repeated(Gaussian(self.multiplier)), "usable labels")]

    def usable_labels(self, run: Run, rows: Blocks[Part]) -> UsableLabels:
        """Release how many rows have a readable label."""
        n_rows = self.budget.n_rows
        total = float(run.release(added(rows.results(_readable)))[0])
        return UsableLabels(total / n_rows, self.multiplier / n_rows)


def count_plan(budget: Budget) -> CountPlan:
    """Return the plan that shares a budget between a model and the count of readable labels.

    Examples
    --------
    >>> plan = count_plan(Budget(mu=0.5, n_rows=10_000.0, factor=1.0))
    >>> round(plan.budget.mu**2 + plan.multiplier**-2, 12)
    0.25
    """
    least, most = _COUNT_SHARES
    share = min(max((_COUNT_SIGNAL / (budget.mu * budget.n_rows)) ** 2, least), most)
    return CountPlan(1.0 / (budget.mu * math.sqrt(share)), replace(budget, mu=budget.mu * math.sqrt(1.0 - share)))


def _readable(part: Part) -> Bounded:
    with np.errstate(all="ignore"):
        # A row that is too long for a float counts nothing in other releases.
        readable = np.isfinite(part.y) & (np.abs(part.X).max(axis=1, initial=0.0) <= LONGEST_CELL)
    # Claim: |sum - sum'| <= 1, zeroed or replaced, by `votes`. A row's entry is 0 or 1, depends on that row alone, and
    # is multiplied by its share, which is 0 for a row without a readable label; the shares of one person's rows add up
    # to at most 1.
    return votes(readable.astype(np.float64)[:, None], part.shares)
