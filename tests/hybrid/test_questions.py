"""Questions, and how they travel: plain numbers there and back, nothing that could be code."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dpadapt.hybrid import questions
from dpadapt.hybrid.device import pack, unpack
from dpadapt.hybrid.questions import (
    ConstantHypothesis,
    EllipsoidHypothesis,
    LinearHypothesis,
    LossQuestion,
    MappedHypothesis,
    ParityHypothesis,
    Question,
    Squares,
    question_from,
)

RNG = np.random.default_rng(0)
X, COINS = RNG.standard_normal((60, 4)), np.zeros(60, dtype=np.int64)


class Constant:
    def predict(self, X):
        return np.ones(len(X))


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(questions, "_QUESTIONS", dict(questions._QUESTIONS))


@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes"), ("a", "b", "c")])
def test_a_loss_question_answers_the_same_after_its_journey(classes):
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
def test_every_kind_of_hypothesis_can_travel(hypothesis):
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
def test_a_hypothesis_that_is_none_is_refused_on_arrival(described):
    with pytest.raises(ValueError, match="not a question of the kind 'loss'"):
        question_from({"kind": "loss", "hypothesis": described})


def test_each_value_depends_on_its_own_row_alone():
    question, y = LossQuestion(LinearHypothesis([1.0, -1, 0, 0.5], 0.1)), RNG.integers(2, size=60)
    some = RNG.permutation(60)[:17]
    expected = question.value(X, y, COINS)[some]
    np.testing.assert_array_equal(question.value(X[some], y[some], COINS[some]), expected)


def test_a_linear_hypothesis_predicts_the_second_class_above_zero():
    assert LinearHypothesis([1.0], -2.0, ["low", "high"]).predict([[1.0], [3.0]]).tolist() == ["low", "high"]


def test_a_dataclass_of_plain_fields_travels_by_itself(registry):
    @dataclass(frozen=True, eq=False)
    class Coordinate(Question):
        kind = "coordinate of a test"
        which: int
        weights: np.ndarray

        def value(self, X, y, coins):
            return X[:, self.which] * self.weights[0]

    arrived = question_from(unpack(pack(Coordinate(2, np.array([0.5])).message())))
    assert isinstance(arrived, Coordinate)
    np.testing.assert_array_equal(arrived.value(X, None, COINS), X[:, 2] * 0.5)


def test_two_questions_of_one_kind_are_refused(registry):
    with pytest.raises(TypeError, match="two questions are of the kind 'loss'"):

        class Other(Question):
            kind = "loss"


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


def test_a_python_predictor_can_be_asked_about_but_not_sent():
    question = LossQuestion(Constant())
    assert question.value(X[:2], np.array([1, 0]), COINS[:2]).tolist() == [-1, 1]
    with pytest.raises(TypeError, match="Constant can't travel to a device"):
        question.message()
    with pytest.raises(TypeError, match="only the 0/1 loss can travel"):
        LossQuestion(LinearHypothesis([1.0]), loss=lambda p, y: p * 0.0).message()
    with pytest.raises(TypeError, match="method predict"):
        LossQuestion(lambda X: X)


def test_a_question_without_a_kind_says_that_it_cannot_travel():
    class Mine(Question):
        def value(self, X, y, coins):
            return X[:, 0]

    with pytest.raises(TypeError, match="Mine can't travel"):
        Mine().message()


def test_a_loss_of_ones_own_must_lie_between_zero_and_one():
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
def test_hypotheses_that_are_none_are_refused(arguments):
    with pytest.raises(ValueError, match=r"coef|classes"):
        LinearHypothesis(*arguments)


def test_messages_come_back_as_they_were_sent():
    message = {
        "number": 0.1,
        "flag": True,
        "nothing": None,
        "words": ["a", "ß"],
        "deep": {"list": [1, {"two": 2}]},
        "matrix": np.arange(6, dtype=np.int16).reshape(2, 3),
        "empty": np.zeros((0, 3)),
        "big-endian": np.array([1.5, -0.0], dtype=">f8"),
    }
    back = unpack(pack(message))
    for name in ("matrix", "empty", "big-endian"):
        np.testing.assert_array_equal(back.pop(name), message.pop(name))
    assert back == message
    assert pack(message) == pack(dict(reversed(message.items())))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[1]",
        b"\x80\x04.",
        b'{"a": NaN}',
        b'{"a": {"array": "AAAA", "dtype": "<f8", "shape": [1]}}',
        b'{"a": {"array": "AAAA", "dtype": "|O", "shape": [1]}}',
        b'{"a": {"array": "!!!!", "dtype": "|u1", "shape": [3]}}',
        b'{"a": {"array": "AAAA", "dtype": "|u1", "shape": [-1, -3]}}',
        b'{"a": {"array": "AAAA", "dtype": "|u1"}}',
        b'{"a": {"array": "AAAA", "dtype": "no such", "shape": [3]}}',
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_what_is_not_a_message_is_refused(sent):
    with pytest.raises(ValueError, match="not a message"):
        unpack(sent)


@pytest.mark.parametrize("value", [object(), np.array(["a"]), {"array": 1}, np.array([None]), {1, 2}])
def test_what_is_not_plain_cannot_be_sent(value):
    with pytest.raises(TypeError, match=r"can travel|can't have"):
        pack({"value": value})


def test_numbers_that_are_not_finite_cannot_be_sent():
    with pytest.raises(ValueError, match="JSON"):
        pack({"value": np.nan})
