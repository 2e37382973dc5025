"""The best adaptive analyst against a filter, by value iteration: no sampling, exact up to quadrature.

The analyst knows the privacy loss of everything released so far and chooses the next release by it. With at most three
charges, delta(epsilon) = E[(1 - exp(epsilon - loss))_+] is maximised from the last charge backwards.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dpadapt.accounting import cost
from dpadapt.accounting.cost import add_entries
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, Event, GaussianEvent, LaplaceEvent, PureEvent, SampledEvent

Vector = NDArray[np.float64]

_GAUSS, _WEIGHTS = np.polynomial.legendre.leggauss(60)


class Release(Protocol):
    """A release that the analyst may choose."""

    def event(self) -> tuple[Event, int]:
        """Return its event, and how often it is charged."""

    def outcomes(self, nodes: int) -> tuple[Vector, Vector]:
        """Return the probabilities of the outcomes and their privacy losses."""

    def beyond(self, x: Vector) -> Vector:
        """Return the mean of (1 - exp(x - loss))_+."""


@dataclass(frozen=True)
class Response:
    """Randomized response with two answers."""

    size: float

    def event(self) -> tuple[Event, int]:
        """Return a pure event."""
        return PureEvent(self.size), 1

    def outcomes(self, nodes: int) -> tuple[Vector, Vector]:
        """Return the two answers."""
        p = 1 / (1 + math.exp(-self.size))
        return np.array([p, 1 - p]), np.array([self.size, -self.size])

    def beyond(self, x: Vector) -> Vector:
        """Add up both answers."""
        (p, q), (up, down) = self.outcomes(0)
        return np.asarray(-p * np.expm1(np.minimum(x - up, 0)) - q * np.expm1(np.minimum(x - down, 0)))


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise of scale 1 / size."""

    size: float

    def event(self) -> tuple[Event, int]:
        """Return a Laplace event."""
        return LaplaceEvent(1 / self.size), 1

    def outcomes(self, nodes: int) -> tuple[Vector, Vector]:
        """Return the two ends, which have mass, and quadrature nodes between them."""
        inner = self.size * _GAUSS
        density = _WEIGHTS * self.size / 4 * np.exp((inner - self.size) / 2)
        ends = [0.5, math.exp(-self.size) / 2], [self.size, -self.size]
        return np.concatenate([ends[0], density]), np.concatenate([ends[1], inner])

    def beyond(self, x: Vector) -> Vector:
        """Return the closed form."""
        middle = -np.expm1(np.minimum((x - self.size) / 2, 0))
        return np.where(x >= self.size, 0.0, np.where(x <= -self.size, -np.expm1(np.minimum(x, 0)), middle))


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise of 1 / size times the sensitivity."""

    size: float

    def event(self) -> tuple[Event, int]:
        """Return a Gaussian event."""
        return GaussianEvent(1 / self.size), 1

    def outcomes(self, nodes: int) -> tuple[Vector, Vector]:
        """Return equidistant nodes."""
        z = np.linspace(-8.5, 8.5, nodes)
        weights = np.exp(-z * z / 2)
        return weights / weights.sum(), self.size * (self.size / 2 + z)

    def beyond(self, x: Vector) -> Vector:
        """Return the closed form."""
        upper = np.exp(log_ndtr(self.size / 2 - x / self.size))
        return np.asarray(upper - np.exp(np.minimum(x + log_ndtr(-self.size / 2 - x / self.size), 0)))


@dataclass(frozen=True)
class SampledNoise:
    """A run of Gaussian releases on Poisson samples; its losses are those of a privacy-loss distribution."""

    noise: float
    rate: float = 0.05
    steps: int = 100

    def event(self) -> tuple[Event, int]:
        """Return a sampled event."""
        return SampledEvent(GaussianEvent(self.noise), self.rate), self.steps

    def _losses(self) -> tuple[Vector, Vector]:
        """Return the probabilities of the losses on a grid, and the losses."""
        event, times = self.event()
        # Optimistic: the analyst must not gain from a loss that the release does not have.
        whole = cost.pld({event: times}, Adjacency.ZERO_OUT, grid=1e-3, pessimistic=False)
        pmf = whole._pmf_remove.to_dense_pmf()
        return pmf._probs, (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization

    def outcomes(self, nodes: int) -> tuple[Vector, Vector]:
        """Merge neighbouring losses at the lowest of them."""
        probabilities, losses = self._losses()
        parts = np.array_split(np.arange(len(losses)), min(nodes, len(losses)))
        return np.array([probabilities[part].sum() for part in parts]), np.array([losses[part[0]] for part in parts])

    def beyond(self, x: Vector) -> Vector:
        """Return P(loss > x) - e^x E[e^-loss; loss > x]."""
        probabilities, losses = self._losses()
        mass = np.append(np.cumsum(probabilities[::-1])[::-1], 0.0)
        tilted = np.append(np.cumsum((probabilities * np.exp(-losses))[::-1])[::-1], 0.0)
        at = np.searchsorted(losses, x, side="right")
        return np.asarray(np.maximum(0.0, mass[at] - np.exp(np.minimum(x, 50.0)) * tilted[at]))


@dataclass(frozen=True)
class Counted(Sums):
    """Keeps the entries themselves."""

    entries: tuple[Entry, ...] = ()

    def __add__(self, other: Sums) -> "Counted":
        """Return the entries of both."""
        return Counted(charges=self.charges + other.charges, entries=self.entries + getattr(other, "entries", ()))


@dataclass(frozen=True)
class FixedInAdvance(Filter):
    """No filter: charges are accepted on the cost of all events, as if none had been chosen by a release."""

    def sums(self, charge: Sequence[Entry], before: Sums | None = None) -> Sums:
        """Keep the entries."""
        return Counted(charges=1, entries=tuple(charge))

    def needs(self, before: Sums, charge: Sequence[Entry]) -> float:
        """Return the cost of all entries."""
        made = (*getattr(before, "entries", ()), *charge)
        return cost_of(add_entries({}, made), self.delta, adjacency=self.adjacency)


KINDS = (Response, LaplaceNoise, GaussianNoise)


class Analyst:
    """An analyst who makes two or three charges.

    Parameters
    ----------
    filter : Filter
    firsts, middles : sequence of float
        Sizes of the first and of the middle charge, as shares of the largest that the filter accepts.
    nodes : int, default=301
        Number of quadrature nodes of Gaussian noise.
    bisections : int, default=24
        Of the search for the largest charge that is accepted.
    fixed : sequence of Release
        Further releases that may be made at any time, of this size only.
    """

    def __init__(
        self,
        filter: Filter,
        *,
        firsts: Sequence[float],
        middles: Sequence[float] = (),
        nodes: int = 301,
        bisections: int = 24,
        fixed: Sequence[Release] = (),
    ) -> None:
        self.filter, self.firsts, self.middles = filter, firsts, middles
        self.nodes, self.bisections, self.fixed = nodes, bisections, fixed

    def accepted(self, before: Sums, release: Release) -> bool:
        """Return whether the filter accepts a release."""
        return self.filter.needs(before, [Entry("attack", *release.event())]) <= self.filter.epsilon

    def after(self, before: Sums, release: Release) -> Sums:
        """Return the sums after a release."""
        added = self.filter.sums([Entry("attack", *release.event())], before)
        return before + added if before != Sums() else added

    def largest(self, before: Sums, kind: Any) -> Any:
        """Return the largest release of a kind that is accepted, or None."""
        low, high = 0.0, 1.3 * self.filter.epsilon + 0.3
        for _ in range(self.bisections):
            middle = (low + high) / 2
            low, high = (middle, high) if self.accepted(before, kind(middle)) else (low, middle)
        return kind(low) if low > 1e-6 else None

    def choices(self, before: Sums, shares: Sequence[float]) -> Iterator[Release]:
        """Yield the releases that may be made: of each kind, of each share of the largest one."""
        if not shares:
            return
        for kind in KINDS:
            most = self.largest(before, kind)
            if most is not None:
                yield from (kind(most.size * share) for share in shares)
        yield from (release for release in self.fixed if self.accepted(before, release))

    def last(self, before: Sums, x: Vector) -> Vector:
        """Return the most that one further charge makes of a loss that is x below the cap."""
        best = np.asarray(-np.expm1(np.minimum(x, 0)))
        for release in self.choices(before, [1.0]):
            best = np.maximum(best, release.beyond(x))
        return best

    def delta(self) -> float:
        """Return the largest delta at the cap's epsilon that was found."""
        largest = 0.0
        for first in self.choices(Sums(), self.firsts):
            p, loss = first.outcomes(self.nodes)
            x, before = self.filter.epsilon - loss, self.after(Sums(), first)
            value = self.last(before, x)
            for second in self.choices(before, self.middles):
                q, more = second.outcomes(self.nodes)
                tail = self.last(self.after(before, second), (x[:, None] - more).ravel()).reshape(len(x), -1)
                value = np.maximum(value, tail @ q)
            largest = max(largest, float(p @ value))
        return largest
