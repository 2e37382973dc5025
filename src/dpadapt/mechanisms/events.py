"""Events: what one release costs, in each of the ways in which costs are added up.

An event holds the noise of one release *relative to the sensitivity under the stated adjacency*, so that equal events
have equal costs, whatever was released. Each class of events has its own costs, and a cost that it leaves out is
infinite: to add an event is to write one subclass of `Event`. An `Entry` is an event in a ledger.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency

# Makes a privacy-loss distribution from the options of dp-accounting: its grid, and which of two bounds it is.
MakeLosses = Callable[[dict[str, Any]], Any]
# Makes an event of dp-accounting.
MakeEvent = Callable[[], Any]

# The library takes the exponential of a pure epsilon, which overflows above 709.
_LARGEST_EXPONENT = 700.0
# Above this order, a sampled run has the Rényi divergence of one on all rows: the exact sum has `order` terms.
_LARGEST_SAMPLED_ORDER = 20_000
# Rounding error of the two Rényi divergences in closed form, whose terms are near 1 for small epsilon.
_RENYI_ROUNDING = 1e-15


@dataclass(frozen=True)
class Event:
    """Base of all events. Each of its methods is an upper bound; a subclass has those that it can prove."""

    def __init_subclass__(cls) -> None:
        """Refuse the subclass of another event: the costs that it would inherit may not be its own."""
        if Event not in cls.__bases__:
            raise TypeError(f"{cls.__name__} must be a subclass of Event itself, with costs of its own.")

    def __post_init__(self) -> None:
        """Require positive numbers, and keep them as Python floats: products of NumPy's small types can become 0."""
        for name, value in self._fields().items():
            object.__setattr__(self, name, checks.positive(value, name))

    def pure_epsilon(self, times: int = 1) -> float:
        """Return the epsilon of `times` releases at delta = 0."""
        return math.inf

    def dominating_mu(self) -> float:
        """Return mu such that a release is at least as private as a mu-Gaussian one: its trade-off function >= G_mu."""
        return math.inf

    def precision(self, *, pessimistic: bool = True) -> float | None:
        """Return mu² if a release is mu-Gaussian, or, not `pessimistic`, if it may be; else None."""
        return None

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return the Rényi divergence of `order` of `times` releases."""
        return math.inf

    def losses(self, adjacency: Adjacency, *, pessimistic: bool = True) -> MakeLosses | None:
        """Return what makes the privacy-loss distribution of a release, if there is one and `precision` is None."""
        return None

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes the event by which dp-accounting knows the Rényi divergences of a release, if it can."""
        return None

    @classmethod
    def kind(cls) -> str:
        """Return the name of the class in receipts."""
        return cls.__name__.removesuffix("Event")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; `from_dict` reads it back."""
        fields = {k: v.to_dict() if isinstance(v, Event) else v for k, v in self._fields().items()}
        return {"kind": self.kind(), **fields}

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        """Return e.g. ``Gaussian(noise_multiplier=2)``."""
        inner = ", ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}" for k, v in self._fields().items())
        return f"{self.kind()}({inner})"


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise of `noise_multiplier` times the l2 sensitivity."""

    noise_multiplier: float

    def dominating_mu(self) -> float:
        """Return 1 / noise_multiplier."""
        return 1 / self.noise_multiplier

    def precision(self, *, pessimistic: bool = True) -> float | None:
        """Return mu²."""
        # Not 1 / s²: s² can overflow or underflow where 1 / s does neither.
        return (1 / self.noise_multiplier) * (1 / self.noise_multiplier)

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return times · order · mu² / 2."""
        return times * order / 2 * (1 / self.noise_multiplier) * (1 / self.noise_multiplier)

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes Gaussian noise."""
        return lambda: _library().GaussianDpEvent(self.noise_multiplier)


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of `noise_multiplier` times the l1 sensitivity: pure with epsilon 1 / noise_multiplier."""

    noise_multiplier: float

    def pure_epsilon(self, times: int = 1) -> float:
        """Return times / noise_multiplier."""
        return times / self.noise_multiplier

    def dominating_mu(self) -> float:
        """Return that of `laplace_mu`."""
        return laplace_mu(1 / self.noise_multiplier)

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return the divergence of Laplace noise."""
        return times * _laplace_renyi(1 / self.noise_multiplier, order)

    def losses(self, adjacency: Adjacency, *, pessimistic: bool = True) -> MakeLosses | None:
        """Return what makes the distribution of Laplace noise."""
        return lambda options: _losses().from_laplace_mechanism(self.noise_multiplier, **options)

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes Laplace noise."""
        return lambda: _library().LaplaceDpEvent(self.noise_multiplier)


@dataclass(frozen=True)
class ConcentratedEvent(Event):
    """Any release that is rho-zCDP, e.g. discrete Gaussian noise."""

    rho: float

    def precision(self, *, pessimistic: bool = True) -> float | None:
        """Return 2 rho if not `pessimistic`: Gaussian noise is one rho-zCDP release."""
        return None if pessimistic else 2 * self.rho

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return times · order · rho: what rho-zCDP means."""
        return times * order * self.rho

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes a rho-zCDP release."""
        return lambda: _library().dp_event.ZCDpEvent(self.rho)


@dataclass(frozen=True)
class PureEvent(Event):
    """Any release that is (epsilon, 0)-private, e.g. randomized response."""

    epsilon: float

    def pure_epsilon(self, times: int = 1) -> float:
        """Return times · epsilon."""
        return times * self.epsilon

    def dominating_mu(self) -> float:
        """Return that of `pure_mu`."""
        return pure_mu(self.epsilon)

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return the largest divergence of all pure releases."""
        return times * _pure_renyi(self.epsilon, order)

    def losses(self, adjacency: Adjacency, *, pessimistic: bool = True) -> MakeLosses | None:
        """Return what makes the distribution of the pure release with the largest privacy loss."""
        return _pure_losses(self.epsilon, self.epsilon, pessimistic=pessimistic)

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes a zCDP release that costs no less."""
        # Claim: rho <= epsilon²/2 for pure events. Bun and Steinke 2016, Proposition 1.4.
        return lambda: _library().dp_event.ZCDpEvent(self.epsilon * self.epsilon / 2)


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """A choice whose privacy loss has range `epsilon` (the exponential mechanism): pure, and epsilon²/8-zCDP.

    Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021.
    """

    epsilon: float

    def pure_epsilon(self, times: int = 1) -> float:
        """Return times · epsilon."""
        return times * self.epsilon

    def dominating_mu(self) -> float:
        """Return that of `choice_mu`."""
        return choice_mu(self.epsilon)

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return the divergence of an epsilon²/8-zCDP release, or of a pure one if that is less."""
        return times * min(order / 8 * self.epsilon * self.epsilon, _pure_renyi(self.epsilon, order))

    def losses(self, adjacency: Adjacency, *, pessimistic: bool = True) -> MakeLosses | None:
        """Return what makes a pure release's distribution; an optimistic one has the range of a choice: half of it."""
        return _pure_losses(self.epsilon, self.epsilon / 2, pessimistic=pessimistic)

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes a zCDP release that costs no less."""
        # Claim: rho <= epsilon²/8 for choices. Cesar and Rogers 2021.
        return lambda: _library().dp_event.ZCDpEvent(self.epsilon * self.epsilon / 8)


@dataclass(frozen=True)
class SampledEvent(Event):
    """`event` on a Poisson sample: every record takes part with probability `rate`, independently."""

    event: GaussianEvent | LaplaceEvent
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", checks.unit(self.rate, "rate"))
        if not isinstance(self.event, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {self.event}.")

    def pure_epsilon(self, times: int = 1) -> float:
        """Return times · log(1 + rate (e^epsilon - 1)) for Laplace noise."""
        if not isinstance(self.event, LaplaceEvent):
            return math.inf
        # Claim: epsilon <= log(1 + q (e^epsilon - 1)) on a Poisson sample. Amplification by sampling (Balle, Barthe and
        # Gaboardi 2018). Above epsilon = 700 the exponential would overflow; there the cost is bounded by that without
        # sampling.
        s, q = self.event.noise_multiplier, self.rate
        return times * (math.log1p(q * math.expm1(1 / s)) if s > 1 / _LARGEST_EXPONENT else 1 / s)

    def dominating_mu(self) -> float:
        """Return that of all rows, or for Laplace noise that of a pure release."""
        # Claim: the trade-off function on a Poisson sample >= G_mu with the mu of all rows. By joint convexity a sample
        # never tells more than all rows.
        return pure_mu(self.pure_epsilon()) if isinstance(self.event, LaplaceEvent) else self.event.dominating_mu()

    def renyi(self, times: int, order: int, adjacency: Adjacency) -> float:
        """Return the exact divergence of Gaussian noise, where it is known, or that of all rows."""
        if isinstance(self.event, LaplaceEvent):
            return times * _pure_renyi(self.pure_epsilon(), order)
        # By joint quasi-convexity a Poisson sample never has a larger divergence than all rows.
        whole = self.event.renyi(times, order, adjacency)
        if order > _LARGEST_SAMPLED_ORDER or self.rdp_event(adjacency) is None:
            return whole
        return min(whole, renyi_divergence(self, times, order))

    def losses(self, adjacency: Adjacency, *, pessimistic: bool = True) -> MakeLosses | None:
        """Return what makes the distribution; for Laplace noise under replace-one there is none."""
        swap, noise, rate = adjacency is Adjacency.REPLACE_ONE, self.event.noise_multiplier, self.rate
        if isinstance(self.event, LaplaceEvent):
            if swap or 1 / noise > _LARGEST_EXPONENT:
                return None
            return lambda options: _losses().from_laplace_mechanism(noise, sampling_prob=rate, **options)
        if not swap:
            return lambda options: _losses().from_gaussian_mechanism(noise, sampling_prob=rate, **options)
        # Claim: noise / C = 2 noise / (2 C): the library's multiplier is twice ours under replace-one. With clipping
        # norm C, ours is noise over 2C, the library's is noise over C (it doubles C itself).
        return lambda options: _losses().from_gaussian_mechanism(
            2 * noise,
            sampling_prob=rate,
            neighboring_relation=_library().NeighboringRelation.REPLACE_ONE,
            **options,
        )

    def rdp_event(self, adjacency: Adjacency) -> MakeEvent | None:
        """Return what makes sampled Gaussian noise; under replace-one the library knows no divergences of it."""
        if isinstance(self.event, LaplaceEvent) or adjacency is Adjacency.REPLACE_ONE:
            return None
        noise = self.event.noise_multiplier
        return lambda: _library().PoissonSampledDpEvent(self.rate, _library().GaussianDpEvent(noise))


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """A deliberate leak, recorded with epsilon = inf."""


def from_dict(fields: dict[str, Any]) -> Event:
    """Return the event that `Event.to_dict` described."""
    rest = {name: from_dict(value) if isinstance(value, dict) else value for name, value in fields.items()}
    kind = rest.pop("kind", None)
    # Of two classes with one name, the first one counts: those of this file come first.
    kinds = {known.kind(): known for known in reversed(Event.__subclasses__())}
    if kind not in kinds:
        raise ValueError(f"unknown event kind {kind!r}; known are {', '.join(reversed(kinds))}.")
    return kinds[kind](**rest)


def times_of(event: Any, times: Any) -> int:
    """Return how often an event was charged; refuse anything whose cost is unknown."""
    if not isinstance(event, Event):
        raise TypeError(f"unknown event {type(event).__name__}: its cost can't be computed, so it is refused.")
    # Claim: equal events cost the same. Costs are added up by event, and equality compares all fields of its class: an
    # inherited one would compare none.
    own = vars(type(event)).get("__dataclass_params__")
    if own is None or not (own.frozen and own.eq) or not all(part.compare for part in fields(event)):
        raise TypeError(f"{type(event).__name__} must be a dataclass(frozen=True) that compares all its fields.")
    if not isinstance(times, Integral) or times < 0:
        raise ValueError(f"{event} can't have happened {times} times.")
    return int(times)  # sums of NumPy's small integers wrap


@dataclass(frozen=True)
class Entry:
    """One charge in a ledger: the event, how often it was charged, and what it was for.

    Parameters
    ----------
    label : str
        What the release was for.
    event : Event
        What one release costs.
    times : int
        Number of releases that were charged.
    seeded : bool
        Whether the noise came from a seed; then there is no guarantee.
    """

    label: str
    event: Event
    times: int = 1
    seeded: bool = False

    def __post_init__(self) -> None:
        """Refuse an event whose cost is unknown, and a number that is no count."""
        object.__setattr__(self, "times", times_of(self.event, self.times))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; `entry_from_dict` reads it back."""
        return {"label": self.label, "event": self.event.to_dict(), "times": self.times, "seeded": self.seeded}

    def __str__(self) -> str:
        """Return e.g. ``gradient: Gaussian(noise_multiplier=2) x 100``."""
        times = f" x {self.times}" if self.times != 1 else ""
        return f"{self.label}: {self.event}{times}{' (seeded)' if self.seeded else ''}"


def entry_from_dict(fields: dict[str, Any]) -> Entry:
    """Return the entry that `Entry.to_dict` described."""
    return Entry(str(fields["label"]), from_dict(fields["event"]), fields["times"], bool(fields["seeded"]))


def _library() -> Any:
    """Return dp-accounting, which takes long to import."""
    import dp_accounting

    return dp_accounting


def _losses() -> Any:
    """Return dp-accounting's module of privacy-loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def _pure_losses(epsilon: float, least: float, *, pessimistic: bool) -> MakeLosses | None:
    """Return what makes the distribution of randomized response: of `epsilon`, or, if optimistic, of `least`.

    Randomized response with two answers has the largest privacy loss of all pure events. With half the epsilon its
    loss has the range of a choice.
    """
    if epsilon > _LARGEST_EXPONENT:
        return None

    def make(options: dict[str, Any]) -> Any:
        from dp_accounting.pld.common import DifferentialPrivacyParameters

        grid = options["value_discretization_interval"]
        if pessimistic:
            return _losses().from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), grid)
        noise = 2 / (1 + math.exp(least))
        return _losses().from_randomized_response(
            noise, 2, pessimistic_estimate=False, value_discretization_interval=grid
        )

    return make


def renyi_divergence(event: Event, times: int, order: int) -> float:
    """Return dp-accounting's Rényi divergence of `order` of `times` releases of `event`."""
    make = event.rdp_event(Adjacency.ZERO_OUT)
    if make is None:
        raise TypeError(f"{event} has no Rényi divergences here.")
    accountant = _library().rdp.RdpAccountant([order])
    accountant.compose(make(), times)
    return float(accountant.rdp[0])


def _pure_renyi(epsilon: float, order: int) -> float:
    """Return the divergence of randomized response with two answers, the largest of all pure releases."""
    shift, one_more = (order - 1) * epsilon, float(np.logaddexp(0.0, epsilon))
    exact = float(np.logaddexp(epsilon - one_more + shift, -one_more - shift)) / (order - 1)
    # Bun and Steinke, "Concentrated Differential Privacy", 2016: a pure release has epsilon²/2-zCDP.
    return min(exact + _RENYI_ROUNDING, order / 2 * epsilon * epsilon, epsilon)


def _laplace_renyi(epsilon: float, order: int) -> float:
    """Return the divergence of Laplace noise of scale 1 / `epsilon` (Mironov, "Rényi Differential Privacy", 2017)."""
    upper = math.log(order / (2 * order - 1)) + (order - 1) * epsilon
    lower = math.log((order - 1) / (2 * order - 1)) - order * epsilon
    exact = float(np.logaddexp(upper, lower)) / (order - 1)
    return min(exact + _RENYI_ROUNDING, order / 2 * epsilon * epsilon, epsilon)


# Any other release is at least as private as a mu-Gaussian one if each point of its trade-off function (false positive
# rate q, power p) has z(p) - z(q) <= mu, where z is the inverse of Φ. If that function is piecewise linear, its
# vertices suffice, because the Gaussian one is convex (Dong, Roth and Su, "Gaussian Differential Privacy", 2022).


def pure_mu(epsilon: float) -> float:
    """Return the least mu such that every pure release of `epsilon` is at least as private as a mu-Gaussian one.

    The least private of them is randomized response, whose only vertex has p = 1 - q = e^epsilon q.

    Examples
    --------
    >>> round(pure_mu(0.1), 4)
    0.1253
    """
    from scipy.special import ndtri_exp

    # Claim: f_epsilon >= G_mu for mu = -2 z(1 / (1 + e^epsilon)), as trade-off functions. z(p) - z(1 - p) = -2 z(q) at
    # the only vertex, q = 1 / (1 + e^epsilon); Dong, Roth and Su 2022 as above.
    return -2 * float(ndtri_exp(-float(np.logaddexp(0.0, epsilon))))


def laplace_mu(epsilon: float) -> float:
    """Return the mu of Laplace noise of scale 1 / `epsilon`, as in `pure_mu`.

    In the middle part of its trade-off function q (1 - p) = e^-epsilon / 4, and -z(q) - z(1 - p) is largest where
    q = 1 - p: the function -z(e^x) is concave for e^x <= 1/2, because its derivative is minus Mills' ratio at -z(e^x),
    and Mills' ratio decreases. Outside the middle part the trade-off function is linear and the Gaussian one convex.

    Examples
    --------
    >>> round(laplace_mu(0.1), 4)
    0.1223
    """
    from scipy.special import ndtri_exp

    # Claim: the trade-off function of Laplace noise >= G_mu for mu = -2 z(e^(-epsilon/2) / 2). The docstring proves it.
    return -2 * float(ndtri_exp(-epsilon / 2 - math.log(2)))


def choice_mu(epsilon: float) -> float:
    """Return the mu of a choice whose privacy loss has range `epsilon`, as in `pure_mu`: half the epsilon counts.

    The least private choices have one vertex, with logit(p) - logit(q) = epsilon (Dong, Durfee and Rogers, "Optimal
    Differential Privacy Composition for Exponential Mechanisms", 2020). Among them z(p) - z(q) is largest where
    p = 1 - q, as in a pure release of epsilon / 2, because h(u) = z(1 / (1 + e^-u)) is odd and concave for u > 0. It is
    concave there if g(z) = (2 Φ - 1) φ - z Φ (1 - Φ) >= 0 for z > 0. Now g is 0 at 0 and at infinity, and its
    derivative 2 φ² - Φ (1 - Φ) is first positive, then negative: with the hazard λ = φ / (1 - Φ), the logarithm of
    Φ (1 - Φ) / φ² has the derivative 2 z - (λ(z) - λ(-z)), which is positive because λ' < 1 (Sampford, 1953).
    """
    # Claim: the trade-off function of a choice of range epsilon >= G_mu for mu = pure_mu(epsilon / 2). The docstring
    # proves it.
    return pure_mu(epsilon / 2)
