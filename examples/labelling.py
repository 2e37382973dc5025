"""Which public rows to label when the labelled rows are private: centres among the public rows, or no gain at all.

A target is easier to predict if a labelled row is near. So one may choose the rows to label as centres among the public
rows, given that the private labelled rows already serve as centres. That is the use that motivates paper 5 of
PAPERS.md. In our measurements it gave no reliable gain over `cluster_t`, which needs no private row: on four tasks
(Superconductivity h to mh and l to ml, California inland to coast, Adult men to women; 25, 50 and 100 labels, 12 runs,
epsilon 1 for the choice and 1 for the model) the error changed by +1.2%, -0.7%, +5.3% and +2.0%, with intervals of 2%
to 4% on each side. A private model learns less from a single private row than from a labelled row, so a lower
clustering cost does not mean a lower error. Those figures are of version 0.2; the data here is synthetic.
"""

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from dpadapt import Ledger, PrivateLinearRegression, Public
from dpadapt.clustering import PrivateSourceTargetClustering, cluster_t

rng = np.random.default_rng(0)
S = rng.normal(0.0, 1.0, (3000, 3))  # private rows, with labels
T = np.vstack([rng.normal(0.0, 1.0, (400, 3)), rng.normal(2.5, 1.0, (400, 3))])  # public rows, without


def label(rows):
    """Return the label of each row, between -1 and 1."""
    return np.clip(0.4 * np.tanh(rows[:, 0]) + 0.4 * np.sin(2 * rows[:, 1]), -1, 1)


ledger = Ledger(epsilon=2.5, delta=1e-6)  # all that may ever be released about S
model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, target_bounds=(-1, 1)).fit(S, label(S), ledger=ledger)
clustering = PrivateSourceTargetClustering(40, epsilon=0.9, adjacency="zero-out")
chosen = clustering.fit(S, public=Public(T), ledger=ledger).centers_
choices = {"at random": rng.permutation(len(T))[:40], "cluster_t": cluster_t(T, 40), "given the private rows": chosen}

print("mean absolute error of the private model, corrected by 40 labelled public rows that were chosen")
for name, rows in choices.items():
    correction = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.5).fit(T[rows], label(T[rows]) - model.predict(T[rows]))
    others = np.setdiff1d(np.arange(len(T)), rows)
    error = np.abs(model.predict(T[others]) + correction.predict(T[others]) - label(T[others])).mean()
    print(f"  {name:24s} {error:.3f}")
