"""Events, mechanisms and plans: what a release costs, how noise is added, and how often.

An event holds the noise of one release *relative to the sensitivity under the stated adjacency*, so that equal events
have equal costs, whatever was released. A mechanism describes how noise is added. It names its event, and it draws only
when the ledger calls it. A plan says how often, and on which samples, a mechanism will be used.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.randomness import Random
from dpadapt.rows import UNITS, Unit


def _keep(owner: Any, **numbers: float) -> None:
    """Set fields of a frozen dataclass to Python's own numbers.

    NumPy's small types wrap, overflow or underflow in products: a count of int16 would make a sum of costs negative, a
    noise multiplier of float16 would make the noise 0.
    """
    for name, number in numbers.items():
        object.__setattr__(owner, name, number)


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; `from_dict` reads it back."""
        fields = {k: v.to_dict() if isinstance(v, Event) else v for k, v in self._fields().items()}
        return {"kind": type(self).__name__.removesuffix("Event"), **fields}

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        """Return e.g. ``Gaussian(noise_multiplier=2)``."""
        inner = ", ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}" for k, v in self._fields().items())
        return f"{type(self).__name__.removesuffix('Event')}({inner})"


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise of `noise_multiplier` times the l2 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _keep(self, noise_multiplier=checks.positive(self.noise_multiplier, "noise_multiplier"))


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of `noise_multiplier` times the l1 sensitivity: pure with epsilon 1 / noise_multiplier."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _keep(self, noise_multiplier=checks.positive(self.noise_multiplier, "noise_multiplier"))


@dataclass(frozen=True)
class ConcentratedEvent(Event):
    """Any release that is rho-zCDP, e.g. discrete Gaussian noise."""

    rho: float

    def __post_init__(self) -> None:
        _keep(self, rho=checks.positive(self.rho, "rho"))


@dataclass(frozen=True)
class PureEvent(Event):
    """Any release that is (epsilon, 0)-private, e.g. randomized response."""

    epsilon: float

    def __post_init__(self) -> None:
        _keep(self, epsilon=checks.positive(self.epsilon, "epsilon"))


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """A choice whose privacy loss has range `epsilon` (the exponential mechanism): pure, and epsilon²/8-zCDP.

    Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _keep(self, epsilon=checks.positive(self.epsilon, "epsilon"))


@dataclass(frozen=True)
class SampledEvent(Event):
    """`event` on a Poisson sample: every record takes part with probability `rate`, independently."""

    event: GaussianEvent | LaplaceEvent
    rate: float

    def __post_init__(self) -> None:
        _keep(self, rate=checks.unit(self.rate, "rate"))
        if not isinstance(self.event, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {self.event}.")


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """A deliberate leak, recorded with epsilon = inf."""


_KINDS: dict[str, type[Event]] = {
    kind.__name__.removesuffix("Event"): kind
    for kind in (
        GaussianEvent,
        LaplaceEvent,
        ConcentratedEvent,
        PureEvent,
        BoundedRangeEvent,
        SampledEvent,
        NonPrivateEvent,
    )
}


def from_dict(fields: dict[str, Any]) -> Event:
    """Return the event that `Event.to_dict` described."""
    rest = dict(fields)
    kind = rest.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown event kind {kind!r}; known are {', '.join(_KINDS)}.")
    if kind == "Sampled":
        rest["event"] = from_dict(rest["event"])
    return _KINDS[kind](**rest)


@dataclass(frozen=True)
class Mechanism(ABC):
    """A way to release a `Bounded`; only the ledger calls `_apply`."""

    norm: ClassVar[Norm]

    @abstractmethod
    def event(self) -> Event:
        """Return what one release costs."""

    @abstractmethod
    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the noise scale that `bounded` needs, in its own units.

        `sampled` says that the release is made on a Poisson sample, which needs `Bounded.sensitivity(doubled=True)`.
        """

    @abstractmethod
    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        """Draw the release. Only the ledger calls this, after it has recorded the event."""


@dataclass(frozen=True)
class NoiseMechanism(Mechanism):
    """Add noise of scale `noise_multiplier` times the sensitivity.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale divided by the sensitivity under the ledger's adjacency.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _keep(self, noise_multiplier=checks.positive(self.noise_multiplier, "noise_multiplier"))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return `noise_multiplier` times the sensitivity."""
        # Claim: scale >= noise_multiplier times |v - v'| under the ledger's adjacency. So equal events cost the same
        # whatever is released, and no accountant converts between adjacencies again. On Poisson samples the sensitivity
        # under replace-one is the doubled one, which their analysis needs.
        return self.noise_multiplier * bounded.sensitivity(self.norm, adjacency, doubled=sampled)


@dataclass(frozen=True)
class NonPrivate(Mechanism):
    """Release the value itself: a deliberate leak, recorded with epsilon = inf."""

    norm: ClassVar[Norm] = "linf"

    def event(self) -> Event:
        """Return what one release costs: epsilon = inf."""
        return NonPrivateEvent()

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return 0: no noise is added."""
        return 0.0

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> Any:
        return bounded.value.copy()


@dataclass(frozen=True)
class Repeated:
    """Plan: `mechanism` on all rows, `steps` times. `Ledger.start` charges all steps at once.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Repeated(Gaussian(2.0), steps=10).event())
    Gaussian(noise_multiplier=2)
    """

    mechanism: Mechanism
    steps: int = 1

    def __post_init__(self) -> None:
        _keep(self, steps=checks.count(self.steps, "steps"))

    def event(self) -> Event:
        """Return what one step costs."""
        return self.mechanism.event()


@dataclass(frozen=True)
class Sampled:
    """Plan: `mechanism` on `steps` Poisson samples, each row or person taking part with probability `rate`.

    `Ledger.start` charges all steps at once. The run draws the samples itself (`Run.batches`), so that the sampling is
    the one that was charged. It draws what `unit` says, which must be what the ledger protects.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Sampled(Gaussian(2.0), rate=0.01, steps=10).event())
    Sampled(event=Gaussian(noise_multiplier=2), rate=0.01)
    """

    mechanism: Mechanism
    rate: float
    steps: int = 1
    unit: Unit = "row"

    def __post_init__(self) -> None:
        _keep(self, steps=checks.count(self.steps, "steps"), rate=checks.unit(self.rate, "rate"))
        checks.one_of(self.unit, UNITS, "unit")
        self.event()  # validates

    def event(self) -> Event:
        """Return what one step costs."""
        inner = self.mechanism.event()
        if not isinstance(inner, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {inner}.")
        return SampledEvent(inner, float(self.rate))


Plan = Repeated | Sampled


def as_plan(plan: Plan | Mechanism) -> Plan:
    """Return `plan`; a mechanism becomes the plan to use it once."""
    if isinstance(plan, Mechanism):
        return Repeated(plan)
    if isinstance(plan, Repeated | Sampled):
        return plan
    raise TypeError(f"expected a mechanism, Repeated or Sampled, got {type(plan).__name__}.")
