"""What the transfer regressor prepares and plans before it sees a private row."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.learning.base import Budget
from dpadapt.transfer.base import regression_base
from dpadapt.transfer.regression_plan import (
    PLANE_STEPS,
    ClipBias,
    base_geometry,
    budget_shares,
    choose_directions,
    plan_stage,
    same_population_plan,
    score_columns,
    shifted_plan,
    transfer_geometry,
)


def sample(seed, n, d, *, skew):
    """Return rows and labels whose residuals have mean 0 and variance 1, skewed or normal."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    noise = (np.exp(random.standard_normal(n)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    return X, X @ np.linspace(-1, 1, d) + (noise if skew else random.standard_normal(n))


def _population(d, flip=False, level=0.0, n=6000, n_public=2000, seed=0):
    random = np.random.default_rng(seed)
    mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
    coef = random.standard_normal(d)
    coef /= np.linalg.norm(mix.T @ coef)
    X_public, X = random.standard_normal((n_public, d)) @ mix.T, random.standard_normal((n, d)) @ mix.T
    y_public = X_public @ coef + 0.4 * random.standard_normal(n_public)
    y = X @ (-coef if flip else coef) + level + 0.4 * random.standard_normal(n)
    return Public(X_public, y_public), X, y


def even(geometry):
    return np.full(len(geometry.values), 1.0 / geometry.spectrum.sum())


def test_a_small_clipping_norm_shifts_the_level_of_skewed_residuals_as_public_rows_predict():
    geometry = transfer_geometry(*sample(0, 4000, 5, skew=True))
    clipped = ClipBias(geometry).measure(even(geometry), 0.5, geometry.variance)
    # The median of these residuals lies 0.3 deviations below their mean.
    assert -0.40 < float(geometry.vectors[-1] @ clipped.shift) < -0.15


def test_skewed_residuals_get_a_larger_clipping_norm_than_symmetric_ones():
    chosen = []
    for skew in (False, True):
        geometry = transfer_geometry(*sample(2, 600, 20, skew=skew))
        plan = same_population_plan(geometry, Budget(1.0, 20_000.0, 1.0))
        chosen.append(plan.steps[0].clip_norm)
    assert chosen[1] > 1.3 * chosen[0]


def test_the_expected_error_is_at_most_the_public_error():
    geometry = transfer_geometry(*sample(4, 300, 10, skew=True))
    prior = geometry.noise_variance / (300 * (geometry.values + geometry.ridge))
    assert same_population_plan(geometry, Budget(2e-6, 1000.0, 1.0)).error <= 1.0001 * float(geometry.spectrum @ prior)


def plan_of(public, budget, model=None):
    public_base = regression_base(public, np.asarray(public.X), np.asarray(public.y), model)
    return shifted_plan(public_base, base_geometry(public_base), budget)


@pytest.mark.parametrize("signal", [8.0, 45.0, 59.0, 61.0, 90.0, 130.0, 200.0, 1e3, 1e5])
@pytest.mark.parametrize("n_rows", [100.0, 200.0, 5000.0])
def test_all_charges_together_are_the_whole_budget(signal, n_rows):
    public, _, _ = _population(5, n=10, n_public=200)
    plan = plan_of(public, Budget(signal / n_rows, n_rows, 1.0))
    spent = sum(part.steps / part.mechanism.noise_multiplier**2 for part, _ in plan.charges)
    assert spent == pytest.approx((signal / n_rows) ** 2)
    assert [label for _, label in plan.charges] == list(plan.shares)


def test_shares_change_continuously_and_add_up_to_one():
    signals = np.geomspace(7.0, 1e5, 4000)
    for n_rows in (100.0, 250.0, 1e4):
        plans = [budget_shares(float(signal), n_rows) for signal in signals]
        assert all(sum(shares.values()) == pytest.approx(1.0) for shares in plans)
        for part in ("scout", "plane", "correction"):
            values = np.array([shares.get(part, 0.0) for shares in plans])
            # Directions begin with a share of 2%, everything else without a jump.
            assert np.abs(np.diff(values)).max() < 0.03


def test_few_rows_or_little_budget_correct_the_level_alone():
    assert list(budget_shares(30.0, 1000.0)) == ["plane"]
    public, _, _ = _population(5, n=10, n_public=200)
    assert len(plan_of(public, Budget(0.03, 1000.0, 1.0)).plane(1.0).weights) == 1
    assert len(plan_of(public, Budget(0.3, 1000.0, 1.0)).plane(1.0).weights) == 4
    # Whatever the budget, slope and mix keep their places.
    for mu in np.linspace(0.045, 0.06, 60):
        stage = plan_of(public, Budget(mu, 1000.0, 1.0)).plane(1.0)
        assert len(stage.weights) in (1, 4)
        assert np.all(stage.weights > 0)
    # With one public model there is nothing to mix.
    assert len(plan_of(public, Budget(0.3, 1000.0, 1.0), "linear").plane(1.0).weights) == 2


def test_the_variance_of_the_plane_covers_its_noise():
    """With rows as the public ones and no shift, the plane's estimate varies no more than is stated."""
    public, _, _ = _population(5, n=10, n_public=400)
    plan = plan_of(public, Budget(0.3, 1000.0, 1.0))
    stage = plan.plane(1.0)
    columns = np.column_stack([np.ones(400), plan.features.of(plan.public.scores)]) * stage.weights
    moment = columns.T @ columns / 400
    random, noise = np.random.default_rng(0), plan.noise("plane") * stage.clip_norm
    ends = []
    for _ in range(400):
        current, average = np.zeros(4), np.zeros(4)
        for t in range(PLANE_STEPS):
            gradient = stage.curvature * moment @ (current / stage.weights) + noise * random.standard_normal(4)
            newton = gradient / (stage.weights * stage.curvature)
            if t >= 10:
                average += (current - newton) / (PLANE_STEPS - 10)
            current = current - stage.step * newton
        ends.append(average)
    assert np.all(np.var(ends, axis=0) < stage.variance)


def test_slope_and_mix_reach_every_weighting_of_the_models():
    public, _, _ = _population(5, n=10, n_public=400)
    plan = plan_of(public, Budget(0.3, 1000.0, 1.0))
    weights, features = plan.public.base.weights, plan.features
    assert features.map.shape == (3, 3)
    for wanted in np.eye(3):
        change = np.linalg.solve(features.map, wanted - weights)
        level = features.shift @ change
        corrected = weights @ plan.public.scores + features.of(plan.public.scores) @ change
        assert corrected - level == pytest.approx(wanted @ plan.public.scores)
    columns = features.of(plan.public.scores)
    assert columns.T @ columns / 400 == pytest.approx(np.diag(columns.var(axis=0)), abs=1e-9)
    # The numbers of the mix leave a common change of all models alone.
    assert score_columns(np.ones((3, 2)), weights)[:, :-1] == pytest.approx(0.0)


def test_plans_are_made_without_private_rows():
    public, _, _ = _population(20, n=10, n_public=300)
    geometry = transfer_geometry(np.asarray(public.X), np.asarray(public.y))
    chosen, weights = choose_directions(geometry, n_rows=1000, noise_per_clip=0.1, n_steps=100, size=1.0)
    assert weights.max() == 1.0
    few, _ = choose_directions(geometry, n_rows=1000, noise_per_clip=10.0, n_steps=100, size=1.0)
    assert len(few) < len(chosen)
    common = {"n_steps": 100, "size": 1.0}
    quiet, loud = (
        plan_stage(geometry, np.eye(21)[:, chosen], weights, noise_per_clip=n, **common) for n in (0.01, 1.0)
    )
    assert quiet.clip_norm >= loud.clip_norm
    assert quiet.step >= loud.step
