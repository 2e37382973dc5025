"""Questions and hypotheses: their values, and messages that hold plain numbers and no code."""

import math

import numpy as np
import pytest

from dpadapt.hybrid.questions import (
    ConstantHypothesis,
    EllipsoidHypothesis,
    LinearHypothesis,
    LossQuestion,
    MappedHypothesis,
    ParityHypothesis,
    Squares,
    question_from,
)
from dpadapt.integrations.device import pack, unpack

RNG = np.random.default_rng(0)
X, COINS = RNG.standard_normal((60, 4)), np.zeros(60, dtype=np.int64)


class Constant:
    def predict(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes"), ("a", "b", "c")])
def test_a_loss_question_has_the_same_values_after_it_was_sent(classes):
    n_scores = 1 if len(classes) == 2 else 3
    hypothesis = LinearHypothesis(RNG.standard_normal((n_scores, 4)), RNG.standard_normal(n_scores), classes)
    y = RNG.choice(classes, 60)
    question = LossQuestion(hypothesis)
    arrived = question_from(unpack(pack(question.message())))
    value = question.value(X, y, COINS)
    np.testing.assert_array_equal(arrived.value(X, y, COINS), value)
    np.testing.assert_array_equal(value, np.where(hypothesis.predict(X) == y, -1, 1))
    assert set(value) == {-1, 1}


@pytest.mark.parametrize(
    "hypothesis",
    [
        ConstantHypothesis(np.int64(1)),
        EllipsoidHypothesis(np.array([0, 2]), np.array([1.0, 0.5]), 1.3, np.array([0, 1])),
        MappedHypothesis(Squares(0.7), np.array([1.0, -1, 0.2, 0.3]), 0.1, np.array([0, 1])),
        ParityHypothesis(np.array([True, False, True, True]), np.array([0, 1])),
    ],
)
def test_every_kind_of_hypothesis_can_be_sent(hypothesis):
    y = RNG.integers(2, size=60)
    arrived = question_from(unpack(pack(LossQuestion(hypothesis).message())))
    assert type(arrived.hypothesis) is type(hypothesis)
    np.testing.assert_array_equal(arrived.value(X, y, COINS), LossQuestion(hypothesis).value(X, y, COINS))


@pytest.mark.parametrize(
    "described",
    [
        {"class": "object", "fields": {}},
        {"class": "ConstantHypothesis", "fields": {}},
        {"class": "ConstantHypothesis", "fields": {"label": 1, "more": 2}},
        {"class": "ConstantHypothesis", "fields": 3},
        {"class": ["list"], "fields": {}},
        {"fields": {}},
        "LinearHypothesis",
        7,
    ],
)
def test_a_malformed_hypothesis_is_refused_on_arrival(described):
    with pytest.raises(ValueError, match="not a question of the kind 'loss'"):
        question_from({"kind": "loss", "hypothesis": described})


def test_each_value_depends_on_its_own_row_alone():
    question, y = LossQuestion(LinearHypothesis([1.0, -1, 0, 0.5], 0.1)), RNG.integers(2, size=60)
    some = RNG.permutation(60)[:17]
    expected = question.value(X, y, COINS)[some]
    np.testing.assert_array_equal(question.value(X[some], y[some], COINS[some]), expected)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"kind": "eval"},
        {"kind": ["loss"]},
        {"kind": "loss"},
        {"kind": None},
        {"kind": "square", "where": {"low": [0.0], "high": [1.0], "groups": [[math.inf]]}},
    ],
)
def test_unknown_or_incomplete_questions_are_refused(message):
    with pytest.raises(ValueError, match="question of the kind"):
        question_from(message)


def test_a_question_about_a_python_predictor_can_be_asked_but_not_sent():
    question = LossQuestion(Constant())
    assert question.value(X[:2], np.array([1, 0]), COINS[:2]).tolist() == [-1, 1]
    with pytest.raises(TypeError, match="Constant can't be sent to a device"):
        question.message()
    with pytest.raises(TypeError, match="only the 0/1 loss can be sent"):
        LossQuestion(LinearHypothesis([1.0]), loss=lambda p, y: p * 0.0).message()
    with pytest.raises(TypeError, match="method predict"):
        LossQuestion(lambda X: X)


def test_a_custom_loss_must_lie_between_zero_and_one():
    y = np.array([0.0, 0.25])
    halves = LossQuestion(Constant(), loss=lambda predicted, y: np.abs(predicted - y))
    assert halves.value(X[:2], y, COINS[:2]).tolist() == [1.0, 0.5]
    for factor in (2.0, -1.0, np.nan):
        wrong = LossQuestion(Constant(), loss=lambda predicted, y, factor=factor: factor * np.abs(predicted - y))
        with pytest.raises(ValueError, match=r"loss must lie in \[0, 1\]"):
            wrong.value(X[:2], y, COINS[:2])


@pytest.mark.parametrize(
    "arguments",
    [
        ([np.nan],),
        ([1.0], np.inf),
        ([1.0], [0.0, 1.0]),
        ([[1.0], [2.0], [3.0]], [0, 0, 0]),
        ([1.0], 0.0, [1]),
        (np.zeros((1, 1, 1)),),
    ],
)
def test_malformed_linear_hypotheses_are_refused(arguments):
    with pytest.raises(ValueError, match=r"coef|classes"):
        LinearHypothesis(*arguments)
