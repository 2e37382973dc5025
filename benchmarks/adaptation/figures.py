"""Figures 1, 2 and 3 and Table 5 of paper 1: error or accuracy against the number of private rows, and sentiment.

Errors of regression are mean squared errors over the variance of the test labels. As in Appendix E, rows are drawn with
replacement where a cell needs more than there are; each counts as another person's.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks.adaptation.nonprivate import baseline
from benchmarks.adaptation.sets import named, split
from benchmarks.adaptation.tuning import Setting, combinations, spoken, tuned
from benchmarks.data.people import amazon_ratings_by_domain
from benchmarks.transfer.sets import Array, loaded, task_named
from dpadapt.data import Public
from dpadapt.papers.adaptation.cnvx import CnvxAdap
from dpadapt.papers.adaptation.ncnvx import NCnvxAdap
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

# Figures 1, 2 and 3 for regression, one cell at a time.


DELTA, ADJACENCY = 0.01, "replace-one"
ROWS, EPSILONS = (300, 1_000, 10_000), (0.5, 1.0, 4.0, 10.0, 15.0)
# The four real sets, and the two sets that are used without real data, by the names of their transfer tasks.
SETS = {
    "Wind": "wind",
    "California": "california, logarithms",
    "Superconductivity": "superconductivity",
    "Gas": "gas",
}
BUNDLED = {"Synthetic, d=20": "coefficients, d=20", "RAND health": "randhie by plan"}
NOTES = {
    "Wind": "complete; January and Malin Head",
    "California": "complete; logarithms, south to north: a split of ours",
    "Superconductivity": "partial: 76 of 81 features; few elements to many: a split of ours",
    "Gas": "partial: target batch 6, since batch 7 (the paper's) is missing",
}
# Appendix E's grid of alpha. It does not name the radius; that grid is ours.
ALPHAS, _RADII = (0.1, 0.3, 0.5, 0.7, 0.9), (1.0, 5.0, 20.0, 100.0)
_MOST_TEST_ROWS = 3000
FIGURE_3_EPSILON = 15.0

Cell = dict[str, Any]


def claimed(n: int, epsilon: float) -> bool:
    """Return whether Figure 1's claim, that results are close to those without noise, is about this cell."""
    return n == 10_000 and epsilon >= 10


class FigureCell:
    """Private and test rows of each seed of one cell, and the errors of models on them."""

    def __init__(self, name: str, n: int) -> None:
        self._domains, self.public = loaded(task_named({**SETS, **BUNDLED}[name]))
        self._n = n

    def rows(self, seed: int) -> tuple[Array, Array, Array, Array]:
        """Return private features and labels, test features and labels."""
        y = self._domains.y
        order = np.random.default_rng(1000 + seed).permutation(len(y))
        cut = min(len(order) // 3, _MOST_TEST_ROWS)
        test, pool = order[:cut], order[cut:]
        chosen = np.random.default_rng([2000 + seed, self._n]).choice(pool, self._n, replace=self._n > len(pool))
        return self._domains.X[chosen], y[chosen], self._domains.X[test], y[test]

    def error(self, model: Any, seed: int) -> float:
        """Fit a model on the seed's private rows and return its error on the test rows."""
        X, y, X_test, y_test = self.rows(seed)
        model.fit(X, y, public=self.public)
        return float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))


def figure_1(name: str, n: int, epsilon: float, *, seeds: int, n_steps: int) -> Cell:
    """Return one cell: ours, public only, and Algorithm 1 tuned on test (as printed, and with exact noise) and not."""
    cell = FigureCell(name, n)
    values, settings = _ours(cell, epsilon, seeds), {}
    grid = combinations(alpha=ALPHAS, radius=_RADII)
    for label, noise in (("paper", "paper"), ("exact", "exact")):
        settings[label], values[label] = _tuned(cell, grid, _algorithm(epsilon, noise, n_steps), seeds)
    values["default"] = [
        cell.error(CnvxAdap(epsilon, DELTA, n_steps=n_steps, random_state=seed), seed) for seed in range(seeds)
    ]
    if name == "Gas":
        settings["noisy SGD"], values["noisy SGD"] = _tuned(cell, combinations(radius=_RADII), _sgd(epsilon), seeds)
    return {"set": name, "n": n, "epsilon": epsilon, "values": values, "settings": settings}


def without_noise(name: str, n: int, *, seeds: int, n_steps: int) -> dict[str, Any]:
    """Return Figure 1's dashed line at one number of rows: Algorithm 1, or 2, without noise, tuned on test.

    For classification the values are accuracies in percent.
    """
    if name in ACCURACY_ROWS:
        score = _Accuracy(name, n)

        def lost(setting: Setting, seed: int) -> float:
            return -score(_algorithm_2(math.inf, setting, seed, n_steps), seed)

        setting, losses = tuned(combinations(alpha=_ACCURACY_ALPHAS), lost, seeds)
        values = [-loss for loss in losses]
        return {"set": name, "n": n, "values": values, "setting": spoken(setting)}
    grid = combinations(alpha=ALPHAS, radius=_RADII)
    chosen, values = _tuned(FigureCell(name, n), grid, _algorithm(math.inf, "paper", n_steps), seeds)
    return {"set": name, "n": n, "values": values, "setting": chosen}


def figure_3(name: str, n: int, *, seeds: int, n_steps: int) -> Cell:
    """Return one cell of Figure 3: Algorithm 1 at alpha = 1 and private discrepancy minimisation, at epsilon 15."""
    cell, epsilon = FigureCell(name, n), FIGURE_3_EPSILON
    values = _ours(cell, epsilon, seeds)
    matched = baseline("private DM")

    def algorithm(setting: Setting, seed: int) -> Any:
        params: dict[str, Any] = {"random_state": seed, "n_steps": n_steps, "noise": "paper"}
        return CnvxAdap(epsilon, DELTA, alpha=1.0, **setting, **params)

    setting, values["paper"] = _tuned(cell, combinations(radius=_RADII), algorithm, seeds)
    values["private DM"] = [
        cell.error(matched.estimator(epsilon=epsilon, delta=DELTA, adjacency=ADJACENCY, random_state=seed), seed)
        for seed in range(seeds)
    ]
    return {"set": name, "n": n, "epsilon": epsilon, "values": values, "settings": {"paper": setting}}


def _ours(cell: FigureCell, epsilon: float, seeds: int) -> dict[str, list[float]]:
    """Return the errors of the public model, of ours, and of a model of the target alone that is not private."""
    shared: dict[str, Any] = {"adjacency": ADJACENCY}
    return {
        "not private": [cell.error(baseline("train target").estimator(), seed) for seed in range(seeds)],
        # With so small a budget nothing is spent, and the result is the public model.
        "public": [cell.error(PrivateTransferRegressor(1e-6, 1e-12, **shared), seed) for seed in range(seeds)],
        "ours": [
            cell.error(PrivateTransferRegressor(epsilon, DELTA, random_state=seed, **shared), seed)
            for seed in range(seeds)
        ],
    }


def _algorithm(epsilon: float, noise: str, n_steps: int) -> Callable[[Setting, int], Any]:
    def made(setting: Setting, seed: int) -> Any:
        params: dict[str, Any] = {"random_state": seed, "n_steps": n_steps, "noise": noise}
        return CnvxAdap(epsilon, DELTA, **setting, **params)

    return made


def _sgd(epsilon: float) -> Callable[[Setting, int], Any]:
    def made(setting: Setting, seed: int) -> Any:
        params: dict[str, Any] = {"adjacency": ADJACENCY, "random_state": seed}
        return baseline("noisy SGD").estimator(epsilon=epsilon, delta=DELTA, **setting, **params)

    return made


def _tuned(
    cell: FigureCell, grid: list[dict[str, Any]], make: Callable[[Setting, int], Any], seeds: int
) -> tuple[str, list[float]]:
    chosen, errors = tuned(grid, lambda setting, seed: cell.error(make(setting, seed), seed), seeds)
    return spoken(chosen), errors


# Figure 1 for classification, one cell at a time. Adult as in Table 7. Algorithm 2 as printed returns a random iterate
# and takes half a minute per fit, so it has two seeds, and five in the cells that the paper's claim is about.


ACCURACY_ROWS = {"Adult": (1_000, 6_847, 10_000), "CIFAR-10": (125, 1_000, 10_000)}
ACCURACY_EPSILONS = (1.0, 4.0, 10.0, 15.0)
# The paper's grid, and less: on Adult, less weight on the source does better.
_ACCURACY_ALPHAS = (0.02, *ALPHAS)
PRINTED_SEEDS, CLAIMED_SEEDS = 2, 5


class _Accuracy:
    """Private and test rows of each seed of one cell, and the accuracies of models on them, in percent."""

    def __init__(self, name: str, n: int) -> None:
        self._set, self._n = named(name), n

    def __call__(self, model: Any, seed: int) -> float:
        """Fit a model on the seed's private rows and return its accuracy on the test rows."""
        part, n = split(self._set, seed), self._n
        random = np.random.default_rng([3000 + seed, n])
        rows = random.choice(len(part.y), n, replace=True) if n > len(part.y) else random.permutation(len(part.y))[:n]
        model.fit(part.X[rows], part.y[rows], public=part.public)
        return 100 * float(np.mean(model.predict(part.X_test) == part.y_test))


def _algorithm_2(epsilon: float, setting: Setting, seed: int, n_steps: int) -> NCnvxAdap:
    params: dict[str, Any] = {"radius": 50.0, "n_steps": n_steps, "random_state": seed, **setting}
    return NCnvxAdap(epsilon, DELTA, **params)


def accuracy_cell(name: str, n: int, epsilon: float, *, seeds: int, n_steps: int) -> Cell:
    """Return one cell: accuracies in percent of ours, of the public model, and of Algorithm 2 tuned on test."""

    score = _Accuracy(name, n)

    def ours(seed: int, spent: float = epsilon, delta: float = DELTA) -> float:
        return score(PrivateTransferClassifier(spent, delta, adjacency=ADJACENCY, random_state=seed), seed)

    def algorithm(setting: Setting, seed: int, **options: Any) -> float:
        return score(_algorithm_2(epsilon, {**setting, **options}, seed, n_steps), seed)

    chosen, losses = tuned(combinations(alpha=_ACCURACY_ALPHAS), lambda setting, seed: -algorithm(setting, seed), seeds)
    values = {
        "public": [ours(seed, 1e-6, 1e-12) for seed in range(seeds)],
        "ours": [ours(seed) for seed in range(seeds)],
        "not private": [score(baseline("train target", "classification").estimator(), seed) for seed in range(seeds)],
        "exact": [-loss for loss in losses],
    }
    few = min(seeds, CLAIMED_SEEDS if claimed(n, epsilon) else PRINTED_SEEDS)
    values["paper"] = [algorithm(chosen, seed, noise="paper", average="paper") for seed in range(few)]
    return {"set": name, "n": n, "epsilon": epsilon, "values": values, "settings": {"exact": spoken(chosen)}}


# Table 5: stars of reviews, 12 pairs of products, in the paper's sizes. The public source is 500 reviews of one product
# and 200 of the other, the private target 300 of the other. Words become 50 directions fitted on the public reviews.
# The paper does not say how it encodes words, nor the scale of its errors.


PRODUCTS = ("kitchen", "books", "dvd", "electronics")
SENTIMENT_EPSILONS = (4.0, 10.0)
DIRECTIONS = 50
# Figures of the paper: Algorithm 1 at epsilon 4 and 10, discrepancy minimisation; mean and standard deviation.
TABLE_5: dict[tuple[str, str], tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    ("kitchen", "books"): ((1.649, 1.909), (0.713, 0.625), (0.778, 0.459)),
    ("kitchen", "dvd"): ((0.832, 0.640), (0.521, 0.354), (1.396, 1.145)),
    ("kitchen", "electronics"): ((0.790, 0.153), (0.555, 0.139), (1.740, 1.483)),
    ("books", "dvd"): ((0.929, 0.365), (0.637, 0.297), (0.761, 0.562)),
    ("books", "electronics"): ((0.708, 0.092), (0.485, 0.147), (0.711, 0.320)),
    ("books", "kitchen"): ((0.796, 0.126), (0.632, 0.181), (0.956, 0.442)),
    ("dvd", "electronics"): ((0.671, 0.120), (0.429, 0.189), (0.677, 0.231)),
    ("dvd", "kitchen"): ((0.665, 0.197), (0.453, 0.189), (1.185, 0.753)),
    ("dvd", "books"): ((0.727, 0.288), (0.430, 0.143), (0.676, 0.812)),
    ("electronics", "kitchen"): ((0.671, 0.161), (0.439, 0.141), (1.389, 0.755)),
    ("electronics", "books"): ((0.743, 0.365), (0.351, 0.204), (0.884, 0.639)),
    ("electronics", "dvd"): ((0.755, 0.585), (0.589, 0.495), (0.843, 0.403)),
}
_GRID = combinations(alpha=ALPHAS, radius=(1.0, 5.0, 20.0))
Rows = tuple[Public, Array, Array, Array, Array]


def pair_errors(source: str, target: str, seeds: int) -> Callable[[Any, int], float]:
    """Return a function that fits a model on a pair's split and returns its error on the test rows."""
    splits = [_split(source, target, seed) for seed in range(seeds)]

    def error(model: Any, seed: int) -> float:
        public, X, y, X_test, y_test = splits[seed]
        model.fit(X, y, public=public)
        return float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))

    return error


def pair(source: str, target: str, *, seeds: int, n_steps: int) -> dict[str, Any]:
    """Return the errors of every method on one pair."""
    error = pair_errors(source, target, seeds)
    values = {"DM": [error(baseline("DM").estimator(), seed) for seed in range(seeds)]}
    nothing: dict[str, Any] = {"epsilon": 1e-6, "delta": 1e-12}
    values["public"] = [error(PrivateTransferRegressor(**nothing), seed) for seed in range(seeds)]
    for epsilon in SENTIMENT_EPSILONS:
        values[f"ours {epsilon:g}"] = [
            error(PrivateTransferRegressor(epsilon, DELTA, adjacency=ADJACENCY, random_state=seed), seed)
            for seed in range(seeds)
        ]

        def algorithm(setting: Setting, seed: int, epsilon: float = epsilon) -> float:
            params: dict[str, Any] = {"n_steps": n_steps, "random_state": seed, **setting}
            return error(CnvxAdap(epsilon, DELTA, noise="paper", **params), seed)

        _, values[f"paper {epsilon:g}"] = tuned(_GRID, algorithm, seeds)
    return {"source": source, "target": target, "values": values}


def _split(source: str, target: str, seed: int) -> Rows:
    """Return public data, and private and test rows of the target."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    random = np.random.default_rng(4000 + seed)
    (text_a, stars_a), (text_b, stars_b) = _reviews(source), _reviews(target)
    a, b = random.permutation(len(stars_a))[:500], random.permutation(len(stars_b))[:1550]
    # The paper's 50 validation rows are left out: nothing is chosen by them here.
    shared, private, test = b[:200], b[200:500], b[550:]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    directions = make_pipeline(words, TruncatedSVD(DIRECTIONS, random_state=0))
    X_public = directions.fit_transform([*text_a[a], *text_b[shared]])
    public = Public(X_public, np.concatenate([stars_a[a], stars_b[shared]]))
    X, X_test = (directions.transform(text_b[part]) for part in (private, test))
    return public, X, stars_b[private], X_test, stars_b[test]


@cache
def _reviews(product: str) -> tuple[Any, Array]:
    other = next(name for name in PRODUCTS if name != product)
    frame, stars = amazon_ratings_by_domain(other, product).target
    text = (frame["title"].fillna("") + " " + frame["text"].fillna("")).to_numpy(dtype=object)
    return text, np.asarray(stars, dtype=np.float64)


def pairs() -> Iterator[tuple[str, str]]:
    """Yield the 12 pairs in the paper's order."""
    yield from TABLE_5
