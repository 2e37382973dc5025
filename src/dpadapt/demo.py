"""What `dpadapt demo` shows: two raw tables, transfer beside its alternatives, and a panel for each other kind of help.

The rows were published long ago, so errors may be measured on held-out private rows, and seeds may be used. Neither is
allowed for data that is to be protected.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpadapt import __version__
from dpadapt.data import Public
from dpadapt.methods import PREDICTORS, Method, Task, find
from dpadapt.report import page
from dpadapt.report.charts import case_chart
from dpadapt.report.previews import Curve, clearly_less, error_panel, help_in_words, with_spread

if TYPE_CHECKING:
    import pandas as pd

    from dpadapt.datasets.domains import Domains

# Grid of the demo: with finer grids and more splits, curves are smoother, and the demo takes longer than a minute.
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_PRIVATE_ROWS = (100, 300, 1000, 3000)
_DEMO_DELTA = 1e-6
_DEMO_TEST_SHARE = 1 / 3
# Splits for the papers' algorithms; they are shown for comparison only.
_PAPER_SEEDS = 3
# Methods of the papers that are not shown: one models the public population instead of the private one, and one, which
# uses no private labels, takes several minutes.
_NOT_SHOWN = ("reverse-adaptation", "private-best-da")


@dataclass(frozen=True)
class Case:
    """Two populations of one data set, and what is publicly known about its columns."""

    name: str
    title: str
    what: str
    task: Task
    ranges: dict[str, tuple[float, float]]
    bounds: tuple[float, float]
    split: str

    def domains(self) -> "Domains":
        """Return the bundled split of that name."""
        from dpadapt.datasets import bundled

        domains: Domains = getattr(bundled, self.split)()
        return domains


# Ranges are those of the questionnaires, not of the answers; columns that are not listed are 0 or 1.
_VISITS = {"lncoins": (0.0, 4.62), "lpi": (0.0, 7.2), "fmde": (0.0, 8.3), "disea": (0.0, 60.0)}
_AFFAIRS = {
    "rate_marriage": (1.0, 5.0),
    "age": (17.5, 42.0),
    "yrs_married": (0.5, 23.0),
    "children": (0.0, 5.5),
    "religious": (1.0, 4.0),
    "educ": (9.0, 20.0),
    "occupation": (1.0, 6.0),
    "occupation_husb": (1.0, 6.0),
}
_VISITS_WHAT = (
    "RAND Health Insurance Experiment: a linear model of log(1 + visits in a year) from insurance plan and health. "
    "A row is one year of one person."
)
_AFFAIRS_WHAT = "Redbook survey of 1974: a logistic model of having any affair, from age, marriage, faith and work."

# Both splits of both sets, whether public rows help there or not.
CASES = (
    Case(
        "visits by health",
        "Visits to a doctor: from the healthy to the ill",
        f"{_VISITS_WHAT} Public: people in good health. Private: people in worse health.",
        "regression",
        _VISITS,
        (0.0, 4.4),
        "randhie_by_health",
    ),
    Case(
        "visits by plan",
        "Visits to a doctor: from free care to those who pay",
        f"{_VISITS_WHAT} Public: people whose care is free. Private: people who pay a share, whose price and limits "
        "nobody in the public rows has.",
        "regression",
        _VISITS,
        (0.0, 4.4),
        "randhie_by_plan",
    ),
    Case(
        "affairs by children",
        "Affairs: from women with children to women without",
        f"{_AFFAIRS_WHAT} Public: women with children. Private: women without.",
        "classification",
        _AFFAIRS,
        (0.0, 1.0),
        "fair_by_children",
    ),
    Case(
        "affairs by age",
        "Affairs: from older to younger women",
        f"{_AFFAIRS_WHAT} Public: women over 27. Private: younger women.",
        "classification",
        _AFFAIRS,
        (0.0, 1.0),
        "fair_by_age",
    ),
)


def side_by_side(
    cases: Sequence[Case], *, epsilons: Sequence[float], seeds: int, done: Callable[[str], None]
) -> dict[str, Any]:
    """Return the errors of every model on held-out rows, one value per seed; `done` is called after each seed."""
    for method in PREDICTORS:
        method.estimator()  # loads the libraries whose threads are limited below
    # The tables have ten columns: with several threads, waiting takes three times as long as computing.
    with threadpool_limits(1):
        measured = [_case(case, epsilons, seeds, done) for case in cases]
        papers = [_papers(case, ours, epsilons, done) for case, ours in zip(cases, measured, strict=True)]
        others = [digits_panel(epsilons), people_panel(epsilons, _AFFAIRS), centres_panel(epsilons)]
        done("other help")
    return {
        "epsilons": list(epsilons),
        "delta": _DEMO_DELTA,
        "seeds": seeds,
        "methods": [{"name": m.name, "task": m.task, "summary": m.summary} for m in PREDICTORS],
        "cases": measured,
        "papers": papers,
        "others": others,
    }


@dataclass(frozen=True)
class Compared:
    """One private curve of the comparison: a method, with (`shared`) or without public rows."""

    key: str
    name: str
    method: Method
    shared: bool


def compared(task: Task) -> list[Compared]:
    """Return every product method with public rows, the default first, and the default without them."""
    default = find(None, task)
    others = [method for method in PREDICTORS if method.task == task and method is not default and method.paper is None]
    return [
        Compared("together", f"with public ({default.name})", default, shared=True),
        *(
            Compared(f"together, {method.name}", f"with public ({method.name})", method, shared=True)
            for method in others
        ),
        # Without public rows all methods of one task are the same.
        Compared("private only", "private only", default, shared=False),
    ]


def _case(case: Case, epsilons: Sequence[float], seeds: int, done: Callable[[str], None]) -> dict[str, Any]:
    """Return one panel over epsilons with all private rows, and one over rows at the epsilon nearest to 1."""
    domains, X, y, public = _loaded(case)
    public_model = public_only(public.X, public.y, case.task)
    n_test = round(len(y) * _DEMO_TEST_SHARE)
    n_train = len(y) - n_test
    sizes = [*(n for n in _PRIVATE_ROWS if n < 0.8 * n_train), n_train]
    middle = min(epsilons, key=lambda epsilon: abs(math.log(epsilon)))
    lines = {line.key: line for line in compared(case.task)}
    cells = list(dict.fromkeys([*((epsilon, n_train) for epsilon in epsilons), *((middle, n) for n in sizes)]))
    errors: dict[tuple[str, float, int], list[float]] = {(key, *cell): [] for key in lines for cell in cells}
    floors: dict[int, list[float]] = {n: [] for n in sizes}
    levels: dict[str, list[float]] = {"no model": [], "public only": []}
    for seed in range(seeds):
        test, train = _rows(len(y), seed)
        levels["no model"].append(1.0)
        levels["public only"].append(_error(public_model, X[test], y[test], case.task))
        for n, values in floors.items():
            model = public_only(X[train[:n]], y[train[:n]], case.task)
            values.append(_error(model, X[test], y[test], case.task))
        for (key, epsilon, n), values in errors.items():
            model = _estimator(lines[key].method, case, epsilon, seed)
            model.fit(X[train[:n]], y[train[:n]], public=public if lines[key].shared else None)
            values.append(_error(model, X[test], y[test], case.task))
        done(case.name)

    def curves(cells: Sequence[tuple[float, int]]) -> list[tuple[str, str, str | None, bool, list[list[float]]]]:
        return [
            (line.key, line.name, line.method.name, line.shared, [errors[(line.key, *cell)] for cell in cells])
            for line in lines.values()
        ]

    names = {"no model": f"no model: the {'mean' if case.task == 'regression' else 'rate'}"}
    fixed = [(key, names.get(key, key), values) for key, values in levels.items()]
    by_epsilon = curves([(epsilon, n_train) for epsilon in epsilons])
    by_rows = curves([(middle, n) for n in sizes])
    by_rows.append(("not private", "not private", None, False, list(floors.values())))
    floor = ("not private", "not private", floors[n_train])
    return _description(case, domains, n_train, n_test) | {
        "middle": middle,
        "panels": [
            error_panel("epsilon", f"all {n_train:,} private rows", epsilons, [*fixed, floor], by_epsilon),
            error_panel("rows", f"ε = {middle:g}", sizes, fixed, by_rows),
        ],
    }


def _papers(case: Case, ours: dict[str, Any], epsilons: Sequence[float], done: Callable[[str], None]) -> dict[str, Any]:
    """Return the errors of the papers' algorithms over epsilons, beside the default method and the levels of `ours`."""
    _, X, y, public = _loaded(case)
    methods = [
        method
        for method in PREDICTORS
        if (method.task, method.beside) == (case.task, "public")
        and method.paper
        and method.name not in _NOT_SHOWN
        and not method.tasks
    ]
    panel = ours["panels"][0]
    levels = [{**level, "values": level["values"][:_PAPER_SEEDS]} for level in panel["levels"]]
    together = next(curve for curve in panel["curves"] if curve["key"] == "together")
    curves = [{**together, "points": [{**p, "values": p["values"][:_PAPER_SEEDS]} for p in together["points"]]}]
    seeds = range(len(curves[0]["points"][0]["values"]))
    for method in methods:
        points = []
        for epsilon in epsilons:
            values = []
            for seed in seeds:
                test, train = _rows(len(y), seed)
                model = _estimator(method, case, epsilon, seed).fit(X[train], y[train], public=public)
                values.append(_error(model, X[test], y[test], case.task))
            points.append({"x": epsilon, "values": values})
        names = {"key": method.name, "name": method.name, "method": method.name, "public": True}
        curves.append(names | {"points": points})
    done(f"{case.name}, papers")
    description = ("name", "title", "measure", "axis", "rows", "task")
    return {key: ours[key] for key in description} | {"panels": [{**panel, "levels": levels, "curves": curves}]}


def _loaded(case: Case) -> tuple["Domains", NDArray[np.float64], NDArray[Any], Public]:
    """Return both populations of a case, then private features and labels, then the public rows."""
    domains = case.domains()
    X_public, X = (_scaled(part.X, case) for part in (domains.source, domains.target))
    y_public, y = (np.asarray(part.y) for part in (domains.source, domains.target))
    return domains, X, y, Public(X_public, y_public)


def _rows(n_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of held-out rows and of the others."""
    test, train = np.split(np.random.default_rng(seed).permutation(n_rows), [round(n_rows * _DEMO_TEST_SHARE)])
    return test, train


def _description(case: Case, domains: "Domains", n_train: int, n_test: int) -> dict[str, Any]:
    measured = "mean squared error over variance" if case.task == "regression" else "log-loss over that of the rate"
    return {
        "name": case.name,
        "title": case.title,
        "what": case.what,
        "task": case.task,
        "provenance": domains.provenance,
        "rows": {"public": len(domains.source.y), "private": n_train, "test": n_test},
        "axis": measured,
        "measure": f"{measured}, on held-out private rows: 1 = no model, smaller is better",
    }


def _scaled(frame: Any, case: Case) -> NDArray[np.float64]:
    """Return the columns scaled to [-1, 1] by their public ranges."""
    low, high = np.array([case.ranges.get(str(name), (0.0, 1.0)) for name in frame.columns]).T
    return np.asarray(2 * (np.clip(frame.to_numpy(np.float64), low, high) - low) / (high - low) - 1)


def _estimator(method: Method, case: Case, epsilon: float, seed: int) -> Any:
    values: dict[str, Any] = {"epsilon": epsilon, "delta": _DEMO_DELTA, "random_state": seed}
    values |= {"target_bounds": case.bounds} if case.task == "regression" else {"classes": [0, 1]}
    parameters = method.estimator().get_params(deep=False)
    return method.estimator(**{name: value for name, value in values.items() if name in parameters})


def _error(model: Any, X: NDArray[np.float64], y: NDArray[Any], task: str) -> float:
    """Return the error divided by that of predicting the mean (or the rate) of these same rows."""
    if task == "regression":
        return float(np.mean((y - model.predict(X)) ** 2) / np.var(y))
    rate = float(np.mean(y))
    baseline = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    chance = np.clip(model.predict_proba(X)[:, 1], 1e-12, 1 - 1e-12)
    return float(-np.mean(np.where(y == 1, np.log(chance), np.log(1 - chance))) / baseline)


def public_only(X: NDArray[np.float64], y: NDArray[Any], task: str) -> Any:
    """Return a fitted non-private model: ridge regression (penalty by cross-validation) or logistic regression."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if task == "regression":
        return RidgeCV(np.logspace(-3, 3, 13)).fit(X, y)
    if len(np.unique(y)) < 2:
        return DummyClassifier().fit(X, y)
    with warnings.catch_warnings():
        # As a reference, a fit that stops a few steps before the optimum is good enough.
        warnings.simplefilter("ignore")
        return LogisticRegression(C=10.0, max_iter=500).fit(X, y)


# Panels on other kinds of help: a public encoder, people who answer one question, public points.

# Sizes of the panels: with more seeds and people, curves are smoother, and the demo takes longer than a minute.
_PANEL_DELTA = 1e-6
_PANEL_SEEDS = 3
_DIGITS_TEST_ROWS = 296
_N_PEOPLE = 200_000
_PEOPLE_POOL_ROWS = 1500  # rows from which people are drawn with replacement; the others are held out
_N_TARGETS = 1000
_N_CENTRES = 20


def digits_panel(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return the errors of private probes on digits 5 to 9, with features of a network trained on 0 to 4."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    from dpadapt.representation.probe import PrivateProbe

    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    inverted = np.random.default_rng(1).random(len(y)) < 0.5
    X[inverted] = 1.0 - X[inverted]
    public_rows, private_rows = np.flatnonzero(y < 5), np.flatnonzero(y >= 5)
    network = MLPClassifier((64,), learning_rate_init=0.005, tol=1e-3, n_iter_no_change=5, random_state=0)
    network.fit(np.vstack([X[public_rows], 1.0 - X[public_rows]]), np.tile(y[public_rows], 2))

    def encode(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.maximum(rows @ network.coefs_[0] + network.intercepts_[0], 0.0))

    probes: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]] | None, bool]] = {
        "probe": (encode, True),
        "pixels": (None, True),
        "private only": (None, False),
    }
    errors: dict[tuple[str, float], list[float]] = {(key, e): [] for key in probes for e in epsilons}
    floors: list[float] = []
    for seed in range(_PANEL_SEEDS):
        test, train = np.split(np.random.default_rng(seed).permutation(private_rows), [_DIGITS_TEST_ROWS])
        non_private = LogisticRegression(max_iter=500).fit(encode(X[train]), y[train])
        floors.append(1.0 - float(non_private.score(encode(X[test]), y[test])))
        for key, (encoder, with_public) in probes.items():
            for epsilon in epsilons:
                model = PrivateProbe(epsilon, _PANEL_DELTA, encoder=encoder, classes=range(5, 10), random_state=seed)
                model.fit(X[train], y[train], public=Public(X[public_rows]) if with_public else None)
                errors[key, epsilon].append(1.0 - float(model.score(X[test], y[test])))
    measure, n_private = "share of wrong classes", len(private_rows) - _DIGITS_TEST_ROWS
    names = {"probe": "probe on public features", "pixels": "probe on pixels", "private only": "private only, pixels"}
    return {
        "name": "digits",
        "title": "Digits: features of a public network that has never seen the private classes",
        "measure": f"{measure}, on held-out private rows; public images show 0 to 4, private ones 5 to 9, half of all "
        "are dark on light",
        "axis": measure,
        "rows": {"public": len(public_rows), "private": n_private, "test": _DIGITS_TEST_ROWS},
        "task": "classification",
        "panels": [
            error_panel(
                "epsilon",
                f"all {n_private:,} private rows",
                epsilons,
                # No private class occurs among the public rows, so that a public model is always wrong.
                [
                    ("public only", "public only (zero-shot)", [1.0] * _PANEL_SEEDS),
                    ("not private", "not private", floors),
                ],
                [
                    (key, name, "probe", probes[key][1], [errors[key, e] for e in epsilons])
                    for key, name in names.items()
                ],
            )
        ],
    }


def people_panel(epsilons: Sequence[float], ranges: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return errors for older women, each of whom answers one question, when the curator has rows of younger women."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import scale

    from dpadapt.datasets.bundled import fair_by_age
    from dpadapt.hybrid.agents import SimulatedAgents
    from dpadapt.hybrid.classifier import PrivateHybridClassifier

    domains = fair_by_age()
    bounds = [ranges[name] for name in domains.target.X.columns]
    (X_people, y_people), (X, y) = (
        (np.asarray(part.X, float), np.asarray(part.y)) for part in (domains.source, domains.target)
    )
    names = {"curator": "curator alone", "local": "people alone", "hybrid": "curator and people"}
    errors: dict[tuple[str, float], list[float]] = {(mode, e): [] for mode in names for e in epsilons}
    floors: list[float] = []
    for seed in range(_PANEL_SEEDS):
        pool, test = np.split(np.random.default_rng(seed).permutation(len(y_people)), [_PEOPLE_POOL_ROWS])
        non_private = LogisticRegression(max_iter=500).fit(scale(X_people[pool]), y_people[pool])
        floors.append(1.0 - float(non_private.score(scale(X_people[test]), y_people[test])))
        for mode, epsilon in errors:
            agents = SimulatedAgents(X_people[pool], y_people[pool], epsilon, n_people=_N_PEOPLE, random_state=seed)
            model = PrivateHybridClassifier(
                epsilon, _PANEL_DELTA, mode=mode, bounds=bounds, classes=[0, 1], random_state=seed
            ).fit(X, y, agents=None if mode == "curator" else agents)
            errors[mode, epsilon].append(1.0 - float(model.score(X_people[test], y_people[test])))
    measure, constant = "share of wrong answers", float(min(np.mean(y_people), 1 - np.mean(y_people)))
    return {
        "name": "people",
        "title": "Affairs: a curator with younger women, older women who answer one question each",
        "measure": f"{measure} on held-out older women; {_N_PEOPLE:,} people, drawn from {_PEOPLE_POOL_ROWS:,} rows, "
        "give one noisy bit each at the same epsilon",
        "axis": measure,
        "rows": {"curator": len(y), "people": _N_PEOPLE, "test": len(y_people) - _PEOPLE_POOL_ROWS},
        "task": "classification",
        "panels": [
            error_panel(
                "epsilon",
                f"{len(y):,} rows of the curator",
                epsilons,
                [("no model", "no model", [constant] * _PANEL_SEEDS), ("not private", "not private", floors)],
                [(m, name, "hybrid", m != "curator", [errors[m, e] for e in epsilons]) for m, name in names.items()],
            )
        ],
    }


def centres_panel(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return the distance of healthy people to the nearest centre or ill person, for several ways to choose centres."""
    from dpadapt.clustering.estimator import PrivateSourceTargetClustering
    from dpadapt.clustering.solver import cluster_t, nearest, non_private
    from dpadapt.datasets.bundled import randhie_by_health
    from dpadapt.papers.source_target.proxies import NNA

    domains = randhie_by_health()
    T, S = (np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target))
    T = T[np.random.default_rng(0).permutation(len(T))[:_N_TARGETS]]
    # Scaled by the public rows alone, without their constant columns.
    varies, mean, deviation = T.std(axis=0) > 0, T.mean(axis=0), T.std(axis=0)
    T, S = (((part - mean)[:, varies] / deviation[varies]) for part in (T, S))
    public, distance_to_sources = Public(T), nearest(T, S)[1]

    def cost(centres: Any) -> float:
        return float(np.minimum(distance_to_sources, nearest(T, T[centres])[1]).mean())

    estimators = {"clustering": PrivateSourceTargetClustering, "nna": NNA}
    errors = {
        (key, epsilon): [
            cost(estimator(_N_CENTRES, epsilon, random_state=seed).fit(S, public=public).centers_)
            for seed in range(_PANEL_SEEDS)
        ]
        for key, estimator in estimators.items()
        for epsilon in epsilons
    }
    names = {"clustering": "ours", "nna": "NNA of the paper"}
    levels = {"public only": cost(cluster_t(T, _N_CENTRES)), "not private": cost(non_private(S, T, _N_CENTRES))}
    measure = "mean distance to the nearest"
    return {
        "name": "centres",
        "title": "Centres among people in good health, when people in worse health serve as centres already",
        "measure": f"{measure} of {_N_CENTRES} centres and all private rows, in public standard deviations",
        "axis": measure,
        "rows": {"public": len(T), "private": len(S)},
        "task": "clustering",
        "panels": [
            error_panel(
                "epsilon",
                f"all {len(S):,} private rows",
                epsilons,
                [(key, key, [value] * _PANEL_SEEDS) for key, value in levels.items()],
                [(key, names[key], key, True, [errors[key, e] for e in epsilons]) for key in estimators],
            )
        ],
    }


# Two raw tables for the first part: a survey, as a statistician gets it. The rows are those of the Redbook survey of
# 1974 as they ship in statsmodels. What makes a table awkward is made up: dates, words for codes, cells that are
# missing, a record number, columns in another order and another separator.

# Women up to this age are private. Of these, so many are held back: half to evaluate the model on, half to predict.
_PRIVATE_UP_TO, _HELD_BACK = 27.0, 1_200

_MARRIAGE = {1: "very poor", 2: "poor", 3: "fair", 4: "good", 5: "very good"}
_WORK = {1: "student", 2: "farm", 3: "office", 4: "teaching", 5: "business", 6: "profession"}


def raw_tables() -> "dict[str, pd.DataFrame]":
    """Return the tables: women over 27 (public), younger ones (private), and rows of these to evaluate and predict."""
    import pandas as pd

    from dpadapt.datasets.bundled import fair

    rng = np.random.default_rng(1974)
    rows = fair().frame
    n = len(rows)
    table = pd.DataFrame(
        {
            "record": [f"R{k:06d}" for k in rng.permutation(n)],
            "answered": (pd.Timestamp("1974-08-01") + pd.to_timedelta(rng.integers(0, 60, n), "D")).strftime(
                "%d.%m.%Y"
            ),
            "marriage": rows["rate_marriage"].map(_MARRIAGE),
            "age": rows["age"],
            "years married": rows["yrs_married"],
            "children": rows["children"],
            "religious": rows["religious"],
            "education": rows["educ"],
            "work": rows["occupation"].map(_WORK),
            "work of husband": rows["occupation_husb"].map(_WORK),
            "affair": np.where(rows["affairs"] > 0, "yes", "no"),
        }
    )
    for column in ("answered", "marriage", "education", "work"):
        table.loc[rng.random(n) < 0.06, column] = None
    young = rng.permutation(np.flatnonzero(rows["age"] <= _PRIVATE_UP_TO))
    test, new, private = np.split(young, [_HELD_BACK // 2, _HELD_BACK])
    return {
        "public": table[(rows["age"] > _PRIVATE_UP_TO).to_numpy()],
        "private": table.iloc[private],
        "test": table.iloc[test],
        "new": table.iloc[new].drop(columns="affair"),
    }


def write_raw_tables(folder: Path) -> dict[str, Path]:
    """Write the tables as files: all but the public one with semicolons, and with their columns in another order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, table in raw_tables().items():
        paths[name] = folder / f"{name}.csv"
        if name == "public":
            table.to_csv(paths[name], index=False)
        else:
            table[list(table.columns[::-1])].to_csv(paths[name], index=False, sep=";")
    return paths


# The page of the demo.


def summarise_demo(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results as `dpadapt demo` measures them, with means and spreads, and with sentences for each case."""
    parts = {
        part: [{**case, "panels": [with_spread(panel) for panel in case["panels"]]} for case in results[part]]
        for part in ("cases", "papers", "others")
    }
    cases = [{**case, "words": demo_in_words(case)} for case in parts["cases"]]
    return {**results, "kind": "demo", "version": __version__, **parts, "cases": cases}


def demo_page(summary: Mapping[str, Any]) -> str:
    """Return the report of the demo; `summary` is from `summarise_demo`."""
    charts = {part: [case_chart(case) for case in summary[part]] for part in ("cases", "papers", "others")}
    return page("demo", summary, charts=charts)


def demo_in_words(case: Mapping[str, Any]) -> list[str]:
    """Return sentences on a case of the demo: what each part contributed, and how many rows the public ones replace."""
    by_epsilon, by_rows = case["panels"]
    levels = {level["key"]: level for level in by_epsilon["levels"]}
    at = by_epsilon["x"].index(case["middle"])
    points = {curve["key"]: curve["points"][at] for curve in by_epsilon["curves"]}
    where = f"At ε = {case['middle']:g} with {case['rows']['private']:,} private rows"
    shares = contributions(levels["public only"], points["private only"], points["together"], levels["not private"])
    replaced = worth_in_rows(by_rows, case["middle"])
    return [
        f"{where}. {shares}",
        *([replaced] if replaced else []),
        *help_in_words(by_epsilon["levels"], by_epsilon["curves"]),
    ]


def contributions(public: Curve, alone: Curve, together: Curve, floor: Curve) -> str:
    """Return what each part of the data contributed, from errors measured on the same splits.

    `floor` has those of the private rows without privacy.

    Examples
    --------
    >>> parts = [{"values": [error] * 3, "mean": error} for error in (0.62, 0.91, 0.45, 0.36)]
    >>> print(contributions(*parts).partition("privacy: 0.360. ")[2])
    The private rows gave 65% of their possible gain. The public rows removed 84% of the cost of privacy.
    """
    stated = (
        f"Public rows alone: error {public['mean']:.3f}. Private rows alone: {alone['mean']:.3f}. "
        f"Together: {together['mean']:.3f}. Without any privacy: {floor['mean']:.3f}."
    )
    if not clearly_less(floor["values"], public["values"]):
        private = "Even without privacy, the private rows are not clearly better than the public rows alone"
    elif clearly_less(together["values"], public["values"]):
        share = (public["mean"] - together["mean"]) / (public["mean"] - floor["mean"])
        private = f"The private rows gave {f'{share:.0%}' if share < 1 else 'all'} of their possible gain"
    elif clearly_less(public["values"], together["values"]):
        private = "The private rows made the model clearly worse than the public rows alone"
    else:
        private = "The private rows made no clear difference"
    if not clearly_less(floor["values"], alone["values"]):
        shared = "Privacy has no clear cost, even without the public rows"
    elif clearly_less(together["values"], alone["values"]):
        share = (alone["mean"] - together["mean"]) / (alone["mean"] - floor["mean"])
        shared = f"The public rows removed {f'{share:.0%}' if share < 1 else 'all'} of the cost of privacy"
    elif clearly_less(alone["values"], together["values"]):
        shared = "The public rows made the model clearly worse than the private rows alone"
    else:
        shared = "The public rows made no clear difference"
    return f"{stated} {private}. {shared}."


def worth_in_rows(panel: Mapping[str, Any], epsilon: float) -> str | None:
    """Return how many private rows alone do as well as fewer private rows with the public ones.

    None if at no number of rows both together are clearly better than either alone.
    """
    curves = {curve["key"]: curve["points"] for curve in panel["curves"]}
    alone, together = curves["private only"], curves["together"]
    public = next(level["values"] for level in panel["levels"] if level["key"] == "public only")
    for before, both in zip(alone, together, strict=True):
        # Also better than the public rows alone: otherwise the gain needs no private row.
        if clearly_less(both["values"], before["values"]) and clearly_less(both["values"], public):
            break
    else:
        return None
    start = f"At ε = {epsilon:g}, {both['x']:,} private rows with the public ones do"
    for first, second in pairwise(alone):
        if first["x"] >= both["x"] and second["mean"] <= both["mean"]:
            share = (first["mean"] - both["mean"]) / (first["mean"] - second["mean"])
            rows = math.exp((1 - share) * math.log(first["x"]) + share * math.log(second["x"]))
            return f"{start} as well as about {float(f'{rows:.2g}'):,.0f} private rows alone."
    return f"{start} better than all {alone[-1]['x']:,} private rows alone."
