"""The best adaptive analyst against a filter, by value iteration: no sampling, exact up to quadrature.

The analyst knows the privacy loss of everything released so far and chooses the next release by it. With at most three
charges, delta(epsilon) = E[(1 - exp(epsilon - loss))_+] is maximised from the last charge backwards.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from dpadapt.accounting import oracles
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.accounting.receipt import Entry
from dpadapt.mechanisms.mechanism import GaussianEvent, LaplaceEvent, PureEvent, SampledEvent

_GAUSS, _WEIGHTS = np.polynomial.legendre.leggauss(60)


@dataclass(frozen=True)
class Response:
    """Randomized response with two answers."""

    epsilon: float

    def event(self):
        return PureEvent(self.epsilon), 1

    def outcomes(self, nodes):
        """Return the probabilities of the outcomes and their privacy losses."""
        p = 1 / (1 + math.exp(-self.epsilon))
        return np.array([p, 1 - p]), np.array([self.epsilon, -self.epsilon])

    def beyond(self, x):
        """Return the mean of (1 - exp(x - loss))_+."""
        p, loss = self.outcomes(0)
        return sum(weight * -np.expm1(np.minimum(x - one, 0)) for weight, one in zip(p, loss, strict=True))


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise of scale 1 / epsilon."""

    epsilon: float

    def event(self):
        return LaplaceEvent(1 / self.epsilon), 1

    def outcomes(self, nodes):
        e = self.epsilon
        inner = e * _GAUSS
        density = _WEIGHTS * e / 4 * np.exp((inner - e) / 2)
        return np.concatenate([[0.5, math.exp(-e) / 2], density]), np.concatenate([[e, -e], inner])

    def beyond(self, x):
        # The total variation at shift: P(noise < t) - e^x P(noise < t - 1/scale) at the best threshold.
        e = self.epsilon
        middle = -np.expm1(np.minimum((x - e) / 2, 0))
        return np.where(x >= e, 0.0, np.where(x <= -e, -np.expm1(np.minimum(x, 0)), middle))


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of 1 / mu times the sensitivity."""

    mu: float

    def event(self):
        return GaussianEvent(1 / self.mu), 1

    def outcomes(self, nodes):
        z = np.linspace(-8.5, 8.5, nodes)
        weights = np.exp(-z * z / 2)
        return weights / weights.sum(), self.mu * (self.mu / 2 + z)

    def beyond(self, x):
        upper = np.exp(log_ndtr(self.mu / 2 - x / self.mu))
        return upper - np.exp(np.minimum(x + log_ndtr(-self.mu / 2 - x / self.mu), 0))


@dataclass(frozen=True)
class SampledNoise:
    """A run of Gaussian releases on Poisson samples; its losses are those of a privacy-loss distribution."""

    noise: float
    rate: float = 0.05
    steps: int = 100

    def event(self):
        return SampledEvent(GaussianEvent(self.noise), self.rate), self.steps

    def _distribution(self):
        from dpadapt.mechanisms.adjacency import Adjacency

        event, times = self.event()
        # Optimistic: the analyst must not gain from a loss that the release does not have.
        return oracles.pld({event: times}, Adjacency.ZERO_OUT, grid=1e-3, pessimistic=False)._pmf_remove.to_dense_pmf()

    def outcomes(self, nodes):
        pmf = self._distribution()
        losses = (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization
        # Few enough nodes for a middle release: neighbours are merged at the lower loss.
        parts = np.array_split(np.arange(pmf.size), min(nodes, pmf.size))
        return np.array([pmf._probs[part].sum() for part in parts]), np.array([losses[part[0]] for part in parts])

    def beyond(self, x):
        pmf = self._distribution()
        losses = (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization
        # Suffix sums: E[(1 - e^(x - loss))_+] = P(loss > x) - e^x E[e^-loss; loss > x].
        mass = np.append(np.cumsum(pmf._probs[::-1])[::-1], 0.0)
        tilted = np.append(np.cumsum((pmf._probs * np.exp(-losses))[::-1])[::-1], 0.0)
        at = np.searchsorted(losses, x, side="right")
        return np.maximum(0.0, mass[at] - np.exp(np.minimum(x, 50.0)) * tilted[at])


KINDS = (Response, LaplaceNoise, Noise)


class Analyst:
    """An analyst who makes at most two or three charges.

    Parameters
    ----------
    filter : Filter
    firsts, middles : sequences of float
        Sizes of the first and of the middle charge, as shares of the largest that the filter accepts.
    nodes : int
        Number of quadrature nodes of Gaussian noise.
    bisections : int
        Of the search for the largest charge that is accepted.
    fixed : sequence
        Further releases that may be made at any time, of this size only.
    """

    def __init__(self, filter: Filter, *, firsts, middles=(), nodes=301, bisections=24, fixed=()):
        self.filter, self.firsts, self.middles = filter, firsts, middles
        self.nodes, self.bisections, self.fixed = nodes, bisections, fixed
        self._charges = {}

    def _charge(self, release):
        if release not in self._charges:
            event, times = release.event()
            entry = Entry("attack", event, times)
            self._charges[release] = (entry,), self.filter.sums([entry])
        return self._charges[release]

    def accepted(self, before, release):
        return self.filter.needs(before, self._charge(release)[0]) <= self.filter.epsilon

    def after(self, before, release):
        added = self._charge(release)[1]
        return before + added if before != Sums() else added

    def largest(self, before, kind):
        """Return the largest release of a kind that is accepted, or None."""
        low, high = 0.0, 1.3 * self.filter.epsilon + 0.3
        for _ in range(self.bisections):
            middle = (low + high) / 2
            low, high = (middle, high) if self.accepted(before, kind(middle)) else (low, middle)
        self._charges.clear()
        return kind(low) if low > 1e-6 else None

    def choices(self, before, shares):
        """Yield the releases that may be made: of each kind, of each share of the largest one."""
        for kind in KINDS:
            most = self.largest(before, kind)
            if most is not None:
                (size,) = vars(most).values()
                yield from (kind(size * share) for share in shares)
        yield from (release for release in self.fixed if self.accepted(before, release))

    def last(self, before, x):
        """Return the most that one further charge makes of a loss that is x below the cap."""
        best = -np.expm1(np.minimum(x, 0))
        for release in self.choices(before, [1.0]):
            best = np.maximum(best, release.beyond(x))
        return best

    def delta(self):
        """Return the largest delta that was found."""
        epsilon, found = self.filter.epsilon, 0.0
        for first in self.choices(Sums(), self.firsts):
            p, loss = first.outcomes(self.nodes)
            x, before = epsilon - loss, self.after(Sums(), first)
            value = self.last(before, x)
            for second in self.choices(before, self.middles):
                q, more = second.outcomes(self.nodes)
                tail = self.last(self.after(before, second), (x[:, None] - more).ravel()).reshape(len(x), -1)
                value = np.maximum(value, tail @ q)
            found = max(found, float(p @ value))
        return found
