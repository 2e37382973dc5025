"""Every way to a model in the hybrid setting, on populations that differ from the curator's sample or do not.

Part of `python -m benchmarks hybrid`. The curator's budget is (1, 1e-5) under add-remove, each person's epsilon is 1.
The seeds differ from those that the method's constants were chosen on. No method uses the test rows. The ablation takes
one part of the method away at a time.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.hybrid.populations import POPULATIONS, Problem, population
from benchmarks.transfer.common import everywhere, judged, real_data
from dpadapt.hybrid import classifier_fit, classifier_plan
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.mapped_questions import public_map
from dpadapt.papers.reweigh.learners import DescentLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

Row = dict[str, Any]

EPSILON, DELTA, PERSON = 1.0, 1e-5, 1.0
CROWDS = (20_000, 200_000, 1_000_000)
PEOPLE = 200_000
# What is measured on every population; and, with 200,000 people, on those that have a target.
WAYS = ("constant", "S-only", "local-only", "auto")
MORE_WAYS = ("T-oracle", "STR")
SEEDS = 5
# Our target: by how much the error of "auto" may exceed the better of S-only and local-only, per population on average;
# a run that exceeds it, or errs more often than a constant, counts as harmed.
HARM = 0.01
# Largest error of ours with 200,000 people, by population.
TARGETS = {"rot10": 0.29, "rot50": 0.33, "Adult, old": 0.232, "Adult, label bias": 0.181}
_FIRST_SEED = 400
_QUICK = ("rot10", "Adult, label bias, 14 columns", "computers_time", "alcohol_south", "wind")
_QUICK_CROWDS = (20_000, 200_000)
# The populations of the ablation: a few of each group, among them those that each part is for.
_ABLATED = (
    "rot10", "Adult, old", "Adult, label bias", "Adult, old, 14 columns", "Adult, manual jobs", "flights, evening",
    "flights, long", "alcohol_south", "catholic_minority", "computers_time", "hotel_time", "trump_south", "houses",
)  # fmt: skip


def _unchanged(agents: Any, where: Any, coef: Any, *rest: Any) -> Any:
    return coef


# What each ablation puts in place of which name, in which module.
ABLATIONS: dict[str, tuple[Any, str, Any]] = {
    "no weights": (classifier_plan, "_LEAST_USEFUL_WEIGHT", math.inf),
    "constant not corrected": (classifier_fit, "correct_constant", _unchanged),
    "coefficients not corrected": (classifier_fit, "correct", _unchanged),
    "people alone never a candidate": (classifier_plan, "_MOST_NOISE_ALONE", 0.0),
    "no momentum": (classifier_fit, "_NOISELESS_MOMENTUM", 0.0),
}
# These two matter only where people's noise is small, so that they are measured with a million people; the others with
# fewer.
_FOR_MANY = ("people alone never a candidate", "no momentum")
_ABLATED_SEEDS = 3


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: a population, a number of people, a seed, and perhaps an ablation."""

    name: str
    people: int
    seed: int
    ablation: str = ""


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    wanted = [one.name for one in POPULATIONS if one.group == "made" or real_data()]
    crowds: tuple[int, ...] = CROWDS
    if quick:
        wanted, crowds = [name for name in wanted if name in _QUICK], _QUICK_CROWDS
    todo = [Piece(name, n, seed) for n in reversed(crowds) for name in wanted for seed in range(SEEDS)]
    if not quick:
        ablated = [name for name in wanted if name in _ABLATED]
        todo += [
            Piece(name, n, seed, what)
            for what in ABLATIONS
            for n in (CROWDS[2:] if what in _FOR_MANY else CROWDS[:2])
            for name in ablated
            for seed in range(_ABLATED_SEEDS)
        ]
    return todo


def target_pieces(*, quick: bool) -> list[Piece]:
    """Return the pieces that the targets need."""
    todo = pieces(quick=quick)
    return [one for one in todo if one.people == PEOPLE and one.name in TARGETS and not one.ablation]


def measure(piece: Piece) -> Row:
    """Return the error of each way on test rows of the people's population, on one draw."""
    seed = _FIRST_SEED + piece.seed
    drawn, n_rows = population(piece.name).draw(seed), population(piece.name).n_rows
    values: dict[str, float] = {}
    with ExitStack() as changes:
        if piece.ablation:
            module, name, value = ABLATIONS[piece.ablation]
            changes.enter_context(patch.object(module, name, value))
        ours = _classifier(drawn, n_rows, seed, "auto")
        ours.fit(drawn.X, drawn.y, agents=_agents(drawn, piece.people, seed))
        values["auto"] = _error(ours, drawn)
        if piece.ablation in ("", "no momentum"):
            alone = _classifier(drawn, n_rows, seed, "local")
            values["local-only"] = _error(alone.fit(drawn.X, drawn.y, agents=_agents(drawn, piece.people, seed)), drawn)
    if not piece.ablation:
        values["constant"] = float(min(np.mean(drawn.y_test), 1 - np.mean(drawn.y_test)))
        values["S-only"] = _error(_classifier(drawn, n_rows, seed, "curator").fit(drawn.X, drawn.y), drawn)
        if piece.people == PEOPLE and piece.name in TARGETS:
            values["T-oracle"] = _error(_oracle(drawn), drawn)
            values["STR"] = _error(_reweighed(drawn, n_rows, piece.people, seed), drawn)
    return {
        "set": piece.name,
        "people": piece.people,
        "seed": piece.seed,
        "ablation": piece.ablation,
        "values": values,
        "chosen": ours.chosen_,
        "asked": ours.people_asked_,
        "columns": drawn.X.shape[1],
    }


def _agents(drawn: Problem, people: int, seed: int) -> SimulatedAgents:
    return SimulatedAgents(drawn.X_people, drawn.y_people, PERSON, n_people=people, random_state=seed)


def _classifier(drawn: Problem, n_rows: int, seed: int, mode: str) -> PrivateHybridClassifier:
    return PrivateHybridClassifier(
        EPSILON,
        DELTA,
        mode=mode,
        bounds=drawn.bounds,
        groups=drawn.groups,
        classes=[0, 1],
        adjacency="add-remove",
        n_rows=n_rows,
        random_state=seed,
    )


def _reweighed(drawn: Problem, n_rows: int, people: int, seed: int) -> SubsampleTestReweigh:
    """Return Subsample-Test-Reweigh, fitted with no public knowledge except the ranges."""
    where = public_map(drawn.X.shape[1], drawn.bounds, drawn.groups)
    model = SubsampleTestReweigh(
        DescentLearner(where.transform),
        epsilon=EPSILON,
        delta=DELTA,
        divergence=5.0,
        classes=[0, 1],
        adjacency="add-remove",
        n_rows=n_rows,
        random_state=seed,
    )
    model.fit(drawn.X, drawn.y, agents=_agents(drawn, people, seed))
    return model


def _oracle(drawn: Problem) -> Any:
    """Return a logistic model of the people's own rows, without privacy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    where = public_map(drawn.X.shape[1], drawn.bounds, drawn.groups)
    model = make_pipeline(FunctionTransformer(where.transform), LogisticRegression(max_iter=300))
    return model.fit(drawn.X_people[:30_000], drawn.y_people[:30_000])


def _error(model: Any, drawn: Problem) -> float:
    return float(np.mean(model.predict(drawn.X_test) != drawn.y_test))


def figures_of(
    rows: Sequence[Row], name: str, way: str, people: int = PEOPLE, ablation: str = ""
) -> NDArray[np.float64]:
    """Return a way's errors over seeds."""
    key = (name, people, ablation)
    return np.array(
        [r["values"][way] for r in rows if (r["set"], r["people"], r["ablation"]) == key and way in r["values"]]
    )


def sets_of(rows: Sequence[Row]) -> list[str]:
    """Return the populations that were measured, in the order of the table."""
    measured = {row["set"] for row in rows}
    return [one.name for one in POPULATIONS if one.name in measured]


def crowds_of(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of people that were measured."""
    return sorted({row["people"] for row in rows})


def losses(rows: Sequence[Row], people: int) -> dict[str, tuple[float, float]]:
    """Return, by population, auto's error less that of the better of S-only and local-only: mean and half its interval.

    The better one has the lower mean; differences are taken on the same draws, and rounded as they are shown.
    """
    by_set = {}
    for name in sets_of(rows):
        rivals = [figures_of(rows, name, way, people) for way in ("S-only", "local-only")]
        by_set[name] = _difference(figures_of(rows, name, "auto", people) - min(rivals, key=np.mean))
    return by_set


def _gaps(rows: Sequence[Row], people: int) -> dict[str, tuple[float, float]]:
    """Return, by population, auto's error less that of a constant: mean and half its interval, as they are shown."""
    return {
        name: _difference(figures_of(rows, name, "auto", people) - figures_of(rows, name, "constant", people))
        for name in sets_of(rows)
    }


def _difference(values: NDArray[np.float64]) -> tuple[float, float]:
    return round(float(values.mean()), 3), round(_half(values), 3)


def harmed(row: Row) -> bool:
    """Return whether auto erred more often than a constant, or by `HARM` than the better single mode."""
    values = row["values"]
    return bool(
        values["auto"] > min(values["S-only"], values["local-only"]) + HARM or values["auto"] > values["constant"]
    )


def target_claims(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield each target of `TARGETS` with what was measured; the verdict follows from the interval over seeds."""
    for name, target in TARGETS.items():
        values = figures_of(rows, name, "auto")
        if len(values):
            others = " / ".join(f"{figures_of(rows, name, way).mean():.3f}" for way in ("S-only", "STR", "local-only"))
            what = f"{name}, {PEOPLE:,} people: auto errs on at most {target:g} (S-only / STR / local-only {others})"
            yield judged(what, shown(values), target - float(values.mean()), _half(values))


def claims(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield what is claimed of all populations, what was measured, and whether it holds."""
    whole = [row for row in rows if not row["ablation"]]
    for people in crowds_of(whole):
        # The number of populations is part of the claim: a quick run has fewer, and claims less.
        where = f"{people:,} people, {len(sets_of(whole))} populations"
        what = f"{where}: auto's mean error is at most {HARM:g} above the better of S-only and local-only"
        yield _everywhere(what, losses(whole, people), HARM)
        yield _everywhere(f"{where}: auto's mean error is at most a constant's", _gaps(whole, people), 0.0)


def _everywhere(what: str, by_set: dict[str, tuple[float, float]], limit: float) -> dict[str, str]:
    """Return the claim that a difference is at most `limit` on every population.

    It is missed if one population's interval is above the limit, and holds if every interval is below it. Intervals
    over few draws are wide, so the numbers of populations above the limit, and clearly above it, are stated.

    Examples
    --------
    >>> _everywhere("", {"a": (0.001, 0.003), "b": (0.0, 0.0)}, 0.01)["verdict"]
    'holds'
    >>> _everywhere("", {"a": (0.02, 0.03), "b": (0.0, 0.0)}, 0.01)["verdict"]
    'undecided'
    """
    worst = max(by_set, key=lambda name: by_set[name][0])
    above = [name for name, (mean, _) in by_set.items() if mean > limit]
    clearly = [name for name, (mean, half) in by_set.items() if round(mean - half, 3) > limit]
    mean = float(np.mean([mean for mean, _ in by_set.values()]))
    text = (
        f"worst {by_set[worst][0]:+.3f} ± {by_set[worst][1]:.3f} ({worst}); {len(above)} of {len(by_set)} above, "
        f"{len(clearly)} beyond the interval{': ' + ', '.join(clearly) if clearly else ''}; mean {mean:+.4f}"
    )
    # Where auto returns the rival itself on every draw, the difference is 0 without doubt, which is at most 0.
    open_ones = [(limit - mean, half) for mean, half in by_set.values() if (limit - mean, half) != (0.0, 0.0)]
    return everywhere(what, text, open_ones or [(1.0, 0.0)])


def tables(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield a table of all ways for each number of people, the shares of harmed runs, and the ablation."""
    whole = [row for row in rows if not row["ablation"]]
    for people in crowds_of(whole):
        ways = [*(MORE_WAYS if people == PEOPLE else ()), *WAYS]
        body = []
        by_set = losses(whole, people)
        for name in sets_of(whole):
            mine = [row for row in whole if (row["set"], row["people"]) == (name, people)]
            picks = ", ".join(f"{what} {sum(row['chosen'] == what for row in mine)}" for what in _picks(mine))
            values = [shown(figures_of(whole, name, way, people)) for way in ways]
            mean, half = by_set[name]
            body.append([name, f"{mine[0]['columns']}", *values, f"{mean:+.3f} ± {half:.3f}", picks])
        yield {
            "title": f"Error on the people's population, {people:,} people",
            "words": "Means over seeds ± half of a 95% interval. Loss: auto less the better of S-only and local-only.",
            "columns": ["population", "columns", *ways, "loss", "chosen"],
            "rows": body,
        }
    yield _harm_table(whole)
    if len(whole) < len(rows):
        yield _ablation_table(rows)


def _harm_table(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the share of harmed runs by group of populations and number of people."""
    groups = {one.name: one.group for one in POPULATIONS}
    body = []
    for group in [*dict.fromkeys(groups[name] for name in sets_of(rows)), "all"]:
        cells = []
        for people in crowds_of(rows):
            mine = [row for row in rows if row["people"] == people and group in ("all", groups[row["set"]])]
            worse = sum(harmed(row) for row in mine)
            low, high = interval(worse, len(mine))
            cells.append(f"{worse} of {len(mine)}: {worse / len(mine):.2f} ({low:.2f} to {high:.2f})")
        body.append([group, *cells])
    return {
        "title": "Harmed runs",
        "words": f"Runs in which auto errs {HARM:g} more than the better of S-only and local-only, or more than a "
        "constant; share and 95% interval.",
        "columns": ["populations", *(f"{people:,} people" for people in crowds_of(rows))],
        "rows": body,
    }


def _ablation_table(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how much the error grows without each part, on the same draws."""
    body = []
    for what in ABLATIONS:
        for way in ("auto", "local-only") if what == "no momentum" else ("auto",):
            cells = []
            for people in crowds_of(rows):
                by_set = {}
                for name in sets_of(rows):
                    without = figures_of(rows, name, way, people, what)
                    if len(without):
                        by_set[name] = float((without - figures_of(rows, name, way, people)[: len(without)]).mean())
                if by_set:
                    most, least = (pick(by_set, key=lambda name: by_set[name]) for pick in (max, min))
                    mean = float(np.mean(list(by_set.values())))
                    cells.append(f"{mean:+.4f} ({by_set[least]:+.3f} {least}; {by_set[most]:+.3f} {most})")
                else:
                    cells.append("-")
            body.append([what, way, *cells])
    return {
        "title": "Ablation",
        "words": "How much the error grows without each part: mean over populations (least; most), on the same draws.",
        "columns": ["change", "way", *(f"{people:,} people" for people in crowds_of(rows))],
        "rows": body,
    }


def figures(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield error against the number of people, with the methods that don't depend on it as levels."""
    whole = [row for row in rows if not row["ablation"]]
    crowds = crowds_of(whole)
    panels = []
    for name in sets_of(whole) if len(crowds) > 1 else ():
        lines = []
        for way in ("auto", "local-only"):
            errors = [(n, figures_of(whole, name, way, n)) for n in crowds]
            points = [{"x": n, "mean": v.mean(), "spread": v.std()} for n, v in errors if len(v)]
            lines.append({"name": way, "points": points})
        levels = [{"name": way, "value": figures_of(whole, name, way).mean()} for way in ("constant", "S-only")]
        panels.append({"title": name, "x_label": "people", "lines": lines, "levels": levels})
    if panels:
        words = "Auto combines the curator's sample with people of another population; local-only has no curator."
        yield {"title": "Error by number of people", "words": words, "y_label": "error", "panels": panels}


def interval(successes: int, runs: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share."""
    z, share = 1.96, successes / runs
    centre, width = share + z**2 / (2 * runs), z * math.sqrt(share * (1 - share) / runs + z**2 / (4 * runs**2))
    return max(0.0, (centre - width) / (1 + z**2 / runs)), min(1.0, (centre + width) / (1 + z**2 / runs))


def _picks(rows: Sequence[Row]) -> list[str]:
    return sorted({row["chosen"] for row in rows})


def shown(values: NDArray[np.float64]) -> str:
    """Return a mean over seeds with half of its 95% interval, by Student's t."""
    if len(values) < 2:
        return f"{values.mean():.3f}" if len(values) else "-"
    return f"{values.mean():.3f} ± {_half(values):.3f}"


def _half(values: NDArray[np.float64]) -> float:
    """Return half of the 95% interval of a mean over seeds; infinite for one seed."""
    if len(values) < 2:
        return math.inf
    return float(student.isf(0.025, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
