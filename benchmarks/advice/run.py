"""The adviser against what then happens: the gain that `advise` foresees from public rows, and that of the advised fit.

The tasks of no paper (`fresh`), with all private rows, and the three raw tables. The adviser reads the
public rows and a few facts: the label, the number of private rows, the column of persons (wages), whether the public
rows are a sample of the private population (`same`). What it advises is then fitted at epsilon 1 and 3. Ratios are
errors over those of the public model alone, on rows of the private population: mean squared errors, or log-losses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import log_loss

from benchmarks.data.sources import FRESH
from benchmarks.running import command, cores, watched
from benchmarks.tables.run import TASKS as TABLES
from benchmarks.tables.run import folder
from benchmarks.transfer.common import (
    claim,
    print_tables,
    real_data,
    setting_text,
    split,
    versions,
    write_claims_and_tables,
)
from benchmarks.transfer.sets import TASKS, Task, loaded
from dpadapt import Public, Schema, TableModel, advise
from dpadapt.advice import Candidate
from dpadapt.methods import find
from dpadapt.tables import Category
from dpadapt.transfer.preview import PUBLIC_ONLY_BUDGET

Array = NDArray[Any]
EPSILONS = (1.0, 3.0)
# Draws of private rows, test rows and noise; of the three tables noise alone.
SEEDS = (2, 4)
# Above this rank correlation the adviser's gains say which tasks gain more; splits along columns had it in a prototype.
LEAST_CORRELATION = 0.65
# Least gain that counts, as the adviser has it.
LEAST_GAIN = 0.02
# Verdicts: a gain at epsilon 1, at epsilon 3 alone (which is as good as three times the rows), or none.
USE, MORE, PUBLIC = "use it", "more rows or budget", "public model"
START, END = "<!-- bench advice -->", "<!-- end of bench advice -->"
_FRESH = {file.part for file in FRESH}
_PERSONS = {"wages": "idcode"}


@dataclass(frozen=True, eq=False)
class Case:
    """A public table, and a function that returns private rows and test rows for a seed."""

    name: str
    label: str
    public: pd.DataFrame
    schema: Schema
    draw: Callable[[int], tuple[pd.DataFrame, pd.DataFrame]]
    person: str | None = None
    same_population: bool = False


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    name: str
    seeds: int


def case(name: str) -> Case:
    """Return the case of a name."""
    if name in {task.name for task in TABLES}:
        return _raw_table(name)
    return _fresh(next(task for task in TASKS if task.name == name))


def _raw_table(name: str) -> Case:
    task = next(task for task in TABLES if task.name == name)
    place = folder()
    if place is None:
        raise SystemExit("DPADAPT_DATA must name a folder with the tables.")
    public, private, test = (pd.read_csv(place / f"{name}-{part}.csv") for part in ("public", "private", "test"))
    person = _PERSONS.get(name)
    schema = Schema.infer(public, dataset=name)
    if person is not None:
        schema = schema.ignoring(person)
    return Case(name, task.label, public, schema, lambda seed: (private, test), person)


def _fresh(task: Task) -> Case:
    domains, _ = loaded(task)
    public, pool = (_frame(task, *part) for part in ((domains.X_public, domains.y_public), (domains.X, domains.y)))
    schema = Schema.infer(public, dataset=task.name)
    if task.kind == "classification":
        # The user knows the classes, also those that public rows lack.
        values = tuple(np.unique([*public["label"], *pool["label"]]).tolist())
        columns = tuple(Category("label", values) if c.name == "label" else c for c in schema.columns)
        schema = replace(schema, columns=columns)

    def draw(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        test, private = split(len(pool), seed)
        return pool.iloc[private[0]], pool.iloc[test]

    return Case(task.name, "label", public, schema, draw, same_population=task.name.endswith("_same"))


def _frame(task: Task, X: Array, y: Array) -> pd.DataFrame:
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    label = pd.Series(y).map("class {}".format) if task.kind == "classification" else y
    return frame.assign(label=label)


def measure(piece: Piece) -> dict[str, Any]:
    """Return what the adviser foresees for one case, and what then happens."""
    given = case(piece.name)
    draws = [given.draw(seed) for seed in range(piece.seeds)]
    advice = advise(
        given.public,
        len(draws[0][0]),
        label=given.label,
        schema=given.schema,
        person=given.person,
        same_population=given.same_population,
        epsilons=EPSILONS,
        random_state=0,
    )
    chosen = advice.chosen
    if chosen is None:
        raise ValueError(f"{piece.name} has too few public rows to rehearse on.")
    # Held, so that its preparation is shared by all fits.
    public = advice.model.encode_public(given.public).declared
    alone = _fitted(find(None, advice.task).estimator(**PUBLIC_ONLY_BUDGET), advice.model, draws[0][0], public)
    realised = [
        [_realised(advice.model, chosen, public, alone, draw, epsilon, seed) for epsilon in EPSILONS]
        for seed, draw in enumerate(draws)
    ]
    return {
        "task": piece.name,
        "kind": advice.task,
        "n": len(draws[0][0]),
        "way": chosen.name,
        "splits": list(advice.splits),
        "foreseen": chosen.ratios.tolist(),
        "expected": chosen.expected.tolist(),
        "verdict": verdict(chosen.expected),
        "realised": realised,
        "right verdict": verdict(np.mean(realised, axis=0)),
    }


def _realised(
    model: TableModel, chosen: Candidate, public: Public, alone: Any, draw: Any, epsilon: float, seed: int
) -> float:
    """Return the error of the advised fit on test rows over that of the public model."""
    private, test = draw
    estimator = model.estimator.__class__(**model.estimator.get_params(deep=False))
    estimator.set_params(epsilon=epsilon, random_state=seed)
    fitted = _fitted(estimator, model, private, public if chosen.use_public else None)
    rows = model.encode_public(test)
    return _error(fitted, rows.X, rows.y) / _error(alone, rows.X, rows.y)


def _fitted(estimator: Any, model: TableModel, private: pd.DataFrame, public: Public | None) -> Any:
    """Return the estimator, fitted as `TableModel.fit` does on encoded rows."""
    table = TableModel(estimator, model.schema, label=model.label, person=model.person)
    rows = table.encode_private(private)
    return table.configured().fit(rows.X, rows.y, public=public, persons=rows.shares)


def _error(model: Any, X: Array, y: Any) -> float:
    if hasattr(model, "predict_proba"):
        return float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    return float(np.mean((model.predict(X) - y) ** 2))


def verdict(ratios: Any) -> str:
    """Return what ratios at epsilon 1 and 3 say.

    Examples
    --------
    >>> verdict([0.9, 0.8]), verdict([0.99, 0.8]), verdict([1.0, 0.99])
    ('use it', 'more rows or budget', 'public model')
    """
    now, later = (1.0 - float(ratio) >= LEAST_GAIN for ratio in ratios)
    return USE if now else (MORE if later else PUBLIC)


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    if not real_data():
        raise SystemExit("DPADAPT_DATA must be set: this benchmark has real sets only.")
    todo = _pieces(quick=quick)
    rows = [row for _, row in watched(measure, todo, cores(), name=lambda piece: piece.name)]
    order = [piece.name for piece in todo]
    rows.sort(key=lambda row: order.index(row["task"]))
    return {"quick": quick, "versions": versions(), "rows": rows}


def _pieces(*, quick: bool) -> list[Piece]:
    names = [task.name for task in TASKS if task.name in _FRESH and (task.quick or not quick)]
    if folder() is not None and not quick:
        names += [task.name for task in TABLES]
    return [Piece(name, SEEDS[0 if quick else 1]) for name in names]


# What is shown.


def in_range(row: dict[str, Any], *, differences_only: bool = False) -> bool:
    """Return whether the mean realised ratio at epsilon 1 lies between the least and the largest foreseen one.

    Examples
    --------
    >>> row = {"foreseen": [[1.0, 1.0], [0.8, 0.7], [0.9, 0.8]], "realised": [[0.95, 0.9]]}
    >>> in_range(row), in_range(row, differences_only=True)
    (True, False)
    """
    ratios = [ratio[0] for ratio in row["foreseen"]]
    shown = ratios[1:] if differences_only and len(ratios) > 1 else ratios
    return bool(min(shown) <= _mean(row) <= max(shown))


def _mean(row: dict[str, Any]) -> float:
    """Return the mean realised ratio at epsilon 1."""
    return float(np.mean([ratios[0] for ratios in row["realised"]]))


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one table with a row for each case."""
    rows = []
    for row in results["rows"]:
        foreseen = [ratio[0] for ratio in row["foreseen"]]
        shifted = foreseen[1:] or foreseen
        right = row["verdict"] == row["right verdict"]
        texts = [
            row["task"],
            f"{row['n']:,}",
            row["way"],
            f"{foreseen[0]:.3f}",
            f"{min(shifted):.3f} to {max(shifted):.3f}",
            f"{row['expected'][0]:.3f}",
            f"{_mean(row):.3f}",
            "yes" if in_range(row) else "no",
            row["verdict"],
            "right" if right else f"wrong: {row['right verdict']}",
        ]
        rows.append({"cells": texts, "bad": not right})
    header = ["task", "private rows", "advised", "foreseen, no difference", "foreseen, differences", "middle"]
    header += ["realised", "in range", "verdict", "was"]
    words = (
        f"Error over that of the public model at epsilon 1. *Foreseen*: rehearsed on splits of the public rows, at "
        f"random and along columns; *middle* is the geometric mean over the differences. *Realised*: mean over "
        f"{len(results['rows'][0]['realised'])} seeds. *In range*: between the least and the largest foreseen ratio of "
        f"all splits. Verdicts: *use it* if the error at epsilon 1 is at least {LEAST_GAIN:.0%} lower, *more "
        f"rows or budget* if it is so at epsilon 3 only."
    )
    return [{"title": "Every case", "words": words, "header": header, "rows": rows}]


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return each question with its figure."""
    rows = results["rows"]
    inside, narrow = (sum(in_range(row, differences_only=only) for row in rows) for only in (False, True))
    better = sum(_mean(row) < min(ratio[0] for ratio in row["foreseen"]) for row in rows)
    expected, realised = np.array([[row["expected"][0], _mean(row)] for row in rows]).T
    correlation = float(spearmanr(expected, realised).statistic) if len(rows) > 2 else 0.0
    # Logarithms of how far foreseen ratios are above realised ones.
    apart = np.log(expected / realised)
    off, typical = (float(np.expm1(part)) for part in (np.mean(apart), np.median(np.abs(apart))))
    right = sum(row["verdict"] == row["right verdict"] for row in rows)
    gains = [row for row in rows if row["right verdict"] == USE]
    missed = sum(row["verdict"] != USE for row in gains)
    false = sum(row["verdict"] == USE for row in rows if row["right verdict"] != USE)
    verdicts = (
        f"{right} of {len(rows)}; gains not foreseen {missed} of {len(gains)}; foreseen that did not come {false} of "
        f"{len(rows) - len(gains)}"
    )
    return [
        claim(
            "the realised ratio lies in the foreseen range in half of the cases or more",
            f"{inside} of {len(rows)} ({narrow} without the random split); {better} better than in every split",
            2 * inside >= len(rows),
        ),
        claim(
            f"rank correlation of foreseen and realised ratios at least {LEAST_CORRELATION}",
            f"{correlation:.2f}",
            correlation >= LEAST_CORRELATION,
        ),
        claim(
            "the foreseen ratio is neither too high nor too low by over 5% on average",
            f"{100 * off:+.1f}% on average; off by {100 * typical:.1f}% in the median case",
            abs(off) <= 0.05,
        ),
        claim("the verdict is right in three of four cases", verdicts, 4 * right >= 3 * len(rows)),
    ]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    text = "python -m benchmarks advice"
    write_claims_and_tables(path, (START, END), text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
