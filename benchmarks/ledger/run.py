"""The ledger: how much of a cap each rule leaves unused, how far an adaptive analyst gets, and charges a second."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.ledger.analyst import Analyst, FixedInAdvance, SampledNoise
from benchmarks.ledger.charges import measure
from benchmarks.running import command
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.cost import add_entries
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.filter import RULES, Filter, Sums
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, Event, GaussianEvent, LaplaceEvent, PureEvent, SampledEvent

CAPS = [(1.0, 1e-6), (3.0, 1e-5), (10.0, 1e-5), (1.0, 0.05)]

# Caps of epsilon, at delta 1e-6, for charges that people add up.
SUMMED_CAPS = [3.0, 10.0, 50.0]
KINDS = {
    "Gaussian noise": ["Gaussian"],
    "Gaussian noise, pure releases": ["Gaussian", "pure"],
    "these and 500 steps on samples": ["Gaussian", "pure", "sampled"],
}

Mixture = Callable[[float, float], list[Entry]]


def _times(number: int, event: Event, steps: int = 1) -> list[Entry]:
    return [Entry("charge", event, steps)] * number


# Charges of a ledger, each made on its own, as a function of the cap's epsilon and of the noise that fills the ledger.
MIXTURES: dict[str, Mixture] = {
    "10 Gaussian releases": lambda cap, noise: _times(10, GaussianEvent(noise)),
    "5 Gaussian, 5 Laplace of a tenth of the cap": lambda cap, noise: (
        _times(5, GaussianEvent(noise)) + _times(5, LaplaceEvent(10 / cap))
    ),
    "20 responses of 2% of the cap, 1 Gaussian": lambda cap, noise: (
        _times(20, PureEvent(0.02 * cap)) + _times(1, GaussianEvent(noise))
    ),
    "20 runs of 2,000 steps, rate 0.01": lambda cap, noise: _times(20, SampledEvent(GaussianEvent(noise), 0.01), 2000),
}
SAMPLED = "20 runs of 2,000 steps, rate 0.01"


def waste(rule: str, cap: float, delta: float, mixture: Mixture, *, precision: float = 1e-3) -> float | None:
    """Return the share of the cap that is unused when the filter is full, by the exact cost of the same events.

    None if the other charges leave no room for any Gaussian noise.
    """
    terms = Filter.of(rule, cap, delta, Adjacency.ZERO_OUT)

    def level(noise: float) -> float:
        sums = Sums()
        for entry in mixture(cap, noise):
            sums += terms.sums([entry], sums)
        return terms.level(sums)

    low, high = 0.3, 300.0
    if level(high) > cap:
        return None
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if level(middle) <= cap else (middle, high)
    return 1 - cost_of(add_entries({}, mixture(cap, high)), delta) / level(high)


def charges_of(kind: str, epsilon: float) -> Entry:
    """Return a charge that costs `epsilon` by itself, at delta 1e-6."""
    if kind == "pure":
        return Entry(kind, PureEvent(epsilon))
    if kind == "Gaussian":
        return Entry(kind, GaussianEvent(calibrate(epsilon, 1e-6)))
    return Entry(kind, SampledEvent(GaussianEvent(calibrate(epsilon, 1e-6, steps=500, rate=0.01)), 0.01), 500)


def excess(rule: str, cap: float, charges: Sequence[Entry]) -> float:
    """Return by what share `spent` exceeds the plain sum of the charges' epsilons."""
    terms, sums = Filter.of(rule, cap, 1e-6, Adjacency.ZERO_OUT), Sums()
    for entry in charges:
        sums += terms.sums([entry], sums)
    return terms.level(sums) / sum(cost_of(add_entries({}, [entry]), 1e-6) for entry in charges) - 1


def adding_up(rule: str, kinds: Sequence[str], fives: int) -> dict[str, list[float]]:
    """Return the largest excess at each cap: of a fit of 1 and an evaluation of 0.5, of two charges, and of five."""
    choices = [charges_of(kind, epsilon) for kind in kinds for epsilon in (0.1, 0.3, 1.0, 3.0)]
    random = np.random.default_rng(0)
    groups = {
        "fit 1, evaluate 0.5": [[charges_of(kinds[0], 1.0), charges_of(kinds[min(1, len(kinds) - 1)], 0.5)]],
        "two": [list(pair) for pair in itertools.product(choices, repeat=2)],
        "five": [[choices[k] for k in random.integers(len(choices), size=5)] for _ in range(fives)],
    }
    return {
        name: [max(excess(rule, cap, charges) for charges in group) for cap in SUMMED_CAPS]
        for name, group in groups.items()
    }


def reach(terms: Filter, **effort: Any) -> float:
    """Return the delta that the best analyst reaches, over the cap's delta."""
    return Analyst(terms, **effort).delta() / terms.delta


def fixed_in_advance(cap: float, delta: float) -> FixedInAdvance:
    """Return the rule of an accountant for a plan that was fixed in advance."""
    terms = Filter.of("mixed", cap, delta, Adjacency.ZERO_OUT)
    return FixedInAdvance(cap, delta, terms.adjacency, terms.share, terms.order)


def sampled_runs(cap: float) -> list[SampledNoise]:
    """Return sampled runs of several sizes for an analyst."""
    return [SampledNoise(noise / cap**0.7) for noise in (2.0, 3.0, 4.5, 7.0)]


def run(*, quick: bool) -> dict[str, Any]:
    """Compute all tables."""
    shares = (0.02, 0.3, 0.5, 0.7, 0.9) if quick else (0.005, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
    three = (
        {"middles": (0.3, 0.8), "nodes": 201} if quick else {"middles": (0.05, 0.2, 0.4, 0.6, 0.8, 0.95), "nodes": 401}
    )
    mixtures = [name for name in MIXTURES if not (quick and name == SAMPLED)]
    return {
        "advance": [
            {"cap": cap, "two": reach(fixed_in_advance(*cap), firsts=(0.3, 0.5, 0.7), bisections=10, nodes=301)}
            for cap in (CAPS[:1] if quick else CAPS[:2])
        ],
        "waste": [
            {"mixture": name, "rule": rule, "shares": [waste(rule, *cap, MIXTURES[name]) for cap in CAPS[:3]]}
            for name in mixtures
            for rule in RULES
        ],
        "sum": [
            {"charges": name, "rule": rule, "excess": adding_up(rule, kinds, 50 if quick else 500)}
            for name, kinds in list(KINDS.items())[: 2 if quick else None]
            for rule in RULES
        ],
        "reach": [
            {
                "rule": rule,
                "cap": cap,
                "two": reach(Filter.of(rule, *cap, Adjacency.ZERO_OUT), firsts=shares, nodes=901),
                "three": reach(Filter.of(rule, *cap, Adjacency.ZERO_OUT), firsts=shares, **three),
            }
            for rule in RULES
            for cap in CAPS
        ],
        "charges": measure(quick=quick),
    }


def show(results: dict[str, Any]) -> None:
    """Print all tables."""
    from rich.console import Console
    from rich.table import Table

    def percent(shares: Sequence[float | None]) -> str:
        return " / ".join("no room" if share is None else f"{share:.1%}" for share in shares)

    console, caps = Console(), " / ".join(f"({e:g}, {d:g})" for e, d in CAPS[:3])
    table = Table("charges", "rule", f"unused at caps {caps}", title="what the filter leaves unused")
    for row in results["waste"]:
        table.add_row(row["mixture"], row["rule"], percent(row["shares"]))
    console.print(table)
    caps = " / ".join(f"{cap:g}" for cap in SUMMED_CAPS)
    table = Table("charges", "rule", "fit 1, evaluate 0.5", "two", "five", title=f"over the plain sum, at caps {caps}")
    for row in results["sum"]:
        table.add_row(row["charges"], row["rule"], *(percent(row["excess"][name]) for name in row["excess"]))
    console.print(table)
    table = Table(
        "rule", "cap", "two charges", "three charges", title="delta of the best adaptive analyst, over the cap's"
    )
    for row in results["reach"]:
        table.add_row(row["rule"], str(tuple(row["cap"])), f"{row['two']:.4f}", f"{row['three']:.4f}")
    console.print(table)
    table = Table("place", "processes", "threads of each", "charges a second", title="charges a second")
    for row in results["charges"]:
        table.add_row(row["place"], str(row["processes"]), str(row["threads"]), f"{row['rate']:.0f}")
    console.print(table)
    for row in results["advance"]:
        console.print(
            f"costed as if fixed in advance, cap {tuple(row['cap'])}: two charges reach {row['two']:.2f} times delta"
        )
    worst = max(max(row["two"], row["three"]) for row in results["reach"])
    console.print(f"worst: {worst:.4f} ({'no analyst got past a cap' if worst <= 1 + 1e-6 else 'A CAP WAS PASSED'})")


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
