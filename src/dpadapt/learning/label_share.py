"""The share of labels that can be read, as released: how sure it is, and what it leaves of a number of rows."""

from dataclasses import dataclass, replace

from scipy.special import ndtri

from dpadapt.learning.budget import Budget

# Labels count as readable if their number exceeds 0 by this many standard deviations of its noise: if there are none,
# 6 of 1,000 fits take noise for labels. A larger number leaves more fits of few rows at the public model.
_USABLE_DEVIATIONS = 2.5


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
