"""The panel of `dpadapt demo` on paper 4: a private probe on a public encoder that never saw the private classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.data import Public

_DELTA, _SEEDS, _TEST = 1e-6, 3, 296
_MEASURE = "share of wrong classes"


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
    for seed in range(_SEEDS):
        test, train = np.split(np.random.default_rng(seed).permutation(hidden), [_TEST])
        bare = LogisticRegression(max_iter=500).fit(encode(X[train]), y[train])
        floors.append(1.0 - float(bare.score(encode(X[test]), y[test])))
        for key, _, encoder, shared in curves:
            for epsilon in epsilons:
                model = PrivateProbe(epsilon, _DELTA, encoder=encoder, classes=range(5, 10), random_state=seed)
                model.fit(X[train], y[train], public=Public(X[known]) if shared else None)
                errors[key, epsilon].append(1.0 - float(model.score(X[test], y[test])))
    levels = [("public only", "public only (zero-shot)", [1.0] * _SEEDS), ("not private", "not private", floors)]
    return {
        "name": "digits",
        "title": "Digits: features of a public network that has never seen the private classes",
        "measure": f"{_MEASURE}, on held-out private rows; public images show 0 to 4, private ones 5 to 9, half of all "
        "are dark on light",
        "axis": _MEASURE,
        "rows": {"public": len(known), "private": len(hidden) - _TEST, "test": _TEST},
        "task": "classification",
        "panels": [
            {
                "key": "epsilon",
                "title": f"all {len(hidden) - _TEST:,} private rows",
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
