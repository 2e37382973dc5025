"""The sets of `python -m benchmarks transfer`: public rows and a pool of private rows each.

`TASKS` is the grid, `ROBUSTNESS_TASKS` are sets that were made hard on purpose. Sets that ship with packages or are
generated need no `DPADAPT_DATA`. The constants of the method were chosen while looking at some of the sets.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import loading, measurements, people
from benchmarks.data.sources import FRESH
from dpadapt.data import Public
from dpadapt.datasets import bundled

Array = NDArray[Any]
KINDS = ("regression", "classification")


@dataclass(frozen=True, eq=False)
class Domains:
    """Public features and labels, and features and labels of the pool from which private and test rows are drawn."""

    X_public: Array
    y_public: Array
    X: Array
    y: Array


@dataclass(frozen=True)
class Task:
    """A set with its kind, whether it needs no files, and whether a quick run has it."""

    name: str
    kind: str
    load: Callable[[], Domains]
    bundled: bool = False
    quick: bool = False
    # Started first in a full run, so that no process waits for it at the end.
    long: bool = False


@cache
def loaded(task: Task) -> tuple[Domains, Public]:
    """Return a task's data, cached so that its public part is prepared once."""
    domains = task.load()
    return domains, Public(domains.X_public, domains.y_public)


def task_named(name: str) -> Task:
    """Return the task of a name."""
    return next(task for task in (*TASKS, *ROBUSTNESS_TASKS) if task.name == name)


def classes_of(task: Task) -> Array:
    """Return the classes of public and private rows; regression has none."""
    if task.kind == "regression":
        return np.array([])
    domains, _ = loaded(task)
    return np.unique(np.concatenate([domains.y_public, domains.y]))


# Loaders.


def _domains(load: Callable[[], Any], *, label: type = np.float64) -> Callable[[], Domains]:
    def made() -> Domains:
        source, target = load().source, load().target
        X_public, X = (np.asarray(part.X, dtype=np.float64) for part in (source, target))
        return Domains(X_public, np.asarray(source.y, dtype=label), X, np.asarray(target.y, dtype=label))

    return made


def _fresh(part: str) -> Callable[[], Domains]:
    def made() -> Domains:
        arrays = loading.load("fresh", part).arrays
        return Domains(arrays["Xs"], arrays["ys"], arrays["Xt"], arrays["yt"])

    return made


# Of the private pool of the flights, which is large.
_AIRLINE_ROWS = 30_000


def _airline() -> Domains:
    domains = _domains(measurements.airline_by_hour)()
    kept = np.random.default_rng(0).permutation(len(domains.y))[:_AIRLINE_ROWS]
    return replace(domains, X=domains.X[kept], y=domains.y[kept])


def _california_logs() -> Domains:
    """Logarithms of prices and of counts per household, and whether the coast is near; south of 35.5 degrees is public.

    Raw columns, as `california_by_latitude` has them, leave any linear model at 0.29.
    """
    frame = loading.load("california_housing").frame.dropna()
    homes = frame["households"]
    columns = [
        *(np.log(frame[name] / homes) for name in ("total_rooms", "total_bedrooms", "population")),
        *(np.log(part) for part in (homes, frame["median_income"])),
        *(frame["ocean_proximity"] == place for place in ("<1H OCEAN", "INLAND")),
        *(frame[name] for name in ("housing_median_age", "longitude", "latitude")),
    ]
    X, y = np.column_stack(columns).astype(np.float64), np.log(frame["median_house_value"].to_numpy(dtype=np.float64))
    south = (frame["latitude"] < 35.5).to_numpy()
    return Domains(X[south], y[south], X[~south], y[~south])


def _synthetic(d: int, *, sign: float = 1.0, level: float = 0.0, turn: float = 0.0) -> Callable[[], Domains]:
    """Return a loader of correlated normal features, a linear target of variance 1 and noise of deviation 0.4."""

    def made() -> Domains:
        random = np.random.default_rng(0)
        mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
        X_public, X = (random.standard_normal((n, d)) @ mix.T for n in (2000, 16_000))
        coef, other = (v / np.linalg.norm(mix.T @ v) for v in random.standard_normal((2, d)))
        y_public = X_public @ coef + 0.4 * random.standard_normal(len(X_public))
        y = X @ (sign * coef + turn * other) + level + 0.4 * random.standard_normal(len(X))
        return Domains(X_public, y_public, X, y)

    return made


def _adult(columns: str) -> Callable[[], Domains]:
    return _domains(lambda: people.adult_by_sex(columns), label=int)


def _amazon() -> Domains:
    """Return reviews of books and of kitchenware as 300 singular directions of the books' weighted word counts."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.pipeline import make_pipeline

    train, test = (people.amazon_by_domain("books", "kitchen", rows=rows) for rows in ("train", "test"))
    features = make_pipeline(TfidfTransformer(sublinear_tf=True), TruncatedSVD(300, random_state=0))
    X_public = features.fit_transform(train.source.X)
    X = np.vstack([features.transform(part.target.X) for part in (train, test)])
    return Domains(X_public, np.asarray(train.source.y), X, np.concatenate([train.target.y, test.target.y]))


def moved_images(name: str) -> Domains:
    """Return principal components of images of `fashion_mnist` or `mnist`; public images are moved by two pixels."""
    from sklearn.decomposition import PCA

    arrays = loading.load(name).arrays
    images = np.concatenate([arrays["X_train"], arrays["X_test"]])[:20_000] / 255.0
    y = np.concatenate([arrays["y_train"], arrays["y_test"]])[:20_000].astype(int)
    moved = np.roll(images[:5000], 2, axis=1).reshape(5000, -1)
    components = PCA(100, random_state=0).fit(moved)
    X = components.transform(images[5000:].reshape(15_000, -1))
    return Domains(components.transform(moved), y[:5000], X, y[5000:])


def _digits() -> Domains:
    """Return small images of digits; public ones are moved one pixel to the right."""
    arrays = bundled.digits().arrays
    X, y = arrays["X"].reshape(-1, 64).astype(np.float64), arrays["y"]
    moved = np.roll(X[:400].reshape(-1, 8, 8), 1, axis=2).reshape(-1, 64)
    return Domains(moved, y[:400], X[400:], y[400:])


# Sets that are hard on purpose.


def _with_noise(domains: Domains) -> Domains:
    """Return a set with 200 more columns, of noise."""
    random = np.random.default_rng(0)
    parts = domains.X_public, domains.X
    X_public, X = (np.hstack([part, random.standard_normal((len(part), 200))]) for part in parts)
    return replace(domains, X_public=X_public, X=X)


def _repeated(domains: Domains) -> Domains:
    """Return a set with every column five times, each time with noise of a thousandth of its standard deviation."""
    random = np.random.default_rng(0)
    noise = 1e-3 * domains.X_public.std(axis=0)
    X_public, X = (
        np.hstack([part + noise * random.standard_normal(part.shape) for _ in range(5)])
        for part in (domains.X_public, domains.X)
    )
    return replace(domains, X_public=X_public, X=X)


def _fourier(domains: Domains) -> Domains:
    """Return a set with 400 random Fourier features of the standardised columns in place of the columns."""
    random = np.random.default_rng(0)
    mean, deviation = domains.X_public.mean(axis=0), domains.X_public.std(axis=0)
    frequencies = random.standard_normal((domains.X.shape[1], 400)) / np.sqrt(domains.X.shape[1])
    phases = random.uniform(0, 2 * np.pi, 400)
    X_public, X = (
        np.cos((part - mean) / np.where(deviation > 0, deviation, 1.0) @ frequencies + phases)
        for part in (domains.X_public, domains.X)
    )
    return replace(domains, X_public=X_public, X=X)


def _splines_and_stages(domains: Domains) -> Domains:
    """Return a set with cubic splines of the columns, beside every tenth stage of a boosting model.

    The boosting model is fitted to one half of the public rows; the other half is the public data of the task.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.preprocessing import SplineTransformer

    seen = np.random.default_rng(0).permutation(len(domains.y_public)) < len(domains.y_public) // 2
    model = HistGradientBoostingRegressor(early_stopping=False, random_state=0)
    model.fit(domains.X_public[seen], domains.y_public[seen])
    rich = np.array([len(np.unique(column)) > 5 for column in domains.X_public.T])
    splines = SplineTransformer(extrapolation="constant").fit(domains.X_public[:, rich])

    def columns(X: Array) -> Array:
        stages = list(model.staged_predict(X))[9::10]
        return np.hstack([X[:, ~rich], splines.transform(X[:, rich]), np.column_stack(stages)])

    return Domains(columns(domains.X_public[~seen]), domains.y_public[~seen], columns(domains.X), domains.y)


def _rare_class(domains: Domains) -> Domains:
    """Return a set of two classes without most rows of the rarer class: it keeps one row for 99 of the other."""

    def kept(y: Array) -> Array:
        names, counts = np.unique(y, return_counts=True)
        rare = np.flatnonzero(y == names[counts.argmin()])
        return np.setdiff1d(np.arange(len(y)), rare[max(1, int(counts.max()) // 99) :])

    public, private = kept(domains.y_public), kept(domains.y)
    return Domains(domains.X_public[public], domains.y_public[public], domains.X[private], domains.y[private])


def _changed(load: Callable[[], Domains], change: Callable[[Domains], Domains]) -> Callable[[], Domains]:
    return lambda: change(load())


# Tasks.

_WIND, _BY_PLAN = _domains(measurements.wind_by_month), _domains(bundled.randhie_by_plan)
_BY_AGE, _BY_CHILDREN = _domains(bundled.fair_by_age, label=int), _domains(bundled.fair_by_children, label=int)
_SUPERCONDUCTIVITY = _domains(measurements.superconductivity_by_elements)

TASKS = (
    Task("airfare_2000", "regression", _fresh("airfare_2000"), quick=True),
    Task("catholic_minority", "regression", _fresh("catholic_minority")),
    Task("computers_time", "regression", _fresh("computers_time"), quick=True),
    Task("cps88_south", "regression", _fresh("cps88_south")),
    Task("deliveries_same", "regression", _fresh("deliveries_same"), quick=True),
    Task("diamonds_same", "regression", _fresh("diamonds_same"), long=True),
    Task("hotel_time", "regression", _fresh("hotel_time")),
    Task("wind", "regression", _WIND, quick=True),
    Task("california, logarithms", "regression", _california_logs),
    Task("superconductivity", "regression", _SUPERCONDUCTIVITY, long=True),
    Task("gas", "regression", _domains(measurements.gas_by_batch)),
    Task("news", "regression", _domains(measurements.news_by_day)),
    Task("airline", "regression", _airline, long=True),
    Task("randhie by plan", "regression", _BY_PLAN, bundled=True, quick=True),
    Task("randhie by health", "regression", _domains(bundled.randhie_by_health), bundled=True),
    Task("no shift, d=200", "regression", _synthetic(200), bundled=True),
    Task("coefficients, d=20", "regression", _synthetic(20, turn=0.35), bundled=True, quick=True),
    Task("sign, d=200", "regression", _synthetic(200, sign=-1.0), bundled=True),
    Task("level, d=50", "regression", _synthetic(50, level=2.0), bundled=True),
    Task("other coefficients, d=12", "regression", _synthetic(12, sign=0.0, turn=1.0), bundled=True),
    Task("other coefficients, d=50", "regression", _synthetic(50, sign=0.3, level=0.5, turn=0.9), bundled=True),
    Task("alcohol_south", "classification", _fresh("alcohol_south"), quick=True),
    Task("wachurn_fiber", "classification", _fresh("wachurn_fiber"), quick=True),
    Task("trump_south", "classification", _fresh("trump_south")),
    Task("species_year", "classification", _fresh("species_year"), long=True),
    Task("mlcchurn_same", "classification", _fresh("mlcchurn_same"), quick=True),
    Task("adult labels", "classification", _adult("labels")),
    Task("adult one-hot", "classification", _adult("one-hot")),
    Task("amazon books kitchen", "classification", _amazon, long=True),
    Task("fashion", "classification", lambda: moved_images("fashion_mnist"), long=True),
    Task("fair by age", "classification", _BY_AGE, bundled=True, quick=True),
    Task("fair by children", "classification", _BY_CHILDREN, bundled=True),
    Task("digits", "classification", _digits, bundled=True),
)

ROBUSTNESS_TASKS = (
    Task("randhie, 200 noise columns", "regression", _changed(_BY_PLAN, _with_noise), bundled=True),
    Task("randhie, columns 5 times", "regression", _changed(_BY_PLAN, _repeated), bundled=True, quick=True),
    Task("randhie, Fourier features", "regression", _changed(_BY_PLAN, _fourier), bundled=True),
    Task("randhie, splines and stages", "regression", _changed(_BY_PLAN, _splines_and_stages), bundled=True),
    Task("wind, 200 noise columns", "regression", _changed(_WIND, _with_noise)),
    Task("wind, columns 5 times", "regression", _changed(_WIND, _repeated), quick=True),
    Task("wind, Fourier features", "regression", _changed(_WIND, _fourier)),
    Task("wind, splines and stages", "regression", _changed(_WIND, _splines_and_stages), quick=True),
    Task("fair by age, 200 noise columns", "classification", _changed(_BY_AGE, _with_noise), bundled=True),
    Task("fair by age, 99:1 labels", "classification", _changed(_BY_AGE, _rare_class), bundled=True, quick=True),
    Task("fair by children, 99:1 labels", "classification", _changed(_BY_CHILDREN, _rare_class), bundled=True),
)

# Tasks whose public rows are corrupted: those of no paper, one with many correlated columns, two that need no files.
_CORRUPTED = {file.part for file in FRESH} | {"superconductivity", "randhie by plan", "fair by age"}
CORRUPTED_TASKS = tuple(task for task in TASKS if task.name in _CORRUPTED)
