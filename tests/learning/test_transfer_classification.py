import gc
import weakref

import numpy as np
import pytest
from sklearn.metrics import log_loss

from dpadapt import BudgetExceeded, Ledger, PrivateLogisticRegression, Public
from dpadapt.datasets.bundled import digits, fair_by_age
from dpadapt.learning import transfer_classification_public
from dpadapt.learning.transfer_classification import PrivateTransferClassifier

random = np.random.default_rng(12)
X = random.uniform(-1, 1, (4000, 4))
score = 3 * (X @ [1.0, -1.0, 0.5, 0.0]) + 0.5
y = (random.random(4000) < 1 / (1 + np.exp(-score))).astype(int)
X_public = random.uniform(-1, 1, (300, 4))
y_public = (X_public @ [1.0, 1.0, 0.5, 0.0] > 0.2).astype(int)
three = np.digitize(score, [-1.0, 1.0])


def _public_only(public, X=X, y=y, **params):
    model = PrivateTransferClassifier(1e-6, 1e-12, random_state=0, **params).fit(X, y, public=public)
    assert model.privacy_.epsilon == 0.0
    return model


def test_private_rows_correct_a_shifted_public_model():
    public = Public(X_public, y_public)
    alone = _public_only(public)
    model = PrivateTransferClassifier(random_state=0).fit(X, y, public=public)
    assert model.adopted_ > 0.5
    assert log_loss(y, model.predict_proba(X)) < 0.6 * log_loss(y, alone.predict_proba(X))


def test_refused_change_leaves_the_public_model_to_the_last_bit():
    right = Public(X[:2000], y[:2000])
    alone = _public_only(right)
    models = [
        PrivateTransferClassifier(0.1, random_state=s).fit(X[2000:2500], y[2000:2500], public=right) for s in range(8)
    ]
    refused = [model for model in models if model.adopted_ == 0.0]
    assert len(refused) >= 6
    for model in refused:
        assert np.array_equal(model.coef_, alone.coef_)
        assert np.array_equal(model.intercept_, alone.intercept_)
        assert model.privacy_.epsilon == pytest.approx(0.1, rel=1e-6)


def test_one_charge_up_front_for_steps_and_gate():
    ledger = Ledger(epsilon=5.0, delta=1e-6)
    PrivateTransferClassifier(random_state=0).fit(X, y, public=Public(X_public, y_public), ledger=ledger)
    assert [entry.label.rsplit(": ", 1)[-1] for entry in ledger.entries] == ["gradient", "gate"]
    small, drawn = Ledger(epsilon=0.99, delta=1e-6), []
    small._draw = lambda *release: drawn.append(release)
    with pytest.raises(BudgetExceeded):
        PrivateTransferClassifier().fit(X, y, public=Public(X_public, y_public), ledger=small)
    assert drawn == []
    assert small.entries == []


def test_unlabelled_public_data_has_no_gate():
    ledger = Ledger(epsilon=5.0, delta=1e-6)
    model = PrivateTransferClassifier(random_state=0, classes=[0, 1]).fit(X, y, public=Public(X_public), ledger=ledger)
    assert len(ledger.entries) == 1
    assert model.adopted_ == 1.0
    assert model.score(X, y) > 0.75


def test_without_public_data_it_is_the_plain_learner():
    ours = PrivateTransferClassifier(random_state=3).fit(X, y)
    plain = PrivateLogisticRegression(random_state=3).fit(X, y)
    assert np.array_equal(ours.coef_, plain.coef_)
    assert ours.privacy_.epsilon == pytest.approx(plain.privacy_.epsilon)


@pytest.mark.parametrize("labels", [y, three, np.array(["no", "yes"])[y]], ids=["binary", "three", "strings"])
def test_shapes_and_probabilities(labels):
    public = Public(X[:300], labels[:300])
    model = PrivateTransferClassifier(random_state=0).fit(X, labels, public=public)
    k = len(np.unique(labels))
    proba = model.predict_proba(X)
    assert proba.shape == (4000, k)
    assert np.allclose(proba.sum(axis=1), 1.0)
    assert model.coef_.shape == (1 if k == 2 else k, 4)
    assert np.array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    assert model.decision_function(X).shape == ((4000,) if k == 2 else (4000, k))


def test_rare_class_is_left_alone_by_a_right_public_model():
    rare = (random.random(4000) < 1 / (1 + np.exp(-(score - 6.0)))).astype(int)
    public = Public(X[:2000], rare[:2000])
    alone = _public_only(public, y=rare)
    losses = []
    for seed in range(6):
        model = PrivateTransferClassifier(1.0, random_state=seed).fit(X[2000:], rare[2000:], public=public)
        losses.append(log_loss(rare, model.predict_proba(X)))
    assert np.mean(losses) < 1.01 * log_loss(rare, alone.predict_proba(X))


def test_no_harm_on_real_data_at_small_budgets():
    domains = fair_by_age()
    X_all, y_all = np.asarray(domains.target.X, float), np.asarray(domains.target.y)
    public = Public(np.asarray(domains.source.X, float), np.asarray(domains.source.y))
    order = np.random.default_rng(0).permutation(len(y_all))
    test, train = order[:1000], order[1000:]
    reference = _public_only(public, X_all[train], y_all[train]).predict_proba(X_all[test])
    for n, epsilon in ((50, 1.0), (100, 0.5), (300, 0.1), (300, 1.0)):
        losses = [
            log_loss(
                y_all[test],
                PrivateTransferClassifier(epsilon, 1e-5, random_state=seed)
                .fit(X_all[train[:n]], y_all[train[:n]], public=public)
                .predict_proba(X_all[test]),
            )
            for seed in range(8)
        ]
        assert np.mean(losses) <= 1.01 * log_loss(y_all[test], reference)


def test_ten_classes_with_unlabelled_public_features_beat_the_plain_learner():
    arrays = digits().arrays
    X_digits, y_digits = arrays["X"].reshape(len(arrays["y"]), -1).astype(float), arrays["y"]
    public = Public(X_digits[:600])
    scores = [
        learner(4.0, 1e-4, classes=range(10), random_state=0)
        .fit(X_digits[600:], y_digits[600:], public=public)
        .score(X_digits[600:], y_digits[600:])
        for learner in (PrivateTransferClassifier, PrivateLogisticRegression)
    ]
    assert scores[0] > max(0.8, scores[1])


def test_same_population_adopts_small_corrections():
    public = Public(X[:150], y[:150])
    alone = log_loss(y, _public_only(public).predict_proba(X))
    losses = [
        log_loss(
            y,
            PrivateTransferClassifier(0.5, prior="same-population", random_state=s)
            .fit(X[150:], y[150:], public=public)
            .predict_proba(X),
        )
        for s in range(5)
    ]
    assert np.mean(losses) < alone
    with pytest.raises(ValueError, match="prior must be one of"):
        PrivateTransferClassifier(prior="guess").fit(X, y, public=public)


def test_public_preparation_is_remembered_as_long_as_the_object_lives(monkeypatch):
    made = []
    real = transfer_classification_public.prepare
    monkeypatch.setattr(transfer_classification_public, "prepare", lambda *a: made.append(1) or real(*a))
    public = Public(X_public, y_public)
    for seed in range(3):
        PrivateTransferClassifier(random_state=seed).fit(X, y, public=public)
    assert len(made) == 1
    public.y = y_public.copy()
    PrivateTransferClassifier(random_state=0).fit(X, y, public=public)
    assert len(made) == 2
    gone = weakref.ref(public)
    del public
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_awkward_public_data_is_survived(dtype):
    wide = random.standard_normal((12, 30)).astype(dtype)  # fewer public rows than features, one column constant
    wide[:, 3] = 1.0
    private = random.standard_normal((500, 30)).astype(dtype)
    labels = (private[:, 0] > 0).astype(int)
    for codes in (np.arange(12) % 2, np.zeros(12, int)):  # the second lacks a class
        model = PrivateTransferClassifier(random_state=0, classes=[0, 1]).fit(
            private, labels, public=Public(wide, codes)
        )
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.predict_proba(private)).all()


def test_few_private_rows_return_the_public_model():
    public = Public(X_public, y_public)
    model = PrivateTransferClassifier(random_state=0).fit(X[:5], [0, 1, 0, 1, 1], public=public)
    assert np.array_equal(model.coef_, _public_only(public).coef_)
    assert any("nothing was spent" in text for text in model.privacy_.warnings)
