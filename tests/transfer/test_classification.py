import gc
import weakref

import numpy as np
import pytest
from sklearn.metrics import log_loss

from dpadapt import PrivateLogisticRegression, Public
from dpadapt.datasets.bundled import digits, fair_by_age
from dpadapt.transfer import classification_plan
from dpadapt.transfer.classification import PrivateTransferClassifier

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


def test_a_shut_gate_gives_exactly_the_public_model():
    right = Public(X[:2000], y[:2000])
    alone = _public_only(right)
    models = [
        PrivateTransferClassifier(0.1, random_state=s).fit(X[2000:2500], y[2000:2500], public=right) for s in range(8)
    ]
    refused = [model for model in models if model.adopted_ == 0.0]
    assert len(refused) >= 2  # nothing is to be gained, so about half of the estimates are not positive
    for model in refused:
        assert np.array_equal(model.coef_, alone.coef_)
        assert np.array_equal(model.intercept_, alone.intercept_)
        assert model.privacy_.epsilon == pytest.approx(0.1, rel=1e-6)


def test_a_correct_public_model_with_a_rare_class_is_not_changed():
    rare = (random.random(4000) < 1 / (1 + np.exp(-(score - 6.0)))).astype(int)
    public = Public(X[:2000], rare[:2000])
    alone = _public_only(public, y=rare)
    losses = []
    for seed in range(4):
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
    for n, epsilon in ((50, 1.0), (100, 0.5), (300, 0.1)):
        losses = [
            log_loss(
                y_all[test],
                PrivateTransferClassifier(epsilon, 1e-5, random_state=seed)
                .fit(X_all[train[:n]], y_all[train[:n]], public=public)
                .predict_proba(X_all[test]),
            )
            for seed in range(5)
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


@pytest.mark.parametrize("public_model", [None, "linear"], ids=["blend", "linear"])
def test_public_preparation_is_remembered_until_its_content_changes(monkeypatch, public_model):
    made = []
    real = classification_plan.prepare
    monkeypatch.setattr(classification_plan, "prepare", lambda *a: made.append(1) or real(*a))
    rows, labels = X_public.copy(), y_public.copy()
    public = Public(rows, labels)
    before = [
        PrivateTransferClassifier(public_model=public_model, random_state=0).fit(X, y, public=public).coef_
        for _ in range(2)
    ]
    assert len(made) == 1
    assert np.array_equal(*before)
    rows[:, 0] *= -1.0  # in place: the object is the same
    after = PrivateTransferClassifier(public_model=public_model, random_state=0).fit(X, y, public=public).coef_
    assert len(made) == 2
    assert not np.array_equal(after, before[0])
    labels[:] = 1 - labels
    PrivateTransferClassifier(public_model=public_model, random_state=0).fit(X, y, public=public)
    assert len(made) == 3
    gone = weakref.ref(public)
    del public
    gc.collect()
    assert gone() is None


def test_few_public_rows_or_one_class_give_a_linear_model_and_the_receipt_says_so():
    few, one = Public(X_public[:49], y_public[:49]), Public(X_public, np.zeros(len(X_public), dtype=int))
    for public in (few, one):
        model = PrivateTransferClassifier(classes=[0, 1], random_state=0).fit(X, y, public=public)
        assert model.public_base_ is None
        assert any("the public model is linear" in text for text in model.privacy_.warnings)
    enough = PrivateTransferClassifier(classes=[0, 1], random_state=0).fit(X, y, public=Public(X_public, y_public))
    assert len(enough.public_base_.models) == 2
    assert not any("linear" in text for text in enough.privacy_.warnings)


def test_receipt_says_that_the_gate_stayed_shut(monkeypatch):
    public = Public(X_public, y_public)
    opened = PrivateTransferClassifier(random_state=0).fit(X, y, public=public)
    assert not any("gate" in text for text in opened.privacy_.warnings)
    monkeypatch.setitem(classification_plan._GATE_CAUTION, "shifted", 1e9)
    monkeypatch.setattr(classification_plan, "_TOLERATED_HARM", 0.0)
    shut = PrivateTransferClassifier(random_state=0).fit(X, y, public=public)
    assert any("the gate stayed shut" in text for text in shut.privacy_.warnings)
    assert shut.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_fewer_than_ten_rows_do_no_harm(n):
    public = Public(X_public, y_public)
    model = PrivateTransferClassifier(random_state=0, classes=[0, 1]).fit(X[:n], np.arange(n) % 2, public=public)
    alone = _public_only(public)
    assert np.isfinite(model.coef_).all()
    assert log_loss(y, model.predict_proba(X)) <= 1.02 * log_loss(y, alone.predict_proba(X))


def _with_a_class_that_public_labels_lack(epsilon, seed=0, **params):
    seen = three[:600] < 2
    public = Public(X[:600][seen], three[:600][seen])
    model = PrivateTransferClassifier(epsilon, random_state=seed, classes=[0, 1, 2], **params)
    return model.fit(X[600:2600], three[600:2600], public=public)


def test_class_that_public_labels_lack_is_not_lost_as_epsilon_grows():
    losses = []
    for epsilon in (1.0, 4.0, 10.0):
        models = [_with_a_class_that_public_labels_lack(epsilon, seed) for seed in range(2)]
        losses.append(np.mean([log_loss(three[2600:], model.predict_proba(X[2600:])) for model in models]))
    assert losses[1] <= 1.03 * losses[0]
    assert losses[2] <= 1.03 * losses[1]


def test_probabilities_stay_calibrated():
    # Expected calibration error over ten bins, 4000 rows: an exact model has about 0.01.
    rare = (random.random(4000) < 1 / (1 + np.exp(-(score - 2.5)))).astype(int)
    for labels in (y, rare):
        public = Public(X[:300], y[:300])
        model = PrivateTransferClassifier(2.0, random_state=0).fit(X[300:], labels[300:], public=public)
        p = model.predict_proba(X)[:, 1]
        bins = np.minimum((10 * p).astype(int), 9)
        gaps = [abs(np.sum(p[bins == b] - labels[bins == b])) for b in range(10)]
        assert np.sum(gaps) / 4000 < 0.04
    wrong = _public_only(Public(X[:300], y[:300])).predict_proba(X)[:, 1]
    assert abs(np.mean(wrong - rare)) > 0.15  # the public model is far off for the rare class


def test_public_model_equals_a_fit_without_budget():
    random = np.random.default_rng(3)
    X, X_public = random.uniform(-1, 1, (3000, 3)), random.uniform(-1, 1, (300, 3))
    y, public = X[:, 0] > 0.2, Public(X_public, X_public[:, 0] > X_public[:, 1])
    model = PrivateTransferClassifier(4.0, 1e-5, random_state=0).fit(X, y, public=public)
    nothing = PrivateTransferClassifier(1e-9, 1e-15).fit(X, y, public=public)
    assert np.array_equal(model.public_only().predict_proba(X), nothing.predict_proba(X))
    assert not np.array_equal(model.public_only().predict_proba(X), model.predict_proba(X))
    assert model.fit(X, y).public_only() is None
