"""A category that public rows lack: few private rows get no wild value, and many keep their own effect."""

import numpy as np
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public
from dpadapt.transfer.base import regression_base
from dpadapt.transfer.regression_plan import base_geometry

pytestmark = pytest.mark.thorough

EFFECTS = np.array([0.0, 0.15, -0.15, 0.1])
NEW = 4  # the last category


def table(n, n_new, seed, *, shift, effect, classes):
    """Return rows with five indicators, the last `n_new` of the new category; labels, and what is to be predicted."""
    random = np.random.default_rng(seed)
    kind = np.append(random.choice(4, n - n_new, p=[0.3, 0.3, 0.2, 0.2]), np.full(n_new, NEW))
    numbers = random.normal(0, 1, (n, 4))
    level = np.append(EFFECTS, effect)[kind] + numbers @ [0.5, -0.3, 0.2, 0.0] + shift * (0.4 + 0.3 * numbers[:, 0])
    X = np.column_stack([numbers, np.eye(5)[kind]])
    if not classes:
        return X, 3.8 + level + 0.7 * random.normal(size=n), 3.8 + level
    p = 1 / (1 + np.exp(-1.5 * (level - 0.4)))
    return X, (random.random(n) < p).astype(int), p


def errors(estimator, n_new, effect, seeds, n=2000):
    """Return the mean error in the new group and in the others, one row per seed, and how much was kept."""
    classes = estimator is PrivateTransferClassifier
    found, kept = [], []
    for seed in range(seeds):
        public = Public(*table(600, 0, 100 + seed, shift=0.0, effect=0.0, classes=classes)[:2])
        X, y, _ = table(n, n_new, seed, shift=1.0, effect=effect, classes=classes)
        model = estimator(epsilon=1.0, random_state=seed).fit(X, y, public=public)
        rows, _, truth = table(2000, 500, 999, shift=1.0, effect=effect, classes=classes)
        predicted = model.predict_proba(rows)[:, 1] if classes else model.predict(rows)
        found.append([np.mean((predicted - truth)[rows[:, -1] == new]) for new in (1, 0)])
        kept.append(model.own_effect_[-1])
        assert np.isnan(model.own_effect_[:-1]).all()
    return np.array(found), np.array(kept)


# Errors of 13 rows in 2,000 at epsilon 1. Residuals have standard deviation 0.7, probabilities lie in [0, 1]. Before
# the noise of such a group was bounded, its error had the standard deviation 0.55 and 0.17 over seeds.
@pytest.mark.parametrize(("estimator", "most"), [(PrivateTransferRegressor, 0.25), (PrivateTransferClassifier, 0.1)])
@pytest.mark.parametrize("effect", [0.0, 0.6])
def test_thirteen_rows_get_no_wild_value(estimator, most, effect):
    found, kept = errors(estimator, 13, effect, 4)
    assert found[:, 0].std() < most
    assert np.abs(found[:, 0]).max() < most + (0.5 if estimator is PrivateTransferRegressor else 0.15)
    assert np.abs(found[:, 1]).max() < 0.1
    assert kept.max() < 0.97


@pytest.mark.parametrize("estimator", [PrivateTransferRegressor, PrivateTransferClassifier])
def test_a_large_group_keeps_its_own_effect(estimator):
    found, kept = errors(estimator, 400, 1.5, 2, n=4000)
    assert np.abs(found[:, 0]).max() < 0.2
    assert kept.min() > 0.9


def test_directions_in_which_public_rows_cannot_vary_have_no_coordinate():
    """The indicators of a category add up to 1 in all public rows, and to 0 in rows of a category that these lack."""
    X, y, _ = table(600, 0, 7, shift=0.0, effect=0.0, classes=False)
    base = regression_base(Public(X, y), X, y, None)
    geometry = base_geometry(base)
    sums = np.zeros(geometry.whitening.shape[0])
    sums[4:8] = geometry.scale[4:8] * base.base.columns.scale[4:8]
    assert np.linalg.norm(sums @ geometry.whitening) / np.linalg.norm(sums) < 1e-3
    few = base_geometry(regression_base(Public(X[:10], y[:10]), X[:10], y[:10], "linear"))
    assert not few._dependent.any()
