"""A private survey with a public one beside it: how much do the public rows help at each epsilon?

The public rows are women over 27, the private rows are younger women (statsmodels' `fair`, 6,366 women in 1974). Some
private rows are held out for testing. Their error is printed because this example's data are public: for truly private
rows, this number would itself be a release.
"""

import numpy as np
from sklearn.metrics import log_loss

from dpadapt import Ledger, PrivateTransferClassifier, Public
from dpadapt.datasets.bundled import fair_by_age

domains = fair_by_age()
X, y = (np.asarray(part, dtype=float) for part in domains.target)
public = Public(*domains.source)
order = np.random.default_rng(1).permutation(len(y))
train, test = order[1000:], order[:1000]
ledger = Ledger(epsilon=10.0, delta=1e-6)  # the most that may ever be spent on the private rows

print("epsilon   private only   private with public   (log-loss on held-out rows)")
for epsilon in (0.3, 1.0, 3.0):
    losses = []
    for data in (None, public):
        model = PrivateTransferClassifier(epsilon=epsilon, delta=1e-6, classes=[0, 1])
        scale = 1.0 if data is not None else np.abs(np.asarray(domains.source.X, dtype=float)).max(axis=0)
        model.fit(X[train] / scale, y[train], public=data, ledger=ledger)
        losses.append(log_loss(y[test], model.predict_proba(X[test] / scale)))
    print(f"{epsilon:7.1f}   {losses[0]:12.3f}   {losses[1]:19.3f}")
