"""Bounds that are too wide: what they cost a private fit without public data, and what finding it out costs.

Errors are mean squared errors (log-loss of the classifier) over all rows of a set, averaged over samples and noise.
"Without ranges" is the same fit, the whole budget of which goes into the model. The constants that steer the ranges
were chosen on the same sets, with other samples and other noise.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.metrics import log_loss

from benchmarks.running import command
from dpadapt import PrivateLinearRegression, PrivateLogisticRegression
from dpadapt.datasets.bundled import digits, fair, randhie
from dpadapt.learning import ranges

WIDE = 10.0
SOLVERS = ("descent", "statistics")
# (rows, epsilon): where the claims about wide bounds are made, and small budgets, where nothing may be lost.
MAIN = (5000, 1.0)
SMALL = ((100, 1.0), (300, 1.0), (1000, 0.1), (1000, 0.3), (1000, 1.0))
DELTA = 1e-6
# Of samples and noise. The constants of `learning/ranges.py` were chosen on these sets, with other seeds.
_FIRST_SEED = 90_000

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """A set of rows with features in [-1, 1], and the bounds of its target."""

    name: str
    X: Array
    y: Array
    bounds: tuple[float, float]

    def draw(self, n_rows: int, seed: int) -> tuple[Array, Array]:
        """Return a random sample; small sets are drawn with replacement."""
        random = np.random.default_rng(_FIRST_SEED + seed)
        repeat = n_rows > 0.8 * len(self.y)
        index = random.integers(0, len(self.y), n_rows) if repeat else random.permutation(len(self.y))[:n_rows]
        return self.X[index], self.y[index]

    def labels(self) -> NDArray[np.int64]:
        """Return whether each target is above the 60% quantile."""
        return (self.y > np.quantile(self.y, 0.6)).astype(np.int64)


def _scaled(table: Any) -> Array:
    """Return columns scaled to [-1, 1] by their ranges, which stand for ranges that are known."""
    values = np.asarray(table, dtype=np.float64)
    low, high = values.min(axis=0), values.max(axis=0)
    return np.asarray(2 * (values - low) / np.where(high > low, high - low, 1.0) - 1)


def samples() -> list[Sample]:
    """Return synthetic and bundled sets with about ten features."""
    random, n = np.random.default_rng(0), 20_000
    uniform = random.uniform(-1, 1, (n, 10))
    weights = random.normal(size=10)
    linear_target = uniform @ (weights / np.abs(weights).sum()) + 0.05 * random.standard_normal(n)
    mixed = random.standard_normal((n, 10)) @ (np.eye(10) + 0.5 * random.normal(size=(10, 10)))
    mixed = np.clip(mixed / np.std(np.abs(mixed)) / 6, -1, 1)
    shift = mixed @ random.normal(size=10)
    binary = (random.random((n, 10)) < random.uniform(0.05, 0.5, 10)).astype(np.float64)
    binary_target = binary @ random.uniform(-0.4, 0.4, 10) + 0.1 * random.standard_normal(n)
    skewed = np.exp(uniform[:, 0] + uniform[:, 1] + 0.7 * random.standard_normal(n))
    visits, people = randhie().frame, fair().frame
    log_visits = np.log1p(visits["mdvis"].to_numpy(float))
    log_affairs = np.log1p(people["affairs"].to_numpy(float))
    patients, disease = load_diabetes(return_X_y=True)
    images = digits().arrays
    pixels = images["X"].reshape(len(images["y"]), -1) / 8 - 1
    busiest = np.argsort(-pixels.var(axis=0))[:10]
    unit = (-1.0, 1.0)
    return [
        Sample("uniform", uniform, linear_target, unit),
        Sample("correlated", mixed, np.clip(shift / 4 / shift.std() + 0.1 * random.standard_normal(n), -1, 1), unit),
        Sample("binary features", binary, np.clip(binary_target, -1, 1), unit),
        Sample("skewed target", uniform, np.minimum(skewed, 20.0), (0.0, 20.0)),
        Sample("randhie", _scaled(visits.drop(columns="mdvis")), visits["mdvis"].to_numpy(float), (0.0, 77.0)),
        Sample("randhie, log", _scaled(visits.drop(columns="mdvis")), log_visits, (0.0, float(np.log(78)))),
        Sample("diabetes", _scaled(patients), disease, (25.0, 346.0)),
        Sample("digits", pixels[:, busiest], images["y"].astype(float), (0.0, 9.0)),
        Sample(
            "fair, marriage",
            _scaled(people.drop(columns="rate_marriage")),
            people["rate_marriage"].to_numpy(float),
            (1.0, 5.0),
        ),
        Sample("fair, affairs", _scaled(people.drop(columns="affairs")), log_affairs, (0.0, float(np.log1p(57.6)))),
    ]


def widened(bounds: tuple[float, float], *, centred: bool) -> tuple[float, float]:
    """Return bounds that are ten times as wide, with the same middle or the same lower end."""
    low, high = bounds
    middle, half = (low + high) / 2, WIDE * (high - low) / 2
    return (middle - half, middle + half) if centred else (low, low + 2 * half)


def without_ranges() -> AbstractContextManager[Any]:
    """Return a context in which the whole budget of every fit goes into its model."""
    return patch.object(ranges, "_LEAST_RANGE_SIGNAL", math.inf)


def regression_error(
    sample: Sample, budget: tuple[int, float], solver: str, seeds: int, *, bounds: Any = None, shrink: float = 1.0
) -> float:
    """Return the mean squared error over seeds, with features divided by `shrink`."""
    n_rows, epsilon = budget
    errors = []
    for seed in range(seeds):
        X, y = sample.draw(n_rows, seed)
        model = PrivateLinearRegression(
            epsilon, DELTA, solver=solver, target_bounds=bounds or sample.bounds, random_state=_FIRST_SEED + seed
        ).fit(X / shrink, y)
        errors.append(float(np.mean((model.predict(sample.X / shrink) - sample.y) ** 2)))
    return float(np.mean(errors))


def classification_error(sample: Sample, budget: tuple[int, float], seeds: int, *, shrink: float = 1.0) -> float:
    """Return the mean log-loss over seeds, with features divided by `shrink`."""
    n_rows, epsilon = budget
    labelled = Sample(sample.name, sample.X, sample.labels().astype(float), sample.bounds)
    losses = []
    for seed in range(seeds):
        X, y = labelled.draw(n_rows, seed)
        model = PrivateLogisticRegression(epsilon, DELTA, classes=[0.0, 1.0], random_state=_FIRST_SEED + seed).fit(
            X / shrink, y
        )
        losses.append(float(log_loss(labelled.y, model.predict_proba(sample.X / shrink), labels=[0.0, 1.0])))
    return float(np.mean(losses))


def _with_and_without(error: Callable[..., float], **options: Any) -> tuple[float, float]:
    with without_ranges():
        before = error(**options)
    return error(**options), before


def measure_regression(sample: Sample, solver: str, seeds: int) -> dict[str, Any]:
    """Return the ratios of one set and solver at the main budget."""

    def error(**options: Any) -> float:
        return regression_error(sample, MAIN, solver, seeds, **options)

    exact, before = _with_and_without(error)
    centred, centred_before = _with_and_without(error, bounds=widened(sample.bounds, centred=True))
    anchored = error(bounds=widened(sample.bounds, centred=False))
    features, features_before = _with_and_without(error, shrink=WIDE)
    return {
        "set": sample.name,
        "solver": solver,
        "exact": exact / before,
        "labels before": centred_before / before,
        "labels": max(centred, anchored) / exact,
        "features before": features_before / before,
        "features": features / exact,
    }


def measure_classification(sample: Sample, seeds: int) -> dict[str, Any]:
    """Return the ratios of the classifier on one set at the main budget."""

    def error(**options: Any) -> float:
        return classification_error(sample, MAIN, seeds, **options)

    exact, before = _with_and_without(error)
    features, features_before = _with_and_without(error, shrink=WIDE)
    return {
        "set": sample.name,
        "solver": "logistic",
        "exact": exact / before,
        "features before": features_before / before,
        "features": features / exact,
    }


def measure_small(sample: Sample, budget: tuple[int, float], solver: str, seeds: int) -> dict[str, Any]:
    """Return the ratio of one set and solver at a small budget, with exact bounds."""
    after, before = _with_and_without(lambda: regression_error(sample, budget, solver, seeds))
    return {"set": sample.name, "solver": solver, "budget": list(budget), "exact": after / before}


def claims(rows: Sequence[dict[str, Any]], small: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each target with its figure and its verdict."""

    def largest(key: str) -> float:
        return max(float(row[key]) for row in rows if key in row)

    by_budget: dict[tuple[float, ...], list[float]] = {}
    for row in small:
        by_budget.setdefault(tuple(row["budget"]), []).append(row["exact"])
    figures = [
        ("label bounds 10 times too wide: at most 1.15 times the error with exact bounds", largest("labels"), 1.15),
        ("feature bounds 10 times too wide: at most 1.3 times the error with exact bounds", largest("features"), 1.3),
        ("exact bounds: at most 1.03 times the error without ranges", largest("exact"), 1.03),
        (
            "small budgets, exact bounds: at most 1.03 times the error without ranges, on average over the sets",
            max(float(np.mean(ratios)) for ratios in by_budget.values()),
            1.03,
        ),
    ]
    return [
        {"claim": claim, "figure": figure, "verdict": "holds" if figure <= target else "missed"}
        for claim, figure, target in figures
    ]


def run(*, quick: bool) -> dict[str, Any]:
    """Measure all ratios."""
    sets = samples()
    if quick:
        sets = [sample for sample in sets if sample.name in ("uniform", "randhie", "diabetes")]
    seeds, class_seeds, budgets = (5, 1, SMALL[-1:]) if quick else (30, 5, SMALL)
    rows = [measure_regression(sample, solver, seeds) for sample in sets for solver in SOLVERS]
    rows += [measure_classification(sample, class_seeds) for sample in sets]
    small = [
        measure_small(sample, budget, solver, seeds) for budget in budgets for sample in sets for solver in SOLVERS
    ]
    return {"seeds": [seeds, class_seeds], "rows": rows, "small": small, "claims": claims(rows, small)}


def show(results: dict[str, Any]) -> None:
    """Print the ratios and the verdicts."""
    from rich.console import Console
    from rich.table import Table

    console, (seeds, class_seeds) = Console(), results["seeds"]
    keys = ("exact", "labels before", "labels", "features before", "features")
    n_rows, epsilon = MAIN
    table = Table(
        "set",
        "solver",
        "exact bounds",
        "wide labels without ranges",
        "wide labels",
        "wide features without ranges",
        "wide features",
        title=f"ratios of errors, n={n_rows:,}, epsilon {epsilon:g}; {seeds} seeds (logistic: {class_seeds})",
    )
    for row in results["rows"]:
        table.add_row(row["set"], row["solver"], *(f"{row[key]:.3f}" if key in row else "" for key in keys))
    console.print(table)
    table = Table("n", "epsilon", "mean", "largest", "where", title="exact bounds at small budgets, ratios of errors")
    for budget in dict.fromkeys(tuple(row["budget"]) for row in results["small"]):
        group = [row for row in results["small"] if tuple(row["budget"]) == budget]
        worst = max(group, key=lambda row: float(row["exact"]))
        mean = float(np.mean([row["exact"] for row in group]))
        where = f"{worst['set']}, {worst['solver']}"
        table.add_row(f"{budget[0]:g}", f"{budget[1]:g}", f"{mean:.3f}", f"{worst['exact']:.3f}", where)
    console.print(table)
    console.print("The constants were chosen on these sets, with other samples and other noise.")
    for claim in results["claims"]:
        console.print(f"{claim['claim']}: {claim['figure']:.3f} ({claim['verdict']})")


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
