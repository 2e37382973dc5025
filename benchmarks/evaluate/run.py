"""Scores released by `evaluate`: how often their interval covers the score of the population, and how wide it is.

Made-up persons, whose population is known: the score of a fixed model on a large sample is the truth. With persons as
the privacy unit, each has one or more rows that resemble each other, and those with many rows differ from the others.
Each repetition draws other private rows and other noise. 200 public rows set the error bound and the bins of scores.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import claim, print_tables, setting_text, versions, write_claims_and_tables
from dpadapt import NoLedgerWarning, Public, evaluate
from dpadapt.evaluation import EVALUATION_METRICS, INTERVAL_COVERAGE

Array = NDArray[Any]
UNITS = ("row", "person")
SIZES = (200, 1_000, 3_000)
EPSILONS = (0.1, 0.3, 1.0)
# Of a cell. The standard error of a coverage of 95% is 1.3 points.
REPETITIONS = 300
QUICK_SIZES = (200, 1_000)
# Persons in the sample that stands for the population.
_POPULATION = 400_000
_PUBLIC_ROWS = 200
# Of log-losses, as `evaluate` has it by default.
_LARGEST_LOG_LOSS = -math.log(0.01)
# Least coverage of a cell at which the claim holds: 2.4 standard errors below the nominal one; there are many cells.
LEAST_COVERAGE = 0.92
START, END = "<!-- bench evaluate -->", "<!-- end of bench evaluate -->"


@dataclass(frozen=True, eq=False)
class People:
    """Rows of persons, with a class and an amount each."""

    X: Array
    named: Array
    amount: Array
    ids: Array

    def labels(self, metric: str) -> Array:
        """Return what the metric's model predicts."""
        return self.amount if metric == "squared-error" else self.named


def people(n: int, unit: str, random: np.random.Generator) -> People:
    """Return n persons: with one row each, or with several that resemble each other.

    Examples
    --------
    >>> several = people(100, "person", np.random.default_rng(0))
    >>> len(np.unique(several.ids)), len(several.ids) > 150
    (100, True)
    """
    own = random.standard_normal(n)
    rows = np.ones(n, dtype=int) if unit == "row" else 1 + random.poisson(np.exp(0.5 + 0.5 * own))
    ids = np.repeat(np.arange(n), rows)
    effect = own[ids]
    X = np.column_stack([0.7 * effect, 0.5 * random.standard_normal(n)[ids], np.zeros(len(ids))])
    X += 0.7 * random.standard_normal(X.shape)
    score = X @ [1.0, -1.0, 0.5] + 0.5 * X[:, 0] ** 2 + 0.5 * effect
    named = (random.random(len(ids)) < 1.0 / (1.0 + np.exp(2.0 - score))).astype(int)
    # Errors have heavier tails than normal ones.
    return People(X, named, score + random.standard_t(5, len(ids)), ids)


@cache
def fixed(metric: str, unit: str) -> tuple[Any, Public, float]:
    """Return the model, public rows, and the largest loss that counts."""
    public = people(_PUBLIC_ROWS, unit, np.random.default_rng(1))
    y = public.labels(metric)
    model = (LinearRegression() if metric == "squared-error" else LogisticRegression()).fit(public.X, y)
    if metric == "squared-error":
        # As `evaluate` has it by default: four root mean squared errors on public rows.
        return model, Public(public.X, y), 16.0 * float(np.mean((model.predict(public.X) - y) ** 2))
    return model, Public(public.X, y), _LARGEST_LOG_LOSS if metric == "log-loss" else 1.0


@cache
def truth(metric: str, unit: str) -> tuple[float, float]:
    """Return the metric of the population, each person counting alike, with clipped losses and with all of them."""
    model, _, largest = fixed(metric, unit)
    everyone = people(_POPULATION, unit, np.random.default_rng(2))
    y, weights = everyone.labels(metric), 1.0 / np.bincount(everyone.ids)[everyone.ids]
    if metric == "auc":
        area = float(roc_auc_score(y, model.predict_proba(everyone.X)[:, 1], sample_weight=weights))
        return area, area
    if metric == "accuracy":
        losses = (model.predict(everyone.X) == y).astype(float)
    elif metric == "log-loss":
        losses = -np.log(model.predict_proba(everyone.X)[np.arange(len(y)), y])
    else:
        losses = (model.predict(everyone.X) - y) ** 2
    clipped, whole = (float(np.average(part, weights=weights)) for part in (np.minimum(losses, largest), losses))
    return clipped, whole


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: one cell."""

    metric: str
    unit: str
    n: int
    epsilon: float
    repetitions: int

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.metric}, {self.n:,} {self.unit}s, epsilon {self.epsilon:g}"


def measure(piece: Piece) -> dict[str, Any]:
    """Return how often the intervals of a cell cover, and how wide they are."""
    model, public, largest = fixed(piece.metric, piece.unit)
    clipped, whole = truth(piece.metric, piece.unit)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoLedgerWarning)
        for seed in range(piece.repetitions):
            drawn = people(piece.n, piece.unit, np.random.default_rng([3, piece.n, seed]))
            results.append(
                evaluate(
                    model,
                    drawn.X,
                    drawn.labels(piece.metric),
                    epsilon=piece.epsilon,
                    metric=piece.metric,
                    public=public,
                    persons=None if piece.unit == "row" else drawn.ids,
                    random_state=seed,
                )
            )
    low, high, value = (np.array([getattr(r, name) for r in results]) for name in ("low", "high", "value"))
    nothing = (low <= 0.0) & (high >= largest)
    return {
        "metric": piece.metric,
        "unit": piece.unit,
        "n": piece.n,
        "epsilon": piece.epsilon,
        "repetitions": piece.repetitions,
        "truth": clipped,
        "coverage": float(np.mean((low <= clipped) & (clipped <= high))),
        "whole coverage": float(np.mean((low <= whole) & (whole <= high))),
        "nothing": int(nothing.sum()),
        "width": float(np.mean((high - low)[~nothing])) if not nothing.all() else None,
        # The width at which a normal estimate with this spread is covered as often as is claimed.
        "needed": 3.92 * float(np.std(value[~nothing])) if (~nothing).sum() > 1 else None,
    }


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    sizes = QUICK_SIZES if quick else SIZES
    todo = [
        Piece(metric, unit, n, epsilon, REPETITIONS)
        for metric in EVALUATION_METRICS
        for unit in UNITS
        for n in sizes
        for epsilon in EPSILONS
    ]
    found = dict(watched(measure, todo, cores(), name=lambda piece: piece.name))
    return {"quick": quick, "versions": versions(), "rows": [found[piece] for piece in todo]}


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one table with a row for each cell."""
    rows = [
        {
            "cells": [
                row["metric"],
                f"{row['n']:,} {row['unit']}s",
                f"{row['epsilon']:g}",
                f"{row['truth']:.3f}",
                f"{row['coverage']:.3f}",
                f"{row['whole coverage']:.3f}" if row["metric"] in ("log-loss", "squared-error") else "",
                f"{row['nothing']} of {row['repetitions']}",
                "" if row["width"] is None else f"{row['width']:.3f}",
                "" if not row["needed"] else f"{row['width'] / row['needed']:.2f}",
            ],
            "bad": row["coverage"] < LEAST_COVERAGE,
        }
        for row in results["rows"]
    ]
    header = ["metric", "private", "epsilon", "truth", "coverage", "coverage, losses not clipped"]
    header += ["holds every value", "width", "width / needed"]
    words = (
        f"{INTERVAL_COVERAGE:.0%} is asked for; Laplace noise; {results['rows'][0]['repetitions']} repetitions. "
        f"*Truth* is the metric of the population, for log-loss and squared error with losses clipped as `evaluate` "
        f"clips them. An interval that *holds every value* says that there are too few rows for the noise; *width* is "
        f"the mean over the others, and *needed* the width that would cover 95% of these estimates if they were normal."
    )
    return [{"title": "Intervals of released scores", "words": words, "header": header, "rows": rows}]


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return each claim with its figure."""
    made = []
    for unit in UNITS:
        rows = [row for row in results["rows"] if row["unit"] == unit]
        worst = min(rows, key=lambda row: float(row["coverage"]))
        mean = float(np.mean([row["coverage"] for row in rows]))
        cell = f"{worst['metric']}, {worst['n']:,}, epsilon {worst['epsilon']:g}"
        text = f"{worst['coverage']:.3f} ({cell}); mean {mean:.3f}"
        made.append(
            claim(
                f"{unit}s: coverage at least {LEAST_COVERAGE} in every cell", text, worst["coverage"] >= LEAST_COVERAGE
            )
        )
        made.append(_width_claim(unit, rows))
    return made


def _width_claim(unit: str, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    ratios = [row["width"] / row["needed"] for row in rows if row["needed"] and row["nothing"] == 0]
    middle, largest = (float(pick(ratios)) if ratios else math.inf for pick in (np.median, np.max))
    text = f"median {middle:.3f}, largest {largest:.3f}, in {len(ratios)} of {len(rows)} cells without an empty answer"
    return claim(f"{unit}s: intervals at most 1.3 times as wide as needed, in the median cell", text, middle <= 1.3)


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    text = "python -m benchmarks evaluate"
    write_claims_and_tables(path, (START, END), text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
