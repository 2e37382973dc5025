"""`PDADPMDRegressor` and `PDADPMDClassifier`: accuracy, limiting cases, bad input."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, Public
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor
from dpadapt.papers.mirror.gradient_descent import PrivateGradientDescentRegressor

REGRESSORS = [PDADPMDRegressor, PrivateGradientDescentRegressor]
both = pytest.mark.parametrize("estimator", [PDADPMDRegressor, PDADPMDClassifier], ids=lambda e: e.__name__)


def data(estimator, n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    score = X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)
    return X, score if estimator in REGRESSORS else (score > 0).astype(int)


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


def test_first_order_steps_that_diverge_are_refused_before_anything_is_spent():
    X, y = data(PDADPMDRegressor)
    ledger = Ledger(epsilon=9.0, delta=1e-5)
    model = PDADPMDRegressor(step="first-order", learning_rate=1e6, random_state=0)
    with pytest.raises(ValueError, match="learning_rate must be smaller"):
        model.fit(X, y, public=public_for(PDADPMDRegressor), ledger=ledger)
    assert ledger.entries == []


def test_without_noise_the_exact_step_reaches_the_private_optimum():
    X, y = data(PDADPMDRegressor, n=3000)
    model = PDADPMDRegressor(1e6, 0.1, clip_norm=1e3, learning_rate=None, n_steps=200, average="last", random_state=0)
    model.fit(X, y, public=public_for(PDADPMDRegressor))
    wanted = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    assert np.allclose(np.append(model.coef_, model.intercept_), wanted, atol=1e-3)


@both
def test_private_rows_improve_on_the_public_model(estimator):
    X, y = data(estimator, n=6000)
    X_test, y_test = data(estimator, n=4000, seed=7)
    public = public_for(estimator, n=40)
    alone = estimator(1e-6, 1e-12).fit(X, y, public=public).score(X_test, y_test)
    assert estimator(1.0, 1e-6, random_state=0).fit(X, y, public=public).score(X_test, y_test) > alone


def test_exact_step_beats_warm_descent_on_uneven_features():
    random = np.random.default_rng(0)
    p = 60
    scales = np.logspace(0, -1.5, p)
    coef = random.standard_normal(p) / scales / p
    X, X_public = (random.standard_normal((n, p)) * scales for n in (8000, 150))
    y, y_public = (part @ coef + 0.3 * random.standard_normal(len(part)) for part in (X, X_public))
    public = Public(X_public, y_public)
    shared = {"standardise": False, "fit_intercept": False, "random_state": 0}
    errors = [
        np.sum((scales * (make(1.0, 1e-5, **shared).fit(X, y, public=public).coef_ - coef)) ** 2)
        for make in (PDADPMDRegressor, PrivateGradientDescentRegressor)
    ]
    assert errors[0] < errors[1]


def test_a_ball_keeps_the_model_near_the_public_one():
    X, y = data(PDADPMDRegressor)
    public = public_for(PDADPMDRegressor)
    plain = {"standardise": False, "fit_intercept": False, "random_state": 0}
    alone = PDADPMDRegressor(1e-6, 1e-12, **plain).fit(X, y, public=public)
    near = PDADPMDRegressor(radius=0.01, **plain).fit(X, -y, public=public)
    far = PDADPMDRegressor(**plain).fit(X, -y, public=public)
    assert np.linalg.norm(near.coef_ - alone.coef_) <= 0.01 * (1 + 1e-9)
    assert np.linalg.norm(far.coef_ - alone.coef_) > 0.05


@both
@pytest.mark.parametrize("kind", ["few rows", "collinear", "constant column"])
def test_awkward_public_rows_still_give_a_finite_model(estimator, kind):
    X, y = data(estimator, n=2000, d=30)
    X_public, y_public = X[:12].copy(), y[:12].copy()
    if kind != "few rows":
        X_public, y_public = X[:100].copy(), y[:100].copy()
        X_public[:, 1] = X_public[:, 0] if kind == "collinear" else 3.0
    model = estimator(random_state=0).fit(X[200:], y[200:], public=Public(X_public, y_public))
    assert np.isfinite(model.coef_).all()


def test_a_singular_hessian_without_ridge_is_refused_before_anything_is_spent():
    X, y = data(PDADPMDRegressor, d=30)
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=r"singular.*ridge"):
        PDADPMDRegressor(ridge=0.0).fit(X, y, public=Public(X[:12] + 0, y[:12]), ledger=ledger)
    with pytest.raises(ValueError, match="may not exist"):
        PDADPMDClassifier(ridge=0.0).fit(X, y > 0, public=Public(X[:12] + 0, y[:12] > 0), ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"step": "second"}, "step must be one of"),
        ({"noise": "none"}, "noise must be one of"),
        ({"average": "mean"}, "average must be one of"),
        ({"n_steps": 0}, "n_steps must be a whole number"),
        ({"clip_norm": -1.0}, "clip_norm must be a positive number"),
        ({"learning_rate": math.nan}, "learning_rate must be a positive number"),
        ({"radius": 0.0}, "radius must be a positive number"),
        ({"ridge": -0.1}, "ridge must be a number of at least 0"),
        ({"schedule_steps": 1.5}, "schedule_steps must be a whole number"),
        ({"target_bounds": (1, 0)}, "target_bounds must be a pair"),
        ({"step": "first-order", "radius": 1.0}, "radius is for step='exact'"),
    ],
)
def test_bad_parameters_are_named_and_nothing_is_spent(params, text):
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=text):
        PDADPMDRegressor(**params).fit(*data(PDADPMDRegressor), public=public_for(PDADPMDRegressor), ledger=ledger)
    assert ledger.entries == []


def test_the_first_order_step_needs_public_labels():
    X, y = data(PDADPMDRegressor)
    with pytest.raises(ValueError, match="public labels"):
        PDADPMDRegressor(step="first-order").fit(X, y, public=Public(X[:50] + 0))


def test_defaults_come_from_public_data_alone():
    X, y = data(PDADPMDRegressor)
    public = public_for(PDADPMDRegressor)
    first = PDADPMDRegressor(random_state=0).fit(X, y, public=public)
    second = PDADPMDRegressor(random_state=0).fit(1e3 * X, -1e4 * y, public=public)
    assert (first.clip_norm_, first.learning_rate_) == (second.clip_norm_, second.learning_rate_)
    assert np.isfinite(second.coef_).all()


def test_float32_rows_give_the_model_of_float64_rows():
    X, y = data(PDADPMDRegressor, n=3000)
    public = public_for(PDADPMDRegressor)
    double, single = (PDADPMDRegressor(random_state=0).fit(X.astype(t), y, public=public) for t in ("f8", "f4"))
    assert np.allclose(double.coef_, single.coef_, atol=1e-3)
