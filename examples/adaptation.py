"""A private target and a public source from another domain: the paper's algorithm and ours, from frames to a receipt.

The data is a health insurance experiment. The private rows are people with cost sharing, the public rows people with
free care. Test rows are set aside for the comparison; with truly private rows the comparison would be a release, too.
"""

import numpy as np
from sklearn.linear_model import LinearRegression

from dpadapt import Ledger, PrivateTransferRegressor, Public
from dpadapt.datasets import bundled
from dpadapt.papers.adaptation import CnvxAdap

domains = bundled.randhie_by_plan()
print(domains.description, "-", domains.provenance)
X, y = domains.target
public = Public(*domains.source)

order = np.random.default_rng(0).permutation(len(y))
test, train = order[: len(order) // 3], order[len(order) // 3 :]
X_test, y_test = X.iloc[test], y.iloc[test]
X, y = X.iloc[train], y.iloc[train]


def error(model):
    """Return the mean squared error over the variance of the labels: 1 is a constant prediction."""
    return float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))


source_alone = LinearRegression().fit(*domains.source)
print(f"{len(y)} private rows; the public source alone: {error(source_alone):.3f}")
print("epsilon   CnvxAdap   PrivateTransferRegressor")
ledger = Ledger(epsilon=10.0, delta=1e-6, adjacency="replace-one")
for epsilon in (0.5, 1.0, 4.0):
    budget = {"epsilon": epsilon, "delta": 1e-7, "adjacency": "replace-one"}
    paper = CnvxAdap(**budget).fit(X, y, public=public, ledger=ledger)
    ours = PrivateTransferRegressor(**budget).fit(X, y, public=public, ledger=ledger)
    print(f"{epsilon:7.1f}   {error(paper):8.3f}   {error(ours):24.3f}")
print(f"spent by all six fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(ours.privacy_)
