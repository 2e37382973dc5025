"""A small public and a large private sample of one population: mirror descent of paper 2, plain descent, and ours.

The target is log(1 + visits to the doctor) in a health insurance experiment. As in the paper, 4% of the rows are
public. Test rows are set aside for the comparison; with truly private rows the comparison would be a release, too.
"""

import numpy as np

from dpadapt import Ledger, PrivateLinearRegression, PrivateTransferRegressor, Public
from dpadapt.datasets import bundled
from dpadapt.papers.mirror import PDADPMDRegressor

domains = bundled.randhie_by_plan()
X = np.vstack([domains.source.X, domains.target.X]).astype(float)
y = np.concatenate([domains.source.y, domains.target.y]).astype(float)
order = np.random.default_rng(0).permutation(len(y))
public_rows, private, test = np.split(order, [int(0.04 * len(y)), int(0.7 * len(y))])
public = Public(X[public_rows], y[public_rows])
print(f"{len(public_rows):,} public rows, {len(private):,} private ones")


def error(model):
    """Return the mean squared error over the variance of the labels: 1 is a constant prediction."""
    return float(np.mean((model.predict(X[test]) - y[test]) ** 2) / np.var(y[test]))


budget = {"epsilon": 1.0, "delta": 1e-6}
models = {
    "public alone": PrivateTransferRegressor(1e-9, 1e-15, prior="same-population"),  # too small a budget to spend
    "warm gradient descent": PrivateLinearRegression(**budget, solver="descent"),
    "mirror descent": PDADPMDRegressor(**budget),
    "mirror descent, first order": PDADPMDRegressor(**budget, step="first-order"),
    "PrivateTransferRegressor": PrivateTransferRegressor(**budget, prior="same-population"),
}
ledger = Ledger(epsilon=10.0, delta=1e-5)
for name, model in models.items():
    print(f"{name:28} error {error(model.fit(X[private], y[private], public=public, ledger=ledger)):.4f}")
print(f"spent by all fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(models["mirror descent"].privacy_)
