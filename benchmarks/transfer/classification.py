"""Classification in `python -m benchmarks transfer`: sets, cells, gains and speed.

`PrivateTransferClassifier` against the public model, on the real sets in `DPADAPT_DATA` if that is set, else on
bundled ones. Splits and noise are seeded; nothing is tuned per set or cell.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import load
from benchmarks.data.people import adult_by_sex, amazon_by_domain
from benchmarks.transfer.common import EPSILONS, ROWS, claim
from dpadapt.data import Public
from dpadapt.datasets.bundled import digits, fair_by_age, fair_by_children
from dpadapt.learning.descent import SoftmaxLoss
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.classification_plan import STEPS

Array = NDArray[Any]
DELTA = 1e-5


@dataclass(frozen=True, eq=False)
class Split:
    """Public data, private rows and test rows of one seed."""

    public: Public
    X: Array
    y: Array
    X_test: Array
    y_test: Array


@dataclass(frozen=True)
class Task:
    """A data set with a rule that splits it."""

    name: str
    split: Callable[[int], Split]
    prior: str = "shifted"
    bundled: bool = False
    quick: bool = False


def _target(public: Public, X: Any, y: Any, seed: int) -> Split:
    """Return a split that keeps 30% of the target for testing."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(0.7 * len(y))
    train, test = order[:cut], order[cut:]
    return Split(public, X[train], y[train], X[test], y[test])


@cache
def labelled_domains(name: str) -> tuple[Public, Array, Array]:
    """Return the labelled public source, and features and labels of the target."""
    if name.startswith("adult"):
        domains = adult_by_sex("labels" if name.endswith("labels") else "one-hot")
    elif name.startswith("amazon"):
        return _amazon(*name.split()[1:])
    elif name == "digits":
        X, y = digits().arrays["X"].reshape(-1, 64).astype(np.float64), digits().arrays["y"]
        # The shift: public images are moved one pixel to the right.
        moved = np.roll(X[:400].reshape(-1, 8, 8), 1, axis=2).reshape(-1, 64)
        return Public(moved, y[:400]), X[400:], y[400:]
    elif name in ("fashion", "mnist"):
        return _moved_images(name)
    else:
        domains = fair_by_age() if name == "fair by age" else fair_by_children()
    public = Public(np.asarray(domains.source.X, dtype=np.float64), np.asarray(domains.source.y))
    return public, np.asarray(domains.target.X, dtype=np.float64), np.asarray(domains.target.y)


def _amazon(source: str, target: str) -> tuple[Public, Array, Array]:
    """Return reviews as 300 singular directions of the public reviews' weighted counts."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.pipeline import make_pipeline

    train, test = amazon_by_domain(source, target), amazon_by_domain(source, target, rows="test")
    features = make_pipeline(TfidfTransformer(sublinear_tf=True), TruncatedSVD(300, random_state=0))
    public = Public(features.fit_transform(train.source.X), train.source.y)
    X = np.vstack([features.transform(part.target.X) for part in (train, test)])
    return public, X, np.concatenate([train.target.y, test.target.y])


def _moved_images(name: str) -> tuple[Public, Array, Array]:
    """Return principal components of images; public images are moved by two pixels."""
    from sklearn.decomposition import PCA

    arrays = load("fashion_mnist" if name == "fashion" else "mnist").arrays
    images = np.concatenate([arrays["X_train"], arrays["X_test"]])[:20_000] / 255.0
    y = np.concatenate([arrays["y_train"], arrays["y_test"]])[:20_000].astype(int)
    moved = np.roll(images[:5000], 2, axis=1).reshape(5000, -1)
    components = PCA(100, random_state=0).fit(moved)
    X = components.transform(images[5000:].reshape(15_000, -1))
    return Public(components.transform(moved), y[:5000]), X, y[5000:]


def _shifted(name: str) -> Callable[[int], Split]:
    return lambda seed: _target(*labelled_domains(name), seed)


@cache
def _adult_all() -> tuple[Array, Array]:
    domains = adult_by_sex("one-hot", rows="all")
    X = np.vstack([np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target)])
    sex = np.repeat([1.0, 0.0], [len(domains.source.y), len(domains.target.y)])
    return np.column_stack([X, sex]), np.concatenate([domains.source.y, domains.target.y])


def _adult_same(seed: int) -> Split:
    """Use 1,302 public rows (4%) of the same population, up to 31,000 private ones, the rest for testing."""
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
    def split(seed: int) -> Split:
        X, y = _features(name)
        order = n_public + np.random.default_rng(seed).permutation(len(y) - n_public)
        test, train = order[:n_test], order[n_test:]
        return Split(Public(X[:n_public]), X[train], y[train], X[test], y[test])

    return split


def _other_mix(seed: int) -> Split:
    """Use 2,000 labelled public rows in which each class is 1.5 times as frequent as the one before it."""
    X, y = _features("cifar")
    random = np.random.default_rng(seed)
    odds = 1.5 ** y.astype(float)
    public = random.choice(len(y), 2000, replace=False, p=odds / odds.sum())
    rest = random.permutation(np.setdiff1d(np.arange(len(y)), public))
    test, train = rest[:2000], rest[2000:]
    return Split(Public(X[public], y[public]), X[train], y[train], X[test], y[test])


TASKS = (
    Task("fair by age", _shifted("fair by age"), bundled=True, quick=True),
    Task("fair by children", _shifted("fair by children"), bundled=True),
    Task("digits", _shifted("digits"), bundled=True, quick=True),
    Task("adult labels", _shifted("adult labels"), quick=True),
    Task("adult one-hot", _shifted("adult one-hot"), quick=True),
    Task("adult 4% public", _adult_same),
    Task("adult 4% public, declared", _adult_same, prior="same-population"),
    Task("amazon electronics dvd", _shifted("amazon electronics dvd")),
    Task("amazon books kitchen", _shifted("amazon books kitchen")),
    Task("fashion", _shifted("fashion")),
    Task("mnist", _shifted("mnist")),
    Task("cifar, other mix", _other_mix),
)


def measure(model: Any, split: Split, classes: Array) -> tuple[float, float]:
    """Return accuracy in percent and log-loss on the test rows."""
    return accuracy_and_log_loss(model.predict_proba(split.X_test), np.searchsorted(classes, split.y_test))


def accuracy_and_log_loss(p: Array, codes: Array) -> tuple[float, float]:
    """Return accuracy in percent and log-loss of probabilities, a column per class, for the true classes' codes."""
    own = np.maximum(p[np.arange(len(codes)), codes], 1e-15)
    return 100 * float(np.mean(p.argmax(axis=1) == codes)), float(-np.mean(np.log(own)))


def fitted(learner: Any, split: Split, n: int, classes: Array, **params: Any) -> tuple[float, float]:
    """Fit on the first `n` private rows and measure."""
    model = learner(classes=classes, **params).fit(split.X[:n], split.y[:n], public=split.public)
    return measure(model, split, classes)


def grid(task: Task, seeds: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Return one row per number of private rows and epsilon: means over seeds."""
    results: dict[tuple[int, float], list[list[tuple[float, float]]]] = {}
    for seed in range(first, first + seeds):
        split = task.split(seed)
        classes = np.unique(np.concatenate([split.y, split.y_test]))
        public = fitted(PrivateTransferClassifier, split, 50, classes, epsilon=1e-6, delta=1e-12)
        for n in sorted({min(n, len(split.y)) for n in ROWS}):
            for i, epsilon in enumerate(EPSILONS):
                params = {"epsilon": epsilon, "delta": DELTA, "random_state": 10_000 * seed + 10 * n + i}
                ours = fitted(PrivateTransferClassifier, split, n, classes, prior=task.prior, **params)
                results.setdefault((n, epsilon), []).append([public, ours])
    rows = []
    for (n, epsilon), pairs in results.items():
        before, after = np.mean(pairs, axis=0).tolist()
        rows.append({"task": task.name, "n": n, "epsilon": epsilon, "public": before, "ours": after})
    return rows


def calibration_claims() -> Iterator[dict[str, Any]]:
    """Yield the expected calibration error over fifteen bins of confidence."""
    for name in ("adult one-hot", "mnist"):
        split = _shifted(name)(0)
        classes = np.unique(split.y)
        gaps = []
        for epsilon in (1e-6, 1.0):
            model = PrivateTransferClassifier(epsilon, DELTA, classes=classes, random_state=0)
            p = model.fit(split.X, split.y, public=split.public).predict_proba(split.X_test)
            sure, right = p.max(axis=1), classes[p.argmax(axis=1)] == split.y_test
            bins = np.minimum((15 * sure).astype(int), 14)
            gaps.append(float(np.abs(np.bincount(bins, sure - right, minlength=15)).sum()) / len(right))
        text = f"{gaps[1]:.3f} (public model {gaps[0]:.3f})"
        yield claim(f"{name}, epsilon 1: calibration error below 0.03", text, gaps[1] < 0.03)


def gain_claims(*, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the claims on the gain from private rows."""
    relations: dict[str, dict[str, Any]] = {
        "replace-one, delta 0.01": {"epsilon": 1.0, "delta": 0.01, "adjacency": "replace-one"},
        "zero-out, delta 1e-5": {"epsilon": 1.0, "delta": DELTA},
    }
    # Ten splits also in a quick run: accuracies of single splits differ by up to one point.
    for name, wanted in (("adult labels", 91.3), ("adult one-hot", 92.4)):
        limit = _mean_reference(_shifted(name), 10)
        for label, params in relations.items():
            reached = _mean(_shifted(name), 6847, 10, **params)
            text = f"{reached[0]:.2f} (non-private {limit[0]:.2f})"
            yield claim(f"{name}, n=6,847, epsilon 1, {label}: {wanted}%", text, reached[0] >= wanted)
    if quick:
        return
    yield from calibration_claims()
    public, limit = _mean(_adult_same, 31_000, 4, epsilon=1e-6, delta=1e-12), _mean_reference(_adult_same, 4)
    for prior in ("shifted", "same-population"):
        reached = _mean(_adult_same, 31_000, 4, epsilon=0.3, delta=DELTA, prior=prior)
        share = 100 * (public[1] - reached[1]) / (public[1] - limit[1])
        yield claim(f"adult 4% public, epsilon 0.3, {prior}: 75% of the gap", f"{share:.0f}%", share >= 75)
    for epsilon in (0.3, 1.0):
        split = _unlabelled("fashion", 8000, 2000)
        reached, plain = (_mean(split, 10_000, 3, learner=k, epsilon=epsilon, delta=DELTA) for k in _LEARNERS)
        text = f"{reached[0]:.1f} against {plain[0]:.1f}"
        yield claim(
            f"fashion PCA-100, unlabelled, epsilon {epsilon}: above the plain learner", text, reached[0] > plain[0]
        )
    reached = _mean(_unlabelled("cifar", 3000, 2000), 5000, 2, epsilon=1.0, delta=DELTA)
    yield claim("cifar features, unlabelled, n=5,000, epsilon 1: 68%", f"{reached[0]:.1f}", reached[0] >= 68)


_LEARNERS = (PrivateTransferClassifier, PrivateLogisticRegression)


def _mean(
    split: Callable[[int], Split], n: int, seeds: int, *, learner: Any = PrivateTransferClassifier, **params: Any
) -> tuple[float, float]:
    measured = []
    for seed in range(seeds):
        part = split(seed)
        classes = np.unique(np.concatenate([part.y, part.y_test]))
        measured.append(fitted(learner, part, min(n, len(part.y)), classes, random_state=seed, **params))
    accuracy, loss = np.mean(measured, axis=0)
    return float(accuracy), float(loss)


def _mean_reference(split: Callable[[int], Split], seeds: int) -> tuple[float, float]:
    """Return accuracy and log-loss of logistic regression without privacy on the same splits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    measured = []
    for seed in range(seeds):
        part = split(seed)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=300)).fit(part.X, part.y)
        measured.append(measure(model, part, np.unique(part.y)))
    accuracy, loss = np.mean(measured, axis=0)
    return float(accuracy), float(loss)


def speed_claim(*, quick: bool) -> dict[str, Any]:
    """Return the claim on CPU time: a fit over as many non-private steps, one thread, public data prepared."""
    n, d, k = (20_000, 256, 20) if quick else (50_000, 512, 45)
    random = np.random.default_rng(0)
    X = (random.standard_normal((n, d)) / np.sqrt(1 + np.arange(d))).astype(np.float32)
    y = np.argmax(X @ (2 * random.standard_normal((d, k))) + random.gumbel(size=(n, k)), axis=1)
    public, times = Public(X[:2000], y[:2000]), []
    for _ in range(3):
        start = time.process_time()
        PrivateTransferClassifier(classes=range(k), random_state=0).fit(X, y, public=public)
        middle = time.process_time()
        coef, loss = np.zeros((d, k), np.float32), SoftmaxLoss()
        for _ in range(STEPS):
            coef -= 0.1 * (X.T @ loss.weights(X @ coef, y)) / n
        times.append((middle - start) / (time.process_time() - middle))
    ratio = float(np.median(times[1:]))
    return claim(f"n={n:,}, d={d}, K={k}: 1.4x the same number of non-private steps", f"{ratio:.2f}x", ratio <= 1.4)
