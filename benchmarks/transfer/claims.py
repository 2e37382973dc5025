"""Claims of `python -m benchmarks transfer` beside the grid: corrupted public data, other settings, speed."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from benchmarks.data.loading import load
from benchmarks.data.people import adult_by_sex
from benchmarks.transfer.common import Row, claim, error, split
from benchmarks.transfer.fits import NOTHING, accuracy_and_log_loss, estimator, measured
from benchmarks.transfer.sets import Array, Domains, Task, classes_of, loaded, moved_images, task_named
from dpadapt.data import Public
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.transfer.base import _boosting as boosting_folds
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

# Corrupted public data.

# Share of bad labels or cells, and the factor by which they are multiplied.
BAD_SHARE, BAD_FACTOR = 0.005, 1000.0
# Private rows, budget, and seeds in a quick run and in a full one.
CORRUPTION_ROWS, CORRUPTION_EPSILON, CORRUPTION_SEEDS = 1_000, 1.0, (2, 4)
# Largest error over that of a fit with clean public data.
CORRUPTION_LIMIT = 1.1


def with_bad_labels(task: Task, domains: Domains) -> Domains:
    """Return domains in which some public labels are multiplied, or drawn anew from all labels if they are classes."""
    random = np.random.default_rng(5)
    bad = random.random(len(domains.y_public)) < BAD_SHARE
    if task.kind == "regression":
        return replace(domains, y_public=np.where(bad, BAD_FACTOR * domains.y_public, domains.y_public))
    return replace(domains, y_public=np.where(bad, random.permutation(domains.y_public), domains.y_public))


def with_bad_cells(task: Task, domains: Domains) -> Domains:
    """Return domains in which some public cells are multiplied."""
    bad = np.random.default_rng(5).random(domains.X_public.shape) < BAD_SHARE
    return replace(domains, X_public=np.where(bad, BAD_FACTOR * domains.X_public, domains.X_public))


CORRUPTIONS: dict[str, Callable[[Task, Domains], Domains]] = {"labels": with_bad_labels, "cells": with_bad_cells}


def corruption(task: Task, seeds: int) -> Row:
    """Return the mean error of ours with clean public data, and with each corruption of it."""
    domains, clean = loaded(task)
    publics = {"clean": clean}
    for name, change in CORRUPTIONS.items():
        changed = change(task, domains)
        publics[name] = Public(changed.X_public, changed.y_public)
    row: Row = {"task": task.name, "kind": task.kind}
    for name, public in publics.items():
        errors = []
        for seed in range(seeds):
            test, private = split(len(domains.y), seed)
            rows = private.get(CORRUPTION_ROWS, private[0])
            model = estimator(task, epsilon=CORRUPTION_EPSILON, random_state=seed)
            model.fit(domains.X[rows], domains.y[rows], public=public)
            errors.append(error(measured(model, domains.X[test], domains.y[test], classes_of(task))))
        row[name] = float(np.mean(errors))
    return row


def corruption_ratio(row: Row, name: str) -> float:
    """Return the error with corrupted public data over that with clean data, rounded to the digits that are shown."""
    return round(float(row[name] / row["clean"]), 3)


def corruption_claims(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield a claim per corruption: no task's error rises by more than the limit."""
    for name in CORRUPTIONS if rows else ():
        ratios = {row["task"]: corruption_ratio(row, name) for row in rows}
        worst = max(ratios, key=lambda task: ratios[task])
        above = sum(not ratio <= CORRUPTION_LIMIT for ratio in ratios.values())
        text = f"{above} of {len(ratios)} sets above; worst {ratios[worst]:.3f} x ({worst})"
        what = f"{BAD_SHARE:.1%} of public {name} corrupted: error at most {CORRUPTION_LIMIT} x that with clean data"
        yield claim(what, text, not above)


# Other settings: one population, unlabelled public rows, calibration.


@dataclass(frozen=True, eq=False)
class Split:
    """Public data, private rows and test rows of one seed."""

    public: Public
    X: Array
    y: Array
    X_test: Array
    y_test: Array


@cache
def _adult_all() -> tuple[Array, Array]:
    domains = adult_by_sex("one-hot", rows="all")
    X = np.vstack([np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target)])
    sex = np.repeat([1.0, 0.0], [len(domains.source.y), len(domains.target.y)])
    return np.column_stack([X, sex]), np.concatenate([domains.source.y, domains.target.y])


def _adult_same(seed: int) -> Split:
    """Use 1,302 public rows (4%) of the same population, 31,000 private ones, the rest for testing."""
    X, y = _adult_all()
    order = np.random.default_rng(seed).permutation(len(y))
    public, train, test = order[:1302], order[1302:32_302], order[32_302:]
    return Split(Public(X[public], y[public]), X[train], y[train], X[test], y[test])


@cache
def _features(name: str) -> tuple[Array, Array]:
    if name == "cifar":
        arrays = load("cifar10", part="features").arrays
        X = np.concatenate([arrays["F_train"], arrays["F_test"]]).astype(np.float64)
        return X, np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int)
    from sklearn.decomposition import PCA

    arrays = load("fashion_mnist").arrays
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).reshape(20_000, -1) / 255.0
    X = PCA(100, random_state=0).fit(X[:8000]).transform(X)
    return X, np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int)


def _unlabelled(name: str, n_public: int, n_test: int) -> Callable[[int], Split]:
    def drawn(seed: int) -> Split:
        X, y = _features(name)
        order = n_public + np.random.default_rng(seed).permutation(len(y) - n_public)
        test, train = order[:n_test], order[n_test:]
        return Split(Public(X[:n_public]), X[train], y[train], X[test], y[test])

    return drawn


def _mean(
    split_of: Callable[[int], Split], n: int, seeds: int, *, learner: Any = PrivateTransferClassifier, **params: Any
) -> list[float]:
    """Return accuracy and log-loss of a private classifier with `n` private rows: means over seeds."""
    results = []
    for seed in range(seeds):
        part = split_of(seed)
        classes = np.unique(np.concatenate([part.y, part.y_test]))
        model = learner(classes=classes, random_state=seed, **params).fit(part.X[:n], part.y[:n], public=part.public)
        results.append(accuracy_and_log_loss(model.predict_proba(part.X_test), np.searchsorted(classes, part.y_test)))
    means: list[float] = np.mean(results, axis=0).tolist()
    return means


def _mean_reference(split_of: Callable[[int], Split], seeds: int) -> list[float]:
    """Return accuracy and log-loss of logistic regression without privacy on the same splits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    results = []
    for seed in range(seeds):
        part = split_of(seed)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=300)).fit(part.X, part.y)
        codes = np.searchsorted(np.unique(part.y), part.y_test)
        results.append(accuracy_and_log_loss(model.predict_proba(part.X_test), codes))
    means: list[float] = np.mean(results, axis=0).tolist()
    return means


def one_population_claims() -> Iterator[dict[str, str]]:
    """Yield the share of the log-loss between public model and logistic regression without privacy that is saved."""
    _, limit = _mean_reference(_adult_same, 4)
    for prior in ("shifted", "same-population"):
        _, public = _mean(_adult_same, 31_000, 4, prior=prior, **NOTHING)
        _, ours = _mean(_adult_same, 31_000, 4, epsilon=0.3, prior=prior)
        share = 100 * (public - ours) / (public - limit)
        what = f"adult, 4% public, prior {prior}, epsilon 0.3: 75% of the way to logistic regression without privacy"
        yield claim(what, f"{share:.0f}% (log-loss {public:.4f}, {ours:.4f}, {limit:.4f})", share >= 75)


def unlabelled_claims() -> Iterator[dict[str, str]]:
    """Yield accuracies with unlabelled public rows, against the plain learner and against a target."""
    for epsilon in (0.3, 1.0):
        drawn = _unlabelled("fashion", 8000, 2000)
        ours, plain = (
            _mean(drawn, 10_000, 3, learner=learner, epsilon=epsilon)[0]
            for learner in (PrivateTransferClassifier, PrivateLogisticRegression)
        )
        what = f"fashion, unlabelled public rows, epsilon {epsilon:g}: more accurate than PrivateLogisticRegression"
        yield claim(what, f"{ours:.1f}% against {plain:.1f}%", ours > plain)
    reached = _mean(_unlabelled("cifar", 3000, 2000), 5000, 2, epsilon=1.0)[0]
    yield claim(
        "cifar features, unlabelled public rows, n=5,000, epsilon 1: 68% right", f"{reached:.1f}%", reached >= 68
    )


def calibration_claims() -> Iterator[dict[str, str]]:
    """Yield the expected calibration error over fifteen bins of confidence, at epsilon 1."""
    sets: dict[str, Callable[[], Domains]] = {
        "adult one-hot": task_named("adult one-hot").load,
        "mnist": lambda: moved_images("mnist"),
    }
    for name, load_set in sets.items():
        domains = load_set()
        test, private = split(len(domains.y), seed=0)
        public, rows, classes = Public(domains.X_public, domains.y_public), private[0], np.unique(domains.y)
        model: Any = PrivateTransferClassifier(epsilon=1.0, classes=classes, random_state=0)
        model.fit(domains.X[rows], domains.y[rows], public=public)
        ours, alone = (
            _calibration_error(fitted.predict_proba(domains.X[test]), np.searchsorted(classes, domains.y[test]))
            for fitted in (model, model.public_only())
        )
        text = f"{ours:.3f} (public model {alone:.3f})"
        yield claim(f"{name}, epsilon 1: calibration error below 0.03", text, ours < 0.03)


def _calibration_error(p: Array, codes: Array) -> float:
    sure, right = p.max(axis=1), p.argmax(axis=1) == codes
    bins = np.minimum((15 * sure).astype(int), 14)
    return float(np.abs(np.bincount(bins, sure - right, minlength=15)).sum()) / len(right)


def sparse_claims(*, quick: bool) -> Iterator[dict[str, str]]:
    """Yield the claims for the setting of Section 3 of arXiv:2112.00193: sparse features, 1.5 p public rows."""
    p, target = (500, 0.0016) if quick else (2000, 0.0075)
    random = np.random.default_rng(0)

    def features(n: int) -> Array:
        X = np.zeros((n, p))
        for low, high, ones in ((0, p // 5, 40), (p // 5, p, 80)):
            chosen = low + np.argpartition(random.random((n, high - low)), ones, axis=1)[:, :ones]
            np.put_along_axis(X, chosen, 0.05, axis=1)
        return X

    coef = random.standard_normal(p)
    X_public, X, X_test = features(3 * p // 2), features(10_000), features(4000)
    y_public, y = (part @ coef + 0.1 * random.standard_normal(len(part)) for part in (X_public, X))
    start = time.process_time()
    model = PrivateTransferRegressor(1.0, 1e-5, prior="same-population", random_state=0)
    model.fit(X, y, public=Public(X_public, y_public))
    taken = time.process_time() - start
    excess = float(np.mean((model.predict(X_test) - X_test @ coef) ** 2))
    what = f"same population, p={p:,}, epsilon 1: excess error {target}"
    yield claim(what, f"{excess:.4f}", excess <= target)
    if not quick:
        yield claim(f"same population, p={p:,}: a fit takes 12 s", f"{taken:.1f} s", taken <= 12)


# Speed: CPU time, one thread.

# Limits: seconds of a fit's private part, preparation over the boosting folds alone, a repeated fit over the first.
PRIVATE_SECONDS, PREPARATION_LIMIT, REPEATED_LIMIT = 0.3, 1.5, 0.9


def speed_claims(*, quick: bool) -> Iterator[dict[str, str]]:
    """Yield, for both estimators, the claims on the private part of a fit, the preparation and repeated fits."""
    repetitions = 1 if quick else 3
    random = np.random.default_rng(0)
    X, X_public = random.standard_normal((10_000, 134)), random.standard_normal((4000, 134))
    coef = random.standard_normal(134) / np.sqrt(134)
    # The private labels have another level: without any shift, less would be computed.
    y, y_public = (
        part @ coef + shift + 0.3 * random.standard_normal(len(part)) for part, shift in ((X, 0.5), (X_public, 0.0))
    )
    learners: list[tuple[Any, Array, Array, int]] = [
        (PrivateTransferRegressor, y, y_public, 1),
        (PrivateTransferClassifier, (y > 0).astype(int), (y_public > 0).astype(int), 2),
    ]
    for learner, labels, public_labels, n_classes in learners:
        first, later, folds = [], [], []
        for _ in range(repetitions):
            public = Public(X_public, public_labels)
            marks = [time.process_time()]
            for _ in range(4):
                learner(random_state=0).fit(X, labels, public=public)
                marks.append(time.process_time())
            boosting_folds(X_public, public_labels, n_classes)
            folds.append(time.process_time() - marks[-1])
            took = np.diff(marks)
            first.append(took[0])
            later.append(float(np.median(took[1:])))
        private, whole = float(np.median(later)), float(np.median(first))
        preparation = (whole - private) / float(np.median(folds))
        name = learner.__name__
        what = f"{name}, n=10,000, d=134: the private part of a fit takes {PRIVATE_SECONDS} s"
        yield claim(what, f"{private:.2f} s", private <= PRIVATE_SECONDS)
        what = f"{name}: preparing public data takes {PREPARATION_LIMIT} x the boosting folds alone"
        yield claim(what, f"{preparation:.2f} x", preparation <= PREPARATION_LIMIT)
        what = f"{name}: public data is prepared once, a repeated fit takes {REPEATED_LIMIT} x the first"
        yield claim(what, f"{private / whole:.2f} x", private / whole <= REPEATED_LIMIT)
