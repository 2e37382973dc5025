"""The data of paper 1's tables, in the sizes of its Tables 4 and 7, and how each set differs from the paper's.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Appendix E.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import loading, measurements, people
from dpadapt.data import Public

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Split:
    """A labelled public source, and the target's rows for training, validation and test."""

    public: Public
    X: Array
    y: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    # The same source, or 4,000 rows of it where kernel mean matching can't take all rows.
    thinned: Public


@dataclass(frozen=True)
class PaperSet:
    """One data set of the paper's tables.

    Parameters
    ----------
    name : str
    load : callable
        Returns source features and labels, target features and labels.
    sizes : tuple of int
        Target rows for training, validation and test; source rows.
    complete : bool
        Whether the data is the paper's, so that figures can be compared.
    note : str
        How the data differs from the paper's.
    repeated : int
        How often every target row is repeated *before* the split; above 1, test rows are in the training set.
    """

    name: str
    load: Callable[[], tuple[Array, Array, Array, Array]]
    sizes: tuple[int, int, int, int]
    complete: bool
    note: str
    repeated: int = 1


# Source rows. Kernel mean matching needs a kernel between all of them; more take minutes and gigabytes.
MOST_MATCHED_ROWS = 6100


def split(paper_set: PaperSet, seed: int) -> Split:
    """Return one random split in the set's sizes."""
    X_source, y_source, X, y = _loaded(paper_set)
    random = np.random.default_rng(500 + seed)
    rows = random.permutation(np.tile(np.arange(len(y)), paper_set.repeated))
    train, validation, test, m = paper_set.sizes
    parts = np.split(rows[: train + validation + test], [train, train + validation])
    source = random.permutation(len(y_source))[:m]
    few = source[:4000] if len(source) > MOST_MATCHED_ROWS else source
    a, b, c = parts
    return Split(
        Public(X_source[source], y_source[source]),
        *(X[a], y[a], X[b], y[b], X[c], y[c]),
        thinned=Public(X_source[few], y_source[few]),
    )


@cache
def _loaded(paper_set: PaperSet) -> tuple[Array, Array, Array, Array]:
    return paper_set.load()


def _of(load: Callable[..., Any], *options: Any) -> Callable[[], tuple[Array, Array, Array, Array]]:
    def loaded() -> tuple[Array, Array, Array, Array]:
        domains = load(*options)
        source, target = domains.source, domains.target
        features = (np.asarray(part.X, dtype=np.float64) for part in (source, target))
        X_source, X = features
        return X_source, np.asarray(source.y), X, np.asarray(target.y)

    return loaded


def _cifar() -> tuple[Array, Array, Array, Array]:
    """Two halves of CIFAR-10's classes; the source is drawn mostly near the mean, the target mostly uniformly.

    Appendix E.2 mixes "uniform sampling and Gaussian sampling using the mean and covariance of the data". Our reading:
    rows are drawn with a chance in proportion to the Gaussian density. In 64 directions that leaves a handful of rows,
    so the density is taken to the power 1/8.
    """
    from sklearn.decomposition import PCA

    arrays = loading.load("cifar10", part="features").arrays
    X, kind = (np.concatenate([arrays[f"{name}_{part}"] for part in ("train", "test")]) for name in ("F", "y"))
    X = PCA(64, whiten=True, random_state=0).fit_transform(X.astype(np.float64))
    y = (kind < 5).astype(np.int64)
    random = np.random.default_rng(0)
    weight = np.exp(-np.sum(X**2, axis=1) / 16)
    near = random.choice(len(y), 1124 + 600, replace=False, p=weight / weight.sum())
    even = random.permutation(np.setdiff1d(np.arange(len(y)), near))
    source, target = np.concatenate([near[:1124], even[:125]]), np.concatenate([near[1124:], even[125:5525]])
    return X[source], y[source], X[target], y[target]


REGRESSION = (
    PaperSet(
        "Wind",
        _of(measurements.wind_by_month, 1, "MAL"),
        (158, 200, 200, 6016),
        True,
        "complete; January and Malin Head reproduce the paper's sizes, which it does not name",
    ),
    PaperSet(
        "Airline",
        _of(measurements.airline_by_hour),
        (200, 300, 300, 16_000),
        False,
        "stand-in: New York 2013 in place of Chicago 2008; hours and inputs are ours",
    ),
    PaperSet(
        "Gas",
        _of(measurements.gas_by_batch),
        (613, 687, 1000, 4397),
        False,
        "partial: target batch 6, since batch 7 (the paper's) and batch 10 are missing",
    ),
    PaperSet(
        "News",
        _of(measurements.news_by_day),
        (737, 300, 339, 3000),
        False,
        "partial: half of the Sunday articles; labels are logarithms of shares",
    ),
    PaperSet(
        "Slice",
        _of(measurements.slice_by_patient),
        (69, 10, 20, 583),
        False,
        "partial: two of 97 patients, 99 target rows for 384 inputs",
    ),
)

CLASSIFICATION = (
    PaperSet(
        "Adult",
        _of(people.adult_by_sex, "labels"),
        (6847, 978, 1957, 20_380),
        True,
        "complete; 88.6% of the target is one class",
    ),
    PaperSet(
        "German",
        _of(people.german_by_residence),
        (306, 44, 88, 562),
        False,
        "complete, split honestly: no test row is in the training set; the label is credit risk",
    ),
    PaperSet(
        "German, repeated",
        _of(people.german_by_residence),
        (2452, 350, 702, 562),
        False,
        "the paper's sizes: each of 438 rows 8 times, before the split, so test rows are in the training set; it "
        "names the status of the checking account as its goal, which has four values",
        repeated=8,
    ),
    PaperSet(
        "Accent",
        _of(people.accent_by_country),
        (83, 12, 24, 210),
        False,
        "complete, split honestly: no test row is in the training set; which accents count as 1 is our choice",
    ),
    PaperSet(
        "Accent, repeated",
        _of(people.accent_by_country),
        (833, 119, 238, 210),
        False,
        "the paper's sizes: each of 119 rows 10 times, before the split, so test rows are in the training set",
        repeated=10,
    ),
    PaperSet(
        "CIFAR-10",
        _cifar,
        (125, 2000, 3875, 1249),
        False,
        "partial: 10,000 images, another encoder (EfficientNet-Lite0, 64 principal components), our reading of the "
        "sampling",
    ),
)

UNAVAILABLE = ("CIFAR-100", "SVHN", "ImageNet")


def named(name: str) -> PaperSet:
    """Return the set of that name."""
    return next(paper_set for paper_set in (*REGRESSION, *CLASSIFICATION) if paper_set.name == name)
