"""Persons as the unit of privacy: what it costs, and what simpler ways to protect persons would cost.

Public rows, private rows of persons, and test rows of other persons. Compared are: the public model; a fit that
protects single rows; `persons=`; one random row per person; and epsilon divided by the largest number of rows of a
person. Errors are mean squared errors over the variance of the test labels, or log-losses.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import (
    claim,
    print_tables,
    real_data,
    setting_text,
    versions,
    write_claims_and_tables,
)
from benchmarks.transfer.fits import accuracy_and_log_loss
from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public
from dpadapt.datasets.bundled import randhie

Array = NDArray[Any]
EPSILONS = (0.3, 1.0, 3.0)
# Of persons who are held back for the test, drawn anew for every seed.
_TEST_SHARE = 0.3
SEEDS = (3, 16)
WAYS = ("public", "rows only", "persons", "one row per person", "epsilon / most rows")
START, END = "<!-- bench persons -->", "<!-- end of bench persons -->"


@dataclass(frozen=True, eq=False)
class Panel:
    """Public rows, and private rows with the id of each row's person."""

    X_public: Array
    y_public: Array
    X: Array
    y: Array
    ids: Array

    @property
    def classes(self) -> Array:
        """Classes of a classification; a regression has none."""
        return np.unique(self.y) if self.y.dtype.kind == "i" else np.array([])


def _randhie(label: str) -> Callable[[], Panel]:
    """Return visits to a doctor: free care is public, plans with cost sharing are private.

    The file has no ids. Consecutive rows that agree in what rarely changes over the years count as one person; some of
    these are several persons, which protects more than is needed.
    """

    def load() -> Panel:
        frame = randhie().frame
        fixed = frame[["lncoins", "idp", "physlm", "disea"]].to_numpy(float)
        ids = np.concatenate([[0], np.cumsum(np.any(fixed[1:] != fixed[:-1], axis=1))])
        X, visits = frame.drop(columns="mdvis").to_numpy(float), frame["mdvis"].to_numpy(float)
        y = np.log1p(visits) if label == "log_visits" else (visits > 0).astype(np.int64)
        free = frame["lncoins"].to_numpy() == 0
        return Panel(X[free], y[free], X[~free], y[~free], ids[~free])

    return load


def _wages() -> Panel:
    """Return wages of women over several years; the public rows are those of one group, the private ones of others."""
    import pandas as pd

    folder = Path(os.environ["DPADAPT_DATA"], "tables")
    public, private, test = (pd.read_csv(folder / f"wages-{part}.csv") for part in ("public", "private", "test"))
    private = pd.concat([private, test])
    columns = [name for name in public.columns if name not in ("idcode", "ln_wage")]
    median = public[columns].median()

    def encoded(frame: "pd.DataFrame") -> Array:
        missing = frame[columns].isna().to_numpy(float)
        return np.hstack([frame[columns].fillna(median).to_numpy(float), missing])

    y_public, y = (frame["ln_wage"].to_numpy(float) for frame in (public, private))
    return Panel(encoded(public), y_public, encoded(private), y, private["idcode"].to_numpy())


PANELS: dict[str, tuple[Callable[[], Panel], bool]] = {
    "randhie, log of visits": (_randhie("log_visits"), True),
    "randhie, any visit": (_randhie("any_visit"), True),
    "wages": (_wages, False),
}


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    name: str
    seeds: int


def measure(piece: Piece) -> list[dict[str, Any]]:
    """Return the errors of all ways for every epsilon and seed of one panel."""
    panel = PANELS[piece.name][0]()
    public = Public(panel.X_public, panel.y_public)
    return [row | {"set": piece.name} for seed in range(piece.seeds) for row in _errors(panel, public, seed)]


def _errors(panel: Panel, public: Public, seed: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(6000 + seed)
    names = random.permutation(np.unique(panel.ids))
    test = np.isin(panel.ids, names[: int(_TEST_SHARE * len(names))])
    X, y, ids = panel.X[~test], panel.y[~test], panel.ids[~test]
    shuffled = random.permutation(len(ids))
    single = shuffled[np.unique(ids[shuffled], return_index=True)[1]]
    most = int(np.unique(ids, return_counts=True)[1].max())

    def error(epsilon: float, rows: Any, **persons: Any) -> tuple[float, float]:
        params: dict[str, Any] = {"epsilon": epsilon, "random_state": seed}
        classes = panel.classes
        model: Any = (
            PrivateTransferClassifier(classes=classes, **params) if len(classes) else PrivateTransferRegressor(**params)
        )
        model.fit(X[rows], y[rows], public=public, **persons)
        return _loss(model, panel, test), _loss(model.public_only(), panel, test)

    for epsilon in EPSILONS:
        everything, alone = error(epsilon, slice(None))
        yield {
            "epsilon": epsilon,
            "seed": seed,
            "persons": error(epsilon, slice(None), persons=ids)[0],
            "rows only": everything,
            "public": alone,
            "one row per person": error(epsilon, single)[0],
            "epsilon / most rows": error(epsilon / most, slice(None))[0],
        }


def _loss(model: Any, panel: Panel, test: Array) -> float:
    X, y = panel.X[test], panel.y[test]
    if len(panel.classes):
        return accuracy_and_log_loss(model.predict_proba(X), np.searchsorted(panel.classes, y))[1]
    return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    todo = [Piece(name, SEEDS[0 if quick else 1]) for name, (_, bundled) in PANELS.items() if bundled or real_data()]
    rows: list[dict[str, Any]] = []
    for _, part in watched(measure, todo, cores(), name=lambda piece: piece.name):
        rows += part
    rows.sort(key=lambda row: (list(PANELS).index(row["set"]), row["epsilon"], row["seed"]))
    return {"quick": quick, "versions": versions(), "rows": rows}


def cells(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over seeds, and the worst single fit with persons over its public model.

    Examples
    --------
    >>> row = {"set": "a", "epsilon": 1.0, "public": 1.0, "persons": 0.5, **dict.fromkeys(WAYS[1:2] + WAYS[3:], 0.6)}
    >>> cells([row, row | {"persons": 0.7}])[0]["persons"]
    0.6
    """
    merged = []
    for key in dict.fromkeys((row["set"], row["epsilon"]) for row in rows):
        same = [row for row in rows if (row["set"], row["epsilon"]) == key]
        cell = {"set": key[0], "epsilon": key[1]} | {way: float(np.mean([row[way] for row in same])) for way in WAYS}
        merged.append(cell | {"worst": max(row["persons"] / row["public"] for row in same)})
    return merged


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the table of errors."""
    rows = [
        {
            "cells": [
                cell["set"],
                f"{cell['epsilon']:g}",
                *(f"{cell[way]:.4f}" for way in WAYS),
                f"{cell['worst']:.3f}",
            ],
            "bad": cell["worst"] > 1.01,
        }
        for cell in cells(results["rows"])
    ]
    seeds = 1 + max(row["seed"] for row in results["rows"])
    words = f"Means over {seeds} seeds; the last column is the largest single error with persons over the public one."
    return [{"title": "Errors", "words": words, "header": ["set", "epsilon", *WAYS, "worst"], "rows": rows}]


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return each target with its figure."""
    merged = cells(results["rows"])
    made = []
    for other in WAYS[3:]:
        ratios = {cell["set"]: cell["persons"] / cell[other] for cell in merged if cell["epsilon"] == 1.0}
        worst = max(ratios, key=lambda name: ratios[name])
        text = f"{sum(ratio < 1 for ratio in ratios.values())} of {len(ratios)}; worst {ratios[worst]:.3f} ({worst})"
        made.append(claim(f"epsilon 1: error with persons below that of {other}, every set", text, ratios[worst] < 1))
    worst_fit = max(cell["worst"] for cell in merged)
    fits = len(results["rows"])
    text = f"worst {worst_fit:.3f} of {fits} fits"
    return [*made, claim("no fit with persons over 1% worse than the public model", text, worst_fit <= 1.01)]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    command_text = "python -m benchmarks persons"
    write_claims_and_tables(path, (START, END), command_text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
