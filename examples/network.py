"""A network for handwritten digits, trained on private images with the help of 150 public ones. Needs the extra torch.

"cold" starts from random weights, "warm" from a network trained on the public images, and "mirror" also mixes their
gradient into each private step. Then a probe: all layers but the last are frozen. Test images are set aside to compare.
"""

import numpy as np
import torch

from dpadapt import Ledger, Public
from dpadapt.datasets import bundled
from dpadapt.networks import PrivateNetwork
from dpadapt.networks.models import perceptron

arrays = bundled.digits().arrays
X, y = (arrays["X"] / 8 - 1).astype(np.float32), arrays["y"]
known, private, test = np.split(np.random.default_rng(0).permutation(len(y)), [150, 1300])
public = Public(X[known], y[known])
ledger = Ledger(epsilon=20.0, delta=1e-5)


def fitted(module, **settings):
    model = PrivateNetwork(module, 3.0, 1e-6, n_steps=60, batch_size=400, learning_rate=2.0, **settings)
    return model.fit(X[private], y[private], public=public, ledger=ledger)


torch.manual_seed(0)
start = perceptron(64, 10, hidden=(32,))
for transfer in ("cold", "warm", "mirror"):
    model = fitted(start, transfer=transfer)
    print(f"{transfer:8} accuracy {model.score(X[test], y[test]):.3f}, temperature {model.temperature_:.2f}")

# With a budget too small to help, nothing is spent and the fit returns the network trained on public images.
probed = PrivateNetwork(start, 1e-9, 1e-15).fit(X[private], y[private], public=public, ledger=ledger).module_
for weights in list(probed.parameters())[:-2]:
    weights.requires_grad_(False)
model = fitted(probed, public_steps=0)
trained = sum(weights.numel() for weights in probed.parameters() if weights.requires_grad)
print(f"probe    accuracy {model.score(X[test], y[test]):.3f}, {trained} parameters")
print(model.privacy_)
