"""`Filter`: decides whether a ledger accepts a charge, so that its cap holds however the charges are chosen.

Composing all events and comparing the result with the cap is right for events that were fixed in advance. It is wrong
for an analyst who looks at one answer before choosing the next question: charges accepted that way reach about
twice the cap's delta (`python -m benchmarks ledger`). The filter keeps three sums instead: epsilons as anybody adds
them up, Gaussian noise, and Rényi divergences. Each bounds the privacy loss of every adaptive choice, and the least
counts; `Filter.needs` states the rule and its proof.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.cost import (
    Tally,
    add_entries,
    composed_epsilon,
    gaussian_epsilon,
    gaussian_mu,
    grid_for,
    pld,
    pld_supports,
    pure_epsilon,
    quick_epsilon,
    rdp_supports,
    rounding,
    tally,
)
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, Event, GaussianEvent, SampledEvent
from dpadapt.mechanisms.mechanism import Mechanism, Plan

# Relative tolerance of a cap. Noise that is calibrated to the cap costs it up to 1e-10; rounding must not refuse it.
_CAP_TOLERANCE = 1e-9
# Shares of delta that the Gaussian and the plain sum get; the Rényi sum gets the rest. Half of delta for a sum raises
# the epsilon of Gaussian noise by 3% to 5%, so no sum can have much less than half, and the two that most people need
# have the most. "gaussian" and "renyi" leave out one of the others (docs/benchmarks/ledger.md).
_SHARES = {"mixed": (0.42, 0.5), "gaussian": (0.55, 0.45), "renyi": (0.0, 0.45)}
RULES = tuple(_SHARES)
# A charge takes its part of the plain sum's delta if this lowers its epsilon by more than 2%. One pure release gains
# less than 0.01%; many that are charged together gain much.
_WORTH_A_PART = 0.98
# Each part is half of what is left. Further parts would be too small for the distributions of sampled runs.
_MOST_PARTS = 30
# Factor on the order that is best for the Rényi sum alone. With the larger order the Rényi sum is better where the
# Gaussian sum is worse. Chosen by hand, on the mixtures of docs/benchmarks/ledger.md.
_ORDER_FACTOR = 1.25
# A float holds every whole number up to this one. Only caps far too small for any use would need a larger order.
_LARGEST_ORDER = 2**53
# Sampled Gaussian runs are converted to mu up to a probability of this share of the Gaussian sum's delta each. After
# this many of them the Gaussian sum is full. A smaller share makes each run dearer, a larger one allows fewer runs.
_TAIL_SHARE = 1e-5
_MOST_SAMPLED_RUNS = 1000
# Least delta of a cap: the parts that it is shared out in must be normal floats. Practical values are above 1e-20.
_LEAST_DELTA = 1e-300
# Number of points at which the profile of a sampled run is compared with a Gaussian one. More points cost more time;
# fewer give a larger mu: at 1,000, the mu is about 0.1% above the limit of many points.
_PROFILE_POINTS = 1000
# A sampled run with a larger epsilon is charged as if it used all rows: its distribution would take too much memory.
_LARGEST_PROFILE_EPSILON = 100.0


@dataclass(frozen=True)
class Sums:
    """What charges add up to.

    Parameters
    ----------
    plain : float
        Sum of the epsilons of the charges, each at a part of delta of its own, or at 0 if it is as good as pure.
    gaussian : float
        Sum of mu², each mu that of a Gaussian release at least as informative.
    renyi : float
        Sum of Rényi divergences of the filter's order.
    sampled : int
        Number of sampled Gaussian runs.
    charges : int
        Number of charges.
    parts : int
        Number of charges that took a part of the plain sum's delta.
    """

    plain: float = 0.0
    gaussian: float = 0.0
    renyi: float = 0.0
    sampled: int = 0
    charges: int = 0
    parts: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums of both."""
        return Sums(
            self.plain + other.plain,
            self.gaussian + other.gaussian,
            self.renyi + other.renyi,
            self.sampled + other.sampled,
            self.charges + other.charges,
            self.parts + other.parts,
        )


@dataclass(frozen=True)
class Filter:
    """The terms on which charges are accepted, fixed before the first one.

    Parameters
    ----------
    epsilon, delta : float
        The cap.
    adjacency : Adjacency
    share : float
        The share of delta that belongs to the Gaussian sum.
    order : int
        The order of the Rényi sum, at least 2.
    plain_share : float, default=0.0
        The share of delta that belongs to the plain sum; what neither sum has belongs to the Rényi sum.

    Examples
    --------
    >>> from dpadapt.mechanisms.events import GaussianEvent
    >>> terms = Filter.of("mixed", 1.0, 1e-6, Adjacency.ZERO_OUT)
    >>> charge = [Entry("a sum", GaussianEvent(10.0))]
    >>> first, second = terms.needs(Sums(), charge), terms.needs(terms.sums(charge), charge)
    >>> round(first, 3), round(second, 3)
    (0.397, 0.603)
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    share: float
    order: int
    plain_share: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon", infinite=True)
        if 0 < checks.delta(self.delta) < _LEAST_DELTA:
            raise ValueError(
                f"delta must be 0 or at least {_LEAST_DELTA:g}, got {self.delta!r}. A common choice is 1e-6."
            )
        if not (self.share >= 0 and self.plain_share >= 0 and self.share + self.plain_share <= 1):
            raise ValueError("the shares of delta must not be negative, nor more than 1 together.")
        checks.count(self.order, "order", least=2)

    @classmethod
    def of(cls, rule: str, epsilon: float, delta: float, adjacency: Adjacency) -> "Filter":
        """Return the filter of a rule: "mixed", "gaussian" or "renyi"."""
        share, plain = _SHARES[checks.one_of(rule, RULES, "rule")]
        epsilon, delta = checks.positive(epsilon, "epsilon", infinite=True), checks.delta(delta)
        return cls(epsilon, delta, adjacency, share, _order(epsilon, (1 - (share + plain)) * delta, share), plain)

    @property
    def rule(self) -> str:
        """The name of the rule, by the sums that have a share of delta."""
        if not self.share:
            return "renyi"
        return "mixed" if self.share + self.plain_share < 1 else "gaussian"

    def sums(self, charge: Sequence[Entry], before: Sums = Sums()) -> Sums:
        """Return what entries that are charged together, after charges that add up to `before`, add to each sum."""
        epsilon, parts = self._plain(charge, before.parts)
        total = Sums(plain=epsilon, charges=1, parts=parts)
        for entry in charge:
            total += self._sums(entry.event, entry.times)
        return total

    def _plain(self, charge: Sequence[Entry], parts: int) -> tuple[float, int]:
        """Return the epsilon of a charge in the plain sum, and 1 if it takes a part of delta."""
        counted = add_entries({}, charge)
        pure, part = pure_epsilon(counted), self._part(parts)
        if part:
            epsilon = composed_epsilon(counted, part, self.adjacency)
            if epsilon < _WORTH_A_PART * pure:
                return epsilon, 1
        return pure, 0

    def _part(self, parts: int) -> float:
        """Return the part of delta for the next charge in the plain sum: half of what `parts` charges have left.

        Claim: the parts of all charges add up to at most plain_share · delta. It is the sum of the series 1/2 + 1/4 +
        ... times this, and each part is fixed by the number of parts before it, not by any outcome.
        """
        return math.ldexp(self.plain_share * self.delta, -parts - 1) if parts < _MOST_PARTS else 0.0

    def needs(self, before: Sums, charge: Sequence[Entry]) -> float:
        """Return the least cap epsilon at which `charge` is accepted after charges that add up to `before`.

        The ledger accepts the charge if this is at most its own cap.

        **Rule.** A charge is accepted if at least one of the three sums, with the charge, stays within its cap:

        - plain: Σ epsilon_i <= epsilon, where charge i has epsilon_i at a delta_i that was fixed before it, and the sum
          of all delta_i is at most delta_P = plain_share · delta; a charge that is as good as pure has delta_i = 0;
        - Gaussian: Σ mu_i² <= mu², where a mu-Gaussian release has epsilon at delta_G = share · delta;
        - Rényi of order a: Σ rho_i <= B = epsilon + (ln delta_R + ln a) / (a - 1) - ln(1 - 1/a), where
          delta_R = delta - delta_P - delta_G;

        or if it is the first charge and its own exact cost is at most epsilon. Sums never decrease: a sum that a charge
        has passed is of no more use. A charge that is refused adds to none.

        Claim: everything released under this rule is (epsilon, delta)-private for any analyst who chooses each
        charge, and the steps of charged runs in any order, by all that was released before.

        **Proof.** Fix two neighbouring data sets with output laws P and Q, and let L be the log-likelihood ratio of all
        outputs so far, under P. H_R(x) is the hockey-stick divergence of a pair R of laws at e^x. While a sum is
        within its cap, let

        - V_plain = delta_P - Σ delta_i + H_R(Σ epsilon_i - L), where R is the product of all steps that were charged
          and not yet made;
        - V_Gaussian = H_R(epsilon - L), where R is the product of all steps that were charged and not yet made, a
          Gaussian pair of the remaining r = sqrt(mu² - Σ mu_i²), and a pair that tells P and Q apart with the part of
          delta_G that is kept for sampled runs;
        - V_Rényi = (1/a) (1 - 1/a)^(a-1) exp((a-1) (L - Σ rho_i + B - epsilon)), Σ over the steps that were made;

        and 0 from the moment when the sum passes its cap. Let V be the sum of the three. (1) V is a nonnegative
        supermartingale. Making a step replaces its factor in R by its outcome in L, which does not raise the mean. For
        the plain sum: a charge D multiplies R by D and adds its epsilon_i and delta_i, and H_{R × D}(x + epsilon_i) <=
        H_R(x) + H_D(epsilon_i) <= H_R(x) + delta_i, because 1 - uv <= (1 - u)_+ + (1 - v)_+ for all u, v >= 0. For the
        Gaussian sum: a charge D that a mu_i-Gaussian pair dominates may replace part of R, because D × G_r' is
        dominated by G_r for r'² = r² - mu_i². For the Rényi sum: E[exp((a-1) L_i)] <= exp((a-1) rho_i) for every step,
        given the past. (2) V starts at no more than delta: at delta_P, plus delta_G, plus exp((a-1) (B - epsilon))
        (1/a) (1 - 1/a)^(a-1) = delta_R. (3) At the end V >= (1 - e^(epsilon - L))_+: a sum that is within its cap has a
        V of at least that, since H_R(x) >= (1 - e^x)_+, since Σ epsilon_i <= epsilon, and since (1/a) (1 - 1/a)^(a-1)
        z^(a-1) >= 1 - 1/z for all z > 0. So E[(1 - e^(epsilon - L))_+] <= delta, which is the claim. A first charge
        that passes all three caps is accepted on its exact cost, and closes the ledger: the analyst chooses it before
        anything is released. ∎

        The three sums must share delta: with all of delta for each, an analyst gets past the cap.

        References: R. Rogers, A. Roth, J. Ullman, S. Vadhan, "Privacy Odometers and Filters", 2016 (the plain sum, and
        what a filter is); V. Feldman, T. Zrnic, "Individual Privacy Accounting via a Rényi Filter", arXiv:2008.11193,
        and M. Lécuyer, "Practical Privacy Filters and Odometers with Rényi Differential Privacy", arXiv:2103.01379
        (one Rényi order, fixed in advance); A. Smith, A. Thakurta, "Fully Adaptive Composition for Gaussian
        Differential Privacy", arXiv:2210.17520, and A. Koskela, M. Tobaben, A. Honkela, "Individual Privacy Accounting
        with Gaussian Differential Privacy", arXiv:2209.15596 (the Gaussian sum); J. Whitehouse, A. Ramdas, R. Rogers,
        S. Wu, "Fully Adaptive Composition in Differential Privacy", ICML 2023. Their combination, with delta shared,
        is ours.
        """
        if before.charges:
            return self.level(before + self.sums(charge, before))
        counted = add_entries({}, charge)
        exact = composed_epsilon(counted, self.delta, self.adjacency)
        if pld_supports(counted, self.adjacency):
            return exact
        # Without a privacy-loss distribution, the cost is a bound by other means, which a sum may undercut.
        return min(self.level(self.sums(charge)), exact)

    def allows(self, plan: Plan | Mechanism | Event, before: Sums = Sums()) -> bool:
        """Return whether `plan` would be let through after charges that add up to `before`; nothing is charged.

        So a filter answers for a ledger that does not exist yet, as `Ledger.allows` does for one that exists.

        Examples
        --------
        >>> from dpadapt.mechanisms import Gaussian
        >>> Filter.of("mixed", 1.0, 1e-6, Adjacency.ZERO_OUT).allows(Gaussian(1.0))
        False
        """
        charge = [Entry("", event, times) for event, times in tally(plan).items()]
        return self.accepts(self.needs(before, charge))

    def accepts(self, needs: float) -> bool:
        """Return whether a charge that needs this cap is accepted."""
        # Not `needs > cap`: a cost of NaN must be refused.
        return needs <= self.epsilon * (1 + _CAP_TOLERANCE)

    def require(self, before: Sums, charge: Sequence[Entry], allowance: str = "") -> None:
        """Raise `BudgetExceeded` unless `charge` is accepted after charges that add up to `before`.

        The cap is that of a ledger or, if one is named, of an allowance.
        """
        if math.isinf(self.epsilon):
            return
        needs = self.needs(before, charge)
        if self.accepts(needs):
            return
        what = repr(charge[0].label + (f" and {len(charge) - 1} more" if len(charge) > 1 else "")) if charge else "it"
        cap = f"this ledger's cap of {self.epsilon:.4g}"
        if allowance:
            cap = f"the cap of {self.epsilon:.4g} of the allowance {allowance!r}"
        if math.isinf(needs) and self.delta == 0:
            raise BudgetExceeded(
                f"{what} needs a delta above 0, and {cap} has none. Nothing was released. Make it with one, such as "
                f"delta=1e-6."
            )
        raise BudgetExceeded(
            f"{what} would need a cap of epsilon={needs:.4g} at delta={self.delta:.3g}, over {cap}. Nothing was "
            f"released. Use a smaller epsilon or more noise (remaining() says how much is left); another "
            f"ledger for the same data would lack what was already spent."
        )

    def level(self, sums: Sums) -> float:
        """Return the least cap epsilon at which one of the three sums is within its cap."""
        levels = [sums.plain]
        if self._gaussian_delta and sums.sampled <= _MOST_SAMPLED_RUNS:
            levels.append(gaussian_epsilon(math.sqrt(sums.gaussian), self._gaussian_delta))
        if self._renyi_delta:
            levels.append(max(0.0, sums.renyi - _renyi_cap(0.0, self._renyi_delta, self.order)))
        return min(levels)

    def room(self, sums: Sums) -> float:
        """Return the largest mu with which a Gaussian release is accepted after charges that add up to `sums`."""
        if not self.delta:
            return 0.0
        if not sums.charges:
            return _mu_or_zero(self.epsilon, self.delta)
        room = _mu_or_zero(self.epsilon - sums.plain, self._part(sums.parts)) ** 2
        if self._gaussian_delta and sums.sampled <= _MOST_SAMPLED_RUNS:
            room = max(room, _mu_or_zero(self.epsilon, self._gaussian_delta) ** 2 - sums.gaussian)
        if self._renyi_delta:
            rest = _renyi_cap(self.epsilon, self._renyi_delta, self.order) - sums.renyi
            room = max(room, 2 * rest / self.order)
        return math.sqrt(room)

    @property
    def _gaussian_delta(self) -> float:
        """The delta that is left for Gaussian noise itself when the tails of all sampled runs are taken off."""
        given = self.share * self.delta
        tails = _MOST_SAMPLED_RUNS * _TAIL_SHARE * given
        return (given - tails) / (1 - tails)

    @property
    def _renyi_delta(self) -> float:
        return (1 - (self.share + self.plain_share)) * self.delta

    def _sums(self, event: Event, times: int) -> Sums:
        """Return what `times` releases of `event`, charged together, add to each sum."""
        sampled = isinstance(event, SampledEvent) and isinstance(event.event, GaussianEvent)
        tail, renyi_delta = _TAIL_SHARE * self.share * self.delta, self._renyi_delta
        mu_squared = _mu_squared(event, times, tail, self.adjacency) if tail else math.inf
        renyi = event.renyi(times, self.order, self.adjacency) if renyi_delta else math.inf
        return Sums(gaussian=mu_squared, renyi=renyi, sampled=int(sampled))


@lru_cache(maxsize=1024)
def _order(epsilon: float, delta: float, share: float) -> int:
    """Return the order of the Rényi sum, from the order a that admits the most Gaussian noise: the largest cap over a.

    A Rényi sum of its own takes the nearest whole number; beside a Gaussian sum it takes a larger one.
    """
    if not delta > 0 or math.isinf(epsilon):
        return 2
    # The best order is about 1 + sqrt(ln(1/delta) / rho) for the rho that the cap admits, and 2 ln(1/delta) / epsilon
    # for small epsilon.
    orders = 1 + np.geomspace(1e-3, 10 - 10 * math.log(delta) / epsilon, 20_001)
    best = float(orders[np.argmax([_renyi_cap(epsilon, delta, order) / order for order in orders.tolist()])])
    return min(max(2, math.ceil(_ORDER_FACTOR * best) if share else round(best)), _LARGEST_ORDER)


def _mu_or_zero(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (`epsilon`, `delta`)-private, 0 if there is none that a float can hold."""
    if not (epsilon > 0 and delta > 0):
        return 0.0
    try:
        return gaussian_mu(epsilon, delta)
    except ValueError:
        return 0.0


def _renyi_cap(epsilon: float, delta: float, order: float) -> float:
    """Return the largest Rényi divergence of this order that is (`epsilon`, `delta`)-private.

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, Proposition 12, solved for the
    divergence. It can be negative: then the order is of no use at this cap.
    """
    return epsilon + (math.log(delta) + math.log(order)) / (order - 1) - math.log1p(-1 / order)


def _mu_squared(event: Event, times: int, tail: float, adjacency: Adjacency) -> float:
    """Return mu² of a Gaussian release that is at least as informative as `times` releases of `event`."""
    mu = event.dominating_mu()
    # Not mu ** 2, which raises an error where mu * mu is infinite.
    whole = times * mu * mu
    if isinstance(event, SampledEvent) and isinstance(event.event, GaussianEvent):
        return min(whole, _sampled_mu(event, times, tail, adjacency) ** 2)
    return whole


@lru_cache(maxsize=1024)
def _sampled_mu(event: SampledEvent, times: int, tail: float, adjacency: Adjacency) -> float:
    """Return mu such that `times` releases of `event` are dominated by mu-Gaussian noise but for a probability `tail`.

    The profile delta(x) of the run must be at most tail + (1 - tail) · (that of mu-Gaussian noise) at every x >= 0, for
    both orders of the neighbours; for x < 0 the same then follows.
    """
    counted: Tally = {event: times}
    quick = rdp_supports(counted, adjacency)
    bound = quick_epsilon(counted, tail, adjacency) if quick else composed_epsilon(counted, tail, adjacency)
    if not bound <= _LARGEST_PROFILE_EPSILON:
        return math.inf
    distribution = pld(counted, adjacency, grid=grid_for(bound))
    excess = rounding(counted)
    bound = float(distribution.get_epsilon_for_delta(tail - excess)) if tail > excess else math.inf
    if not math.isfinite(bound):
        # The distribution is not precise to a probability of `tail`.
        return math.inf
    points = np.linspace(0.0, bound, _PROFILE_POINTS)
    profile = np.asarray(distribution.get_delta_for_epsilon(points)) + excess
    # Both profiles decrease, so comparing one at the left end of a cell with the other at the right end covers all x in
    # between. Beyond the last point the profile is at most `tail`.
    needed = (profile[:-1] - tail) / (1 - tail)
    where, needed = points[1:][needed > 0], needed[needed > 0]
    if not needed.size:
        return 0.0

    def dominates(mu: float) -> bool:
        return bool(np.all(_gaussian_profile(mu, where) >= needed))

    low, high = 0.0, 1.0
    while not dominates(high):
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if dominates(middle) else (middle, high)
    return high


def _gaussian_profile(mu: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return delta at each epsilon in `x` of a mu-Gaussian release."""
    from scipy.special import log_ndtr

    upper, lower = log_ndtr(mu / 2 - x / mu), log_ndtr(-mu / 2 - x / mu)
    return np.asarray(-np.exp(upper) * np.expm1(np.minimum(0.0, x + lower - upper)))
