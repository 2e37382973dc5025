"""Every way to a model in the hybrid setting, on populations that differ from the curator's sample or do not.

Part of `python -m benchmarks hybrid`. The curator's budget is (1, 1e-5) under add-remove, each person's epsilon is 1.
The seeds differ from those that the method's constants were chosen on. No method uses the test rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.hybrid.populations import POPULATIONS, Problem, population
from benchmarks.transfer.common import claim, real_data
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.mapped_questions import public_map
from dpadapt.papers.reweigh.learners import DescentLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

Row = dict[str, Any]

EPSILON, DELTA, PERSON = 1.0, 1e-5, 1.0
PEOPLE = 200_000
WAYS = ("T-oracle", "constant", "S-only", "STR", "local-only", "ours")
# Further numbers of people in the figure; 200,000, for the table, is measured on more seeds.
CROWDS = (50_000, 1_000_000)
DRAWN = ("rot10", "rot50", "Adult, old", "Adult, label bias", "flights, evening")
# Largest error of ours, by population.
TARGETS = {"rot10": 0.29, "rot50": 0.33, "Adult, old": 0.232, "Adult, label bias": 0.181}
# Largest increase of the error: of any run over its own S-only model; of a set without bias, on average, over the
# S-only model with the whole budget.
HARM, LOSS = 0.002, 0.005
_FIRST_SEED = 300
_QUICK = ("rot10", "rot50", "Adult, old", "Adult, label bias", "Adult, no bias")


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: a population, a number of people, a seed."""

    name: str
    people: int
    seed: int
    ways: tuple[str, ...]


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    wanted = [one for one in POPULATIONS if not one.real or real_data()]
    if quick:
        wanted = [one for one in wanted if one.name in _QUICK]
    names = [one.name for one in reversed(wanted)]
    todo = [] if quick else [Piece(name, max(CROWDS), s, ("local-only", "ours")) for name in names for s in range(3)]
    todo += [Piece(name, PEOPLE, s, WAYS) for name in names for s in range(2 if quick else 10)]
    if not quick:
        todo += [Piece(name, min(CROWDS), s, ("local-only", "ours")) for name in names for s in range(3)]
    return [piece for piece in todo if piece.people == PEOPLE or piece.name in DRAWN]


def measure(piece: Piece) -> Row:
    """Return the error of each way on test rows of the people's population, on one draw."""
    seed = _FIRST_SEED + piece.seed
    drawn, about = population(piece.name).draw(seed), population(piece.name)
    values: dict[str, float] = {}
    if "T-oracle" in piece.ways:
        values["T-oracle"] = _error(_oracle(drawn), drawn)
        values["constant"] = float(min(np.mean(drawn.y_test), 1 - np.mean(drawn.y_test)))
        values["S-only"] = _error(_classifier(drawn, about.n_rows, seed, "curator").fit(drawn.X, drawn.y), drawn)
        values["STR"] = _error(_reweighed(drawn, about.n_rows, piece.people, seed), drawn)
    agents = _agents(drawn, piece.people, seed)
    values["local-only"] = _error(
        _classifier(drawn, about.n_rows, seed, "local").fit(drawn.X, drawn.y, agents=agents), drawn
    )
    ours = _classifier(drawn, about.n_rows, seed, "auto")
    ours.fit(drawn.X, drawn.y, agents=_agents(drawn, piece.people, seed))
    values["ours"] = _error(ours, drawn)
    own = float(np.mean((ours.source_scores(drawn.X_test) > 0) != drawn.y_test))
    return {
        "set": piece.name,
        "people": piece.people,
        "seed": piece.seed,
        "values": values,
        "chosen": ours.chosen_,
        # In mode "local" there is no model of the curator's rows to compare with.
        "harm": values["ours"] - own if ours.mode_ != "local" else None,
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


def figures_of(rows: Sequence[Row], name: str, way: str, people: int = PEOPLE) -> NDArray[np.float64]:
    """Return a way's errors over seeds."""
    return np.array(
        [r["values"][way] for r in rows if (r["set"], r["people"]) == (name, people) and way in r["values"]]
    )


def sets_of(rows: Sequence[Row]) -> list[str]:
    """Return the populations that were measured, in the order of the table."""
    measured = {row["set"] for row in rows}
    return [one.name for one in POPULATIONS if one.name in measured]


def claims(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield each target, what was measured, and whether it was met."""
    for name, target in TARGETS.items():
        values = figures_of(rows, name, "ours")
        if len(values):
            others = " / ".join(f"{figures_of(rows, name, way).mean():.3f}" for way in ("S-only", "STR", "local-only"))
            what = f"{name}, {PEOPLE:,} people: ours errs on at most {target:g} (S-only / STR / local-only {others})"
            yield claim(what, _shown(values), bool(values.mean() <= target))
    harms = [row["harm"] for row in rows if row["harm"] is not None]
    worst = max(harms)
    what = f"no run errs more than {HARM:g} above its own S-only model"
    over = sum(harm > HARM for harm in harms)
    yield claim(what, f"worst {worst:+.4f}; {over} of {len(harms)} runs above", worst <= HARM)
    for name in sets_of(rows):
        if "no bias" in name:
            loss = (figures_of(rows, name, "ours") - figures_of(rows, name, "S-only")).mean()
            what = f"{name}: ours loses at most {LOSS:g} to S-only with the whole budget, on average"
            yield claim(what, f"{loss:+.4f}", bool(loss <= LOSS))


def tables(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the table of all ways and how the people were used."""
    body = []
    for name in sets_of(rows):
        mine = [row for row in rows if row["set"] == name and row["people"] == PEOPLE]
        values = [_shown(figures_of(rows, name, way)) for way in WAYS]
        picks = ", ".join(f"{what} {sum(row['chosen'] == what for row in mine)}" for what in _picks(mine))
        worst = max((row["harm"] for row in mine if row["harm"] is not None), default=0.0)
        body.append([name, f"{mine[0]['columns']}", *values, f"{worst:+.4f}", picks])
    yield {
        "title": f"Error on the people's population, {PEOPLE:,} people",
        "words": "Means over seeds ± standard deviation. Harm: the worst run against its own S-only model.",
        "columns": ["population", "columns", *WAYS, "harm", "chosen"],
        "rows": body,
    }
    crowds = sorted({row["people"] for row in rows})
    if len(crowds) > 1:
        body = [
            [name, *(_shown(figures_of(rows, name, way, n)) for n in crowds for way in ("local-only", "ours"))]
            for name in sets_of(rows)
            if name in DRAWN
        ]
        columns = ["population", *(f"{way}, {n:,}" for n in crowds for way in ("local-only", "ours"))]
        yield {"title": "Error by number of people", "columns": columns, "rows": body}


def figures(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield error against the number of people, with the methods that don't depend on it as levels."""
    crowds = sorted({row["people"] for row in rows})
    panels = []
    for name in sets_of(rows):
        if name not in DRAWN or len(crowds) < 2:
            continue
        lines = []
        for way in ("ours", "local-only"):
            errors = [(n, figures_of(rows, name, way, n)) for n in crowds]
            points = [{"x": n, "mean": v.mean(), "spread": v.std()} for n, v in errors if len(v)]
            lines.append({"name": way, "points": points})
        levels = [{"name": way, "value": figures_of(rows, name, way).mean()} for way in ("T-oracle", "S-only", "STR")]
        panels.append({"title": name, "x_label": "people", "lines": lines, "levels": levels})
    if panels:
        words = "Ours combines the curator's sample with people of another population; local-only has no curator."
        yield {"title": "Error by number of people", "words": words, "y_label": "error", "panels": panels}


def _picks(rows: Sequence[Row]) -> list[str]:
    return sorted({row["chosen"] for row in rows})


def _shown(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}" if len(values) else "-"
