"""`dpadapt cost` and `dpadapt calibrate`: from noise to epsilon, and from epsilon to noise. No data is read."""

import decimal
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import AdjacencyName, AdjacencyOption, Delta, Json, teach
from dpadapt.cli.screen import print_json, say, time_limit, working
from dpadapt.errors import made_here

if TYPE_CHECKING:
    from dpadapt.mechanisms.events import Event


_COST = teach(
    """Compute what releases cost together: the epsilon at a given delta.

Every mechanism is written as NOISE, NOISE:STEPS or NOISE:STEPS:RATE, where NOISE is relative to the sensitivity: the
most that one row can change. Options may be repeated and mixed. --steps and --rate are the defaults for mechanisms
that give none. Nothing is released here.
""",
    "dpadapt cost --gaussian 1.5 --rate 0.04 --steps 2250 --delta 1e-5",
    "dpadapt cost --gaussian 20:100 --gaussian 1.5:2250:0.04 \\",
    "             --laplace 10 --pure 0.1 --delta 1e-5",
)

_CALIBRATE = teach(
    """Find the least Gaussian noise that keeps a number of releases within a budget.

The result is a noise multiplier: the standard deviation of the noise divided by the sensitivity. It is rounded up, so
that the budget is never exceeded.
""",
    "dpadapt calibrate --epsilon 1 --delta 1e-5 --steps 15000",
    "dpadapt calibrate --epsilon 1 --delta 1e-5 --steps 5000 --rate 0.01",
)

# Seconds after which no answer is expected any more: what takes longer has an extreme number of releases or rate.
_LONGEST_COMPUTATION = 60
# Largest epsilon of a calibration with sampling. A larger one protects nobody, and its computation needs much memory.
_LARGEST_SAMPLED_EPSILON = 1000.0

Steps = Annotated[int, typer.Option(help="How many releases.")]
Rate = Annotated[
    float | None, typer.Option(help="Poisson sampling: the probability with which a row takes part in a release.")
]


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("cost", help=_COST)(_cost)
    app.command("calibrate", help=_CALIBRATE)(_calibrate)


def _cost(
    delta: Delta,
    gaussian: Annotated[list[str] | None, typer.Option(help="Gaussian noise, over the l2 sensitivity.")] = None,
    laplace: Annotated[list[str] | None, typer.Option(help="Laplace noise, over the l1 sensitivity.")] = None,
    pure: Annotated[list[str] | None, typer.Option(help="Any mechanism with a pure guarantee: its epsilon.")] = None,
    steps: Steps = 1,
    rate: Rate = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    as_json: Json = False,
) -> None:
    from dpadapt.accounting.cost import epsilon
    from dpadapt.mechanisms.adjacency import Adjacency
    from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent, PureEvent

    counted: dict[Event, int] = {}
    for option, values in (("gaussian", gaussian), ("laplace", laplace), ("pure", pure)):
        for text in values or ():
            noise, times, share = _parse(text, f"--{option}", steps, rate)
            event: Event
            if option == "pure":
                if share is not None:
                    raise ValueError(
                        f"--pure {text}: only Gaussian and Laplace noise can be sampled. Give the rate to those alone, "
                        f"e.g. --gaussian 1.5:2250:0.04."
                    )
                event = PureEvent(noise)
            else:
                event = _sampled(GaussianEvent(noise) if option == "gaussian" else LaplaceEvent(noise), share)
            counted[event] = counted.get(event, 0) + times
    if not counted:
        raise ValueError("no release was given. Give --gaussian, --laplace or --pure, e.g. --gaussian 1.5.")
    with _computing():
        spent = epsilon(counted, delta, adjacency=Adjacency.of(adjacency.value))
    if as_json:
        releases = [{"event": event.to_dict(), "times": times} for event, times in counted.items()]
        print_json({"epsilon": spent, "delta": delta, "adjacency": adjacency.value, "releases": releases})
        return
    for event, times in counted.items():
        say(f"{event} x {times}")
    say(f"epsilon = {_round_up(spent, 4)} at delta = {delta:.3g} ({adjacency.value})")
    if math.isinf(spent) and delta == 0:
        say("Gaussian noise has no finite epsilon at delta = 0. Give a small positive delta.")
    elif math.isinf(spent):
        say("So little noise protects nobody.")


def _calibrate(
    epsilon: Annotated[float, typer.Option(help="The most that all releases may cost. Positive.")],
    delta: Delta,
    steps: Steps = 1,
    rate: Rate = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    as_json: Json = False,
) -> None:
    from dpadapt import checks
    from dpadapt.accounting.calibrate import calibrate
    from dpadapt.mechanisms.adjacency import Adjacency

    checks.count(steps, "--steps")
    share = 1.0 if rate is None else rate
    if share < 1.0 and epsilon > _LARGEST_SAMPLED_EPSILON:
        raise ValueError(f"--epsilon must be at most {_LARGEST_SAMPLED_EPSILON:g} with --rate: more protects nobody.")
    with _computing():
        noise = calibrate(epsilon, delta, steps=steps, rate=share, adjacency=Adjacency.of(adjacency.value))
    if as_json:
        print_json({
            "noise_multiplier": noise, "epsilon": epsilon, "delta": delta,
            "steps": steps, "rate": share, "adjacency": adjacency.value,
        })  # fmt: skip
        return
    sampled = "" if rate is None else f", each with a Poisson sample of rate {rate:g}"
    say(f"noise multiplier = {_round_up(noise, 6)} for {steps} Gaussian releases{sampled}")
    say(f"together they cost at most epsilon = {epsilon:g} at delta = {delta:g} ({adjacency.value})")


@contextmanager
def _computing() -> Iterator[None]:
    """Refuse numbers so extreme that the accountants fail, or find nothing in reasonable time."""
    extreme = "with noise, a number of releases, a rate, epsilon or delta as extreme as these"
    with time_limit(_LONGEST_COMPUTATION, f"no answer was found in {_LONGEST_COMPUTATION} seconds {extreme}."):
        try:
            with working("computing"):
                yield
        except Exception as error:
            if made_here(error):
                raise
            raise ValueError(f"the cost can't be computed {extreme} ({type(error).__name__}).") from None


def _parse(text: str, option: str, steps: int, rate: float | None) -> tuple[float, int, float | None]:
    """Read NOISE[:STEPS[:RATE]]."""
    from dpadapt import checks

    parts = text.split(":")
    try:
        if len(parts) > 3:
            raise ValueError
        noise = float(parts[0])
        times = int(parts[1]) if len(parts) > 1 else steps
        share = float(parts[2]) if len(parts) > 2 else rate
    except ValueError:
        raise ValueError(
            f"{option} must be NOISE, NOISE:STEPS or NOISE:STEPS:RATE, e.g. {option} 1.5:100, got {text!r}."
        ) from None
    named = "the epsilon of --pure" if option == "--pure" else f"the noise of {option}"
    checks.count(times, "steps")
    return checks.positive(noise, named), times, share if share is None else checks.unit(share, "rate")


def _sampled(event: "Event", share: float | None) -> "Event":
    from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent, SampledEvent

    if share is None or share == 1.0 or not isinstance(event, GaussianEvent | LaplaceEvent):
        return event
    return SampledEvent(event, share)


def _round_up(value: float, digits: int) -> str:
    """Return `digits` digits of a cost or of noise, rounded up: an upper bound stays one, up to one part in 10^9."""
    if not math.isfinite(value):
        return f"{value:g}"
    nearly = decimal.Context(prec=10).create_decimal_from_float(value)
    rounded = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).plus(nearly)
    return f"{rounded.normalize():f}" if 1e-6 <= value < 1e12 or value == 0 else f"{rounded:e}"
