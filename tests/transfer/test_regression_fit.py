"""The releases of the transfer regressor: no harm on skewed or odd public rows; what the scout finds."""

from dataclasses import replace

import numpy as np
import pytest

from dpadapt.data import Public
from dpadapt.inputs.persons import person_shares
from dpadapt.learning.base import Budget
from dpadapt.rows import InMemory, Rows
from dpadapt.transfer.base import regression_base
from dpadapt.transfer.regression import PrivateTransferRegressor
from dpadapt.transfer.regression_fit import (
    ScoredRows,
    _measured,
    _person_facts,
    _PlaneRows,
    _residual_facts,
    _scout,
    _stage_facts,
)
from dpadapt.transfer.regression_plan import Stage, base_geometry, shifted_plan


def sample(seed, n, d, *, skew):
    """Return rows and labels whose residuals have mean 0 and variance 1, skewed or normal."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    noise = (np.exp(random.standard_normal(n)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    return X, X @ np.linspace(-1, 1, d) + (noise if skew else random.standard_normal(n))


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


class Exact:
    """A run without noise."""

    def release(self, bounded):
        return bounded.value


@pytest.mark.parametrize("distance", [0.3, 1.0, 10.0, 50.0])
def test_the_scout_finds_the_scale_of_slope_and_mix(distance):
    """Linear models extrapolate, so that public models may be far apart on private rows: steps would diverge."""
    X, y = sample(7, 500, 4, skew=False)
    public_base = regression_base(Public(X, y), X, y, None)
    plan = shifted_plan(public_base, base_geometry(public_base), Budget(0.5, 4000.0, 1.0))
    features = plan.features
    wanted = distance * np.random.default_rng(1).standard_normal((4000, 3))
    scores = np.linalg.solve(features.map.T, (wanted - features.shift).T)
    assert features.of(scores) == pytest.approx(wanted)
    halves = (slice(0, 1500), slice(1500, None))
    parts = [ScoredRows(np.zeros((0, 4)), scores[:, half], np.zeros(4000)[half], None) for half in halves]
    seen = _scout(Exact(), plan, InMemory(parts, 4000))
    sizes = np.sqrt(np.mean(seen.features.of(scores) ** 2, axis=0))
    varied = np.sqrt(np.mean(features.of(public_base.scores) ** 2, axis=0))
    # Where all numbers of a row are large, clipping the row makes them a little smaller.
    assert np.all(sizes < 4.0)
    assert np.all(sizes[varied > 0.9] > 0.3)


class Fixed:
    """A run whose noise hides everything."""

    def __init__(self, means):
        self.means = means

    def release(self, bounded):
        return np.array(self.means)


def measured(run, first, rest, residuals, mu=0.02):
    X, y = sample(7, 500, 4, skew=False)
    public_base = regression_base(Public(X, y), X, y, None)
    plan = shifted_plan(public_base, base_geometry(public_base), Budget(mu, 4000.0, 1.0))
    parts = [
        _PlaneRows(np.column_stack([first, rest])[half], np.zeros((4000, 0))[half], residuals[half], None)
        for half in (slice(0, 1500), slice(1500, None))
    ]
    return _measured(run, plan, 1.0, InMemory(parts, 4000), np.ones(2), None)


@pytest.mark.parametrize(("factor", "part"), [(0.5, 1.0), (1.0, 1.0), (3.0, 0.3), (20.0, 0.1), (-20.0, 0.0)])
def test_a_change_that_is_too_large_is_cut_and_a_harmful_one_is_not_used(factor, part):
    random = np.random.default_rng(0)
    change, noise = random.standard_normal(4000), 0.5 * random.standard_normal(4000)
    used = measured(Exact(), np.zeros(4000), factor * change, change + noise)
    assert used.rest == part
    assert used.first == float(part > 0)


def test_the_gain_is_the_share_of_the_error_that_the_change_removes():
    # Small enough that nothing is clipped.
    random = np.random.default_rng(0)
    level, change, noise = 0.05, *(0.12 * random.standard_normal((2, 4000)))
    used = measured(Exact(), np.full(4000, level), change, level + change + noise, mu=2.0)
    value, low, high = used.gain
    before, after = np.mean((level + change + noise) ** 2), np.mean(noise**2)
    assert value == pytest.approx(1 - after / before, rel=1e-6)
    assert low < value < high


def test_the_gain_depends_on_its_release_alone():
    large, nothing = 100.0 * np.ones(4000), np.zeros(4000)
    assert measured(Fixed([4e3, 4e3, 0.0, 0.0]), nothing, large, -large).rest == 1.0
    assert measured(Fixed([4e3, -4e3, 0.0, 4e3]), nothing, large, large).rest == 0.1
    assert measured(Fixed([4e3, -4e3, -4e3, -4e3]), nothing, large, large).gain == (0.0, 0.0, 0.0)


def person_facts(X, y, ids):
    stage = Stage(np.eye(3), np.ones(3), 2.0, 1.5, 0.1, 10, 0.1, 0.5, 1.0)
    change, still, shares = np.array([0.5, 0.0, -0.5]), np.zeros(1), person_shares(ids, len(ids))
    # The last column is the constant. The rows of one person are in both blocks.
    wide = np.column_stack([X, np.ones(len(X))])
    stage = replace(stage, map=np.eye(4)[:, :3])
    parts = [
        _PlaneRows(np.zeros((len(X), 1))[part], wide[part], y[part], shares.take(part))
        for part in (slice(0, len(X) // 2), slice(len(X) // 2, None))
    ]
    facts = np.concatenate([_stage_facts(part, moved=still, stage=stage, change=change) for part in parts])
    alone = _residual_facts(Rows(X, y, max_norm=stage.max_norm), stage, change, np.ones(len(y)))
    assert np.array_equal(facts[:, 1], alone[:, 1])
    return facts, *_person_facts(InMemory(parts, len(X)), still, stage, change)


def test_the_numbers_of_a_person_depend_on_its_own_rows_alone():
    draw = np.random.default_rng(2)
    X, y, ids = draw.standard_normal((60, 3)), 3 * draw.standard_normal(60), np.repeat(np.arange(20), 3)
    _, before, shares = person_facts(X, y, ids)
    X[:3], y[:3] = 1e6, -1e6
    _, after, _ = person_facts(X, y, ids)
    assert (before[0] != after[0]).any()
    assert np.array_equal(before[1:], after[1:])
    assert (before >= 0).all()
    assert (before <= 1).all()
    assert shares.unit == "person"


def test_rows_that_are_alike_are_one_row_and_unlike_ones_cancel():
    X, y = np.tile([[1.0, 0.0, 0.0]], (4, 1)), np.array([2.0, 2.0, 2.0, -1.0])
    alike, person, _ = person_facts(X[:3], y[:3], ["a"] * 3)
    assert person[0] == pytest.approx(alike[0], rel=1e-12)
    rows, person, _ = person_facts(X[2:], y[2:], ["a"] * 2)
    assert person[0, 1] < 0.5 * rows[:, 1].mean()
