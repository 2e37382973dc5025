import math

import numpy as np
import pytest

from dpadapt import Adjacency, BudgetExceeded, Ledger, PrivateLinearRegression, Public, audit
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.datasets import bundled
from dpadapt.learning import transfer_gate
from dpadapt.learning.transfer_forecast import forecast
from dpadapt.learning.transfer_geometry import transfer_geometry
from dpadapt.learning.transfer_plan import choose_directions, dyadic_blocks, plan_stage, shift_prior
from dpadapt.learning.transfer_regression import PrivateTransferRegressor
from dpadapt.learning.transfer_shifted import RELEASES


def _population(d, flip=False, level=0.0, n=6000, n_public=2000, seed=0):
    random = np.random.default_rng(seed)
    mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
    coef = random.standard_normal(d)
    coef /= np.linalg.norm(mix.T @ coef)
    X_public, X = random.standard_normal((n_public, d)) @ mix.T, random.standard_normal((n, d)) @ mix.T
    y_public = X_public @ coef + 0.4 * random.standard_normal(n_public)
    y = X @ (-coef if flip else coef) + level + 0.4 * random.standard_normal(n)
    return Public(X_public, y_public), X, y


def _errors(public, X, y, n, epsilon, seeds, **params):
    """Mean error of the private and of the public model on rows not fitted on."""
    rest = slice(n, None)
    alone = PrivateTransferRegressor(1e-6, 1e-12).fit(X[:n], y[:n], public=public)
    moved = [
        np.mean((PrivateTransferRegressor(epsilon, 0.01, adjacency="replace-one", random_state=s, **params)
                 .fit(X[:n], y[:n], public=public).predict(X[rest]) - y[rest]) ** 2)
        for s in range(seeds)
    ]  # fmt: skip
    return float(np.mean(moved)), float(np.mean((alone.predict(X[rest]) - y[rest]) ** 2))


@pytest.mark.parametrize(("n", "epsilon"), [(50, 4.0), (100, 1.0), (300, 1.0), (1000, 0.5), (1000, 10.0)])
def test_without_a_shift_nothing_is_lost(n, epsilon):
    private, public = _errors(*_population(50), n, epsilon, 8)
    assert private <= 1.01 * public


@pytest.mark.parametrize("domains", [bundled.randhie_by_plan, bundled.randhie_by_health])
@pytest.mark.parametrize(("n", "epsilon"), [(100, 4.0), (300, 1.0), (1000, 1.0)])
def test_visits_to_a_doctor_are_predicted_no_worse_than_by_the_public_model(domains, n, epsilon):
    found = domains()
    X, y = (np.asarray(part, dtype=float) for part in found.target)
    order = np.random.default_rng(2).permutation(len(y))
    private, public = _errors(Public(*found.source), X[order], y[order], n, epsilon, 6)
    assert private <= 1.015 * public


def test_an_over_confident_gate_fails_the_no_harm_test(monkeypatch):
    def open_gate(change, variance, blocks, *, error, established=0.0):
        return transfer_gate.Kept(np.ones(len(change)), established)

    monkeypatch.setattr("dpadapt.learning.transfer_shifted.keep", open_gate)
    private, public = _errors(*_population(50), 300, 1.0, 4)
    assert private > 1.05 * public


def test_a_model_of_the_wrong_sign_is_left():
    private, public = _errors(*_population(200, flip=True), 1000, 4.0, 3)
    assert private < 0.15 * public


def test_a_shifted_level_is_found_with_few_rows():
    private, public = _errors(*_population(50, level=2.0), 300, 1.0, 3)
    assert private < 0.15 * public


def test_same_population_prior_gains_where_public_rows_are_few():
    random = np.random.default_rng(4)
    d, n = 100, 10_000
    coef = random.standard_normal(d) / math.sqrt(d)
    X, X_public = random.standard_normal((n + 3000, d)), random.standard_normal((150, d))
    y, y_public = (part @ coef + 0.3 * random.standard_normal(len(part)) for part in (X, X_public))
    private, public = _errors(Public(X_public, y_public), X, y, n, 1.0, 2, prior="same-population")
    assert private - 0.09 < 0.3 * (public - 0.09)


def test_accounting_is_exact():
    public, X, y = _population(5, n=500, n_public=300)
    model = PrivateTransferRegressor(0.7, 1e-5, random_state=0).fit(X, y, public=public)
    spent = sum(e.times / e.event.noise_multiplier**2 for e in model.privacy_.entries)
    assert math.sqrt(spent) == pytest.approx(gaussian_mu(0.7, 1e-5), rel=1e-9)
    assert [e.times for e in model.privacy_.entries] == list(RELEASES.values())


def test_too_small_a_cap_raises_before_any_draw():
    public, X, y = _population(5, n=500, n_public=300)
    ledger = Ledger(epsilon=0.5, delta=1e-5)
    drawn = []
    ledger._draw = lambda *release: drawn.append(release)
    with pytest.raises(BudgetExceeded):
        PrivateTransferRegressor(1.0, 1e-5).fit(X, y, public=public, ledger=ledger)
    assert drawn == []
    assert ledger.entries == []


def test_fallback_is_the_public_model_bit_by_bit():
    public, X, y = _population(5, n=500, n_public=300)
    geometry = transfer_geometry(np.asarray(public.X), np.asarray(public.y))
    model = PrivateTransferRegressor(1e-4, 1e-9).fit(X, y, public=public)
    coef, intercept = geometry.coefficients(geometry.solution)
    assert np.array_equal(model.coef_, coef)
    assert model.intercept_ == intercept
    assert model.privacy_.epsilon == 0.0
    assert any("nothing was spent" in text for text in model.privacy_.warnings)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one", "add-remove"])
@pytest.mark.parametrize("prior", ["shifted", "same-population"])
def test_no_row_moves_a_release_further_than_its_noise_assumes(adjacency, prior):
    public, X, y = _population(4, n=120, n_public=200)
    relation = Adjacency.of(adjacency)
    params = {"adjacency": adjacency, "prior": prior, "n_rows": 120 if adjacency == "add-remove" else None}

    def fit(data, ledger):
        return PrivateTransferRegressor(3.0, 1e-5, **params).fit(*data, public=public, ledger=ledger)

    without = (X[1:], y[1:]) if adjacency == "add-remove" else (np.vstack([-3 * X[:1], X[1:]]), np.append(-9.0, y[1:]))
    if adjacency == "zero-out":
        without = np.vstack([np.full((1, 4), 1e200), X[1:]]), y  # too long to be a number: a null row
    furthest = 0.0
    for row in (np.full(4, 1e6), np.full(4, 2.0), np.array([1e3, -1e3, 0.0, 0.0])):
        for target in (-1e9, 0.0, 50.0):
            extreme = np.vstack([row, X[1:]]), np.append(target, y[1:])
            tape = audit.record(fit, extreme, adjacency=relation)
            played = audit.replay(fit, without, tape, adjacency=relation)
            multiplier = tape.entries[0].event.noise_multiplier
            for before, after in zip(tape.releases, played.releases, strict=True):
                bound = before.scale / multiplier
                moved = float(np.linalg.norm(before.value - after.value))
                assert moved <= bound * (1 + 1e-9)
                furthest = max(furthest, moved / bound)
    assert furthest > 0.5  # the rows do matter


def test_without_public_labels_it_is_the_plain_learner():
    public, X, y = _population(4, n=600, n_public=200)
    for given in (None, Public(public.X)):
        ours = PrivateTransferRegressor(random_state=0, target_bounds=(-2, 2)).fit(X, y, public=given)
        plain = PrivateLinearRegression(random_state=0, target_bounds=(-2, 2)).fit(X, y, public=given)
        assert np.array_equal(ours.coef_, plain.coef_)
        assert ours.predict(X) == pytest.approx(plain.predict(X))


def test_ordinary_rows_are_predicted_by_the_coefficients_and_long_ones_are_shortened():
    public, X, y = _population(4, n=600, n_public=200)
    model = PrivateTransferRegressor(random_state=0).fit(X, y, public=public)
    short = X * 0.3
    assert model.predict(short) == pytest.approx(short @ model.coef_ + model.intercept_)
    far = model.predict(X[:1] * 1e6)
    assert abs(far[0]) < 10


def test_columns_constant_in_public_and_few_public_rows_are_survived():
    public, X, y = _population(30, n=400, n_public=20)
    X_public = np.array(public.X)
    X_public[:, 3] = 1.0
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=Public(X_public, public.y))
    assert np.isfinite(model.coef_).all()
    assert model.coef_[3] == 0.0


def test_constant_public_labels_are_survived():
    public, X, y = _population(4, n=400, n_public=100)
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=Public(public.X, np.zeros(100)))
    assert np.isfinite(model.coef_).all()


def test_bad_options_are_named():
    public, X, y = _population(4, n=50, n_public=50)
    with pytest.raises(ValueError, match="prior must be one of"):
        PrivateTransferRegressor(prior="none").fit(X, y, public=public)
    with pytest.raises(ValueError, match="public labels are not finite"):
        PrivateTransferRegressor().fit(X, y, public=Public(public.X, np.full(50, np.nan)))


def test_blocks_cover_every_coordinate_once():
    for chosen in (np.arange(1), np.arange(2), np.arange(3), np.arange(40), np.array([0, 5, 6, 9]), np.arange(2, 9)):
        blocks = dyadic_blocks(chosen)
        assert sorted(np.concatenate(blocks)) == list(range(len(chosen)))


def test_prior_spreads_the_whole_shift():
    for d in (2, 3, 10, 400):
        assert 0.45 < shift_prior(d).sum() <= 1.1


def test_plans_are_made_without_private_rows():
    public, _, _ = _population(20, n=10, n_public=300)
    geometry = transfer_geometry(np.asarray(public.X), np.asarray(public.y))
    chosen, weights = choose_directions(geometry, n_rows=1000, noise_per_clip=0.1, n_steps=100, size=1.0)
    assert weights.max() == 1.0
    few, _ = choose_directions(geometry, n_rows=1000, noise_per_clip=10.0, n_steps=100, size=1.0)
    assert len(few) < len(chosen)
    common = {"n_steps": 100, "size": 1.0, "quantiles": (0.5, 0.97), "progress": (0.7, 15.0), "longest_step": 0.1}
    quiet, loud = (
        plan_stage(geometry, geometry.whitening[:, chosen], weights, noise_per_clip=n, **common) for n in (0.01, 1.0)
    )
    assert quiet.clip_norm >= loud.clip_norm
    assert quiet.step >= loud.step


def test_gate_shuts_on_noise_and_opens_on_signal():
    random = np.random.default_rng(1)
    blocks = dyadic_blocks(np.arange(60))
    variance = np.full(60, 1e-3)
    losses = []
    for _ in range(200):
        noise = random.standard_normal(60) * np.sqrt(variance)
        losses.append(np.sum((transfer_gate.keep(noise, variance, blocks, error=1.0).factors * noise) ** 2))
    assert np.mean(losses) < 0.004
    shift = np.zeros(60)
    shift[:10] = 0.3
    kept = transfer_gate.keep(shift + noise, variance, blocks, error=1.0)
    assert np.all(kept.factors[:10] > 0.7)
    assert kept.established > 0.5


def test_forecast_says_when_to_stay_at_home():
    public, _, _ = _population(10, n=10, n_public=300)
    hopeless = forecast(public, 20, 0.1)
    assert not hopeless.worthwhile
    assert "nothing spent" in str(hopeless)
    good = forecast(public, 10_000, 4.0)
    assert good.opens_at < 0.2
    assert good.error_ratios[-1] < 0.6
    assert good.error_ratios[0] <= 1.01
    assert "can't say" in str(good)
    with pytest.raises(ValueError, match="labels"):
        forecast(Public(public.X), 100)
