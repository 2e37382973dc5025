"""The panel of `dpadapt demo` on paper 5: centres among public people, when private ones serve as centres already."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadapt.data import Public

_SEEDS, _TARGETS, _CENTRES = 3, 1000, 20
_MEASURE = "mean distance to the nearest"


def centres_panel(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return how far healthy people are from the nearest centre or ill person, with centres chosen in several ways."""
    from dpadapt.clustering.baselines import cluster_t, non_private
    from dpadapt.clustering.distances import nearest
    from dpadapt.clustering.nna import NNA
    from dpadapt.clustering.private import PrivateSourceTargetClustering
    from dpadapt.datasets.bundled import randhie_by_health

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
                        for seed in range(_SEEDS)
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
        "measure": f"{_MEASURE} of {_CENTRES} centres and all private rows, in public standard deviations",
        "axis": _MEASURE,
        "rows": {"public": len(T), "private": len(S)},
        "task": "clustering",
        "panels": [
            {
                "key": "epsilon",
                "title": f"all {len(S):,} private rows",
                "axis": "epsilon (smaller is more private)",
                "symbol": "ε",
                "x": list(epsilons),
                "levels": [{"key": key, "name": key, "values": [value] * _SEEDS} for key, value in levels.items()],
                "curves": curves,
            }
        ],
    }
