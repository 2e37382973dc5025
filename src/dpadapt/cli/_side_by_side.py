"""What `dpadapt demo` measures: every method in the table, with and without public rows, over several epsilons.

The rows are real but long published, so errors may be measured on held-out rows of the private population, and seeds
may be used: neither is allowed for data that is to be protected.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from dpadapt.data import Public
from dpadapt.methods import METHODS, Method
from dpadapt.report.compare import public_only

if TYPE_CHECKING:
    from dpadapt.datasets.domains import Domains

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_DELTA = 1e-6
_TEST_SHARE = 1 / 3


@dataclass(frozen=True)
class Case:
    """Two populations of one data set, and what is publicly known about its columns."""

    name: str
    title: str
    what: str
    task: Literal["regression", "classification"]
    ranges: dict[str, tuple[float, float]]
    bounds: tuple[float, float]
    domains: Callable[[], "Domains"]


def _split(name: str) -> Callable[[], "Domains"]:
    """Return the bundled split called `name`, loaded when first called."""

    def load() -> "Domains":
        from dpadapt.datasets import bundled

        domains: Domains = getattr(bundled, name)()
        return domains

    return load


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
        _split("randhie_by_health"),
    ),
    Case(
        "visits by plan",
        "Visits to a doctor: from free care to those who pay",
        f"{_VISITS_WHAT} Public: people whose care is free. Private: people who pay a share, whose price and limits "
        "nobody in the public rows has.",
        "regression",
        _VISITS,
        (0.0, 4.4),
        _split("randhie_by_plan"),
    ),
    Case(
        "affairs by children",
        "Affairs: from women with children to women without",
        f"{_AFFAIRS_WHAT} Public: women with children. Private: women without.",
        "classification",
        _AFFAIRS,
        (0.0, 1.0),
        _split("fair_by_children"),
    ),
    Case(
        "affairs by age",
        "Affairs: from older to younger women",
        f"{_AFFAIRS_WHAT} Public: women over 27. Private: younger women.",
        "classification",
        _AFFAIRS,
        (0.0, 1.0),
        _split("fair_by_age"),
    ),
)


def side_by_side(
    cases: Sequence[Case], *, epsilons: Sequence[float], seeds: int, done: Callable[[str], None]
) -> dict[str, Any]:
    """Return the errors of every model on held-out rows, one value per seed; `done` is called after each seed."""
    for method in METHODS:
        method.estimator()  # loads the libraries whose threads are limited below
    # Tables of ten columns: threads would wait for each other three times as long as they compute.
    with threadpool_limits(1):
        measured = [_case(case, epsilons, seeds, done) for case in cases]
    return {
        "epsilons": list(epsilons),
        "delta": _DELTA,
        "seeds": seeds,
        "methods": [{"name": m.name, "task": m.task, "summary": m.summary} for m in METHODS],
        "cases": measured,
    }


def _case(case: Case, epsilons: Sequence[float], seeds: int, done: Callable[[str], None]) -> dict[str, Any]:
    domains = case.domains()
    X_public, X = (_scaled(part.X, case) for part in (domains.source, domains.target))
    y_public, y = (np.asarray(part.y) for part in (domains.source, domains.target))
    public, public_model = Public(X_public, y_public), public_only(X_public, y_public, case.task)
    methods = [method for method in METHODS if method.task == case.task]
    curves: dict[tuple[str, bool], list[list[float]]] = {
        (method.name, shared): [[] for _ in epsilons] for method in methods for shared in (False, True)
    }
    levels: dict[str, list[float]] = {"no model": [], "public only": [], "not private": []}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = np.split(order, [round(len(y) * _TEST_SHARE)])
        levels["no model"].append(1.0)
        levels["public only"].append(_error(public_model, X[test], y[test], case.task))
        levels["not private"].append(_error(public_only(X[train], y[train], case.task), X[test], y[test], case.task))
        for (name, shared), values in curves.items():
            method = next(m for m in methods if m.name == name)
            for k, epsilon in enumerate(epsilons):
                model = _estimator(method, case, epsilon, seed)
                model.fit(X[train], y[train], public=public if shared else None)
                values[k].append(_error(model, X[test], y[test], case.task))
        done(case.name)
    return _description(case, domains, len(train), len(test)) | {
        "epsilons": list(epsilons),
        "references": [
            {"key": key, "name": _NAMES[case.task][key], "values": values} for key, values in levels.items()
        ],
        "curves": [
            {
                "method": name,
                "public": shared,
                "name": f"{name}, {'with public' if shared else 'private only'}",
                "points": [{"epsilon": e, "values": v} for e, v in zip(epsilons, values, strict=True)],
            }
            for (name, shared), values in curves.items()
        ],
    }


_NAMES = {
    "regression": {"no model": "no model: the mean", "public only": "public only", "not private": "not private"},
    "classification": {"no model": "no model: the rate", "public only": "public only", "not private": "not private"},
}


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
    wanted: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA, "random_state": seed}
    wanted |= {"target_bounds": case.bounds} if case.task == "regression" else {"classes": [0, 1]}
    known = method.estimator().get_params(deep=False)
    return method.estimator(**{name: value for name, value in wanted.items() if name in known})


def _error(model: Any, X: NDArray[np.float64], y: NDArray[Any], task: str) -> float:
    """Return the error relative to always predicting the mean (or the rate) of these very rows."""
    if task == "regression":
        return float(np.mean((y - model.predict(X)) ** 2) / np.var(y))
    rate = float(np.mean(y))
    baseline = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    chance = np.clip(model.predict_proba(X)[:, 1], 1e-12, 1 - 1e-12)
    return float(-np.mean(np.where(y == 1, np.log(chance), np.log(1 - chance))) / baseline)
