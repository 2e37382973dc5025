import numpy as np
import pytest
from sklearn.metrics import log_loss

from dpadapt import PrivateLogisticRegression, Public
from dpadapt.datasets.bundled import fair_by_age

random = np.random.default_rng(12)
X = random.uniform(-1, 1, (4000, 4))
score = 3 * (X @ [1.0, -1.0, 0.5, 0.0]) + 0.5
y = (random.random(4000) < 1 / (1 + np.exp(-score))).astype(int)
X_public = X[:200] + 0.1


def test_a_model_of_two_classes_estimates_the_direction():
    model = PrivateLogisticRegression(epsilon=4.0, random_state=0).fit(X, y)
    truth = np.array([1.0, -1.0, 0.5, 0.0])
    cosine = model.coef_[0] @ truth / np.linalg.norm(model.coef_) / np.linalg.norm(truth)
    assert cosine > 0.97
    assert model.coef_.shape == (1, 4)
    assert model.score(X, y) > 0.75


def test_correction_of_a_public_model_on_real_data():
    domains = fair_by_age()
    X_target, y_target = np.asarray(domains.target.X, float), np.asarray(domains.target.y)
    order = np.random.default_rng(0).permutation(len(y_target))
    test, train = order[:1000], order[1000:]
    public = Public(np.asarray(domains.source.X, float), np.asarray(domains.source.y))

    def loss(epsilon, delta=1e-6):
        model = PrivateLogisticRegression(epsilon, delta, random_state=1)
        model.fit(X_target[train], y_target[train], public=public)
        return log_loss(y_target[test], model.predict_proba(X_target[test]))

    public_only = loss(1e-6, 1e-12)
    assert loss(3.0) < public_only - 0.02


def test_a_declared_class_without_rows_is_allowed():
    model = PrivateLogisticRegression(epsilon=4.0, classes=[0, 1, 2], random_state=0).fit(X, y)
    assert list(model.classes_) == [0, 1, 2]
    assert np.mean(model.predict(X) == 2) < 0.05


def test_features_ten_times_smaller_than_their_bounds_cost_little():
    def loss(rows):
        models = [PrivateLogisticRegression(random_state=seed).fit(rows, y) for seed in range(6)]
        return np.mean([log_loss(y, model.predict_proba(rows)) for model in models])

    # Without the range of the rows the ratio is 1.6.
    assert loss(X / 10) < 1.1 * loss(X)


def test_the_range_is_charged_with_the_fit_and_only_without_public_data():
    receipt = PrivateLogisticRegression(random_state=0).fit(X, y).privacy_
    assert [entry.label for entry in receipt.entries] == ["length of rows", "gradient"]
    assert receipt.charges == 1
    assert receipt.epsilon == pytest.approx(1.0, rel=1e-6)
    receipt = PrivateLogisticRegression(random_state=0).fit(X, y, public=Public(X_public)).privacy_
    assert [entry.label for entry in receipt.entries] == ["gradient"]
