"""The transfer estimators against what a user already has: models of the public rows, and DP-SGD from a public model.

For every seed, the private pool is permuted: the first 30% (at most 5,000 rows) are test rows, the next n are private
rows. All cells of a seed share the test rows. Public models don't depend on the seed, so each is fitted once per task.
The estimators have their default parameters. `landed.json` holds the results of an earlier engine on the same seeds;
`store_landed.py` writes it.
"""

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import loading
from benchmarks.transfer import classification, regression
from benchmarks.transfer.common import Row, error, gathered, harm, split, versions, wanted
from benchmarks.transfer.regression import Domains
from benchmarks.transfer.rivals import NOTHING, scaled_by_public
from dpadapt.data import Public
from dpadapt.errors import DataUnavailable
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.papers.mirror import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

Array = NDArray[Any]
KINDS = ("regression", "classification")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
# Seeds in a quick run and in a full one.
SEEDS = (2, 8)
# Largest error of a single fit over that of the estimator's public model that is not counted as harm.
FIT_LIMIT = 1.02
LANDED = Path(__file__).with_name("landed.json")

FINE_TUNING, FIXED_FINE_TUNING = "fine-tuning", "fine-tuning, fixed"
CONTENDERS = (
    *("public linear", "public boosting", "best public", "public", "ours"),
    *(FINE_TUNING, FIXED_FINE_TUNING, "private only", "not private"),
)
# Those that a user could take instead of ours: "best public" is chosen on test rows, "not private" has no guarantee.
CHOICES = tuple(name for name in CONTENDERS if name not in ("best public", "not private"))
DP_EBM, DP_EBM_EPSILON, DP_EBM_SEEDS = "DP-EBM", 1.0, 3

# One setting of DP-SGD for all tasks of a kind; the clipping norm of regression is in standard deviations of the public
# labels. A larger norm clips less and needs more noise; more steps come closer to the private optimum, each with more
# noise. Chosen in hindsight on the test rows of one seed: the least geometric mean of the error over that of the public
# model on four tasks per kind, with 1,000 and all rows, epsilon 0.3, 1 and 3. Regression (airfare_2000, computers_time,
# deliveries_same, superconductivity): 0.673, neighbouring rates and norms 0.683 or more. Classification (wachurn_fiber,
# alcohol_south, adult one-hot, amazon books kitchen): 0.952, neighbours 0.984 or more; norms above 3 were not compared.
FIXED_SETTING: dict[str, dict[str, Any]] = {
    "regression": {"learning_rate": 0.1, "clip_norm": 3.0, "n_steps": 30},
    "classification": {"learning_rate": 0.3, "clip_norm": 3.0, "n_steps": 10},
}

_AIRLINE_ROWS = 30_000
# Rows on which the penalty of logistic regression is chosen by cross-validation.
_TUNING_ROWS = 6_000
# Boosting on fewer rows sets none aside for early stopping: a stratified tenth would lack some of the classes.
_EARLY_STOPPING_ROWS = 1_000


@dataclass(frozen=True)
class Task:
    """A data set with its kind, and whether it ships with the library."""

    name: str
    kind: str
    load: Callable[[], Domains]
    bundled: bool = False
    quick: bool = False


def _fresh(part: str) -> Callable[[], Domains]:
    def loaded() -> Domains:
        arrays = loading.load("fresh", part).arrays
        return Domains(arrays["Xs"], arrays["ys"], arrays["Xt"], arrays["yt"])

    return loaded


def _labelled(name: str) -> Callable[[], Domains]:
    def loaded() -> Domains:
        public, X, y = classification.labelled_domains(name)
        return Domains(np.asarray(public.X), np.asarray(public.y), X, y)

    return loaded


def _numeric(name: str) -> Callable[[], Domains]:
    return next(task.load for task in regression.TASKS if task.name == name)


def _airline() -> Domains:
    """Return flights with a random part of the private pool, which is large."""
    domains = _numeric("airline")()
    kept = np.random.default_rng(0).permutation(len(domains.y))[:_AIRLINE_ROWS]
    return Domains(domains.X_public, domains.y_public, domains.X[kept], domains.y[kept])


TASKS = (
    Task("airfare_2000", "regression", _fresh("airfare_2000"), quick=True),
    Task("catholic_minority", "regression", _fresh("catholic_minority")),
    Task("computers_time", "regression", _fresh("computers_time"), quick=True),
    Task("cps88_south", "regression", _fresh("cps88_south")),
    Task("deliveries_same", "regression", _fresh("deliveries_same"), quick=True),
    Task("diamonds_same", "regression", _fresh("diamonds_same")),
    Task("hotel_time", "regression", _fresh("hotel_time")),
    Task("wind", "regression", _numeric("wind"), quick=True),
    Task("california, logarithms", "regression", _numeric("california, logarithms")),
    Task("superconductivity", "regression", _numeric("superconductivity")),
    Task("gas", "regression", _numeric("gas")),
    Task("news", "regression", _numeric("news")),
    Task("airline", "regression", _airline),
    Task("randhie by plan", "regression", _numeric("randhie by plan"), bundled=True, quick=True),
    Task("alcohol_south", "classification", _fresh("alcohol_south"), quick=True),
    Task("wachurn_fiber", "classification", _fresh("wachurn_fiber"), quick=True),
    Task("trump_south", "classification", _fresh("trump_south")),
    Task("species_year", "classification", _fresh("species_year")),
    Task("mlcchurn_same", "classification", _fresh("mlcchurn_same"), quick=True),
    Task("adult labels", "classification", _labelled("adult labels")),
    Task("adult one-hot", "classification", _labelled("adult one-hot")),
    Task("amazon books kitchen", "classification", _labelled("amazon books kitchen")),
    Task("fashion", "classification", _labelled("fashion")),
    Task("fair by age", "classification", _labelled("fair by age"), bundled=True, quick=True),
)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A task's data, with what follows from its public rows and is used by all seeds."""

    domains: Domains
    public: Public
    # Of public and private rows; empty for regression.
    classes: Array
    scaled: Array
    target_bounds: tuple[float, float]


@cache
def _prepared(task: Task) -> _Prepared:
    domains = task.load()
    regressing = task.kind == "regression"
    bounds = (float(np.min(domains.y_public)), float(np.max(domains.y_public))) if regressing else (0.0, 0.0)
    public = Public(domains.X_public, domains.y_public)
    return _Prepared(
        domains, public, classes_of(task.kind, domains), scaled_by_public(domains.X_public, domains.X), bounds
    )


def classes_of(kind: str, domains: Domains) -> Array:
    """Return the classes of public and private rows; regression has none."""
    if kind == "regression":
        return np.array([])
    return np.unique(np.concatenate([domains.y_public, domains.y]))


def measured(model: Any, X: Array, y: Array, classes: Array, *, n_rows: int = 0) -> Any:
    """Return the error, or accuracy and log-loss; `n_rows` is the number of rows of a model that may lack classes."""
    if not len(classes):
        return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))
    # A class without training rows gets a probability as if one row in n_rows + n_classes had it: with probability
    # zero, the log-loss would be infinite.
    p = np.full((len(y), len(classes)), 1.0 / (n_rows + len(classes)))
    p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    p /= p.sum(axis=1, keepdims=True)
    return list(classification.accuracy_and_log_loss(p, np.searchsorted(classes, y)))


# Models without privacy: of public rows, and the limit that private models can't reach.


@cache
def _public_models(task: Task) -> dict[str, Any]:
    """Return the fitted models of the public rows."""
    domains = _prepared(task).domains
    return {
        "public linear": _linear(task.kind, domains.X_public, domains.y_public),
        "public boosting": _boosting(task.kind, domains.X_public, domains.y_public),
    }


@cache
def _unspent(task: Task) -> Any:
    """Return the estimator's own public model: nothing is spent, and the private rows have no influence."""
    prepared = _prepared(task)
    return _ours(task, **NOTHING).fit(prepared.domains.X[:50], prepared.domains.y[:50], public=prepared.public)


def _linear(kind: str, X: Array, y: Array) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "regression":
        return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 15))).fit(X, y)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    some = np.random.default_rng(0).permutation(len(y))[:_TUNING_ROWS]
    penalties = {"logisticregression__C": np.logspace(-3, 1, 5)}
    search = GridSearchCV(model, penalties, scoring="neg_log_loss", cv=4, refit=False).fit(X[some], y[some])
    return model.set_params(**search.best_params_).fit(X, y)


def _boosting(kind: str, X: Array, y: Array) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    params = {"early_stopping": len(y) >= _EARLY_STOPPING_ROWS, "random_state": 0}
    if kind == "regression":
        return HistGradientBoostingRegressor(**params).fit(X, y)
    # Early stopping needs two rows of each class.
    names, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    kept = counts[codes] >= 2
    return HistGradientBoostingClassifier(**params).fit(X[kept], names[codes[kept]])


# Private models.


def _ours(task: Task, **params: Any) -> Any:
    return estimator(task.kind, _prepared(task).classes, **params)


def estimator(kind: str, classes: Array, **params: Any) -> Any:
    """Return the transfer estimator of a kind; regression has no classes."""
    if kind == "regression":
        return PrivateTransferRegressor(**params)
    return PrivateTransferClassifier(classes=classes, **params)


def _fine_tuned(task: Task, **params: Any) -> Any:
    if task.kind == "regression":
        return PrivateGradientDescentRegressor(**params)
    return PrivateGradientDescentClassifier(classes=_prepared(task).classes, **params)


def _fixed(task: Task) -> dict[str, Any]:
    """Return the fixed setting of DP-SGD in the units of the task's labels."""
    fixed = FIXED_SETTING[task.kind]
    if task.kind == "classification":
        return fixed
    return fixed | {"clip_norm": fixed["clip_norm"] * float(np.std(_prepared(task).domains.y_public))}


def _private_only(task: Task, **params: Any) -> Any:
    prepared = _prepared(task)
    if task.kind == "regression":
        return PrivateLinearRegression(target_bounds=prepared.target_bounds, **params)
    return PrivateLogisticRegression(classes=prepared.classes, **params)


def has_dp_ebm() -> bool:
    """Return whether the package `interpret`, which has DP-EBM, is installed."""
    return find_spec("interpret") is not None


def _dp_ebm(task: Task, X: Array, y: Array, **params: Any) -> Any:
    """Return DP-EBM, fitted on private rows; the ranges of columns and target are those of the public rows."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    prepared = _prepared(task)
    X_public = prepared.domains.X_public
    low, high = X_public.min(axis=0), X_public.max(axis=0)
    params |= {
        "privacy_bounds": np.column_stack([low, np.where(high > low, high, low + 1.0)]),
        "feature_types": ["continuous"] * X.shape[1],
        "n_jobs": 1,
    }
    model = DPExplainableBoostingClassifier(**params)
    if task.kind == "regression":
        lowest, highest = prepared.target_bounds
        model = DPExplainableBoostingRegressor(privacy_target_min=lowest, privacy_target_max=highest, **params)
    with warnings.catch_warnings():
        # It warns that seeded noise is not private, which holds for every benchmark.
        warnings.filterwarnings("ignore", message="Privacy violation: using a fixed random_state")
        return model.fit(X, y)


# Single fits.


def single_fits(task: Task, seed: int, *, contenders: Sequence[str]) -> Iterator[Row]:
    """Yield one row per cell: the error of every contender on the test rows of one seed."""
    prepared = _prepared(task)
    domains, classes = prepared.domains, prepared.classes
    test, private = split(len(domains.y), seed)
    X_test, y_test = domains.X[test], domains.y[test]

    def error_of(model: Any, X: Array = X_test, *, n_rows: int = 0) -> Any:
        return measured(model, X, y_test, classes, n_rows=n_rows)

    public: dict[str, Any] = {"public": error_of(_unspent(task))}
    if "best public" in contenders:
        models = _public_models(task)
        public |= {name: error_of(model, n_rows=len(domains.y_public)) for name, model in models.items()}
        public["best public"] = min((public[name] for name in models), key=error)
    for size, rows in private.items():
        n = len(rows)
        X, y = domains.X[rows], domains.y[rows]
        limit = _not_private(task, X, y, error_of) if "not private" in contenders else None
        for i, epsilon in enumerate(EPSILONS):
            params = {"epsilon": epsilon, "random_state": 10_000 * seed + 10 * n + i}
            values = public | {"ours": error_of(_ours(task, **params).fit(X, y, public=prepared.public))}
            if FINE_TUNING in contenders:
                tuned = _fine_tuned(task, **params).fit(X, y, public=prepared.public)
                fixed = _fine_tuned(task, **params, **_fixed(task)).fit(X, y, public=prepared.public)
                values |= {FINE_TUNING: error_of(tuned), FIXED_FINE_TUNING: error_of(fixed)}
            if "private only" in contenders:
                alone = _private_only(task, **params).fit(prepared.scaled[rows], y)
                values["private only"] = error_of(alone, prepared.scaled[test])
            if limit is not None:
                values["not private"] = limit
            # DP-EBM has no more than two classes.
            if DP_EBM in contenders and epsilon == DP_EBM_EPSILON and seed < DP_EBM_SEEDS and len(classes) <= 2:
                values[DP_EBM] = error_of(_dp_ebm(task, X, y, delta=_ours(task).delta, **params), n_rows=n)
            cell = {"task": task.name, "kind": task.kind, "size": size, "n": n, "epsilon": epsilon, "seed": seed}
            yield cell | {name: values[name] for name in contenders if name in values}


def _not_private(task: Task, X: Array, y: Array, error_of: Callable[..., Any]) -> Any:
    """Return the better of boosting on public and private rows and boosting on private rows."""
    domains = _prepared(task).domains
    pooled = np.vstack([domains.X_public, X]), np.concatenate([domains.y_public, y])
    fits = [error_of(_boosting(task.kind, *rows), n_rows=len(rows[1])) for rows in (pooled, (X, y))]
    return min(fits, key=error)


# Cells: means over seeds.


def cells(fits: Sequence[Row], stored: Mapping[tuple[str, int, float], Row]) -> list[Row]:
    """Return one row per cell from single fits: means, ratios, the worst fit, the landed result of the same seeds."""
    by_cell: dict[tuple[str, int, float], list[Row]] = {}
    for fit in sorted(fits, key=_place):
        by_cell.setdefault((fit["task"], fit["size"], fit["epsilon"]), []).append(fit)
    merged = []
    for key, same in by_cell.items():
        cell = {name: same[0][name] for name in ("task", "kind", "size", "n", "epsilon")}
        for name in (*CONTENDERS, DP_EBM):
            if values := [fit[name] for fit in same if name in fit]:
                cell[name] = np.mean(values, axis=0).tolist()
        # Rounded to the digits that are shown, so that the count fits the worst one.
        ratios = [round(harm(fit), 3) for fit in same]
        cell |= {"seeds": len(same), "worst fit": max(ratios), "fits above": sum(not r <= FIT_LIMIT for r in ratios)}
        ours, best = ([error(fit[name]) for fit in same] for name in ("ours", "best public"))
        cell["interval"] = ratio_interval(ours, best)
        cell["regret"] = error(cell["ours"]) / min(error(cell[name]) for name in CHOICES)
        single = stored[key]["fits"] if key in stored else []
        if len(single) >= len(same):
            # By seed, so that a quick run is compared with the same test rows.
            cell["landed"] = float(np.mean([single[fit["seed"]] for fit in same]))
        merged.append(cell)
    return merged


def ratio_interval(ours: Sequence[float], other: Sequence[float]) -> list[float] | None:
    """Return a 95% interval of the ratio of two paired means, by Student's t; None for a single pair.

    Examples
    --------
    >>> [round(end, 6) for end in ratio_interval([0.8, 1.6], [1.0, 2.0])]  # the same ratio in every pair
    [0.8, 0.8]
    """
    from scipy.stats import t

    if len(ours) < 2:
        return None
    ratio = float(np.mean(ours) / np.mean(other))
    # The ratio estimator's linearisation: its error is the mean of ours - ratio * other, over the mean of other.
    residuals = np.asarray(ours) - ratio * np.asarray(other)
    half = float(t.ppf(0.975, len(ours) - 1) * np.std(residuals, ddof=1) / math.sqrt(len(ours)) / np.mean(other))
    return [ratio - half, ratio + half]


def landed() -> dict[str, Any]:
    """Return the stored results of the landed estimators, or no rows where none are stored."""
    if not LANDED.exists():
        return {"rows": []}
    stored: dict[str, Any] = json.loads(LANDED.read_text(encoding="utf-8"))
    return stored


# The run.


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: all seeds of one task, so that its public models are fitted once."""

    name: str
    seeds: int
    contenders: tuple[str, ...]


def pieces(*, quick: bool, contenders: tuple[str, ...]) -> list[Piece]:
    """Return all pieces of work."""
    seeds = SEEDS[0 if quick else 1]
    return [Piece(task.name, seeds, contenders) for task in wanted(TASKS, quick=quick)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the single fits of one task, or the reason why it was skipped."""
    task = next(task for task in TASKS if task.name == piece.name)
    try:
        fits = [fit for seed in range(piece.seeds) for fit in single_fits(task, seed, contenders=piece.contenders)]
    except DataUnavailable as missing:
        return {"skipped": f"{task.name}: {missing}"}
    return {"rows": fits}


def measured_fits(*, quick: bool, contenders: tuple[str, ...]) -> tuple[list[Row], list[str]]:
    """Return the single fits of all tasks, and the reasons why tasks were skipped."""
    fits, skipped = gathered(measure, pieces(quick=quick, contenders=contenders))
    return sorted(fits, key=_place), skipped


def run(*, quick: bool) -> dict[str, Any]:
    """Return the comparison as plain data."""
    start = time.perf_counter()
    contenders = (*CONTENDERS, DP_EBM) if has_dp_ebm() else CONTENDERS
    fits, skipped = measured_fits(quick=quick, contenders=contenders)
    if DP_EBM not in contenders:
        skipped.append(f"{DP_EBM}: the package interpret is not installed.")
    stored = landed()
    by_cell = {(row["task"], row["size"], row["epsilon"]): row for row in stored["rows"]}
    return {
        "quick": quick,
        "seeds": SEEDS[0 if quick else 1],
        "setting": setting(),
        "skipped": skipped,
        "versions": versions(),
        "landed": {name: value for name, value in stored.items() if name != "rows"},
        "cells": cells(fits, by_cell),
        "minutes": (time.perf_counter() - start) / 60,
    }


def setting() -> dict[str, Any]:
    """Return the guarantee of all private models."""
    defaults = PrivateTransferRegressor()
    return {"delta": defaults.delta, "adjacency": defaults.adjacency}


def _place(row: Row) -> tuple[int, int, float, int]:
    """Return the place of a fit in tables: processes finish in any order."""
    names = [task.name for task in TASKS]
    return names.index(row["task"]), row["n"], row["epsilon"], row["seed"]
