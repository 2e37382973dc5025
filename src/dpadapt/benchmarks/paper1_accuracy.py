"""Figure 1 of paper 1 for classification: accuracy against the number of private rows, one cell at a time.

Adult as in Table 7; rows are drawn with replacement where there are fewer than a cell asks for. Algorithm 2 as printed
takes a random iterate and half a minute a fit, so it has two seeds.
"""

from typing import Any

import numpy as np

from dpadapt.adaptation import NCnvxAdap
from dpadapt.adaptation.baselines import baseline
from dpadapt.benchmarks.paper1_figures import Cell
from dpadapt.benchmarks.paper1_sets import named, split
from dpadapt.benchmarks.paper1_tuning import Setting, combinations, spoken, tuned
from dpadapt.benchmarks.transfer_regression import ADJACENCY, DELTA
from dpadapt.learning.transfer_classification import PrivateTransferClassifier

ROWS, EPSILONS = {"Adult": (1_000, 6_847, 10_000), "CIFAR-10": (125, 1_000)}, (1.0, 4.0, 10.0)
# The paper's grid starts at 0.1; Adult does better with less of the source.
_ALPHAS = (0.02, 0.1)
_PRINTED = 2


def accuracy_cell(name: str, n: int, epsilon: float, *, seeds: int, n_steps: int, printed: bool = True) -> Cell:
    """Return one cell: accuracies in percent of ours, of the public model, and of Algorithm 2 tuned on test."""

    def score(model: Any, seed: int) -> float:
        part = split(named(name), seed)
        random = np.random.default_rng([3000 + seed, n])
        rows = random.choice(len(part.y), n, replace=True) if n > len(part.y) else random.permutation(len(part.y))[:n]
        model.fit(part.X[rows], part.y[rows], public=part.public)
        return 100 * float(np.mean(model.predict(part.X_test) == part.y_test))

    def ours(seed: int, spent: float = epsilon, delta: float = DELTA) -> float:
        return score(PrivateTransferClassifier(spent, delta, adjacency=ADJACENCY, random_state=seed), seed)

    def algorithm(setting: Setting, seed: int, **options: Any) -> float:
        params: dict[str, Any] = {"radius": 50.0, "n_steps": n_steps, "random_state": seed, **setting, **options}
        return score(NCnvxAdap(epsilon, DELTA, **params), seed)

    chosen, losses = tuned(combinations(alpha=_ALPHAS), lambda setting, seed: -algorithm(setting, seed), seeds)
    values = {
        "public": [ours(seed, 1e-6, 1e-12) for seed in range(seeds)],
        "ours": [ours(seed) for seed in range(seeds)],
        "not private": [score(baseline("train target", "classification").estimator(), seed) for seed in range(seeds)],
        "exact": [-loss for loss in losses],
    }
    if printed:
        seeds = min(seeds, _PRINTED)
        values["paper"] = [algorithm(chosen, seed, noise="paper", average="paper") for seed in range(seeds)]
    return {"set": name, "n": n, "epsilon": epsilon, "values": values, "settings": {"exact": spoken(chosen)}}
