"""The same-population prior: clips chosen from public data, and biases of clipping told from it."""

import numpy as np
import pytest

from dpadapt.data import Public
from dpadapt.transfer.regression import PrivateTransferRegressor
from dpadapt.transfer.regression_plan import ClipBias, kalman_plan, transfer_geometry


def sample(seed, n, d, *, skew):
    """Return rows and labels whose residuals have mean 0 and variance 1, skewed or normal."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    noise = (np.exp(random.standard_normal(n)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    return X, X @ np.linspace(-1, 1, d) + (noise if skew else random.standard_normal(n))


def even(geometry):
    return np.full(len(geometry.values), 1.0 / geometry.spectrum.sum())


def excess(model, d):
    X = np.random.default_rng(99).standard_normal((2000, d))
    return float(np.mean((model.predict(X) - X @ np.linspace(-1, 1, d)) ** 2))


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("d", [8, 60])
def test_skewed_residuals_do_not_make_it_worse_than_the_public_model(d, epsilon):
    before, after = [], []
    for seed in range(6):
        X, y = sample(seed, 5000, d, skew=True)
        public = Public(*sample(100 + seed, 600, d, skew=True))
        alone = PrivateTransferRegressor(1e-6, 1e-12, prior="same-population").fit(X, y, public=public)
        model = PrivateTransferRegressor(epsilon, 1e-5, prior="same-population", random_state=seed)
        before.append(excess(alone, d))
        after.append(excess(model.fit(X, y, public=public), d))
    assert np.mean(after) < 0.9 * np.mean(before)


def test_a_small_clip_of_skewed_residuals_moves_the_level_by_what_public_rows_say():
    geometry = transfer_geometry(*sample(0, 4000, 5, skew=True))
    clipped = ClipBias(geometry).measure(even(geometry), 0.5, geometry.variance)
    # The median of these residuals lies 0.3 deviations below their mean.
    assert -0.40 < float(geometry.vectors[-1] @ clipped.shift) < -0.15


def test_a_clip_that_cuts_nothing_has_no_bias():
    geometry = transfer_geometry(*sample(0, 500, 5, skew=True))
    clipped = ClipBias(geometry).measure(even(geometry), 1e6, geometry.variance)
    assert clipped.slope == pytest.approx(1.0)
    assert np.abs(clipped.shift).max() < 1e-6
    assert clipped.doubt.max() < 1e-12


def test_symmetric_residuals_are_hardly_doubted():
    geometry = transfer_geometry(*sample(1, 450, 300, skew=False))
    clipped = ClipBias(geometry).measure(even(geometry), 0.5, geometry.variance)
    prior = geometry.noise_variance / (450 * (geometry.values + geometry.ridge))
    assert float(geometry.spectrum @ clipped.doubt) < 0.1 * float(geometry.spectrum @ prior)


def test_skewed_residuals_ask_for_a_larger_clip_than_symmetric_ones():
    chosen = []
    for skew in (False, True):
        geometry = transfer_geometry(*sample(2, 600, 20, skew=skew))
        plan = kalman_plan(geometry, 1e-4, 20_000)
        chosen.append(plan.steps[0].clip_norm)
    assert chosen[1] > 1.3 * chosen[0]


def test_more_noise_asks_for_a_smaller_clip():
    geometry = transfer_geometry(*sample(3, 600, 20, skew=True))
    quiet, loud = (kalman_plan(geometry, noise, 20_000) for noise in (1e-4, 1e-2))
    assert loud.steps[0].clip_norm < quiet.steps[0].clip_norm
    assert loud.error > quiet.error


def test_the_plan_expects_no_more_than_the_public_error():
    geometry = transfer_geometry(*sample(4, 300, 10, skew=True))
    prior = geometry.noise_variance / (300 * (geometry.values + geometry.ridge))
    assert kalman_plan(geometry, 1e3, 1000).error <= 1.0001 * float(geometry.spectrum @ prior)


@pytest.mark.parametrize("n_public", [8, 30])
def test_odd_public_rows_leave_finite_coefficients(n_public):
    X, y = sample(5, 1000, 12, skew=False)
    X_public, y_public = sample(6, n_public, 12, skew=False)
    X_public[:, 1], X_public[:, 2] = X_public[:, 0], 3.0
    model = PrivateTransferRegressor(1.0, prior="same-population", random_state=0)
    model.fit(X, y, public=Public(X_public, y_public))
    assert np.all(np.isfinite(model.coef_))
    perfect = model.fit(X, y, public=Public(X_public, X_public @ np.ones(12)))
    assert np.all(np.isfinite(perfect.coef_))
