"""Fits of `python -m benchmarks transfer`: the transfer estimators and what a user already has, on every task and seed.

For every seed, `common.split` draws test rows and private rows; all cells of a seed share the test rows. Public models
don't depend on the seed, so each is fitted once per task. The estimators have their default parameters. `landed.json`
holds the results of an earlier engine on the same seeds; `store_landed.py` writes it.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.rivals.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from benchmarks.transfer.common import Row, error, gathered, harm, split, wanted
from benchmarks.transfer.sets import ROBUSTNESS_TASKS, TASKS, Array, Task, classes_of, loaded, task_named
from dpadapt.data import Public
from dpadapt.errors import DataUnavailable
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.papers.mirror import base as mirror_base
from dpadapt.papers.mirror import public_fit as mirror_public_fit
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

EPSILONS = (0.1, 0.3, 1.0, 3.0)
# Seeds of ours and of the public model, in a quick run and in a full one: claims about rare harm need many.
SEEDS = (2, 20)
# Seeds of all other models, which take most of the time, and of the landed estimators; the first of the seeds above.
RIVAL_SEEDS = (2, 8)
# With so small a budget nothing is spent, and the result is the public model.
NOTHING: dict[str, Any] = {"epsilon": 1e-6, "delta": 1e-12}
LANDED = Path(__file__).with_name("landed.json")

FINE_TUNING, FIXED_FINE_TUNING = "fine-tuning", "fine-tuning, fixed"
OURS = ("public", "ours")
RIVALS = (
    *("public linear", "public boosting", "best public"),
    *(FINE_TUNING, FIXED_FINE_TUNING, "private only", "not private"),
)
# Those that a user could take instead of ours: "best public" is chosen on test rows, "not private" has no guarantee.
CHOICES = (*OURS, *(name for name in RIVALS if name not in ("best public", "not private")))
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

# Rows on which the penalty of logistic regression is chosen by cross-validation.
_TUNING_ROWS = 6_000
# Boosting on fewer rows sets none aside for early stopping: a stratified tenth would lack some of the classes.
_EARLY_STOPPING_ROWS = 1_000


def measured(model: Any, X: Array, y: Array, classes: Array, *, n_rows: int = 0) -> Any:
    """Return the error, or accuracy and log-loss; `n_rows` is the number of rows of a model that may lack classes."""
    if not len(classes):
        return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))
    # A class without training rows gets a probability as if one row in n_rows + n_classes had it: with probability
    # zero, the log-loss would be infinite.
    p = np.full((len(y), len(classes)), 1.0 / (n_rows + len(classes)))
    p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    p /= p.sum(axis=1, keepdims=True)
    return accuracy_and_log_loss(p, np.searchsorted(classes, y))


def accuracy_and_log_loss(p: Array, codes: Array) -> list[float]:
    """Return accuracy in percent and log-loss of probabilities, a column per class, for the true classes' codes."""
    own = np.maximum(p[np.arange(len(codes)), codes], 1e-15)
    return [100 * float(np.mean(p.argmax(axis=1) == codes)), float(-np.mean(np.log(own)))]


# Models without privacy: of public rows, and the limit that private models can't reach.


@cache
def public_models(task: Task) -> dict[str, Any]:
    """Return the fitted models of the public rows."""
    domains, _ = loaded(task)
    return {
        "public linear": _linear(task.kind, domains.X_public, domains.y_public),
        "public boosting": _boosting(task.kind, domains.X_public, domains.y_public),
    }


@cache
def unspent(task: Task) -> Any:
    """Return the estimator's own public model: nothing is spent, and the private rows have no influence."""
    domains, public = loaded(task)
    return estimator(task, **NOTHING).fit(domains.X[:50], domains.y[:50], public=public)


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


def estimator(task: Task, **params: Any) -> Any:
    """Return the transfer estimator of a task's kind."""
    if task.kind == "regression":
        return PrivateTransferRegressor(**params)
    return PrivateTransferClassifier(classes=classes_of(task), **params)


def fine_tuned(task: Task, **params: Any) -> Any:
    if task.kind == "regression":
        return PrivateGradientDescentRegressor(**params)
    return PrivateGradientDescentClassifier(classes=classes_of(task), **params)


# Public starts of DP-SGD by the name of the task.
_STARTS: dict[str, Any] = {}


def fit_from_one_start(task: Task, model: Any, X: Array, y: Array, public: Public) -> Any:
    """Fit DP-SGD; its public start, which takes most of the time and needs no private row, is fitted once per task."""

    def start(*parts: Any) -> Any:
        if task.name not in _STARTS:
            _STARTS[task.name] = mirror_public_fit.classification_fit(*parts)
        return _STARTS[task.name]

    with mock.patch.object(mirror_base, "classification_fit", start):
        return model.fit(X, y, public=public)


def _fixed(task: Task) -> dict[str, Any]:
    """Return the fixed setting of DP-SGD in the units of the task's labels."""
    fixed = FIXED_SETTING[task.kind]
    if task.kind == "classification":
        return fixed
    return fixed | {"clip_norm": fixed["clip_norm"] * float(np.std(loaded(task)[0].y_public))}


def private_only(task: Task, **params: Any) -> Any:
    if task.kind == "regression":
        return PrivateLinearRegression(target_bounds=_target_bounds(task), **params)
    return PrivateLogisticRegression(classes=classes_of(task), **params)


def _target_bounds(task: Task) -> tuple[float, float]:
    y_public = loaded(task)[0].y_public
    return float(np.min(y_public)), float(np.max(y_public))


@cache
def scaled(task: Task) -> Array:
    """Return the private pool with columns scaled to [-1, 1] by the ranges of the public rows; other values clipped."""
    domains, _ = loaded(task)
    low, high = domains.X_public.min(axis=0), domains.X_public.max(axis=0)
    return np.asarray(np.clip(2 * (domains.X - low) / np.where(high > low, high - low, 1.0) - 1, -1.0, 1.0))


def has_dp_ebm() -> bool:
    """Return whether the package `interpret`, which has DP-EBM, is installed."""
    return find_spec("interpret") is not None


def dp_ebm(task: Task, X: Array, y: Array, **params: Any) -> Any:
    """Return DP-EBM, fitted on private rows; the ranges of columns and target are those of the public rows."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    X_public = loaded(task)[0].X_public
    low, high = X_public.min(axis=0), X_public.max(axis=0)
    params |= {
        "privacy_bounds": np.column_stack([low, np.where(high > low, high, low + 1.0)]),
        "feature_types": ["continuous"] * X.shape[1],
        "n_jobs": 1,
    }
    model = DPExplainableBoostingClassifier(**params)
    if task.kind == "regression":
        lowest, highest = _target_bounds(task)
        model = DPExplainableBoostingRegressor(privacy_target_min=lowest, privacy_target_max=highest, **params)
    with warnings.catch_warnings():
        # It warns that seeded noise is not private, which holds for every benchmark.
        warnings.filterwarnings("ignore", message="Privacy violation: using a fixed random_state")
        return model.fit(X, y)


# Single fits.


def single_fits(task: Task, seed: int, *, rivals: Sequence[str] = ()) -> Iterator[Row]:
    """Yield one row per cell: the errors of the public model, of ours and of some of `RIVALS` on the test rows."""
    (domains, public), classes = loaded(task), classes_of(task)
    test, private = split(len(domains.y), seed)
    X_test, y_test = domains.X[test], domains.y[test]

    def error_of(model: Any, X: Array = X_test, *, n_rows: int = 0) -> Any:
        return measured(model, X, y_test, classes, n_rows=n_rows)

    alone: dict[str, Any] = {"public": error_of(unspent(task))}
    if "best public" in rivals:
        models = public_models(task)
        alone |= {name: error_of(model, n_rows=len(domains.y_public)) for name, model in models.items()}
        alone["best public"] = min((alone[name] for name in models), key=error)
    for size, rows in private.items():
        n = len(rows)
        X, y = domains.X[rows], domains.y[rows]
        limit = {"not private": not_private(task, X, y, error_of)} if "not private" in rivals else {}
        for i, epsilon in enumerate(EPSILONS):
            params = {"epsilon": epsilon, "random_state": 10_000 * seed + 10 * n + i}
            cell = {"task": task.name, "kind": task.kind, "size": size, "n": n, "epsilon": epsilon, "seed": seed}
            cell |= alone | limit | {"ours": error_of(estimator(task, **params).fit(X, y, public=public))}
            if FINE_TUNING in rivals:
                for name, setting in ((FINE_TUNING, {}), (FIXED_FINE_TUNING, _fixed(task))):
                    model = fine_tuned(task, **params, **setting)
                    cell[name] = error_of(fit_from_one_start(task, model, X, y, public))
            if "private only" in rivals:
                model = private_only(task, **params).fit(scaled(task)[rows], y)
                cell["private only"] = error_of(model, scaled(task)[test])
            # DP-EBM has no more than two classes.
            if DP_EBM in rivals and epsilon == DP_EBM_EPSILON and seed < DP_EBM_SEEDS and len(classes) <= 2:
                cell[DP_EBM] = error_of(dp_ebm(task, X, y, delta=estimator(task).delta, **params), n_rows=n)
            yield cell


def not_private(task: Task, X: Array, y: Array, error_of: Callable[..., Any]) -> Any:
    """Return the better of boosting on public and private rows and boosting on private rows."""
    domains, _ = loaded(task)
    pooled = np.vstack([domains.X_public, X]), np.concatenate([domains.y_public, y])
    fits = [error_of(_boosting(task.kind, *rows), n_rows=len(rows[1])) for rows in (pooled, (X, y))]
    return min(fits, key=error)


# Cells: means over seeds.


def cells(fits: Sequence[Row], landed_fits: Mapping[tuple[str, int, float], Sequence[float]]) -> list[Row]:
    """Return one row per cell from single fits: means, and the ratios of single fits to the public model.

    Where other models were measured, `compared` holds the mean of every model over their seeds, and `relative` its
    error over that of the best public model on the same seeds.
    """
    by_cell: dict[tuple[str, int, float], list[Row]] = {}
    for fit in sorted(fits, key=_place):
        by_cell.setdefault((fit["task"], fit["size"], fit["epsilon"]), []).append(fit)
    merged = []
    for key, same in by_cell.items():
        cell = {name: same[0][name] for name in ("task", "kind", "size", "n", "epsilon")}
        cell |= {name: _mean(same, name) for name in OURS}
        # Rounded to the digits that are shown, so that counts fit the worst one.
        cell["ratios"] = [round(harm(fit), 3) for fit in same]
        if with_rivals := [fit for fit in same if "best public" in fit]:
            cell |= _comparison(with_rivals, landed_fits.get(key, ()))
        merged.append(cell)
    return merged


def _comparison(fits: Sequence[Row], landed_errors: Sequence[float]) -> Row:
    if len(landed_errors) >= len(fits):
        # By seed, so that a quick run is compared with the same test rows.
        fits = [fit | {"landed": landed_errors[fit["seed"]]} for fit in fits]
    names = [name for name in (*OURS, *RIVALS, DP_EBM, "landed") if any(name in fit for fit in fits)]
    compared = {name: _mean(fits, name) for name in names}
    relative = {}
    for name in names:
        shared = [fit for fit in fits if name in fit]
        relative[name] = error(_mean(shared, name)) / error(_mean(shared, "best public"))
    ours, best = ([error(fit[name]) for fit in fits] for name in ("ours", "best public"))
    regret = error(compared["ours"]) / min(error(compared[name]) for name in CHOICES)
    return {"compared": compared, "relative": relative, "interval": ratio_interval(ours, best), "regret": regret}


def _mean(fits: Sequence[Row], name: str) -> Any:
    return np.mean([fit[name] for fit in fits if name in fit], axis=0).tolist()


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


# All seeds of a task.


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: all seeds of one task, so that its public models are fitted once."""

    name: str
    seeds: int
    rival_seeds: int
    rivals: tuple[str, ...] = ()


def pieces(*, quick: bool) -> list[Piece]:
    """Return the work of the grid and of the robustness tasks; long tasks are first."""
    rivals = (*RIVALS, DP_EBM) if has_dp_ebm() else RIVALS
    seeds, rival_seeds = (numbers[0 if quick else 1] for numbers in (SEEDS, RIVAL_SEEDS))
    todo = [Piece(task.name, seeds, rival_seeds, rivals) for task in wanted(TASKS, quick=quick)]
    todo += [Piece(task.name, seeds, 0) for task in wanted(ROBUSTNESS_TASKS, quick=quick)]
    return sorted(todo, key=lambda piece: not task_named(piece.name).long)


def measure(piece: Piece) -> dict[str, Any]:
    """Return the single fits of one task, or the reason why it was skipped."""
    task = task_named(piece.name)
    try:
        fits: list[Row] = []
        for seed in range(piece.seeds):
            fits += single_fits(task, seed, rivals=piece.rivals if seed < piece.rival_seeds else ())
    except DataUnavailable as missing:
        return {"skipped": f"{task.name}: {missing}"}
    return {"rows": fits}


def measured_fits(*, quick: bool) -> tuple[list[Row], list[str]]:
    """Return the single fits of ours on the grid and the rivals' seeds, and the reasons why tasks were skipped."""
    seeds = RIVAL_SEEDS[0 if quick else 1]
    fits, skipped = gathered(measure, [Piece(task.name, seeds, 0) for task in wanted(TASKS, quick=quick)])
    return sorted(fits, key=_place), skipped


def setting() -> dict[str, Any]:
    """Return the guarantee of all private models."""
    defaults = PrivateTransferRegressor()
    return {"delta": defaults.delta, "adjacency": defaults.adjacency}


def _place(row: Row) -> tuple[int, int, float, int]:
    """Return the place of a fit in tables: processes finish in any order."""
    names = [task.name for task in (*TASKS, *ROBUSTNESS_TASKS)]
    return names.index(row["task"]), row["n"], row["epsilon"], row["seed"]
