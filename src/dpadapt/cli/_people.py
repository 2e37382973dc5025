"""The panel of `dpadapt demo` on paper 3: a curator's sample of other women, and women who answer for themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_DELTA, _SEEDS, _PEOPLE, _POOL = 1e-6, 3, 200_000, 1500
_MEASURE = "share of wrong answers"


def people_panel(epsilons: Sequence[float], ranges: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return errors for older women, of whom each answers one question, when the curator has younger ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import scale

    from dpadapt.datasets.bundled import fair_by_age
    from dpadapt.hybrid.classifier import PrivateHybridClassifier
    from dpadapt.hybrid.simulated import SimulatedAgents

    domains = fair_by_age()
    bounds = [ranges[name] for name in domains.target.X.columns]
    (X_people, y_people), (X, y) = (
        (np.asarray(part.X, float), np.asarray(part.y)) for part in (domains.source, domains.target)
    )
    curves = {"curator": "curator alone", "local": "people alone", "hybrid": "curator and people"}
    errors: dict[tuple[str, float], list[float]] = {(mode, e): [] for mode in curves for e in epsilons}
    floors: list[float] = []
    for seed in range(_SEEDS):
        pool, test = np.split(np.random.default_rng(seed).permutation(len(y_people)), [_POOL])
        bare = LogisticRegression(max_iter=500).fit(scale(X_people[pool]), y_people[pool])
        floors.append(1.0 - float(bare.score(scale(X_people[test]), y_people[test])))
        for mode, epsilon in errors:
            agents = SimulatedAgents(X_people[pool], y_people[pool], epsilon, n_people=_PEOPLE, random_state=seed)
            model = PrivateHybridClassifier(
                epsilon, _DELTA, mode=mode, bounds=bounds, classes=[0, 1], random_state=seed
            ).fit(X, y, agents=None if mode == "curator" else agents)
            errors[mode, epsilon].append(1.0 - float(model.score(X_people[test], y_people[test])))
    constant = float(min(np.mean(y_people), 1 - np.mean(y_people)))
    levels = [("no model", "no model", [constant] * _SEEDS), ("not private", "not private", floors)]
    return {
        "name": "people",
        "title": "Affairs: a curator with younger women, older women who answer one question each",
        "measure": f"{_MEASURE} on held-out older women; {_PEOPLE:,} people, drawn from {_POOL:,} rows, give one noisy "
        "bit each at the same epsilon",
        "axis": _MEASURE,
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
