"""What a learner is: it says what one round would release, and makes a hypothesis of weighted rows by doing that."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.accounting.ledger import Run
from dpadapt.hybrid.hypotheses import Hypothesis
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.events import Event, GaussianEvent
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.laplace import DiscreteLaplace
from dpadapt.mechanisms.mechanism import Mechanism, NonPrivate
from dpadapt.mechanisms.plan import Plan, Repeated, as_plan
from dpadapt.mechanisms.selection import ExponentialMechanism

Plans = Sequence[tuple[Plan | Mechanism, str]]


@dataclass(frozen=True, eq=False)
class Facts:
    """What a learner may know before it sees a row: all of it is public.

    Parameters
    ----------
    n_rows : float
        A public number of rows.
    n_features : int
    classes : ndarray of shape (2,)
    density : float
        The weights add up to at least this share of the rows.
    """

    n_rows: float
    n_features: int
    classes: NDArray[Any]
    density: float = 1.0


@dataclass(frozen=True, eq=False)
class Sample:
    """The curator's rows in one round.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Private.
    codes : ndarray of int64
        The class of each row, 0 or 1. Private.
    weights : ndarray
        Of each row, in [0, 1]: a function of that row and of what was released before. 0 for a null record, which must
        not count at all.
    total : float
        A public estimate of the sum of weights, to divide by.
    facts : Facts
    """

    X: NDArray[Any] = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)
    total: float
    facts: Facts


class Learner(Protocol):
    """What `SubsampleTestReweigh` needs of a learner.

    Everything that leaves a learner leaves through the runs it is given, one for each of its plans.
    """

    def plans(self, mu: float, facts: Facts) -> Plans:
        """Return what one round releases, with labels, at a cost of mu (see `noise_of`, `choice_of`); inf: no noise."""
        ...

    def learn(self, sample: Sample, runs: Sequence[Run]) -> Hypothesis:
        """Return a hypothesis, from one release per step of each plan."""
        ...


def noise_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` Gaussian releases that together cost sqrt(share) * mu; no noise if mu is infinite."""
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(Gaussian(math.sqrt(steps / share) / mu), steps)


def counts_of(mu: float, share: float, steps: int, *, pure: bool) -> Repeated:
    """Return `steps` releases of a histogram that together cost sqrt(share) * mu; `pure`: without any delta."""
    if not pure or math.isinf(mu):
        return noise_of(mu, share, steps)
    return Repeated(DiscreteLaplace(math.sqrt(steps / share) / mu), steps)


def choice_of(mu: float, share: float, steps: int = 1) -> Repeated:
    """Return `steps` choices by the exponential mechanism that together cost about sqrt(share) * mu.

    Each is epsilon²/8-zCDP, a Gaussian release mu²/2: so epsilon = 2 mu. No noise if mu is infinite.
    """
    if math.isinf(mu):
        return Repeated(NonPrivate(), steps)
    return Repeated(ExponentialMechanism(2.0 * mu * math.sqrt(share / steps)), steps)


def chosen(run: Run, scores: Bounded) -> int:
    """Return which candidate a run that `choice_of` planned chooses; the best, where nothing is protected."""
    found = run.release(scores)
    return int(np.argmax(found)) if isinstance(run.plan.mechanism, NonPrivate) else int(found)


def strength(plans_at: Callable[[float], Plans], epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """Return the largest mu for which what `plans_at(mu)` releases costs at most (`epsilon`, `delta`)."""
    if math.isinf(epsilon):
        return math.inf

    def events(mu: float) -> frozenset[tuple[Event, int]]:
        counted: dict[Event, int] = {}
        for plan, _ in plans_at(mu):
            ready = as_plan(plan)
            counted[ready.event()] = counted.get(ready.event(), 0) + ready.steps
        return frozenset(counted.items())

    start = gaussian_mu(epsilon, delta) if delta else epsilon / 2
    if delta and all(isinstance(event, GaussianEvent) for event, _ in events(start)):
        return start
    fixed = events(start) == events(2 * start)
    low, high = 0.0, math.inf
    mu = start
    for _ in range(60):
        cost = _cost(events(mu), delta, adjacency)
        low, high = (mu, high) if cost <= epsilon else (low, mu)
        if not low and (fixed or high < 1e-3 * start):
            raise ValueError(
                f"the learner's own noise costs epsilon={cost:.3g} or more on so few rows, over the {epsilon:.3g} that "
                f"this fit may spend. Nothing was spent. Bring more rows, or lower n_rounds or the learner's n_steps."
            )
        if fixed or (low > 0 and high / low < 1 + 2e-4):
            break
        # Cost grows about as mu does, so this lands near the root; a hair below it, to be returned.
        guess = mu * min(4.0, max(0.25, epsilon / max(cost, 1e-300))) * (1 - 5e-5)
        mu = guess if low < guess < high else (low + high) / 2 if math.isfinite(high) else 2 * low
    return low


@lru_cache(maxsize=512)
def _cost(events: frozenset[tuple[Event, int]], delta: float, adjacency: Adjacency) -> float:
    return cost_of(dict(events), delta, adjacency=adjacency)
