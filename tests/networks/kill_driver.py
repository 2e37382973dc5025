"""Train a small network with a checkpoint and log every draw of noise; test_resumable_training.py runs and kills it."""

import os
import sys
from pathlib import Path

import numpy as np
import torch

from dpadapt import Ledger, Public
from dpadapt.networks import PrivateNetwork

STEPS = 60


def problem():
    """Return private rows and a public set, the same in every process."""
    random = np.random.default_rng(7)
    X = random.standard_normal((300, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X[:250], y[:250], Public(X[250:], y[250:])


def estimator(folder, **params):
    """Return the estimator that is killed and called again."""
    settings = {"n_steps": STEPS, "batch_size": 250, "public_steps": 20, "checkpoint_every": 7, "classes": [0, 1]}
    return PrivateNetwork(epsilon=2.0, delta=1e-5, checkpoint=folder / "checkpoint", **{**settings, **params})


def opened(folder, name="ledger"):
    """Return a durable ledger that logs each draw before its value can be used."""
    ledger = Ledger.open(folder / name, epsilon=2.5, delta=1e-5)
    draw = ledger._draw

    def logged(*release):
        drawn = draw(*release)
        with (folder / "draws").open("a") as log:
            log.write("drawn\n")
            log.flush()
            os.fsync(log.fileno())
        return drawn

    ledger._draw = logged
    return ledger


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    X, y, public = problem()
    estimator(folder).fit(X, y, public=public, ledger=opened(folder))
    (folder / "done").touch()
