"""Panels of `dpadapt demo` on other kinds of help: a public encoder, people who answer one question, public points.

Each function measures errors over epsilons and returns a case with one panel, as plain data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public

# Sizes of the panels. More seeds and people give smoother curves and take longer. Chosen by hand.
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
            _panel(
                f"all {n_private:,} private rows",
                epsilons,
                # No private class occurs among the public rows, so that a public model is always wrong.
                levels=[
                    ("public only", "public only (zero-shot)", [1.0] * _PANEL_SEEDS),
                    ("not private", "not private", floors),
                ],
                curves=[(key, name, "probe", probes[key][1]) for key, name in names.items()],
                errors=errors,
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
            _panel(
                f"{len(y):,} rows of the curator",
                epsilons,
                levels=[
                    ("no model", "no model", [constant] * _PANEL_SEEDS),
                    ("not private", "not private", floors),
                ],
                curves=[(mode, name, "hybrid", mode != "curator") for mode, name in names.items()],
                errors=errors,
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
            _panel(
                f"all {len(S):,} private rows",
                epsilons,
                levels=[(key, key, [value] * _PANEL_SEEDS) for key, value in levels.items()],
                curves=[("clustering", "ours", "clustering", True), ("nna", "NNA of the paper", "nna", True)],
                errors=errors,
            )
        ],
    }


def _panel(
    title: str,
    epsilons: Sequence[float],
    *,
    levels: Sequence[tuple[str, str, list[float]]],
    curves: Sequence[tuple[str, str, str, bool]],
    errors: Mapping[tuple[str, float], list[float]],
) -> dict[str, Any]:
    """Return a panel over epsilons.

    Levels are (key, name, values), curves are (key, name, method, whether it had help beside the private rows).
    """
    return {
        "key": "epsilon",
        "title": title,
        "axis": "epsilon (smaller is more private)",
        "symbol": "ε",
        "x": list(epsilons),
        "levels": [{"key": key, "name": name, "values": values} for key, name, values in levels],
        "curves": [
            {
                "key": key,
                "name": name,
                "method": method,
                "public": helped,
                "points": [{"x": epsilon, "values": errors[key, epsilon]} for epsilon in epsilons],
            }
            for key, name, method, helped in curves
        ],
    }
