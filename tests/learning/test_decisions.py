"""Class weights, thresholds and per-class numbers: public, free, and exactly what they say."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score

from dpadapt import Ledger, PrivateLogisticRegression, PrivateTransferClassifier, Public, load, save
from dpadapt.learning.decisions import best_threshold, by_class, score_shift, threshold_rule

N, K = 2000, 3


def rare(n, seed, cut=1.0):
    """Return rows of two classes, of which the second is rare."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, K))
    return X, (X @ [1.5, -1.0, 0.5] + 0.4 * random.logistic(size=n) > cut).astype(int)


X, Y = rare(N, 1)
PUBLIC = Public(*rare(400, 2, cut=1.3))
NEW, TRUE = rare(5000, 3)
ESTIMATORS = [PrivateTransferClassifier, PrivateLogisticRegression]


def fitted(cls, public=PUBLIC, **params):
    return cls(epsilon=2.0, random_state=0, **params).fit(X, Y, public=public)


# Class weights.


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_class_weights_multiply_the_odds_and_cost_nothing(cls):
    plain, counted = fitted(cls), fitted(cls, class_weight={1: 6.0, 0: 2.0})
    odds = [p[:, 1] / p[:, 0] for p in (plain.predict_proba(NEW), counted.predict_proba(NEW))]
    assert odds[1] == pytest.approx(3.0 * odds[0])
    assert plain.privacy_.entries == counted.privacy_.entries
    assert counted.predict(NEW).mean() > plain.predict(NEW).mean()


def test_balanced_weights_come_from_public_frequencies_alone():
    frequency = np.mean(PUBLIC.y)
    counted, given = (
        fitted(PrivateTransferClassifier, class_weight=weight)
        for weight in ("balanced", {0: 0.5 / (1 - frequency), 1: 0.5 / frequency})
    )
    assert np.allclose(counted.predict_proba(NEW), given.predict_proba(NEW))
    # The public model has the same weights.
    odds = [m.public_only().predict_proba(NEW) for m in (counted, fitted(PrivateTransferClassifier))]
    ratio = (odds[0][:, 1] / odds[0][:, 0]) / (odds[1][:, 1] / odds[1][:, 0])
    assert ratio == pytest.approx(np.full(len(NEW), (1 - frequency) / frequency))


def test_weighted_scores_have_the_optimum_of_a_weighted_loss():
    """Compared with scikit-learn's class weights, on many rows without privacy."""
    many, labels = rare(40_000, 5)
    weighted = LogisticRegression(C=1e6, class_weight={0: 1.0, 1: 8.0}).fit(many, labels)
    plain = LogisticRegression(C=1e6).fit(many, labels)
    shifted = plain.decision_function(NEW) + score_shift({1: 8.0}, np.array([0, 1]), None)
    assert np.mean(np.abs(weighted.decision_function(NEW) - shifted)) < 0.15
    assert np.mean((weighted.decision_function(NEW) > 0) != (shifted > 0)) < 0.02


@pytest.mark.parametrize(
    ("weight", "public", "words"),
    [
        ("balanced", None, "needs public labels"),
        ("balanced", Public(PUBLIC.X), "needs public labels"),
        ("balanced", Public(PUBLIC.X, np.zeros(400, dtype=int)), "public rows of every class"),
        ("heavy", PUBLIC, "must be 'balanced', a mapping"),
        ({2: 3.0}, PUBLIC, "one of its keys is no class"),
        ({1: 0.0}, PUBLIC, "each class_weight must be a positive number"),
        ({1: math.inf}, PUBLIC, "each class_weight must be a positive number"),
        (5.0, PUBLIC, "must be 'balanced', a mapping"),
    ],
)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_bad_class_weights_are_refused_before_anything_is_charged(cls, weight, public, words):
    ledger = Ledger(epsilon=9.0, delta=1e-5)
    with pytest.raises(ValueError, match=words):
        cls(class_weight=weight, classes=[0, 1]).fit(X, Y, public=public, ledger=ledger)
    assert ledger.entries == []


# Thresholds.


def test_costs_give_the_threshold_of_least_expected_cost():
    p = np.linspace(0.01, 0.99, 99)
    for miss, alarm in ((5, 1), (1, 1), (1, 7.5)):
        threshold = threshold_rule({"miss": miss, "false alarm": alarm}, 2)
        called = p >= threshold
        assert np.array_equal(called, p * miss >= (1 - p) * alarm)


@pytest.mark.parametrize("metric", ["balanced_accuracy", "f1"])
def test_a_metric_is_largest_at_its_threshold(metric):
    """By brute force: expected hits and false alarms at every threshold."""
    p = np.random.default_rng(0).beta(0.5, 4, 300)

    def worth(threshold):
        called = p >= threshold
        hits, alarms = p[called].sum(), (1 - p[called]).sum()
        if metric == "f1":
            return 2 * hits / (hits + alarms + p.sum())
        return hits / p.sum() - alarms / (1 - p).sum()

    chosen = best_threshold(metric, np.column_stack([1 - p, p]))
    assert worth(chosen) == pytest.approx(max(worth(t) for t in p))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_predict_uses_the_threshold_and_probabilities_stay(cls):
    plain = fitted(cls)
    p = plain.predict_proba(NEW)
    for wanted, score in (
        (0.3, None),
        ({"miss": 9, "false alarm": 1}, None),
        ("f1", f1_score),
        ("balanced_accuracy", balanced_accuracy_score),
    ):
        model = fitted(cls, decision_threshold=wanted)
        assert np.array_equal(model.predict_proba(NEW), p)
        assert np.array_equal(model.predict(NEW), (p[:, 1] >= model.decision_threshold_).astype(int))
        assert model.privacy_.entries == plain.privacy_.entries
        if score is not None:
            assert score(TRUE, model.predict(NEW)) > score(TRUE, plain.predict(NEW)) + 0.02
    assert plain.decision_threshold_ is None


@pytest.mark.parametrize("public", [PUBLIC, Public(PUBLIC.X)], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("params", [{}, {"prior": "same-population"}, {"public_model": "linear"}])
def test_every_kind_of_public_model_chooses_a_threshold(public, params):
    if public.y is None and params.get("public_model"):
        params = {}
    model = fitted(PrivateTransferClassifier, public, classes=[0, 1], decision_threshold="balanced_accuracy", **params)
    assert 0.03 < model.decision_threshold_ < 0.4


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("labelled", [True, False])
def test_frames_have_the_threshold_of_arrays_without_a_warning(cls, labelled):
    names = ["a", "b", "c"]
    labels = PUBLIC.y if labelled else None
    frame = Public(pd.DataFrame(PUBLIC.X, columns=names), labels)
    make = cls(epsilon=2.0, random_state=0, classes=[0, 1], decision_threshold="f1")
    of_frame = clone(make).fit(pd.DataFrame(X, columns=names), Y, public=frame)
    of_arrays = make.fit(X, Y, public=Public(PUBLIC.X, labels))
    # Frames are stored by columns, so that sums are rounded otherwise.
    assert of_frame.decision_threshold_ == pytest.approx(of_arrays.decision_threshold_, abs=0.02)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("accuracy", "decision_threshold must be a probability, the costs"),
        ({"miss": 2}, "decision_threshold must be a probability, the costs"),
        ({"miss": 0, "false alarm": 1}, "the cost of a miss must be a positive number"),
        (0.0, "between 0 and 1"),
        (1.0, r"decision_threshold must lie in \[0, 1\)"),
        ([0.5], r"decision_threshold must lie in \[0, 1\)"),
    ],
)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_bad_thresholds_are_refused_before_anything_is_charged(cls, wanted, words):
    ledger = Ledger(epsilon=9.0, delta=1e-5)
    with pytest.raises(ValueError, match=words):
        cls(decision_threshold=wanted).fit(X, Y, public=PUBLIC, ledger=ledger)
    with pytest.raises(ValueError, match="chosen on public rows"):
        cls(decision_threshold="f1", classes=[0, 1]).fit(X, Y, ledger=ledger)
    with pytest.raises(ValueError, match="for two classes"):
        cls(decision_threshold=0.3, classes=[0, 1, 2]).fit(X, Y, ledger=ledger)
    with pytest.raises(ValueError, match="count the costs twice"):
        cls(decision_threshold={"miss": 2, "false alarm": 1}, class_weight={1: 2}).fit(X, Y, public=PUBLIC)
    assert ledger.entries == []


# Numbers of each class.


@pytest.mark.parametrize("params", [{}, {"public_model": "linear"}])
def test_numbers_of_each_class_are_those_of_held_out_public_rows(params):
    model = fitted(PrivateTransferClassifier, decision_threshold=0.2, **params)
    found = model.public_by_class_
    assert found["support"] == np.bincount(PUBLIC.y).tolist()
    # Boosting knows the rows that it was fitted to by heart; held-out scores do not.
    known = by_class(PUBLIC.y, model.public_only().predict(PUBLIC.X), 2)
    assert found["public model"]["recall"][1] <= known["recall"][1]
    assert found["this model"]["recall"][1] > found["public model"]["recall"][1]  # private rows have more of the class
    fresh = by_class(TRUE, model.predict(NEW), 2)
    assert found["this model"]["recall"] == pytest.approx(fresh["recall"], abs=0.12)


def test_thresholds_weights_and_numbers_are_saved(tmp_path):
    model = fitted(PrivateTransferClassifier, decision_threshold="f1", class_weight={1: 3.0, 0: 1.0})
    save(model, tmp_path)
    again = load(tmp_path).model
    assert np.array_equal(again.predict(NEW), model.predict(NEW))
    assert again.class_weight == model.class_weight
    assert again.public_by_class_ == model.public_by_class_
    assert clone(again).decision_threshold == "f1"
