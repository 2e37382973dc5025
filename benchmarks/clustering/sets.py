"""The data of paper 5's figures: private sources and public targets, synthetic and real, in few dimensions.

Differentially Private Source-Target Clustering, Section 6. The paper does not say how many points its synthetic sets
have, nor where the clusters of the second one lie; both are our choice. Real sets are projected at random to eight
dimensions, as the paper does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from benchmarks.data import measurements, people

Array = NDArray[np.float64]

N_POINTS = 2000  # sources of a synthetic set
MOST_TARGETS, MOST_SOURCES = 1200, 8000
DIMENSIONS = 8
_QUARTERS = {"l": "low", "ml": "middle-low", "mh": "middle-high", "h": "high"}
_DIGITS = ((1, 7), (5, 2), (9, 6))
_OTHER_DIGITS = ((0, 3), (4, 8), (3, 5), (8, 0))
# Pairs that the paper does not have: private sources → public targets.
_OTHER_PAIRS: tuple[tuple[str, Callable[..., Any], tuple[Any, ...]], ...] = (
    ("California inland → coast", measurements.california_by_coast, ()),
    ("California south → north", measurements.california_by_latitude, ()),
    ("Wind, other months → January", measurements.wind_by_month, (1,)),
    ("Wind, other months → July", measurements.wind_by_month, (7,)),
    ("Gas, other batches → batch 6", measurements.gas_by_batch, (6,)),
    ("Gas, other batches → batch 3", measurements.gas_by_batch, (3,)),
    ("Airline, other hours → evening", measurements.airline_by_hour, ()),
    ("News, weekdays → Sunday", measurements.news_by_day, ()),
    ("Superconductivity, other → few elements", measurements.superconductivity_by_elements, ()),
)


@dataclass(frozen=True)
class PaperSet:
    """One pair of a private source and a public target.

    Parameters
    ----------
    name : str
    family : str
        Which of the paper's data sets it belongs to.
    draw : callable
        Takes a seed, returns sources and targets.
    real : bool
        Whether it needs the real data.
    main : bool
        Whether it is one of the eight sets on which the paper's algorithms are compared in full.
    development : bool
        Whether constants were chosen on other draws of it.
    """

    name: str
    family: str
    draw: Callable[[int], tuple[Array, Array]]
    real: bool = True
    main: bool = False
    development: bool = False


def synthetic_1(seed: int) -> tuple[Array, Array]:
    """Return two overlapping Gaussians."""
    random = np.random.default_rng([1, seed])
    return random.normal(0.15, 0.4, (N_POINTS, 2)), random.normal(0.95, 0.4, (MOST_TARGETS, 2))


def synthetic_2(seed: int) -> tuple[Array, Array]:
    """Return targets in two blocks of clusters at the bottom, and sources in the right one and all over the top."""
    random = np.random.default_rng([2, seed])
    left, right = _grid((0.1, 0.4), (0.1, 0.4), 3, 3), _grid((0.6, 0.9), (0.1, 0.4), 3, 3)
    top = _grid((0.1, 0.9), (0.6, 0.9), 6, 3)
    return (
        _clusters(random, np.vstack([top, right]), N_POINTS, 0.01),
        _clusters(random, np.vstack([left, right]), MOST_TARGETS, 0.01),
    )


def synthetic_3(seed: int) -> tuple[Array, Array]:
    """Return six wide clusters of sources and twelve narrow ones of targets, all placed at random."""
    random = np.random.default_rng([3, seed])
    return (
        _clusters(random, random.random((6, 2)), N_POINTS, 0.03),
        _clusters(random, random.random((12, 2)), MOST_TARGETS, 0.01),
    )


def _grid(x: tuple[float, float], y: tuple[float, float], nx: int, ny: int) -> Array:
    return np.stack(np.meshgrid(np.linspace(*x, nx), np.linspace(*y, ny)), axis=-1).reshape(-1, 2)


def _clusters(random: np.random.Generator, centres: Array, n: int, spread: float) -> Array:
    return np.asarray(centres[random.integers(len(centres), size=n)] + spread * random.standard_normal((n, 2)))


def _projected(load: Callable[..., Any], *options: Any, scaled: str = "", **more: Any) -> Callable[[int], Any]:
    """Return a draw of a real pair: rows and projection by the seed, columns scaled by the targets alone."""

    def draw(seed: int) -> tuple[Array, Array]:
        S, T = _tables(load, options, tuple(more.items()), scaled)
        random = np.random.default_rng([4, seed])
        # A random projection does not depend on the data.
        direction = random.standard_normal((T.shape[1], DIMENSIONS)) / np.sqrt(DIMENSIONS)
        parts = [
            part[random.permutation(part.shape[0])[:most]] @ direction
            for part, most in ((S, MOST_SOURCES), (T, MOST_TARGETS))
        ]
        return parts[0], parts[1]

    return draw


@cache
def _tables(load: Callable[..., Any], options: tuple[Any, ...], more: tuple[Any, ...], scaled: str) -> Any:
    domains = load(*options, **dict(more))
    if scaled == "rows":
        # Word counts stay sparse: the dense table has a gigabyte.
        return tuple(normalize(part.X.astype(np.float64)) for part in (domains.source, domains.target))
    S, T = (np.asarray(_dense(part.X), dtype=np.float64) for part in (domains.source, domains.target))
    if scaled == "columns":
        spread = T.std(axis=0)
        # Columns that are constant among the targets are dropped.
        S, T = ((part - T.mean(axis=0))[:, spread > 0] / spread[spread > 0] for part in (S, T))
    return S, T


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


# Real pairs of which other draws (seeds 1 and 2) were used to choose constants; of the synthetic sets, seeds 1 to 3.
DEVELOPMENT = (
    "MNIST 6 → 9",
    "MNIST 7 → 1",
    "Office amazon → webcam",
    "Office amazon → dslr",
    "Office webcam → amazon",
    "Office webcam → dslr",
    "Superconductivity h → mh",
    "Superconductivity ml → mh",
    "Superconductivity l → h",
    "Superconductivity h → l",
    "Adult men → women",
    "Reviews books → kitchen",
    "Gas, other batches → batch 3",
    "Gas, other batches → batch 6",
)


def _pairs() -> list[PaperSet]:
    sets = [
        PaperSet("synthetic 1", "synthetic", synthetic_1, real=False, main=True, development=True),
        PaperSet("synthetic 2", "synthetic", synthetic_2, real=False, main=True, development=True),
        PaperSet("synthetic 3", "synthetic", synthetic_3, real=False, main=True, development=True),
    ]
    for one, other in (pair for first, second in _DIGITS for pair in ((first, second), (second, first))):
        draw = _projected(measurements.mnist_by_digit, one, other)
        sets.append(PaperSet(f"MNIST {one} → {other}", "MNIST", draw, main=(one, other) == (6, 9)))
    for a, b in permutations(("amazon", "webcam", "dslr", "caltech10"), 2):
        draw = _projected(measurements.office_by_domain, a, b)
        sets.append(PaperSet(f"Office {a} → {b}", "Office", draw, main=(a, b) == ("amazon", "webcam")))
    for a, b in permutations(_QUARTERS, 2):
        names = _QUARTERS[a], _QUARTERS[b]
        draw = _projected(measurements.superconductivity_by_quarter, *names, by="wtd_std_Valence", scaled="columns")
        sets.append(PaperSet(f"Superconductivity {a} → {b}", "Superconductivity", draw, main=(a, b) == ("h", "mh")))
    for one, other in _OTHER_DIGITS:
        draw = _projected(measurements.mnist_by_digit, one, other)
        sets.append(PaperSet(f"MNIST {one} → {other}", "MNIST", draw))
    for name, load, options in _OTHER_PAIRS:
        draw = _projected(load, *options, scaled="columns")
        sets.append(PaperSet(name, "other", draw))
    draw = _projected(people.adult_by_sex, "one-hot", scaled="columns")
    sets.append(PaperSet("Adult men → women", "Adult", draw, main=True))
    draw = _projected(people.amazon_by_domain, "books", "kitchen", rows="test", scaled="rows")
    sets.append(PaperSet("Reviews books → kitchen", "Reviews", draw, main=True))
    return [replace(one, development=one.development or one.name in DEVELOPMENT) for one in sets]


SETS = tuple(_pairs())


def named(name: str) -> PaperSet:
    """Return the set of that name."""
    return next(paper_set for paper_set in SETS if paper_set.name == name)


def papers_pairs() -> list[str]:
    """Return the names of the paper's 24 real pairs and three synthetic sets."""
    # Three pairs of digits, both ways, and three of Office's domains.
    digits = {f"MNIST {one} → {other}" for a, b in _DIGITS for one, other in ((a, b), (b, a))}
    return [
        one.name
        for one in SETS
        if one.family in ("synthetic", "Superconductivity")
        or (one.family == "Office" and "caltech10" not in one.name)
        or one.name in digits
    ]
