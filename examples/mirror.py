"""A small public sample and a large private one of the same people: mirror descent of paper 2, its baselines and ours.

Visits to the doctor in a health insurance experiment: 4% of the rows are public, as in the paper. Test rows are set
aside to compare; with truly private rows that comparison itself would be a release.
"""

import numpy as np

from dpadapt import Ledger, PrivateTransferRegressor, Public
from dpadapt.datasets import bundled
from dpadapt.papers.mirror.estimators import PDADPMDRegressor
from dpadapt.papers.mirror.gradient_descent import PrivateGradientDescentRegressor

domains = bundled.randhie_by_plan()
X = np.vstack([domains.source.X, domains.target.X]).astype(float)
y = np.concatenate([domains.source.y, domains.target.y]).astype(float)
order = np.random.default_rng(0).permutation(len(y))
known, private, test = np.split(order, [int(0.04 * len(y)), int(0.7 * len(y))])
public = Public(X[known], y[known])
print(f"{len(known):,} public rows, {len(private):,} private ones")


def error(model):
    """Mean squared error over the variance of the labels: 1 is no model."""
    return float(np.mean((model.predict(X[test]) - y[test]) ** 2) / np.var(y[test]))


budget = {"epsilon": 1.0, "delta": 1e-6}
models = {
    "public alone": PrivateTransferRegressor(1e-9, 1e-15, prior="same-population"),  # a budget for nothing
    "cold gradient descent": PrivateGradientDescentRegressor(**budget, start="cold"),
    "warm gradient descent": PrivateGradientDescentRegressor(**budget),
    "mirror descent": PDADPMDRegressor(**budget),
    "mirror descent, first order": PDADPMDRegressor(**budget, step="first-order"),
    "PrivateTransferRegressor": PrivateTransferRegressor(**budget, prior="same-population"),
}
ledger = Ledger(epsilon=10.0, delta=1e-5)
for name, model in models.items():
    print(f"{name:28} error {error(model.fit(X[private], y[private], public=public, ledger=ledger)):.4f}")
print(f"spent by all fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(models["mirror descent"].privacy_)
