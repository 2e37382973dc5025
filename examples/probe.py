"""A private linear probe on a public encoder that has never seen the private classes (paper 4), without torch.

Half of all images are dark on light, the others light on dark. Public images show the digits 0 to 4; a small network
learns to tell those apart, and its hidden layer is the encoder. Private images show 5 to 9: of these the public labels
say nothing at all, only the features may help. Test rows are set aside to compare; with truly private rows that
comparison itself would be a release.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from dpadapt import Ledger, Public
from dpadapt.papers.subspace.probes import DescentProbe, LeastSquaresProbe
from dpadapt.representation import PrivateProbe

X, y = load_digits(return_X_y=True)
X = X / 16.0
dark = np.random.default_rng(1).random(len(y)) < 0.5
X[dark] = 1.0 - X[dark]
few = y < 5
# Public images can be had both ways, and cost nothing.
network = MLPClassifier((64,), learning_rate_init=0.005, tol=1e-3, n_iter_no_change=5, random_state=0)
network.fit(np.vstack([X[few], 1.0 - X[few]]), np.tile(y[few], 2))
weights, bias = network.coefs_[0], network.intercepts_[0]


def hidden_layer(images):
    """Return the activity of the public network's hidden units, image by image."""
    return np.maximum(images @ weights + bias, 0.0)


public = Public(X[few])  # no labels: those of 0 to 4 would not help
private, test = np.split(np.random.default_rng(0).permutation(np.flatnonzero(~few)), [600])
classes = range(5, 10)
print(f"{few.sum()} public images of 0 to 4, {len(private)} private ones of 5 to 9")
print(f"zero-shot: {np.mean(network.predict(X[test]) == y[test]):.0%} right, as it must be")

ledger = Ledger(epsilon=20.0, delta=1e-4)  # all that may ever be released about the private images
for epsilon in (1.0, 3.0):
    budget = {"epsilon": epsilon, "delta": 1e-5, "classes": classes}
    probe = PrivateProbe(encoder=hidden_layer, **budget).fit(X[private], y[private], public=public, ledger=ledger)
    pixels = PrivateProbe(**budget).fit(X[private], y[private], public=public, ledger=ledger)
    alone = PrivateProbe(**budget).fit(X[private], y[private], ledger=ledger)
    for name, model in (("hidden layer", probe), ("pixels", pixels), ("pixels, no public rows", alone)):
        print(f"epsilon {epsilon:g}, {name:24} {model.score(X[test], y[test]):.0%}")

# The rivals work on features and want settings; these are their defaults.
features, known = hidden_layer(X), Public(hidden_layer(X[few]))
for rival in (DescentProbe(3.0, 1e-5, rows="whitened", classes=classes), LeastSquaresProbe(3.0, 1e-5, classes=classes)):
    rival.fit(features[private], y[private], public=known, ledger=ledger)
    print(f"epsilon 3, {type(rival).__name__:24} {rival.score(features[test], y[test]):.0%}")
print(f"spent by all fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(probe.privacy_)
