"""The gradient descent baselines: sampling, cold and warm starts, whitening, bad parameters."""

import numpy as np

from benchmarks.rivals.gradient_descent import PrivateGradientDescentRegressor
from dpadapt import Public


def data(n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    return X, X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)


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
