"""Application of paper 5: which targets to label when the labelled source is private, judged by the error of a model.

A private model is fitted on the source; kernel ridge regression on its residuals at the labelled targets corrects it.
Targets are chosen at random, by clustering the targets alone, by ours, and without privacy. The choice and the model
each spend epsilon 1. For the choice, columns are scaled by the targets and projected at random to eight dimensions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import measurements, people
from benchmarks.transfer.common import claim
from dpadapt.clustering.estimator import select_for_labelling
from dpadapt.clustering.solver import cluster_t, non_private
from dpadapt.errors import DataUnavailable
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression

Array = NDArray[Any]

EPSILON, DELTA = 1.0, 1e-6
METHODS = ("random", "ClusterT", "ours", "non-private")
_DIMENSIONS, _MOST_LABELLING_TARGETS = 8, 1500
_FEATURES = 100  # random features of the source model
# Ridge of the correction, in units of the variance of the source model's residuals; fixed, not tuned on target labels.
_RIDGE = 0.3


@dataclass(frozen=True)
class Piece:
    """One task and one number of labels."""

    task: str
    k: int
    runs: int

    @property
    def name(self) -> str:
        """Name shown while the piece is measured."""
        return f"{self.task}, {self.k} labels"


def _superconductivity(source: str, target: str) -> Callable[[], Any]:
    return lambda: measurements.superconductivity_by_quarter(source, target, by="wtd_std_Valence")


TASKS: dict[str, tuple[str, Callable[[], Any]]] = {
    "Superconductivity h → mh": ("regression", _superconductivity("high", "middle-high")),
    "Superconductivity l → ml": ("regression", _superconductivity("low", "middle-low")),
    "California inland → coast": ("regression", lambda: measurements.california_by_coast()),
    "Adult men → women": ("classification", lambda: people.adult_by_sex("one-hot")),
}


def pieces(*, quick: bool) -> list[Piece]:
    """Return the tasks to measure."""
    if quick:
        return [Piece(task, 50, 2) for task in TASKS]
    return [Piece(task, k, 12) for task in TASKS for k in (25, 50, 100)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the error of each way to choose, run by run, or the reason why the task was skipped."""
    kind, load = TASKS[piece.task]
    try:
        domains = load()
    except DataUnavailable as missing:
        return {"skipped": f"{piece.task}: {missing}"}
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    for run in range(piece.runs):
        split = _split(domains, kind, np.random.default_rng([31, run]))
        model = _source_model(split, kind, run)
        for name in METHODS:
            errors[name].append(_error(split, model, _chosen(name, split, piece.k, run), kind))
    return {"row": {"task": piece.task, "kind": kind, "k": piece.k, "runs": piece.runs, "errors": errors}}


def claims(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield each target, what was measured, and whether it was met."""
    for rival in ("random", "ClusterT"):
        for task in dict.fromkeys(row["task"] for row in rows):
            mine = [row for row in rows if row["task"] == task]
            ratios = [np.mean(row["errors"]["ours"]) / np.mean(row["errors"][rival]) for row in mine]
            paired = np.concatenate([np.array(row["errors"]["ours"]) / row["errors"][rival] - 1 for row in mine])
            spread = 2 * float(paired.std(ddof=1)) / np.sqrt(len(paired))
            change = float(np.mean(ratios)) - 1
            text = f"{change:+.1%}, give or take {spread:.1%}"
            yield claim(f"labels by ours, {task}: error below that of {rival}", text, change + spread < 0)


@dataclass(frozen=True, eq=False)
class _Split:
    """Sources and targets as the model uses them, and in few dimensions as the choice does."""

    S: Array
    y_source: Array
    T: Array
    y: Array
    near_S: Array
    near_T: Array


def _split(domains: Any, kind: str, random: np.random.Generator) -> _Split:
    parts = []
    for domain, most in ((domains.source, 8000), (domains.target, _MOST_LABELLING_TARGETS)):
        X, y = np.asarray(domain.X, dtype=np.float64), np.asarray(domain.y)
        kept = random.permutation(len(X))[:most]
        parts.append((X[kept], y[kept]))
    (S, y_source), (T, y) = parts
    spread = T.std(axis=0)
    used = spread > 0
    S, T = (((part - T.mean(axis=0))[:, used]) / spread[used] for part in (S, T))
    if kind == "classification":
        classes = np.unique(y)
        y_source, y = ((part == classes[-1]).astype(float) for part in (y_source, y))
    else:
        middle, scale = float(np.mean(y)), float(np.std(y))
        y_source, y = ((part.astype(float) - middle) / scale for part in (y_source, y))
    direction = random.standard_normal((T.shape[1], _DIMENSIONS)) / np.sqrt(_DIMENSIONS)
    return _Split(S, y_source, T, y, S @ direction, T @ direction)


def _source_model(split: _Split, kind: str, run: int) -> Callable[[Array], Array]:
    """Return the prediction function of a private model on random features of the source."""
    random = np.random.default_rng([32, run])
    width = np.sqrt(split.T.shape[1])
    direction = random.standard_normal((split.T.shape[1], _FEATURES)) / width
    shift = random.uniform(0, 2 * np.pi, _FEATURES)

    def features(X: Array) -> Array:
        return np.asarray(np.sqrt(2 / _FEATURES) * np.cos(np.clip(X, -5, 5) @ direction + shift))

    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "random_state": run}
    if kind == "regression":
        model: Any = PrivateLinearRegression(target_bounds=(-3.0, 3.0), **options)
        model.fit(features(split.S), np.clip(split.y_source, -3, 3))
        return lambda X: np.asarray(model.predict(features(X)))
    model = PrivateLogisticRegression(classes=[0, 1], **options)
    model.fit(features(split.S), split.y_source.astype(int))
    return lambda X: np.asarray(model.predict_proba(features(X))[:, 1])


def _chosen(name: str, split: _Split, k: int, run: int) -> NDArray[np.int64]:
    if name == "random":
        return np.random.default_rng([33, run]).permutation(len(split.T))[:k]
    if name == "ClusterT":
        return cluster_t(split.near_T, k)
    if name == "non-private":
        return non_private(split.near_S, split.near_T, k)
    return select_for_labelling(split.near_S, split.near_T, k, epsilon=EPSILON, random_state=run)


def _error(split: _Split, model: Callable[[Array], Array], rows: NDArray[np.int64], kind: str) -> float:
    """Return the error on the unlabelled targets: mean absolute error, or the share of wrong classes."""
    guess = model(split.T)
    rest = np.setdiff1d(np.arange(len(split.T)), rows)
    left = split.y[rows] - guess[rows]
    squares = ((split.T[:, None] - split.T[rows]) ** 2).sum(axis=2)
    kernel = np.exp(-squares / (2 * split.T.shape[1]))
    weights = np.linalg.solve(kernel[rows] + _RIDGE * np.eye(len(rows)), left)
    final = guess + kernel @ weights
    if kind == "classification":
        return float(np.mean((final[rest] > 0.5) != (split.y[rest] > 0.5)))
    return float(np.mean(np.abs(final[rest] - split.y[rest])))
