"""A curator's biased sample, corrected by people of another population who answer one question each with one noisy bit.

The labels depend on the first feature in such a way that a linear model of the sample is wrong for the people. People
are simulated. The error is measured on further rows of their population; real people would have to be asked for it.
"""

import numpy as np

from dpadapt import Ledger
from dpadapt.hybrid import PrivateHybridClassifier, SimulatedAgents


def draw(n, centre, seed):
    """Draw rows with the first feature around `centre`, and labels by a boundary that turns with this feature."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 10))
    X[:, 0] += centre
    return X, (np.cos(X[:, 0]) * X[:, 1] + np.sin(X[:, 0]) * X[:, 2] > 0).astype(int)


X, y = draw(20_000, -0.75, seed=1)  # the curator's records
people, labels = draw(100_000, 0.75, seed=2)  # each person's own record
X_test, y_test = draw(20_000, 0.75, seed=3)

ledger = Ledger(epsilon=3.0, delta=1e-5)  # all that may ever be released about the curator's records
for mode in ("curator", "local", "auto"):
    agents = SimulatedAgents(people, labels, epsilon=1.0, n_people=200_000)
    model = PrivateHybridClassifier(1.0, 1e-6, mode=mode, bounds=(-2, 2), classes=[0, 1])
    model.fit(X, y, agents=agents, ledger=ledger)
    print(f"{mode:8} error {1 - model.score(X_test, y_test):.3f}, {model.chosen_}, {agents.asked:,} people asked")

print(model.people_asked_)
for name, value in model.estimates_.items():
    print(f"{name}: {value:.3g}")
print(model.privacy_)
