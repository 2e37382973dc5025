"""The panel of `dpadapt demo` on paper 3: a curator's sample of other women, and women who answer for themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public

# The panel of `dpadapt demo` on paper 5: centres among public people, when private ones serve as centres already.


_CENTRES_SEEDS, _TARGETS, _CENTRES = 3, 1000, 20
_CENTRES_MEASURE = "mean distance to the nearest"


def centres_panel(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return how far healthy people are from the nearest centre or ill person, with centres chosen in several ways."""
    from dpadapt.clustering.estimator import PrivateSourceTargetClustering
    from dpadapt.clustering.solver import cluster_t, nearest, non_private
    from dpadapt.datasets.bundled import randhie_by_health
    from dpadapt.papers.source_target.proxies import NNA

    domains = randhie_by_health()
    T, S = (np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target))
    T = T[np.random.default_rng(0).permutation(len(T))[:_TARGETS]]
    # Scaled by the public rows alone, without the columns that tell those apart in nothing.
    varies, middle, spread = T.std(axis=0) > 0, T.mean(axis=0), T.std(axis=0)
    T, S = (((part - middle)[:, varies] / spread[varies]) for part in (T, S))
    public, free = Public(T), nearest(T, S)[1]

    def cost(centres: Any) -> float:
        return float(np.minimum(free, nearest(T, T[centres])[1]).mean())

    makers = {"clustering": ("ours", PrivateSourceTargetClustering), "nna": ("NNA of the paper", NNA)}
    curves = [
        {
            "key": key,
            "name": name,
            "method": key,
            "public": True,
            "points": [
                {
                    "x": epsilon,
                    "values": [
                        cost(make(_CENTRES, epsilon, random_state=seed).fit(S, public=public).centers_)
                        for seed in range(_CENTRES_SEEDS)
                    ],
                }
                for epsilon in epsilons
            ],
        }
        for key, (name, make) in makers.items()
    ]
    levels = {"public only": cost(cluster_t(T, _CENTRES)), "not private": cost(non_private(S, T, _CENTRES))}
    return {
        "name": "centres",
        "title": "Centres among people in good health, when people in worse health serve as centres already",
        "measure": f"{_CENTRES_MEASURE} of {_CENTRES} centres and all private rows, in public standard deviations",
        "axis": _CENTRES_MEASURE,
        "rows": {"public": len(T), "private": len(S)},
        "task": "clustering",
        "panels": [
            {
                "key": "epsilon",
                "title": f"all {len(S):,} private rows",
                "axis": "epsilon (smaller is more private)",
                "symbol": "ε",
                "x": list(epsilons),
                "levels": [
                    {"key": key, "name": key, "values": [value] * _CENTRES_SEEDS} for key, value in levels.items()
                ],
                "curves": curves,
            }
        ],
    }


# The panel of `dpadapt demo` on paper 4: a private probe on a public encoder that never saw the private classes.


_DIGITS_DELTA, _DIGITS_SEEDS, _DIGITS_TEST_ROWS = 1e-6, 3, 296
_DIGITS_MEASURE = "share of wrong classes"


def digits_panel(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return the errors of private probes on digits 5 to 9, with features of a network that was trained on 0 to 4."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    from dpadapt.representation.probe import PrivateProbe

    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    dark = np.random.default_rng(1).random(len(y)) < 0.5
    X[dark] = 1.0 - X[dark]
    known, hidden = np.flatnonzero(y < 5), np.flatnonzero(y >= 5)
    network = MLPClassifier((64,), learning_rate_init=0.005, tol=1e-3, n_iter_no_change=5, random_state=0)
    network.fit(np.vstack([X[known], 1.0 - X[known]]), np.tile(y[known], 2))

    def encode(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.maximum(rows @ network.coefs_[0] + network.intercepts_[0], 0.0))

    curves = [
        ("probe", "probe on public features", encode, True),
        ("pixels", "probe on pixels", None, True),
        ("private only", "private only, pixels", None, False),
    ]
    errors: dict[tuple[str, float], list[float]] = {(key, e): [] for key, *_ in curves for e in epsilons}
    floors: list[float] = []
    for seed in range(_DIGITS_SEEDS):
        test, train = np.split(np.random.default_rng(seed).permutation(hidden), [_DIGITS_TEST_ROWS])
        bare = LogisticRegression(max_iter=500).fit(encode(X[train]), y[train])
        floors.append(1.0 - float(bare.score(encode(X[test]), y[test])))
        for key, _, encoder, shared in curves:
            for epsilon in epsilons:
                model = PrivateProbe(epsilon, _DIGITS_DELTA, encoder=encoder, classes=range(5, 10), random_state=seed)
                model.fit(X[train], y[train], public=Public(X[known]) if shared else None)
                errors[key, epsilon].append(1.0 - float(model.score(X[test], y[test])))
    levels = [("public only", "public only (zero-shot)", [1.0] * _DIGITS_SEEDS), ("not private", "not private", floors)]
    return {
        "name": "digits",
        "title": "Digits: features of a public network that has never seen the private classes",
        "measure": f"{_DIGITS_MEASURE}, on held-out private rows; public images show 0 to 4, private ones 5 to 9, half "
        "of all are dark on light",
        "axis": _DIGITS_MEASURE,
        "rows": {"public": len(known), "private": len(hidden) - _DIGITS_TEST_ROWS, "test": _DIGITS_TEST_ROWS},
        "task": "classification",
        "panels": [
            {
                "key": "epsilon",
                "title": f"all {len(hidden) - _DIGITS_TEST_ROWS:,} private rows",
                "axis": "epsilon (smaller is more private)",
                "symbol": "ε",
                "x": list(epsilons),
                "levels": [{"key": key, "name": name, "values": values} for key, name, values in levels],
                "curves": [
                    {
                        "key": key,
                        "name": name,
                        "method": "probe",
                        "public": shared,
                        "points": [{"x": e, "values": errors[key, e]} for e in epsilons],
                    }
                    for key, name, _, shared in curves
                ],
            }
        ],
    }


_PEOPLE_DELTA, _PEOPLE_SEEDS, _PEOPLE, _POOL = 1e-6, 3, 200_000, 1500
_PEOPLE_MEASURE = "share of wrong answers"


def people_panel(epsilons: Sequence[float], ranges: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return errors for older women, of whom each answers one question, when the curator has younger ones."""
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
    curves = {"curator": "curator alone", "local": "people alone", "hybrid": "curator and people"}
    errors: dict[tuple[str, float], list[float]] = {(mode, e): [] for mode in curves for e in epsilons}
    floors: list[float] = []
    for seed in range(_PEOPLE_SEEDS):
        pool, test = np.split(np.random.default_rng(seed).permutation(len(y_people)), [_POOL])
        bare = LogisticRegression(max_iter=500).fit(scale(X_people[pool]), y_people[pool])
        floors.append(1.0 - float(bare.score(scale(X_people[test]), y_people[test])))
        for mode, epsilon in errors:
            agents = SimulatedAgents(X_people[pool], y_people[pool], epsilon, n_people=_PEOPLE, random_state=seed)
            model = PrivateHybridClassifier(
                epsilon, _PEOPLE_DELTA, mode=mode, bounds=bounds, classes=[0, 1], random_state=seed
            ).fit(X, y, agents=None if mode == "curator" else agents)
            errors[mode, epsilon].append(1.0 - float(model.score(X_people[test], y_people[test])))
    constant = float(min(np.mean(y_people), 1 - np.mean(y_people)))
    levels = [("no model", "no model", [constant] * _PEOPLE_SEEDS), ("not private", "not private", floors)]
    return {
        "name": "people",
        "title": "Affairs: a curator with younger women, older women who answer one question each",
        "measure": f"{_PEOPLE_MEASURE} on held-out older women; {_PEOPLE:,} people, drawn from {_POOL:,} rows, give "
        "one noisy bit each at the same epsilon",
        "axis": _PEOPLE_MEASURE,
        "rows": {"curator": len(y), "people": _PEOPLE, "test": len(y_people) - _POOL},
        "task": "classification",
        "panels": [
            {
                "key": "epsilon",
                "title": f"{len(y):,} rows of the curator",
                "axis": "epsilon (smaller is more private)",
                "symbol": "ε",
                "x": list(epsilons),
                "levels": [{"key": key, "name": name, "values": values} for key, name, values in levels],
                "curves": [
                    {
                        "key": mode,
                        "name": name,
                        "method": "hybrid",
                        "public": mode != "curator",
                        "points": [{"x": e, "values": errors[mode, e]} for e in epsilons],
                    }
                    for mode, name in curves.items()
                ],
            }
        ],
    }
