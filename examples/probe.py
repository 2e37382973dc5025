"""A private linear probe on a public encoder that has never seen the private classes (paper 4), without torch.

Half of all images are inverted. Public images show the digits 0 to 4; a small network learns to classify them, and its
hidden layer is the encoder. Private images show 5 to 9. The public labels do not help with them; only the features can.
Test rows are set aside to compare; with real private rows that comparison itself would be a release.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from dpadapt import Ledger, Public
from dpadapt.papers.subspace.probes import DescentProbe
from dpadapt.representation import PrivateProbe

X, y = load_digits(return_X_y=True)
X = X / 16.0
inverted = np.random.default_rng(1).random(len(y)) < 0.5
X[inverted] = 1.0 - X[inverted]
few = y < 5
# Public images cost nothing, so the network is trained on each of them both ways.
network = MLPClassifier((64,), learning_rate_init=0.005, tol=1e-3, n_iter_no_change=5, random_state=0)
network.fit(np.vstack([X[few], 1.0 - X[few]]), np.tile(y[few], 2))
weights, bias = network.coefs_[0], network.intercepts_[0]


def hidden_layer(images):
    """Return the activations of the public network's hidden units for each image."""
    return np.maximum(images @ weights + bias, 0.0)


public = Public(X[few])  # no labels: those of 0 to 4 would not help
private, test = np.split(np.random.default_rng(0).permutation(np.flatnonzero(~few)), [600])
classes = range(5, 10)
print(f"{few.sum()} public images of 0 to 4, {len(private)} private ones of 5 to 9")
print(f"public network alone: {np.mean(network.predict(X[test]) == y[test]):.0%} right, as it does not know 5 to 9")

ledger = Ledger(epsilon=20.0, delta=1e-4)  # all that may ever be released about the private images
for epsilon in (1.0, 3.0):
    budget = {"epsilon": epsilon, "delta": 1e-5, "classes": classes}
    probe = PrivateProbe(encoder=hidden_layer, **budget).fit(X[private], y[private], public=public, ledger=ledger)
    pixels = PrivateProbe(**budget).fit(X[private], y[private], public=public, ledger=ledger)
    alone = PrivateProbe(**budget).fit(X[private], y[private], ledger=ledger)
    for name, model in (("hidden layer", probe), ("pixels", pixels), ("pixels, no public rows", alone)):
        print(f"epsilon {epsilon:g}, {name:24} {model.score(X[test], y[test]):.0%}")

# The paper's probe takes features and needs settings; these are its defaults.
features, public_features = hidden_layer(X), Public(hidden_layer(X[few]))
papers = DescentProbe(3.0, 1e-5, rows="whitened", classes=classes)
papers.fit(features[private], y[private], public=public_features, ledger=ledger)
print(f"epsilon 3, {'DescentProbe':24} {papers.score(features[test], y[test]):.0%}")
print(f"spent by all fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(probe.privacy_)
