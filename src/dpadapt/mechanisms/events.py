"""Events: what a release costs, as accountants see it.

An event says how noisy a release was *relative to what one record can move it by under the stated adjacency*, so the
same event costs the same whatever was released. Events are frozen, hashable and go to JSON and back.
"""

from dataclasses import dataclass
from typing import Any

from dpadapt import checks


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description, `from_dict` reads it back."""
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
        checks.positive(self.noise_multiplier, "noise_multiplier")


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of `noise_multiplier` times the l1 sensitivity: pure with epsilon 1 / noise_multiplier."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive(self.noise_multiplier, "noise_multiplier")


@dataclass(frozen=True)
class ConcentratedEvent(Event):
    """Anything that is rho-zCDP, e.g. discrete Gaussian noise."""

    rho: float

    def __post_init__(self) -> None:
        checks.positive(self.rho, "rho")


@dataclass(frozen=True)
class PureEvent(Event):
    """Anything that is (epsilon, 0)-private, e.g. randomized response."""

    epsilon: float

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon")


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """A choice whose privacy loss has range `epsilon` (the exponential mechanism): pure, and epsilon²/8-zCDP.

    Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021.
    """

    epsilon: float

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon")


@dataclass(frozen=True)
class SampledEvent(Event):
    """`event` on a Poisson sample: every record takes part with probability `rate`, independently."""

    event: GaussianEvent | LaplaceEvent
    rate: float

    def __post_init__(self) -> None:
        checks.unit(self.rate, "rate")
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
