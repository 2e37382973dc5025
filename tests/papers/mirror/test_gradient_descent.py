"""The gradient descent baselines: sampling, cold and warm starts, whitening, bad parameters."""

import numpy as np
import pytest

from dpadapt import Ledger, Public
from dpadapt.papers.mirror.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor


def data(n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    return X, X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)


def test_poisson_batches_are_charged_as_sampled():
    X, y = data(n=2000)
    model = PrivateGradientDescentRegressor(1.0, 1e-5, batch_size=400, n_steps=10, random_state=0)
    model.fit(X, y, public=Public(*data(n=80, seed=1)))
    assert model.privacy_.entries[0].event.rate == pytest.approx(0.2)
    assert 0.99 < model.privacy_.epsilon <= 1.0


def test_a_cold_start_ignores_public_labels():
    X, y = data()
    X_public, y_public = data(n=80, seed=1)
    fitted = [
        PrivateGradientDescentRegressor(start="cold", target_bounds=(-10, 10), random_state=0).fit(X, y, public=public)
        for public in (Public(X_public, y_public), Public(X_public, -5 * y_public), Public(X_public))
    ]
    assert all(np.array_equal(model.coef_, fitted[0].coef_) for model in fitted)
    # The other way round: a warm start uses them.
    warm = [
        PrivateGradientDescentRegressor(random_state=0).fit(X, y, public=Public(X_public, labels))
        for labels in (y_public, -5 * y_public)
    ]
    assert not np.allclose(warm[0].coef_, warm[1].coef_)


def test_whitening_converges_faster_on_uneven_features():
    random = np.random.default_rng(0)
    scales = np.logspace(0, -1.5, 20)
    coef = random.standard_normal(20) / scales
    X, X_public = (random.standard_normal((n, 20)) * scales for n in (8000, 200))
    y, y_public = (part @ coef + 0.3 * random.standard_normal(len(part)) for part in (X, X_public))
    shared = {"start": "cold", "standardise": False, "fit_intercept": False, "random_state": 0, "n_steps": 50}
    errors = [
        np.sum((scales * (model.fit(X, y, public=Public(X_public, y_public)).coef_ - coef)) ** 2)
        for whiten in (True, False)
        for model in [PrivateGradientDescentRegressor(10.0, 1e-5, whiten=whiten, target_bounds=(-20, 20), **shared)]
    ]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("estimator", [PrivateGradientDescentRegressor, PrivateGradientDescentClassifier])
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"whiten": True}, "whiten by"),
        ({"start": "hot"}, "start must be one of"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"n_steps": 0}, "n_steps must be a whole number"),
        ({"clip_norm": -1.0}, "clip_norm must be a positive number"),
    ],
)
def test_bad_parameters_are_named_and_nothing_is_spent(estimator, params, text):
    X, y = data()
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=text):
        estimator(**params).fit(X, y if estimator is PrivateGradientDescentRegressor else y > 0, ledger=ledger)
    assert ledger.entries == []
