"""Populations of the hybrid benchmark: a curator's sample that is biased, or not, and the people's population.

The curator holds a biased sample; people are drawn from the target population, in another part of the same table. Real
tables are Adult (UCI) and flights out of New York in 2013. In the synthetic rot10 and rot50 the true coefficients
rotate with the first feature, so that no linear model fits both populations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import loading

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """A curator's rows, the rows that people are drawn from, and test rows of the people's population."""

    X: Array
    y: Array
    X_people: Array
    y_people: Array
    X_test: Array
    y_test: Array
    bounds: tuple[float, float]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Population:
    """One row of the benchmark.

    Parameters
    ----------
    name : str
    about : str
        Who is in the curator's sample, and who the people are.
    n_rows : int
        The curator's rows.
    draw : callable
        Takes a seed, returns a `Problem`.
    real : bool
        Whether it needs files.
    """

    name: str
    about: str
    n_rows: int
    draw: Callable[[int], Problem]
    real: bool = True


def rotating(d: int, n_rows: int = 20_000) -> Callable[[int], Problem]:
    """Return the draw of x ~ N(-+0.75 e1, I), label 1[cos(x1) x2 + sin(x1) x3 > 0], 5% of labels flipped."""

    def rows(generator: np.random.Generator, n: int, centre: float) -> tuple[Array, Array]:
        X = generator.standard_normal((n, d))
        X[:, 0] += centre
        label = np.cos(X[:, 0]) * X[:, 1] + np.sin(X[:, 0]) * X[:, 2] > 0
        return X, (label ^ (generator.random(n) < 0.05)).astype(np.int64)

    def draw(seed: int) -> Problem:
        generator = np.random.default_rng(7000 + seed)
        parts = [rows(generator, n, centre) for n, centre in ((n_rows, -0.75), (100_000, 0.75), (50_000, 0.75))]
        (X, y), people, test = parts
        return Problem(X, y, *people, *test, bounds=(-2.0, 2.0), groups=())

    return draw


def biased(
    table: Callable[[], tuple[Array, Array, tuple[tuple[int, ...], ...], pd.DataFrame]],
    kept: Callable[[pd.DataFrame], Array],
    people: Callable[[pd.DataFrame], Array],
    n_rows: int,
    flip: Callable[[pd.DataFrame, Array, np.random.Generator], Array] | None = None,
) -> Callable[[int], Problem]:
    """Return the draw of a biased sample from a table: half the rows for the curator, a quarter people, a quarter test.

    `kept` returns the probability that the curator has a row, `people` which rows belong to the people's population,
    `flip` the curator's labels, some of them wrong.
    """

    def draw(seed: int) -> Problem:
        X, y, groups, facts = table()
        generator = np.random.default_rng(7000 + seed)
        order = generator.permutation(len(y))
        pool, others, test = np.split(order, [len(y) // 2, len(y) * 3 // 4])
        has = pool[generator.random(len(pool)) < kept(facts.iloc[pool])][:n_rows]
        labels = y[has] if flip is None else flip(facts.iloc[has], y[has], generator)
        others, test = (part[people(facts.iloc[part])] for part in (others, test))
        return Problem(X[has], labels, X[others], y[others], X[test], y[test], bounds=(-2.0, 2.0), groups=groups)

    return draw


def _matrix(numbers: dict[str, Array], categories: dict[str, Array]) -> tuple[Array, tuple[tuple[int, ...], ...]]:
    """Return columns of numbers, then of indicators, and which indicators belong to one variable."""
    blocks = [np.clip(np.column_stack(list(numbers.values())), -2.0, 2.0)]
    groups, start = [], len(numbers)
    for codes in categories.values():
        levels, places = np.unique(codes, return_inverse=True)
        blocks.append((places[:, None] == np.arange(len(levels))).astype(np.float64))
        groups.append(tuple(range(start, start + len(levels))))
        start += len(levels)
    return np.hstack(blocks), tuple(groups)


def _common(column: "pd.Series[Any]", most: int) -> Array:
    """Return a column with its most frequent values; all others become 'other'."""
    words = column.astype(str)
    return np.asarray(words.where(words.isin(words.value_counts().index[:most]), "other"))


@cache
def adult(large: bool) -> tuple[Array, Array, tuple[tuple[int, ...], ...], pd.DataFrame]:
    """Return Adult: income above 50,000 dollars; features as numbers and indicators, groups, columns to bias by."""
    frame = loading.load("adult").frame
    numbers = {
        "age": (frame["age"] - 40) / 13,
        "education": (frame["education_num"] - 10) / 2.5,
        "hours": (frame["hours_per_week"] - 40) / 12,
    }
    married = frame["marital_status"].isin(["Married-civ-spouse", "Married-AF-spouse"])
    gains = {"gain": np.asarray(frame["capital_gain"] > 0), "loss": np.asarray(frame["capital_loss"] > 0)}
    if large:
        words = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex")
        categories = {name: np.asarray(frame[name].astype(str)) for name in words} | gains
        categories["native_country"] = _common(frame["native_country"], 10)
        categories["age"] = np.digitize(frame["age"], [22, 27, 32, 37, 42, 47, 52, 57, 62, 67])
        categories["hours"] = np.digitize(frame["hours_per_week"], [20, 34, 39, 40, 45, 50, 60])
    else:
        categories = {"sex": np.asarray(frame["sex"].astype(str)), "married": np.asarray(married)} | gains
        categories["white"] = np.asarray(frame["race"] == "White")
    X, groups = _matrix({name: np.asarray(value) for name, value in numbers.items()}, categories)
    facts = pd.DataFrame(
        {"age": X[:, 0], "education": X[:, 1], "hours": X[:, 2], "married": np.asarray(married)}, dtype=np.float64
    )
    return X, np.asarray(frame["income"] == ">50K").astype(np.int64), groups, facts


@cache
def flights(large: bool) -> tuple[Array, Array, tuple[tuple[int, ...], ...], pd.DataFrame]:
    """Return flights: late arrival; features as numbers and indicators, groups, columns to bias by."""
    frame = loading.load("airline", "nyc13").frame
    frame = frame[frame[["arr_delay", "temp", "visib", "wind_speed"]].notna().all(axis=1)]
    numbers = {
        "hour": (frame["hour"] - 13) / 5,
        "distance": (frame["distance"] - 1000) / 700,
        "temp": (frame["temp"] - 55) / 18,
        "humid": (frame["humid"] - 60) / 20,
        "visib": (frame["visib"] - 9) / 2,
        "precip": 20 * np.minimum(frame["precip"], 0.2) - 1,
        "wind": (frame["wind_speed"] - 10) / 5.5,
    }
    carrier, origin = np.asarray(frame["carrier"].astype(str)), np.asarray(frame["origin"].astype(str))
    if large:
        categories = {"carrier": carrier, "dest": _common(frame["dest"], 40), "origin": origin}
        categories |= {name: np.asarray(frame[name]) for name in ("month", "dow", "hour")}
    else:
        angle = 2 * np.pi * frame["month"] / 12
        numbers |= {"cos": 1.4 * np.cos(angle), "sin": 1.4 * np.sin(angle)}
        late = np.isin(carrier, ["EV", "MQ", "FL", "F9", "B6", "YV"])
        categories = {"weekend": np.isin(frame["dow"], [0, 6]), "origin": origin, "late carrier": late}
    X, groups = _matrix({name: np.nan_to_num(np.asarray(value)) for name, value in numbers.items()}, categories)
    facts = pd.DataFrame({"hour": np.asarray(frame["hour"])})
    return X, np.asarray(frame["arr_delay"] > 0).astype(np.int64), groups, facts


def _everyone(facts: pd.DataFrame) -> Array:
    return np.ones(len(facts), dtype=bool)


def _always(facts: pd.DataFrame) -> Array:
    return np.ones(len(facts))


def _young(facts: pd.DataFrame) -> Array:
    return np.asarray(1 / (1 + np.exp(3 * facts["age"] + 0.5)))


def _old(facts: pd.DataFrame) -> Array:
    return np.asarray(facts["age"] > 0.5)


def _unmarried(facts: pd.DataFrame) -> Array:
    return np.where(facts["married"] > 0, 0.05, 1.0)


def _married(facts: pd.DataFrame) -> Array:
    return np.asarray(facts["married"] > 0)


def _modest(facts: pd.DataFrame, labels: Array, generator: np.random.Generator) -> Array:
    """Return labels with high incomes hidden: by most of the educated, by few others."""
    hidden = generator.random(len(labels)) < np.where(facts["education"] > 0.5, 0.6, 0.1)
    return np.where(hidden, 0, labels)


def _morning(facts: pd.DataFrame) -> Array:
    return np.where(facts["hour"] < 12, 1.0, 0.05)


def _evening(facts: pd.DataFrame) -> Array:
    return np.asarray(facts["hour"] >= 15)


POPULATIONS: tuple[Population, ...] = (
    Population("rot10", "the coefficients rotate with the first of 10 features", 20_000, rotating(10), real=False),
    Population("rot50", "the same among 50 features", 20_000, rotating(50), real=False),
    Population("Adult, old", "young sample, people over 46", 8_000, biased(lambda: adult(True), _young, _old, 8_000)),
    Population(
        "Adult, married",
        "unmarried sample, married people",
        8_000,
        biased(lambda: adult(True), _unmarried, _married, 8_000),
    ),
    Population(
        "Adult, label bias",
        "the sample hides high incomes",
        8_000,
        biased(lambda: adult(True), _always, _everyone, 8_000, _modest),
    ),
    Population(
        "Adult, old, 14 columns",
        "young sample, people over 46; few features",
        8_000,
        biased(lambda: adult(False), _young, _old, 8_000),
    ),
    Population(
        "flights, evening",
        "morning flights, people fly after 15:00",
        30_000,
        biased(lambda: flights(False), _morning, _evening, 30_000),
    ),
    Population(
        "Adult, no bias", "sample and people alike", 8_000, biased(lambda: adult(True), _always, _everyone, 8_000)
    ),
    Population(
        "flights, no bias",
        "sample and people alike",
        30_000,
        biased(lambda: flights(True), _always, _everyone, 30_000),
    ),
)


def population(name: str) -> Population:
    """Return the population called `name`."""
    return next(one for one in POPULATIONS if one.name == name)
