"""`PDADPMDRegressor` and `PDADPMDClassifier`: accuracy, limiting cases, bad input."""

import math

import numpy as np
import pytest

from benchmarks.rivals.gradient_descent import PrivateGradientDescentRegressor
from dpadapt import Ledger, Public
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor


def data(estimator, n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    score = X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)
    return X, score if estimator is PDADPMDRegressor else (score > 0).astype(int)


def public_for(estimator, n=80):
    return Public(*data(estimator, n=n, seed=1))


def test_mirror_map_of_the_identity_is_gradient_descent():
    random = np.random.default_rng(3)
    # Public rows with second moment exactly 1: mirror descent with last iterates equals plain descent, draw for draw.
    X_public = np.linalg.qr(random.standard_normal((40, 5)))[0] * math.sqrt(40)
    coef = random.standard_normal(5)
    public = Public(X_public, X_public @ coef + random.standard_normal(40))
    X = random.standard_normal((500, 5))
    y = X @ coef + random.standard_normal(500)
    shared = {"standardise": False, "fit_intercept": False, "learning_rate": 0.5, "clip_norm": 2.0, "random_state": 4}
    mirror = PDADPMDRegressor(n_steps=10, average="tail", ridge=0.0, **shared).fit(X, y, public=public)
    plain = PrivateGradientDescentRegressor(n_steps=10, **shared).fit(X, y, public=public)
    assert np.allclose(mirror.coef_, plain.coef_, rtol=1e-6)


def test_without_noise_the_exact_step_reaches_the_private_optimum():
    X, y = data(PDADPMDRegressor, n=3000)
    model = PDADPMDRegressor(1e6, 0.1, clip_norm=1e3, learning_rate=None, n_steps=200, average="last", random_state=0)
    model.fit(X, y, public=public_for(PDADPMDRegressor))
    wanted = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    assert np.allclose(np.append(model.coef_, model.intercept_), wanted, atol=1e-3)


def test_a_singular_hessian_without_ridge_is_refused_before_anything_is_spent():
    X, y = data(PDADPMDRegressor, d=30)
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=r"singular.*ridge"):
        PDADPMDRegressor(ridge=0.0).fit(X, y, public=Public(X[:12] + 0, y[:12]), ledger=ledger)
    with pytest.raises(ValueError, match="may not exist"):
        PDADPMDClassifier(ridge=0.0).fit(X, y > 0, public=Public(X[:12] + 0, y[:12] > 0), ledger=ledger)
    assert ledger.entries == []


def test_the_first_order_step_needs_public_labels():
    X, y = data(PDADPMDRegressor)
    with pytest.raises(ValueError, match="public labels"):
        PDADPMDRegressor(step="first-order").fit(X, y, public=Public(X[:50] + 0))
