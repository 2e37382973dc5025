"""What tests of reports share: summaries of small fits, and cases of a made-up demo."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.methods import Method
from dpadapt.report.fit import summarise_fit


@pytest.fixture(scope="session")
def fit():
    """Return a function that fits a method on few rows and returns the model with the public rows."""
    return _fit


@pytest.fixture(scope="session")
def summary_of():
    """Return a function that summarises a small fit of a method."""
    return _summary_of


def _fit(method: Method, n_classes: int = 2, **params):
    rng = np.random.default_rng(0)
    X, X_public = rng.uniform(-1, 1, (300, 3)), rng.uniform(-1, 1, (60, 3))
    y, y_public = X[:, 0], X_public[:, 0]
    if method.task == "classification":
        y, y_public = (np.floor((v + 1) / 2 * n_classes).clip(0, n_classes - 1).astype(int) for v in (y, y_public))
    public = {"public": Public(X_public, y_public, tasks=np.arange(60) % 5)} if method.beside == "public" else {}
    model = method.estimator(random_state=0, **params).fit(X, y, **public)
    return model, X_public, y_public


def _summary_of(method: Method, n_classes: int = 2, name: str = "a", **params):
    model, X_public, y_public = _fit(method, n_classes, **params)
    public = Public(X_public, y_public, tasks=np.arange(60) % 5)
    return summarise_fit(
        model,
        method=method,
        dataset=name,
        label=name,
        names=[name, "b", "c"],
        public=public if method.beside == "public" else None,
        public_words="60 rows with labels",
        ledger={"words": name},
    )
