import math

import numpy as np
import pandas as pd
import pytest

from dpadapt import Adjacency, BudgetExceeded, Ledger, PrivateLinearRegression, Public, audit
from dpadapt.accounting.closed_forms import gaussian_mu
from dpadapt.datasets import bundled
from dpadapt.transfer import gate
from dpadapt.transfer.regression import PrivateTransferRegressor
from dpadapt.transfer.regression_plan import (
    RELEASES,
    transfer_geometry,
)


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


CELLS = [(50, 4.0), (100, 1.0), (300, 1.0), (1000, 0.5), (1000, 10.0)]


def _worst_harm(d=50, seeds=8):
    """Largest error over that of the public model, over the cells, where there is nothing to gain."""
    population = _population(d)
    errors = [_errors(*population, n, epsilon, seeds) for n, epsilon in CELLS]
    return max(private / public for private, public in errors)


def test_without_a_shift_the_model_is_no_worse_than_the_public_one():
    assert _worst_harm() <= 1.01


def _open_gate(change, variance, blocks, *, error, established=0.0):
    return gate.Kept(np.ones(len(change)), established)


def _overconfident_gate(change, variance, blocks, *, error, established=0.0):
    return gate.keep(change, variance / 10, blocks, error=error, established=established)


@pytest.mark.parametrize("gate", [_open_gate, _overconfident_gate])
def test_an_over_confident_gate_fails_the_same_check(monkeypatch, gate):
    monkeypatch.setattr("dpadapt.transfer.regression_fit.keep", gate)
    assert _worst_harm(seeds=3) > 1.01


@pytest.mark.parametrize("domains", [bundled.randhie_by_plan, bundled.randhie_by_health])
@pytest.mark.parametrize(("n", "epsilon"), [(100, 4.0), (300, 1.0), (1000, 1.0)])
def test_visits_to_a_doctor_are_predicted_no_worse_than_by_the_public_model(domains, n, epsilon):
    found = domains()
    X, y = (np.asarray(part, dtype=float) for part in found.target)
    order = np.random.default_rng(2).permutation(len(y))
    private, public = _errors(Public(*found.source), X[order], y[order], n, epsilon, 6)
    assert private <= 1.015 * public


def test_a_public_model_of_the_wrong_sign_is_corrected():
    private, public = _errors(*_population(200, flip=True), 1000, 4.0, 3)
    assert private < 0.15 * public


def test_a_shifted_level_is_corrected_with_few_rows():
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


@pytest.mark.parametrize("prior", ["shifted", "same-population"])
@pytest.mark.parametrize(("d", "epsilon", "delta"), [(5, 0.7, 1e-5), (5, 8.0, 1e-2), (60, 1.0, 1e-6), (400, 2.0, 1e-3)])
def test_the_receipt_spends_the_planned_budget_and_never_more(prior, d, epsilon, delta):
    public, X, y = _population(d, n=500, n_public=300)
    model = PrivateTransferRegressor(epsilon, delta, prior=prior, random_state=0).fit(X, y, public=public)
    spent = math.sqrt(sum(e.times / e.event.noise_multiplier**2 for e in model.privacy_.entries))
    assert spent == pytest.approx(gaussian_mu(epsilon, delta), rel=1e-9)
    assert model.privacy_.epsilon <= epsilon
    if prior == "shifted":
        times = [e.times for e in model.privacy_.entries]
        assert [t for t, part in zip(times, RELEASES, strict=True) if part != "correction"] == [
            t for part, t in RELEASES.items() if part != "correction"
        ]


def test_too_small_a_cap_raises_before_any_draw():
    public, X, y = _population(5, n=500, n_public=300)
    ledger = Ledger(epsilon=0.5, delta=1e-5)
    drawn = []
    ledger._draw = lambda *release: drawn.append(release)
    with pytest.raises(BudgetExceeded):
        PrivateTransferRegressor(1.0, 1e-5).fit(X, y, public=public, ledger=ledger)
    assert drawn == []
    assert ledger.entries == []


def test_a_budget_that_is_too_small_gives_exactly_the_public_model():
    public, X, y = _population(5, n=500, n_public=300)
    geometry = transfer_geometry(np.asarray(public.X), np.asarray(public.y))
    model = PrivateTransferRegressor(1e-4, 1e-9).fit(X, y, public=public)
    coef, intercept = geometry.coefficients(geometry.solution)
    assert np.array_equal(model.coef_, coef)
    assert model.intercept_ == intercept
    assert model.privacy_.epsilon == 0.0
    assert any("nothing was spent" in text for text in model.privacy_.warnings)
    assert model.adopted_ == 0.0


def test_a_shut_gate_gives_exactly_the_public_model_and_the_receipt_says_so():
    public, X, y = _population(50)
    params = {"adjacency": "replace-one", "random_state": 1}
    model = PrivateTransferRegressor(1.0, 0.01, **params).fit(X[:200], y[:200], public=public)
    alone = PrivateTransferRegressor(1e-6, 1e-12).fit(X[:200], y[:200], public=public)
    assert model.adopted_ == 0.0
    assert np.array_equal(model.coef_, alone.coef_)
    assert model.privacy_.epsilon > 0.9
    assert any("nothing was adopted" in text for text in model.privacy_.warnings)


def test_an_open_gate_adopts_a_positive_share_and_the_receipt_has_no_warning():
    public, X, y = _population(20, flip=True)
    model = PrivateTransferRegressor(4.0, 0.01, random_state=0).fit(X[:1000], y[:1000], public=public)
    assert 0.5 < model.adopted_ <= 1.0
    assert not any("nothing" in text for text in model.privacy_.warnings)
    for given, share in ((None, 1.0), (Public(public.X), 1.0)):
        assert PrivateTransferRegressor(random_state=0).fit(X, y, public=given).adopted_ == share


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
            multipliers = [e.event.noise_multiplier for e in tape.entries for _ in range(e.times)]
            for before, after, multiplier in zip(tape.releases, played.releases, multipliers, strict=True):
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


def test_columns_constant_in_public_are_left_out():
    public, X, y = _population(30, n=400, n_public=200)
    X_public = np.array(public.X)
    X_public[:, 3] = 1.0
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=Public(X_public, public.y))
    assert np.isfinite(model.coef_).all()
    assert model.coef_[3] == 0.0


def test_columns_constant_in_private_do_no_harm():
    public, X, y = _population(10, n=400, n_public=200)
    X[:, 3] = 5.0
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=public)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("prior", ["shifted", "same-population"])
@pytest.mark.parametrize("n_public", [2, 20])
def test_fewer_public_rows_than_features_suffice(prior, n_public):
    public, X, y = _population(30, n=400, n_public=n_public)
    model = PrivateTransferRegressor(4.0, prior=prior, random_state=0).fit(X, y, public=public)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("epsilon", [1.0, 1000.0])
def test_a_few_private_rows_are_accepted(n, epsilon):
    public, X, y = _population(4, n=n, n_public=100)
    model = PrivateTransferRegressor(epsilon, random_state=0).fit(X, y, public=public)
    assert np.isfinite(model.coef_).all()
    if epsilon == 1.0:
        assert (model.privacy_.epsilon, model.adopted_) == (0.0, 0.0)


def test_columns_that_differ_are_named_before_anything_is_spent():
    public, X, y = _population(4, n=400, n_public=100)
    ledger = Ledger(epsilon=2.0, delta=1e-5)
    with pytest.raises(ValueError, match="public must have the private data's 4 columns, got 3"):
        PrivateTransferRegressor().fit(X, y, public=Public(np.asarray(public.X)[:, :3], public.y), ledger=ledger)
    frame, other = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame(public.X, columns=list("abce"))
    with pytest.raises(ValueError, match="public has e and lacks d"):
        PrivateTransferRegressor().fit(frame, y, public=Public(other, public.y), ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused_without_showing_them(bad):
    public, X, y = _population(4, n=400, n_public=100)
    ledger = Ledger(epsilon=2.0, delta=1e-5)
    broken = X.copy()
    broken[77, 2] = bad
    with pytest.raises(ValueError, match="X contains") as refusal:
        PrivateTransferRegressor().fit(broken, y, public=public, ledger=ledger)
    assert "77" not in str(refusal.value)
    with pytest.raises(ValueError, match="public X contains"):
        PrivateTransferRegressor().fit(X, y, public=Public(broken, y), ledger=ledger)
    assert ledger.entries == []


def test_rows_too_long_for_a_float_leave_finite_coefficients():
    public, X, y = _population(4, n=400, n_public=100)
    X[5], y[6] = 1e300, 1e300
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=public)
    assert np.isfinite(model.coef_).all()


def test_constant_public_labels_leave_finite_coefficients():
    public, X, y = _population(4, n=400, n_public=100)
    model = PrivateTransferRegressor(4.0, random_state=0).fit(X, y, public=Public(public.X, np.zeros(100)))
    assert np.isfinite(model.coef_).all()


def test_bad_options_are_named():
    public, X, y = _population(4, n=50, n_public=50)
    with pytest.raises(ValueError, match="prior must be one of"):
        PrivateTransferRegressor(prior="none").fit(X, y, public=public)
    with pytest.raises(ValueError, match="public y must be finite"):
        PrivateTransferRegressor().fit(X, y, public=Public(public.X, np.full(50, np.nan)))


@pytest.mark.parametrize("prior", ["shifted", "same-population"])
def test_public_model_equals_a_fit_without_budget(prior):
    public, X, y = _population(5, n=500, n_public=300)
    y = y + 1.0
    model = PrivateTransferRegressor(3.0, 1e-5, prior=prior, random_state=0).fit(X, y, public=public)
    nothing = PrivateTransferRegressor(1e-9, 1e-15, prior=prior).fit(X, y, public=public)
    assert np.array_equal(model.public_only().predict(X), nothing.predict(X))
    assert not np.array_equal(model.public_only().predict(X), model.predict(X))
    assert model.fit(X, y).public_only() is None


def test_the_public_model_is_a_copy_and_old_models_have_none():
    public, X, y = _population(5, n=500, n_public=300)
    model = PrivateTransferRegressor(3.0, 1e-5, random_state=0).fit(X, y + 1.0, public=public)
    model.public_only().coef_[0] = 77.0
    assert model.public_coef_[0] != 77.0
    del model.public_coef_
    assert model.public_only() is None
