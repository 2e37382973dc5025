"""A private survey, helped by a public one: how much does the public data help at each epsilon?

The public rows are women over 27, the private ones the younger (statsmodels' `fair`, 6,366 women in 1974). Test rows
are held out of the private ones; their error is shown here because this is an example with public data. With truly
private rows, that number itself would be a release.
"""

import numpy as np
from sklearn.metrics import log_loss

from dpadapt import PrivateTransferClassifier, Public
from dpadapt.datasets.bundled import fair_by_age

domains = fair_by_age()
X, y = (np.asarray(part, dtype=float) for part in domains.target)
public = Public(*domains.source)
order = np.random.default_rng(1).permutation(len(y))
train, test = order[1000:], order[:1000]

print("epsilon   private only   private with public   (log-loss on held-out rows)")
for epsilon in (0.3, 1.0, 3.0):
    losses = []
    for data in (None, public):
        model = PrivateTransferClassifier(epsilon=epsilon, delta=1e-6, classes=[0, 1])
        scale = 1.0 if data is not None else np.abs(np.asarray(domains.source.X, dtype=float)).max(axis=0)
        model.fit(X[train] / scale, y[train], public=data)
        losses.append(log_loss(y[test], model.predict_proba(X[test] / scale)))
    print(f"{epsilon:7.1f}   {losses[0]:12.3f}   {losses[1]:19.3f}")
