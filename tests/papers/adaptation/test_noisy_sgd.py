"""`NoisySGD`: equal to a verbatim loop, charged for what it samples."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Public, calibrate
from dpadapt.papers.adaptation.bounded_losses import gradient_bounds
from dpadapt.papers.adaptation.noisy_sgd import NoisySGD

BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def samples(seed=0, m=400, n=600, shift=0.5):
    random = np.random.default_rng(seed)
    X_source, X = random.uniform(-1, 1, (m, 3)), random.uniform(-1, 1, (n, 3))
    y_source, y = X_source @ [0.5, 0.5, 0.0], X @ [0.5, 0.5 - shift, 0.0]
    return X, y + 0.05 * random.normal(size=n), Public(X_source, y_source + 0.05 * random.normal(size=m))


def test_noisy_steps_equal_a_verbatim_loop(make_tape):
    X, y, public = samples()
    tape = make_tape(adjacency=Adjacency.REPLACE_ONE)
    model = NoisySGD(**BUDGET, radius=2.0, n_steps=50, adjacency="replace-one").fit(
        X, y, public=public, ledger=tape.ledger
    )
    single, replaced = gradient_bounds(1.0, 1.0, 2.0)
    sigma = replaced * math.sqrt(50) / (calibrate(**BUDGET) ** -1 * len(X))
    length = 2.0 / math.sqrt(50 * (single**2 + 4 * sigma**2))
    center, scale = public.X.mean(axis=0), public.X.std(axis=0)
    rows = np.column_stack([(X - center) / scale, np.ones(len(X))])
    source = np.column_stack([(public.X - center) / scale, np.ones(len(public.X))])
    rows /= np.quantile(np.linalg.norm(source, axis=1), 0.95)
    middle = public.y.mean()
    half = np.quantile(np.abs(public.y - middle), 0.99)
    shorter = np.maximum(1.0, np.linalg.norm(rows, axis=1))
    rows /= shorter[:, None]
    labels = np.clip((y - middle) / half, -1, 1) / shorter
    w, visited = np.zeros(4), []
    for _ in range(50):
        gradient = sum(2 * (w @ row - label) * row for row, label in zip(rows, labels, strict=True)) / len(rows)
        w = w - length * gradient
        w *= min(1.0, 2.0 / np.linalg.norm(w))
        visited.append(w)
    mean = np.mean(visited, axis=0)
    predicted = (model.predict(X) - middle) / half
    whole = np.column_stack([(X - center) / scale, np.ones(len(X))]) / np.quantile(np.linalg.norm(source, axis=1), 0.95)
    assert predicted == pytest.approx(whole @ mean, abs=1e-9)
    assert tape.scales[0] == pytest.approx(sigma * len(X), rel=1e-6)
