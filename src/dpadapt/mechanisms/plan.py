"""Plans: a mechanism used several times, charged at once when `Ledger.start` opens the run."""

from dataclasses import dataclass

from dpadapt import _validate
from dpadapt.mechanisms.events import Event, GaussianEvent, LaplaceEvent, SampledEvent
from dpadapt.mechanisms.mechanism import Mechanism


@dataclass(frozen=True)
class Repeated:
    """`mechanism` on all rows, `steps` times.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Repeated(Gaussian(2.0), steps=10).event())
    Gaussian(noise_multiplier=2)
    """

    mechanism: Mechanism
    steps: int = 1

    def __post_init__(self) -> None:
        _validate.count(self.steps, "steps")

    def event(self) -> Event:
        """Return what one step costs."""
        return self.mechanism.event()


@dataclass(frozen=True)
class Sampled:
    """`mechanism` on `steps` Poisson samples, each record taking part with probability `rate`.

    The run draws the samples itself (`Run.batches`), so what is charged is what happens.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian
    >>> print(Sampled(Gaussian(2.0), rate=0.01, steps=10).event())
    Sampled(event=Gaussian(noise_multiplier=2), rate=0.01)
    """

    mechanism: Mechanism
    rate: float
    steps: int = 1

    def __post_init__(self) -> None:
        _validate.count(self.steps, "steps")
        self.event()  # validates

    def event(self) -> Event:
        """Return what one step costs."""
        inner = self.mechanism.event()
        if not isinstance(inner, GaussianEvent | LaplaceEvent):
            raise TypeError(f"only Gaussian and Laplace noise can be sampled, got {inner}.")
        return SampledEvent(inner, float(self.rate))


Plan = Repeated | Sampled


def as_plan(plan: Plan | Mechanism) -> Plan:
    """Return `plan`, or one use of it if it is a mechanism."""
    if isinstance(plan, Mechanism):
        return Repeated(plan)
    if isinstance(plan, Repeated | Sampled):
        return plan
    raise TypeError(f"expected a mechanism, Repeated or Sampled, got {type(plan).__name__}.")
