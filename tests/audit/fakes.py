"""An estimator that leaks nothing, with neighbouring data, for the tests of replays and of what an attacker sees."""

import numpy as np

from dpadapt.mechanisms import Gaussian, clipped_sum

X = np.linspace(-1, 1, 24).reshape(12, 2)
y = np.tile([0, 1], 6)
D = (X, y)
X_other, y_other = X.copy(), y.copy()
X_other[-1], y_other[-1] = [5.0, -9.0], 2
D_NEIGHBOUR = (X_other, y_other)


class Fake:
    """A clean estimator: noisy mean of clipped rows; subclasses leak."""

    adjacency = "zero-out"

    def __init__(self, clip_norm=1.0):
        self.clip_norm = clip_norm

    def get_params(self, deep=True):
        return {"clip_norm": self.clip_norm}

    def fit(self, X, y, *, ledger):
        self.n_features_in_ = X.shape[1]
        child = ledger.child(np.inf, 0.0, label="Fake")
        self.mean_ = self.released(child, X) / len(X)
        self.privacy_ = child.receipt()
        self.finish(X, y)
        return self

    def released(self, ledger, X):
        return ledger.release(Gaussian(2.0), clipped_sum(X, self.clip_norm), label="sum")

    def finish(self, X, y):
        pass
