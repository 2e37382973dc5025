"""What tests of reports share: summaries of small fits, and cases of a made-up demo."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.methods import Method
from dpadapt.report.contributions import errors_on_public
from dpadapt.report.summarise import summarise_demo, summarise_fit

NASTY = "<script>alert('x')</script> & \"y\""


@pytest.fixture(scope="session")
def nasty():
    """Return a text that must be escaped on a page."""
    return NASTY


@pytest.fixture(scope="session")
def fit():
    """Return a function that fits a method on few rows and returns the model with the public rows."""
    return _fit


@pytest.fixture(scope="session")
def summary_of():
    """Return a function that summarises a small fit of a method."""
    return _summary_of


@pytest.fixture(scope="session")
def case():
    """Return a function that makes a case of the demo from errors without and with public rows."""
    return _case


@pytest.fixture(scope="session")
def demo():
    """Return a function that summarises a demo of some cases."""
    return _demo


@pytest.fixture(scope="session")
def spread_over():
    """Return a function that makes four values with a given mean."""
    return _spread_over


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
    return summarise_fit(
        model,
        method=method,
        dataset=name,
        label=name,
        names=[name, "b", "c"],
        public="60 rows with labels",
        comparison=errors_on_public(X_public, y_public, task=method.task),
        ledger={"words": name},
    )


def _spread_over(mean):
    return [mean - 0.01, mean + 0.01, mean, mean]


def _case(alone, shared, public=0.9, floor=0.5):
    def level(key, value):
        return {"key": key, "name": key, "values": [value] * 4}

    def curve(key, shared, means, xs):
        points = [{"x": x, "values": _spread_over(mean)} for x, mean in zip(xs, means, strict=True)]
        return {"key": key, "method": "m", "public": shared, "name": key, "points": points}

    def panel(key, xs, levels, *more):
        curves = [curve("together", True, shared, xs), curve("private only", False, alone, xs), *more]
        return {"key": key, "title": f"{NASTY} {key}", "axis": key, "symbol": key[0], "x": list(xs), "levels": levels,
                "curves": curves}  # fmt: skip

    fixed = [level("no model", 1.0), level("public only", public)]
    bare = curve("not private", False, [0.8, floor], (100, 1000))
    return {
        "title": NASTY, "what": "w", "task": "regression", "provenance": "p", "axis": "error", "measure": "error",
        "rows": {"public": 1, "private": 1, "test": 1}, "middle": 1.0,
        "panels": [
            panel("epsilon", (0.1, 1.0), [*fixed, level("not private", floor)]),
            panel("rows", (100, 1000), fixed, bare),
        ],
    }  # fmt: skip


def _demo(*cases):
    results = {
        "epsilons": [0.1, 1.0],
        "delta": 1e-6,
        "seeds": 4,
        "cases": list(cases),
        "papers": list(cases),
        "others": [],
    }
    return summarise_demo(results | {"methods": [{"name": "m", "task": "regression", "summary": "s"}]})
