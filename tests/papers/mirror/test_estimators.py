"""The estimators of the mirror-descent paper: noise, sensitivity, accuracy, bad input."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, PrivacyError, Public, audit
from dpadapt.accounting.closed_forms import gaussian_epsilon
from dpadapt.papers.mirror.base import paper_noise_multiplier
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor
from dpadapt.papers.mirror.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from dpadapt.papers.mirror.mean import PDADPMDMean

REGRESSORS = [PDADPMDRegressor, PrivateGradientDescentRegressor]
CLASSIFIERS = [PDADPMDClassifier, PrivateGradientDescentClassifier]
every_estimator = pytest.mark.parametrize("estimator", REGRESSORS + CLASSIFIERS, ids=lambda e: e.__name__)


def data(estimator, n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    score = X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)
    return X, score if estimator in REGRESSORS else (score > 0).astype(int)


def public_for(estimator, n=80):
    return Public(*data(estimator, n=n, seed=1))


@every_estimator
@pytest.mark.parametrize("steps", [1, 7, 60])
def test_noise_is_what_the_receipt_says_it_is(estimator, steps):
    ledger = Ledger(epsilon=5.0, delta=1e-6)
    drawn = []
    draw = ledger._draw
    ledger._draw = lambda m, b, scale, r: drawn.append(scale / b.l2) or draw(m, b, scale, r)
    model = estimator(0.8, 1e-6, n_steps=steps, random_state=0)
    model.fit(*data(estimator), public=public_for(estimator), ledger=ledger)
    mu = math.sqrt(sum(1 / s**2 for s in drawn))
    assert len(drawn) == steps
    assert model.privacy_.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-6))
    assert model.privacy_.epsilon == pytest.approx(0.8, rel=1e-6)
    model.privacy_.verify()


@pytest.mark.parametrize("estimator", [PDADPMDRegressor, PDADPMDClassifier, PDADPMDMean], ids=lambda e: e.__name__)
def test_the_papers_noise_costs_less_than_it_claims_and_the_receipt_says_so(estimator):
    X, y = data(estimator if estimator is not PDADPMDMean else PDADPMDRegressor, n=4000)
    model = estimator(1.0, 1e-5, noise="paper", n_steps=9, random_state=0).fit(X, y, public=Public(X[:50] + 0, y[:50]))
    assert model.privacy_.epsilon == pytest.approx(0.3563, abs=1e-4)
    event = model.privacy_.entries[0].event
    assert event.noise_multiplier == pytest.approx(math.sqrt(8 * 9 * math.log(1e5)))
    assert any("0.3563" in text for text in model.privacy_.warnings)


def test_the_papers_noise_is_refused_where_its_claim_is_false():
    true_up_to = 8 * math.log(1e5)
    paper_noise_multiplier(true_up_to, 1e-5)
    with pytest.raises(PrivacyError, match="exact"):
        paper_noise_multiplier(1.3 * true_up_to, 1e-5)
    ledger = Ledger(epsilon=1e4, delta=1e-5)
    with pytest.raises(PrivacyError, match="noise='paper'"):
        PDADPMDRegressor(150.0, 1e-5, noise="paper").fit(*data(PDADPMDRegressor), ledger=ledger)
    assert ledger.entries == []


VARIANTS = [
    (PDADPMDRegressor, {"step": "first-order"}),
    (PDADPMDRegressor, {"radius": 0.3, "average": "tail"}),
    (PDADPMDClassifier, {"step": "first-order"}),
    (PDADPMDClassifier, {"radius": 0.3}),
    (PrivateGradientDescentRegressor, {"whiten": True}),
    (PrivateGradientDescentClassifier, {"whiten": True, "start": "cold"}),
]


@pytest.mark.parametrize(("estimator", "params"), VARIANTS, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_record_moves_a_release_further_than_its_noise_assumes_and_nothing_else_leaks(estimator, params, adjacency):
    X, y = data(estimator, n=200)
    params = {**params, "adjacency": adjacency, "n_rows": 200 if adjacency == "add-remove" else None, "n_steps": 6}
    public = public_for(estimator)
    relation = Adjacency.of(adjacency)

    def fit(rows, ledger):
        return estimator(2.0, 1e-5, **params).fit(*rows, public=public, ledger=ledger)

    furthest = 0.0
    for row, label in ((np.full(5, 1e6), y[0]), (np.array([-9.0, 0, 9, 0, 0]), 1 - y[0])):
        extreme = np.vstack([row, X[1:]]), np.append(label, y[1:])
        other = (X[1:], y[1:]) if adjacency == "add-remove" else (X, y)
        tape = audit.record(fit, extreme, adjacency=relation)
        played = audit.replay(fit, other, tape, adjacency=relation)
        for before, after in zip(tape.releases, played.releases, strict=True):
            bound = before.scale / tape.entries[0].event.noise_multiplier
            moved = np.linalg.norm(before.value - after.value)
            assert moved <= bound * (1 + 1e-9)
            furthest = max(furthest, moved / bound)
        assert audit.leaks(lambda: estimator(2.0, 1e-5, **params), extreme, other, public=public) == []
    assert furthest > 0.2  # the records do matter


def test_poisson_batches_are_charged_as_sampled():
    X, y = data(PDADPMDRegressor, n=2000)
    model = PrivateGradientDescentRegressor(1.0, 1e-5, batch_size=400, n_steps=10, random_state=0)
    model.fit(X, y, public=public_for(PDADPMDRegressor))
    assert model.privacy_.entries[0].event.rate == pytest.approx(0.2)
    assert 0.99 < model.privacy_.epsilon <= 1.0


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


@pytest.mark.parametrize("estimator", [PDADPMDRegressor, PDADPMDClassifier])
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


@pytest.mark.parametrize("estimator", [PDADPMDRegressor, PDADPMDClassifier, PDADPMDMean], ids=lambda e: e.__name__)
@pytest.mark.parametrize("kind", ["few rows", "collinear", "constant column"])
def test_awkward_public_rows_still_give_a_finite_model(estimator, kind):
    X, y = data(PDADPMDClassifier if estimator is PDADPMDClassifier else PDADPMDRegressor, n=2000, d=30)
    X_public, y_public = X[:12].copy(), y[:12].copy()
    if kind != "few rows":
        X_public, y_public = X[:100].copy(), y[:100].copy()
        X_public[:, 1] = X_public[:, 0] if kind == "collinear" else 3.0
    model = estimator(random_state=0).fit(X[200:], y[200:], public=Public(X_public, y_public))
    assert np.isfinite(model.mean_ if estimator is PDADPMDMean else model.coef_).all()


def test_a_singular_hessian_without_ridge_is_refused_before_anything_is_spent():
    X, y = data(PDADPMDRegressor, d=30)
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    for estimator in (PDADPMDRegressor, PDADPMDMean):
        with pytest.raises(ValueError, match="ridge"):
            estimator(ridge=0.0).fit(X, y, public=Public(X[:12] + 0, y[:12]), ledger=ledger)
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


def test_what_needs_public_data_says_so():
    X, y = data(PDADPMDRegressor)
    with pytest.raises(ValueError, match="public labels"):
        PDADPMDRegressor(step="first-order").fit(X, y, public=Public(X[:50] + 0))
    with pytest.raises(ValueError, match="whiten by"):
        PrivateGradientDescentRegressor(whiten=True).fit(X, y)
    with pytest.raises(ValueError, match="start must be one of"):
        PrivateGradientDescentRegressor(start="hot").fit(X, y)
    with pytest.raises(ValueError, match="all alike"):
        PDADPMDMean().fit(X, public=Public(np.ones((9, 5))))


def test_defaults_come_from_public_data_alone():
    X, y = data(PDADPMDRegressor)
    public = public_for(PDADPMDRegressor)
    first = PDADPMDRegressor(random_state=0).fit(X, y, public=public)
    second = PDADPMDRegressor(random_state=0).fit(1e3 * X, -1e4 * y, public=public)
    assert (first.clip_norm_, first.learning_rate_) == (second.clip_norm_, second.learning_rate_)
    assert np.isfinite(second.coef_).all()


def test_float32_rows_are_used_as_they_are():
    X, y = data(PDADPMDRegressor, n=3000)
    public = public_for(PDADPMDRegressor)
    double, single = (PDADPMDRegressor(random_state=0).fit(X.astype(t), y, public=public) for t in ("f8", "f4"))
    assert np.allclose(double.coef_, single.coef_, atol=1e-3)


@pytest.mark.parametrize("estimator", REGRESSORS)
def test_an_extreme_record_in_single_precision_raises_no_warning(estimator):
    X, y = data(estimator)
    X, y = X.astype(np.float32), y.copy()
    X[3], y[4] = 1e30, 1e300
    assert np.isfinite(estimator(random_state=0).fit(X, y, public=public_for(estimator)).coef_).all()
